/* BiasDropoutActivation: bias, activation and dropout in one pass.
 *
 *     z = x + bias,   y = keep ? act(z) / p_keep : 0,   act as in tutti/activation.h
 *     with a residual r:  y = r + that, the sum rounded to dtype once
 *     backward:  dx = keep ? dy act'(z) / p_keep : 0,   dbias = sum over rows of dx, before it is
 *     rounded;   act' from z
 *
 * The gradient of a residual is dy itself, so no call computes it.
 *
 * An element is dropped with probability p, which is taken as the nearest multiple of 2^-16: p_keep
 * is 1 minus that.  Its 16 random bits are of Philox 4x32-10 [Salmon, Moraes, Dror & Shaw 2011],
 * and depend on the step block's seed and step, layer_number, the element's row in the global batch
 * and its column: the mask is the same however rows are sharded, on every device, and again in
 * backward.  p = 0 keeps everything as it is, p = 1 drops everything.
 *
 * slot          tensor   shape           type
 * in[0]         x        [rows, cols]    dtype      backward reads it, but for activation none
 * in[1]         residual [rows, cols]    dtype      optional, forward only
 * out[0]        y        [rows, cols]    dtype      backward does not read it; may be residual
 * upstream[0]   dy       [rows, cols]    dtype
 * din[0]        dx       [rows, cols]    dtype      optional; may be dy
 * saved         nothing
 * parameter 0   bias     [cols]          dtype      unless no_bias; initially 0; its gradient f64
 *               for f64, otherwise f32
 * first_row     of the call: must be given where p > 0
 * step          of the call: the same; seed and step are read
 *
 * Arithmetic is f32, f64 for f64; z is not rounded to dtype.  A NaN or an infinity is treated as by
 * FusedLinear where it is kept; where it is dropped, dx is 0 and y is 0 or the residual, exactly.
 * Bits depend on the shape, the type and the device, those of a row of y and dx not on the number
 * of rows. */
#ifndef TUTTI_DROPOUT_H
#define TUTTI_DROPOUT_H

#include "tutti/activation.h"
#include "tutti/layer.h"

TUTTI_BEGIN

typedef struct tutti_dropout_desc {
    size_t size;
    int64_t cols;                /* 1 to 2^20; must be given */
    tutti_dtype dtype;           /* 0: f32 */
    tutti_activation activation; /* 0: none */
    double slope;                /* of leaky_relu, the others do not read it: > 0; 0: 0.01 */
    double p;                    /* of an element to be dropped: 0 to 1 */
    int64_t layer_number; /* 0 to 2^15 - 1: layers of different numbers have different masks */
    int no_bias;
    double smelu_beta, star_scale, star_bias; /* of smelu and star_relu, as tutti_linear_desc's */
} tutti_dropout_desc;
#define TUTTI_DROPOUT_DESC_INIT TUTTI_DESC_INIT(tutti_dropout_desc)
TUTTI_API tutti_dropout_desc tutti_dropout_desc_default(void);

/* A layer on the context's device; the context need not outlive it.  TUTTI_ERR_ARG if desc is NULL
 * or one of its fields is not what the descriptor says. */
TUTTI_API tutti_status tutti_dropout_create(tutti_context *ctx, const tutti_dropout_desc *desc,
                                            tutti_layer **layer);

/* The slots above, by name; what a direction does not read may be NULL or set. */
typedef struct tutti_dropout_call {
    const tutti_tensor *x, *residual;
    tutti_tensor *y;
    const tutti_tensor *dy;
    tutti_tensor *dx;
    TUTTI_CALL_COMMON;
} tutti_dropout_call;
/* As tutti_layer_plan, tutti_layer_forward and tutti_layer_backward do. */
TUTTI_API tutti_status tutti_dropout_plan(tutti_layer *layer, tutti_context *ctx,
                                          const tutti_dropout_call *call);
TUTTI_API tutti_status tutti_dropout_forward(tutti_layer *layer, tutti_context *ctx,
                                             const tutti_dropout_call *call);
TUTTI_API tutti_status tutti_dropout_backward(tutti_layer *layer, tutti_context *ctx,
                                              const tutti_dropout_call *call);

TUTTI_END
#endif
