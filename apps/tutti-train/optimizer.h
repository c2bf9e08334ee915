/* The run's optimizer: the library's AdamW or SGD, as --optimizer says. */
#ifndef TUTTI_TRAIN_OPTIMIZER_H
#define TUTTI_TRAIN_OPTIMIZER_H

#include "options.h"

/* One of them; the other is NULL. */
typedef struct optimizer {
    tutti_adamw *adamw;
    tutti_sgd *sgd;
} optimizer;

int optimizer_create(optimizer *own, const train_options *options, tutti_context *ctx,
                     tutti_params *params);
void optimizer_destroy(optimizer *own);
int optimizer_update(optimizer *own, tutti_context *ctx, const tutti_step_block *step);
/* The norm of the last update's gradients, for which it waits. */
int optimizer_norm(optimizer *own, tutti_context *ctx, double *norm);

enum { OPTIMIZER_STATES_MAX = 3 };
/* Its tensors, which `states` has room for; *count: how many. */
int optimizer_states(const optimizer *own, tutti_state_tensor *states, int *count);

/* Prints the configuration's line. */
void optimizer_describe(const train_options *options);

#endif
