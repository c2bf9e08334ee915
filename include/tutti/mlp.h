/* MLP: the feed-forward block of a transformer, two FusedLinear layers as one.
 *
 *     z = x W1^T + b1,   h = act(z),   y = h W2^T + b2,   act as in tutti/activation.h
 *     W1 (weight1) is [hidden, in], W2 (weight2) [out, hidden]
 *
 * Backward, with dh = dy W2 and dz = dh * act'(z):   dW2 = dy^T h,   db2 = sum over rows of dy,
 *     dx = dz W1,   dW1 = dz^T x,   db1 = sum over rows of dz.
 * dh and dz stay inside; act' is FusedLinear's (tutti/linear.h), from z or from h as stored.
 *
 * slot          tensor   shape           type
 * in[0]         x        [rows, in]      dtype       backward reads it
 * out[0]        y        [rows, out]     dtype       backward does not read it
 * out[1]        h        [rows, hidden]  dtype       backward reads it, except with recompute
 * upstream[0]   dy       [rows, out]     dtype
 * din[0]        dx       [rows, in]      dtype       optional; not x nor dy
 * saved         z        [rows, hidden]  dtype       where act' needs it: gelu, gelu_erf, silu,
 *                                                    smelu, star_relu; 0 bytes otherwise, and
 *                                                    with recompute
 * parameters    weight1  [hidden, in]    dtype       initially uniform in ±1/sqrt(in)
 *               weight2  [out, hidden]   dtype       initially uniform in ±1/sqrt(hidden)
 *               bias1    [hidden]        dtype       unless no_bias; as weight1
 *               bias2    [out]           dtype       unless no_bias; as weight2
 *
 * "[rows, in]" is any tensor whose last dimensions multiply to in and whose leading ones are rows.
 * f64 computes in f64; f32, f16, bf16 accumulate in f32 (TF32 only if allow_tf32).  z and h are
 * rounded to dtype; dh and dz may be rounded before they are used.  A NaN in z or dh is a NaN in
 * dz, except with none.  Gradients of the parameters are f64 for f64, otherwise f32.
 *
 * With recompute backward computes z and h again, one product more, into the context's scratch: so
 * between forward and backward the layer needs no memory of its own, and layers may have one h. */
#ifndef TUTTI_MLP_H
#define TUTTI_MLP_H

#include "tutti/activation.h"
#include "tutti/layer.h"

TUTTI_BEGIN

typedef struct tutti_mlp_desc {
    size_t size;
    int64_t in, hidden, out;     /* 1 to 2^31 - 1; must be given */
    tutti_dtype dtype;           /* 0: f32 */
    tutti_activation activation; /* 0: gelu; TUTTI_ACT_ZERO: none */
    int no_bias;                 /* neither bias */
    int allow_tf32; /* f32 products in TF32 on GPUs that have it; no effect elsewhere */
    int recompute;  /* h and z in backward, see above */
    /* constants of activations, as tutti_linear_desc's */
    double slope, smelu_beta, star_scale, star_bias;
} tutti_mlp_desc;
#define TUTTI_MLP_DESC_INIT TUTTI_DESC_INIT(tutti_mlp_desc)
TUTTI_API tutti_mlp_desc tutti_mlp_desc_default(void);

/* A layer on the context's device; the context need not outlive it.  TUTTI_ERR_ARG if desc is NULL
 * or one of its fields is not what the descriptor says. */
TUTTI_API tutti_status tutti_mlp_create(tutti_context *ctx, const tutti_mlp_desc *desc,
                                        tutti_layer **layer);

/* The slots above by name; a direction ignores those that it does not use. */
typedef struct tutti_mlp_call {
    const tutti_tensor *x;
    tutti_tensor *y, *h;
    const tutti_tensor *dy;
    tutti_tensor *dx;
    TUTTI_CALL_COMMON;
} tutti_mlp_call;
/* As tutti_layer_plan, tutti_layer_forward and tutti_layer_backward. */
TUTTI_API tutti_status tutti_mlp_plan(tutti_layer *layer, tutti_context *ctx,
                                      const tutti_mlp_call *call);
TUTTI_API tutti_status tutti_mlp_forward(tutti_layer *layer, tutti_context *ctx,
                                         const tutti_mlp_call *call);
TUTTI_API tutti_status tutti_mlp_backward(tutti_layer *layer, tutti_context *ctx,
                                          const tutti_mlp_call *call);

TUTTI_END
#endif
