/* The classifier. */
#include "fashion_model.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "fashion_data.h"

static int create_norm(tutti_context *ctx, const train_options *options, int64_t cols,
                       tutti_layer **layer)
{
    /* 16-bit runs keep the norms' parameters in f32: they are few, and their products cost
     * nothing */
    const tutti_dtype dtype = options->dtype;
    const tutti_dtype param_dtype = tutti_dtype_size(dtype) == 2 ? TUTTI_F32 : dtype;
    if (options->norm == TRAIN_NORM_RMSNORM) {
        tutti_rmsnorm_desc desc = TUTTI_RMSNORM_DESC_INIT;
        desc.cols = cols;
        desc.x_dtype = desc.y_dtype = dtype;
        desc.param_dtype = param_dtype;
        return app_check(tutti_rmsnorm_create(ctx, &desc, layer));
    }
    tutti_layernorm_desc desc = TUTTI_LAYERNORM_DESC_INIT;
    desc.cols = cols;
    desc.x_dtype = desc.y_dtype = dtype;
    desc.param_dtype = param_dtype;
    return app_check(tutti_layernorm_create(ctx, &desc, layer));
}

static int create_linear(tutti_context *ctx, tutti_dtype dtype, int64_t in, int64_t out,
                         tutti_activation activation, tutti_layer **layer)
{
    tutti_linear_desc desc = TUTTI_LINEAR_DESC_INIT;
    desc.in = in;
    desc.out = out;
    desc.dtype = dtype;
    desc.activation = activation;
    return app_check(tutti_linear_create(ctx, &desc, layer));
}

static int add_layer(tutti_params *params, tutti_layer *layer, int64_t block, const char *name)
{
    char prefix[TUTTI_NAME_MAX];
    if (block < 0)
        snprintf(prefix, sizeof prefix, "%s", name);
    else
        snprintf(prefix, sizeof prefix, "block%lld.%s", (long long)block, name);
    return app_check(tutti_params_add(params, layer, prefix));
}

static int allocate(model *model, int64_t cols, void **data)
{
    const size_t bytes = (size_t)model->capacity * (size_t)cols * tutti_dtype_size(model->dtype);
    return app_check(tutti_alloc(model->ctx, bytes, data));
}

static int allocate_saved(model *model, const tutti_layer *layer, void **saved)
{
    return app_check(
        tutti_alloc(model->ctx, tutti_layer_saved_bytes(layer, model->capacity), saved));
}

static int create_block(model *model, const train_options *options, int64_t index,
                        tutti_params *params)
{
    model_block *block = &model->blocks[index];
    block->in = index == 0 ? DATA_PIXELS : model->width;
    APP_TRY(create_norm(model->ctx, options, block->in, &block->norm));
    APP_TRY(create_linear(model->ctx, model->dtype, block->in, model->width, options->activation,
                          &block->linear));
    APP_TRY(add_layer(params, block->norm, index, "norm"));
    APP_TRY(add_layer(params, block->linear, index, "linear"));
    APP_TRY(allocate(model, block->in, &block->normed));
    APP_TRY(allocate(model, model->width, &block->y));
    APP_TRY(allocate_saved(model, block->norm, &block->norm_saved));
    return allocate_saved(model, block->linear, &block->linear_saved);
}

int model_create(model *model, tutti_context *ctx, const train_options *options, int64_t capacity,
                 tutti_params *params)
{
    *model = (struct model){.ctx = ctx,
                            .dtype = options->dtype,
                            .capacity = capacity > 0 ? capacity : 1,
                            .width = options->width,
                            .depth = options->depth};
    model->blocks = calloc((size_t)model->depth, sizeof *model->blocks);
    if (!model->blocks)
        return app_fail(APP_FAILED, "no memory for %lld blocks", (long long)model->depth);
    for (int64_t i = 0; i < model->depth; i++) APP_TRY(create_block(model, options, i, params));
    APP_TRY(
        create_linear(ctx, model->dtype, model->width, DATA_CLASSES, TUTTI_ACT_NONE, &model->head));
    APP_TRY(add_layer(params, model->head, -1, "head"));

    tutti_cross_entropy_desc loss = TUTTI_CROSS_ENTROPY_DESC_INIT;
    loss.cols = DATA_CLASSES;
    loss.dtype = model->dtype;
    APP_CHECK(tutti_cross_entropy_create(ctx, &loss, &model->loss));

    const int64_t widest =
        model->depth > 1 && model->width > DATA_PIXELS ? model->width : DATA_PIXELS;
    void *labels = NULL, *loss_sum = NULL;
    APP_TRY(allocate(model, DATA_PIXELS, &model->images));
    APP_TRY(allocate(model, DATA_CLASSES, &model->logits));
    APP_TRY(allocate(model, model->width, &model->d_width));
    APP_TRY(allocate(model, widest, &model->d_normed));
    APP_CHECK(tutti_alloc(ctx, (size_t)model->capacity * sizeof(int32_t), &labels));
    model->labels = labels;
    APP_CHECK(tutti_alloc(ctx, sizeof(double), &loss_sum));
    model->loss_sum = loss_sum;
    return APP_OK;
}

int model_plan(model *model, int64_t rows)
{
    for (int64_t i = 0; i < model->depth; i++) {
        APP_CHECK(tutti_layer_plan(model->blocks[i].norm, model->ctx, rows));
        APP_CHECK(tutti_layer_plan(model->blocks[i].linear, model->ctx, rows));
    }
    APP_CHECK(tutti_layer_plan(model->head, model->ctx, rows));
    return app_check(tutti_layer_plan(model->loss, model->ctx, rows));
}

/* Frees a buffer; a failure here has nobody left to tell. */
static void release(tutti_context *ctx, void **data)
{
    (void)tutti_free(ctx, data);
}

void model_free(model *model)
{
    for (int64_t i = 0; model->blocks && i < model->depth; i++) {
        model_block *block = &model->blocks[i];
        release(model->ctx, &block->normed);
        release(model->ctx, &block->y);
        release(model->ctx, &block->norm_saved);
        release(model->ctx, &block->linear_saved);
        tutti_layer_destroy(&block->norm);
        tutti_layer_destroy(&block->linear);
    }
    if (model->ctx) {
        void *labels = model->labels, *loss_sum = model->loss_sum;
        release(model->ctx, &model->images);
        release(model->ctx, &labels);
        release(model->ctx, &model->logits);
        release(model->ctx, &loss_sum);
        release(model->ctx, &model->d_width);
        release(model->ctx, &model->d_normed);
    }
    tutti_layer_destroy(&model->head);
    tutti_layer_destroy(&model->loss);
    free(model->blocks);
    *model = (struct model){0};
}

static int norm_forward(tutti_layer *norm, tutti_context *ctx, const tutti_tensor *x,
                        const tutti_tensor *y, void *saved)
{
    tutti_call call = TUTTI_CALL_INIT;
    call.in[0] = x;
    call.out[0] = y;
    call.saved = saved;
    return app_check(tutti_layer_forward(norm, ctx, &call));
}

static int norm_backward(tutti_layer *norm, tutti_context *ctx, const tutti_tensor *x, void *saved,
                         const tutti_tensor *dy, const tutti_tensor *dx, unsigned flags)
{
    tutti_call call = TUTTI_CALL_INIT;
    call.in[0] = x;
    call.saved = saved;
    call.upstream[0] = dy;
    call.din[0] = dx;
    call.flags = flags;
    return app_check(tutti_layer_backward(norm, ctx, &call));
}

/* The input of block `index`, or of the head for index = depth. */
static tutti_tensor input_of(const model *model, int64_t index, int64_t rows)
{
    if (index == 0) return tutti_tensor_2d(model->images, model->dtype, rows, DATA_PIXELS);
    return tutti_tensor_2d(model->blocks[index - 1].y, model->dtype, rows, model->width);
}

int model_forward(model *model, int64_t rows, bool training)
{
    for (int64_t i = 0; i < model->depth; i++) {
        model_block *block = &model->blocks[i];
        const tutti_tensor x = input_of(model, i, rows);
        const tutti_tensor normed = tutti_tensor_2d(block->normed, model->dtype, rows, block->in);
        const tutti_tensor y = tutti_tensor_2d(block->y, model->dtype, rows, model->width);
        APP_TRY(norm_forward(block->norm, model->ctx, &x, &normed,
                             training ? block->norm_saved : NULL));
        APP_CHECK(tutti_linear_forward(block->linear, model->ctx, &normed, &y,
                                       training ? block->linear_saved : NULL));
    }
    const tutti_tensor h = input_of(model, model->depth, rows);
    const tutti_tensor logits = tutti_tensor_2d(model->logits, model->dtype, rows, DATA_CLASSES);
    return app_check(tutti_linear_forward(model->head, model->ctx, &h, &logits, NULL));
}

int model_loss(model *model, int64_t rows, const tutti_step_block *step)
{
    const tutti_tensor logits = tutti_tensor_2d(model->logits, model->dtype, rows, DATA_CLASSES);
    const tutti_tensor labels = tutti_tensor_1d(model->labels, TUTTI_I32, rows);
    const tutti_tensor sum = tutti_tensor_1d(model->loss_sum, TUTTI_F64, 1);
    return app_check(tutti_cross_entropy_forward(model->loss, model->ctx, &logits, &labels, NULL,
                                                 &sum, step ? &logits : NULL, step));
}

static int block_linear_backward(model *model, int64_t index, int64_t rows, unsigned flags)
{
    model_block *block = &model->blocks[index];
    const tutti_tensor normed = tutti_tensor_2d(block->normed, model->dtype, rows, block->in);
    const tutti_tensor y = tutti_tensor_2d(block->y, model->dtype, rows, model->width);
    const tutti_tensor dy = tutti_tensor_2d(model->d_width, model->dtype, rows, model->width);
    const tutti_tensor dx = tutti_tensor_2d(model->d_normed, model->dtype, rows, block->in);
    return app_check(tutti_linear_backward(block->linear, model->ctx, &normed, &y,
                                           block->linear_saved, &dy, &dx, flags));
}

static int block_norm_backward(model *model, int64_t index, int64_t rows, unsigned flags)
{
    model_block *block = &model->blocks[index];
    const tutti_tensor x = input_of(model, index, rows);
    const tutti_tensor dy = tutti_tensor_2d(model->d_normed, model->dtype, rows, block->in);
    const tutti_tensor dx = tutti_tensor_2d(model->d_width, model->dtype, rows, model->width);
    /* nobody wants the gradient of the images */
    return norm_backward(block->norm, model->ctx, &x, block->norm_saved, &dy,
                         index == 0 ? NULL : &dx, flags);
}

static int head_backward(model *model, int64_t rows, unsigned flags)
{
    const tutti_tensor h = input_of(model, model->depth, rows);
    const tutti_tensor dy = tutti_tensor_2d(model->logits, model->dtype, rows, DATA_CLASSES);
    const tutti_tensor dx = tutti_tensor_2d(model->d_width, model->dtype, rows, model->width);
    return app_check(
        tutti_linear_backward(model->head, model->ctx, &h, NULL, NULL, &dy, &dx, flags));
}

/* Without an exchange there is nobody to tell. */
static int ready(const model *model, tutti_layer *layer, tutti_grad_sync *sync)
{
    return sync ? app_check(tutti_grad_sync_ready(sync, model->ctx, layer)) : APP_OK;
}

int model_backward(model *model, int64_t rows, int code, unsigned flags, tutti_grad_sync *sync)
{
    if (code == APP_OK) code = head_backward(model, rows, flags);
    APP_TRY(ready(model, model->head, sync));
    for (int64_t i = model->depth - 1; i >= 0; i--) {
        if (code == APP_OK) code = block_linear_backward(model, i, rows, flags);
        APP_TRY(ready(model, model->blocks[i].linear, sync));
        if (code == APP_OK) code = block_norm_backward(model, i, rows, flags);
        APP_TRY(ready(model, model->blocks[i].norm, sync));
    }
    return code;
}
