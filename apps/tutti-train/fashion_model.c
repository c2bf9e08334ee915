/* The classifier. */
#include "fashion_model.h"

#include <stdio.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "fashion_data.h"

const char *const model_norms[] = {"layernorm", "rmsnorm", NULL};

/* Buffers of gradients that all blocks share. */
typedef struct gradients {
    view width, normed;
} gradients;

/* A linear layer whose activation is left to dropout, which follows it. */
static int add_dropped(network *n, const train_options *o, int64_t in, int64_t index,
                       wiring *linear)
{
    const view y = linear->y, dy = linear->upstream[0];
    view z = {.cols = o->width};
    APP_TRY(network_buffer(n, o->width, &z.data));
    linear->out[0] = linear->y = z;
    const wiring dropout = {.in = {z}, .out = {y}, .x = z, .upstream = {dy}, .dx = dy};
    APP_TRY(network_add_linear(n, in, o->width, TUTTI_ACT_NONE, linear, index, "linear"));
    return network_add_dropout(n, o->width, o->activation, o->dropout, index, &dropout, index,
                               "dropout");
}

static int add_block(network *n, const train_options *o, int64_t index, const gradients *d, view *h)
{
    view normed = {.cols = h->cols}, y = {.cols = o->width}, d_normed = d->normed, d_h = d->width;
    d_normed.cols = h->cols;
    if (index == 0) d_h.data = NULL; /* the gradient of the images is not needed */
    APP_TRY(network_buffer(n, h->cols, &normed.data));
    APP_TRY(network_buffer(n, o->width, &y.data));
    const wiring norm = {.in = {*h}, .out = {normed}, .x = *h, .upstream = {d_normed}, .dx = d_h};
    wiring linear = {
        .in = {normed}, .out = {y}, .x = normed, .y = y, .upstream = {d->width}, .dx = d_normed};
    APP_TRY(network_add_norm(n, o->norm, h->cols, &norm, index, "norm"));
    if (o->dropout == 0)
        APP_TRY(network_add_linear(n, h->cols, o->width, o->activation, &linear, index, "linear"));
    else
        APP_TRY(add_dropped(n, o, h->cols, index, &linear));
    *h = y;
    return APP_OK;
}

int model_create(model *model, tutti_context *ctx, const train_options *o, int64_t capacity,
                 tutti_params *params)
{
    network *n = &model->network;
    const int64_t widest = o->depth > 1 && o->width > DATA_PIXELS ? o->width : DATA_PIXELS;
    view h = {.cols = DATA_PIXELS}, logits = {.cols = DATA_CLASSES};
    gradients d = {.width = {.cols = o->width}};
    APP_TRY(network_create(n, ctx, o->dtype, o->depth, capacity, params));
    APP_TRY(network_buffer(n, DATA_PIXELS, &model->images));
    APP_TRY(network_buffer(n, DATA_CLASSES, &logits.data));
    APP_TRY(network_buffer(n, o->width, &d.width.data));
    APP_TRY(network_buffer(n, widest, &d.normed.data));
    h.data = model->images;
    for (int64_t i = 0; i < o->depth; i++) APP_TRY(add_block(n, o, i, &d, &h));
    /* the loss leaves the gradient of the logits in their place */
    const wiring head = {.in = {h}, .out = {logits}, .x = h, .upstream = {logits}, .dx = d.width};
    APP_TRY(network_add_linear(n, o->width, DATA_CLASSES, TUTTI_ACT_NONE, &head, -1, "head"));
    return network_add_loss(n, DATA_CLASSES, logits.data);
}

void model_describe(const train_options *o)
{
    char dropout[48] = "";
    if (o->dropout > 0) snprintf(dropout, sizeof dropout, ", dropout %g", o->dropout);
    app_say("  model         %d -> %lld x [%s, linear %lld, %s%s] -> %d", DATA_PIXELS,
            (long long)o->depth, o->norm, (long long)o->width, train_text(o, "activation"), dropout,
            DATA_CLASSES);
}
