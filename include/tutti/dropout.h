/* BiasDropoutActivation: a bias, an activation and dropout in one pass.      [xFormers' FusedDropoutBias]
 *
 *     z = x + bias,   a = act(z),   y = keep ? a / (1 - p) : 0
 *
 * act is one of FusedLinear's (tutti/linear.h).  Backward:
 *     dx = keep ? dy act'(z) / (1 - p) : 0,   dbias = sum over rows of dx, before dx is rounded
 * act' has FusedLinear's limits and values at 0; that of squared_relu is 2 relu(z).
 *
 * keep says for each element whether it stays.  It depends on the step block's seed and step, on layer_number, and on the element's
 * row in the global batch (first_row + its place in the call) and its column alone, and is not stored: backward makes it again.
 * So a batch in pieces has the mask of the whole, and backward wants forward's first_row and step values.  An element has 16 random
 * bits of Philox 4x32-10 [Salmon et al. 2011] and is dropped where they are below 2^16 p: p, here and in the formulas, is the
 * option rounded to a multiple of 2^-16.  Steps count modulo 2^32.
 *
 * slot          tensor   shape           type
 * in[0]         x        [rows, cols]    dtype      backward reads it, but for none
 * out[0]        y        [rows, cols]    dtype      backward does not read it; not x
 * upstream[0]   dy       [rows, cols]    dtype
 * din[0]        dx       [rows, cols]    dtype      optional; may be dy
 * saved         nothing
 * parameters    bias     [cols]          dtype      unless no_bias; initially 0; its gradient f32, f64 for f64
 *
 * Arithmetic is f32, f64 for f64; z is not rounded to dtype.  A NaN in x or bias is one in y where it is kept, and one in dx, but for
 * none; what is dropped is 0 whatever it was.  first_row and step must be given where the option p is above 0: TUTTI_ERR_ARG.
 * The bits of y and dx depend on the element's place, type and device only, those of dbias on the shape too. */
#ifndef TUTTI_DROPOUT_H
#define TUTTI_DROPOUT_H

#include "tutti/linear.h"

TUTTI_BEGIN

typedef struct tutti_dropout_desc {
    size_t size;
    int64_t cols;                /* 1 to 2^20; must be given */
    tutti_dtype dtype;           /* 0: f32 */
    tutti_activation activation; /* 0: none */
    double slope;                /* of leaky_relu, the others do not read it: > 0; 0: 0.01 */
    double p;                    /* probability that an element is dropped, 0 to 1 */
    int64_t layer_number;        /* 0 to 32767: layers of one number have one mask */
    int no_bias;
} tutti_dropout_desc;
#define TUTTI_DROPOUT_DESC_INIT TUTTI_DESC_INIT(tutti_dropout_desc)
TUTTI_API tutti_dropout_desc tutti_dropout_desc_default(void);

/* A layer on the context's device; the context need not outlive it.  TUTTI_ERR_ARG if desc is NULL or one of its fields
 * is not what the descriptor says. */
TUTTI_API tutti_status tutti_dropout_create(tutti_context *ctx, const tutti_dropout_desc *desc,
                                            tutti_layer **layer);

/* The slots above, by name; what a direction does not read may be NULL or set. */
typedef struct tutti_dropout_call {
    const tutti_tensor *x;
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
