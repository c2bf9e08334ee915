/* FusedLinear: a matrix product with bias and activation.
 *
 *     z = x W^T + b,   y = act(z),   W is [out, in],   act as in tutti/activation.h
 *
 * Backward, with dz = dy * act'(z):   dx = dz W,   dW = dz^T x,   db = sum over rows of dz.
 * A NaN in dy or z is a NaN in dz, except with none, where dz is dy and z is not read.  act' of
 * squared_relu is 2 sqrt(y), from y as stored: it is 0 where y underflows, for z below 2^-12.5 in
 * f16, 2^-75 in f32, 2^-67 in bf16.
 *
 * slot          tensor   shape           type
 * in[0]         x        [rows, in]      dtype       backward reads it
 * out[0]        y        [rows, out]     dtype       read by backward of relu, leaky_relu and
 *                                                    squared_relu
 * upstream[0]   dy       [rows, out]     dtype
 * din[0]        dx       [rows, in]      dtype       optional; not x nor dy
 * saved         z        [rows, out]     dtype       where act' needs it: gelu, gelu_erf, silu,
 *                                                    smelu, star_relu; 0 bytes otherwise, and
 *                                                    with recompute
 * parameters    weight   [out, in]       dtype       initially uniform in ±1/sqrt(in)
 *               bias     [out]           dtype       unless no_bias; the same
 *
 * "[rows, in]" is any tensor whose last dimensions multiply to in and whose leading ones are rows.
 * f64 computes in f64; f32, f16, bf16 accumulate in f32 (TF32 only if allow_tf32).  z is rounded to
 * dtype before act; dz may be rounded before the products.  Gradients of the parameters are f64 for
 * f64, otherwise f32. */
#ifndef TUTTI_LINEAR_H
#define TUTTI_LINEAR_H

#include "tutti/activation.h"
#include "tutti/layer.h"

TUTTI_BEGIN

typedef struct tutti_linear_desc {
    size_t size;
    int64_t in, out;             /* 1 to 2^31 - 1; must be given */
    tutti_dtype dtype;           /* 0: f32 */
    tutti_activation activation; /* TUTTI_ACT_GELU, say; 0: none */
    double slope;                /* of leaky_relu, ignored by the others: > 0; 0: 0.01 */
    int no_bias;
    int allow_tf32;    /* f32 products in TF32 on GPUs that have it; no effect elsewhere */
    double smelu_beta; /* of smelu, ignored by the others: 1e-30 to 1e30; 0: 2 */
    /* of star_relu, ignored by the others; finite in the arithmetic's type */
    double star_scale; /* not 0; 0: 0.8944 */
    double star_bias;  /* 0: -0.4472; TUTTI_ZERO: none */
    /* backward computes z, where it needs it, again: one more product, whose bits on a GPU may be
     * other than forward's */
    int recompute;
} tutti_linear_desc;
#define TUTTI_LINEAR_DESC_INIT TUTTI_DESC_INIT(tutti_linear_desc)
TUTTI_API tutti_linear_desc tutti_linear_desc_default(void);

/* A layer on the context's device; the context need not outlive it.  TUTTI_ERR_ARG if desc is NULL
 * or one of its fields is not what the descriptor says. */
TUTTI_API tutti_status tutti_linear_create(tutti_context *ctx, const tutti_linear_desc *desc,
                                           tutti_layer **layer);

/* The slots above by name; a direction ignores those that it does not use. */
typedef struct tutti_linear_call {
    const tutti_tensor *x;
    tutti_tensor *y;
    const tutti_tensor *dy;
    tutti_tensor *dx;
    TUTTI_CALL_COMMON;
} tutti_linear_call;
/* As tutti_layer_plan, tutti_layer_forward and tutti_layer_backward. */
TUTTI_API tutti_status tutti_linear_plan(tutti_layer *layer, tutti_context *ctx,
                                         const tutti_linear_call *call);
TUTTI_API tutti_status tutti_linear_forward(tutti_layer *layer, tutti_context *ctx,
                                            const tutti_linear_call *call);
TUTTI_API tutti_status tutti_linear_backward(tutti_layer *layer, tutti_context *ctx,
                                             const tutti_linear_call *call);

TUTTI_END
#endif
