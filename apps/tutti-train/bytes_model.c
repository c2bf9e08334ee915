/* The byte model: its layers and its buffers. */
#include "bytes_model.h"

#include <stdio.h>

#include "common/exit_code.h"
#include "common/report.h"

const char *const bytes_model_norms[] = {"rmsnorm", NULL};

/* Buffers that all blocks share: a block's output, later its gradient and a norm's; the gradient of
 * the residual stream; the gradient of the widest tensor inside a block. */
typedef struct shared {
    view branch, d_h, d_inner;
} shared;

static view with_cols(view v, int64_t cols)
{
    v.cols = cols;
    return v;
}

/* A row's embeddings are adjacent, so they form one row of the next layer's input. */
static int add_input(bytes_model *model, const train_options *o, const shared *s, view h)
{
    network *n = &model->network;
    const view tokens = {model->tokens, 0, o->context};
    view each = {.cols = o->context * o->embedding, .of_row = o->context};
    APP_TRY(network_buffer(n, each.cols, &each.data));
    view all = each, d_all = with_cols(s->d_inner, each.cols), d_each = d_all;
    all.of_row = 0;
    d_each.of_row = o->context;
    const wiring embed = {.in = {tokens}, .out = {each}, .x = tokens, .upstream = {d_each}};
    const wiring input = {.in = {all}, .out = {h}, .x = all, .upstream = {s->d_h}, .dx = d_all};
    APP_TRY(network_add_embedding(n, BYTES_VOCAB, o->embedding, &embed, "embedding"));
    return network_add_linear(n, all.cols, o->width, TUTTI_ACT_NONE, &input, -1, "input");
}

/* Adds the block before a stage to h: y = before + dropout(branch).  Backward leaves the residual
 * stream's gradient in place, and the branch's where the branch was. */
static int add_dropped(network *n, const train_options *o, int64_t stage, const shared *s,
                       view before, view h)
{
    const wiring dropout = {
        .in = {s->branch, before}, .out = {h}, .upstream = {s->d_h}, .dx = s->branch};
    return network_add_dropout(n, o->width, TUTTI_ACT_NONE, o->dropout, stage - 1, &dropout,
                               stage - 1, "dropout");
}

/* A norm of the residual stream and the layers that read it: a block's, or in the last stage the
 * head.  The first stage's h exists already; the others add the branch to the previous h.  Backward
 * adds the norm's gradient to that of h; the last stage, the first to run, writes it. */
static int add_stage(network *n, const train_options *o, int64_t index, const shared *s,
                     view before, view h)
{
    const bool head = index == o->depth;
    const int64_t block = head ? -1 : index, cols = head ? BYTES_VOCAB : BYTES_EXPANSION * o->width;
    const view none = {0};
    view normed = {.cols = o->width}, inner = {.cols = cols}, d_inner = with_cols(s->d_inner, cols);
    APP_TRY(network_buffer(n, o->width, &normed.data));
    APP_TRY(network_buffer(n, cols, &inner.data));
    wiring norm = {.in = {h},
                   .out = {normed},
                   .x = h,
                   .upstream = {s->branch, head ? none : s->d_h},
                   .dx = s->d_h};
    if (index > 0 && o->dropout > 0) {
        APP_TRY(add_dropped(n, o, index, s, before, h));
    } else if (index > 0) {
        norm.in[0] = s->branch;
        norm.in[1] = before;
        norm.out[1] = h;
    }
    /* the loss leaves the gradient of the logits in their place */
    const wiring up = {.in = {normed},
                       .out = {inner},
                       .x = normed,
                       .y = inner,
                       .upstream = {head ? inner : d_inner},
                       .dx = s->branch};
    const wiring down = {.in = {inner},
                         .out = {s->branch},
                         .x = inner,
                         .upstream = {o->dropout > 0 ? s->branch : s->d_h},
                         .dx = d_inner};
    APP_TRY(network_add_norm(n, o->norm, o->width, &norm, block, "norm"));
    APP_TRY(network_add_linear(n, o->width, cols, head ? TUTTI_ACT_NONE : o->activation, &up, block,
                               head ? "head" : "up"));
    if (head) return network_add_loss(n, BYTES_VOCAB, inner.data);
    return network_add_linear(n, cols, o->width, TUTTI_ACT_NONE, &down, block, "down");
}

int bytes_model_create(bytes_model *model, tutti_context *ctx, const train_options *o,
                       int64_t capacity, tutti_params *params)
{
    network *n = &model->network;
    const int64_t embedded = o->context * o->embedding, inner = BYTES_EXPANSION * o->width;
    shared s = {{.cols = o->width}, {.cols = o->width}, {0}};
    view before = {0}, h = {.cols = o->width};
    APP_TRY(network_create(n, ctx, o->dtype, o->depth, capacity, params));
    APP_TRY(network_tokens(n, o->context, &model->tokens));
    APP_TRY(network_buffer(n, o->width, &s.branch.data));
    APP_TRY(network_buffer(n, o->width, &s.d_h.data));
    APP_TRY(network_buffer(n, inner > embedded ? inner : embedded, &s.d_inner.data));
    for (int64_t i = 0; i <= o->depth; i++) {
        APP_TRY(network_buffer(n, o->width, &h.data));
        if (i == 0) APP_TRY(add_input(model, o, &s, h));
        APP_TRY(add_stage(n, o, i, &s, before, h));
        before = h;
    }
    return APP_OK;
}

void bytes_model_describe(const train_options *o)
{
    char dropout[48] = "";
    if (o->dropout > 0) snprintf(dropout, sizeof dropout, ", dropout %g", o->dropout);
    app_say("  model         %lld x embedding %lld -> linear %lld -> %lld x [rmsnorm, linear %lld, "
            "%s, linear %lld%s] -> rmsnorm -> %d",
            (long long)o->context, (long long)o->embedding, (long long)o->width,
            (long long)o->depth, (long long)(BYTES_EXPANSION * o->width),
            train_text(o, "activation"), (long long)o->width, dropout, BYTES_VOCAB);
}
