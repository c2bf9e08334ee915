/* MPI around the harness; see rig.h. */
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef RIG_WITH_MPI
#include <mpi.h>
#endif

static int rank, size = 1, local_rank;
static tutti_context *context;

int rig_rank(void)
{
    return rank;
}

int rig_size(void)
{
    return size;
}

static void max_over_ranks(int *values, int count)
{
#ifdef RIG_WITH_MPI
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
#else
    (void)values, (void)count;
#endif
}

int rig_worst(int value)
{
    max_over_ranks(&value, 1);
    return value;
}

void rig_barrier(void)
{
    rig_worst(0);
}

tutti_context *rig_context(void)
{
    int devices = harness_devices();
    if (!context) context = harness_new_context(devices > 0 ? local_rank % devices : 0, 1);
    return context;
}

bool rig_has_gpu_each(void)
{
    const char *shared = getenv("NCCL_MULTI_RANK_GPU_ENABLE"); /* NCCL 2.30: two ranks a GPU */
    int places = harness_devices() * (shared && !strcmp(shared, "1") ? 2 : 1);
    int crowded = harness_backend() != TUTTI_BACKEND_CUDA || local_rank >= places;
    return !rig_worst(crowded);
}

tutti_comm *rig_comm(tutti_context *ctx, tutti_transport transport)
{
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    desc.transport = transport;
    if (transport == TUTTI_TRANSPORT_NCCL && !rig_has_gpu_each()) {
        harness_skip("%d ranks need a GPU each, there are %d", size, harness_devices());
        return NULL;
    }
    tutti_comm *comm = NULL;
    tutti_status status = tutti_comm_create(ctx, &desc, &comm);
    if (status == TUTTI_ERR_UNSUPPORTED) {
        harness_skip("%s", tutti_last_error());
        return NULL;
    }
    harness_check_status(status, "tutti_comm_create", __FILE__, __LINE__);
    return comm;
}

void rig_over(tutti_transport transport, void (*test)(tutti_context *ctx, tutti_comm *comm))
{
    tutti_context *ctx = rig_context();
    tutti_comm *comm = rig_comm(ctx, transport);
    if (!comm) return;
    CHECK(tutti_comm_transport(comm) == transport, "transport %d", tutti_comm_transport(comm));
    test(ctx, comm);
    tutti_comm_destroy(&comm);
    CHECK(!comm, "destroy left the pointer");
}

void rig_build(tutti_context *ctx, tutti_params *store, tutti_adamw **adamw,
               tutti_step_block **block)
{
    tutti_adamw_desc desc = TUTTI_ADAMW_DESC_INIT;
    desc.clip_norm = 1e-3;
    CHECK_OK(tutti_params_build(store, ctx));
    CHECK_OK(tutti_params_init(store, ctx, 11));
    CHECK_OK(tutti_adamw_create(ctx, store, &desc, adamw));
    CHECK_OK(tutti_step_block_create(ctx, block));
}

/* The harness reads the options, but this one decides which tests are listed. */
static bool wants_cuda(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], "--backend") && !strcmp(argv[i + 1], "cuda")) return true;
    return false;
}

int rig_main(int argc, char **argv, const char *suite, const rig_test *tests, int count)
{
#ifdef RIG_WITH_MPI
    int provided, initialized = 0;
    MPI_Comm node;
    MPI_Initialized(&initialized);
    if (!initialized) MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local_rank);
    MPI_Comm_free(&node);
    harness_set_ranks(rank, size, max_over_ranks);
#endif
    harness_test *chosen = harness_calloc((size_t)count, sizeof *chosen);
    int n = 0;
    for (int i = 0; i < count; i++)
        if (size >= tests[i].min_ranks && (!tests[i].max_ranks || size <= tests[i].max_ranks) &&
            (!tests[i].cuda_only || wants_cuda(argc, argv)))
            chosen[n++] = (harness_test){tests[i].name, tests[i].run};
    int code = harness_main(argc, argv, suite, chosen, n);
    free(chosen);
    tutti_context_destroy(&context);
#ifdef RIG_WITH_MPI
    fflush(NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
#endif
    return code;
}
