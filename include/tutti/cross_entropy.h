/* CrossEntropy: loss of each row, their sum, and the gradient of the logits, in one call.
 *
 *     log Z_i = log(sum_k exp(x_ik))
 *     loss_i = log Z_i - x_i,label(i)
 *     dlogits_ij = (softmax(x_i)_j - [j = label(i)]) * loss_weight * loss_scale
 *
 * With label_smoothing e the label is mixed with all classes alike [Szegedy et al. 2016], as in
 * PyTorch; z_loss z keeps log Z near 0 [de Brebisson & Vincent 2016; Chowdhery et al. 2022, PaLM]:
 *
 *     loss_i = log Z_i - (1 - e) x_i,label(i) - e mean_k(x_ik) + z (log Z_i)^2
 *     dlogits_ij = ((1 + 2 z log Z_i) softmax(x_i)_j - (1 - e) [j = label(i)] - e / cols)
 *                  * loss_weight * loss_scale
 *
 * The terms of a loss that have a factor of 0 are left out; a class whose logit is -inf makes the
 * others' mean, and so the loss, infinite where e > 0, but not the gradient.
 *
 * loss_weight and loss_scale are those of `step`, or 1 if step is NULL; loss and loss_sum have
 * neither factor.  A row whose label is ignore_label has loss 0 and dlogits 0.  Any other label
 * outside [0, cols) makes its row's loss and dlogits NaN, and tutti_context_check reports it.
 *
 * slot     tensor     shape           type
 * in[0]    logits     [rows, cols]    dtype
 * in[1]    labels     [rows]          i32
 * out[0]   loss       [rows]          f32; f64 for f64     optional
 * out[1]   loss_sum   [1]             f64                  optional; overwritten; summed in f64,
 *                                                          in an order that depends on rows and
 *                                                          the device only
 * out[2]   dlogits    [rows, cols]    dtype                optional; may be logits
 * saved    nothing
 * step     of the call: optional, factors of dlogits
 *
 * Arithmetic is f32, f64 for f64.  There is no backward: forward gives dlogits, and
 * tutti_layer_backward returns TUTTI_ERR_UNSUPPORTED. */
#ifndef TUTTI_CROSS_ENTROPY_H
#define TUTTI_CROSS_ENTROPY_H

#include "tutti/layer.h"

TUTTI_BEGIN

typedef struct tutti_cross_entropy_desc {
    size_t size;
    int64_t cols;           /* classes: 1 to 2^20; must be given */
    tutti_dtype dtype;      /* 0: f32 */
    int32_t ignore_label;   /* 0: -1; TUTTI_ZERO_INT32: class 0 */
    double label_smoothing; /* at least 0, below 1 */
    double z_loss;          /* at least 0, finite in the arithmetic's type */
} tutti_cross_entropy_desc;
#define TUTTI_CROSS_ENTROPY_DESC_INIT TUTTI_DESC_INIT(tutti_cross_entropy_desc)
TUTTI_API tutti_cross_entropy_desc tutti_cross_entropy_desc_default(void);

/* A layer on the context's device; the context need not outlive it.  TUTTI_ERR_ARG if desc is NULL
 * or one of its fields is not what the descriptor says. */
TUTTI_API tutti_status tutti_cross_entropy_create(tutti_context *ctx,
                                                  const tutti_cross_entropy_desc *desc,
                                                  tutti_layer **layer);

/* The slots above by name. */
typedef struct tutti_cross_entropy_call {
    const tutti_tensor *logits, *labels;
    tutti_tensor *loss, *loss_sum, *dlogits;
    TUTTI_CALL_COMMON;
} tutti_cross_entropy_call;
/* As tutti_layer_plan and tutti_layer_forward. */
TUTTI_API tutti_status tutti_cross_entropy_plan(tutti_layer *layer, tutti_context *ctx,
                                                const tutti_cross_entropy_call *call);
TUTTI_API tutti_status tutti_cross_entropy_forward(tutti_layer *layer, tutti_context *ctx,
                                                   const tutti_cross_entropy_call *call);

/* Counts the labels that are neither ignore_label nor outside [0, cols), to divide the loss by:
 *
 *     tutti_cross_entropy_count(loss, ctx, &labels, &count, 0);
 *     tutti_comm_all_reduce(comm, ctx, count.data, count.data, 1, TUTTI_F64, TUTTI_SUM);
 *     tutti_step_block_weigh(step, ctx, &count);
 *
 * makes loss_weight 1 / (the labels of all ranks) before the loss, in stream order and without the
 * host, so that it can be captured where the transport can.  Numbers up to 2^53 are exact in f64,
 * so the weight has the same bits however many ranks there are.
 *
 * labels: i32, contiguous; count: f64, [1], overwritten, or added to with TUTTI_GRAD_ACCUMULATE in
 * flags, for a batch of several calls.  Asynchronous on the context's stream, not collective, no
 * allocation.  TUTTI_ERR_ARG, with nothing written, for anything else. */
TUTTI_API tutti_status tutti_cross_entropy_count(tutti_layer *layer, tutti_context *ctx,
                                                 const tutti_tensor *labels, tutti_tensor *count,
                                                 unsigned flags);

TUTTI_END
#endif
