/* MSE, the mean squared error: loss of each row, their sum, and the gradient of the predictions, in
 * one call.
 *
 *     loss_i = mean over j of (prediction_ij - target_ij)^2
 *     dprediction_ij = 2 (prediction_ij - target_ij) / cols * loss_weight * loss_scale
 *
 * loss_weight and loss_scale are those of `step`, or 1 if step is NULL; loss and loss_sum have
 * neither factor.  With loss_weight = 1 / (rows of the global batch) dprediction is the gradient
 * of PyTorch's mse_loss, reduction "mean".
 *
 * slot     tensor         shape           type
 * in[0]    prediction     [rows, cols]    dtype
 * in[1]    target         [rows, cols]    dtype
 * out[0]   loss           [rows]          f32; f64 for f64     optional
 * out[1]   loss_sum       [1]             f64                  optional; overwritten; summed in
 *                                                              f64, in an order that depends on
 *                                                              rows and the device only
 * out[2]   dprediction    [rows, cols]    dtype                optional; may be prediction
 * saved    nothing
 * step     of the call: optional, factors of dprediction
 *
 * Arithmetic is f32, f64 for f64.  A sum of squares that overflows it makes its row's loss
 * infinite.  The bits of a row depend on its content, cols, the type and the device.  There is no
 * backward: forward gives dprediction, and tutti_layer_backward returns TUTTI_ERR_UNSUPPORTED. */
#ifndef TUTTI_MSE_H
#define TUTTI_MSE_H

#include "tutti/layer.h"

TUTTI_BEGIN

typedef struct tutti_mse_desc {
    size_t size;
    int64_t cols;      /* 1 to 2^20; must be given */
    tutti_dtype dtype; /* 0: f32 */
} tutti_mse_desc;
#define TUTTI_MSE_DESC_INIT TUTTI_DESC_INIT(tutti_mse_desc)
TUTTI_API tutti_mse_desc tutti_mse_desc_default(void);

/* A layer on the context's device; the context need not outlive it.  TUTTI_ERR_ARG if desc is NULL
 * or one of its fields is not what the descriptor says. */
TUTTI_API tutti_status tutti_mse_create(tutti_context *ctx, const tutti_mse_desc *desc,
                                        tutti_layer **layer);

/* The slots above by name. */
typedef struct tutti_mse_call {
    const tutti_tensor *prediction, *target;
    tutti_tensor *loss, *loss_sum, *dprediction;
    TUTTI_CALL_COMMON;
} tutti_mse_call;
/* As tutti_layer_plan and tutti_layer_forward. */
TUTTI_API tutti_status tutti_mse_plan(tutti_layer *layer, tutti_context *ctx,
                                      const tutti_mse_call *call);
TUTTI_API tutti_status tutti_mse_forward(tutti_layer *layer, tutti_context *ctx,
                                         const tutti_mse_call *call);

TUTTI_END
#endif
