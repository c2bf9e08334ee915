/* Everything that a run holds, and how it is set up. */
#ifndef TUTTI_TRAIN_TRAINER_H
#define TUTTI_TRAIN_TRAINER_H

#include <stdio.h>

#include "common/group.h"
#include "loader.h"
#include "model.h"
#include "options.h"
#include "schedule.h"

typedef struct trainer {
    const train_options *options;
    app_group *group;
    tutti_context *ctx;
    tutti_comm *comm;

    dataset train_set, test_set; /* with --hold-out, test_set stays empty */
    loader train, test;          /* test: what is evaluated, held out or not */
    const char *test_name;       /* "test" or "validation" */
    void *logits_raw;            /* of one call, on the host, as they come */
    double *logits;              /* and in f64 */

    tutti_params *params;
    model model;
    tutti_step *step;
    tutti_adamw *adamw;
    tutti_grad_sync *sync;
    loss_scale scale;

    int64_t steps, total; /* an epoch; the run */
    int64_t warmup, log_every;
    int64_t row, rows; /* this rank's share of each global batch */
    FILE *losses;      /* rank 0, with --losses */
} trainer;

/* Collective.  All ranks return the same code.  trainer_destroy cleans up after a failure too. */
int trainer_create(trainer *trainer, const train_options *options, app_group *group);
void trainer_destroy(trainer *trainer);

/* The table of the configuration, on rank 0. */
void trainer_describe(const trainer *trainer);

#endif
