/* An optimizer's update, in two operations: squares, the sums of squares of runs of gradients; then
 * update, which adds these up to the norm, decides whether to skip the step, and rewrites masters,
 * state and working values.  In between the ranks of a sharded store exchange the sums.  Forward
 * only.  include/tutti/adamw.h and sgd.h have the mathematics. */
#ifndef TUTTI_OPS_UPDATE_H
#define TUTTI_OPS_UPDATE_H

#include "core/op.h"
#include "core/params.h"
#include "tutti/step.h"

/* What this rank updates, own_count slices of the flat buffers.  grad is a whole flat buffer. */
typedef struct tutti__squares_args {
    int64_t count; /* of the flat buffer */
    const tutti__slice *own;
    int own_count;
    tutti_dtype dtype; /* f32 or f64, of masters, gradients and state */
    const void *grad;
    double *squares; /* one for each TUTTI__NORM_RUN elements of the flat buffer: own ones */
} tutti__squares_args;

/* Element i belongs to the parameter whose number is block_param[i / TUTTI_PARAM_ALIGN]. */
typedef struct tutti__param_factors {
    double weight_decay, lr_scale;
    int64_t working; /* this parameter has a working value of another type */
} tutti__param_factors;

/* What is known of the updates so far, on the device. */
typedef struct tutti__update_state {
    double updates;   /* t */
    double grad_norm; /* of the last update's gradients / loss_scale */
    double clip;      /* factor of the last update's gradients: clipping times 1 / loss_scale */
    double skipped;   /* 1: the last update was skipped */
} tutti__update_state;

typedef enum tutti__update_rule { TUTTI__ADAMW, TUTTI__SGD } tutti__update_rule;

typedef struct tutti__update_args {
    tutti__squares_args of; /* squares: all of them */
    tutti__update_rule rule;
    void *state[2]; /* AdamW: m, v; SGD: the velocity, or NULL, and NULL.  Slices at their local */
    void *working;  /* a whole flat buffer, or NULL */
    tutti_dtype working_dtype;
    const int32_t *block_param;
    const tutti__param_factors *factors;
    tutti__update_state *progress;
    const tutti_step_values *step;
    double beta1, beta2; /* SGD: beta1 is the momentum */
    double eps, weight_decay, clip_norm;
    bool skip_nonfinite, nesterov;
} tutti__update_args;

TUTTI__ANYWHERE static inline int64_t tutti__norm_runs(int64_t count)
{
    return (count + TUTTI__NORM_RUN - 1) / TUTTI__NORM_RUN;
}

#endif
