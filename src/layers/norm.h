/* What LayerNorm and RMSNorm share: one layer, of which RMSNorm leaves out the mean and beta. */
#ifndef TUTTI_LAYERS_NORM_H
#define TUTTI_LAYERS_NORM_H

#include "core/layer.h"

typedef struct tutti__norm_desc {
    int64_t cols;
    double eps;
    tutti_dtype x_dtype, param_dtype, y_dtype;
    bool has_gamma, has_beta, zero_centered;
    bool centered;
} tutti__norm_desc;

tutti_status tutti__norm_create(tutti_context *ctx, const tutti__layer_class *class,
                                const tutti__norm_desc *desc, tutti_layer **layer);

/* Entries of both classes. */
tutti_status tutti__norm_plan(tutti_layer *layer, tutti_context *ctx, int64_t rows);
tutti_status tutti__norm_forward(tutti_layer *layer, tutti_context *ctx, const tutti_call *call);
tutti_status tutti__norm_backward(tutti_layer *layer, tutti_context *ctx, const tutti_call *call);
size_t tutti__norm_saved_bytes(const tutti_layer *layer, int64_t rows);

/* Bodies of the typed wrappers. */
tutti_status tutti__norm_call_forward(tutti_layer *layer, const tutti__layer_class *class,
                                      tutti_context *ctx, const tutti_tensor *x,
                                      const tutti_tensor *residual, const tutti_tensor *sum,
                                      const tutti_tensor *y, void *saved);
tutti_status tutti__norm_call_backward(tutti_layer *layer, const tutti__layer_class *class,
                                       tutti_context *ctx, const tutti_tensor *x, const void *saved,
                                       const tutti_tensor *dy, const tutti_tensor *dsum,
                                       const tutti_tensor *dx, unsigned flags);

#endif
