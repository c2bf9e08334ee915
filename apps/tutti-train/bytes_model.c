/* The byte model: its layers, its buffers, and the two passes. */
#include "bytes_model.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/exit_code.h"
#include "common/report.h"

const char *const bytes_model_norms[] = {"rmsnorm", NULL};

static int create_norm(bytes_model *model, tutti_layer **layer)
{
    tutti_rmsnorm_desc desc = TUTTI_RMSNORM_DESC_INIT;
    desc.cols = model->width;
    desc.x_dtype = model->dtype;
    /* 16-bit runs keep the norms' parameters in f32: they are few, and their products cost
     * nothing */
    desc.param_dtype = tutti_dtype_size(model->dtype) == 2 ? TUTTI_F32 : model->dtype;
    return app_check(tutti_rmsnorm_create(model->ctx, &desc, layer));
}

static int create_linear(bytes_model *model, int64_t in, int64_t out, tutti_activation activation,
                         tutti_layer **layer)
{
    tutti_linear_desc desc = TUTTI_LINEAR_DESC_INIT;
    desc.in = in;
    desc.out = out;
    desc.dtype = model->dtype;
    desc.activation = activation;
    return app_check(tutti_linear_create(model->ctx, &desc, layer));
}

static int allocate(bytes_model *model, int64_t cols, void **data)
{
    const size_t bytes = (size_t)model->capacity * (size_t)cols * tutti_dtype_size(model->dtype);
    return app_check(tutti_alloc(model->ctx, bytes, data));
}

static int allocate_saved(bytes_model *model, const tutti_layer *layer, void **saved)
{
    return app_check(
        tutti_alloc(model->ctx, tutti_layer_saved_bytes(layer, model->capacity), saved));
}

static int create_stage(bytes_model *model, int64_t index, tutti_activation activation,
                        tutti_params *params)
{
    bytes_stage *stage = &model->stages[index];
    const bool head = index == model->depth;
    char norm[TUTTI_NAME_MAX] = "norm", up[TUTTI_NAME_MAX] = "head", down[TUTTI_NAME_MAX];
    if (!head) {
        snprintf(norm, sizeof norm, "block%lld.norm", (long long)index);
        snprintf(up, sizeof up, "block%lld.up", (long long)index);
        snprintf(down, sizeof down, "block%lld.down", (long long)index);
    }
    stage->inner_cols = head ? BYTES_VOCAB : BYTES_EXPANSION * model->width;
    APP_TRY(create_norm(model, &stage->norm));
    APP_TRY(create_linear(model, model->width, stage->inner_cols,
                          head ? TUTTI_ACT_NONE : activation, &stage->up));
    APP_CHECK(tutti_params_add(params, stage->norm, norm));
    APP_CHECK(tutti_params_add(params, stage->up, up));
    if (!head) {
        APP_TRY(
            create_linear(model, stage->inner_cols, model->width, TUTTI_ACT_NONE, &stage->down));
        APP_CHECK(tutti_params_add(params, stage->down, down));
    }
    APP_TRY(allocate(model, model->width, &stage->h));
    APP_TRY(allocate(model, model->width, &stage->normed));
    APP_TRY(allocate(model, stage->inner_cols, &stage->inner));
    APP_TRY(allocate_saved(model, stage->norm, &stage->norm_saved));
    return allocate_saved(model, stage->up, &stage->up_saved);
}

static int create_ends(bytes_model *model, tutti_params *params)
{
    tutti_embedding_desc embed = TUTTI_EMBEDDING_DESC_INIT;
    embed.vocab = BYTES_VOCAB;
    embed.cols = model->embedding;
    embed.dtype = model->dtype;
    APP_CHECK(tutti_embedding_create(model->ctx, &embed, &model->embed));
    APP_TRY(create_linear(model, model->context * model->embedding, model->width, TUTTI_ACT_NONE,
                          &model->input));
    APP_CHECK(tutti_params_add(params, model->embed, "embedding"));
    APP_CHECK(tutti_params_add(params, model->input, "input"));

    tutti_cross_entropy_desc loss = TUTTI_CROSS_ENTROPY_DESC_INIT;
    loss.cols = BYTES_VOCAB;
    loss.dtype = model->dtype;
    return app_check(tutti_cross_entropy_create(model->ctx, &loss, &model->loss));
}

static int create_buffers(bytes_model *model)
{
    const size_t rows = (size_t)model->capacity;
    const int64_t embedded = model->context * model->embedding;
    const int64_t inner = BYTES_EXPANSION * model->width;
    void *tokens = NULL, *labels = NULL, *loss_sum = NULL;
    APP_CHECK(tutti_alloc(model->ctx, rows * (size_t)model->context * sizeof(int32_t), &tokens));
    model->tokens = tokens;
    APP_CHECK(tutti_alloc(model->ctx, rows * sizeof(int32_t), &labels));
    model->labels = labels;
    APP_CHECK(tutti_alloc(model->ctx, sizeof(double), &loss_sum));
    model->loss_sum = loss_sum;
    APP_TRY(allocate(model, embedded, &model->embedded));
    APP_TRY(allocate(model, model->width, &model->branch));
    APP_TRY(allocate(model, model->width, &model->d_h));
    return allocate(model, inner > embedded ? inner : embedded, &model->d_inner);
}

int bytes_model_create(bytes_model *model, tutti_context *ctx, const train_options *options,
                       int64_t capacity, tutti_params *params)
{
    *model = (struct bytes_model){.ctx = ctx,
                                  .dtype = options->dtype,
                                  .capacity = capacity > 0 ? capacity : 1,
                                  .context = options->context,
                                  .embedding = options->embedding,
                                  .width = options->width,
                                  .depth = options->depth};
    model->stages = calloc((size_t)model->depth + 1, sizeof *model->stages);
    if (!model->stages)
        return app_fail(APP_FAILED, "no memory for %lld blocks", (long long)model->depth);
    APP_TRY(create_ends(model, params));
    for (int64_t i = 0; i <= model->depth; i++)
        APP_TRY(create_stage(model, i, options->activation, params));
    return create_buffers(model);
}

void bytes_model_describe(const train_options *o)
{
    app_say("  model         %lld x embedding %lld -> linear %lld -> %lld x [rmsnorm, linear %lld, "
            "%s, linear %lld] -> rmsnorm -> %d",
            (long long)o->context, (long long)o->embedding, (long long)o->width,
            (long long)o->depth, (long long)(BYTES_EXPANSION * o->width),
            train_activation_name(o->activation), (long long)o->width, BYTES_VOCAB);
}

/* Frees a buffer; a failure here has nobody left to tell. */
static void release(bytes_model *model, void *data)
{
    if (model->ctx) (void)tutti_free(model->ctx, &data);
}

void bytes_model_free(bytes_model *model)
{
    for (int64_t i = 0; model->stages && i <= model->depth; i++) {
        bytes_stage *stage = &model->stages[i];
        void *const buffers[] = {stage->h, stage->normed, stage->inner, stage->norm_saved,
                                 stage->up_saved};
        for (size_t k = 0; k < sizeof buffers / sizeof *buffers; k++) release(model, buffers[k]);
        tutti_layer_destroy(&stage->norm);
        tutti_layer_destroy(&stage->up);
        tutti_layer_destroy(&stage->down);
    }
    void *const buffers[] = {model->tokens, model->labels, model->loss_sum, model->embedded,
                             model->branch, model->d_h,    model->d_inner};
    for (size_t k = 0; k < sizeof buffers / sizeof *buffers; k++) release(model, buffers[k]);
    tutti_layer_destroy(&model->embed);
    tutti_layer_destroy(&model->input);
    tutti_layer_destroy(&model->loss);
    free(model->stages);
    *model = (struct bytes_model){0};
}

static tutti_tensor view(const bytes_model *model, void *data, int64_t rows, int64_t cols)
{
    return tutti_tensor_2d(data, model->dtype, rows, cols);
}

/* The embeddings of a row's tokens lie side by side, so they are one row of the next layer. */
static int embed_forward(bytes_model *model, int64_t rows)
{
    const tutti_tensor tokens = tutti_tensor_1d(model->tokens, TUTTI_I32, rows * model->context);
    const tutti_tensor all = view(model, model->embedded, rows, model->context * model->embedding);
    tutti_tensor each = view(model, model->embedded, rows * model->context, model->embedding);
    tutti_tensor h = view(model, model->stages[0].h, rows, model->width);
    APP_CHECK(tutti_embedding_forward(model->embed, model->ctx,
                                      &(tutti_embedding_call){.tokens = &tokens, .y = &each}));
    return app_check(
        tutti_linear_forward(model->input, model->ctx, &(tutti_linear_call){.x = &all, .y = &h}));
}

/* The first stage finds h in its place; the others add the branch to the h before theirs. */
static int norm_forward(bytes_model *model, int64_t index, int64_t rows, bool training)
{
    bytes_stage *stage = &model->stages[index];
    const tutti_tensor branch = view(model, model->branch, rows, model->width);
    tutti_tensor h = view(model, stage->h, rows, model->width), before = {0};
    tutti_tensor normed = view(model, stage->normed, rows, model->width);
    tutti_rmsnorm_call call = {.x = &h,
                               .y = &normed,
                               .saved = training ? stage->norm_saved : NULL,
                               .saved_bytes =
                                   tutti_layer_saved_bytes(stage->norm, model->capacity)};
    if (index > 0) {
        before = view(model, stage[-1].h, rows, model->width);
        call.x = &branch;
        call.residual = &before;
        call.sum = &h;
    }
    return app_check(tutti_rmsnorm_forward(stage->norm, model->ctx, &call));
}

int bytes_model_forward(bytes_model *model, int64_t rows, bool training)
{
    APP_TRY(embed_forward(model, rows));
    tutti_tensor branch = view(model, model->branch, rows, model->width);
    for (int64_t i = 0; i <= model->depth; i++) {
        bytes_stage *stage = &model->stages[i];
        const tutti_tensor normed = view(model, stage->normed, rows, model->width);
        tutti_tensor inner = view(model, stage->inner, rows, stage->inner_cols);
        const tutti_linear_call up = {.x = &normed,
                                      .y = &inner,
                                      .saved = training ? stage->up_saved : NULL,
                                      .saved_bytes =
                                          tutti_layer_saved_bytes(stage->up, model->capacity)};
        const tutti_linear_call down = {.x = &inner, .y = &branch};
        APP_TRY(norm_forward(model, i, rows, training));
        APP_CHECK(tutti_linear_forward(stage->up, model->ctx, &up));
        if (stage->down) APP_CHECK(tutti_linear_forward(stage->down, model->ctx, &down));
    }
    return APP_OK;
}

void *bytes_model_logits(const bytes_model *model)
{
    return model->stages[model->depth].inner;
}

int bytes_model_loss(bytes_model *model, int64_t rows, const tutti_step_block *step)
{
    const tutti_tensor labels = tutti_tensor_1d(model->labels, TUTTI_I32, rows);
    tutti_tensor logits = view(model, bytes_model_logits(model), rows, BYTES_VOCAB);
    tutti_tensor sum = tutti_tensor_1d(model->loss_sum, TUTTI_F64, 1);
    const tutti_cross_entropy_call call = {.logits = &logits,
                                           .labels = &labels,
                                           .loss_sum = &sum,
                                           .dlogits = step ? &logits : NULL,
                                           .step = step};
    return app_check(tutti_cross_entropy_forward(model->loss, model->ctx, &call));
}

static int down_backward(bytes_model *model, bytes_stage *stage, int64_t rows, unsigned flags,
                         tutti_grad_sync *sync)
{
    const tutti_tensor x = view(model, stage->inner, rows, stage->inner_cols);
    const tutti_tensor dy = view(model, model->d_h, rows, model->width);
    tutti_tensor dx = view(model, model->d_inner, rows, stage->inner_cols);
    const tutti_linear_call call = {.x = &x, .dy = &dy, .dx = &dx, .flags = flags, .sync = sync};
    return app_check(tutti_linear_backward(stage->down, model->ctx, &call));
}

static int up_backward(bytes_model *model, bytes_stage *stage, int64_t rows, unsigned flags,
                       tutti_grad_sync *sync)
{
    const tutti_tensor normed = view(model, stage->normed, rows, model->width);
    const tutti_tensor d_inner = view(model, model->d_inner, rows, stage->inner_cols);
    tutti_tensor inner = view(model, stage->inner, rows, stage->inner_cols);
    tutti_tensor dx = view(model, model->branch, rows, model->width);
    /* the loss has left the gradient of the logits in their place */
    const tutti_linear_call call = {.x = &normed,
                                    .y = &inner,
                                    .dy = stage->down ? &d_inner : &inner,
                                    .dx = &dx,
                                    .saved = stage->up_saved,
                                    .saved_bytes =
                                        tutti_layer_saved_bytes(stage->up, model->capacity),
                                    .flags = flags,
                                    .sync = sync};
    return app_check(tutti_linear_backward(stage->up, model->ctx, &call));
}

/* Adds to the gradient of h what comes through the norm; the last stage, the first to come, writes
 * it. */
static int norm_backward(bytes_model *model, bytes_stage *stage, int64_t rows, unsigned flags,
                         tutti_grad_sync *sync)
{
    const tutti_tensor h = view(model, stage->h, rows, model->width);
    const tutti_tensor dy = view(model, model->branch, rows, model->width);
    tutti_tensor d_h = view(model, model->d_h, rows, model->width);
    const tutti_rmsnorm_call call = {.x = &h,
                                     .dy = &dy,
                                     .dsum = stage->down ? &d_h : NULL,
                                     .dx = &d_h,
                                     .saved = stage->norm_saved,
                                     .saved_bytes =
                                         tutti_layer_saved_bytes(stage->norm, model->capacity),
                                     .flags = flags,
                                     .sync = sync};
    return app_check(tutti_rmsnorm_backward(stage->norm, model->ctx, &call));
}

static int input_backward(bytes_model *model, int64_t rows, unsigned flags, tutti_grad_sync *sync)
{
    const int64_t cols = model->context * model->embedding;
    const tutti_tensor x = view(model, model->embedded, rows, cols);
    const tutti_tensor dy = view(model, model->d_h, rows, model->width);
    tutti_tensor dx = view(model, model->d_inner, rows, cols);
    const tutti_linear_call call = {.x = &x, .dy = &dy, .dx = &dx, .flags = flags, .sync = sync};
    return app_check(tutti_linear_backward(model->input, model->ctx, &call));
}

static int embed_backward(bytes_model *model, int64_t rows, unsigned flags, tutti_grad_sync *sync)
{
    const tutti_tensor tokens = tutti_tensor_1d(model->tokens, TUTTI_I32, rows * model->context);
    const tutti_tensor dy = view(model, model->d_inner, rows * model->context, model->embedding);
    const tutti_embedding_call call = {.tokens = &tokens, .dy = &dy, .flags = flags, .sync = sync};
    return app_check(tutti_embedding_backward(model->embed, model->ctx, &call));
}

/* After a layer's backward, which has declared it ready unless something failed. */
static int ready(bytes_model *model, tutti_layer *layer, tutti_grad_sync *sync, int code)
{
    if (code == APP_OK || !sync) return APP_OK;
    return app_check(tutti_grad_sync_ready(sync, model->ctx, layer));
}

int bytes_model_backward(bytes_model *model, int64_t rows, int code, unsigned flags,
                         tutti_grad_sync *sync)
{
    for (int64_t i = model->depth; i >= 0; i--) {
        bytes_stage *stage = &model->stages[i];
        if (stage->down) {
            if (code == APP_OK) code = down_backward(model, stage, rows, flags, sync);
            APP_TRY(ready(model, stage->down, sync, code));
        }
        if (code == APP_OK) code = up_backward(model, stage, rows, flags, sync);
        APP_TRY(ready(model, stage->up, sync, code));
        if (code == APP_OK) code = norm_backward(model, stage, rows, flags, sync);
        APP_TRY(ready(model, stage->norm, sync, code));
    }
    if (code == APP_OK) code = input_backward(model, rows, flags, sync);
    APP_TRY(ready(model, model->input, sync, code));
    if (code == APP_OK) code = embed_backward(model, rows, flags, sync);
    APP_TRY(ready(model, model->embed, sync, code));
    return code;
}
