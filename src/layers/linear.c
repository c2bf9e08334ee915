/* FusedLinear: validate, plan (once a shape, kept in the layer), call the table. */
#include "tutti/linear.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "core/layer.h"

/* A shape that has been planned on some context. */
typedef struct planned {
    struct planned *next;
    int64_t rows;
    tutti__linear_plan *plan;
} planned;

typedef struct linear_layer {
    tutti_layer head;
    tutti_linear_desc desc;
    pthread_mutex_t lock; /* contexts of several threads may plan at once */
    planned *plans;
} linear_layer;

static const tutti_layer_option options[] = {
    {"in", "int", NULL},
    {"out", "int", NULL},
    {"dtype", "dtype", "f32"},
    {"activation", "none|relu|leaky_relu|gelu|gelu_erf|squared_relu|silu", "none"},
    {"slope", "real", "0.01"},
    {"has_bias", "bool", "1"},
    {"allow_tf32", "bool", "0"},
};
static const tutti__option_place places[] = {
    {TUTTI__OPTION_INT64, offsetof(tutti_linear_desc, in)},
    {TUTTI__OPTION_INT64, offsetof(tutti_linear_desc, out)},
    {TUTTI__OPTION_DTYPE, offsetof(tutti_linear_desc, dtype)},
    {TUTTI__OPTION_CHOICE, offsetof(tutti_linear_desc, activation)},
    {TUTTI__OPTION_REAL, offsetof(tutti_linear_desc, slope)},
    {TUTTI__OPTION_BOOL, offsetof(tutti_linear_desc, has_bias)},
    {TUTTI__OPTION_BOOL, offsetof(tutti_linear_desc, allow_tf32)},
};
static const tutti_linear_desc defaults = TUTTI_LINEAR_DESC_INIT;

/* gelu and silu cannot be undone from y */
static bool saves_z(tutti_activation activation)
{
    return activation == TUTTI_ACT_GELU || activation == TUTTI_ACT_GELU_ERF ||
           activation == TUTTI_ACT_SILU;
}

static bool backward_reads_y(tutti_activation activation)
{
    return activation != TUTTI_ACT_NONE && !saves_z(activation);
}

static size_t saved_bytes(const tutti_layer *layer, int64_t rows)
{
    const tutti_linear_desc *desc = &((const linear_layer *)layer)->desc;
    if (!saves_z(desc->activation)) return 0;
    return (size_t)rows * (size_t)desc->out * tutti_dtype_size(desc->dtype);
}

static tutti__linear_shape shape_of(const tutti_linear_desc *desc, int64_t rows)
{
    return (tutti__linear_shape){
        .rows = rows,
        .in = desc->in,
        .out = desc->out,
        .dtype = desc->dtype,
        .activation = desc->activation,
        .slope = desc->slope,
        .has_bias = desc->has_bias,
        .allow_tf32 = desc->allow_tf32,
    };
}

/* The plan of a shape, made if there is none.  Planning on each context also readies that context's scratch, so
 * `again` asks the backend even if the layer has the plan. */
static tutti_status plan_for(linear_layer *linear, tutti_context *ctx, int64_t rows, bool again,
                             tutti__linear_plan **plan)
{
    *plan = NULL;
    const tutti__operations *op = &linear->head.backend->op;
    if (!op->linear_plan) return TUTTI_OK;
    pthread_mutex_lock(&linear->lock);
    planned *found = linear->plans;
    while (found && found->rows != rows) found = found->next;
    pthread_mutex_unlock(&linear->lock);
    if (found && !again) {
        *plan = found->plan;
        return TUTTI_OK;
    }
    bool capturing;
    TUTTI_TRY(ctx->backend->run.stream_capturing(ctx->device, ctx->stream, &capturing));
    if (capturing)
        return tutti__fail(TUTTI_ERR_STATE,
                           "linear: a call of %lld rows is captured before it was planned",
                           (long long)rows);
    tutti__linear_shape shape = shape_of(&linear->desc, rows);
    tutti__linear_plan *made;
    TUTTI_TRY(op->linear_plan(ctx, &shape, &made));
    planned *entry = malloc(sizeof *entry);
    if (!entry) {
        op->linear_plan_destroy(made);
        return tutti__fail(TUTTI_ERR_MEMORY, "linear: no memory for a plan");
    }
    pthread_mutex_lock(&linear->lock);
    found = linear->plans;
    while (found && found->rows != rows) found = found->next;
    if (!found) {
        *entry = (planned){linear->plans, rows, made};
        linear->plans = found = entry;
        entry = NULL;
        made = NULL;
    }
    pthread_mutex_unlock(&linear->lock);
    if (made) op->linear_plan_destroy(made); /* there was one already */
    free(entry);
    *plan = found->plan;
    return TUTTI_OK;
}

static tutti_status plan(tutti_layer *layer, tutti_context *ctx, int64_t rows)
{
    const tutti_linear_desc *desc = &((const linear_layer *)layer)->desc;
    int64_t widest = desc->in > desc->out ? desc->in : desc->out;
    TUTTI_REQUIRE(rows <= INT64_MAX / 16 / widest,
                  "linear: rows is %lld, and %lld columns of it are beyond 2^59", (long long)rows,
                  (long long)widest);
    tutti__linear_plan *made;
    return plan_for((linear_layer *)layer, ctx, rows, true, &made);
}

static tutti_status check_bound(const tutti_layer *layer)
{
    for (int i = 0; i < layer->param_count; i++)
        if (!layer->params[i].value.data)
            return tutti__fail(TUTTI_ERR_STATE, "linear: parameter %s is not bound",
                               layer->params[i].name);
    return TUTTI_OK;
}

static tutti_status forward(tutti_layer *layer, tutti_context *ctx, const tutti_call *call)
{
    linear_layer *linear = (linear_layer *)layer;
    const tutti_linear_desc *desc = &linear->desc;
    if (!layer->backend->op.linear_forward) return tutti__unsupported(layer, "linear_forward");
    int64_t rows = -1;
    tutti__linear_args args = {.saved = saves_z(desc->activation) ? call->saved : NULL};
    TUTTI_TRY(tutti__as_rows(call->in[0], "linear: x", desc->dtype, desc->in, &rows, &args.x));
    TUTTI_TRY(tutti__as_rows(call->out[0], "linear: y", desc->dtype, desc->out, &rows, &args.y));
    TUTTI_TRY(tutti__check_apart(&args.y, "linear: y", desc->out, &args.x, "linear: x", desc->in,
                                 rows, false));
    TUTTI_TRY(check_bound(layer));
    args.shape = shape_of(desc, rows);
    args.weight = layer->params[0].value.data;
    args.bias = desc->has_bias ? layer->params[1].value.data : NULL;
    TUTTI_TRY(plan_for(linear, ctx, rows, false, &args.plan));
    return layer->backend->op.linear_forward(ctx, &args);
}

static tutti_status backward(tutti_layer *layer, tutti_context *ctx, const tutti_call *call)
{
    linear_layer *linear = (linear_layer *)layer;
    const tutti_linear_desc *desc = &linear->desc;
    if (!layer->backend->op.linear_backward) return tutti__unsupported(layer, "linear_backward");
    int64_t rows = -1;
    tutti__linear_args args = {
        .saved = saves_z(desc->activation) ? call->saved : NULL,
        .accumulate = call->flags & TUTTI_GRAD_ACCUMULATE,
    };
    TUTTI_TRY(tutti__as_rows(call->in[0], "linear: x", desc->dtype, desc->in, &rows, &args.x));
    TUTTI_TRY(
        tutti__as_rows(call->upstream[0], "linear: dy", desc->dtype, desc->out, &rows, &args.dy));
    if (backward_reads_y(desc->activation))
        TUTTI_TRY(
            tutti__as_rows(call->out[0], "linear: y", desc->dtype, desc->out, &rows, &args.y));
    TUTTI_TRY(
        tutti__as_rows_if(call->din[0], "linear: dx", desc->dtype, desc->in, &rows, &args.dx));
    TUTTI_TRY(tutti__check_apart(&args.dx, "linear: dx", desc->in, &args.x, "linear: x", desc->in,
                                 rows, false));
    TUTTI_TRY(tutti__check_apart(&args.dx, "linear: dx", desc->in, &args.dy, "linear: dy",
                                 desc->out, rows, false));
    TUTTI_TRY(tutti__check_apart(&args.dx, "linear: dx", desc->in, &args.y, "linear: y", desc->out,
                                 rows, false));
    TUTTI_REQUIRE(args.saved || rows == 0 || !saves_z(desc->activation), "linear: saved is NULL");
    TUTTI_TRY(check_bound(layer));
    tutti_dtype accumulate = tutti__accumulate_dtype(desc->dtype, desc->dtype);
    for (int i = 0; i < layer->param_count; i++)
        TUTTI_REQUIRE(!layer->params[i].grad.data || layer->params[i].grad.dtype == accumulate,
                      "linear: the gradient of %s is %s, want %s", layer->params[i].name,
                      tutti_dtype_name(layer->params[i].grad.dtype), tutti_dtype_name(accumulate));
    args.shape = shape_of(desc, rows);
    args.weight = layer->params[0].value.data;
    args.dweight = layer->params[0].grad.data;
    args.dbias = desc->has_bias ? layer->params[1].grad.data : NULL;
    TUTTI_TRY(plan_for(linear, ctx, rows, false, &args.plan));
    return layer->backend->op.linear_backward(ctx, &args);
}

static void destroy(tutti_layer *layer)
{
    linear_layer *linear = (linear_layer *)layer;
    for (planned *entry = linear->plans, *next; entry; entry = next) {
        next = entry->next;
        layer->backend->op.linear_plan_destroy(entry->plan);
        free(entry);
    }
    pthread_mutex_destroy(&linear->lock);
}

static tutti_status create(tutti_context *ctx, const void *desc, tutti_layer **layer)
{
    return tutti_linear_create(ctx, desc, layer);
}

const tutti__layer_class tutti__linear_class = {
    .type = {.name = "linear",
             .option_count = sizeof options / sizeof options[0],
             .options = options,
             .in = {"x"},
             .out = {"y"}},
    .option_places = places,
    .desc_size = sizeof defaults,
    .desc_default = &defaults,
    .create = create,
    .plan = plan,
    .forward = forward,
    .backward = backward,
    .saved_bytes = saved_bytes,
    .destroy = destroy,
};

tutti_status tutti_linear_create(tutti_context *ctx, const tutti_linear_desc *desc,
                                 tutti_layer **layer)
{
    TUTTI_REQUIRE(ctx, "linear: ctx is NULL");
    TUTTI_REQUIRE(desc, "linear: desc is NULL");
    TUTTI_REQUIRE(layer, "linear: layer is NULL");
    TUTTI_REQUIRE(desc->in >= 1 && desc->in <= INT32_MAX, "linear: in is %lld, want 1 to 2^31-1",
                  (long long)desc->in);
    TUTTI_REQUIRE(desc->out >= 1 && desc->out <= INT32_MAX, "linear: out is %lld, want 1 to 2^31-1",
                  (long long)desc->out);
    TUTTI_REQUIRE(tutti__is_float(desc->dtype), "linear: dtype is %s, want f32, f64, f16 or bf16",
                  tutti_dtype_name(desc->dtype));
    TUTTI_REQUIRE((unsigned)desc->activation <= TUTTI_ACT_SILU,
                  "linear: activation is %d, no tutti_activation", (int)desc->activation);
    TUTTI_REQUIRE(isfinite(desc->slope) && desc->slope > 0,
                  "linear: slope is %g, want finite and > 0", desc->slope);
    linear_layer *made;
    TUTTI_TRY(tutti__layer_new(ctx, &tutti__linear_class, sizeof *made, (tutti_layer **)&made));
    made->desc = *desc;
    pthread_mutex_init(&made->lock, NULL);
    double bound = 1 / sqrt((double)desc->in);
    tutti__layer_add_param(&made->head, "weight", desc->dtype, 2,
                           (const int64_t[]){desc->out, desc->in}, TUTTI_INIT_UNIFORM, bound, 1);
    if (desc->has_bias)
        tutti__layer_add_param(&made->head, "bias", desc->dtype, 1, &desc->out, TUTTI_INIT_UNIFORM,
                               bound, 0);
    *layer = &made->head;
    return TUTTI_OK;
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
