/* AdamW's update, forward only: flat passes over a store for the norm of the gradients, the
 * decision to skip, the update and the working values.  include/tutti/adamw.h has the
 * mathematics. */
#ifndef TUTTI_OPS_ADAMW_H
#define TUTTI_OPS_ADAMW_H

#include "core/op.h"
#include "tutti/step.h"

/* Element i belongs to the parameter whose number is block_param[i / TUTTI_PARAM_ALIGN]. */
typedef struct tutti__param_factors {
    double weight_decay, lr_scale;
    int64_t working; /* this parameter has a working value of another type */
} tutti__param_factors;

/* AdamW's state on the device besides m and v. */
typedef struct tutti__adamw_state {
    double updates;   /* t */
    double grad_norm; /* of the last update's gradients / loss_scale */
    double clip;      /* factor of the last update's gradients: clipping times 1 / loss_scale */
    double skipped;   /* 1: the last update was skipped */
} tutti__adamw_state;

typedef struct tutti__adamw_args {
    int64_t count;     /* multiple of TUTTI_PARAM_ALIGN */
    tutti_dtype dtype; /* f32 or f64, of master, grad, m, v */
    void *master, *m, *v;
    const void *grad;
    void *working; /* or NULL */
    tutti_dtype working_dtype;
    const int32_t *block_param;
    const tutti__param_factors *factors;
    tutti__adamw_state *state;
    const tutti_step_values *step;
    double beta1, beta2, eps, weight_decay, clip_norm;
    bool skip_nonfinite;
} tutti__adamw_args;

#endif
