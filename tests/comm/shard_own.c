/* A layer of the caller's own between two of the library's, in a sharded store: it sees what it
 * sees in one that is not sharded, but for the masters and, after finish, the other ranks' sums. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard.h"
#include "tutti/linear.h"

/* The caller's layer has several slices; a leaf is a few rows. */
enum { COLS = 192, ROWS = 3, COUNT = ROWS * COLS, LEAVES = 8, STEPS = 3 };

typedef struct net {
    tutti_context *ctx;
    tutti_params *store;
    tutti_layer *low, *top;
    tutti_param own; /* y = x weight^T, on the host */
    tutti_adamw *adamw;
    tutti_step_block *step;
    tutti_grad_sync *sync;
    tutti_tensor x, h, z, y, dz, dh; /* [ROWS, COLS] */
} net;

static tutti_tensor make(tutti_context *ctx, tutti_dtype dtype)
{
    void *data = NULL;
    CHECK_OK(tutti_alloc(ctx, COUNT * tutti_dtype_size(dtype), &data));
    return tutti_tensor_2d(data, dtype, ROWS, COLS);
}

static void open_net(net *n, tutti_comm *comm, tutti_dtype dtype, bool sharded)
{
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    tutti_linear_desc linear = TUTTI_LINEAR_DESC_INIT;
    tutti_grad_sync_desc options = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.master_dtype = dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    if (sharded) desc.shards = rig_size(), desc.shard = rig_rank(), desc.range_bytes = 1;
    linear.in = linear.out = COLS;
    linear.dtype = dtype;
    n->own = (tutti_param){.name = "own/weight",
                           .value = tutti_tensor_2d(NULL, dtype, COLS, COLS),
                           .weight_decay = 1,
                           .lr_scale = 0.5,
                           .init = TUTTI_INIT_UNIFORM,
                           .init_bound = 0.1};
    CHECK_OK(tutti_params_create(n->ctx, &desc, &n->store));
    CHECK_OK(tutti_linear_create(n->ctx, &linear, &n->low));
    CHECK_OK(tutti_linear_create(n->ctx, &linear, &n->top));
    CHECK_OK(tutti_params_add(n->store, n->low, "low"));
    CHECK_OK(tutti_params_add_param(n->store, &n->own));
    CHECK_OK(tutti_params_add(n->store, n->top, "top"));
    rig_build(n->ctx, n->store, &n->adamw, &n->step);
    options.leaves = LEAVES;
    options.exclusive = 1;
    options.engine = sharded ? shard_engine : TUTTI_ENGINE_TRANSPORT;
    CHECK_OK(tutti_grad_sync_create(n->ctx, comm, n->store, &options, &n->sync));
    tutti_tensor *const tensors[] = {&n->x, &n->h, &n->z, &n->y, &n->dz, &n->dh};
    for (int i = 0; i < HARNESS_COUNT(tensors); i++) *tensors[i] = make(n->ctx, dtype);
}

static void close_net(net *n)
{
    tutti_tensor *const tensors[] = {&n->x, &n->h, &n->z, &n->y, &n->dz, &n->dh};
    for (int i = 0; i < HARNESS_COUNT(tensors); i++)
        CHECK_OK(tutti_free(n->ctx, &tensors[i]->data));
    tutti_grad_sync_destroy(&n->sync);
    tutti_adamw_destroy(&n->adamw);
    tutti_step_block_destroy(&n->step);
    tutti_params_destroy(&n->store);
    tutti_layer_destroy(&n->low);
    tutti_layer_destroy(&n->top);
}

/* The caller's layer.  Unlike calls of the library's, it has to wait for values on their way. */
static void own_forward(net *n)
{
    CHECK_OK(tutti_params_settle(n->store, n->ctx));
    double *weight = harness_get(n->ctx, &n->own.value, NULL), z[COUNT] = {0};
    double *h = harness_get(n->ctx, &n->h, NULL);
    for (int row = 0; row < ROWS; row++)
        for (int c = 0; c < COLS; c++)
            for (int k = 0; k < COLS; k++)
                z[row * COLS + c] += h[row * COLS + k] * weight[c * COLS + k];
    harness_put(n->ctx, &n->z, z);
    free(weight);
    free(h);
}

/* It writes all of its gradient, whichever slices of it are this rank's. */
static void own_backward(net *n)
{
    double *weight = harness_get(n->ctx, &n->own.value, NULL), dh[COUNT] = {0};
    double *h = harness_get(n->ctx, &n->h, NULL), *dz = harness_get(n->ctx, &n->dz, NULL);
    double *dweight = harness_calloc((size_t)COLS * COLS, sizeof *dweight);
    for (int row = 0; row < ROWS; row++)
        for (int c = 0; c < COLS; c++)
            for (int k = 0; k < COLS; k++) {
                dweight[c * COLS + k] += dz[row * COLS + c] * h[row * COLS + k];
                dh[row * COLS + k] += dz[row * COLS + c] * weight[c * COLS + k];
            }
    harness_put(n->ctx, &n->own.grad, dweight);
    harness_put(n->ctx, &n->dh, dh);
    CHECK_OK(tutti_grad_sync_ready_param(n->sync, n->ctx, &n->own));
    free(dweight);
    free(weight);
    free(h);
    free(dz);
}

/* Gradients of half the sum of y^2 over a leaf's rows. */
static void compute_leaf(net *n, int leaf)
{
    static const int64_t first_rows[] = {0};
    double x[COUNT];
    for (int i = 0; i < COUNT; i++) x[i] = (double)((i * 37 + leaf * 11) % 65 - 32) / 32;
    harness_put(n->ctx, &n->x, x);
    CHECK_OK(tutti_grad_sync_leaves_begin(n->sync, n->ctx, leaf, 1));
    const tutti_linear_call low = {.x = &n->x,
                                   .y = &n->h,
                                   .dy = &n->dh,
                                   .leaves = 1,
                                   .leaf_rows = first_rows,
                                   .sync = n->sync};
    const tutti_linear_call top = {.x = &n->z,
                                   .y = &n->y,
                                   .dy = &n->y,
                                   .dx = &n->dz,
                                   .leaves = 1,
                                   .leaf_rows = first_rows,
                                   .sync = n->sync};
    CHECK_OK(tutti_linear_forward(n->low, n->ctx, &low));
    own_forward(n);
    CHECK_OK(tutti_linear_forward(n->top, n->ctx, &top));
    CHECK_OK(tutti_linear_backward(n->top, n->ctx, &top));
    own_backward(n);
    CHECK_OK(tutti_linear_backward(n->low, n->ctx, &low));
    CHECK_OK(tutti_grad_sync_leaves_end(n->sync, n->ctx));
}

static void find_sums(net *n, int step)
{
    const tutti_step_values values = {.step = step, .loss_weight = 1, .learning_rate = 0.01};
    int first, count;
    CHECK_OK(tutti_step_block_set(n->step, n->ctx, &values));
    CHECK_OK(tutti_grad_sync_own_leaves(n->sync, &first, &count));
    for (int leaf = first; leaf < first + count; leaf++) compute_leaf(n, leaf);
    CHECK_OK(tutti_grad_sync_finish(n->sync, n->ctx));
}

static void same(net *a, net *b, const tutti_tensor *got, const tutti_tensor *want,
                 const char *what, int step)
{
    double *is = harness_get(a->ctx, got, NULL), *wanted = harness_get(b->ctx, want, NULL);
    CHECK(memcmp(is, wanted, (size_t)tutti_tensor_count(got) * sizeof *is) == 0,
          "step %d: %s of the store that is not sharded is another", step, what);
    free(is);
    free(wanted);
}

static tutti_tensor part_of(const net *n, int64_t first, int64_t count)
{
    tutti_tensor flat = {.data = NULL};
    CHECK_OK(tutti_params_flat(n->store, TUTTI_PARAMS_GRAD, &flat));
    char *data = (char *)flat.data + (size_t)first * tutti_dtype_size(flat.dtype);
    return tutti_tensor_1d(data, flat.dtype, count);
}

static void one_type(tutti_context *ctx, tutti_comm *comm, tutti_dtype dtype)
{
    const bool rounded = dtype == TUTTI_BF16;
    net part = {.ctx = ctx}, whole = {.ctx = ctx};
    harness_where("%s", tutti_dtype_name(dtype));
    open_net(&part, comm, dtype, true);
    open_net(&whole, comm, dtype, false);
    CHECK(!part.own.master.data == rounded && whole.own.master.data, "masters");
    CHECK(part.own.value.data && tutti_tensor_count(&part.own.grad) == COLS * COLS &&
              part.own.grad.data,
          "the value and the gradient are not whole");
    for (int step = 1; step <= STEPS; step++) {
        find_sums(&part, step);
        find_sums(&whole, step);
        for (int i = 0; i < tutti_params_slice_count(part.store); i++) {
            int64_t first = 0, count = 0;
            CHECK_OK(tutti_params_slice(part.store, i, &first, &count));
            const tutti_tensor got = part_of(&part, first, count);
            const tutti_tensor want = part_of(&whole, first, count);
            same(&part, &whole, &got, &want, "the sum of a slice", step);
        }
        CHECK_OK(tutti_adamw_update(part.adamw, ctx, part.step));
        CHECK_OK(tutti_adamw_update(whole.adamw, ctx, whole.step));
        CHECK_OK(tutti_params_settle(part.store, ctx));
        for (int p = 0; p < tutti_params_count(part.store); p++) {
            const tutti_param *got = tutti_params_get(part.store, p);
            same(&part, &whole, &got->value, &tutti_params_get(whole.store, p)->value, got->name,
                 step);
        }
    }
    close_net(&part);
    close_net(&whole);
    harness_where(NULL);
}

void shard_own(tutti_context *ctx, tutti_comm *comm)
{
    static const tutti_dtype dtypes[] = {TUTTI_BF16, TUTTI_F32, TUTTI_F64};
    for (int i = 0; i < HARNESS_COUNT(dtypes); i++) one_type(ctx, comm, dtypes[i]);
}
