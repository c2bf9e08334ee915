/* The classifier. */
#include "fashion_model.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "fashion_data.h"

const char *const model_norms[] = {"layernorm", "rmsnorm", NULL};

static int create_norm(tutti_context *ctx, const train_options *options, int64_t cols,
                       tutti_layer **layer)
{
    /* 16-bit runs keep the norms' parameters in f32: they are few, and their products cost
     * nothing */
    const tutti_dtype dtype = options->dtype;
    const tutti_dtype param_dtype = tutti_dtype_size(dtype) == 2 ? TUTTI_F32 : dtype;
    char text[96];
    snprintf(text, sizeof text, "cols=%lld,x_dtype=%s,param_dtype=%s", (long long)cols,
             tutti_dtype_name(dtype), tutti_dtype_name(param_dtype));
    return app_check(tutti_layer_create_by_name(ctx, options->norm, text, layer));
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

void model_describe(const train_options *o)
{
    app_say("  model         %d -> %lld x [%s, linear %lld, %s] -> %d", DATA_PIXELS,
            (long long)o->depth, o->norm, (long long)o->width, train_activation_name(o->activation),
            DATA_CLASSES);
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

/* The input of block `index`, or of the head for index = depth. */
static tutti_tensor input_of(const model *model, int64_t index, int64_t rows)
{
    if (index == 0) return tutti_tensor_2d(model->images, model->dtype, rows, DATA_PIXELS);
    return tutti_tensor_2d(model->blocks[index - 1].y, model->dtype, rows, model->width);
}

/* Of either kind; both have the same slots. */
static int norm_forward(model *model, int64_t index, int64_t rows, bool training)
{
    model_block *block = &model->blocks[index];
    const tutti_tensor x = input_of(model, index, rows);
    tutti_tensor y = tutti_tensor_2d(block->normed, model->dtype, rows, block->in);
    const tutti_call call = {.in = {&x},
                             .out = {&y},
                             .saved = training ? block->norm_saved : NULL,
                             .saved_bytes = tutti_layer_saved_bytes(block->norm, model->capacity)};
    return app_check(tutti_layer_forward(block->norm, model->ctx, &call));
}

static int linear_forward(model *model, int64_t index, int64_t rows, bool training)
{
    model_block *block = &model->blocks[index];
    const tutti_tensor x = tutti_tensor_2d(block->normed, model->dtype, rows, block->in);
    tutti_tensor y = tutti_tensor_2d(block->y, model->dtype, rows, model->width);
    const tutti_linear_call call = {.x = &x,
                                    .y = &y,
                                    .saved = training ? block->linear_saved : NULL,
                                    .saved_bytes =
                                        tutti_layer_saved_bytes(block->linear, model->capacity)};
    return app_check(tutti_linear_forward(block->linear, model->ctx, &call));
}

int model_forward(model *model, int64_t rows, bool training)
{
    for (int64_t i = 0; i < model->depth; i++) {
        APP_TRY(norm_forward(model, i, rows, training));
        APP_TRY(linear_forward(model, i, rows, training));
    }
    const tutti_tensor h = input_of(model, model->depth, rows);
    tutti_tensor logits = tutti_tensor_2d(model->logits, model->dtype, rows, DATA_CLASSES);
    return app_check(
        tutti_linear_forward(model->head, model->ctx, &(tutti_linear_call){.x = &h, .y = &logits}));
}

int model_loss(model *model, int64_t rows, const tutti_step_block *step)
{
    const tutti_tensor labels = tutti_tensor_1d(model->labels, TUTTI_I32, rows);
    tutti_tensor logits = tutti_tensor_2d(model->logits, model->dtype, rows, DATA_CLASSES);
    tutti_tensor sum = tutti_tensor_1d(model->loss_sum, TUTTI_F64, 1);
    const tutti_cross_entropy_call call = {.logits = &logits,
                                           .labels = &labels,
                                           .loss_sum = &sum,
                                           .dlogits = step ? &logits : NULL,
                                           .step = step};
    return app_check(tutti_cross_entropy_forward(model->loss, model->ctx, &call));
}

static int head_backward(model *model, int64_t rows, unsigned flags, tutti_grad_sync *sync)
{
    const tutti_tensor h = input_of(model, model->depth, rows);
    const tutti_tensor dy = tutti_tensor_2d(model->logits, model->dtype, rows, DATA_CLASSES);
    tutti_tensor dx = tutti_tensor_2d(model->d_width, model->dtype, rows, model->width);
    const tutti_linear_call call = {.x = &h, .dy = &dy, .dx = &dx, .flags = flags, .sync = sync};
    return app_check(tutti_linear_backward(model->head, model->ctx, &call));
}

static int linear_backward(model *model, int64_t index, int64_t rows, unsigned flags,
                           tutti_grad_sync *sync)
{
    model_block *block = &model->blocks[index];
    const tutti_tensor x = tutti_tensor_2d(block->normed, model->dtype, rows, block->in);
    const tutti_tensor dy = tutti_tensor_2d(model->d_width, model->dtype, rows, model->width);
    tutti_tensor y = tutti_tensor_2d(block->y, model->dtype, rows, model->width);
    tutti_tensor dx = tutti_tensor_2d(model->d_normed, model->dtype, rows, block->in);
    const tutti_linear_call call = {.x = &x,
                                    .y = &y,
                                    .dy = &dy,
                                    .dx = &dx,
                                    .saved = block->linear_saved,
                                    .saved_bytes =
                                        tutti_layer_saved_bytes(block->linear, model->capacity),
                                    .flags = flags,
                                    .sync = sync};
    return app_check(tutti_linear_backward(block->linear, model->ctx, &call));
}

static int norm_backward(model *model, int64_t index, int64_t rows, unsigned flags,
                         tutti_grad_sync *sync)
{
    model_block *block = &model->blocks[index];
    const tutti_tensor x = input_of(model, index, rows);
    const tutti_tensor dy = tutti_tensor_2d(model->d_normed, model->dtype, rows, block->in);
    tutti_tensor dx = tutti_tensor_2d(model->d_width, model->dtype, rows, model->width);
    /* nobody wants the gradient of the images */
    const tutti_call call = {.in = {&x},
                             .upstream = {&dy},
                             .din = {index == 0 ? NULL : &dx},
                             .saved = block->norm_saved,
                             .saved_bytes = tutti_layer_saved_bytes(block->norm, model->capacity),
                             .flags = flags,
                             .sync = sync};
    return app_check(tutti_layer_backward(block->norm, model->ctx, &call));
}

/* After a layer's backward, which has declared it ready unless something failed. */
static int ready(const model *model, tutti_layer *layer, tutti_grad_sync *sync, int code)
{
    if (code == APP_OK || !sync) return APP_OK;
    return app_check(tutti_grad_sync_ready(sync, model->ctx, layer));
}

int model_backward(model *model, int64_t rows, int code, unsigned flags, tutti_grad_sync *sync)
{
    if (code == APP_OK) code = head_backward(model, rows, flags, sync);
    APP_TRY(ready(model, model->head, sync, code));
    for (int64_t i = model->depth - 1; i >= 0; i--) {
        if (code == APP_OK) code = linear_backward(model, i, rows, flags, sync);
        APP_TRY(ready(model, model->blocks[i].linear, sync, code));
        if (code == APP_OK) code = norm_backward(model, i, rows, flags, sync);
        APP_TRY(ready(model, model->blocks[i].norm, sync, code));
    }
    return code;
}
