/* An optimizer's update, in two operations: squares, the sums of squares of runs of gradients; then
 * update, which adds these up to the norm, decides whether to skip the step, and rewrites masters,
 * state and working values.  In between the ranks of a sharded store exchange the sums.  The same
 * for tensors that lie apart: grad_norm, then apply.  Forward only.  include/tutti/adamw.h, sgd.h
 * and update.h have the mathematics. */
#ifndef TUTTI_OPS_UPDATE_H
#define TUTTI_OPS_UPDATE_H

#include <math.h>

#include "core/op.h"
#include "core/params.h"
#include "tutti/update.h"

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

typedef struct tutti__update_options {
    tutti__update_rule rule;
    double beta1, beta2; /* SGD: beta1 is the momentum */
    double eps, weight_decay, clip_norm;
    bool skip_nonfinite, nesterov;
} tutti__update_options;

typedef struct tutti__update_args {
    tutti__update_options options;
    tutti__squares_args of; /* squares: all of them */
    void *state[2]; /* AdamW: m, v; SGD: the velocity, or NULL, and NULL.  Slices at their local */
    void *working;  /* a whole flat buffer, or NULL */
    tutti_dtype working_dtype;
    const int32_t *block_param;
    const tutti__param_factors *factors;
    tutti__update_state *progress;
    const tutti_step_values *step;
    int64_t rounded; /* of the values that have another type, which come first, the count */
    const tutti__shard_replicas *replicas; /* are written too; or NULL */
} tutti__update_args;

TUTTI__ANYWHERE static inline int64_t tutti__norm_runs(int64_t count)
{
    return (count + TUTTI__NORM_RUN - 1) / TUTTI__NORM_RUN;
}

/* Elements that a tensor takes in a flat buffer. */
static inline int64_t tutti__padded(int64_t count)
{
    return (count + TUTTI_PARAM_ALIGN - 1) / TUTTI_PARAM_ALIGN * TUTTI_PARAM_ALIGN;
}

/* What follows from the sum of the squares. */
TUTTI__ANYWHERE static inline tutti_grad_norm_values
tutti__norm_of(double squares, double loss_scale, double clip_norm, bool skip_nonfinite)
{
    const double norm = sqrt(squares) / loss_scale;
    const double clip = clip_norm > 0 ? clip_norm / (norm + 1e-6) : 1;
    const bool finite = isfinite(norm);
    tutti_grad_norm_values values;
    values.norm = norm;
    values.clip = clip > 1 ? 1 : clip; /* keeps NaN */
    values.nonfinite = !finite;
    values.skip = skip_nonfinite && !finite;
    return values;
}

/* Tensors that lie apart.  Their squares are added in runs as if they lay in a flat buffer, each
 * from a multiple of TUTTI_PARAM_ALIGN elements on: the f32 ones in one buffer, the f64 ones in
 * another, whose runs follow. */
typedef struct tutti__grad_norm_args {
    const tutti_tensor *grads;
    int count;
    int64_t elements[2];           /* of the flat buffers: f32, f64 */
    const tutti_step_values *step; /* or NULL: the loss scale is 1 */
    double clip_norm;
    bool skip_nonfinite;
    tutti_grad_norm_values *norm;
} tutti__grad_norm_args;

typedef struct tutti__apply_args {
    tutti__update_options options;
    const tutti_param *const *params;
    int count;
    const tutti_tensor *state[2]; /* [count], or NULL */
    const tutti_step_values *step;
    const tutti_grad_norm_values *norm; /* or NULL */
    double *updates;                    /* or NULL: the step's number counts */
} tutti__apply_args;

static inline int64_t tutti__list_runs(const tutti__grad_norm_args *args)
{
    return tutti__norm_runs(args->elements[0]) + tutti__norm_runs(args->elements[1]);
}

/* What an optimizer updates. */
static inline const tutti_tensor *tutti__master_of(const tutti_param *param)
{
    return param->master.data ? &param->master : &param->value;
}

#endif
