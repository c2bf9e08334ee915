/* RMSNorm.
 *
 *     y = x * rstd * gamma,   rstd = 1 / sqrt(mean(x^2) + eps),   row by row
 *                                                          [Zhang & Sennrich 2019]
 *
 * With a residual r the layer normalises s = x + r, rounded to x's type, and outputs s as well.
 * With zero_centered the factor is 1 + gamma.  Arithmetic and rstd are f32, or f64 if x or gamma is
 * f64.  If a row's sum of x^2 overflows the arithmetic's type, rstd is NaN, and so are the row's y
 * and all gradients that it enters: one value of 1.8e19 is enough, or 1.3e154 in f64, and so are
 * cols values of 1 / sqrt(cols) of that.
 *
 * Backward, with g = dy * gamma and n = x * rstd:
 *     dx = rstd * (g - n * mean(g * n)) + dsum,    dgamma = sum over rows of dy * n
 *
 * slot          tensor      shape          type
 * in[0]         x           [rows, cols]   x_dtype       in backward s, if forward had a residual:
 *                                                        the caller puts it there, unchecked
 * in[1]         residual    [rows, cols]   x_dtype       optional, forward only
 * out[0]        y           [rows, cols]   y_dtype       backward does not read it
 * out[1]        sum         [rows, cols]   x_dtype       s; optional, only with a residual; may be
 *                                                        x, where backward wants it, or residual
 * upstream[0]   dy          [rows, cols]   y_dtype
 * upstream[1]   dsum        [rows, cols]   x_dtype       optional: the gradient of sum, or without
 *                                                        a residual what else x has of it
 * din[0]        dx          [rows, cols]   x_dtype       optional; the gradient of x and of
 *                                                        residual; may be dy (of one type) or dsum
 * saved         rstd        [rows]         f32 or f64
 * parameters    gamma       [cols]         param_dtype   unless no_gamma; initially 1, or 0 with
 *                                                        zero_centered
 *
 * "[rows, cols]" is any tensor whose last dimensions multiply to cols and whose leading ones are
 * rows.  So normalising over several dimensions takes no option: with a weight of [512, 512] cols
 * is 262144, and gamma is bound as a flat view of as many elements.  y may be x only if saved is
 * NULL.  The gradient of gamma is f32 or f64 whatever the arithmetic.  Bits depend on the shape,
 * the types and the device only. */
#ifndef TUTTI_RMSNORM_H
#define TUTTI_RMSNORM_H

#include "tutti/layer.h"

TUTTI_BEGIN

typedef struct tutti_rmsnorm_desc {
    size_t size;
    int64_t cols;            /* 1 to 2^20; must be given */
    double eps;              /* >= 0; 0: 1e-6; TUTTI_ZERO: none */
    tutti_dtype x_dtype;     /* 0: f32 */
    tutti_dtype param_dtype; /* 0: f32 */
    tutti_dtype y_dtype;     /* x_dtype or param_dtype; 0: x_dtype */
    int no_gamma;
    int zero_centered;
} tutti_rmsnorm_desc;
#define TUTTI_RMSNORM_DESC_INIT TUTTI_DESC_INIT(tutti_rmsnorm_desc)
TUTTI_API tutti_rmsnorm_desc tutti_rmsnorm_desc_default(void);

/* A layer on the context's device; the context need not outlive it.  TUTTI_ERR_ARG if desc is NULL
 * or one of its fields is not what the descriptor says. */
TUTTI_API tutti_status tutti_rmsnorm_create(tutti_context *ctx, const tutti_rmsnorm_desc *desc,
                                            tutti_layer **layer);

/* The slots above by name; a direction ignores those that it does not use. */
typedef struct tutti_rmsnorm_call {
    const tutti_tensor *x, *residual;
    tutti_tensor *y, *sum;
    const tutti_tensor *dy, *dsum;
    tutti_tensor *dx;
    TUTTI_CALL_COMMON;
} tutti_rmsnorm_call;
/* As tutti_layer_plan, tutti_layer_forward and tutti_layer_backward. */
TUTTI_API tutti_status tutti_rmsnorm_plan(tutti_layer *layer, tutti_context *ctx,
                                          const tutti_rmsnorm_call *call);
TUTTI_API tutti_status tutti_rmsnorm_forward(tutti_layer *layer, tutti_context *ctx,
                                             const tutti_rmsnorm_call *call);
TUTTI_API tutti_status tutti_rmsnorm_backward(tutti_layer *layer, tutti_context *ctx,
                                              const tutti_rmsnorm_call *call);

TUTTI_END
#endif
