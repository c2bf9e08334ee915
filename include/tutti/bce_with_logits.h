/* BCEWithLogits, the binary cross-entropy of logits: loss of each row, their sum, and the gradient
 * of the logits, in one call.
 *
 *     loss_i = mean over j of (1 - t) softplus(x) + pos_weight t softplus(-x)
 *     dlogits_ij = ((1 - t) sigmoid(x) - pos_weight t sigmoid(-x)) / cols
 *                  * loss_weight * loss_scale
 *     of x = logits_ij, t = target_ij;   softplus(x) = max(x, 0) + log(1 + exp(-|x|))
 *
 * No term cancels another, so that the loss and the gradient of targets 0 and 1 are right to
 * roundings of themselves however sure a logit is.
 *
 * loss_weight and loss_scale are those of `step`, or 1 if step is NULL; loss and loss_sum have
 * neither factor.  With loss_weight = 1 / (rows of the global batch) dlogits is the gradient of
 * PyTorch's binary_cross_entropy_with_logits, reduction "mean".  A target outside [0, 1], or NaN,
 * makes its row's loss and dlogits NaN, and tutti_context_check reports it.
 *
 * slot     tensor         shape           type
 * in[0]    logits         [rows, cols]    dtype
 * in[1]    target         [rows, cols]    dtype                from 0 to 1
 * out[0]   loss           [rows]          f32; f64 for f64     optional
 * out[1]   loss_sum       [1]             f64                  optional; overwritten; summed in
 *                                                              f64, in an order that depends on
 *                                                              rows and the device only
 * out[2]   dlogits        [rows, cols]    dtype                optional; may be logits
 * saved    nothing
 * step     of the call: optional, factors of dlogits
 *
 * Arithmetic is f32, f64 for f64.  The loss of an infinite logit is what the formula gives, as
 * PyTorch's: NaN, 0 times infinity, for +infinity and target 1, or -infinity and target 0.  The
 * bits of a row depend on its content, cols, the type and the device.  There is no backward:
 * forward gives dlogits, and tutti_layer_backward returns TUTTI_ERR_UNSUPPORTED. */
#ifndef TUTTI_BCE_WITH_LOGITS_H
#define TUTTI_BCE_WITH_LOGITS_H

#include "tutti/layer.h"

TUTTI_BEGIN

typedef struct tutti_bce_with_logits_desc {
    size_t size;
    int64_t cols;      /* 1 to 2^20; must be given */
    tutti_dtype dtype; /* 0: f32 */
    double pos_weight; /* weight of targets 1 against 0: finite, >= 0; 0: 1; TUTTI_ZERO: 0 */
} tutti_bce_with_logits_desc;
#define TUTTI_BCE_WITH_LOGITS_DESC_INIT TUTTI_DESC_INIT(tutti_bce_with_logits_desc)
TUTTI_API tutti_bce_with_logits_desc tutti_bce_with_logits_desc_default(void);

/* A layer on the context's device; the context need not outlive it.  TUTTI_ERR_ARG if desc is NULL
 * or one of its fields is not what the descriptor says. */
TUTTI_API tutti_status tutti_bce_with_logits_create(tutti_context *ctx,
                                                    const tutti_bce_with_logits_desc *desc,
                                                    tutti_layer **layer);

/* The slots above by name. */
typedef struct tutti_bce_with_logits_call {
    const tutti_tensor *logits, *target;
    tutti_tensor *loss, *loss_sum, *dlogits;
    TUTTI_CALL_COMMON;
} tutti_bce_with_logits_call;
/* As tutti_layer_plan and tutti_layer_forward. */
TUTTI_API tutti_status tutti_bce_with_logits_plan(tutti_layer *layer, tutti_context *ctx,
                                                  const tutti_bce_with_logits_call *call);
TUTTI_API tutti_status tutti_bce_with_logits_forward(tutti_layer *layer, tutti_context *ctx,
                                                     const tutti_bce_with_logits_call *call);

TUTTI_END
#endif
