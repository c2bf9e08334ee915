/* Everything that a run holds, and how it is set up. */
#ifndef TUTTI_TRAIN_TRAINER_H
#define TUTTI_TRAIN_TRAINER_H

#include <stdio.h>

#include "common/group.h"
#include "options.h"
#include "schedule.h"
#include "task.h"

typedef struct trainer {
    const train_options *options;
    app_group *group;
    tutti_context *ctx;
    tutti_comm *comm;

    task *task;
    tutti_params *params;
    tutti_step *step;
    tutti_adamw *adamw;
    tutti_grad_sync *sync;
    loss_scale scale;
    double *losses; /* [accumulate] on the device: the sum over the rows of each micro-step */
    double *losses_host;

    int64_t steps, total; /* an epoch; the run */
    int64_t warmup, log_every;
    int64_t micro_batch; /* rows of a micro-step, over all ranks */
    int64_t row, rows;   /* this rank's share of them */
    FILE *losses_file;   /* rank 0, with --losses */
} trainer;

/* Collective.  All ranks return the same code.  trainer_destroy cleans up after a failure too. */
int trainer_create(trainer *trainer, const train_options *options, app_group *group);
void trainer_destroy(trainer *trainer);

/* Where rank's contiguous share of `total` rows begins; it ends where the next one's begins. */
int64_t trainer_share(int64_t total, int rank, int world_size);

/* The table of the configuration, on rank 0. */
void trainer_describe(const trainer *trainer);

#endif
