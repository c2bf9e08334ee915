/* The state of a run and its set-up. */
#ifndef TUTTI_TRAIN_TRAINER_H
#define TUTTI_TRAIN_TRAINER_H

#include "common/group.h"
#include "history.h"
#include "log.h"
#include "optimizer.h"
#include "options.h"
#include "schedule.h"
#include "task.h"

/* Progress of the run: the current step, or the last one made.  All of it is saved. */
typedef struct run_state {
    int64_t step;       /* of the run, from 1; 0: none yet */
    int64_t epoch;      /* from 1; 0: none yet */
    int64_t epoch_step; /* within the epoch, from 1 */
    int64_t evaluated;  /* the last evaluated epoch */
    int64_t skipped;    /* steps without an update */
    loss_scale scale;
} run_state;

/* The contents of the checkpoint; checkpoint.c. */
typedef struct run_file run_file;

typedef struct trainer {
    const train_options *options;
    app_group *group;
    tutti_context *ctx;
    tutti_comm *comm;
    task *task;
    tutti_params *params;
    tutti_step_block *step;
    optimizer optimizer;
    tutti_grad_sync *sync;

    int64_t steps, total; /* steps of an epoch, and of the run */
    int64_t warmup, log_every;
    int64_t parts;            /* of a batch: micro-steps, or leaves in reproducible mode */
    int64_t part, part_count; /* this rank's parts: all, or its own leaves */
    int64_t at_once;          /* parts of a forward and a backward pass, at most */
    int64_t micro_batch;      /* rows of a part */
    int64_t row, rows;        /* this rank's share of these rows */

    run_state state;
    history history;
    run_file *file; /* NULL without --checkpoint */
    bool resumed;
    bool changed; /* since the checkpoint was written or read */

    /* [parts] on the device: sums over this rank's rows of each; 0 for others' leaves */
    double *losses;
    double *losses_host; /* page-locked; of the last step, once its update is complete */
    bool loaded, begun;  /* the first pass of the next step, already; its forward, too: */
    int begun_code;      /* whether that failed */
    int64_t unchecked;   /* step of the epoch whose result is not checked yet; 0: none */
    bool uncounted;      /* its wait for the sums is not counted yet */
    double loss;         /* of the last checked step: this rank's part of the batch's mean */
    double grad_norm;    /* of the same step */
    int skips;           /* of --on-nonfinite, since the last checked step that was not skipped */

    train_log log;
    laps laps;
    double begin;       /* when this part of the run began, by app_now() */
    int64_t first_step; /* steps made before */
    app_output *plot;   /* rank 0, with --plot, until it is drawn */
} trainer;

/* Collective.  All ranks return the same code.  trainer_destroy cleans up after a failure too. */
int trainer_create(trainer *trainer, const train_options *options, app_group *group);
void trainer_destroy(trainer *trainer);

/* Where rank's contiguous share of `total` rows begins; it ends where the next one's begins. */
int64_t trainer_share(int64_t total, int rank, int world_size);

/* How many parts a pass over this rank's parts has that begins with this one. */
int64_t trainer_pass(const trainer *trainer, int64_t part);

/* Sets the values of a step of the run, from 1. */
int trainer_set_values(trainer *trainer, int64_t step);

/* Loads this rank's rows of that pass of a step. */
int trainer_load(trainer *trainer, int64_t epoch_step, int64_t part);

/* Sums `count` numbers, a power of two, as a binary tree; they lie `stride` apart. */
double trainer_tree_sum(const double *values, int64_t count, int64_t stride);

/* Predictions a step, over all ranks. */
double trainer_batch_tokens(const trainer *trainer);
double trainer_learning_rate(const trainer *trainer, int64_t step);

/* Where the run is, for the log. */
log_place trainer_place(const trainer *trainer);

/* Prints the configuration on rank 0. */
void trainer_describe(const trainer *trainer);

#endif
