/* The gradient exchange: sums of a sharded batch equal one rank's, ranges are exchanged while
 * backward runs, and misuse is reported. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "grad_sync.h"

enum { LAYERS = 4, WIDTH = 120, BATCH = 12 }; /* a layer exceeds what is sent whole */

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

tutti_engine grad_sync_engine = TUTTI_ENGINE_AUTO;

static void sums(tutti_context *ctx, tutti_comm *comm, size_t range_bytes)
{
    int64_t first = shard(rig_rank()), rows = shard(rig_rank() + 1) - first;
    /* what NCCL allocates cannot be shared with other processes */
    const tutti_allocator none = {.self = NULL};
    const bool copies = grad_sync_engine == TUTTI_ENGINE_COPY;
    model m = model_make(ctx, copies ? none : tutti_comm_allocator(comm), first, rows);
    model whole = model_make(ctx, none, 0, BATCH);
    CHECK_OK(tutti_comm_broadcast_params(comm, ctx, m.params));
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.range_bytes = range_bytes;
    desc.last_range_bytes = range_bytes;
    desc.engine = grad_sync_engine;
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
    CHECK(!copies || info.engine == TUTTI_ENGINE_COPY, "engine %d", (int)info.engine);
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
    desc.engine = grad_sync_engine;
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
        ctx, "rmsnorm", "cols=120,x_dtype=f64,param_dtype=f64,y_dtype=f64", &frozen));
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
            CHECK_FAILS(TUTTI_ERR_STATE, "already declared ready in this step of an exchange that",
                        run_layer(&m, l, true, NULL));
        }
        CHECK_OK(tutti_grad_sync_finish(sync, ctx));
        compare_with_one_rank(&m, &whole);
        CHECK_OK(run_layer(&m, LAYERS - 1, true, NULL)); /* the step has ended */
    }

    for (int l = 0; l < LAYERS; l++) CHECK_OK(run_layer(&whole, l, false, sync));
    CHECK_FAILS(TUTTI_ERR_ARG, "part", run_layer(&whole, 1, true, sync)); /* of another model */
    tutti_layer *plain = NULL;
    CHECK_OK(tutti_layer_create_by_name(ctx, "softmax", "cols=120,dtype=f64", &plain));
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

/* A layer whose two gradients are in an exchange each: from ready to the end of both steps a
 * backward that does not name them is refused, unless it leaves those gradients alone. */
static void beside(tutti_context *ctx, tutti_comm *comm)
{
    enum { COLS = 8, TENSORS = 9 };
    const size_t bytes = COLS * sizeof(float);
    char *memory = NULL;
    tutti_layer *norm = NULL;
    tutti_grad_sync *syncs[2] = {NULL, NULL};
    CHECK_OK(tutti_alloc(ctx, TENSORS * bytes, (void **)&memory));
    CHECK_OK(tutti_zero(ctx, memory, TENSORS * bytes));
    CHECK_OK(tutti_layer_create_by_name(ctx, "layernorm", "cols=8", &norm));
    tutti_tensor t[TENSORS]; /* gamma, beta, their gradients; x, dy, dx, saved; another of beta */
    for (int i = 0; i < TENSORS; i++) {
        const int64_t dims[] = {1, COLS};
        const bool row = i < 4 || i == 8;
        t[i] = tutti_tensor_make(memory + (size_t)i * bytes, TUTTI_F32, row ? 1 : 2,
                                 row ? &dims[1] : dims);
    }
    for (int i = 0; i < 2; i++) {
        const tutti_param *param = tutti_layer_param(norm, i);
        CHECK_OK(tutti_param_bind(tutti_layer_param(norm, i), &t[i], &t[2 + i]));
        CHECK_OK(tutti_grad_sync_create_list(ctx, comm, &param, 1, NULL, &syncs[i]));
    }
    tutti_layernorm_call call = {
        .x = &t[4], .dy = &t[5], .dx = &t[6], .saved = t[7].data, .saved_bytes = bytes};
    CHECK_OK(tutti_layernorm_backward(norm, ctx, &call));
    CHECK_OK(tutti_grad_sync_ready(syncs[1], ctx, norm));
    static const char refusal[] = "layernorm: 'beta' already declared ready in this step of an "
                                  "exchange that the call does not name (sync); call tutti_grad_";
    CHECK_FAILS(TUTTI_ERR_STATE, refusal, tutti_layernorm_backward(norm, ctx, &call));
    call.sync = syncs[0]; /* the other one */
    CHECK_FAILS(TUTTI_ERR_STATE, refusal, tutti_layernorm_backward(norm, ctx, &call));
    call.sync = NULL;
    for (int other = 0; other < 2; other++) {
        CHECK_OK(tutti_param_bind(tutti_layer_param(norm, 1), &t[1], other ? &t[8] : NULL));
        CHECK_OK(tutti_layernorm_backward(norm, ctx, &call));
    }
    CHECK_OK(tutti_param_bind(tutti_layer_param(norm, 1), &t[1], &t[3]));
    CHECK_OK(tutti_grad_sync_ready(syncs[0], ctx, norm));
    CHECK_OK(tutti_grad_sync_finish(syncs[0], ctx));
    CHECK_FAILS(TUTTI_ERR_STATE, refusal, tutti_layernorm_backward(norm, ctx, &call));
    CHECK_OK(tutti_grad_sync_finish(syncs[1], ctx));
    CHECK_OK(tutti_layernorm_backward(norm, ctx, &call));
    /* an exchange that is destroyed, and a layer before its exchange */
    CHECK_OK(tutti_grad_sync_ready(syncs[1], ctx, norm));
    tutti_grad_sync_destroy(&syncs[1]);
    CHECK_OK(tutti_layernorm_backward(norm, ctx, &call));
    CHECK_OK(tutti_grad_sync_ready(syncs[0], ctx, norm));
    tutti_layer_destroy(&norm);
    tutti_grad_sync_destroy(&syncs[0]);
    CHECK_OK(tutti_free(ctx, (void **)&memory));
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
    tied_refused(ctx, comm);
}

/* Another context waits for each sum in mid-step, on some ranks only, and in the end for all. */
static void wait_elsewhere(tutti_context *ctx, tutti_comm *comm)
{
    enum { COUNT = 64 * 1000, OWN = 5 }; /* a parameter is a range, and sent in slices */
    tutti_context *other = harness_new_context(tutti_context_device(ctx), 1);
    tutti_param own[OWN];
    tutti_params *params = NULL;
    tutti_grad_sync *sync = NULL;
    float *values = harness_calloc(COUNT, sizeof *values);
    CHECK_OK(tutti_params_create(ctx, NULL, &params));
    for (int p = 0; p < OWN; p++) {
        own[p] = (tutti_param){.lr_scale = 1};
        snprintf(own[p].name, sizeof own[p].name, "p%d", p);
        own[p].value = tutti_tensor_1d(NULL, TUTTI_F32, COUNT);
        CHECK_OK(tutti_params_add_param(params, &own[p]));
    }
    CHECK_OK(tutti_params_build(params, ctx));
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.range_bytes = desc.last_range_bytes = COUNT * sizeof *values;
    desc.engine = grad_sync_engine;
    CHECK_OK(tutti_grad_sync_create(ctx, comm, params, &desc, &sync));
    const int n = rig_size();
    for (int step = 0; sync && step < 20 && !harness_failures(); step++) {
        for (int p = OWN - 1; p >= 0; p--) {
            for (int i = 0; i < COUNT; i++) values[i] = (float)(i % 997 + rig_rank() + step + p);
            CHECK_OK(tutti_copy(ctx, own[p].grad.data, values, COUNT * sizeof *values));
            CHECK_OK(tutti_grad_sync_ready_param(sync, ctx, &own[p]));
            CHECK_OK(tutti_context_synchronize(ctx)); /* `values` is written again */
            if ((rig_rank() + step + p) % 3 == 0)
                CHECK_OK(tutti_grad_sync_wait(sync, other, &own[p]));
        }
        CHECK_OK(tutti_grad_sync_finish(sync, ctx));
        for (int p = OWN - 1; p >= 0; p--) {
            CHECK_OK(tutti_grad_sync_wait(sync, other, &own[p]));
            CHECK_OK(tutti_copy(other, values, own[p].grad.data, COUNT * sizeof *values));
            CHECK_OK(tutti_context_synchronize(other));
            int wrong = 0;
            for (int i = 0; i < COUNT; i++)
                wrong += values[i] != (float)((i % 997 + step + p) * n + n * (n - 1) / 2);
            CHECK(wrong == 0, "step %d: %d sums of p%d are wrong", step, wrong, p);
        }
        CHECK_OK(tutti_context_synchronize(ctx));
    }
    tutti_grad_sync_destroy(&sync);
    tutti_params_destroy(&params);
    tutti_context_destroy(&other);
    free(values);
}

#ifdef RIG_WITH_MPI
/* Sums of a store that is not sharded, by copy engines. */
static void test_copies(void)
{
    static const size_t sizes[] = {1024, 4096, 100000, 32 << 20};
    tutti_context *ctx = rig_context();
    tutti_comm *comm = rig_comm(ctx, TUTTI_TRANSPORT_NCCL);
    if (!comm) return;
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    tutti_grad_sync *sync = NULL;
    model m = model_make(ctx, (tutti_allocator){.self = NULL}, 0, BATCH);
    desc.engine = grad_sync_engine = TUTTI_ENGINE_COPY;
    const tutti_status status = tutti_grad_sync_create(ctx, comm, m.params, &desc, &sync);
    tutti_grad_sync_destroy(&sync);
    model_free(&m);
    if (status == TUTTI_ERR_UNSUPPORTED)
        harness_skip("%s", tutti_last_error());
    else
        CHECK_OK(status);
    for (int i = 0; i < 4 && status == TUTTI_OK; i++) {
        harness_where("ranges of %zu bytes", sizes[i]);
        sums(ctx, comm, sizes[i]);
    }
    harness_where(NULL);
    if (status == TUTTI_OK) {
        overlap(ctx, comm);
        any_order(ctx, comm);
        wait_for_one(ctx, comm);
        wait_elsewhere(ctx, comm);
    }
    grad_sync_engine = TUTTI_ENGINE_AUTO;
    tutti_comm_destroy(&comm);
}
#endif

RIG_OVER(all_sums)
RIG_OVER(overlap)
RIG_OVER(misuse)
RIG_OVER(update)
RIG_OVER(any_order)
RIG_OVER(wait_for_one)
RIG_OVER(wait_elsewhere)
RIG_OVER(frozen)
RIG_OVER(by_call)
RIG_OVER(beside)
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
    RIG_ROWS("waiting in another context", wait_elsewhere, 1, 0),
    RIG_ROWS("frozen parameters", frozen, 1, 0),
    RIG_ROWS("ready by the call", by_call, 1, 0),
    RIG_ROWS("a backward beside the exchange", beside, 1, 0),
    RIG_ROWS("bf16 on the wire", narrow, 1, 0),
    RIG_ROWS("progress", progress, 2, 0),
    RIG_ROWS("differences", differences, 2, 0),
#ifdef RIG_WITH_MPI
    {"sums by copy engines", test_copies, 2, 0, true},
#endif
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "gradient exchange", tests, HARNESS_COUNT(tests));
}
