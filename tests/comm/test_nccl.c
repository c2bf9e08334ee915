/* What only nccl supports: a caller's ncclComm_t, work that is captured in a CUDA graph and
 * replayed, and deadlines of work on a stream. */
#include <cuda_runtime_api.h>
#include <mpi.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "deadline.h"
#include "nccl_parts.h"
#include "tutti/cross_entropy.h"
#include "tutti/cuda.h"
#include "tutti/nccl.h"

enum { COUNT = 3000 };

void fill(tutti_context *ctx, float *data, int count, int seed)
{
    float *host = harness_calloc((size_t)count, sizeof *host);
    for (int i = 0; i < count; i++) host[i] = (float)((i + seed) % 97 + rig_rank());
    CHECK_OK(tutti_copy(ctx, data, host, (size_t)count * sizeof *host));
    CHECK_OK(tutti_context_synchronize(ctx));
    free(host);
}

static void expect_sum(tutti_context *ctx, const float *data, int count, int seed)
{
    float *host = harness_calloc((size_t)count, sizeof *host);
    CHECK_OK(tutti_context_synchronize(ctx));
    CHECK_OK(tutti_copy(ctx, host, data, (size_t)count * sizeof *host));
    CHECK_OK(tutti_context_synchronize(ctx));
    int n = rig_size();
    for (int i = 0; i < count; i++) {
        float want = (float)((i + seed) % 97 * n + n * (n - 1) / 2);
        if (!CHECK(host[i] == want, "element %d is %g, want %g", i, host[i], want)) break;
    }
    free(host);
}

/* Over the caller's own communicator, which is still good afterwards. */
static void from_nccl(void)
{
    if (!rig_has_gpu_each()) {
        harness_skip("%d ranks need a GPU each, there are %d", rig_size(), harness_devices());
        return;
    }
    tutti_context *ctx = rig_context();
    CHECK_CUDA(cudaSetDevice(tutti_context_device(ctx)));
    ncclUniqueId id;
    ncclComm_t own = NULL;
    if (rig_rank() == 0) CHECK(ncclGetUniqueId(&id) == ncclSuccess, "no unique id");
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (!CHECK(ncclCommInitRank(&own, rig_size(), id, rig_rank()) == ncclSuccess, "no NCCL"))
        return;
    tutti_comm *comm = NULL;
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    desc.transport = TUTTI_TRANSPORT_MPI;
    CHECK_FAILS(TUTTI_ERR_ARG, "transport", tutti_comm_create_from_nccl(ctx, own, &desc, &comm));
    CHECK_FAILS(TUTTI_ERR_ARG, "nccl_comm", tutti_comm_create_from_nccl(ctx, NULL, NULL, &comm));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_comm_create_from_nccl(NULL, own, NULL, &comm));
    CHECK_FAILS(TUTTI_ERR_ARG, "comm", tutti_comm_create_from_nccl(ctx, own, NULL, NULL));
    CHECK_OK(tutti_comm_create_from_nccl(ctx, own, NULL, &comm));
    CHECK(tutti_comm_rank(comm) == rig_rank() && tutti_comm_world_size(comm) == rig_size(),
          "rank %d of %d", tutti_comm_rank(comm), tutti_comm_world_size(comm));

    float *data = NULL;
    CHECK_OK(tutti_alloc(ctx, COUNT * sizeof *data, (void **)&data));
    fill(ctx, data, COUNT, 1);
    CHECK_OK(tutti_comm_all_reduce(comm, ctx, data, data, COUNT, TUTTI_F32, TUTTI_SUM));
    expect_sum(ctx, data, COUNT, 1);
    /* agreement without MPI */
    CHECK_OK(tutti_comm_agree(comm, TUTTI_OK));
    int last = rig_size() - 1;
    tutti_status mine = rig_rank() == last ? tutti_alloc(NULL, 1, NULL) : TUTTI_OK;
    CHECK(tutti_comm_agree(comm, mine) == TUTTI_ERR_ARG, "agreed on something else");
    CHECK(strstr(tutti_last_error(), "alloc") != NULL, "message: %s", tutti_last_error());
    CHECK_OK(tutti_comm_barrier(comm, ctx));
    tutti_allocator allocator = tutti_comm_allocator(comm);
    void *window = NULL;
    CHECK_OK(allocator.alloc(allocator.self, 1 << 20, &window));
    CHECK((uintptr_t)window % 256 == 0, "%p is not aligned", window);
    CHECK_OK(allocator.free(allocator.self, window));
    tutti_comm_destroy(&comm);
    CHECK(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, own, tutti_context_stream(ctx)) ==
              ncclSuccess,
          "the caller's communicator no longer works");
    CHECK_OK(tutti_context_synchronize(ctx));
    CHECK_OK(tutti_free(ctx, (void **)&data));
    CHECK(ncclCommDestroy(own) == ncclSuccess, "ncclCommDestroy fails");
}

typedef struct step {
    tutti_context *ctx;
    tutti_comm *comm;
    tutti_grad_sync *sync;
    tutti_param params[PARAMS];
    const tutti_param *list[PARAMS];
    float *grads, *verb;
} step;

static tutti_status run_step(step *s)
{
    for (int i = 0; i < PARAMS; i++) {
        tutti_status status = tutti_grad_sync_ready_param(s->sync, s->ctx, s->list[i]);
        if (status != TUTTI_OK) return status;
    }
    tutti_status status = tutti_grad_sync_finish(s->sync, s->ctx);
    if (status != TUTTI_OK) return status;
    return tutti_comm_all_reduce(s->comm, s->ctx, s->verb, s->verb, COUNT, TUTTI_F32, TUTTI_SUM);
}

static void fill_step(step *s, int seed)
{
    fill(s->ctx, s->grads, PARAMS * COUNT, seed);
    fill(s->ctx, s->verb, COUNT, seed + 5);
}

static void expect_step(step *s, int seed)
{
    expect_sum(s->ctx, s->grads, PARAMS * COUNT, seed);
    expect_sum(s->ctx, s->verb, COUNT, seed + 5);
}

/* Options that work on the host are refused in a graph. */
static void refused(step *s, cudaStream_t stream)
{
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.timeline = 1;
    tutti_grad_sync *sync = NULL;
    cudaGraph_t graph = NULL;
    CHECK_OK(tutti_grad_sync_create_list(s->ctx, s->comm, s->list, PARAMS, &desc, &sync));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_FAILS(TUTTI_ERR_STATE, "captured", tutti_grad_sync_ready_param(sync, s->ctx, s->list[0]));
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    if (graph) CHECK_CUDA(cudaGraphDestroy(graph));
    tutti_grad_sync_destroy(&sync);
}

static bool step_open(step *s, tutti_transport transport)
{
    s->comm = rig_comm(s->ctx, transport);
    if (!s->comm) return false;
    tutti_allocator memory = tutti_comm_allocator(s->comm);
    CHECK_OK(memory.alloc(memory.self, PARAMS * COUNT * sizeof(float), (void **)&s->grads));
    CHECK_OK(tutti_alloc(s->ctx, COUNT * sizeof(float), (void **)&s->verb));
    for (int i = 0; i < PARAMS; i++) {
        snprintf(s->params[i].name, sizeof s->params[i].name, "p%d", i);
        s->params[i].grad = tutti_tensor_1d(s->grads + i * COUNT, TUTTI_F32, COUNT);
        s->params[i].value = s->params[i].grad;
        s->list[i] = &s->params[i];
    }
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.range_bytes = 4096;
    desc.engine = TUTTI_ENGINE_TRANSPORT;
    CHECK_OK(tutti_grad_sync_create_list(s->ctx, s->comm, s->list, PARAMS, &desc, &s->sync));
    fill_step(s, 3);
    CHECK_OK(run_step(s)); /* connects */
    expect_step(s, 3);
    return true;
}

static void step_close(step *s)
{
    if (s->comm) {
        tutti_allocator memory = tutti_comm_allocator(s->comm);
        tutti_grad_sync_destroy(&s->sync);
        CHECK_OK(tutti_free(s->ctx, (void **)&s->verb));
        CHECK_OK(memory.free(memory.self, s->grads));
    }
    tutti_comm_destroy(&s->comm);
}

static void captured_over(tutti_transport transport)
{
    int device = tutti_context_device(rig_context());
    cudaStream_t stream;
    CHECK_CUDA(cudaSetDevice(device));
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    step s = {0};
    CHECK_OK(tutti_context_create_on_stream(device, stream, &s.ctx));
    if (step_open(&s, transport)) {
        cudaGraph_t graph = NULL;
        cudaGraphExec_t replay = NULL;
        CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        CHECK_OK(run_step(&s));
        CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
        CHECK_CUDA(cudaGraphInstantiate(&replay, graph, 0));
        for (int i = 0; i < 4 && replay; i++) {
            fill_step(&s, 10 + i);
            CHECK_CUDA(cudaGraphLaunch(replay, stream));
            expect_step(&s, 10 + i);
        }
        fill_step(&s, 30);
        CHECK_OK(run_step(&s)); /* and again without */
        expect_step(&s, 30);
        refused(&s, stream);
        if (replay) CHECK_CUDA(cudaGraphExecDestroy(replay));
        if (graph) CHECK_CUDA(cudaGraphDestroy(graph));
    }
    step_close(&s);
    tutti_context_destroy(&s.ctx);
    CHECK_CUDA(cudaStreamDestroy(stream));
}

static void captured_self(void)
{
    captured_over(TUTTI_TRANSPORT_SELF);
}

static void captured_nccl(void)
{
    captured_over(TUTTI_TRANSPORT_NCCL);
}

/* A loss whose weight is counted in the graph: the gradients of each replay have the bits of an
 * uncaptured call with the weight that the host computes. */
enum { LOSS_ROWS = 300, LOSS_COLS = 9 };
typedef struct weighed {
    tutti_context *ctx;
    tutti_comm *comm;
    tutti_layer *loss;
    tutti_step_block *step;
    float *logits, *dlogits;
    int32_t *labels;
    double *count;
} weighed;

static tutti_status weighed_loss(const weighed *w, bool counts)
{
    tutti_tensor x = tutti_tensor_2d(w->logits, TUTTI_F32, LOSS_ROWS, LOSS_COLS);
    tutti_tensor dx = tutti_tensor_2d(w->dlogits, TUTTI_F32, LOSS_ROWS, LOSS_COLS);
    tutti_tensor count = tutti_tensor_1d(w->count, TUTTI_F64, 1);
    const tutti_tensor labels = tutti_tensor_1d(w->labels, TUTTI_I32, LOSS_ROWS);
    const tutti_cross_entropy_call call = {
        .logits = &x, .labels = &labels, .dlogits = &dx, .step = w->step};
    if (counts) {
        tutti_status status = tutti_cross_entropy_count(w->loss, w->ctx, &labels, &count, 0);
        if (status == TUTTI_OK)
            status =
                tutti_comm_all_reduce(w->comm, w->ctx, w->count, w->count, 1, TUTTI_F64, TUTTI_SUM);
        if (status == TUTTI_OK) status = tutti_step_block_weigh(w->step, w->ctx, &count);
        if (status != TUTTI_OK) return status;
    }
    return tutti_cross_entropy_forward(w->loss, w->ctx, &call);
}

/* Labels of which some are ignored, by rank and turn; returns how many count on all ranks. */
static int put_labels(const weighed *w, int turn)
{
    int32_t labels[LOSS_ROWS];
    int all = 0;
    for (int rank = 0; rank < rig_size(); rank++)
        for (int i = 0; i < LOSS_ROWS; i++) {
            const int32_t label = (i + turn) % (3 + rank + turn) ? i % LOSS_COLS : -1;
            all += label >= 0;
            if (rank == rig_rank()) labels[i] = label;
        }
    CHECK_OK(tutti_copy(w->ctx, w->labels, labels, sizeof labels));
    CHECK_OK(tutti_context_synchronize(w->ctx));
    return all;
}

static void set_weight(const weighed *w, double weight)
{
    const tutti_step_values values = {.step = 1, .loss_weight = weight, .loss_scale = 4};
    CHECK_OK(tutti_step_block_set(w->step, w->ctx, &values));
}

static void get_gradients(const weighed *w, float got[LOSS_ROWS * LOSS_COLS])
{
    CHECK_OK(tutti_context_synchronize(w->ctx));
    CHECK_OK(tutti_copy(w->ctx, got, w->dlogits, LOSS_ROWS * LOSS_COLS * sizeof *got));
    CHECK_OK(tutti_context_synchronize(w->ctx));
}

static void replay_loss(const weighed *w, cudaGraphExec_t replay, cudaStream_t stream)
{
    static float got[LOSS_ROWS * LOSS_COLS], want[LOSS_ROWS * LOSS_COLS];
    for (int turn = 0; turn < 4; turn++) {
        const int all = put_labels(w, turn);
        set_weight(w, 1);
        CHECK_CUDA(cudaGraphLaunch(replay, stream));
        get_gradients(w, got);
        set_weight(w, 1.0 / all);
        CHECK_OK(weighed_loss(w, false));
        get_gradients(w, want);
        CHECK(memcmp(got, want, sizeof got) == 0, "turn %d: the gradients differ: %g, want %g",
              turn, got[1], want[1]);
    }
}

static bool open_weighed(weighed *w, tutti_transport transport)
{
    tutti_cross_entropy_desc desc = TUTTI_CROSS_ENTROPY_DESC_INIT;
    const size_t bytes = LOSS_ROWS * LOSS_COLS * sizeof(float);
    desc.cols = LOSS_COLS;
    w->comm = rig_comm(w->ctx, transport);
    if (!w->comm) return false;
    CHECK_OK(tutti_cross_entropy_create(w->ctx, &desc, &w->loss));
    CHECK_OK(tutti_step_block_create(w->ctx, &w->step));
    CHECK_OK(tutti_alloc(w->ctx, bytes, (void **)&w->logits));
    CHECK_OK(tutti_alloc(w->ctx, bytes, (void **)&w->dlogits));
    CHECK_OK(tutti_alloc(w->ctx, LOSS_ROWS * sizeof(int32_t), (void **)&w->labels));
    CHECK_OK(tutti_alloc(w->ctx, sizeof(double), (void **)&w->count));
    fill(w->ctx, w->logits, LOSS_ROWS * LOSS_COLS, 5);
    put_labels(w, 0);
    set_weight(w, 1);
    return CHECK_OK(weighed_loss(w, true)); /* plans the loss */
}

static void close_weighed(weighed *w)
{
    void *memory[] = {w->logits, w->dlogits, w->labels, w->count};
    for (int i = 0; i < HARNESS_COUNT(memory); i++) CHECK_OK(tutti_free(w->ctx, &memory[i]));
    tutti_step_block_destroy(&w->step);
    tutti_layer_destroy(&w->loss);
    tutti_comm_destroy(&w->comm);
    tutti_context_destroy(&w->ctx);
}

static void weighed_over(tutti_transport transport)
{
    int device = tutti_context_device(rig_context());
    cudaStream_t stream;
    CHECK_CUDA(cudaSetDevice(device));
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    weighed w = {0};
    CHECK_OK(tutti_context_create_on_stream(device, stream, &w.ctx));
    if (open_weighed(&w, transport)) {
        cudaGraph_t graph = NULL;
        cudaGraphExec_t replay = NULL;
        CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        CHECK_OK(weighed_loss(&w, true));
        CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
        CHECK_CUDA(cudaGraphInstantiate(&replay, graph, 0));
        if (replay) replay_loss(&w, replay, stream);
        if (replay) CHECK_CUDA(cudaGraphExecDestroy(replay));
        if (graph) CHECK_CUDA(cudaGraphDestroy(graph));
    }
    close_weighed(&w);
    CHECK_CUDA(cudaStreamDestroy(stream));
}

static void weighed_self(void)
{
    weighed_over(TUTTI_TRANSPORT_SELF);
}

static void weighed_nccl(void)
{
    weighed_over(TUTTI_TRANSPORT_NCCL);
}

/* The mpi transport works on the host and refuses to be captured. */
static void captured_mpi(void)
{
    int device = tutti_context_device(rig_context());
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    tutti_context *ctx = NULL;
    CHECK_CUDA(cudaSetDevice(device));
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_OK(tutti_context_create_on_stream(device, stream, &ctx));
    tutti_comm *comm = rig_comm(ctx, TUTTI_TRANSPORT_MPI);
    void *data = NULL;
    CHECK_OK(tutti_alloc(ctx, 64, &data));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_FAILS(TUTTI_ERR_STATE, "captured",
                tutti_comm_all_reduce(comm, ctx, data, data, 4, TUTTI_F32, TUTTI_SUM));
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    if (graph) CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_OK(tutti_free(ctx, &data));
    tutti_comm_destroy(&comm);
    tutti_context_destroy(&ctx);
    CHECK_CUDA(cudaStreamDestroy(stream));
}

/* Memory in which a sum has been checked. */
static float *summed(tutti_comm *comm, tutti_context *ctx)
{
    float *data = NULL;
    CHECK_OK(tutti_alloc(ctx, COUNT * sizeof *data, (void **)&data));
    fill(ctx, data, COUNT, 2);
    CHECK_OK(tutti_comm_all_reduce(comm, ctx, data, data, COUNT, TUTTI_F32, TUTTI_SUM));
    expect_sum(ctx, data, COUNT, 2);
    return data;
}

/* The others do not wait for a rank that destroys its communicator late, and all end normally. */
static void late_to_destroy(void)
{
    tutti_context *ctx = harness_new_context(tutti_context_device(rig_context()), 1);
    tutti_comm *comm = rig_comm(ctx, TUTTI_TRANSPORT_NCCL);
    if (comm) {
        float *data = summed(comm, ctx);
        CHECK_OK(tutti_free(ctx, (void **)&data));
        rig_barrier();
        if (rig_rank() == 0) sleep(4);
        double begin = MPI_Wtime();
        tutti_comm_destroy(&comm);
        double seconds = MPI_Wtime() - begin;
        CHECK(seconds < 3, "destroying takes %.1f s", seconds);
        rig_barrier();
    }
    tutti_context_destroy(&ctx);
}

/* From and into registered windows and plain memory, long and short. */
static void all_to_all_windows(void)
{
    enum { LONG = 1 << 20 };
    tutti_context *ctx = rig_context();
    tutti_comm *comm = rig_comm(ctx, TUTTI_TRANSPORT_NCCL);
    if (!comm) return;
    tutti_allocator memory = tutti_comm_allocator(comm);
    int n = rig_size(), rank = rig_rank();
    size_t bytes = (size_t)n * LONG * sizeof(int32_t);
    int32_t *data[2][2], *host = harness_calloc((size_t)n * LONG, sizeof *host);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(tutti_alloc(ctx, bytes, (void **)&data[i][0]));
        CHECK_OK(memory.alloc(memory.self, bytes, (void **)&data[i][1]));
    }
    for (int choice = 0; choice < 8; choice++) {
        int32_t *send = data[0][choice & 1], *recv = data[1][choice >> 1 & 1];
        int count = choice & 4 ? LONG : 100;
        harness_where("send in a window: %d, recv: %d, count %d", choice & 1, choice >> 1 & 1,
                      count);
        for (int i = 0; i < n * count; i++) host[i] = rank * 100 * LONG + choice + i;
        CHECK_OK(tutti_copy(ctx, send, host, (size_t)(n * count) * sizeof *host));
        CHECK_OK(tutti_zero(ctx, recv, bytes));
        CHECK_OK(tutti_comm_all_to_all(comm, ctx, send, recv, count, TUTTI_I32));
        if (!CHECK_OK(tutti_context_synchronize(ctx)))
            return; /* memory in flight must not be freed */
        CHECK_OK(tutti_copy(ctx, host, recv, (size_t)(n * count) * sizeof *host));
        CHECK_OK(tutti_context_synchronize(ctx));
        int wrong = 0;
        for (int i = 0; i < n * count; i++)
            wrong += host[i] != i / count * 100 * LONG + choice + rank * count + i % count;
        CHECK(wrong == 0, "%d of %d elements are wrong", wrong, n * count);
    }
    harness_where(NULL);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(tutti_free(ctx, (void **)&data[i][0]));
        CHECK_OK(memory.free(memory.self, data[i][1]));
    }
    free(host);
    tutti_comm_destroy(&comm);
}

/* Idling for longer than the deadline is no error while no sum is under way. */
static void idle(void)
{
    enum { DEADLINE = 2 };
    tutti_context *ctx = rig_context();
    tutti_comm *comm = rig_comm(ctx, TUTTI_TRANSPORT_NCCL);
    if (!comm) return;
    float *data = summed(comm, ctx); /* connects */
    set_deadline(comm, DEADLINE);
    for (int i = 0; i < 2; i++) {
        fill(ctx, data, COUNT, 4);
        rig_barrier(); /* otherwise a sum would wait for a late rank */
        CHECK_OK(tutti_comm_all_reduce(comm, ctx, data, data, COUNT, TUTTI_F32, TUTTI_SUM));
        sleep(i == 0 ? DEADLINE + 2 : 0);
        expect_sum(ctx, data, COUNT, 4);
    }
    CHECK_OK(tutti_free(ctx, (void **)&data));
    tutti_comm_destroy(&comm);
}

/* Nor is waiting for a late rank while this one computes: layer calls and copies are signs of
 * life. */
static void busy(void)
{
    enum { DEADLINE = 2 };
    tutti_context *ctx = rig_context();
    tutti_comm *comm = rig_comm(ctx, TUTTI_TRANSPORT_NCCL);
    if (!comm) return;
    float *data = summed(comm, ctx), *other = NULL;
    CHECK_OK(tutti_alloc(ctx, COUNT * sizeof *other, (void **)&other));
    CHECK_OK(tutti_zero(
        ctx, other, COUNT * sizeof *other)); /* loads its kernel, which would wait behind a sum */
    fill(ctx, data, COUNT, 6);
    set_deadline(comm, DEADLINE);
    rig_barrier();
    if (rig_rank() == 0) sleep(DEADLINE + 2);
    CHECK_OK(tutti_comm_all_reduce(comm, ctx, data, data, COUNT, TUTTI_F32, TUTTI_SUM));
    double begin = MPI_Wtime();
    while (rig_rank() > 0 && MPI_Wtime() - begin < DEADLINE + 1.5) {
        CHECK_OK(tutti_zero(ctx, other, COUNT * sizeof *other));
        usleep(100000);
    }
    expect_sum(ctx, data, COUNT, 6);
    CHECK_OK(tutti_free(ctx, (void **)&other));
    CHECK_OK(tutti_free(ctx, (void **)&data));
    tutti_comm_destroy(&comm);
}

/* Nor is a step that was given up: none of its sums is under way afterwards. */
static void given_up(void)
{
    enum { DEADLINE = 2 };
    step s = {.ctx = rig_context()};
    if (!step_open(&s, TUTTI_TRANSPORT_NCCL)) return;
    set_deadline(s.comm, DEADLINE);
    rig_barrier();
    CHECK_OK(tutti_grad_sync_ready_param(s.sync, s.ctx, s.list[0]));
    tutti_grad_sync_destroy(&s.sync);
    sleep(DEADLINE + 2);
    fill(s.ctx, s.verb, COUNT, 7);
    rig_barrier();
    CHECK_OK(tutti_comm_all_reduce(s.comm, s.ctx, s.verb, s.verb, COUNT, TUTTI_F32, TUTTI_SUM));
    expect_sum(s.ctx, s.verb, COUNT, 7);
    step_close(&s);
}

/* One rank never joins, and the others wait for their stream without this library. */
static void wait_elsewhere(void)
{
    enum { DEADLINE = 2 };
    tutti_context *ctx = harness_new_context(tutti_context_device(rig_context()), 1);
    tutti_comm *comm = rig_comm(ctx, TUTTI_TRANSPORT_NCCL);
    if (comm) {
        float *data = summed(comm, ctx);
        set_deadline(comm, DEADLINE);
        if (rig_rank() > 0) {
            double begin = MPI_Wtime();
            CHECK_OK(tutti_comm_all_reduce(comm, ctx, data, data, COUNT, TUTTI_F32, TUTTI_SUM));
            CHECK_CUDA(cudaStreamSynchronize(tutti_context_stream(ctx)));
            double seconds = MPI_Wtime() - begin;
            CHECK(seconds > DEADLINE - 0.5 && seconds < DEADLINE + 3, "back after %.1f s", seconds);
            /* the stream was ended by an abort, so there is no sum */
            CHECK_FAILS(TUTTI_ERR_COMM, "blocked in", tutti_context_synchronize(ctx));
            CHECK_FAILS(TUTTI_ERR_COMM, "blocked in", tutti_comm_barrier(comm, ctx));
        }
        rig_barrier();
        if (rig_rank() == 0) CHECK_OK(tutti_free(ctx, (void **)&data));
        tutti_comm_destroy(&comm);
    }
    tutti_context_destroy(&ctx);
}

static const rig_test tests[] = {
    {"sharded steps captured", captured_messages, 2, 0, true},
    {"sharded steps captured by copy engines", captured_copies, 2, 0, true},
    {"steps captured by copy engines", captured_spread, 2, 0, true},
    {"from the caller's NCCL communicator", from_nccl, 1, 0, true},
    {"captured over self", captured_self, 1, 1, true},
    {"captured over nccl", captured_nccl, 1, 0, true},
    {"a weight counted in a graph over self", weighed_self, 1, 1, true},
    {"a weight counted in a graph over nccl", weighed_nccl, 1, 0, true},
    {"captured over mpi", captured_mpi, 1, 0, true},
    {"all-to-all and windows", all_to_all_windows, 1, 0, true},
    {"idle for longer than the deadline", idle, 1, 0, true},
    {"computing for longer than the deadline", busy, 2, 0, true},
    {"a step given up", given_up, 1, 0, true},
    {"waiting in a call of CUDA", wait_elsewhere, 2, 0, true},
    {"late to destroy", late_to_destroy, 2, 0, true},
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "nccl", tests, HARNESS_COUNT(tests));
}
