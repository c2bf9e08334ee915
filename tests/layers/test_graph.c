/* A whole training step captured in a CUDA graph and replayed with changing values gives the bits
 * of the uncaptured one; calls that are not allowed during a capture are refused. */
#include <stdlib.h>
#include <string.h>

#include "tutti/cuda.h"

#include "common.h"

enum { ROWS = 200, VOCAB = 30, IN = 72, HIDDEN = 100, CLASSES = 10, STEPS = 6 };

/* Embedding, RMSNorm, linear with gelu, LayerNorm with a residual, linear, cross-entropy. */
enum { TABLE, RMS, UP, LAYER, HEAD, LAYERS };
enum { PARAMS = 8 }; /* of them all */

typedef struct model {
    tutti_context *ctx;
    tutti_layer *layers[LAYERS], *loss;
    tutti_params *params;
    tutti_comm *comm;
    tutti_grad_sync *sync;
    tutti_adamw *adamw;
    tutti_step_block *step;
    tutti_tensor tokens, x, labels, normed, up, skip, sum, hidden, logits, loss_sum;
    tutti_tensor dhidden, dup, dnormed, dx;
    /* with the tensors of both directions */
    tutti_embedding_call table_call;
    tutti_rmsnorm_call rms_call;
    tutti_linear_call up_call, head_call;
    tutti_layernorm_call layer_call, layer_back_call;
    tutti_cross_entropy_call loss_call;
    /* for a step whose optimizer is in parts */
    const tutti_param *list[PARAMS];
    tutti_tensor grads[PARAMS], states[2][PARAMS], updates, norm;
    void *memory[48]; /* what tear_down frees */
    int memories;
} model;

static void *room(model *m, size_t bytes)
{
    void *data = NULL;
    CHECK_OK(tutti_alloc(m->ctx, bytes, &data));
    CHECK_OK(tutti_zero(m->ctx, data, bytes));
    m->memory[m->memories++] = data;
    return data;
}

static tutti_tensor matrix(model *m, tutti_dtype dtype, int64_t rows, int64_t cols)
{
    return tutti_tensor_2d(room(m, (size_t)(rows * cols) * tutti_dtype_size(dtype)), dtype, rows,
                           cols);
}

static void create_layers(model *m, tutti_dtype dtype)
{
    tutti_embedding_desc table = TUTTI_EMBEDDING_DESC_INIT;
    table.vocab = VOCAB;
    table.cols = IN;
    table.dtype = dtype;
    CHECK_OK(tutti_embedding_create(m->ctx, &table, &m->layers[TABLE]));
    tutti_rmsnorm_desc rms = TUTTI_RMSNORM_DESC_INIT;
    rms.cols = IN;
    rms.x_dtype = rms.param_dtype = rms.y_dtype = dtype;
    CHECK_OK(tutti_rmsnorm_create(m->ctx, &rms, &m->layers[RMS]));
    tutti_linear_desc linear = TUTTI_LINEAR_DESC_INIT;
    linear.dtype = dtype;
    linear.in = IN;
    linear.out = HIDDEN;
    linear.activation = TUTTI_ACT_GELU;
    CHECK_OK(tutti_linear_create(m->ctx, &linear, &m->layers[UP]));
    tutti_layernorm_desc norm = TUTTI_LAYERNORM_DESC_INIT;
    norm.cols = HIDDEN;
    norm.x_dtype = norm.param_dtype = norm.y_dtype = dtype;
    CHECK_OK(tutti_layernorm_create(m->ctx, &norm, &m->layers[LAYER]));
    linear.in = HIDDEN;
    linear.out = CLASSES;
    linear.activation = TUTTI_ACT_NONE;
    CHECK_OK(tutti_linear_create(m->ctx, &linear, &m->layers[HEAD]));
    tutti_cross_entropy_desc loss = TUTTI_CROSS_ENTROPY_DESC_INIT;
    loss.cols = CLASSES;
    loss.dtype = dtype;
    CHECK_OK(tutti_cross_entropy_create(m->ctx, &loss, &m->loss));
}

/* The calls of a step, and their plans. */
static void plan(model *m)
{
    void *saved[LAYERS];
    size_t bytes[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        bytes[i] = tutti_layer_saved_bytes(m->layers[i], ROWS);
        saved[i] = bytes[i] ? room(m, bytes[i]) : NULL;
    }
    m->table_call = (tutti_embedding_call){.tokens = &m->tokens, .y = &m->x, .dy = &m->dx};
    m->rms_call = (tutti_rmsnorm_call){
        .x = &m->x,
        .y = &m->normed,
        .dy = &m->dnormed,
        .dx = &m->dx,
        .saved = saved[RMS],
        .saved_bytes = bytes[RMS],
        .sync = m->sync,
    };
    m->up_call = (tutti_linear_call){
        .x = &m->normed,
        .y = &m->up,
        .dy = &m->dup,
        .dx = &m->dnormed,
        .saved = saved[UP],
        .saved_bytes = bytes[UP],
    };
    m->layer_call = (tutti_layernorm_call){
        .x = &m->up,
        .residual = &m->skip,
        .y = &m->hidden,
        .sum = &m->sum,
        .saved = saved[LAYER],
        .saved_bytes = bytes[LAYER],
    };
    m->layer_back_call = (tutti_layernorm_call){
        .x = &m->sum,
        .dy = &m->dhidden,
        .dx = &m->dup,
        .saved = saved[LAYER],
        .saved_bytes = bytes[LAYER],
        .sync = m->sync,
    };
    m->head_call = (tutti_linear_call){
        .x = &m->hidden,
        .y = &m->logits,
        .dy = &m->logits,
        .dx = &m->dhidden,
    };
    m->loss_call = (tutti_cross_entropy_call){
        .logits = &m->logits,
        .labels = &m->labels,
        .loss_sum = &m->loss_sum,
        .dlogits = &m->logits,
        .step = m->step,
    };
    tutti_layer **l = m->layers;
    CHECK_OK(tutti_embedding_plan(l[TABLE], m->ctx, &m->table_call));
    CHECK_OK(tutti_rmsnorm_plan(l[RMS], m->ctx, &m->rms_call));
    CHECK_OK(tutti_linear_plan(l[UP], m->ctx, &m->up_call));
    CHECK_OK(tutti_layernorm_plan(l[LAYER], m->ctx, &m->layer_call));
    CHECK_OK(tutti_layernorm_plan(l[LAYER], m->ctx, &m->layer_back_call));
    CHECK_OK(tutti_linear_plan(l[HEAD], m->ctx, &m->head_call));
    CHECK_OK(tutti_cross_entropy_plan(m->loss, m->ctx, &m->loss_call));
}

static void set_up(model *m, tutti_context *ctx, tutti_dtype dtype)
{
    harness_where("%s", tutti_dtype_name(dtype));
    *m = (model){.ctx = ctx};
    create_layers(m, dtype);
    tutti_params_desc store = TUTTI_PARAMS_DESC_INIT;
    if (dtype == TUTTI_F64) store.master_dtype = TUTTI_F64;
    CHECK_OK(tutti_params_create(ctx, &store, &m->params));
    static const char *const prefixes[LAYERS] = {"table", "rms", "up", "layer", "head"};
    for (int i = 0; i < LAYERS; i++)
        CHECK_OK(tutti_params_add(m->params, m->layers[i], prefixes[i]));
    CHECK_OK(tutti_params_build(m->params, ctx));
    CHECK_OK(tutti_params_init(m->params, ctx, 11));

    tutti_comm_desc comm = TUTTI_COMM_DESC_INIT;
    comm.transport = TUTTI_TRANSPORT_SELF;
    CHECK_OK(tutti_comm_create(ctx, &comm, &m->comm));
    tutti_grad_sync_desc ranges = TUTTI_GRAD_SYNC_DESC_INIT;
    ranges.range_bytes = 4096; /* several ranges, so that the exchange's stream forks and joins */
    ranges.last_range_bytes = 1024;
    CHECK_OK(tutti_grad_sync_create(ctx, m->comm, m->params, &ranges, &m->sync));
    tutti_adamw_desc adamw = TUTTI_ADAMW_DESC_INIT;
    adamw.clip_norm = 1;
    adamw.skip_nonfinite = 1;
    CHECK_OK(tutti_adamw_create(ctx, m->params, &adamw, &m->adamw));
    CHECK_OK(tutti_step_block_create(ctx, &m->step));

    m->tokens = tutti_tensor_1d(room(m, ROWS * sizeof(int32_t)), TUTTI_I32, ROWS);
    m->x = matrix(m, dtype, ROWS, IN);
    m->labels = tutti_tensor_1d(room(m, ROWS * sizeof(int32_t)), TUTTI_I32, ROWS);
    m->normed = matrix(m, dtype, ROWS, IN);
    m->up = matrix(m, dtype, ROWS, HIDDEN);
    m->skip = matrix(m, dtype, ROWS, HIDDEN);
    m->sum = matrix(m, dtype, ROWS, HIDDEN);
    m->hidden = matrix(m, dtype, ROWS, HIDDEN);
    m->logits = matrix(m, dtype, ROWS, CLASSES);
    m->dhidden = matrix(m, dtype, ROWS, HIDDEN);
    m->dup = matrix(m, dtype, ROWS, HIDDEN);
    m->dnormed = matrix(m, dtype, ROWS, IN);
    m->dx = matrix(m, dtype, ROWS, IN);
    m->loss_sum = tutti_tensor_1d(room(m, sizeof(double)), TUTTI_F64, 1);
    plan(m);
}

static void tear_down(model *m)
{
    CHECK_OK(tutti_context_synchronize(m->ctx));
    tutti_adamw_destroy(&m->adamw);
    tutti_grad_sync_destroy(&m->sync);
    tutti_comm_destroy(&m->comm);
    tutti_params_destroy(&m->params);
    tutti_step_block_destroy(&m->step);
    for (int i = 0; i < LAYERS; i++) tutti_layer_destroy(&m->layers[i]);
    tutti_layer_destroy(&m->loss);
    for (int i = 0; i < m->memories; i++) CHECK_OK(tutti_free(m->ctx, &m->memory[i]));
}

static bool find_norm(model *m)
{
    const tutti_grad_norm_desc desc = {.clip_norm = 1, .skip_nonfinite = 1};
    return CHECK_OK(tutti_grad_norm(m->ctx, m->grads, PARAMS, m->step, &desc, &m->norm));
}

/* The update, of the store or of the list. */
static bool update(model *m)
{
    if (!m->list[0]) return CHECK_OK(tutti_adamw_update(m->adamw, m->ctx, m->step));
    const tutti_update_call call = {.params = m->list,
                                    .count = PARAMS,
                                    .state = {m->states[0], m->states[1]},
                                    .step = m->step,
                                    .updates = &m->updates,
                                    .norm = &m->norm};
    return find_norm(m) && CHECK_OK(tutti_adamw_apply(m->ctx, NULL, &call));
}

/* Forward, backward, exchange, update.  Some calls of backward declare their layer ready, for
 * others the program does. */
static bool run_step(model *m)
{
    tutti_context *ctx = m->ctx;
    tutti_layer **l = m->layers;
    return CHECK_OK(tutti_embedding_forward(l[TABLE], ctx, &m->table_call)) &&
           CHECK_OK(tutti_rmsnorm_forward(l[RMS], ctx, &m->rms_call)) &&
           CHECK_OK(tutti_linear_forward(l[UP], ctx, &m->up_call)) &&
           CHECK_OK(tutti_layernorm_forward(l[LAYER], ctx, &m->layer_call)) &&
           CHECK_OK(tutti_linear_forward(l[HEAD], ctx, &m->head_call)) &&
           CHECK_OK(tutti_cross_entropy_forward(m->loss, ctx, &m->loss_call)) &&
           CHECK_OK(tutti_linear_backward(l[HEAD], ctx, &m->head_call)) &&
           CHECK_OK(tutti_grad_sync_ready(m->sync, ctx, l[HEAD])) &&
           CHECK_OK(tutti_layernorm_backward(l[LAYER], ctx, &m->layer_back_call)) &&
           CHECK_OK(tutti_linear_backward(l[UP], ctx, &m->up_call)) &&
           CHECK_OK(tutti_grad_sync_ready(m->sync, ctx, l[UP])) &&
           CHECK_OK(tutti_rmsnorm_backward(l[RMS], ctx, &m->rms_call)) &&
           CHECK_OK(tutti_embedding_backward(l[TABLE], ctx, &m->table_call)) &&
           CHECK_OK(tutti_grad_sync_ready(m->sync, ctx, l[TABLE])) &&
           CHECK_OK(tutti_grad_sync_finish(m->sync, ctx)) && update(m);
}

/* The batch and the values of one step. */
static void feed(model *m, int step)
{
    harness_rng rng = {(uint64_t)step + 1};
    double values[ROWS * HIDDEN];
    for (int i = 0; i < ROWS; i++) /* half of the rows have one token: a long run, once sorted */
        values[i] = i % 2 ? 7 : (double)(harness_random(&rng) % VOCAB);
    harness_put(m->ctx, &m->tokens, values);
    harness_fill(&rng, values, ROWS * HIDDEN, m->skip.dtype, 0, 1);
    harness_put(m->ctx, &m->skip, values);
    for (int i = 0; i < ROWS; i++)
        values[i] = i % 7 == step ? -1 : (double)(harness_random(&rng) % CLASSES);
    harness_put(m->ctx, &m->labels, values);
    tutti_step_values block = {.step = 1, .loss_weight = 1};
    block.step = step + 1;
    block.learning_rate = 1e-2 / (1 + step * step);
    block.loss_weight = 1.0 / (ROWS + step);
    block.loss_scale = m->x.dtype == TUTTI_F16 ? (step & 1 ? 512 : 1024) : 1;
    CHECK_OK(tutti_step_block_set(m->step, m->ctx, &block));
}

/* Lists the store's parameters, with a state of their own. */
static void set_up_parts(model *m)
{
    CHECK(tutti_params_count(m->params) == PARAMS, "%d parameters", tutti_params_count(m->params));
    for (int i = 0; i < PARAMS; i++) {
        m->list[i] = tutti_params_get(m->params, i);
        const tutti_tensor *grad = &m->list[i]->grad;
        m->grads[i] = *grad;
        for (int s = 0; s < 2; s++) {
            m->states[s][i] = *grad;
            m->states[s][i].data =
                room(m, (size_t)tutti_tensor_count(grad) * tutti_dtype_size(grad->dtype));
        }
    }
    m->updates = tutti_tensor_1d(room(m, sizeof(double)), TUTTI_F64, 1);
    m->norm = tutti_tensor_1d(room(m, sizeof(tutti_grad_norm_values)), TUTTI_F64, 4);
    feed(m, 0);
    find_norm(m); /* as it may need scratch, which does not grow in a capture */
}

static void check_same(const char *what, model *a, const void *data_a, const void *data_b,
                       size_t bytes)
{
    unsigned char *bits = harness_calloc(2, bytes);
    CHECK_OK(tutti_copy(a->ctx, bits, data_a, bytes));
    CHECK_OK(tutti_copy(a->ctx, bits + bytes, data_b, bytes));
    CHECK_OK(tutti_context_synchronize(a->ctx));
    CHECK(memcmp(bits, bits + bytes, bytes) == 0, "%s has other bits", what);
    free(bits);
}

static void compare(model *a, model *b)
{
    static const tutti_params_buffer buffers[] = {TUTTI_PARAMS_GRAD, TUTTI_PARAMS_MASTER,
                                                  TUTTI_PARAMS_WORKING};
    static const char *const names[] = {"the gradients", "the masters", "the working values"};
    for (int i = 0; i < HARNESS_COUNT(buffers); i++) {
        tutti_tensor flat_a, flat_b;
        CHECK_OK(tutti_params_flat(a->params, buffers[i], &flat_a));
        CHECK_OK(tutti_params_flat(b->params, buffers[i], &flat_b));
        if (!flat_a.data) continue;
        check_same(names[i], a, flat_a.data, flat_b.data,
                   (size_t)tutti_tensor_count(&flat_a) * tutti_dtype_size(flat_a.dtype));
    }
    check_same("loss_sum", a, a->loss_sum.data, b->loss_sum.data, sizeof(double));
}

static double loss_of(model *m)
{
    double loss = 0;
    CHECK_OK(tutti_copy(m->ctx, &loss, m->loss_sum.data, sizeof loss));
    CHECK_OK(tutti_context_check(m->ctx));
    return loss;
}

/* The number of updates that were made. */
static double updates_of(model *m)
{
    tutti_adamw_stats stats;
    double updates;
    if (!m->list[0]) {
        CHECK_OK(tutti_adamw_get_stats(m->adamw, m->ctx, &stats));
        return (double)stats.updates;
    }
    CHECK_OK(tutti_copy(m->ctx, &updates, m->updates.data, sizeof updates));
    CHECK_OK(tutti_context_synchronize(m->ctx));
    return updates;
}

/* parts: the captured step's optimizer is in parts, the other one's of the store. */
static void check_graph(tutti_dtype dtype, bool parts)
{
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "no stream");
    tutti_context *ctx = NULL;
    CHECK_OK(tutti_context_create_on_stream(0, stream, &ctx));
    CHECK(tutti_context_stream(ctx) == stream, "the context is on another stream");
    model plain, captured;
    set_up(&plain, ctx, dtype);
    set_up(&captured, ctx, dtype);
    if (parts) set_up_parts(&captured);
    compare(&plain, &captured);
    CHECK(updates_of(&captured) == 0,
          "updates before the first step"); /* also asks for them early */

    cudaGraph_t graph = NULL;
    cudaGraphExec_t replay = NULL;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess,
          "no capture");
    bool ok = run_step(&captured);
    cudaError_t error = cudaStreamEndCapture(stream, &graph);
    ok = CHECK(error == cudaSuccess && graph, "capture: %s", cudaGetErrorString(error)) && ok;
    if (ok) {
        error = cudaGraphInstantiate(&replay, graph, 0);
        ok = CHECK(error == cudaSuccess, "instantiate: %s", cudaGetErrorString(error));
    }
    double first = 0;
    for (int step = 0; step < STEPS && ok; step++) {
        harness_where("%s, step %d", tutti_dtype_name(dtype), step);
        feed(&plain, step);
        feed(&captured, step);
        ok = run_step(&plain);
        error = cudaGraphLaunch(replay, stream);
        CHECK(error == cudaSuccess, "launch: %s", cudaGetErrorString(error));
        CHECK_OK(tutti_context_synchronize(ctx));
        compare(&plain, &captured);
        double loss = loss_of(&captured);
        CHECK(loss > 0 && loss != first, "the loss is %g, was %g", loss, first);
        first = loss;
        const double updates = updates_of(&captured);
        CHECK(updates == step + 1, "%g updates after %d steps", updates, step + 1);
    }
    if (replay) cudaGraphExecDestroy(replay);
    if (graph) cudaGraphDestroy(graph);
    tear_down(&plain);
    tear_down(&captured);
    tutti_context_destroy(&ctx);
    cudaStreamDestroy(stream);
}

static void test_f32(void)
{
    check_graph(TUTTI_F32, false);
}
static void test_bf16(void)
{
    check_graph(TUTTI_BF16, false);
}
static void test_f16(void)
{
    check_graph(TUTTI_F16, false);
}
static void test_f64(void)
{
    check_graph(TUTTI_F64, false);
}

static void test_parts(void)
{
    check_graph(TUTTI_F32, true);
    check_graph(TUTTI_BF16, true);
    check_graph(TUTTI_F64, true);
}

/* Calls that would allocate, synchronise or be frozen into the graph are refused, and the capture
 * continues. */
static void test_refusals(void)
{
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "no stream");
    tutti_context *ctx = NULL;
    CHECK_OK(tutti_context_create_on_stream(0, stream, &ctx));
    model m;
    set_up(&m, ctx, TUTTI_F32);
    feed(&m, 0);
    tutti_tensor few_in = tutti_tensor_2d(m.normed.data, TUTTI_F32, ROWS - 1, IN);
    tutti_tensor few_out = tutti_tensor_2d(m.up.data, TUTTI_F32, ROWS - 1, HIDDEN);
    tutti_step_values values = {.step = 1, .loss_weight = 1};

    cudaGraph_t graph = NULL;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess,
          "no capture");
    CHECK_FAILS(
        TUTTI_ERR_STATE, "captured",
        tutti_linear_forward(m.layers[UP], ctx, &(tutti_linear_call){.x = &few_in, .y = &few_out}));
    CHECK_FAILS(TUTTI_ERR_STATE, "captured", tutti_step_block_set(m.step, ctx, &values));
    CHECK_FAILS(TUTTI_ERR_STATE, "captured", tutti_context_synchronize(ctx));
    CHECK_FAILS(TUTTI_ERR_STATE, "captured", tutti_context_check(ctx));
    CHECK_FAILS(TUTTI_ERR_STATE, "captured", tutti_context_tune(ctx, 1));
    CHECK_FAILS(TUTTI_ERR_STATE, "captured", tutti_context_tuning_set(ctx, NULL, 0));
    run_step(&m);
    cudaError_t error = cudaStreamEndCapture(stream, &graph);
    CHECK(error == cudaSuccess && graph, "the capture was broken: %s", cudaGetErrorString(error));
    if (graph) cudaGraphDestroy(graph);
    tear_down(&m);
    tutti_context_destroy(&ctx);
    cudaStreamDestroy(stream);
}

int main(int argc, char **argv)
{
    static const harness_test tests[] = {
        {"whole step, f32", test_f32},      {"whole step, bf16", test_bf16},
        {"whole step, f16", test_f16},      {"whole step, f64", test_f64},
        {"optimizer in parts", test_parts}, {"refused in a capture", test_refusals},
    };
    return harness_main(argc, argv, "graph", tests, HARNESS_COUNT(tests));
}
