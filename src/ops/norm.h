/* LayerNorm (centered) and RMSNorm; include/tutti/layernorm.h has the mathematics. */
#ifndef TUTTI_OPS_NORM_H
#define TUTTI_OPS_NORM_H

#include "core/op.h"

typedef struct tutti__norm_args {
    int64_t rows, cols;
    bool centered, zero_centered;
    double eps;
    tutti_dtype param_dtype, grad_dtype; /* of gamma and beta; of their gradients, f32 or f64 */
    tutti__matrix x;                     /* in backward the normalised values: x or the sum */
    const void *gamma;                   /* optional */
    const void *beta;                    /* optional; only with gamma */
    void *mean,
        /* [rows] f32 or f64 (tutti__accumulate_dtype of x and params); mean: centered only; both
         * NULL: not wanted */
        *rstd;

    tutti__matrix residual; /* forward; optional */
    tutti__matrix sum;      /* forward; optional; may be x or residual */
    tutti__matrix y;        /* forward */

    tutti__matrix dy;     /* of y's type */
    tutti__matrix dsum;   /* optional; x's type */
    tutti__matrix dx;     /* optional; x's type; may be dy or dsum */
    void *dgamma, *dbeta; /* optional, each; [cols] */
    bool accumulate;      /* dgamma, dbeta += */
    /* cuda, in backward: equal leaves; in_leaves: a leaf's bits are the same whatever is beside it.
     * Gradients are those of each leaf, or, where their span is 2 instead of 1, of leaves 2 i and
     * 2 i + 1, so many elements apart. */
    int leaves;
    bool in_leaves;
    int64_t dgamma_apart, dbeta_apart;
    int dgamma_span, dbeta_span;
} tutti__norm_args;

#endif
