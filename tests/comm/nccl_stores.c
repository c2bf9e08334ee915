/* Steps of a store, in a graph and not, by turns: the values, and without shards the sums, are
 * those of the same steps without one, in which NCCL sends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/params.h"
#include "nccl_parts.h"
#include "tutti/adamw.h"
#include "tutti/cuda.h"

enum { SHARD_COUNT = 100000 };
typedef struct shard_kind {
    bool whole; /* not sharded */
    int leaves;
    tutti_dtype wire;
    bool exclusive;
} shard_kind;
typedef struct shard_model {
    const shard_kind *kind;
    tutti_context *ctx;
    tutti_params *store;
    tutti_param params[PARAMS];
    tutti_adamw *adamw;
    tutti_step_block *block;
    tutti_grad_sync *sync;
} shard_model;

/* Of parameter i: the last one to be ready has two ranges of a sharded store, of which the second
 * one's pieces take the place of the first one's, and those the place of none, behind padding. */
static int count_of(int i)
{
    return i == 0 ? 2 * TUTTI__NORM_RUN * rig_size() : SHARD_COUNT;
}

static tutti_status open_shard(shard_model *m, tutti_comm *comm, tutti_engine engine)
{
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    tutti_grad_sync_desc options = TUTTI_GRAD_SYNC_DESC_INIT;
    const tutti_step_values values = {
        .step = 1, .loss_weight = 1, .learning_rate = 0.01, .loss_scale = 1};
    if (m->kind->whole) {
        /* more ranges than bf16 has wires, each in slices */
        options.range_bytes = options.last_range_bytes = SHARD_COUNT * sizeof(float) / 4;
    } else {
        desc.shards = rig_size();
        desc.shard = rig_rank();
        desc.range_bytes = 1;
    }
    options.leaves = m->kind->leaves;
    options.wire = m->kind->wire;
    options.engine = engine;
    options.exclusive = m->kind->exclusive;
    CHECK_OK(tutti_params_create(m->ctx, &desc, &m->store));
    for (int i = 0; i < PARAMS; i++) {
        tutti_param *param = &m->params[i];
        *param = (tutti_param){.lr_scale = 1, .init = TUTTI_INIT_UNIFORM, .init_bound = 1};
        snprintf(param->name, sizeof param->name, "p%d", i);
        param->value = tutti_tensor_1d(NULL, i == 1 ? TUTTI_F32 : TUTTI_BF16, count_of(i));
        CHECK_OK(tutti_params_add_param(m->store, param));
    }
    rig_build(m->ctx, m->store, &m->adamw, &m->block);
    CHECK_OK(tutti_step_block_set(m->block, m->ctx, &values));
    return tutti_grad_sync_create(m->ctx, comm, m->store, &options, &m->sync);
}

static void close_shard(shard_model *m)
{
    tutti_grad_sync_destroy(&m->sync);
    tutti_adamw_destroy(&m->adamw);
    tutti_step_block_destroy(&m->block);
    tutti_params_destroy(&m->store);
}

static tutti_status run_shard(shard_model *m)
{
    tutti_status status = TUTTI_OK;
    int first = 0, count = 1;
    const bool leaves = m->kind->leaves > 0; /* which have the same gradients */
    if (leaves) status = tutti_grad_sync_own_leaves(m->sync, &first, &count);
    for (int leaf = first; leaf < first + count && status == TUTTI_OK; leaf++) {
        if (leaves) status = tutti_grad_sync_leaves_begin(m->sync, m->ctx, leaf, 1);
        for (int i = PARAMS - 1; i >= 0 && status == TUTTI_OK; i--)
            status = tutti_grad_sync_ready_param(m->sync, m->ctx, &m->params[i]);
        if (leaves && status == TUTTI_OK) status = tutti_grad_sync_leaves_end(m->sync, m->ctx);
    }
    if (status == TUTTI_OK) status = tutti_grad_sync_finish(m->sync, m->ctx);
    return status == TUTTI_OK ? tutti_adamw_update(m->adamw, m->ctx, m->block) : status;
}

static void fill_shard(shard_model *m, int seed)
{
    for (int i = 0; i < PARAMS; i++) fill(m->ctx, m->params[i].grad.data, count_of(i), seed + i);
}

static void same_tensors(tutti_context *ctx, const tutti_tensor *a, const tutti_tensor *b,
                         const char *what, const char *when, int turn)
{
    const size_t bytes = (size_t)tutti_tensor_count(a) * tutti_dtype_size(a->dtype);
    char *got = harness_calloc(bytes, 1), *want = harness_calloc(bytes, 1);
    CHECK_OK(tutti_copy(ctx, got, a->data, bytes));
    CHECK_OK(tutti_copy(ctx, want, b->data, bytes));
    CHECK_OK(tutti_context_synchronize(ctx));
    CHECK(memcmp(got, want, bytes) == 0, "%s %d: %s differs", when, turn, what);
    free(got);
    free(want);
}

static void same_shards(shard_model *a, shard_model *b, const char *when, int turn)
{
    CHECK_OK(tutti_params_settle(a->store, a->ctx));
    CHECK_OK(tutti_context_synchronize(a->ctx));
    for (int i = 0; i < PARAMS; i++) {
        const tutti_param *p = &a->params[i], *q = &b->params[i];
        char sum[sizeof p->name + 16];
        snprintf(sum, sizeof sum, "%s's sum", p->name);
        if (a->kind->whole) same_tensors(a->ctx, &p->grad, &q->grad, sum, when, turn);
        same_tensors(a->ctx, &p->value, &q->value, p->name, when, turn);
    }
}

/* Values on their way: a graph could not wait for them. */
static void capture_refused(shard_model *m, cudaStream_t stream)
{
    cudaGraph_t graph = NULL;
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_FAILS(TUTTI_ERR_STATE, "on their way", tutti_params_settle(m->store, m->ctx));
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    if (graph) CHECK_CUDA(cudaGraphDestroy(graph));
}

static void shard_turns(shard_model *graph_model, shard_model *plain, cudaStream_t stream)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t replay = NULL;
    for (int turn = 0; turn < 8; turn++) {
        fill_shard(graph_model, turn);
        fill_shard(plain, turn);
        CHECK_OK(run_shard(plain));
        if (turn == 1) {
            CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
            CHECK_OK(run_shard(graph_model));
            CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
            CHECK_CUDA(cudaGraphInstantiate(&replay, graph, 0));
        }
        const bool replays = replay && turn % 4 != 0;
        /* while a rank is late, others must wait for its pieces */
        if (replays && rig_rank() == rig_size() - 1)
            nanosleep(&(struct timespec){0, 20000000}, NULL);
        if (replays)
            CHECK_CUDA(cudaGraphLaunch(replay, stream));
        else
            CHECK_OK(run_shard(graph_model));
        if (turn == 0 && graph_model->kind->exclusive) capture_refused(graph_model, stream);
        if (turn == 4) continue; /* and the replay behind this step waits for nothing in between */
        same_shards(graph_model, plain, replays ? "replay" : "step", turn);
    }
    if (replay) CHECK_CUDA(cudaGraphExecDestroy(replay));
    if (graph) CHECK_CUDA(cudaGraphDestroy(graph));
}

static void captured_shards(tutti_engine engine, shard_kind kind)
{
    int device = tutti_context_device(rig_context());
    cudaStream_t stream;
    CHECK_CUDA(cudaSetDevice(device));
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    tutti_context *ctx = NULL;
    CHECK_OK(tutti_context_create_on_stream(device, stream, &ctx));
    tutti_comm *comm = rig_comm(ctx, TUTTI_TRANSPORT_NCCL);
    if (comm) {
        shard_model graph_model = {.kind = &kind, .ctx = ctx}, plain = graph_model;
        const tutti_status status = open_shard(&graph_model, comm, engine);
        if (status == TUTTI_ERR_UNSUPPORTED)
            harness_skip("%s", tutti_last_error());
        else if (CHECK_OK(status) && CHECK_OK(open_shard(&plain, comm, TUTTI_ENGINE_TRANSPORT)))
            shard_turns(&graph_model, &plain, stream);
        close_shard(&graph_model);
        close_shard(&plain);
    }
    tutti_comm_destroy(&comm);
    tutti_context_destroy(&ctx);
    CHECK_CUDA(cudaStreamDestroy(stream));
}

void captured_messages(void)
{
    captured_shards(TUTTI_ENGINE_TRANSPORT, (shard_kind){.whole = false});
}

void captured_copies(void)
{
    captured_shards(TUTTI_ENGINE_COPY, (shard_kind){.whole = false});
    captured_shards(TUTTI_ENGINE_COPY, (shard_kind){.exclusive = true});
    captured_shards(TUTTI_ENGINE_COPY, (shard_kind){.exclusive = true, .leaves = 8});
}

void captured_spread(void)
{
    static const shard_kind kinds[] = {
        {.whole = true}, {.whole = true, .wire = TUTTI_BF16}, {.whole = true, .leaves = 8}};
    for (int i = 0; i < HARNESS_COUNT(kinds); i++) {
        harness_where("%d leaves, wire %d", kinds[i].leaves, (int)kinds[i].wire);
        captured_shards(TUTTI_ENGINE_COPY, kinds[i]);
    }
    harness_where(NULL);
}
