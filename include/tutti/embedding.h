/* Embedding: y = E[token], a row of the table for every token.
 *
 * Backward:  dE[t] = sum of dy over the rows whose token is t.
 *
 * A token outside [0, vocab) makes its row of y NaN and adds nothing to dE; tutti_context_check
 * reports it (TUTTI_ERR_DATA), so a step does not wait for the device.
 *
 * slot          tensor    shape           type
 * in[0]         tokens    [rows]          i32        any dims, contiguous, at most 2^31 - 1 rows;
 *                                                    backward reads it
 * out[0]        y         [rows, cols]    dtype
 * upstream[0]   dy        [rows, cols]    dtype
 * din           none: tokens have no gradient
 * saved         nothing
 * parameters    weight    [vocab, cols]   dtype
 *
 * y is a copy of the table's rows, bit for bit.  dE is f64 for f64, otherwise f32, and is summed in
 * that type: the n rows of a token in blocks of 64, one row after the other, and the blocks
 * pairwise (neighbours, then those sums, and so on); TUTTI_GRAD_ACCUMULATE adds that sum.  So a row
 * takes part in 63 + log2(n/64) additions, and the bits of dE[t] depend on the rows of token t
 * alone, not on threads, addresses or backend (rows whose token is out of range may count as rows
 * of token 0 that add nothing).  Without TUTTI_GRAD_ACCUMULATE, rows of dE whose token does not
 * occur are zero.
 *
 * The weight is initially uniform in ±sqrt(3): variance 1, as torch.nn.Embedding's.  A table tied
 * to a linear layer (tutti_params_tie) is initialised as the parameter that it is tied to.  Its
 * weight decay has factor 1, as in GPT-2's trainers, which decay every matrix.  The caller may
 * change both in tutti_param before tutti_params_build. */
#ifndef TUTTI_EMBEDDING_H
#define TUTTI_EMBEDDING_H

#include "tutti/layer.h"

TUTTI_BEGIN

typedef struct tutti_embedding_desc {
    size_t size;
    int64_t vocab;     /* rows of the table: 1 to 2^31 - 1; must be given */
    int64_t cols;      /* 1 to 2^20; must be given */
    tutti_dtype dtype; /* 0: f32 */
} tutti_embedding_desc;
#define TUTTI_EMBEDDING_DESC_INIT TUTTI_DESC_INIT(tutti_embedding_desc)
TUTTI_API tutti_embedding_desc tutti_embedding_desc_default(void);

/* A layer on the context's device; the context need not outlive it.  TUTTI_ERR_ARG if desc is NULL
 * or one of its fields is not what the descriptor says. */
TUTTI_API tutti_status tutti_embedding_create(tutti_context *ctx, const tutti_embedding_desc *desc,
                                              tutti_layer **layer);

/* The slots above by name; a direction ignores those that it does not use. */
typedef struct tutti_embedding_call {
    const tutti_tensor *tokens;
    tutti_tensor *y;
    const tutti_tensor *dy;
    TUTTI_CALL_COMMON;
} tutti_embedding_call;
/* As tutti_layer_plan, tutti_layer_forward and tutti_layer_backward. */
TUTTI_API tutti_status tutti_embedding_plan(tutti_layer *layer, tutti_context *ctx,
                                            const tutti_embedding_call *call);
TUTTI_API tutti_status tutti_embedding_forward(tutti_layer *layer, tutti_context *ctx,
                                               const tutti_embedding_call *call);
TUTTI_API tutti_status tutti_embedding_backward(tutti_layer *layer, tutti_context *ctx,
                                                const tutti_embedding_call *call);

TUTTI_END
#endif
