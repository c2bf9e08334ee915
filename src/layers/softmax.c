/* Softmax and log-softmax: validate, call the table. */
#include "tutti/softmax.h"

#include <math.h>

#include "core/layer.h"

typedef struct softmax_layer {
    tutti_layer head;
    tutti_softmax_desc desc;
} softmax_layer;

static const tutti_layer_option options[] = {
    {"cols", "int", NULL},  {"dtype", "dtype", "f32"},     {"log", "bool", "0"},
    {"scale", "real", "1"}, {"causal_period", "int", "0"},
};
static const tutti__option_place places[] = {
    {TUTTI__OPTION_INT64, offsetof(tutti_softmax_desc, cols)},
    {TUTTI__OPTION_DTYPE, offsetof(tutti_softmax_desc, dtype)},
    {TUTTI__OPTION_BOOL, offsetof(tutti_softmax_desc, log)},
    {TUTTI__OPTION_REAL, offsetof(tutti_softmax_desc, scale)},
    {TUTTI__OPTION_INT64, offsetof(tutti_softmax_desc, causal_period)},
};
static const tutti_softmax_desc defaults = TUTTI_SOFTMAX_DESC_INIT;

static tutti__softmax_args common_args(const softmax_layer *softmax, const tutti_call *call)
{
    const tutti_softmax_desc *desc = &softmax->desc;
    const double most = fabs(desc->scale) < 1 ? 0.5 : 1;
    return (tutti__softmax_args){
        .cols = desc->cols,
        .log = desc->log,
        .scale = desc->scale,
        .lead = desc->scale < 0 ? -most : most,
        .size = fabs(desc->scale) / most,
        .causal_period = desc->causal_period,
        .first_row = call->first_row,
    };
}

static tutti_status forward(tutti_layer *layer, tutti_context *ctx, const tutti_call *call)
{
    const softmax_layer *softmax = (const softmax_layer *)layer;
    if (!layer->backend->op.softmax_forward) return tutti__unsupported(layer, "softmax_forward");
    tutti_dtype dtype = softmax->desc.dtype;
    int64_t rows = -1, cols = softmax->desc.cols;
    tutti__softmax_args args = common_args(softmax, call);
    TUTTI_TRY(tutti__as_rows(call->in[0], "softmax: x", dtype, cols, &rows, &args.x));
    TUTTI_TRY(tutti__as_rows(call->out[0], "softmax: y", dtype, cols, &rows, &args.y));
    TUTTI_TRY(
        tutti__check_apart(&args.y, "softmax: y", cols, &args.x, "softmax: x", cols, rows, true));
    args.rows = rows;
    return layer->backend->op.softmax_forward(ctx, &args);
}

static tutti_status backward(tutti_layer *layer, tutti_context *ctx, const tutti_call *call)
{
    const softmax_layer *softmax = (const softmax_layer *)layer;
    if (!layer->backend->op.softmax_backward) return tutti__unsupported(layer, "softmax_backward");
    tutti_dtype dtype = softmax->desc.dtype;
    int64_t rows = -1, cols = softmax->desc.cols;
    tutti__softmax_args args = common_args(softmax, call);
    TUTTI_TRY(tutti__as_rows(call->out[0], "softmax: y", dtype, cols, &rows, &args.y));
    TUTTI_TRY(tutti__as_rows(call->upstream[0], "softmax: dy", dtype, cols, &rows, &args.dy));
    TUTTI_TRY(tutti__as_rows(call->din[0], "softmax: dx", dtype, cols, &rows, &args.dx));
    TUTTI_TRY(tutti__check_apart(&args.dx, "softmax: dx", cols, &args.y, "softmax: y", cols, rows,
                                 false));
    TUTTI_TRY(tutti__check_apart(&args.dx, "softmax: dx", cols, &args.dy, "softmax: dy", cols, rows,
                                 true));
    args.rows = rows;
    return layer->backend->op.softmax_backward(ctx, &args);
}

static tutti_status create(tutti_context *ctx, const void *desc, tutti_layer **layer)
{
    return tutti_softmax_create(ctx, desc, layer);
}

const tutti__layer_class tutti__softmax_class = {
    .type = {.name = "softmax",
             .option_count = sizeof options / sizeof options[0],
             .options = options,
             .in = {"x"},
             .out = {"y"}},
    .option_places = places,
    .desc_size = sizeof defaults,
    .desc_default = &defaults,
    .create = create,
    .forward = forward,
    .backward = backward,
};

tutti_status tutti_softmax_create(tutti_context *ctx, const tutti_softmax_desc *desc,
                                  tutti_layer **layer)
{
    TUTTI_REQUIRE(ctx, "softmax: ctx is NULL");
    TUTTI_REQUIRE(desc, "softmax: desc is NULL");
    TUTTI_REQUIRE(layer, "softmax: layer is NULL");
    TUTTI_REQUIRE(desc->cols >= 1 && desc->cols <= 1 << 20, "softmax: cols is %lld, want 1 to 2^20",
                  (long long)desc->cols);
    TUTTI_REQUIRE(tutti__is_float(desc->dtype), "softmax: dtype is %s, want f32, f64, f16 or bf16",
                  tutti_dtype_name(desc->dtype));
    TUTTI_REQUIRE(isfinite(desc->scale), "softmax: scale is %g, want finite", desc->scale);
    TUTTI_REQUIRE(desc->dtype == TUTTI_F64 || isfinite((float)desc->scale),
                  "softmax: scale is %g, want finite in the arithmetic, f32", desc->scale);
    TUTTI_REQUIRE(desc->causal_period >= 0, "softmax: causal_period is %lld, want >= 0",
                  (long long)desc->causal_period);
    softmax_layer *made;
    TUTTI_TRY(tutti__layer_new(ctx, &tutti__softmax_class, sizeof *made, (tutti_layer **)&made));
    made->desc = *desc;
    *layer = &made->head;
    return TUTTI_OK;
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
