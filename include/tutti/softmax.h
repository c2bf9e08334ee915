/* Softmax and log-softmax over each row.
 *
 *     softmax:      y_j = exp(scale x_j - m) / sum_k exp(scale x_k - m),    m = max_k scale x_k
 *     log-softmax:  y_j = scale x_j - m - log(sum_k exp(scale x_k - m))
 *
 * The difference is taken before the scaling, scale (x_j - x_k): the largest has exp(0), exactly 1,
 * so a row with one visible column has 1 there, an offset common to a row costs no accuracy, and
 * scale x does not overflow.
 *
 * With a bias (of relative positions, say, or ALiBi [Press, Smith & Lewis 2022]), scale x_j +
 * bias_j takes the place of scale x_j.  That sum is rounded before the difference, so that here a
 * large offset does cost accuracy, and scale x_j may overflow.
 *
 * A column that is not visible is left out of the sum, and its y is 0, or -inf for log-softmax:
 *     with causal_period P > 0, row i (its number in the global batch: first_row + its index in the
 *     call) sees only columns j <= i mod P;
 *     with lengths, a row sees only columns j < its length.
 * With both it sees what both let it see.  A row of length 0 sees nothing: its y is 0 (-inf for
 * log-softmax) and its dx 0, where a row whose values are all -inf would be NaN.  A length outside
 * [0, cols] makes its row's y, dx and dbias NaN, and tutti_context_check reports it.
 *
 * Backward, over the visible columns; gradients of the others are 0, whatever their dy:
 *     softmax:      dbias = y * (dy - sum(y * dy))
 *     log-softmax:  dbias = dy - exp(y) * sum(dy)
 *     dx = scale * dbias, of which neither is rounded first
 *
 * slot          tensor   shape           type
 * in[0]         x        [rows, cols]    dtype      backward does not read it
 * in[1]         lengths  [rows]          i32        optional; backward reads it: the same
 * in[2]         bias     [rows, cols]    dtype      optional; backward does not read it.  Leading
 *                                                   dimensions may have a stride of 0: one
 *                                                   [heads, n, cols] for a whole batch is
 *                                                   [batch, heads, n, cols], strides[0] 0
 * out[0]        y        [rows, cols]    dtype      backward reads it; may be x
 * upstream[0]   dy       [rows, cols]    dtype
 * din[0]        dx       [rows, cols]    dtype      may be dy
 * din[2]        dbias    [rows, cols]    dtype      optional; a row each, though bias repeats
 * saved         nothing
 * first_row     of the call: required with causal_period
 *
 * Arithmetic is f32, f64 for f64.  A row is NaN in all its visible columns where scale x_j (+
 * bias_j) is NaN or +inf in one of them (an infinite x_j times a scale of 0 is NaN), or -inf in
 * all; otherwise -inf adds nothing to the sum: its y is 0, or -inf for log-softmax.  So a bias of
 * -inf hides a column, and its gradients are what the formulas give with that y: 0 times (dy -
 * sum), or dy for log-softmax.  Bits depend on the shape, the type, the device and on which of the
 * optional tensors there are. */
#ifndef TUTTI_SOFTMAX_H
#define TUTTI_SOFTMAX_H

#include "tutti/layer.h"

TUTTI_BEGIN

typedef struct tutti_softmax_desc {
    size_t size;
    int64_t cols;          /* 1 to 2^20; must be given */
    tutti_dtype dtype;     /* 0: f32 */
    int log;               /* log-softmax */
    double scale;          /* finite in the arithmetic's type; 0: 1; TUTTI_ZERO: 0 */
    int64_t causal_period; /* 0: no mask */
} tutti_softmax_desc;
#define TUTTI_SOFTMAX_DESC_INIT TUTTI_DESC_INIT(tutti_softmax_desc)
TUTTI_API tutti_softmax_desc tutti_softmax_desc_default(void);

/* A layer on the context's device; the context need not outlive it.  TUTTI_ERR_ARG if desc is NULL
 * or one of its fields is not what the descriptor says. */
TUTTI_API tutti_status tutti_softmax_create(tutti_context *ctx, const tutti_softmax_desc *desc,
                                            tutti_layer **layer);

/* The slots above by name; a direction ignores those that it does not use. */
typedef struct tutti_softmax_call {
    const tutti_tensor *x, *lengths, *bias;
    tutti_tensor *y;
    const tutti_tensor *dy;
    tutti_tensor *dx, *dbias;
    TUTTI_CALL_COMMON;
} tutti_softmax_call;
/* As tutti_layer_plan, tutti_layer_forward and tutti_layer_backward. */
TUTTI_API tutti_status tutti_softmax_plan(tutti_layer *layer, tutti_context *ctx,
                                          const tutti_softmax_call *call);
TUTTI_API tutti_status tutti_softmax_forward(tutti_layer *layer, tutti_context *ctx,
                                             const tutti_softmax_call *call);
TUTTI_API tutti_status tutti_softmax_backward(tutti_layer *layer, tutti_context *ctx,
                                              const tutti_softmax_call *call);

TUTTI_END
#endif
