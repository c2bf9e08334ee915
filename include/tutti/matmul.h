/* MatMul: batches of products of two tensors.
 *
 *     c = op(a) op(b),   op(t) is t, or its transpose with transpose_a or transpose_b
 *
 * for each item of the batch: op(a) is [m, k], op(b) [k, n], c [m, n].  Backward:
 *
 *     d op(a) = dc op(b)^T,   d op(b) = op(a)^T dc
 *
 * slot          tensor   shape            type
 * in[0]         a        [batch, m, k]    dtype    [batch, k, m] with transpose_a
 * in[1]         b        [batch, k, n]    dtype    [batch, n, k] with transpose_b
 * out[0]        c        [batch, m, n]    dtype
 * upstream[0]   dc       as c             dtype
 * din[0]        da       as a             dtype    optional
 * din[1]        db       as b             dtype    optional
 * saved         nothing; backward reads a and b, not c
 *
 * A row of the call is an item of the batch; the rows of its matrices are called lines.  Each of
 * the two dimensions of a matrix may be several that multiply to it, and so may the batch, which
 * may be 0; but lines of several items are no dimension: [batch m, n] is refused.  What a call
 * writes shares no memory with its other tensors.
 *
 * Elements of a line are contiguous; lines are evenly spaced, and so are items: a tensor may be a
 * part of a wider one.  Items lie one after another, or side by side in the gaps between each
 * other's lines, as the heads of one sequence in [seq, 3, heads, size] do: q is
 * [heads, seq, size] with strides {size, 3 heads size, 1}.  Heads of several sequences are evenly
 * spaced where rows are by time, [seq, batch, heads, 3, size]: q is [batch heads, seq, size] with
 * strides {3 size, batch heads 3 size, 1}; otherwise a call has one sequence.  Strides of a tensor
 * without elements do not count.  Other items that overlap, such as one b for all (a stride of 0),
 * are refused, since its gradient would be a sum over the batch: FusedLinear multiplies all rows by
 * one matrix, and sums its gradient.
 *
 * f64 computes in f64; f32, f16, bf16 accumulate in f32 (TF32 only if allow_tf32), and round once.
 * NaN and infinities propagate as sums and products have them: 0 times an infinity is NaN.  On the
 * host the bits of an item depend on m, n, k, the transposes and the type only; on a GPU also on
 * the number of items and on alignment, since cuBLASLt's algorithm does. */
#ifndef TUTTI_MATMUL_H
#define TUTTI_MATMUL_H

#include "tutti/layer.h"

TUTTI_BEGIN

typedef struct tutti_matmul_desc {
    size_t size;
    int64_t m, n, k; /* 1 to 2^31 - 1; must be given */
    int transpose_a, transpose_b;
    tutti_dtype dtype; /* 0: f32 */
    int allow_tf32;    /* f32 products in TF32 on GPUs that have it; no effect elsewhere */
} tutti_matmul_desc;
#define TUTTI_MATMUL_DESC_INIT TUTTI_DESC_INIT(tutti_matmul_desc)
TUTTI_API tutti_matmul_desc tutti_matmul_desc_default(void);

/* A layer on the context's device; the context need not outlive it.  TUTTI_ERR_ARG if desc is NULL
 * or one of its fields is not what the descriptor says. */
TUTTI_API tutti_status tutti_matmul_create(tutti_context *ctx, const tutti_matmul_desc *desc,
                                           tutti_layer **layer);

/* The slots above by name; a direction ignores those that it does not use. */
typedef struct tutti_matmul_call {
    const tutti_tensor *a, *b;
    tutti_tensor *c;
    const tutti_tensor *dc;
    tutti_tensor *da, *db;
    TUTTI_CALL_COMMON;
} tutti_matmul_call;
/* As tutti_layer_plan, tutti_layer_forward and tutti_layer_backward. */
TUTTI_API tutti_status tutti_matmul_plan(tutti_layer *layer, tutti_context *ctx,
                                         const tutti_matmul_call *call);
TUTTI_API tutti_status tutti_matmul_forward(tutti_layer *layer, tutti_context *ctx,
                                            const tutti_matmul_call *call);
TUTTI_API tutti_status tutti_matmul_backward(tutti_layer *layer, tutti_context *ctx,
                                             const tutti_matmul_call *call);

TUTTI_END
#endif
