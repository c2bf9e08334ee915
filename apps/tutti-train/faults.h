/* Faults for the tests: built in only with TUTTI_TRAIN_FAULTS, for a program of tests/train, and
 * selected by the environment variable TUTTI_TRAIN_FAULT = KIND:PLACE:RANK.
 *
 * KIND   stop      the process stops itself (SIGSTOP)
 *        exit      it exits with code 3, without a message
 *        fail      it fails with a message
 *        scale     its loss weight is doubled (PLACE step, from the first step on)
 *        hang      it pauses for ever
 *        late      it sleeps for FAULT_LATE seconds
 *        signal    it sends itself SIGUSR1
 *        overflow  its gradients are not finite, but its loss is (PLACE step)
 *        loss      its loss is infinite, but its gradients are finite (PLACE step)
 *        mute      it declares no layer of the step ready (PLACE step)
 *        corrupt   a bit of its weights flips after the step
 *        nan       a pixel of its batch is NaN (PLACE step: the third of each epoch)
 * PLACE  start     before MPI starts
 *        comm      before the communicator is created
 *        setup     before parameters are loaded and broadcast
 *        exchange  before the gradient exchange is created
 *        step      the third step of the run
 *        agree     the end of that step
 *        save      before each save
 *        end       the end of the run
 *        left      the end of main */
#ifndef TUTTI_TRAIN_FAULTS_H
#define TUTTI_TRAIN_FAULTS_H

#ifdef TUTTI_TRAIN_FAULTS

#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "common/report.h"

enum { FAULT_STEP = 3 };
#define FAULT_LATE 0.3

/* Whether this fault was selected for this place and rank. */
static inline bool fault_asked(const char *kind, const char *place, int rank)
{
    char wanted[64];
    const char *given = getenv("TUTTI_TRAIN_FAULT");
    snprintf(wanted, sizeof wanted, "%s:%s:%d", kind, place, rank);
    return given && strcmp(given, wanted) == 0;
}

/* Carries out the selected fault; returns the code to continue with. */
static inline int fault_here(const char *place, int rank)
{
    if (fault_asked("stop", place, rank)) raise(SIGSTOP);
    if (fault_asked("exit", place, rank)) _exit(3);
    while (fault_asked("hang", place, rank)) pause();
    if (fault_asked("late", place, rank)) usleep((useconds_t)(1e6 * FAULT_LATE));
    if (fault_asked("signal", place, rank)) raise(SIGUSR1);
    if (fault_asked("fail", place, rank))
        return app_fail(APP_FAILED, "a fault was asked for at '%s'", place);
    return APP_OK;
}

/* Flips the lowest bit of a weight. */
static inline int fault_corrupt(tutti_params *params, tutti_context *ctx)
{
    uint32_t word;
    tutti_tensor flat;
    APP_CHECK(tutti_params_settle(params, ctx));
    APP_CHECK(tutti_params_flat(params, TUTTI_PARAMS_MASTER, &flat));
    APP_CHECK(tutti_copy(ctx, &word, flat.data, sizeof word));
    APP_CHECK(tutti_context_synchronize(ctx));
    word ^= 1;
    return app_check(tutti_copy(ctx, flat.data, &word, sizeof word));
}

static inline int fault_loss(double *loss, tutti_context *ctx)
{
    const double infinite = INFINITY;
    return app_check(tutti_copy(ctx, loss, &infinite, sizeof infinite));
}

#define FAULT_HERE(place, rank) fault_here(place, rank)
#define FAULT_ASKED(kind, place, rank) fault_asked(kind, place, rank)
#define FAULT_CORRUPT(params, ctx) fault_corrupt(params, ctx)
#define FAULT_LOSS(loss, ctx) fault_loss(loss, ctx)

#else

enum { FAULT_STEP = 0 };
#define FAULT_HERE(place, rank) ((void)(rank), 0)
#define FAULT_ASKED(kind, place, rank) ((void)(rank), false)
#define FAULT_CORRUPT(params, ctx) ((void)(params), (void)(ctx), 0)
#define FAULT_LOSS(loss, ctx) ((void)(loss), (void)(ctx), 0)

#endif
#endif
