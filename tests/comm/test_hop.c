/* Small sums in one hop: the bits of a sum in rank order (of more than two ranks test_hop_kernel.c
 * has them), in every call and in every replay of a graph, for all types and up to the largest
 * size; and a rank that never joins hangs nobody. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deadline.h"
#include "rig.h"
#include "tutti/cuda.h"

#define CHECK_CUDA(call) CHECK((call) == cudaSuccess, "%s fails", #call)

typedef struct part {
    tutti_dtype dtype;
    int count;
} part;
/* with the largest that go in one hop, and the smallest that do not */
static const part all_parts[] = {
    {TUTTI_F32, 1}, {TUTTI_F32, 3},    {TUTTI_F32, 4095}, {TUTTI_F32, 16384}, {TUTTI_F32, 16385},
    {TUTTI_F64, 1}, {TUTTI_F64, 8192}, {TUTTI_F64, 8193}, {TUTTI_F16, 32767}, {TUTTI_BF16, 5}};
static const part one_part[] = {{TUTTI_F32, 1000}}, large_part[] = {{TUTTI_F32, 20000}};
enum { PARTS = 10, ROUNDS = 1000 };

/* What the library says of small sums. */
static char said[256];

static void record(void *user, tutti_log_level level, const char *message)
{
    (void)user, (void)level;
    if (strstr(message, "small sums")) snprintf(said, sizeof said, "%s", message);
}

/* Gradients that are not adjacent, so that each is a range, nor aligned to more than an element. */
typedef struct exchange {
    tutti_context *ctx;
    cudaStream_t stream;
    tutti_comm *comm;
    tutti_grad_sync *sync;
    tutti_param params[PARTS];
    const tutti_param *list[PARTS];
    const part *parts;
    int count;
    char *data, *host, *want; /* bytes each */
    size_t at[PARTS], bytes;
    cudaGraph_t graph;
    cudaGraphExec_t replay;
} exchange;

typedef enum path { NOTHING_SAID, ONE_HOP, BY_TRANSPORT } path;

/* Rank 0 is told; the same on all ranks. */
static path path_of(void)
{
    return (path)rig_worst(!said[0]                     ? NOTHING_SAID
                           : strstr(said, "in one hop") ? ONE_HOP
                                                        : BY_TRANSPORT);
}

static bool open_exchange(exchange *e, const part *parts, int count, tutti_engine engine)
{
    const int device = tutti_context_device(rig_context());
    *e = (exchange){.parts = parts, .count = count};
    CHECK_CUDA(cudaSetDevice(device));
    CHECK_CUDA(cudaStreamCreateWithFlags(&e->stream, cudaStreamNonBlocking));
    CHECK_OK(tutti_context_create_on_stream(device, e->stream, &e->ctx));
    e->comm = rig_comm(e->ctx, TUTTI_TRANSPORT_NCCL);
    if (!e->comm) return false;
    for (int p = 0; p < count; p++) {
        const size_t size = tutti_dtype_size(parts[p].dtype);
        e->at[p] = (e->bytes + size - 1) / size * size + size;
        e->bytes = e->at[p] + (size_t)parts[p].count * size;
    }
    CHECK_OK(tutti_alloc(e->ctx, e->bytes, (void **)&e->data));
    e->host = harness_calloc(e->bytes, 1);
    e->want = harness_calloc(e->bytes, 1);
    for (int p = 0; p < count; p++) {
        tutti_param *param = &e->params[p];
        snprintf(param->name, sizeof param->name, "p%d", p);
        param->grad = tutti_tensor_1d(e->data + e->at[p], parts[p].dtype, parts[p].count);
        param->value = param->grad;
        e->list[p] = param;
    }
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.engine = engine;
    said[0] = 0;
    tutti_set_log(record, NULL, TUTTI_LOG_INFO);
    CHECK_OK(tutti_grad_sync_create_list(e->ctx, e->comm, e->list, count, &desc, &e->sync));
    tutti_set_log(NULL, NULL, TUTTI_LOG_WARN);
    return e->sync != NULL;
}

static void close_exchange(exchange *e, bool idle)
{
    if (e->replay) CHECK_CUDA(cudaGraphExecDestroy(e->replay));
    if (e->graph) CHECK_CUDA(cudaGraphDestroy(e->graph));
    tutti_grad_sync_destroy(&e->sync);
    if (idle) CHECK_OK(tutti_free(e->ctx, (void **)&e->data));
    tutti_comm_destroy(&e->comm);
    tutti_context_destroy(&e->ctx);
    CHECK_CUDA(cudaStreamDestroy(e->stream));
    free(e->host);
    free(e->want);
}

static tutti_status run_step(exchange *e)
{
    tutti_status status = TUTTI_OK;
    for (int p = 0; p < e->count && status == TUTTI_OK; p++)
        status = tutti_grad_sync_ready_param(e->sync, e->ctx, e->list[p]);
    return status == TUTTI_OK ? tutti_grad_sync_finish(e->sync, e->ctx) : status;
}

static void capture_step(exchange *e)
{
    CHECK_CUDA(cudaStreamBeginCapture(e->stream, cudaStreamCaptureModeThreadLocal));
    CHECK_OK(run_step(e));
    CHECK_CUDA(cudaStreamEndCapture(e->stream, &e->graph));
    CHECK_CUDA(cudaGraphInstantiate(&e->replay, e->graph, 0));
}

/* Numbers of many magnitudes that the type has: sums of f32 and f64 depend on their order, f16 has
 * room for them. */
static double value_of(tutti_dtype dtype, int round, int rank, int p, int i)
{
    uint32_t h = (uint32_t)(round * 64 + rank * 16 + p + 1) * 2654435761u + (uint32_t)i * 40503u;
    h = (h ^ h >> 15) * 2246822519u;
    h ^= h >> 13;
    const double value = ldexp((double)(h % 255) - 127, (int)(h >> 16) % 13 - 8);
    if (dtype == TUTTI_F16 || dtype == TUTTI_BF16) return value;
    const double fine = value + ldexp((double)h, -40);
    return dtype == TUTTI_F32 ? (double)(float)fine : fine;
}

static void put_bits(char *to, tutti_dtype dtype, double value)
{
    const float single = (float)value;
    const uint16_t half =
        dtype == TUTTI_F16 || dtype == TUTTI_BF16 ? (uint16_t)harness_encode(dtype, value) : 0;
    if (dtype == TUTTI_F64)
        memcpy(to, &value, sizeof value);
    else if (dtype == TUTTI_F32)
        memcpy(to, &single, sizeof single);
    else
        memcpy(to, &half, sizeof half);
}

/* Own values of a round, and the sums in rank order. */
static void fill(exchange *e, int round)
{
    for (int p = 0; p < e->count; p++) {
        const tutti_dtype dtype = e->parts[p].dtype;
        const size_t size = tutti_dtype_size(dtype);
        for (int i = 0; i < e->parts[p].count; i++) {
            double sum = 0;
            for (int rank = 0; rank < rig_size(); rank++) {
                const double value = value_of(dtype, round, rank, p, i);
                const double more = rank ? sum + value : value;
                sum = dtype == TUTTI_F64 ? more : (double)(float)more;
                if (rank == rig_rank())
                    put_bits(e->host + e->at[p] + (size_t)i * size, dtype, value);
            }
            put_bits(e->want + e->at[p] + (size_t)i * size, dtype, sum);
        }
    }
    CHECK_OK(tutti_copy(e->ctx, e->data, e->host, e->bytes));
}

static bool expect_sums(exchange *e)
{
    bool right = true;
    CHECK_OK(tutti_copy(e->ctx, e->host, e->data, e->bytes));
    CHECK_OK(tutti_context_synchronize(e->ctx));
    for (int p = 0; p < e->count; p++) {
        const size_t size = tutti_dtype_size(e->parts[p].dtype), at = e->at[p];
        /* what is too large is NCCL's, whose order of more than two ranks is another */
        if (e->parts[p].count * size > 65536 && rig_size() > 2) continue;
        for (int i = 0; i < e->parts[p].count && right; i++)
            right = CHECK(memcmp(e->host + at + i * size, e->want + at + i * size, size) == 0,
                          "element %d of %d %s", i, e->parts[p].count,
                          tutti_dtype_name(e->parts[p].dtype));
    }
    return right;
}

/* Called and replayed by turns, with other values in each round. */
static void sums(void)
{
    exchange e;
    bool right = open_exchange(&e, all_parts, PARTS, TUTTI_ENGINE_AUTO);
    if (right && path_of() == BY_TRANSPORT)
        harness_skip("%s", said);
    else if (right) {
        CHECK(path_of() == ONE_HOP, "sums do not go in one hop");
        const int rounds = harness_quick() ? ROUNDS / 20 : ROUNDS;
        for (int round = 0; round < rounds && right; round++) {
            const bool replays = round > 1 && round % 3 > 0;
            harness_where("%s %d", replays ? "replay" : "step", round);
            fill(&e, round);
            if (round == 2) capture_step(&e);
            if (replays)
                CHECK_CUDA(cudaGraphLaunch(e.replay, e.stream));
            else
                CHECK_OK(run_step(&e));
            right = expect_sums(&e);
        }
        harness_where(NULL);
    }
    close_exchange(&e, true);
}

/* Nothing is opened that is not wanted, or not used. */
static void unwanted(void)
{
    for (int large = 0; large < 2; large++) {
        exchange e;
        if (open_exchange(&e, large ? large_part : one_part, 1,
                          large ? TUTTI_ENGINE_AUTO : TUTTI_ENGINE_TRANSPORT)) {
            CHECK(path_of() == NOTHING_SAID, "%s", said);
            fill(&e, 0);
            CHECK_OK(run_step(&e));
            if (rig_size() == 2) expect_sums(&e);
        }
        close_exchange(&e, true);
    }
}

/* Rank 0 never joins: the others' stream comes free, and it is named. */
static void never_joins(bool captured)
{
    enum { DEADLINE = 2 };
    exchange e;
    bool idle = true;
    if (open_exchange(&e, one_part, 1, TUTTI_ENGINE_AUTO)) {
        if (path_of() == BY_TRANSPORT) harness_skip("%s", said);
        fill(&e, 0);
        CHECK_OK(run_step(&e));
        if (captured) capture_step(&e);
        CHECK_OK(tutti_context_synchronize(e.ctx));
        set_deadline(e.comm, DEADLINE);
        rig_barrier();
        if (rig_rank() > 0) {
            const double begin = MPI_Wtime();
            if (captured)
                CHECK_CUDA(cudaGraphLaunch(e.replay, e.stream));
            else
                CHECK_OK(run_step(&e));
            CHECK_FAILS(TUTTI_ERR_COMM, "heard from rank 0", tutti_context_synchronize(e.ctx));
            const double seconds = MPI_Wtime() - begin;
            CHECK(seconds > DEADLINE - 0.5 && seconds < DEADLINE + 3, "back after %.1f s", seconds);
            CHECK_CUDA(cudaStreamSynchronize(e.stream));
            idle = false;
        }
        rig_barrier();
    }
    close_exchange(&e, idle);
}

static void never_joins_call(void)
{
    never_joins(false);
}

static void never_joins_replay(void)
{
    never_joins(true);
}

static const rig_test tests[] = {
    {"sums, called and replayed", sums, 2, 0, true},
    {"not opened where unwanted", unwanted, 2, 0, true},
    {"a rank never joins a call", never_joins_call, 2, 0, true},
    {"a rank never joins a replay", never_joins_replay, 2, 0, true},
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "hop", tests, HARNESS_COUNT(tests));
}
