/* GLU: the gate of a gated MLP.  [Shazeer 2020, "GLU Variants Improve Transformer"]
 *
 *     y = act(a) b,   act as in tutti/activation.h: silu makes it SwiGLU, gelu and gelu_erf GEGLU,
 *     relu ReGLU, none Bilinear
 *     backward:  da = dy act'(a) b,   db = dy act(a)
 *
 * slot          tensor   shape           type
 * in[0]         a        [rows, cols]    dtype      backward reads it
 * in[1]         b        [rows, cols]    dtype      backward reads it
 * out[0]        y        [rows, cols]    dtype      backward does not read it
 * upstream[0]   dy       [rows, cols]    dtype
 * din[0]        da       [rows, cols]    dtype      optional; may be dy or a
 * din[1]        db       [rows, cols]    dtype      optional; may be dy or b
 * saved         nothing
 *
 * a and b may be the halves of one tensor [rows, 2 cols], such as the product of one FusedLinear:
 * rows of cols elements, 2 cols apart.  So may da and db, which can be those halves again.
 *
 * Arithmetic is f32, f64 for f64; act(a) and act'(a) are not rounded to dtype.  A NaN in a tensor
 * that a result is made of is a NaN in the result, as is 0 times an infinity; da of none does not
 * read a, db not b.  Bits of an element depend on its own values, the type and the device only. */
#ifndef TUTTI_GLU_H
#define TUTTI_GLU_H

#include "tutti/activation.h"
#include "tutti/layer.h"

TUTTI_BEGIN

typedef struct tutti_glu_desc {
    size_t size;
    int64_t cols;                /* 1 to 2^31 - 1; must be given */
    tutti_dtype dtype;           /* 0: f32 */
    tutti_activation activation; /* 0: silu; TUTTI_ACT_ZERO: none */
    /* constants of activations, as tutti_linear_desc's */
    double slope, smelu_beta, star_scale, star_bias;
} tutti_glu_desc;
#define TUTTI_GLU_DESC_INIT TUTTI_DESC_INIT(tutti_glu_desc)
TUTTI_API tutti_glu_desc tutti_glu_desc_default(void);

/* A layer on the context's device; the context need not outlive it.  TUTTI_ERR_ARG if desc is NULL
 * or one of its fields is not what the descriptor says. */
TUTTI_API tutti_status tutti_glu_create(tutti_context *ctx, const tutti_glu_desc *desc,
                                        tutti_layer **layer);

/* The slots above by name; a direction ignores those that it does not use. */
typedef struct tutti_glu_call {
    const tutti_tensor *a, *b;
    tutti_tensor *y;
    const tutti_tensor *dy;
    tutti_tensor *da, *db;
    TUTTI_CALL_COMMON;
} tutti_glu_call;
/* As tutti_layer_plan, tutti_layer_forward and tutti_layer_backward. */
TUTTI_API tutti_status tutti_glu_plan(tutti_layer *layer, tutti_context *ctx,
                                      const tutti_glu_call *call);
TUTTI_API tutti_status tutti_glu_forward(tutti_layer *layer, tutti_context *ctx,
                                         const tutti_glu_call *call);
TUTTI_API tutti_status tutti_glu_backward(tutti_layer *layer, tutti_context *ctx,
                                          const tutti_glu_call *call);

TUTTI_END
#endif
