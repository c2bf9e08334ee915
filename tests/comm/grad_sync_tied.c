/* The exchange of gradients that several layers share. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grad_sync.h"

/* Two layers, [COLS, COLS] each, with a tied weight. */
enum { COLS = 16, COUNT = COLS * COLS };
typedef struct tied_pair {
    tutti_layer *layers[2];
    tutti_params *params;
    tutti_grad_sync *sync;
} tied_pair;

static tied_pair pair_open(tutti_context *ctx, tutti_comm *comm)
{
    tied_pair p = {{NULL, NULL}, NULL, NULL};
    tutti_linear_desc linear = TUTTI_LINEAR_DESC_INIT;
    linear.in = linear.out = COLS;
    linear.no_bias = 1;
    CHECK_OK(tutti_params_create(ctx, NULL, &p.params));
    for (int l = 0; l < 2; l++) {
        CHECK_OK(tutti_linear_create(ctx, &linear, &p.layers[l]));
        CHECK_OK(tutti_params_add(p.params, p.layers[l], l ? "upper" : "lower"));
    }
    CHECK_OK(tutti_params_tie(p.params, tutti_layer_param(p.layers[1], 0),
                              tutti_layer_param(p.layers[0], 0)));
    CHECK_OK(tutti_params_build(p.params, ctx));
    CHECK_OK(tutti_grad_sync_create(ctx, comm, p.params, NULL, &p.sync));
    return p;
}

static void pair_close(tied_pair *p)
{
    tutti_grad_sync_destroy(&p->sync);
    tutti_params_destroy(&p->params);
    for (int l = 0; l < 2; l++) tutti_layer_destroy(&p->layers[l]);
}

/* The weight's range is exchanged when both are ready. */
void tied_weight(tutti_context *ctx, tutti_comm *comm)
{
    tied_pair p = pair_open(ctx, comm);
    tutti_tensor flat;
    CHECK_OK(tutti_params_flat(p.params, TUTTI_PARAMS_GRAD, &flat));
    float values[COUNT];
    CHECK_OK(tutti_zero(ctx, flat.data, sizeof values));
    CHECK_OK(tutti_grad_sync_ready(p.sync, ctx, p.layers[1]));
    CHECK_FAILS(TUTTI_ERR_STATE, "lower", tutti_grad_sync_finish(p.sync, ctx));
    CHECK_FAILS(TUTTI_ERR_STATE, "already declared ready",
                tutti_grad_sync_ready(p.sync, ctx, p.layers[1]));
    /* add the other layer's part: nothing has been sent yet */
    for (int i = 0; i < COUNT; i++) values[i] = (float)(i + rig_rank());
    CHECK_OK(tutti_copy(ctx, flat.data, values, sizeof values));
    CHECK_OK(tutti_grad_sync_ready(p.sync, ctx, p.layers[0]));
    CHECK_OK(tutti_grad_sync_finish(p.sync, ctx));
    CHECK_OK(tutti_copy(ctx, values, flat.data, sizeof values));
    CHECK_OK(tutti_context_synchronize(ctx));
    int n = rig_size();
    for (int i = 0; i < COUNT; i++)
        CHECK(values[i] == (float)(i * n + n * (n - 1) / 2), "element %d is %g", i, values[i]);
    pair_close(&p);
}

/* A backward that is refused changes nothing: a second one in a step, and one that would overwrite
 * the tied weight's gradients by the other layer. */
void tied_refused(tutti_context *ctx, tutti_comm *comm)
{
    enum { ROWS = 2 };
    tied_pair p = pair_open(ctx, comm);
    harness_buffer x = harness_buffer_make(ctx, TUTTI_F32, ROWS, COLS, 0, 0);
    double values[ROWS * COLS], first[COUNT], got[COUNT];
    for (int i = 0; i < ROWS * COLS; i++) values[i] = i % 5 - 2;
    harness_buffer_put(ctx, &x, values);
    const tutti_tensor tx = harness_buffer_tensor(&x);
    const tutti_tensor *grad = &tutti_layer_param(p.layers[0], 0)->grad;
    tutti_linear_call call = {.x = &tx, .dy = &tx, .sync = p.sync};
    CHECK_OK(tutti_linear_backward(p.layers[1], ctx, &call));
    harness_get(ctx, grad, first);
    CHECK_FAILS(TUTTI_ERR_STATE, "'upper/weight' already declared ready",
                tutti_linear_backward(p.layers[1], ctx, &call));
    CHECK_FAILS(TUTTI_ERR_STATE, "TUTTI_GRAD_ACCUMULATE",
                tutti_linear_backward(p.layers[0], ctx, &call));
    call.flags = TUTTI_GRAD_ACCUMULATE;
    CHECK_FAILS(TUTTI_ERR_STATE, "'upper/weight' already declared ready",
                tutti_linear_backward(p.layers[1], ctx, &call));
    call.sync = NULL;
    CHECK_FAILS(TUTTI_ERR_STATE, "'upper/weight' already declared ready",
                tutti_linear_backward(p.layers[1], ctx, &call));
    harness_get(ctx, grad, got);
    for (int i = 0; i < COUNT; i++)
        CHECK(got[i] == first[i], "element %d has become %g, it was %g", i, got[i], first[i]);
    CHECK_OK(tutti_linear_backward(p.layers[0], ctx, &call)); /* its own part is not */
    CHECK_OK(tutti_grad_sync_ready(p.sync, ctx, p.layers[0]));
    CHECK_OK(tutti_grad_sync_finish(p.sync, ctx));
    harness_get(ctx, grad, got);
    for (int i = 0; i < COUNT; i++)
        CHECK(got[i] == 2 * rig_size() * first[i], "element %d is %g, want %g", i, got[i],
              2 * rig_size() * first[i]);
    harness_buffer_free(ctx, &x);
    pair_close(&p);
}

/* A model of a tied embedding and head (the first and the last but one), sums of whole numbers. */
enum { TIED = 8, TIED_COUNT = 600 };
typedef struct tied {
    tutti_params *params;
    tutti_param own[TIED];
} tied;

static void tied_make(tutti_context *ctx, tied *t)
{
    *t = (tied){.params = NULL};
    CHECK_OK(tutti_params_create(ctx, NULL, &t->params));
    for (int i = 0; i < TIED; i++) {
        tutti_param *param = &t->own[i];
        snprintf(param->name, sizeof param->name, "p%d", i);
        param->value =
            tutti_tensor_1d(NULL, TUTTI_F32, i == TIED - 2 ? TIED_COUNT : TIED_COUNT + 100 * i);
        param->lr_scale = 1;
        CHECK_OK(tutti_params_add_param(t->params, param));
    }
    CHECK_OK(tutti_params_tie(t->params, &t->own[TIED - 2], &t->own[0]));
    CHECK_OK(tutti_params_build(t->params, ctx));
}

static void tied_put(tutti_context *ctx, const tied *t, int seed)
{
    tutti_tensor flat;
    CHECK_OK(tutti_params_flat(t->params, TUTTI_PARAMS_GRAD, &flat));
    const int64_t n = tutti_tensor_count(&flat);
    float *values = harness_calloc((size_t)n, sizeof *values);
    for (int64_t i = 0; i < n; i++) values[i] = (float)(i % 1009 + seed);
    CHECK_OK(tutti_copy(ctx, flat.data, values, (size_t)n * sizeof *values));
    CHECK_OK(tutti_context_synchronize(ctx));
    free(values);
}

/* The sum of `times` tied_put whose seeds add up to `seeds`, in the elements of one parameter. */
static void tied_check(tutti_context *ctx, const tied *t, int p, int times, int seeds)
{
    tutti_tensor flat;
    CHECK_OK(tutti_params_flat(t->params, TUTTI_PARAMS_GRAD, &flat));
    const tutti_tensor *grad = &t->own[p].grad;
    const int64_t n = tutti_tensor_count(grad), at = (float *)grad->data - (float *)flat.data;
    float *values = harness_calloc((size_t)n, sizeof *values);
    CHECK_OK(tutti_copy(ctx, values, grad->data, (size_t)n * sizeof *values));
    CHECK_OK(tutti_context_synchronize(ctx));
    for (int64_t i = 0; i < n; i++) {
        const float want = (float)((at + i) % 1009 * times + seeds);
        if (!CHECK(values[i] == want, "p%d[%lld] is %g, want %g", p, (long long)i, values[i], want))
            break;
    }
    free(values);
}

/* Declares all ready, in an order of this rank's own. */
static void tied_ready(tutti_context *ctx, tied *t, tutti_grad_sync *sync, harness_rng *rng)
{
    int order[TIED];
    for (int i = 0; i < TIED; i++) {
        const int j = (int)(harness_random(rng) % (uint64_t)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    for (int i = 0; i < TIED; i++)
        CHECK_OK(tutti_grad_sync_ready_param(sync, ctx, &t->own[order[i]]));
}

/* A different order of ready on each rank changes no sum; leaves 0: fast mode. */
static void shuffled(tutti_comm *comm, tutti_context *ctx, size_t range_bytes, int leaves)
{
    tied t;
    tied_make(ctx, &t);
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.range_bytes = desc.last_range_bytes = range_bytes;
    desc.leaves = leaves;
    desc.engine = grad_sync_engine;
    tutti_grad_sync *sync = NULL;
    CHECK_OK(tutti_grad_sync_create(ctx, comm, t.params, &desc, &sync));
    harness_rng rng = {(uint64_t)(77 + 13 * rig_rank())};
    const int parts = leaves ? leaves : rig_size();
    int first = rig_rank(), count = 1;
    if (leaves) CHECK_OK(tutti_grad_sync_own_leaves(sync, &first, &count));
    for (int step = 0; step < 20 && !harness_failures(); step++) {
        for (int leaf = first; leaf < first + count; leaf++) {
            if (leaves) CHECK_OK(tutti_grad_sync_leaves_begin(sync, ctx, leaf, 1));
            tied_put(ctx, &t, leaf + step);
            tied_ready(ctx, &t, sync, &rng);
            if (leaves) CHECK_OK(tutti_grad_sync_leaves_end(sync, ctx));
        }
        CHECK_OK(tutti_grad_sync_finish(sync, ctx));
        for (int p = 0; p < TIED; p++)
            tied_check(ctx, &t, p, parts, parts * (parts - 1) / 2 + parts * step);
    }
    tutti_grad_sync_destroy(&sync);
    tutti_params_destroy(&t.params);
}

void any_order(tutti_context *ctx, tutti_comm *comm)
{
    static const size_t sizes[] = {512, 4096, 1 << 20};
    for (int i = 0; i < 3; i++)
        for (int leaves = 0; leaves <= 8; leaves += 8) {
            harness_where("ranges of %zu bytes, %d leaves", sizes[i], leaves);
            shuffled(comm, ctx, sizes[i], leaves);
        }
    harness_where(NULL);
}

/* A sum is available before finish, without waiting for the tied gradient, which comes last. */
void wait_for_one(tutti_context *ctx, tutti_comm *comm)
{
    tied t;
    tied_make(ctx, &t);
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.range_bytes = desc.last_range_bytes = 512;
    desc.engine = grad_sync_engine;
    tutti_grad_sync *sync = NULL;
    CHECK_OK(tutti_grad_sync_create(ctx, comm, t.params, &desc, &sync));
    const int n = rig_size(), seeds = n * (n - 1) / 2;
    for (int step = 0; step < 3; step++) {
        tied_put(ctx, &t, rig_rank());
        for (int i = TIED - 1; i > 0; i--) {
            CHECK_OK(tutti_grad_sync_ready_param(sync, ctx, &t.own[i]));
            if (i == TIED - 2) {
                CHECK_FAILS(TUTTI_ERR_STATE, "not ready",
                            tutti_grad_sync_wait(sync, ctx, &t.own[TIED - 2]));
                continue;
            }
            CHECK_OK(tutti_grad_sync_wait(sync, ctx, &t.own[i]));
            tied_check(ctx, &t, i, n, seeds);
            CHECK_FAILS(TUTTI_ERR_STATE, "not ready", tutti_grad_sync_wait(sync, ctx, t.own));
        }
        CHECK_OK(tutti_grad_sync_ready_param(sync, ctx, &t.own[0]));
        CHECK_OK(tutti_grad_sync_wait(sync, ctx, &t.own[0]));
        tied_check(ctx, &t, 0, n, seeds);
        CHECK_OK(tutti_grad_sync_finish(sync, ctx));
        CHECK_OK(tutti_grad_sync_wait(sync, ctx, &t.own[3]));
        for (int p = 0; p < TIED; p++) tied_check(ctx, &t, p, n, seeds);
    }
    tutti_grad_sync_destroy(&sync);
    tutti_params_destroy(&t.params);
}
