/* Creating communicators, agreement, several at once, replicas of parameters, bad arguments. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rig.h"

#ifdef RIG_WITH_MPI
#include "tutti/mpi.h"
#endif

/* Arguments that are wrong only with several ranks; tests/api covers the others. */
static void bad_arguments(tutti_context *ctx, tutti_comm *comm)
{
    int n = rig_size();
    void *data = NULL;
    CHECK_OK(tutti_alloc(ctx, (size_t)n * 64, &data));
    char *end = (char *)data + 16 * (n - 1); /* of blocks of 4 */
    CHECK_FAILS(TUTTI_ERR_ARG, "root", tutti_comm_broadcast(comm, ctx, data, 4, TUTTI_F32, n));
    CHECK_FAILS(TUTTI_ERR_ARG, "overlap",
                tutti_comm_reduce_scatter(comm, ctx, data, end, 4, TUTTI_F32, TUTTI_SUM));
    CHECK_FAILS(TUTTI_ERR_ARG, "overlap",
                tutti_comm_all_gather(comm, ctx, end + 1, data, 4, TUTTI_F32));
    CHECK_FAILS(TUTTI_ERR_ARG, "overlap",
                tutti_comm_all_to_all(comm, ctx, data, end, 4, TUTTI_F32));
    CHECK_FAILS(TUTTI_ERR_ARG, "params", tutti_comm_broadcast_params(comm, ctx, NULL));
    /* the refusals did no harm */
    CHECK_OK(tutti_comm_all_reduce(comm, ctx, NULL, NULL, 0, TUTTI_F32, TUTTI_SUM));
    CHECK_OK(tutti_zero(ctx, data, 16));
    CHECK_OK(tutti_comm_all_reduce(comm, ctx, data, data, 4, TUTTI_F32, TUTTI_SUM));
    CHECK_OK(tutti_comm_barrier(comm, ctx));
    CHECK_OK(tutti_free(ctx, &data));
}

/* AUTO is self for one rank, otherwise the same multi-rank transport everywhere. */
static void automatic(void)
{
    tutti_context *ctx = rig_context();
    tutti_comm *comm = NULL;
    CHECK_OK(tutti_comm_create(ctx, NULL, &comm));
    tutti_transport got = tutti_comm_transport(comm);
    int highest = rig_worst((int)got), lowest = -rig_worst(-(int)got);
    CHECK(highest == lowest, "transports %d to %d", lowest, highest);
    if (rig_size() == 1)
        CHECK(got == TUTTI_TRANSPORT_SELF, "transport %d", got);
    else if (harness_backend() == TUTTI_BACKEND_HOST)
        CHECK(got == TUTTI_TRANSPORT_MPI, "transport %d", got);
    else
        CHECK(rig_has_gpu_each() || got == TUTTI_TRANSPORT_MPI, "transport %d", got);
    tutti_comm_destroy(&comm);
}

static float *filled(tutti_context *ctx, int count, float value)
{
    float *data = NULL, *host = harness_calloc((size_t)count, sizeof *host);
    for (int i = 0; i < count; i++) host[i] = value;
    CHECK_OK(tutti_alloc(ctx, (size_t)count * sizeof *host, (void **)&data));
    CHECK_OK(tutti_copy(ctx, data, host, (size_t)count * sizeof *host));
    CHECK_OK(tutti_context_synchronize(ctx));
    free(host);
    return data;
}

static void expect(tutti_context *ctx, float *data, int count, double value)
{
    float *host = harness_calloc((size_t)count, sizeof *host);
    CHECK_OK(tutti_context_synchronize(ctx));
    CHECK_OK(tutti_copy(ctx, host, data, (size_t)count * sizeof *host));
    CHECK_OK(tutti_context_synchronize(ctx));
    for (int i = 0; i < count; i++)
        if (!CHECK(host[i] == value, "element %d is %g, want %g", i, host[i], value)) break;
    free(host);
    CHECK_OK(tutti_free(ctx, (void **)&data));
}

/* Two more communicators, each with its own context, used in turn. */
static void two_at_once(tutti_context *ctx, tutti_comm *comm)
{
    enum { COUNT = 50001 };
    tutti_context *second = harness_new_context(tutti_context_device(ctx), 1);
    tutti_comm *a = rig_comm(ctx, tutti_comm_transport(comm));
    tutti_comm *b = rig_comm(second, tutti_comm_transport(comm));
    float *x = filled(ctx, COUNT, (float)(rig_rank() + 1));
    float *y = filled(second, COUNT, (float)(10 * (rig_rank() + 1)));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(tutti_comm_all_reduce(a, ctx, x, x, COUNT, TUTTI_F32, TUTTI_MAX));
        CHECK_OK(tutti_comm_all_reduce(b, second, y, y, COUNT, TUTTI_F32, TUTTI_MIN));
    }
    CHECK_OK(tutti_comm_barrier(b, second));
    tutti_comm_destroy(&a); /* the other one still works */
    CHECK_OK(tutti_comm_all_reduce(b, second, y, y, COUNT, TUTTI_F32, TUTTI_SUM));
    expect(ctx, x, COUNT, rig_size());
    expect(second, y, COUNT, 10 * rig_size());
    tutti_comm_destroy(&b);
    tutti_context_destroy(&second);
}

/* Replicas that differ become rank 0's; stores that differ in shape are refused. */
static tutti_params *store(tutti_context *ctx, tutti_layer **layer, int64_t out, uint64_t seed,
                           tutti_dtype dtype)
{
    tutti_linear_desc linear = TUTTI_LINEAR_DESC_INIT;
    linear.in = 33;
    linear.out = out;
    linear.dtype = dtype;
    tutti_params *params = NULL;
    CHECK_OK(tutti_linear_create(ctx, &linear, layer));
    CHECK_OK(tutti_params_create(ctx, NULL, &params));
    CHECK_OK(tutti_params_add(params, *layer, "only"));
    CHECK_OK(tutti_params_build(params, ctx));
    CHECK_OK(tutti_params_init(params, ctx, seed));
    return params;
}

static void params_of_root(tutti_context *ctx, tutti_comm *comm)
{
    tutti_layer *layers[3];
    /* 16-bit working values, to see that they are refreshed */
    tutti_params *params = store(ctx, &layers[0], 9, 100 + (uint64_t)rig_rank(), TUTTI_BF16);
    tutti_params *wanted = store(ctx, &layers[1], 9, 100, TUTTI_BF16);
    CHECK_OK(tutti_comm_broadcast_params(comm, ctx, params));
    static const tutti_params_buffer buffers[] = {TUTTI_PARAMS_MASTER, TUTTI_PARAMS_WORKING};
    for (int b = 0; b < 2; b++) {
        tutti_tensor got, want;
        CHECK_OK(tutti_params_flat(params, buffers[b], &got));
        CHECK_OK(tutti_params_flat(wanted, buffers[b], &want));
        size_t bytes = (size_t)tutti_tensor_count(&got) * tutti_dtype_size(got.dtype);
        char *x = harness_calloc(bytes, 1), *y = harness_calloc(bytes, 1);
        CHECK_OK(tutti_copy(ctx, x, got.data, bytes));
        CHECK_OK(tutti_copy(ctx, y, want.data, bytes));
        CHECK_OK(tutti_context_synchronize(ctx));
        CHECK(memcmp(x, y, bytes) == 0, "buffer %d differs from rank 0's", b);
        free(x);
        free(y);
    }
    bool odd = rig_rank() == rig_size() - 1 && rig_size() > 1;
    tutti_params *other = store(ctx, &layers[2], odd ? 10 : 9, 1, TUTTI_BF16);
    if (rig_size() > 1)
        CHECK_FAILS(TUTTI_ERR_COMM, "shape", tutti_comm_broadcast_params(comm, ctx, other));
    tutti_params_destroy(&other);
    tutti_params_destroy(&wanted);
    tutti_params_destroy(&params);
    for (int i = 0; i < 3; i++) tutti_layer_destroy(&layers[i]);
}

/* One element changed on one rank is found, in the masters or in the state, and the communicator
 * still works. */
static void replicas(tutti_context *ctx, tutti_comm *comm)
{
    tutti_layer *layer;
    tutti_params *params = store(ctx, &layer, 9, 100 + (uint64_t)rig_rank(), TUTTI_F32);
    tutti_adamw *adamw = NULL;
    CHECK_OK(tutti_comm_broadcast_params(comm, ctx, params));
    CHECK_OK(tutti_adamw_create(ctx, params, NULL, &adamw));
    tutti_state_tensor state[3];
    tutti_tensor masters;
    CHECK(tutti_adamw_state_count(adamw) == 3, "%d tensors", tutti_adamw_state_count(adamw));
    for (int i = 0; i < 3; i++) CHECK_OK(tutti_adamw_state_get(adamw, i, &state[i]));
    CHECK_OK(tutti_params_flat(params, TUTTI_PARAMS_MASTER, &masters));
    CHECK_OK(tutti_comm_check_params(comm, ctx, params, state, 3));
    CHECK_OK(tutti_comm_check_params(comm, ctx, params, NULL, 0));

    const int last = rig_size() - 1;
    char rank[24];
    snprintf(rank, sizeof rank, "rank %d", last);
    const struct {
        void *data;
        const char *name;
    } faults[] = {{masters.data, "'only/bias'"},
                  {state[1].tensor.data, "'only/bias v'"},
                  {state[2].tensor.data, "'updates'"}};
    for (int i = 0; i < 3 && last > 0; i++) {
        uint32_t word;
        CHECK_OK(tutti_copy(ctx, &word, faults[i].data, sizeof word));
        word ^= rig_rank() == last; /* 1 ulp of a number, or of 0 */
        CHECK_OK(tutti_copy(ctx, faults[i].data, &word, sizeof word));
        CHECK_FAILS(TUTTI_ERR_DATA, rank, tutti_comm_check_params(comm, ctx, params, state, 3));
        CHECK(strstr(tutti_last_error(), faults[i].name), "%s, want %s", tutti_last_error(),
              faults[i].name);
        word ^= rig_rank() == last;
        CHECK_OK(tutti_copy(ctx, faults[i].data, &word, sizeof word));
        CHECK_OK(tutti_comm_check_params(comm, ctx, params, state, 3));
    }
    tutti_adamw_destroy(&adamw);
    tutti_params_destroy(&params);
    tutti_layer_destroy(&layer);
}

/* All ranks get the status and message of the lowest rank that failed. */
static void agree(tutti_context *ctx, tutti_comm *comm)
{
    (void)ctx;
    CHECK_OK(tutti_comm_agree(comm, TUTTI_OK));
    for (int r = 1; r < rig_size(); r++) {
        tutti_status mine = TUTTI_OK;
        char word[32];
        snprintf(word, sizeof word, "rank %d: alloc", r);
        if (rig_rank() == r) mine = tutti_alloc(NULL, 1, NULL);
        if (rig_rank() > r) mine = TUTTI_ERR_DATA;
        CHECK(tutti_comm_agree(comm, mine) == TUTTI_ERR_ARG, "agreed on something else");
        CHECK(strstr(tutti_last_error(), word) != NULL, "message: %s", tutti_last_error());
    }
    CHECK_OK(tutti_comm_agree(comm, TUTTI_OK));
    /* no rank gets memory if the last one cannot */
    tutti_allocator memory = tutti_comm_allocator(comm);
    const bool odd = rig_rank() == rig_size() - 1;
    char word[48] = "no memory for 1152921504606846976 bytes";
    if (rig_size() > 1) snprintf(word, sizeof word, "rank %d: ", rig_size() - 1);
    void *data = &memory;
    CHECK_FAILS(TUTTI_ERR_MEMORY, word,
                memory.alloc(memory.self, (size_t)1 << (odd ? 60 : 10), &data));
    CHECK(!data, "a failing alloc left a pointer");
    CHECK_OK(memory.alloc(memory.self, 1 << 10, &data));
    CHECK_OK(memory.free(memory.self, data));
}

#ifdef RIG_WITH_MPI
/* An error of one rank in set-up fails all ranks. */
static void agreed_set_up(void)
{
    tutti_context *ctx = rig_context();
    int last = rig_size() - 1;
    bool odd = rig_rank() == last;
    char name[32];
    snprintf(name, sizeof name, "rank %d", last);
    tutti_comm *comm = NULL;
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    CHECK_FAILS(TUTTI_ERR_ARG, name, tutti_comm_create(odd ? NULL : ctx, NULL, &comm));
    CHECK_FAILS(TUTTI_ERR_ARG, name, tutti_comm_create(ctx, NULL, odd ? NULL : &comm));
    if (odd) desc.timeout = -1;
    CHECK_FAILS(TUTTI_ERR_ARG, name, tutti_comm_create(ctx, &desc, &comm));
    desc.timeout = 60;
    desc.transport = odd ? TUTTI_TRANSPORT_AUTO : TUTTI_TRANSPORT_MPI;
    CHECK_FAILS(TUTTI_ERR_ARG, name, tutti_comm_create(ctx, &desc, &comm));
    CHECK(!comm, "a failing create left a pointer");
    CHECK_OK(tutti_comm_create(ctx, NULL, &comm));
    tutti_comm_destroy(&comm);
}

/* Creating nccl where it is impossible names the alternative. */
static void nccl_refused(void)
{
    tutti_context *ctx = rig_context();
    tutti_comm *comm = NULL;
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    desc.transport = TUTTI_TRANSPORT_NCCL;
    bool built = !strstr(tutti_build_info(), "nccl: not built");
    CHECK_FAILS(built ? TUTTI_ERR_ARG : TUTTI_ERR_UNSUPPORTED, "transport mpi",
                tutti_comm_create(ctx, &desc, &comm));
    CHECK(!comm, "a failing create left a pointer");
}

static void shared_gpu(void)
{
    unsetenv("NCCL_MULTI_RANK_GPU_ENABLE"); /* would allow it */
    tutti_context *ctx = harness_new_context(0, 1);
    tutti_comm *comm = NULL;
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    desc.transport = TUTTI_TRANSPORT_NCCL;
    tutti_status status = tutti_comm_create(ctx, &desc, &comm);
    if (status == TUTTI_ERR_UNSUPPORTED)
        harness_skip("%s", tutti_last_error());
    else
        CHECK(status == TUTTI_ERR_COMM && strstr(tutti_last_error(), "share one GPU") &&
                  strstr(tutti_last_error(), "transport mpi"),
              "got %s: %s", tutti_status_string(status), tutti_last_error());
    /* AUTO takes mpi then */
    CHECK_OK(tutti_comm_create(ctx, NULL, &comm));
    CHECK(tutti_comm_transport(comm) == TUTTI_TRANSPORT_MPI, "transport %d",
          tutti_comm_transport(comm));
    tutti_comm_destroy(&comm);
    tutti_context_destroy(&ctx);
}

/* Over some of the ranks, from an MPI communicator that is freed at once. */
static void from_mpi(void)
{
    tutti_context *ctx = rig_context();
    MPI_Comm half;
    int colour = rig_rank() % 2;
    MPI_Comm_split(MPI_COMM_WORLD, colour, -rig_rank(), &half);
    tutti_comm *comm = NULL;
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    desc.transport = TUTTI_TRANSPORT_MPI;
    CHECK_OK(tutti_comm_create_from_mpi(ctx, half, &desc, &comm));
    int size = (rig_size() + 1 - colour) / 2;
    CHECK(tutti_comm_world_size(comm) == size, "size %d, want %d", tutti_comm_world_size(comm),
          size);
    MPI_Comm_free(&half);
    float *data = filled(ctx, 1001, 1);
    CHECK_OK(tutti_comm_all_reduce(comm, ctx, data, data, 1001, TUTTI_F32, TUTTI_SUM));
    expect(ctx, data, 1001, size);
    tutti_comm_destroy(&comm);

    CHECK_FAILS(TUTTI_ERR_ARG, "MPI_COMM_NULL",
                tutti_comm_create_from_mpi(ctx, MPI_COMM_NULL, &desc, &comm));
    desc.transport = TUTTI_TRANSPORT_SELF;
    if (rig_size() > 1)
        CHECK_FAILS(TUTTI_ERR_ARG, "self",
                    tutti_comm_create_from_mpi(ctx, MPI_COMM_WORLD, &desc, &comm));
    CHECK_OK(tutti_comm_create_from_mpi(ctx, MPI_COMM_SELF, &desc, &comm));
    CHECK(tutti_comm_transport(comm) == TUTTI_TRANSPORT_SELF, "transport %d",
          tutti_comm_transport(comm));
    tutti_comm_destroy(&comm);
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_comm_create_from_mpi(NULL, MPI_COMM_SELF, NULL, &comm));
    CHECK_FAILS(TUTTI_ERR_ARG, "comm", tutti_comm_create_from_mpi(ctx, MPI_COMM_SELF, NULL, NULL));
}

static void nap(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

/* A rank that is only late is waited for, and the heartbeats sent meanwhile are received. */
static void late(void)
{
    tutti_context *ctx = rig_context();
    tutti_comm *comm = NULL;
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    desc.transport = TUTTI_TRANSPORT_MPI;
    bool last = rig_rank() == rig_size() - 1;
    if (last) nap(1.4);
    CHECK_OK(tutti_comm_create(ctx, &desc, &comm));
    rig_barrier();
    int left = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &left, MPI_STATUS_IGNORE);
    CHECK(!left, "a message of the library is left in MPI_COMM_WORLD");
    for (int i = 0; i < 2; i++) {
        if (rig_rank() == i) nap(1.4);
        CHECK_OK(tutti_comm_barrier(comm, ctx));
    }
    tutti_comm_destroy(&comm);
    CHECK_OK(tutti_comm_create(ctx, &desc, &comm)); /* no stray message reaches the next one */
    CHECK_OK(tutti_comm_barrier(comm, ctx));
    tutti_comm_destroy(&comm);
}

/* Many communicators in sequence: handles are released. */
static void many(void)
{
    tutti_context *ctx = rig_context();
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    desc.transport = TUTTI_TRANSPORT_MPI;
    for (int i = 0; i < 300; i++) {
        tutti_comm *comm = NULL;
        if (!CHECK_OK(tutti_comm_create(ctx, &desc, &comm))) break;
        tutti_comm_destroy(&comm);
    }
}
#endif

#ifdef RIG_WITH_MPI
static void nccl_on_host(void)
{
    if (harness_backend() == TUTTI_BACKEND_HOST) nccl_refused();
}
#endif

static void replicated(tutti_context *ctx, tutti_comm *comm)
{
    params_of_root(ctx, comm);
    replicas(ctx, comm);
}

/* Rank 0 measures, and all have its choices, instead of their own; then nobody measures. */
static void choices_of_root(tutti_context *ctx, tutti_comm *comm)
{
    const tutti_tensor x = tutti_tensor_2d(NULL, TUTTI_BF16, 64, 32);
    tutti_tensor y = tutti_tensor_2d(NULL, TUTTI_BF16, 64, 48);
    tutti_linear_desc desc = TUTTI_LINEAR_DESC_INIT;
    desc.in = 32;
    desc.out = 48;
    desc.dtype = TUTTI_BF16;
    tutti_layer *layer = NULL;
    CHECK_OK(tutti_linear_create(ctx, &desc, &layer));
    tutti_linear_call call = {.x = &x, .y = &y};
    const bool gpu = harness_backend() == TUTTI_BACKEND_CUDA, last = rig_rank() == rig_size() - 1;
    CHECK_OK(tutti_context_tune(ctx, last || rig_rank() == 0));
    CHECK_OK(tutti_linear_plan(layer, ctx, &call));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx is NULL", tutti_comm_broadcast_tuning(comm, last ? NULL : ctx));
    CHECK_OK(tutti_comm_broadcast_tuning(comm, ctx));
    size_t bytes = 1;
    CHECK_OK(tutti_context_tuning_get(ctx, NULL, 0, &bytes));
    CHECK((bytes > 0) == gpu, "there are %zu bytes of choices", bytes);
    unsigned char *own = harness_calloc(bytes + 1, 1), *root = harness_calloc(bytes + 1, 1);
    CHECK_OK(tutti_context_tuning_get(ctx, own, bytes, &bytes));
    void *data = NULL;
    CHECK_OK(tutti_alloc(ctx, bytes + 1, &data));
    CHECK_OK(tutti_copy(ctx, data, own, bytes));
    CHECK_OK(tutti_comm_broadcast(comm, ctx, data, (int64_t)bytes, TUTTI_U8, 0));
    CHECK_OK(tutti_copy(ctx, root, data, bytes));
    CHECK_OK(tutti_context_synchronize(ctx));
    CHECK(memcmp(own, root, bytes) == 0, "the choices are not rank 0's");
    CHECK_OK(tutti_linear_plan(layer, ctx, &call));
    call.leaves = 1; /* allowed on the host, as nobody tunes any more */
    if (gpu)
        CHECK_FAILS(TUTTI_ERR_STATE, "leaves", tutti_linear_plan(layer, ctx, &call));
    else
        CHECK_OK(tutti_linear_plan(layer, ctx, &call));
    CHECK_OK(tutti_context_tuning_set(ctx, NULL, 0));
    CHECK_OK(tutti_free(ctx, &data));
    free(own);
    free(root);
    tutti_layer_destroy(&layer);
}

RIG_OVER(choices_of_root)
RIG_OVER(bad_arguments)
RIG_OVER(two_at_once)
RIG_OVER(replicated)
RIG_OVER(agree)

static const rig_test tests[] = {
    RIG_ROWS("bad arguments", bad_arguments, 1, 0),
    {"auto", automatic, 1, 0, false},
    RIG_ROWS("two at once", two_at_once, 1, 0),
    RIG_ROWS("broadcast of parameters", replicated, 1, 0),
    RIG_ROWS("broadcast of choices", choices_of_root, 1, 0),
    RIG_ROWS("agree", agree, 1, 0),
#ifdef RIG_WITH_MPI
    {"set-up is agreed", agreed_set_up, 2, 0, false},
    {"a late rank", late, 2, 0, false},
    {"from the caller's MPI communicator", from_mpi, 1, 0, false},
    {"many in turn", many, 1, 0, false},
    {"nccl on the host is refused", nccl_on_host, 1, 0, false},
    {"two ranks on one GPU", shared_gpu, 2, 0, true},
#endif
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "communicators", tests, HARNESS_COUNT(tests));
}
