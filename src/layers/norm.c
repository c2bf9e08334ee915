/* LayerNorm and RMSNorm: validate, plan, call the table. */
#include "layers/norm.h"

#include <math.h>
#include <stdio.h>

#include "tutti/layernorm.h"

typedef struct norm_layer {
    tutti_layer head;
    tutti__norm_desc desc;
    tutti_dtype accumulate; /* type of mean and rstd */
} norm_layer;

tutti_status tutti__norm_create(tutti_context *ctx, const tutti__layer_class *class,
                                const tutti__norm_desc *desc, tutti_layer **layer)
{
    const char *name = class->type.name;
    TUTTI_REQUIRE(ctx, "%s: ctx is NULL", name);
    TUTTI_REQUIRE(layer, "%s: layer is NULL", name);
    TUTTI_REQUIRE(desc->cols >= 1 && desc->cols <= 1 << 20, "%s: cols is %lld, want 1 to 2^20",
                  name, (long long)desc->cols);
    TUTTI_REQUIRE(isfinite(desc->eps) && desc->eps >= 0, "%s: eps is %g, want finite and >= 0",
                  name, desc->eps);
    TUTTI_REQUIRE(tutti__is_float(desc->x_dtype), "%s: x_dtype is %s, want f32, f64, f16 or bf16",
                  name, tutti_dtype_name(desc->x_dtype));
    TUTTI_REQUIRE(tutti__is_float(desc->param_dtype),
                  "%s: param_dtype is %s, want f32, f64, f16 or bf16", name,
                  tutti_dtype_name(desc->param_dtype));
    TUTTI_REQUIRE(desc->y_dtype == desc->x_dtype || desc->y_dtype == desc->param_dtype,
                  "%s: y_dtype is %s, want x's (%s) or the parameters' (%s)", name,
                  tutti_dtype_name(desc->y_dtype), tutti_dtype_name(desc->x_dtype),
                  tutti_dtype_name(desc->param_dtype));
    TUTTI_REQUIRE(desc->has_gamma || !desc->has_beta, "%s: has_beta wants has_gamma", name);
    TUTTI_REQUIRE(desc->has_gamma || !desc->zero_centered, "%s: zero_centered wants has_gamma",
                  name);

    norm_layer *made;
    TUTTI_TRY(tutti__layer_new(ctx, class, sizeof *made, (tutti_layer **)&made));
    made->desc = *desc;
    made->accumulate = tutti__accumulate_dtype(desc->x_dtype, desc->param_dtype);
    if (desc->has_gamma)
        tutti__layer_add_param(&made->head, "gamma", desc->param_dtype, 1, &desc->cols,
                               desc->zero_centered ? TUTTI_INIT_ZERO : TUTTI_INIT_ONE, 0, 0);
    if (desc->has_beta)
        tutti__layer_add_param(&made->head, "beta", desc->param_dtype, 1, &desc->cols,
                               TUTTI_INIT_ZERO, 0, 0);
    *layer = &made->head;
    return TUTTI_OK;
}

/* mean (LayerNorm only) and rstd in the caller's memory, each on a 16-byte boundary */
static size_t statistic_bytes(const norm_layer *norm, int64_t rows)
{
    return ((size_t)rows * tutti_dtype_size(norm->accumulate) + 15) / 16 * 16;
}

size_t tutti__norm_saved_bytes(const tutti_layer *layer, int64_t rows)
{
    const norm_layer *norm = (const norm_layer *)layer;
    return statistic_bytes(norm, rows) * (norm->desc.centered ? 2 : 1);
}

static void split_saved(const norm_layer *norm, void *saved, int64_t rows, void **mean, void **rstd)
{
    *mean = saved && norm->desc.centered ? saved : NULL;
    *rstd = *mean ? (char *)saved + statistic_bytes(norm, rows) : saved;
}

static tutti_status check_bound(const norm_layer *norm)
{
    for (int i = 0; i < norm->head.param_count; i++)
        if (!norm->head.params[i].value.data)
            return tutti__fail(TUTTI_ERR_STATE, "%s: parameter %s is not bound",
                               norm->head.class->type.name, norm->head.params[i].name);
    return TUTTI_OK;
}

tutti_status tutti__norm_plan(tutti_layer *layer, tutti_context *ctx, int64_t rows)
{
    const norm_layer *norm = (const norm_layer *)layer;
    if (!layer->backend->op.norm_plan) return TUTTI_OK;
    /* pointers say what is there; none is read */
    static char there[1];
    const tutti__norm_desc *desc = &norm->desc;
    tutti__norm_backward_args args = {
        .rows = rows,
        .cols = desc->cols,
        .centered = desc->centered,
        .zero_centered = desc->zero_centered,
        .x = {there, desc->x_dtype, desc->cols},
        .dy = {there, desc->y_dtype, desc->cols},
        .dx = {there, desc->x_dtype, desc->cols},
        .gamma = desc->has_gamma ? there : NULL,
        .param_dtype = desc->param_dtype,
        .mean = desc->centered ? there : NULL,
        .rstd = there,
        .dgamma = desc->has_gamma ? there : NULL,
        .dbeta = desc->has_beta ? there : NULL,
        .grad_dtype = norm->accumulate,
    };
    return layer->backend->op.norm_plan(ctx, &args);
}

#define WHAT(slot)        \
    char what_##slot[48]; \
    snprintf(what_##slot, sizeof what_##slot, "%s: " #slot, layer->class->type.name)

tutti_status tutti__norm_forward(tutti_layer *layer, tutti_context *ctx, const tutti_call *call)
{
    const norm_layer *norm = (const norm_layer *)layer;
    const tutti__norm_desc *desc = &norm->desc;
    if (!layer->backend->op.norm_forward) return tutti__unsupported(layer, "norm_forward");
    WHAT(x);
    WHAT(residual);
    WHAT(sum);
    WHAT(y);
    int64_t rows = -1, cols = desc->cols;
    tutti__norm_forward_args args = {
        .cols = cols,
        .centered = desc->centered,
        .zero_centered = desc->zero_centered,
        .eps = desc->eps,
        .param_dtype = desc->param_dtype,
    };
    TUTTI_TRY(tutti__as_rows(call->in[0], what_x, desc->x_dtype, cols, &rows, &args.x));
    TUTTI_TRY(
        tutti__as_rows_if(call->in[1], what_residual, desc->x_dtype, cols, &rows, &args.residual));
    TUTTI_TRY(tutti__as_rows(call->out[0], what_y, desc->y_dtype, cols, &rows, &args.y));
    TUTTI_TRY(tutti__as_rows_if(call->out[1], what_sum, desc->x_dtype, cols, &rows, &args.sum));
    TUTTI_REQUIRE(!call->out[1] || call->in[1], "%s is given without a residual", what_sum);
    bool keeps = call->saved != NULL;
    TUTTI_TRY(tutti__check_apart(&args.y, what_y, cols, &args.x, what_x, cols, rows, !keeps));
    TUTTI_TRY(
        tutti__check_apart(&args.y, what_y, cols, &args.residual, what_residual, cols, rows, true));
    TUTTI_TRY(tutti__check_apart(&args.y, what_y, cols, &args.sum, what_sum, cols, rows, false));
    TUTTI_TRY(tutti__check_apart(&args.sum, what_sum, cols, &args.x, what_x, cols, rows, true));
    TUTTI_TRY(tutti__check_apart(&args.sum, what_sum, cols, &args.residual, what_residual, cols,
                                 rows, true));
    TUTTI_TRY(check_bound(norm));
    args.rows = rows;
    args.gamma = desc->has_gamma ? layer->params[0].value.data : NULL;
    args.beta = desc->has_beta ? layer->params[1].value.data : NULL;
    split_saved(norm, call->saved, rows, &args.mean, &args.rstd);
    return layer->backend->op.norm_forward(ctx, &args);
}

tutti_status tutti__norm_backward(tutti_layer *layer, tutti_context *ctx, const tutti_call *call)
{
    const norm_layer *norm = (const norm_layer *)layer;
    const tutti__norm_desc *desc = &norm->desc;
    if (!layer->backend->op.norm_backward) return tutti__unsupported(layer, "norm_backward");
    WHAT(x);
    WHAT(dy);
    WHAT(dsum);
    WHAT(dx);
    int64_t rows = -1, cols = desc->cols;
    tutti__norm_backward_args args = {
        .cols = cols,
        .centered = desc->centered,
        .zero_centered = desc->zero_centered,
        .param_dtype = desc->param_dtype,
        .accumulate = call->flags & TUTTI_GRAD_ACCUMULATE,
    };
    TUTTI_TRY(tutti__as_rows(call->in[0], what_x, desc->x_dtype, cols, &rows, &args.x));
    TUTTI_TRY(tutti__as_rows(call->upstream[0], what_dy, desc->y_dtype, cols, &rows, &args.dy));
    TUTTI_TRY(
        tutti__as_rows_if(call->upstream[1], what_dsum, desc->x_dtype, cols, &rows, &args.dsum));
    TUTTI_TRY(tutti__as_rows_if(call->din[0], what_dx, desc->x_dtype, cols, &rows, &args.dx));
    TUTTI_REQUIRE(!call->upstream[1] || call->din[0], "%s is given without dx", what_dsum);
    TUTTI_REQUIRE(!call->din[1], "%s is the residual's gradient too, want din[1] NULL", what_dx);
    TUTTI_TRY(tutti__check_apart(&args.dx, what_dx, cols, &args.x, what_x, cols, rows, false));
    TUTTI_TRY(tutti__check_apart(&args.dx, what_dx, cols, &args.dy, what_dy, cols, rows, true));
    TUTTI_TRY(tutti__check_apart(&args.dx, what_dx, cols, &args.dsum, what_dsum, cols, rows, true));
    TUTTI_REQUIRE(call->saved || rows == 0, "%s: saved is NULL", layer->class->type.name);
    TUTTI_TRY(check_bound(norm));
    args.rows = rows;
    args.gamma = desc->has_gamma ? layer->params[0].value.data : NULL;
    const tutti_tensor *dgamma = desc->has_gamma ? &layer->params[0].grad : NULL;
    const tutti_tensor *dbeta = desc->has_beta ? &layer->params[1].grad : NULL;
    args.dgamma = dgamma ? dgamma->data : NULL;
    args.dbeta = dbeta ? dbeta->data : NULL;
    args.grad_dtype = args.dgamma ? dgamma->dtype : args.dbeta ? dbeta->dtype : norm->accumulate;
    TUTTI_REQUIRE(!args.dgamma || !args.dbeta || dgamma->dtype == dbeta->dtype,
                  "%s: the gradients of gamma and beta are %s and %s, want one type",
                  layer->class->type.name, tutti_dtype_name(dgamma->dtype),
                  tutti_dtype_name(dbeta->dtype));
    void *mean, *rstd;
    split_saved(norm, call->saved, rows, &mean, &rstd);
    args.mean = mean;
    args.rstd = rstd;
    return layer->backend->op.norm_backward(ctx, &args);
}

tutti_status tutti__norm_call_forward(tutti_layer *layer, const tutti__layer_class *class,
                                      tutti_context *ctx, const tutti_tensor *x,
                                      const tutti_tensor *residual, const tutti_tensor *sum,
                                      const tutti_tensor *y, void *saved)
{
    TUTTI_TRY(tutti__check_class(layer, class));
    tutti_call call = {.in = {x, residual}, .out = {y, sum}, .saved = saved};
    return tutti_layer_forward(layer, ctx, &call);
}

tutti_status tutti__norm_call_backward(tutti_layer *layer, const tutti__layer_class *class,
                                       tutti_context *ctx, const tutti_tensor *x, const void *saved,
                                       const tutti_tensor *dy, const tutti_tensor *dsum,
                                       const tutti_tensor *dx, unsigned flags)
{
    TUTTI_TRY(tutti__check_class(layer, class));
    tutti_call call = {
        .in = {x}, .upstream = {dy, dsum}, .din = {dx}, .saved = (void *)saved, .flags = flags};
    return tutti_layer_backward(layer, ctx, &call);
}
