/* A sequence of layers. */
#include "common/network.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/exit_code.h"
#include "common/report.h"

int network_create(network *n, tutti_context *ctx, tutti_dtype dtype, int64_t blocks,
                   int64_t capacity, tutti_params *params)
{
    enum { OF_BLOCK = 7, ENDS = 16 }; /* buffers, including what layers save */
    *n = (network){.ctx = ctx,
                   .params = params,
                   .dtype = dtype,
                   /* 16-bit runs keep the norms' parameters in f32: they are few, and their
                      products cost nothing */
                   .norm_dtype = tutti_dtype_size(dtype) == 2 ? TUTTI_F32 : dtype,
                   .capacity = capacity > 0 ? capacity : 1,
                   .room = OF_BLOCK * blocks + ENDS};
    n->layers = calloc((size_t)n->room, sizeof *n->layers);
    n->buffers = calloc((size_t)n->room, sizeof *n->buffers);
    if (!n->layers || !n->buffers)
        return app_fail(APP_FAILED, "no memory for %lld blocks", (long long)blocks);
    return APP_OK;
}

void network_free(network *n)
{
    for (int64_t i = 0; i < n->count; i++) {
        tutti_layer_destroy(&n->layers[i].layer);
        tutti_layer_destroy(&n->layers[i].resting);
    }
    /* a failure here cannot be reported any more */
    for (int64_t i = 0; i < n->buffer_count; i++) (void)tutti_free(n->ctx, &n->buffers[i]);
    tutti_layer_destroy(&n->loss);
    free(n->layers);
    free(n->buffers);
    *n = (network){0};
}

static int allocate(network *n, size_t bytes, void **data)
{
    if (n->buffer_count == n->room) return app_fail(APP_FAILED, "a model has too many buffers");
    APP_CHECK(tutti_alloc(n->ctx, bytes, data));
    n->buffers[n->buffer_count++] = *data;
    return APP_OK;
}

int network_buffer(network *n, int64_t cols, void **data)
{
    return allocate(n, (size_t)n->capacity * (size_t)cols * tutti_dtype_size(n->dtype), data);
}

int network_tokens(network *n, int64_t cols, int32_t **tokens)
{
    void *data = NULL;
    APP_TRY(allocate(n, (size_t)n->capacity * (size_t)cols * sizeof **tokens, &data));
    *tokens = data;
    return APP_OK;
}

/* The network owns the layer from here on. */
static int add(network *n, tutti_layer *layer, const wiring *wiring, int64_t block,
               const char *name)
{
    char prefix[TUTTI_NAME_MAX];
    network_layer *added = &n->layers[n->count++];
    *added = (network_layer){.layer = layer, .wiring = *wiring};
    if (block < 0)
        snprintf(prefix, sizeof prefix, "%s", name);
    else
        snprintf(prefix, sizeof prefix, "block%lld.%s", (long long)block, name);
    APP_CHECK(tutti_params_add(n->params, layer, prefix));
    const size_t bytes = tutti_layer_saved_bytes(layer, n->capacity);
    return bytes > 0 ? allocate(n, bytes, &added->saved) : APP_OK;
}

int network_add_norm(network *n, const char *kind, int64_t cols, const wiring *wiring,
                     int64_t block, const char *name)
{
    char text[96];
    tutti_layer *layer;
    snprintf(text, sizeof text, "cols=%lld,x_dtype=%s,param_dtype=%s", (long long)cols,
             tutti_dtype_name(n->dtype), tutti_dtype_name(n->norm_dtype));
    APP_CHECK(tutti_layer_create_by_name(n->ctx, kind, text, &layer));
    return add(n, layer, wiring, block, name);
}

int network_add_linear(network *n, int64_t in, int64_t out, tutti_activation activation,
                       const wiring *wiring, int64_t block, const char *name)
{
    tutti_linear_desc desc = TUTTI_LINEAR_DESC_INIT;
    tutti_layer *layer;
    desc.in = in;
    desc.out = out;
    desc.dtype = n->dtype;
    desc.activation = activation;
    APP_CHECK(tutti_linear_create(n->ctx, &desc, &layer));
    return add(n, layer, wiring, block, name);
}

int network_add_embedding(network *n, int64_t vocab, int64_t cols, const wiring *wiring,
                          const char *name)
{
    tutti_embedding_desc desc = TUTTI_EMBEDDING_DESC_INIT;
    tutti_layer *layer;
    desc.vocab = vocab;
    desc.cols = cols;
    desc.dtype = n->dtype;
    APP_CHECK(tutti_embedding_create(n->ctx, &desc, &layer));
    return add(n, layer, wiring, -1, name);
}

int network_add_dropout(network *n, int64_t cols, tutti_activation activation, double p,
                        int64_t number, const wiring *wiring, int64_t block, const char *name)
{
    tutti_dropout_desc desc = TUTTI_DROPOUT_DESC_INIT;
    tutti_layer *layer;
    desc.cols = cols;
    desc.dtype = n->dtype;
    desc.activation = activation;
    desc.layer_number = number;
    desc.no_bias = 1;
    desc.p = p;
    APP_CHECK(tutti_dropout_create(n->ctx, &desc, &layer));
    APP_TRY(add(n, layer, wiring, block, name));
    desc.p = 0;
    return app_check(tutti_dropout_create(n->ctx, &desc, &n->layers[n->count - 1].resting));
}

int network_add_loss(network *n, int64_t classes, void *logits)
{
    tutti_cross_entropy_desc desc = TUTTI_CROSS_ENTROPY_DESC_INIT;
    void *loss_sum = NULL;
    desc.cols = n->classes = classes;
    desc.dtype = n->dtype;
    n->logits = logits;
    APP_CHECK(tutti_cross_entropy_create(n->ctx, &desc, &n->loss));
    APP_TRY(network_tokens(n, 1, &n->labels));
    APP_TRY(allocate(n, TUTTI_LEAVES_MAX * sizeof(double), &loss_sum));
    n->loss_sum = loss_sum;
    return APP_OK;
}

/* The tensor of a view; NULL where there is none. */
static tutti_tensor *tensor_of(const network *n, const view *v, int64_t rows, tutti_tensor *tensor)
{
    const int64_t of_row = v->of_row ? v->of_row : 1;
    if (!v->data) return NULL;
    *tensor = v->cols ? tutti_tensor_2d(v->data, n->dtype, rows * of_row, v->cols / of_row)
                      : tutti_tensor_1d(v->data, TUTTI_I32, rows * of_row);
    return tensor;
}

/* Where the leaves begin in a layer whose first tensor has several rows for one of the model. */
static const int64_t *leaf_rows_of(const network *n, const view *first,
                                   int64_t scaled[TUTTI_LEAVES_MAX])
{
    if (first->of_row < 2) return n->leaf_rows;
    for (int i = 0; i < n->leaves; i++) scaled[i] = n->leaf_rows[i] * first->of_row;
    return scaled;
}

void network_cut(network *n, int64_t rows, int leaves)
{
    n->leaves = leaves;
    for (int i = 0; i < leaves; i++) n->leaf_rows[i] = rows / leaves * i;
}

int network_forward(network *n, int64_t rows, bool training)
{
    for (int64_t i = 0; i < n->count; i++) {
        const network_layer *l = &n->layers[i];
        const wiring *w = &l->wiring;
        tutti_layer *layer = l->resting && !training ? l->resting : l->layer;
        int64_t scaled[TUTTI_LEAVES_MAX];
        tutti_tensor t[4];
        const tutti_call call = {
            .in = {tensor_of(n, &w->in[0], rows, &t[0]), tensor_of(n, &w->in[1], rows, &t[1])},
            .out = {tensor_of(n, &w->out[0], rows, &t[2]), tensor_of(n, &w->out[1], rows, &t[3])},
            .saved = training ? l->saved : NULL,
            .saved_bytes = tutti_layer_saved_bytes(l->layer, n->capacity),
            .first_row = &n->first_row,
            .leaves = training ? n->leaves : 0,
            .leaf_rows = leaf_rows_of(n, &w->in[0], scaled),
            .step = training ? n->step : NULL};
        APP_CHECK(tutti_layer_forward(layer, n->ctx, &call));
    }
    return APP_OK;
}

int network_loss(network *n, int64_t rows, const tutti_step_block *step)
{
    const int leaves = step && n->leaves ? n->leaves : 1;
    const size_t row_bytes = (size_t)n->classes * tutti_dtype_size(n->dtype);
    for (int i = 0; i < leaves; i++) {
        const int64_t first = leaves > 1 ? n->leaf_rows[i] : 0;
        const int64_t count = (i + 1 < leaves ? n->leaf_rows[i + 1] : rows) - first;
        const tutti_tensor labels = tutti_tensor_1d(n->labels + first, TUTTI_I32, count);
        tutti_tensor logits = tutti_tensor_2d((char *)n->logits + (size_t)first * row_bytes,
                                              n->dtype, count, n->classes);
        tutti_tensor sum = tutti_tensor_1d(n->loss_sum + i, TUTTI_F64, 1);
        const tutti_cross_entropy_call call = {.logits = &logits,
                                               .labels = &labels,
                                               .loss_sum = &sum,
                                               .dlogits = step ? &logits : NULL,
                                               .step = step};
        APP_CHECK(tutti_cross_entropy_forward(n->loss, n->ctx, &call));
    }
    return APP_OK;
}

static int backward(network *n, const network_layer *l, int64_t rows, unsigned flags,
                    tutti_grad_sync *sync)
{
    const wiring *w = &l->wiring;
    int64_t scaled[TUTTI_LEAVES_MAX];
    tutti_tensor t[5];
    const tutti_call call = {.in = {tensor_of(n, &w->x, rows, &t[0])},
                             .out = {tensor_of(n, &w->y, rows, &t[1])},
                             .upstream = {tensor_of(n, &w->upstream[0], rows, &t[2]),
                                          tensor_of(n, &w->upstream[1], rows, &t[3])},
                             .din = {tensor_of(n, &w->dx, rows, &t[4])},
                             .saved = l->saved,
                             .saved_bytes = tutti_layer_saved_bytes(l->layer, n->capacity),
                             .first_row = &n->first_row,
                             .leaves = n->leaves,
                             .leaf_rows = leaf_rows_of(n, &w->upstream[0], scaled),
                             .flags = flags,
                             .step = n->step,
                             .sync = sync};
    return app_check(tutti_layer_backward(l->layer, n->ctx, &call));
}

int network_backward(network *n, int64_t rows, int code, unsigned flags, tutti_grad_sync *sync)
{
    for (int64_t i = n->count - 1; i >= 0; i--) {
        const network_layer *l = &n->layers[i];
        if (code == APP_OK) code = backward(n, l, rows, flags, sync);
        /* backward has declared the layer ready, unless it failed before */
        if (code != APP_OK && sync) (void)tutti_grad_sync_ready(sync, n->ctx, l->layer);
    }
    return code;
}
