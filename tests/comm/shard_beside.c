/* Values of a sharded store that are on their way while layers are called: results are those of an
 * exchange that is not exclusive, without a wait in between. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard.h"
#include "tutti/linear.h"

enum { LAYERS = 4, ROWS = 24, STEPS = 4, TENSORS = STEPS + 2 };

typedef struct stack {
    tutti_context *ctx, *other;
    int64_t cols;
    tutti_dtype dtype; /* also of the parameters */
    int leaves;
    tutti_params *store;
    tutti_layer *layers[LAYERS];
    tutti_adamw *adamw;
    tutti_step_block *step;
    tutti_grad_sync *sync;
    tutti_tensor h[LAYERS + 1], h_other[LAYERS + 1], dh[2];
    tutti_tensor kept[TENSORS]; /* outputs of all forward passes, one after the other */
} stack;

static tutti_tensor make(tutti_context *ctx, int64_t cols, tutti_dtype dtype)
{
    const int64_t dims[] = {ROWS, cols};
    void *data = NULL;
    CHECK_OK(tutti_alloc(ctx, (size_t)(ROWS * cols) * tutti_dtype_size(dtype), &data));
    return tutti_tensor_make(data, dtype, 2, dims);
}

static void open_stack(stack *s, tutti_comm *comm, size_t range_bytes, bool exclusive)
{
    const bool host = tutti_context_backend(s->ctx) == TUTTI_BACKEND_HOST;
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    desc.shards = rig_size();
    desc.shard = rig_rank();
    desc.range_bytes = range_bytes;
    desc.master_dtype = s->dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    CHECK_OK(tutti_params_create(s->ctx, &desc, &s->store));
    for (int i = 0; i < LAYERS; i++) {
        tutti_linear_desc linear = TUTTI_LINEAR_DESC_INIT;
        char name[24];
        linear.in = linear.out = s->cols;
        linear.dtype = s->dtype;
        snprintf(name, sizeof name, "layer%d", i);
        CHECK_OK(tutti_linear_create(s->ctx, &linear, &s->layers[i]));
        CHECK_OK(tutti_params_add(s->store, s->layers[i], name));
    }
    rig_build(s->ctx, s->store, &s->adamw, &s->step);
    tutti_grad_sync_desc options = TUTTI_GRAD_SYNC_DESC_INIT;
    options.exclusive = exclusive;
    options.leaves = s->leaves;
    if (!host) options.engine = shard_engine;
    CHECK_OK(tutti_grad_sync_create(s->ctx, comm, s->store, &options, &s->sync));
    for (int i = 0; i <= LAYERS; i++) {
        s->h[i] = make(s->ctx, s->cols, s->dtype);
        s->h_other[i] = make(s->ctx, s->cols, s->dtype);
    }
    for (int i = 0; i < 2; i++) s->dh[i] = make(s->ctx, s->cols, s->dtype);
    for (int i = 0; i < TENSORS; i++) s->kept[i] = make(s->ctx, s->cols, s->dtype);
    double *x = harness_calloc((size_t)(ROWS * s->cols), sizeof *x);
    for (int64_t i = 0; i < ROWS * s->cols; i++)
        x[i] = (double)((i * 37 + rig_rank() * 11) % 65 - 32) / 32;
    harness_put(s->ctx, &s->h[0], x);
    harness_put(s->ctx, &s->h_other[0], x);
    free(x);
}

static void close_stack(stack *s)
{
    tutti_grad_sync_destroy(&s->sync); /* with values on their way */
    tutti_adamw_destroy(&s->adamw);
    tutti_step_block_destroy(&s->step);
    tutti_params_destroy(&s->store);
    for (int i = 0; i < LAYERS; i++) tutti_layer_destroy(&s->layers[i]);
    for (int i = 0; i <= LAYERS; i++) {
        CHECK_OK(tutti_free(s->ctx, &s->h[i].data));
        CHECK_OK(tutti_free(s->ctx, &s->h_other[i].data));
    }
    for (int i = 0; i < 2; i++) CHECK_OK(tutti_free(s->ctx, &s->dh[i].data));
    for (int i = 0; i < TENSORS; i++) CHECK_OK(tutti_free(s->ctx, &s->kept[i].data));
}

static void forward(stack *s, tutti_context *ctx, int number)
{
    tutti_tensor *h = ctx == s->ctx ? s->h : s->h_other;
    for (int i = 0; i < LAYERS; i++) {
        const tutti_linear_call call = {.x = &h[i], .y = &h[i + 1]};
        CHECK_OK(tutti_linear_forward(s->layers[i], ctx, &call));
    }
    CHECK_OK(tutti_copy(ctx, s->kept[number].data, h[LAYERS].data,
                        (size_t)(ROWS * s->cols) * tutti_dtype_size(s->dtype)));
}

/* Backward of all layers, which declares them ready by itself or, in odd steps, apart. */
static void backward(stack *s, int k)
{
    static const int64_t first_rows[] = {0, 2, 8, 11, 12, 17, 19, 23}; /* of a rank's leaves */
    int first = 0, count = 0;
    if (s->leaves) {
        CHECK_OK(tutti_grad_sync_own_leaves(s->sync, &first, &count));
        CHECK_OK(tutti_grad_sync_leaves_begin(s->sync, s->ctx, first, count));
    }
    const bool apart = k % 2 && !s->leaves;
    const tutti_tensor *upstream = &s->h[LAYERS];
    for (int i = LAYERS - 1; i >= 0; i--) {
        const tutti_linear_call call = {.x = &s->h[i],
                                        .dy = upstream,
                                        .dx = i > 0 ? &s->dh[i % 2] : NULL,
                                        .leaves = count,
                                        .leaf_rows = first_rows,
                                        .sync = apart ? NULL : s->sync};
        CHECK_OK(tutti_linear_backward(s->layers[i], s->ctx, &call));
        if (apart) CHECK_OK(tutti_grad_sync_ready(s->sync, s->ctx, s->layers[i]));
        upstream = &s->dh[i % 2];
    }
    if (s->leaves) CHECK_OK(tutti_grad_sync_leaves_end(s->sync, s->ctx));
}

/* Makes steps without a wait, then a forward pass more on another context and on this one, and
 * refreshes. */
static void run_stack(stack *s, bool exclusive)
{
    for (int k = 0; k < STEPS; k++) {
        const tutti_step_values values = {
            .step = k + 1, .loss_weight = 1, .learning_rate = 0.01, .loss_scale = 1};
        CHECK_OK(tutti_step_block_set(s->step, s->ctx, &values));
        forward(s, s->ctx, k);
        backward(s, k);
        if (k == 1) /* the last range, before finish */
            CHECK_OK(tutti_grad_sync_wait(s->sync, s->ctx, tutti_layer_param(s->layers[0], 0)));
        CHECK_OK(tutti_grad_sync_finish(s->sync, s->ctx));
        CHECK_OK(tutti_adamw_update(s->adamw, s->ctx, s->step));
    }
    /* with copy engines the other context waits for the values by itself */
    if (!exclusive || shard_engine != TUTTI_ENGINE_COPY)
        CHECK_OK(tutti_context_synchronize(s->ctx));
    forward(s, s->other, STEPS);
    forward(s, s->ctx, STEPS + 1);
    CHECK_OK(tutti_context_synchronize(s->other));
    CHECK_OK(tutti_params_refresh(s->store, s->ctx));
}

static void *bytes_of(tutti_context *ctx, const tutti_tensor *tensor)
{
    const size_t bytes = (size_t)tutti_tensor_count(tensor) * tutti_dtype_size(tensor->dtype);
    char *host = harness_calloc(bytes, 1);
    CHECK_OK(tutti_copy(ctx, host, tensor->data, bytes));
    CHECK_OK(tutti_context_synchronize(ctx));
    return host;
}

static void same(stack *a, stack *b, const tutti_tensor *of_a, const tutti_tensor *of_b,
                 const char *what, int number)
{
    void *got = bytes_of(a->ctx, of_a), *want = bytes_of(b->ctx, of_b);
    CHECK(memcmp(got, want, (size_t)tutti_tensor_count(of_a) * tutti_dtype_size(of_a->dtype)) == 0,
          "%s %d differs", what, number);
    free(got);
    free(want);
}

/* Ranges that are all alike, one, and some with a small one besides; values that are rounded, and
 * their own masters; leaves. */
void shard_beside(tutti_context *ctx, tutti_comm *comm)
{
    static const struct {
        int64_t cols;
        size_t range_bytes;
        tutti_dtype dtype;
        int leaves;
    } cases[] = {{192, 1, TUTTI_BF16, 0},  {192, 1, TUTTI_BF16, 8},
                 {200, 0, TUTTI_F32, 0},   {192, 65536, TUTTI_F64, 0},
                 {2048, 0, TUTTI_BF16, 0}, {1024, 3 << 20, TUTTI_BF16, 8}};
    const int count = tutti_context_backend(ctx) == TUTTI_BACKEND_HOST ? 4 : 6;
    for (int i = 0; i < count; i++) {
        tutti_context *other = harness_new_context(tutti_context_device(ctx), 1);
        stack s = {.ctx = ctx,
                   .other = other,
                   .cols = cases[i].cols,
                   .dtype = cases[i].dtype,
                   .leaves = cases[i].leaves},
              plain = s;
        harness_where("%lld columns, ranges of %zu bytes, %s, %d leaves", (long long)cases[i].cols,
                      cases[i].range_bytes, tutti_dtype_name(cases[i].dtype), cases[i].leaves);
        open_stack(&s, comm, cases[i].range_bytes, true);
        open_stack(&plain, comm, cases[i].range_bytes, false);
        run_stack(&s, true);
        run_stack(&plain, false);
        for (int k = 0; k < TENSORS; k++)
            same(&s, &plain, &s.kept[k], &plain.kept[k], "the output of pass", k);
        CHECK_OK(tutti_comm_check_params(comm, ctx, s.store, NULL, 0));
        tutti_adamw_stats got, norm;
        CHECK_OK(tutti_adamw_get_stats(s.adamw, ctx, &got));
        CHECK_OK(tutti_adamw_get_stats(plain.adamw, ctx, &norm));
        CHECK(got.grad_norm == norm.grad_norm && norm.grad_norm > 1e-3, "norm %.17g, want %.17g",
              got.grad_norm, norm.grad_norm);
        tutti_tensor values, want;
        CHECK_OK(tutti_params_settle(s.store, ctx));
        const tutti_params_buffer buffer =
            s.dtype == TUTTI_BF16 ? TUTTI_PARAMS_WORKING : TUTTI_PARAMS_MASTER;
        CHECK_OK(tutti_params_flat(s.store, buffer, &values));
        CHECK_OK(tutti_params_flat(plain.store, buffer, &want));
        same(&s, &plain, &values, &want, "values, step", STEPS);
        close_stack(&s);
        close_stack(&plain);
        tutti_context_destroy(&other);
    }
    harness_where(NULL);
}
