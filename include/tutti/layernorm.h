/* LayerNorm.
 *
 *     y = (x - mean) * rstd * gamma + beta,   rstd = 1 / sqrt(var + eps),   row by row
 *                                                                          [Ba et al. 2016]
 *
 * var is the biased variance, from the centred values.  With a residual r the layer normalises
 * s = x + r, rounded to x's type, and outputs s as well.  With zero_centered the factor is
 * 1 + gamma.  Arithmetic, mean and rstd are f32, or f64 if x or a parameter is f64.  A row of equal
 * values gives exactly beta if eps > 0.  If a row's sum of x or of (x - mean)^2 overflows the
 * arithmetic's type, rstd is NaN, and so are the row's y and all gradients that it enters: one
 * value 1.8e19 from the mean is enough, or 1.3e154 in f64, and so are cols values that are 1 /
 * sqrt(cols) of that away.
 *
 * Backward, with g = dy * gamma and n = (x - mean) * rstd:
 *     dx = rstd * (g - mean(g) - n * mean(g * n)) + dsum
 *     dgamma = sum over rows of dy * n,    dbeta = sum over rows of dy
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
 * saved         mean, rstd  [rows] each    f32 or f64
 * parameters    gamma       [cols]         param_dtype   unless no_gamma; initially 1, or 0 with
 *                                                        zero_centered
 *               beta        [cols]         param_dtype   unless no_beta; initially 0
 *
 * "[rows, cols]" is any tensor whose last dimensions multiply to cols and whose leading ones are
 * rows.  So normalising over several dimensions takes no option: with a weight of [512, 512] cols
 * is 262144, and gamma and beta are bound as flat views of as many elements.  y may be x only if
 * saved is NULL.  The gradients of gamma and beta are of one type, f32 or f64 whatever the
 * arithmetic.  Bits depend on the shape, the types and the device only. */
#ifndef TUTTI_LAYERNORM_H
#define TUTTI_LAYERNORM_H

#include "tutti/layer.h"

TUTTI_BEGIN

typedef struct tutti_layernorm_desc {
    size_t size;
    int64_t cols;            /* 1 to 2^20; must be given */
    double eps;              /* >= 0; 0: 1e-5; TUTTI_ZERO: none */
    tutti_dtype x_dtype;     /* 0: f32 */
    tutti_dtype param_dtype; /* 0: f32 */
    tutti_dtype y_dtype;     /* x_dtype or param_dtype; 0: x_dtype */
    int no_gamma;            /* requires no_beta */
    int zero_centered;
    int no_beta;
} tutti_layernorm_desc;
#define TUTTI_LAYERNORM_DESC_INIT TUTTI_DESC_INIT(tutti_layernorm_desc)
TUTTI_API tutti_layernorm_desc tutti_layernorm_desc_default(void);

/* A layer on the context's device; the context need not outlive it.  TUTTI_ERR_ARG if desc is NULL
 * or one of its fields is not what the descriptor says. */
TUTTI_API tutti_status tutti_layernorm_create(tutti_context *ctx, const tutti_layernorm_desc *desc,
                                              tutti_layer **layer);

/* The slots above by name; a direction ignores those that it does not use. */
typedef struct tutti_layernorm_call {
    const tutti_tensor *x, *residual;
    tutti_tensor *y, *sum;
    const tutti_tensor *dy, *dsum;
    tutti_tensor *dx;
    TUTTI_CALL_COMMON;
} tutti_layernorm_call;
/* As tutti_layer_plan, tutti_layer_forward and tutti_layer_backward. */
TUTTI_API tutti_status tutti_layernorm_plan(tutti_layer *layer, tutti_context *ctx,
                                            const tutti_layernorm_call *call);
TUTTI_API tutti_status tutti_layernorm_forward(tutti_layer *layer, tutti_context *ctx,
                                               const tutti_layernorm_call *call);
TUTTI_API tutti_status tutti_layernorm_backward(tutti_layer *layer, tutti_context *ctx,
                                                const tutti_layernorm_call *call);

TUTTI_END
#endif
