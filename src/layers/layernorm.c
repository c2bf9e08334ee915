/* LayerNorm: the descriptor, the options and the typed wrappers; norm.c does the rest. */
#include "tutti/layernorm.h"

#include "layers/norm.h"

static const tutti_layer_option options[] = {
    {"cols", "int", NULL},           {"eps", "real", "1e-5"},        {"x_dtype", "dtype", "f32"},
    {"param_dtype", "dtype", "f32"}, {"y_dtype", "dtype", "f32"},    {"has_gamma", "bool", "1"},
    {"has_beta", "bool", "1"},       {"zero_centered", "bool", "0"},
};
static const tutti__option_place places[] = {
    {TUTTI__OPTION_INT64, offsetof(tutti_layernorm_desc, cols)},
    {TUTTI__OPTION_REAL, offsetof(tutti_layernorm_desc, eps)},
    {TUTTI__OPTION_DTYPE, offsetof(tutti_layernorm_desc, x_dtype)},
    {TUTTI__OPTION_DTYPE, offsetof(tutti_layernorm_desc, param_dtype)},
    {TUTTI__OPTION_DTYPE, offsetof(tutti_layernorm_desc, y_dtype)},
    {TUTTI__OPTION_BOOL, offsetof(tutti_layernorm_desc, has_gamma)},
    {TUTTI__OPTION_BOOL, offsetof(tutti_layernorm_desc, has_beta)},
    {TUTTI__OPTION_BOOL, offsetof(tutti_layernorm_desc, zero_centered)},
};
static const tutti_layernorm_desc defaults = TUTTI_LAYERNORM_DESC_INIT;

static tutti_status create(tutti_context *ctx, const void *desc, tutti_layer **layer)
{
    return tutti_layernorm_create(ctx, desc, layer);
}

const tutti__layer_class tutti__layernorm_class = {
    .type = {.name = "layernorm",
             .option_count = sizeof options / sizeof options[0],
             .options = options,
             .in = {"x", "residual"},
             .out = {"y", "sum"}},
    .option_places = places,
    .desc_size = sizeof defaults,
    .desc_default = &defaults,
    .create = create,
    .plan = tutti__norm_plan,
    .forward = tutti__norm_forward,
    .backward = tutti__norm_backward,
    .saved_bytes = tutti__norm_saved_bytes,
};

tutti_status tutti_layernorm_create(tutti_context *ctx, const tutti_layernorm_desc *desc,
                                    tutti_layer **layer)
{
    TUTTI_REQUIRE(desc, "layernorm: desc is NULL");
    return tutti__norm_create(ctx, &tutti__layernorm_class,
                              &(tutti__norm_desc){
                                  .cols = desc->cols,
                                  .eps = desc->eps,
                                  .x_dtype = desc->x_dtype,
                                  .param_dtype = desc->param_dtype,
                                  .y_dtype = desc->y_dtype,
                                  .has_gamma = desc->has_gamma,
                                  .has_beta = desc->has_beta,
                                  .zero_centered = desc->zero_centered,
                                  .centered = true,
                              },
                              layer);
}

tutti_status tutti_layernorm_forward(tutti_layer *layer, tutti_context *ctx, const tutti_tensor *x,
                                     const tutti_tensor *y, void *saved)
{
    return tutti__norm_call_forward(layer, &tutti__layernorm_class, ctx, x, NULL, NULL, y, saved);
}

tutti_status tutti_layernorm_forward_residual(tutti_layer *layer, tutti_context *ctx,
                                              const tutti_tensor *x, const tutti_tensor *residual,
                                              const tutti_tensor *sum, const tutti_tensor *y,
                                              void *saved)
{
    TUTTI_REQUIRE(residual, "layernorm: residual is NULL");
    return tutti__norm_call_forward(layer, &tutti__layernorm_class, ctx, x, residual, sum, y,
                                    saved);
}

tutti_status tutti_layernorm_backward(tutti_layer *layer, tutti_context *ctx, const tutti_tensor *x,
                                      const void *saved, const tutti_tensor *dy,
                                      const tutti_tensor *dsum, const tutti_tensor *dx,
                                      unsigned flags)
{
    return tutti__norm_call_backward(layer, &tutti__layernorm_class, ctx, x, saved, dy, dsum, dx,
                                     flags);
}
