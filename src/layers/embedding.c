/* Embedding: validate, plan, call the table. */
#include "tutti/embedding.h"

#include <math.h>

#include "core/layer.h"

typedef struct embedding_layer {
    tutti_layer head;
    tutti_embedding_desc desc;
} embedding_layer;

static const tutti_layer_option options[] = {
    {"vocab", "int", NULL},
    {"cols", "int", NULL},
    {"dtype", "dtype", "f32"},
};
static const tutti__option_place places[] = {
    {TUTTI__OPTION_INT64, offsetof(tutti_embedding_desc, vocab)},
    {TUTTI__OPTION_INT64, offsetof(tutti_embedding_desc, cols)},
    {TUTTI__OPTION_DTYPE, offsetof(tutti_embedding_desc, dtype)},
};
static const tutti_embedding_desc defaults = TUTTI_EMBEDDING_DESC_INIT;

static tutti_status check_rows(int64_t rows)
{
    TUTTI_REQUIRE(rows <= INT32_MAX, "embedding: rows is %lld, want at most 2^31-1",
                  (long long)rows);
    return TUTTI_OK;
}

static tutti_status plan(tutti_layer *layer, tutti_context *ctx, int64_t rows)
{
    const tutti_embedding_desc *desc = &((const embedding_layer *)layer)->desc;
    TUTTI_TRY(check_rows(rows));
    if (!layer->backend->op.embedding_plan) return TUTTI_OK;
    tutti__embedding_args args = {
        .rows = rows,
        .vocab = desc->vocab,
        .cols = desc->cols,
        .dtype = desc->dtype,
    };
    return layer->backend->op.embedding_plan(ctx, &args);
}

/* The tokens, and y or dy beside them. */
static tutti_status see_rows(const tutti_embedding_desc *desc, const tutti_tensor *tokens,
                             const tutti_tensor *beside, const char *what,
                             tutti__embedding_args *args, tutti__matrix *matrix)
{
    int64_t rows = -1;
    tutti__matrix list;
    TUTTI_TRY(tutti__as_rows(tokens, "embedding: tokens", TUTTI_I32, 1, &rows, &list));
    TUTTI_REQUIRE(rows <= 1 || list.stride == 1, "embedding: tokens are not contiguous");
    TUTTI_TRY(check_rows(rows));
    TUTTI_TRY(tutti__as_rows(beside, what, desc->dtype, desc->cols, &rows, matrix));
    TUTTI_TRY(
        tutti__check_apart(matrix, what, desc->cols, &list, "embedding: tokens", 1, rows, false));
    args->rows = rows;
    args->vocab = desc->vocab;
    args->cols = desc->cols;
    args->dtype = desc->dtype;
    args->tokens = list.data;
    return TUTTI_OK;
}

static tutti_status check_bound(const tutti_layer *layer)
{
    if (!layer->params[0].value.data)
        return tutti__fail(TUTTI_ERR_STATE, "embedding: parameter weight is not bound");
    return TUTTI_OK;
}

static tutti_status forward(tutti_layer *layer, tutti_context *ctx, const tutti_call *call)
{
    const embedding_layer *embedding = (const embedding_layer *)layer;
    if (!layer->backend->op.embedding_forward)
        return tutti__unsupported(layer, "embedding_forward");
    tutti__embedding_args args = {0};
    TUTTI_TRY(
        see_rows(&embedding->desc, call->in[0], call->out[0], "embedding: y", &args, &args.y));
    TUTTI_TRY(check_bound(layer));
    args.weight = layer->params[0].value.data;
    return layer->backend->op.embedding_forward(ctx, &args);
}

static tutti_status backward(tutti_layer *layer, tutti_context *ctx, const tutti_call *call)
{
    const embedding_layer *embedding = (const embedding_layer *)layer;
    if (!layer->backend->op.embedding_backward)
        return tutti__unsupported(layer, "embedding_backward");
    tutti__embedding_args args = {.accumulate = call->flags & TUTTI_GRAD_ACCUMULATE};
    TUTTI_TRY(see_rows(&embedding->desc, call->in[0], call->upstream[0], "embedding: dy", &args,
                       &args.dy));
    TUTTI_REQUIRE(!call->din[0], "embedding: tokens have no gradient, want din[0] NULL");
    TUTTI_TRY(check_bound(layer));
    const tutti_tensor *grad = &layer->params[0].grad;
    if (!grad->data) return TUTTI_OK;
    tutti_dtype sums = tutti__accumulate_dtype(args.dtype, args.dtype);
    TUTTI_REQUIRE(grad->dtype == sums, "embedding: the gradient of weight is %s, want %s",
                  tutti_dtype_name(grad->dtype), tutti_dtype_name(sums));
    args.dweight = grad->data;
    return layer->backend->op.embedding_backward(ctx, &args);
}

static tutti_status create(tutti_context *ctx, const void *desc, tutti_layer **layer)
{
    return tutti_embedding_create(ctx, desc, layer);
}

const tutti__layer_class tutti__embedding_class = {
    .type = {.name = "embedding",
             .option_count = sizeof options / sizeof options[0],
             .options = options,
             .in = {"tokens"},
             .out = {"y"}},
    .option_places = places,
    .desc_size = sizeof defaults,
    .desc_default = &defaults,
    .create = create,
    .plan = plan,
    .forward = forward,
    .backward = backward,
};

tutti_status tutti_embedding_create(tutti_context *ctx, const tutti_embedding_desc *desc,
                                    tutti_layer **layer)
{
    TUTTI_REQUIRE(ctx, "embedding: ctx is NULL");
    TUTTI_REQUIRE(desc, "embedding: desc is NULL");
    TUTTI_REQUIRE(layer, "embedding: layer is NULL");
    TUTTI_REQUIRE(desc->vocab >= 1 && desc->vocab <= INT32_MAX,
                  "embedding: vocab is %lld, want 1 to 2^31-1", (long long)desc->vocab);
    TUTTI_REQUIRE(desc->cols >= 1 && desc->cols <= 1 << 20,
                  "embedding: cols is %lld, want 1 to 2^20", (long long)desc->cols);
    TUTTI_REQUIRE(tutti__is_float(desc->dtype),
                  "embedding: dtype is %s, want f32, f64, f16 or bf16",
                  tutti_dtype_name(desc->dtype));
    embedding_layer *made;
    TUTTI_TRY(tutti__layer_new(ctx, &tutti__embedding_class, sizeof *made, (tutti_layer **)&made));
    made->desc = *desc;
    tutti__layer_add_param(&made->head, "weight", desc->dtype, 2,
                           (const int64_t[]){desc->vocab, desc->cols}, TUTTI_INIT_UNIFORM, sqrt(3),
                           1);
    *layer = &made->head;
    return TUTTI_OK;
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
