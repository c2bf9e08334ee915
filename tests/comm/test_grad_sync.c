/* The gradient exchange: sums of a sharded batch equal one rank's, ranges are exchanged while
 * backward runs, and misuse is reported. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rig.h"

enum { LAYERS = 4, WIDTH = 40, BATCH = 12 };

/* x -> norm -> linear -> linear -> linear, WIDTH wide; f64: sums hardly depend on their order. */
typedef struct model {
    tutti_context *ctx;
    tutti_layer *layers[LAYERS];
    tutti_params *params;
    tutti_tensor x[LAYERS + 1], dx[LAYERS + 1];
    void *saved[LAYERS];
    void *memory[4 * LAYERS + 4];
    int memories;
    int64_t rows;
} model;

static void *device(model *m, size_t bytes)
{
    void *data = NULL;
    CHECK_OK(tutti_alloc(m->ctx, bytes, &data));
    m->memory[m->memories++] = data;
    return data;
}

static tutti_tensor rows_of(model *m)
{
    size_t bytes = (size_t)(m->rows + 1) * WIDTH * sizeof(double);
    return tutti_tensor_2d(device(m, bytes), TUTTI_F64, m->rows, WIDTH);
}

/* rows [first, first + rows) of the batch's inputs and of the loss gradient */
static void put_rows(model *m, const tutti_tensor *tensor, uint64_t seed, int64_t first)
{
    harness_rng rng = {seed};
    double values[BATCH * WIDTH];
    harness_fill(&rng, values, BATCH * WIDTH, TUTTI_F64, 0, 1);
    CHECK_OK(tutti_copy(m->ctx, tensor->data, values + first * WIDTH,
                        (size_t)(m->rows * WIDTH) * sizeof *values));
    CHECK_OK(tutti_context_synchronize(m->ctx));
}

static model model_make(tutti_context *ctx, tutti_allocator memory, int64_t first, int64_t rows)
{
    model m = {.ctx = ctx, .rows = rows};
    tutti_rmsnorm_desc norm = TUTTI_RMSNORM_DESC_INIT;
    norm.cols = WIDTH;
    norm.x_dtype = norm.param_dtype = norm.y_dtype = TUTTI_F64;
    CHECK_OK(tutti_rmsnorm_create(ctx, &norm, &m.layers[0]));
    tutti_linear_desc linear = TUTTI_LINEAR_DESC_INIT;
    linear.in = linear.out = WIDTH;
    linear.dtype = TUTTI_F64;
    linear.activation = TUTTI_ACT_SILU;
    for (int l = 1; l < LAYERS; l++) CHECK_OK(tutti_linear_create(ctx, &linear, &m.layers[l]));
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    desc.master_dtype = TUTTI_F64;
    desc.gradient_memory = memory;
    CHECK_OK(tutti_params_create(ctx, &desc, &m.params));
    for (int l = 0; l < LAYERS; l++) {
        char name[32];
        snprintf(name, sizeof name, "layer%d", l);
        CHECK_OK(tutti_params_add(m.params, m.layers[l], name));
    }
    CHECK_OK(tutti_params_build(m.params, ctx));
    CHECK_OK(tutti_params_init(m.params, ctx, 7));
    for (int l = 0; l <= LAYERS; l++) {
        m.x[l] = rows_of(&m);
        m.dx[l] = rows_of(&m);
    }
    for (int l = 0; l < LAYERS; l++)
        m.saved[l] = device(&m, tutti_layer_saved_bytes(m.layers[l], rows) + 16);
    put_rows(&m, &m.x[0], 11, first);
    put_rows(&m, &m.dx[LAYERS], 12, first);
    return m;
}

static void model_free(model *m)
{
    tutti_params_destroy(&m->params);
    for (int l = 0; l < LAYERS; l++) tutti_layer_destroy(&m->layers[l]);
    for (int i = 0; i < m->memories; i++) CHECK_OK(tutti_free(m->ctx, &m->memory[i]));
}

/* sync: backward declares its layer ready there. */
static tutti_status run_layer(model *m, int l, bool backward, tutti_grad_sync *sync)
{
    const tutti_call call = {
        .in = {&m->x[l]},
        .out = {&m->x[l + 1]},
        .upstream = {&m->dx[l + 1]},
        .din = {&m->dx[l]},
        .saved = m->saved[l],
        .saved_bytes = tutti_layer_saved_bytes(m->layers[l], m->rows),
        .sync = sync,
    };
    return (backward ? tutti_layer_backward : tutti_layer_forward)(m->layers[l], m->ctx, &call);
}

/* One step; sync NULL: no exchange. */
static void run_step(model *m, tutti_grad_sync *sync)
{
    for (int l = 0; l < LAYERS; l++) CHECK_OK(run_layer(m, l, false, NULL));
    for (int l = LAYERS - 1; l >= 0; l--) {
        CHECK_OK(run_layer(m, l, true, NULL));
        if (sync) CHECK_OK(tutti_grad_sync_ready(sync, m->ctx, m->layers[l]));
    }
    if (sync) CHECK_OK(tutti_grad_sync_finish(sync, m->ctx));
}

static double *gradients(model *m, int64_t *count)
{
    tutti_tensor flat;
    CHECK_OK(tutti_params_flat(m->params, TUTTI_PARAMS_GRAD, &flat));
    *count = tutti_tensor_count(&flat);
    double *values = harness_calloc((size_t)*count, sizeof *values);
    CHECK_OK(tutti_copy(m->ctx, values, flat.data, (size_t)*count * sizeof *values));
    CHECK_OK(tutti_context_synchronize(m->ctx));
    return values;
}

static int64_t shard(int rank)
{
    return BATCH * rank / rig_size();
}

/* The exchanged gradients equal those of the whole batch on one rank. */
static void compare_with_one_rank(model *m, model *whole)
{
    int64_t n, other;
    double *got = gradients(m, &n), *want = gradients(whole, &other);
    CHECK(n == other, "%lld and %lld gradients", (long long)n, (long long)other);
    double *bound = harness_calloc((size_t)n, sizeof *bound);
    for (int64_t i = 0; i < n; i++) bound[i] = 1e-11;
    CHECK_CLOSE("gradients", got, want, bound, n);
    free(bound);
    free(want);
    free(got);
}

static void sums(tutti_context *ctx, tutti_comm *comm, size_t range_bytes)
{
    int64_t first = shard(rig_rank()), rows = shard(rig_rank() + 1) - first;
    tutti_allocator none = {.self = NULL};
    model m = model_make(ctx, tutti_comm_allocator(comm), first, rows);
    model whole = model_make(ctx, none, 0, BATCH);
    CHECK_OK(tutti_comm_broadcast_params(comm, ctx, m.params));
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.range_bytes = range_bytes;
    desc.last_range_bytes = range_bytes;
    tutti_grad_sync *sync = NULL;
    CHECK_OK(tutti_grad_sync_create(ctx, comm, m.params, &desc, &sync));
    run_step(&whole, NULL);
    for (int step = 0; step < 3 && sync; step++) {
        run_step(&m, sync);
        compare_with_one_rank(&m, &whole);
    }
    tutti_grad_sync_info info = {0};
    CHECK_OK(tutti_grad_sync_get_info(sync, &info));
    int64_t bytes = ((LAYERS - 1) * (WIDTH * WIDTH + WIDTH) + WIDTH) * (int64_t)sizeof(double);
    CHECK(info.steps == 3, "%lld steps", (long long)info.steps);
    CHECK(info.bytes == bytes, "%lld bytes, want %lld", (long long)info.bytes, (long long)bytes);
    CHECK(info.ranges >= bytes / (int64_t)range_bytes, "%d ranges", info.ranges);
    tutti_grad_sync_destroy(&sync);
    model_free(&whole);
    model_free(&m);
}

/* With 4 KiB ranges the first exchange begins before the backward of the first layer has ended. */
static void overlap(tutti_context *ctx, tutti_comm *comm)
{
    tutti_allocator none = {.self = NULL};
    model m = model_make(ctx, none, 0, BATCH);
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.range_bytes = 4096;
    desc.timeline = 1;
    tutti_grad_sync *sync = NULL;
    tutti_grad_sync_info info = {0};
    CHECK_OK(tutti_grad_sync_create(ctx, comm, m.params, &desc, &sync));
    CHECK(tutti_grad_sync_get_timeline(sync, NULL, NULL, NULL, NULL) == TUTTI_ERR_STATE,
          "a timeline before a step");
    CHECK_OK(tutti_grad_sync_get_info(sync, &info));
    run_step(&m, sync); /* plans and connects */
    run_step(&m, sync);
    int n = info.ranges;
    CHECK(n >= 8, "%d ranges", n);
    double *ready = harness_calloc((size_t)n, sizeof *ready);
    double *begin = harness_calloc((size_t)n, sizeof *begin);
    double *end = harness_calloc((size_t)n, sizeof *end);
    double finish = -1;
    CHECK_OK(tutti_grad_sync_get_timeline(sync, ready, begin, end, &finish));
    for (int r = 0; r < n && !harness_failures(); r++) {
        CHECK(ready[r] >= 0 && ready[r] <= begin[r] && begin[r] <= end[r],
              "range %d: ready %g, begin %g, end %g", r, ready[r], begin[r], end[r]);
        CHECK(r == 0 || ready[r] >= ready[r - 1], "range %d was ready before range %d", r, r - 1);
    }
    CHECK(finish >= ready[n - 1], "finish %g, last ready %g", finish, ready[n - 1]);
    CHECK(begin[0] < ready[n - 1],
          "the first exchange begins at %g ms, backward ends at %g ms: nothing overlaps", begin[0],
          ready[n - 1]);
    CHECK_OK(tutti_grad_sync_get_timeline(sync, NULL, NULL, NULL, NULL));
    free(end);
    free(begin);
    free(ready);
    tutti_grad_sync_destroy(&sync);
    model_free(&m);
}

/* A sum progresses while layers run: MPI does nothing by itself, so every layer call drives it. */
static void progress(tutti_context *ctx, tutti_comm *comm)
{
    enum { LARGE = 1 << 20 };
    tutti_allocator none = {.self = NULL};
    model m = model_make(ctx, none, 0, BATCH);
    float *grads = NULL;
    CHECK_OK(tutti_alloc(ctx, (LARGE + 1) * sizeof *grads, (void **)&grads));
    CHECK_OK(tutti_zero(ctx, grads, (LARGE + 1) * sizeof *grads));
    tutti_param params[2] = {{.name = "large"}, {.name = "small"}};
    const tutti_param *list[2] = {&params[0], &params[1]};
    params[0].value = params[0].grad = tutti_tensor_1d(grads, TUTTI_F32, LARGE);
    params[1].value = params[1].grad = tutti_tensor_1d(grads + LARGE, TUTTI_F32, 1);
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.last_range_bytes = 512;
    desc.timeline = 1;
    tutti_grad_sync *sync = NULL;
    CHECK_OK(tutti_grad_sync_create_list(ctx, comm, list, 2, &desc, &sync));
    CHECK_OK(tutti_comm_barrier(comm, ctx));
    CHECK_OK(tutti_grad_sync_ready_param(sync, ctx, list[0]));
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do { /* for a second, to allow for busy cores */
        CHECK_OK(run_layer(&m, 0, false, NULL));
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - begin.tv_sec + (now.tv_nsec - begin.tv_nsec) * 1e-9 < 1.0);
    CHECK_OK(tutti_grad_sync_ready_param(sync, ctx, list[1]));
    CHECK_OK(tutti_grad_sync_finish(sync, ctx));
    double ready[2] = {0}, end[2] = {0};
    CHECK_OK(tutti_grad_sync_get_timeline(sync, ready, NULL, end, NULL));
    CHECK(end[0] < ready[1],
          "4 MiB are summed after %g ms, %g ms of layer calls have not moved them on", end[0],
          ready[1]);
    tutti_grad_sync_destroy(&sync);
    CHECK_OK(tutti_free(ctx, (void **)&grads));
    model_free(&m);
}

/* Bound parameters: ascending and descending neighbours, another type, a shared gradient. */
typedef struct listed {
    tutti_param params[6];
    const tutti_param *list[6];
    void *memory;
    int64_t count; /* floats */
} listed;

static void listed_make(tutti_context *ctx, listed *l)
{
    /* in floats: two ascending, two descending, one f64, one that shares the second's gradient */
    static const int64_t offset[] = {0, 700, 4000, 2001, 5000, 700};
    static const int64_t size[] = {700, 1301, 900, 1999, 33, 1301};
    *l = (listed){.count = 6000};
    CHECK_OK(tutti_alloc(ctx, (size_t)l->count * sizeof(float), &l->memory));
    for (int i = 0; i < 6; i++) {
        tutti_param *p = &l->params[i];
        tutti_dtype dtype = i == 4 ? TUTTI_F64 : TUTTI_F32;
        snprintf(p->name, sizeof p->name, "p%d", i);
        p->grad = tutti_tensor_1d((float *)l->memory + offset[i], dtype, size[i]);
        p->value = p->grad;
        l->list[i] = p;
    }
}

static void listed_parameters(tutti_context *ctx, tutti_comm *comm)
{
    listed l;
    listed_make(ctx, &l);
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.range_bytes = 2048;
    desc.last_range_bytes = 1024;
    tutti_grad_sync *sync = NULL;
    CHECK_OK(tutti_grad_sync_create_list(ctx, comm, l.list, 6, &desc, &sync));
    float *values = harness_calloc((size_t)l.count, sizeof *values);
    double ranks = rig_size();
    for (int step = 0; step < 2 && sync; step++) {
        for (int64_t i = 0; i < l.count; i++)
            values[i] = (float)((i * 13 + step) % 101 + rig_rank());
        for (int i = 0; i < 33; i++) ((double *)(values + 5000))[i] = i + rig_rank();
        CHECK_OK(tutti_copy(ctx, l.memory, values, (size_t)l.count * sizeof *values));
        for (int i = 0; i < 5; i++) CHECK_OK(tutti_grad_sync_ready_param(sync, ctx, l.list[i]));
        CHECK_FAILS(TUTTI_ERR_STATE, "'p1'", tutti_grad_sync_ready_param(sync, ctx, l.list[1]));
        CHECK_FAILS(TUTTI_ERR_STATE, "'p5'", tutti_grad_sync_finish(sync, ctx));
        CHECK_OK(tutti_grad_sync_ready_param(sync, ctx, l.list[5]));
        CHECK_OK(tutti_grad_sync_finish(sync, ctx));
        CHECK_OK(tutti_copy(ctx, values, l.memory, (size_t)l.count * sizeof *values));
        CHECK_OK(tutti_context_synchronize(ctx));
        double extra = ranks * (ranks - 1) / 2;
        for (int64_t i = 0; i < l.count; i++) {
            bool f64 = i >= 5000 && i < 5066, summed = i < 4900;
            double want = (double)((i * 13 + step) % 101);
            want = summed ? want * ranks + extra : want + rig_rank();
            if (!f64 && values[i] != want) {
                CHECK(false, "element %lld is %g, want %g", (long long)i, values[i], want);
                break;
            }
        }
        for (int i = 0; i < 33; i++) {
            double got;
            memcpy(&got, values + 5000 + 2 * i, sizeof got);
            CHECK(got == i * ranks + extra, "f64 element %d is %g", i, got);
        }
    }
    free(values);
    tutti_grad_sync_destroy(&sync);
    CHECK_OK(tutti_free(ctx, &l.memory));
}

/* Neighbours in opposite order on every second rank: ranges must still hold the same gradients. */
static void layouts(tutti_context *ctx, tutti_comm *comm)
{
    enum { COUNT = 3000 };
    float *memory = NULL, *values = harness_calloc(2 * COUNT, sizeof *values);
    CHECK_OK(tutti_alloc(ctx, 2 * COUNT * sizeof *memory, (void **)&memory));
    tutti_param params[2] = {{.name = "first"}, {.name = "second"}};
    const tutti_param *list[2] = {&params[0], &params[1]};
    int at[2] = {0, COUNT};
    if (rig_rank() % 2) at[0] = COUNT, at[1] = 0;
    for (int p = 0; p < 2; p++) {
        params[p].value = params[p].grad = tutti_tensor_1d(memory + at[p], TUTTI_F32, COUNT);
        for (int i = 0; i < COUNT; i++) values[at[p] + i] = (float)(p * 10000 + i);
    }
    CHECK_OK(tutti_copy(ctx, memory, values, 2 * COUNT * sizeof *values));
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.range_bytes = desc.last_range_bytes = 4096;
    tutti_grad_sync *sync = NULL;
    CHECK_OK(tutti_grad_sync_create_list(ctx, comm, list, 2, &desc, &sync));
    for (int p = 0; p < 2; p++) CHECK_OK(tutti_grad_sync_ready_param(sync, ctx, list[p]));
    CHECK_OK(tutti_grad_sync_finish(sync, ctx));
    CHECK_OK(tutti_copy(ctx, values, memory, 2 * COUNT * sizeof *values));
    CHECK_OK(tutti_context_synchronize(ctx));
    int wrong = 0;
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < COUNT; i++)
            wrong += values[at[p] + i] != (float)(rig_size() * (p * 10000 + i));
    CHECK(wrong == 0, "%d of %d sums are wrong", wrong, 2 * COUNT);
    tutti_grad_sync_destroy(&sync);
    CHECK_OK(tutti_free(ctx, (void **)&memory));
    free(values);
}

/* Two layers with a tied weight: its range is exchanged when both are ready. */
static void tied_weight(tutti_context *ctx, tutti_comm *comm)
{
    tutti_layer *layers[2] = {NULL, NULL};
    tutti_linear_desc linear = TUTTI_LINEAR_DESC_INIT;
    linear.in = linear.out = 16;
    linear.no_bias = 1;
    tutti_params *params = NULL;
    CHECK_OK(tutti_params_create(ctx, NULL, &params));
    for (int l = 0; l < 2; l++) {
        CHECK_OK(tutti_linear_create(ctx, &linear, &layers[l]));
        CHECK_OK(tutti_params_add(params, layers[l], l ? "upper" : "lower"));
    }
    CHECK_OK(
        tutti_params_tie(params, tutti_layer_param(layers[1], 0), tutti_layer_param(layers[0], 0)));
    CHECK_OK(tutti_params_build(params, ctx));
    tutti_grad_sync *sync = NULL;
    CHECK_OK(tutti_grad_sync_create(ctx, comm, params, NULL, &sync));
    tutti_tensor flat;
    CHECK_OK(tutti_params_flat(params, TUTTI_PARAMS_GRAD, &flat));
    float values[256];
    CHECK_OK(tutti_zero(ctx, flat.data, sizeof values));
    CHECK_OK(tutti_grad_sync_ready(sync, ctx, layers[1]));
    CHECK_FAILS(TUTTI_ERR_STATE, "lower", tutti_grad_sync_finish(sync, ctx));
    CHECK_FAILS(TUTTI_ERR_STATE, "already declared ready",
                tutti_grad_sync_ready(sync, ctx, layers[1]));
    /* add the other layer's part: nothing has been sent yet */
    for (int i = 0; i < 256; i++) values[i] = (float)(i + rig_rank());
    CHECK_OK(tutti_copy(ctx, flat.data, values, sizeof values));
    CHECK_OK(tutti_grad_sync_ready(sync, ctx, layers[0]));
    CHECK_OK(tutti_grad_sync_finish(sync, ctx));
    CHECK_OK(tutti_copy(ctx, values, flat.data, sizeof values));
    CHECK_OK(tutti_context_synchronize(ctx));
    int n = rig_size();
    for (int i = 0; i < 256; i++)
        CHECK(values[i] == (float)(i * n + n * (n - 1) / 2), "element %d is %g", i, values[i]);
    tutti_grad_sync_destroy(&sync);
    tutti_params_destroy(&params);
    for (int l = 0; l < 2; l++) tutti_layer_destroy(&layers[l]);
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

static void any_order(tutti_context *ctx, tutti_comm *comm)
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
static void wait_for_one(tutti_context *ctx, tutti_comm *comm)
{
    tied t;
    tied_make(ctx, &t);
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.range_bytes = desc.last_range_bytes = 512;
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

/* Misuse on all ranks alike; tests/api covers each argument. */
static void misuse(tutti_context *ctx, tutti_comm *comm)
{
    tutti_allocator none = {.self = NULL};
    model m = model_make(ctx, none, 0, BATCH), stranger = model_make(ctx, none, 0, BATCH);
    tutti_grad_sync *sync = NULL;
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.leaves = 3;
    CHECK_FAILS(TUTTI_ERR_ARG, "leaves", tutti_grad_sync_create(ctx, comm, m.params, &desc, &sync));
    CHECK(!sync, "a failing create left a pointer");
    const tutti_param *twice[] = {tutti_layer_param(m.layers[1], 0),
                                  tutti_layer_param(m.layers[1], 0)};
    CHECK_FAILS(TUTTI_ERR_ARG, "twice",
                tutti_grad_sync_create_list(ctx, comm, twice, 2, NULL, &sync));

    tutti_layer *plain = NULL, *frozen = NULL;
    static double gamma[WIDTH];
    const tutti_tensor value = tutti_tensor_1d(gamma, TUTTI_F64, WIDTH);
    CHECK_OK(tutti_layer_create_by_name(ctx, "softmax", "cols=4", &plain));
    CHECK_OK(tutti_layer_create_by_name(
        ctx, "rmsnorm", "cols=40,x_dtype=f64,param_dtype=f64,y_dtype=f64", &frozen));
    CHECK_OK(tutti_param_bind(tutti_layer_param(frozen, 0), &value, NULL));
    CHECK_OK(tutti_grad_sync_create(ctx, comm, m.params, NULL, &sync));
    CHECK_FAILS(TUTTI_ERR_ARG, "part", tutti_grad_sync_ready(sync, ctx, stranger.layers[1]));
    CHECK_OK(tutti_grad_sync_ready(sync, ctx, plain)); /* it has no parameters */
    CHECK_OK(tutti_grad_sync_ready(sync, ctx, plain));
    CHECK_OK(tutti_grad_sync_ready(sync, ctx, frozen)); /* its parameters have no gradients */
    CHECK_FAILS(TUTTI_ERR_STATE, "layer", tutti_grad_sync_finish(sync, ctx));
    run_step(&m, sync); /* the refusals did no harm */
    tutti_grad_sync_destroy(&sync);

    const tutti_param *empty[] = {NULL};
    CHECK_OK(tutti_grad_sync_create_list(ctx, comm, empty, 0, NULL, &sync));
    CHECK_OK(tutti_grad_sync_finish(sync, ctx));
    tutti_grad_sync_destroy(&sync);
    tutti_layer_destroy(&plain);
    tutti_layer_destroy(&frozen);
    model_free(&stranger);
    model_free(&m);
}

/* Backward with call.sync declares its layer ready, once; forward does not. */
static void by_call(tutti_context *ctx, tutti_comm *comm)
{
    int64_t first = shard(rig_rank()), rows = shard(rig_rank() + 1) - first;
    tutti_allocator none = {.self = NULL};
    model m = model_make(ctx, tutti_comm_allocator(comm), first, rows);
    model whole = model_make(ctx, none, 0, BATCH);
    CHECK_OK(tutti_comm_broadcast_params(comm, ctx, m.params));
    tutti_grad_sync *sync = NULL;
    CHECK_OK(tutti_grad_sync_create(ctx, comm, m.params, NULL, &sync));
    run_step(&whole, NULL);
    for (int step = 0; step < 2; step++) {
        for (int l = 0; l < LAYERS; l++) CHECK_OK(run_layer(&m, l, false, sync));
        CHECK_FAILS(TUTTI_ERR_STATE, "layer", tutti_grad_sync_finish(sync, ctx));
        for (int l = LAYERS - 1; l >= 0; l--) {
            tutti_tensor kept = m.dx[l + 1];
            m.dx[l + 1].dtype = TUTTI_F32; /* a refused call declares nothing */
            CHECK(run_layer(&m, l, true, sync) == TUTTI_ERR_ARG, "dy of f32 is accepted");
            m.dx[l + 1] = kept;
            CHECK_OK(run_layer(&m, l, true, sync));
            CHECK_FAILS(TUTTI_ERR_STATE, "ready", tutti_grad_sync_ready(sync, ctx, m.layers[l]));
        }
        CHECK_OK(tutti_grad_sync_finish(sync, ctx));
        compare_with_one_rank(&m, &whole);
    }

    for (int l = 0; l < LAYERS; l++) CHECK_OK(run_layer(&whole, l, false, sync));
    CHECK_FAILS(TUTTI_ERR_ARG, "part", run_layer(&whole, 1, true, sync)); /* of another model */
    tutti_layer *plain = NULL;
    CHECK_OK(tutti_layer_create_by_name(ctx, "softmax", "cols=40,dtype=f64", &plain));
    const tutti_softmax_call call = {
        .x = &whole.x[0], .y = &whole.x[1], .dy = &whole.dx[1], .dx = &whole.dx[0], .sync = sync};
    for (int i = 0; i < 2; i++) { /* it has no parameters */
        CHECK_OK(tutti_softmax_forward(plain, ctx, &call));
        CHECK_OK(tutti_softmax_backward(plain, ctx, &call));
    }
    tutti_layer_destroy(&plain);
    tutti_grad_sync_destroy(&sync);
    model_free(&whole);
    model_free(&m);
}

/* An update needs sums as long as the store has an exchange. */
static void update(tutti_context *ctx, tutti_comm *comm)
{
    tutti_allocator none = {.self = NULL};
    model m = model_make(ctx, none, 0, BATCH);
    tutti_step_block *step = NULL;
    tutti_adamw *adamw = NULL;
    tutti_grad_sync *sync = NULL, *second = NULL;
    CHECK_OK(tutti_step_block_create(ctx, &step));
    CHECK_OK(tutti_step_block_set(step, ctx, &(tutti_step_values){.step = 1, .loss_weight = 1}));
    CHECK_OK(tutti_adamw_create(ctx, m.params, NULL, &adamw));
    CHECK_OK(tutti_adamw_update(adamw, ctx, step)); /* no exchange, nothing is missing */
    CHECK_OK(tutti_grad_sync_create(ctx, comm, m.params, NULL, &sync));
    static const char missing[] = "tutti_grad_sync_finish after the last ready";
    CHECK_FAILS(TUTTI_ERR_STATE, missing, tutti_adamw_update(adamw, ctx, step));
    run_step(&m, sync);
    CHECK_OK(tutti_adamw_update(adamw, ctx, step));
    CHECK_FAILS(TUTTI_ERR_STATE, missing, tutti_adamw_update(adamw, ctx, step)); /* twice */
    run_step(&m, sync);
    CHECK_OK(tutti_grad_sync_ready(sync, ctx, m.layers[LAYERS - 1]));
    CHECK_FAILS(TUTTI_ERR_STATE, missing, tutti_adamw_update(adamw, ctx, step)); /* half a step */
    for (int l = LAYERS - 2; l >= 0; l--) CHECK_OK(tutti_grad_sync_ready(sync, ctx, m.layers[l]));
    CHECK_FAILS(TUTTI_ERR_STATE, missing, tutti_adamw_update(adamw, ctx, step));
    CHECK_OK(tutti_grad_sync_finish(sync, ctx));
    CHECK_OK(tutti_adamw_update(adamw, ctx, step));
    tutti_adamw_stats stats = {0};
    CHECK_OK(tutti_adamw_get_stats(adamw, ctx, &stats));
    CHECK(stats.updates == 3, "%lld updates were made", (long long)stats.updates);
    CHECK_OK(tutti_grad_sync_create(ctx, comm, m.params, NULL, &second));
    tutti_grad_sync_destroy(&sync);
    CHECK_FAILS(TUTTI_ERR_STATE, missing, tutti_adamw_update(adamw, ctx, step));
    tutti_grad_sync_destroy(&second);
    CHECK_OK(tutti_adamw_update(adamw, ctx, step));
    tutti_adamw_destroy(&adamw);
    tutti_step_block_destroy(&step);
    model_free(&m);
}

/* Differences between ranks are found before anything is summed. */
static void differences(tutti_context *ctx, tutti_comm *comm)
{
    int last = rig_size() - 1;
    bool odd = rig_rank() == last;
    char name[32];
    snprintf(name, sizeof name, "rank %d", last);
    listed l;
    listed_make(ctx, &l);
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    tutti_grad_sync *sync = NULL;
    if (odd) desc.range_bytes = 1 << 20;
    CHECK_FAILS(TUTTI_ERR_COMM, "range_bytes",
                tutti_grad_sync_create_list(ctx, comm, l.list, 6, &desc, &sync));
    CHECK_FAILS(TUTTI_ERR_COMM, name,
                tutti_grad_sync_create_list(ctx, comm, l.list, odd ? 3 : 4, NULL, &sync));
    CHECK_FAILS(TUTTI_ERR_COMM, "p3",
                tutti_grad_sync_create_list(ctx, comm, l.list, odd ? 3 : 4, NULL, &sync));
    if (odd) l.params[2].grad.dims[0] = 899;
    CHECK_FAILS(TUTTI_ERR_COMM, "p2",
                tutti_grad_sync_create_list(ctx, comm, l.list, 6, NULL, &sync));
    CHECK_FAILS(TUTTI_ERR_COMM, "[899]",
                tutti_grad_sync_create_list(ctx, comm, l.list, 6, NULL, &sync));
    if (odd) l.params[2].grad.dims[0] = 900;
    const tutti_dtype dtype = l.params[3].value.dtype;
    if (odd) l.params[3].value.dtype = TUTTI_F16;
    CHECK_FAILS(TUTTI_ERR_COMM, "p3",
                tutti_grad_sync_create_list(ctx, comm, l.list, 6, NULL, &sync));
    l.params[3].value.dtype = dtype;
    /* an error of one rank is reported on all, with its number */
    CHECK_FAILS(TUTTI_ERR_ARG, name,
                tutti_grad_sync_create_list(ctx, comm, odd ? NULL : l.list, 6, NULL, &sync));

    CHECK_OK(tutti_comm_barrier(comm, ctx)); /* the communicator still works */
    CHECK_OK(tutti_free(ctx, &l.memory));
}

static void all_sums(tutti_context *ctx, tutti_comm *comm)
{
    static const size_t sizes[] = {1024, 4096, 32 << 20};
    for (int i = 0; i < 3; i++) {
        harness_where("ranges of %zu bytes", sizes[i]);
        sums(ctx, comm, sizes[i]);
    }
    harness_where(NULL);
    listed_parameters(ctx, comm);
    layouts(ctx, comm);
    tied_weight(ctx, comm);
}

/* Wire */

enum { WIRED = 4 };
static const int64_t wired[WIRED] = {700, 90001, 3, 20011};

/* Numbers of many magnitudes, some of which bf16 cannot hold. */
static void part_of(int rank, int p, float *values)
{
    harness_rng rng = {(uint64_t)(rank * WIRED + p + 1) * UINT64_C(0x9e3779b97f4a7c15)};
    for (int64_t i = 0; i < wired[p]; i++)
        values[i] =
            (float)(harness_uniform(&rng, -1, 1) * (double)(1 << harness_random(&rng) % 12));
}

static float to_bf16(float value)
{
    return (float)harness_round(TUTTI_BF16, value);
}

/* Each rank's part rounded, added in f32 in rank order, and rounded; one rank's own stays. */
static float *narrow_sum(int p)
{
    const int n = rig_size();
    float *sum = harness_calloc((size_t)wired[p], sizeof *sum);
    float *part = harness_calloc((size_t)wired[p], sizeof *part);
    for (int rank = 0; rank < n; rank++) {
        part_of(rank, p, part);
        for (int64_t i = 0; i < wired[p]; i++)
            sum[i] = rank == 0 ? n == 1 ? part[i] : to_bf16(part[i]) : sum[i] + to_bf16(part[i]);
    }
    for (int64_t i = 0; i < wired[p] && n > 1; i++) sum[i] = to_bf16(sum[i]);
    free(part);
    return sum;
}

static void narrow_step(tutti_context *ctx, tutti_grad_sync *sync, tutti_param own[WIRED])
{
    for (int p = WIRED - 1; p >= 0; p--) {
        float *values = harness_calloc((size_t)wired[p], sizeof *values);
        part_of(rig_rank(), p, values);
        CHECK_OK(tutti_copy(ctx, own[p].grad.data, values, (size_t)wired[p] * sizeof *values));
        CHECK_OK(tutti_context_synchronize(ctx));
        CHECK_OK(tutti_grad_sync_ready_param(sync, ctx, &own[p]));
        free(values);
    }
    CHECK_OK(tutti_grad_sync_finish(sync, ctx));
    for (int p = 0; p < WIRED; p++) {
        const size_t bytes = (size_t)wired[p] * sizeof(float);
        float *got = harness_calloc(bytes, 1), *want = narrow_sum(p);
        CHECK_OK(tutti_copy(ctx, got, own[p].grad.data, bytes));
        CHECK_OK(tutti_context_synchronize(ctx));
        CHECK(memcmp(got, want, bytes) == 0, "p%d: %.9g …, want %.9g …", p, got[0], want[0]);
        free(want);
        free(got);
    }
}

/* Ranges that are sent whole, that are sliced, and that are shorter than there are ranks. */
static void narrow(tutti_context *ctx, tutti_comm *comm)
{
    static const size_t sizes[] = {(size_t)32 << 20, 1024};
    tutti_param own[WIRED] = {{.lr_scale = 1}};
    const tutti_param *list[WIRED];
    int64_t bytes = 0;
    for (int p = 0; p < WIRED; p++) {
        void *memory = NULL;
        snprintf(own[p].name, sizeof own[p].name, "p%d", p);
        CHECK_OK(tutti_alloc(ctx, (size_t)wired[p] * sizeof(float), &memory));
        own[p].value = own[p].grad = tutti_tensor_1d(memory, TUTTI_F32, wired[p]);
        list[p] = &own[p];
        bytes += wired[p] * 2;
    }
    for (int i = 0; i < HARNESS_COUNT(sizes); i++) {
        tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
        tutti_grad_sync_info info = {0};
        tutti_grad_sync *sync = NULL;
        desc.wire = TUTTI_BF16;
        desc.range_bytes = desc.last_range_bytes = sizes[i];
        harness_where("ranges of %zu bytes", sizes[i]);
        CHECK_OK(tutti_grad_sync_create_list(ctx, comm, list, WIRED, &desc, &sync));
        for (int step = 0; sync && step < 2; step++) narrow_step(ctx, sync, own);
        CHECK_OK(tutti_grad_sync_get_info(sync, &info));
        const int64_t n = rig_size(), ring = 2 * 2 * bytes / n * (n - 1);
        CHECK(i > 0 || info.bytes_sent <= ring + ring / 10 + 8192 * n,
              "%lld bytes were sent, a ring sends %lld of bf16", (long long)info.bytes_sent,
              (long long)ring);
        tutti_grad_sync_destroy(&sync);
    }
    harness_where(NULL);
    if (rig_size() > 1) { /* another wire on the last rank */
        tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
        tutti_grad_sync *sync = NULL;
        desc.wire = rig_rank() == rig_size() - 1 ? TUTTI_BF16 : 0;
        CHECK_FAILS(TUTTI_ERR_COMM, "wire",
                    tutti_grad_sync_create_list(ctx, comm, list, WIRED, &desc, &sync));
    }
    for (int p = 0; p < WIRED; p++) CHECK_OK(tutti_free(ctx, &own[p].grad.data));
}

/* Of three parameters one is frozen, or none (-1). */
static tutti_params *with_frozen(tutti_context *ctx, tutti_param own[3], int frozen)
{
    tutti_params *params = NULL;
    CHECK_OK(tutti_params_create(ctx, NULL, &params));
    for (int i = 0; i < 3; i++) {
        own[i] = (tutti_param){.lr_scale = 1, .init = TUTTI_INIT_UNIFORM, .init_bound = 1};
        snprintf(own[i].name, sizeof own[i].name, "p%d", i);
        own[i].value = tutti_tensor_1d(NULL, TUTTI_F32, 200);
        CHECK_OK(tutti_params_add_param(params, &own[i]));
    }
    if (frozen >= 0) CHECK_OK(tutti_params_freeze(params, &own[frozen]));
    CHECK_OK(tutti_params_build(params, ctx));
    CHECK_OK(tutti_params_init(params, ctx, 1));
    return params;
}

/* The others are summed; the replicas of all are compared; ranks must freeze the same. */
static void frozen(tutti_context *ctx, tutti_comm *comm)
{
    tutti_param own[3];
    tutti_params *params = with_frozen(ctx, own, 1);
    tutti_grad_sync *sync = NULL;
    CHECK_OK(tutti_grad_sync_create(ctx, comm, params, NULL, &sync));
    const float mine = (float)(1 + rig_rank());
    const int n = rig_size();
    for (int i = 0; i < 3; i += 2) CHECK_OK(tutti_copy(ctx, own[i].grad.data, &mine, sizeof mine));
    CHECK_OK(tutti_grad_sync_ready_param(sync, ctx, &own[2]));
    CHECK_FAILS(TUTTI_ERR_ARG, "p1", tutti_grad_sync_ready_param(sync, ctx, &own[1]));
    CHECK_OK(tutti_grad_sync_ready_param(sync, ctx, &own[0]));
    CHECK_OK(tutti_grad_sync_finish(sync, ctx));
    for (int i = 0; i < 3; i += 2) {
        float sum = 0;
        CHECK_OK(tutti_copy(ctx, &sum, own[i].grad.data, sizeof sum));
        CHECK_OK(tutti_context_synchronize(ctx));
        CHECK(sum == (float)(n * (n + 1) / 2), "p%d's sum is %g", i, sum);
    }
    CHECK_OK(tutti_comm_check_params(comm, ctx, params, NULL, 0));
    if (n > 1) {
        if (rig_rank() == n - 1) CHECK_OK(tutti_copy(ctx, own[1].master.data, &mine, sizeof mine));
        CHECK_FAILS(TUTTI_ERR_DATA, "p1", tutti_comm_check_params(comm, ctx, params, NULL, 0));
    }
    CHECK_OK(tutti_comm_broadcast_params(comm, ctx, params));
    CHECK_OK(tutti_comm_check_params(comm, ctx, params, NULL, 0));
    tutti_grad_sync_destroy(&sync);
    tutti_params_destroy(&params);
    if (n == 1) return;
    /* p0 is the last in the layout either way */
    params = with_frozen(ctx, own, rig_rank() == n - 1 ? 0 : -1);
    CHECK_FAILS(TUTTI_ERR_COMM, "p0", tutti_grad_sync_create(ctx, comm, params, NULL, &sync));
    CHECK_FAILS(TUTTI_ERR_COMM, "frozen", tutti_comm_check_params(comm, ctx, params, NULL, 0));
    tutti_params_destroy(&params);
}

RIG_OVER(all_sums)
RIG_OVER(overlap)
RIG_OVER(misuse)
RIG_OVER(update)
RIG_OVER(any_order)
RIG_OVER(wait_for_one)
RIG_OVER(frozen)
RIG_OVER(by_call)
RIG_OVER(narrow)
RIG_OVER(progress)
RIG_OVER(differences)

static const rig_test tests[] = {
    RIG_ROWS("sums", all_sums, 1, 0),
    RIG_ROWS("overlap", overlap, 1, 0),
    RIG_ROWS("misuse", misuse, 1, 0),
    RIG_ROWS("updates", update, 1, 0),
    RIG_ROWS("any order", any_order, 1, 0),
    RIG_ROWS("waiting", wait_for_one, 1, 0),
    RIG_ROWS("frozen parameters", frozen, 1, 0),
    RIG_ROWS("ready by the call", by_call, 1, 0),
    RIG_ROWS("bf16 on the wire", narrow, 1, 0),
    RIG_ROWS("progress", progress, 2, 0),
    RIG_ROWS("differences", differences, 2, 0),
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "gradient exchange", tests, HARNESS_COUNT(tests));
}
