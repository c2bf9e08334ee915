/* Temporary: the typed calls of 0.1. */
#include "core/layer.h"
#include "tutti/tutti.h"
extern const tutti__layer_class tutti__layernorm_class;
extern const tutti__layer_class tutti__rmsnorm_class;
extern const tutti__layer_class tutti__softmax_class;
extern const tutti__layer_class tutti__linear_class;
extern const tutti__layer_class tutti__cross_entropy_class;
extern const tutti__layer_class tutti__embedding_class;

tutti_status tutti_layernorm_forward(tutti_layer *layer, tutti_context *ctx, const tutti_tensor *x,
                                     const tutti_tensor *y, void *saved)
{
    TUTTI_TRY(tutti__check_class(layer, &tutti__layernorm_class));
    return tutti_layer_forward(layer, ctx, &(tutti_call){.in = {x}, .out = {y}, .saved = saved});
}
tutti_status tutti_layernorm_forward_residual(tutti_layer *layer, tutti_context *ctx,
                                              const tutti_tensor *x, const tutti_tensor *residual,
                                              const tutti_tensor *sum, const tutti_tensor *y,
                                              void *saved)
{
    TUTTI_TRY(tutti__check_class(layer, &tutti__layernorm_class));
    TUTTI_REQUIRE(residual, "layernorm: residual is NULL");
    return tutti_layer_forward(layer, ctx,
                               &(tutti_call){.in = {x, residual}, .out = {y, sum}, .saved = saved});
}
tutti_status tutti_layernorm_backward(tutti_layer *layer, tutti_context *ctx, const tutti_tensor *x,
                                      const void *saved, const tutti_tensor *dy,
                                      const tutti_tensor *dsum, const tutti_tensor *dx,
                                      unsigned flags)
{
    TUTTI_TRY(tutti__check_class(layer, &tutti__layernorm_class));
    return tutti_layer_backward(layer, ctx,
                                &(tutti_call){.in = {x},
                                              .upstream = {dy, dsum},
                                              .din = {dx},
                                              .saved = (void *)saved,
                                              .flags = flags});
}

tutti_status tutti_rmsnorm_forward(tutti_layer *layer, tutti_context *ctx, const tutti_tensor *x,
                                   const tutti_tensor *y, void *saved)
{
    TUTTI_TRY(tutti__check_class(layer, &tutti__rmsnorm_class));
    return tutti_layer_forward(layer, ctx, &(tutti_call){.in = {x}, .out = {y}, .saved = saved});
}
tutti_status tutti_rmsnorm_forward_residual(tutti_layer *layer, tutti_context *ctx,
                                            const tutti_tensor *x, const tutti_tensor *residual,
                                            const tutti_tensor *sum, const tutti_tensor *y,
                                            void *saved)
{
    TUTTI_TRY(tutti__check_class(layer, &tutti__rmsnorm_class));
    TUTTI_REQUIRE(residual, "rmsnorm: residual is NULL");
    return tutti_layer_forward(layer, ctx,
                               &(tutti_call){.in = {x, residual}, .out = {y, sum}, .saved = saved});
}
tutti_status tutti_rmsnorm_backward(tutti_layer *layer, tutti_context *ctx, const tutti_tensor *x,
                                    const void *saved, const tutti_tensor *dy,
                                    const tutti_tensor *dsum, const tutti_tensor *dx,
                                    unsigned flags)
{
    TUTTI_TRY(tutti__check_class(layer, &tutti__rmsnorm_class));
    return tutti_layer_backward(layer, ctx,
                                &(tutti_call){.in = {x},
                                              .upstream = {dy, dsum},
                                              .din = {dx},
                                              .saved = (void *)saved,
                                              .flags = flags});
}

tutti_status tutti_softmax_forward(tutti_layer *layer, tutti_context *ctx, const tutti_tensor *x,
                                   const tutti_tensor *y, int64_t first_row)
{
    TUTTI_TRY(tutti__check_class(layer, &tutti__softmax_class));
    tutti_call call = {.in = {x}, .out = {y}, .first_row = first_row};
    return tutti_layer_forward(layer, ctx, &call);
}

tutti_status tutti_softmax_backward(tutti_layer *layer, tutti_context *ctx, const tutti_tensor *y,
                                    const tutti_tensor *dy, const tutti_tensor *dx,
                                    int64_t first_row)
{
    TUTTI_TRY(tutti__check_class(layer, &tutti__softmax_class));
    tutti_call call = {.out = {y}, .upstream = {dy}, .din = {dx}, .first_row = first_row};
    return tutti_layer_backward(layer, ctx, &call);
}
tutti_status tutti_linear_forward(tutti_layer *layer, tutti_context *ctx, const tutti_tensor *x,
                                  const tutti_tensor *y, void *saved)
{
    TUTTI_TRY(tutti__check_class(layer, &tutti__linear_class));
    tutti_call call = {.in = {x}, .out = {y}, .saved = saved};
    return tutti_layer_forward(layer, ctx, &call);
}

tutti_status tutti_linear_backward(tutti_layer *layer, tutti_context *ctx, const tutti_tensor *x,
                                   const tutti_tensor *y, const void *saved, const tutti_tensor *dy,
                                   const tutti_tensor *dx, unsigned flags)
{
    TUTTI_TRY(tutti__check_class(layer, &tutti__linear_class));
    tutti_call call = {.in = {x},
                       .out = {y},
                       .upstream = {dy},
                       .din = {dx},
                       .saved = (void *)saved,
                       .flags = flags};
    return tutti_layer_backward(layer, ctx, &call);
}
tutti_status tutti_embedding_forward(tutti_layer *layer, tutti_context *ctx,
                                     const tutti_tensor *tokens, const tutti_tensor *y)
{
    TUTTI_TRY(tutti__check_class(layer, &tutti__embedding_class));
    tutti_call call = {.in = {tokens}, .out = {y}};
    return tutti_layer_forward(layer, ctx, &call);
}

tutti_status tutti_embedding_backward(tutti_layer *layer, tutti_context *ctx,
                                      const tutti_tensor *tokens, const tutti_tensor *dy,
                                      unsigned flags)
{
    TUTTI_TRY(tutti__check_class(layer, &tutti__embedding_class));
    tutti_call call = {.in = {tokens}, .upstream = {dy}, .flags = flags};
    return tutti_layer_backward(layer, ctx, &call);
}
tutti_status tutti_cross_entropy_forward(tutti_layer *layer, tutti_context *ctx,
                                         const tutti_tensor *logits, const tutti_tensor *labels,
                                         const tutti_tensor *loss, const tutti_tensor *loss_sum,
                                         const tutti_tensor *dlogits, const tutti_step *step)
{
    TUTTI_TRY(tutti__check_class(layer, &tutti__cross_entropy_class));
    tutti_call call = {.in = {logits, labels}, .out = {loss, loss_sum, dlogits}, .step = step};
    return tutti_layer_forward(layer, ctx, &call);
}
