/* Bad input for cuda.h, nccl.h and mpi.h, where they were built. */
#ifdef TESTS_WITH_CUDA
#include "tutti/cuda.h"
#endif
#ifdef TESTS_WITH_MPI
#include "tutti/mpi.h"
#endif
#ifdef TESTS_WITH_NCCL
#include "tutti/nccl.h"
#endif

#include "comm_fixture.h"

/* cuda.h */

#ifdef TESTS_WITH_CUDA
static void bad_context_create_on_stream(void)
{
    tutti_context *ctx = UNTOUCHED(tutti_context);
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_context_create_on_stream(0, NULL, NULL));
    CHECK_FAILS_KEEPING(ctx, TUTTI_ERR_DEVICE, "device",
                        tutti_context_create_on_stream(-1, NULL, &ctx));
    CHECK_FAILS_KEEPING(ctx, TUTTI_ERR_DEVICE, "device",
                        tutti_context_create_on_stream(1000, NULL, &ctx));
}

static void bad_context_stream(void)
{
    CHECK(!tutti_context_stream(NULL), "NULL has a stream");
    tutti_context *host = NULL;
    tutti_context_desc desc = TUTTI_CONTEXT_DESC_INIT;
    desc.backend = TUTTI_BACKEND_HOST;
    CHECK_OK(tutti_context_create(&desc, &host));
    CHECK(!tutti_context_stream(host), "a context on the host has a CUDA stream");
    tutti_context_destroy(&host);
}
#endif

/* nccl.h */

#ifdef TESTS_WITH_NCCL
/* The ncclComm_t is not used before the other arguments are valid. */
static tutti_status create_from_nccl(tutti_context *ctx, const tutti_comm_desc *desc,
                                     tutti_comm **comm)
{
    static int nothing;
    return tutti_comm_create_from_nccl(ctx, (ncclComm_t)&nothing, desc, comm);
}

static void bad_comm_create_from_nccl(void)
{
    tutti_context *ctx = harness_context();
    tutti_comm *comm = UNTOUCHED(tutti_comm);
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "nccl_comm",
                        tutti_comm_create_from_nccl(ctx, NULL, &desc, &comm));
    static const int transports[] = {99, TUTTI_TRANSPORT_SELF, TUTTI_TRANSPORT_MPI};
    check_create_comm(create_from_nccl, desc, transports, HARNESS_COUNT(transports));
    tutti_context *host = NULL;
    tutti_context_desc on_host = TUTTI_CONTEXT_DESC_INIT;
    on_host.backend = TUTTI_BACKEND_HOST;
    CHECK_OK(tutti_context_create(&on_host, &host));
    desc.transport = TUTTI_TRANSPORT_NCCL;
    CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "host", create_from_nccl(host, &desc, &comm));
    tutti_context_destroy(&host);
}
#endif

/* mpi.h: a program started without mpirun is a world of one rank.  The last case, because it
 * initialises and finalises MPI. */

#ifdef TESTS_WITH_MPI
static tutti_status create_from_mpi(tutti_context *ctx, const tutti_comm_desc *desc,
                                    tutti_comm **comm)
{
    return tutti_comm_create_from_mpi(ctx, MPI_COMM_WORLD, desc, comm);
}

static void bad_comm_create_from_mpi(void)
{
    tutti_context *ctx = harness_context();
    tutti_comm *comm = UNTOUCHED(tutti_comm);
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    CHECK_FAILS_KEEPING(comm, TUTTI_ERR_STATE, "MPI", create_from_mpi(ctx, &desc, &comm));
    int level;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "mpi_comm",
                        tutti_comm_create_from_mpi(ctx, MPI_COMM_NULL, &desc, &comm));
    desc.timeout = 20;
    check_create_comm(create_from_mpi, desc, (const int[]){99}, 1);
    desc.transport = TUTTI_TRANSPORT_NCCL;
#ifdef TESTS_WITH_NCCL
    if (harness_backend() == TUTTI_BACKEND_HOST)
        CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "host", create_from_mpi(ctx, &desc, &comm));
#else
    CHECK_FAILS_KEEPING(comm, TUTTI_ERR_UNSUPPORTED, "NCCL", create_from_mpi(ctx, &desc, &comm));
#endif
    /* the mpi transport's verbs make the same checks as self's */
    desc.transport = TUTTI_TRANSPORT_MPI;
    if (CHECK_OK(create_from_mpi(ctx, &desc, &comm))) {
        float data = 1;
        CHECK_FAILS(TUTTI_ERR_ARG, "count",
                    tutti_comm_all_reduce(comm, ctx, &data, &data, -1, TUTTI_F32, TUTTI_SUM));
        CHECK_FAILS(TUTTI_ERR_ARG, "ctx",
                    tutti_comm_all_reduce(comm, NULL, &data, &data, 1, TUTTI_F32, TUTTI_SUM));
        CHECK_OK(tutti_comm_barrier(comm, ctx));
        tutti_comm_destroy(&comm);
    }
    MPI_Finalize();
    comm = UNTOUCHED(tutti_comm);
    CHECK_FAILS_KEEPING(comm, TUTTI_ERR_STATE, "finalised", create_from_mpi(ctx, &desc, &comm));
}
#endif

const harness_test bad_interop[] = {
#ifdef TESTS_WITH_CUDA
    {"tutti_context_create_on_stream", bad_context_create_on_stream},
    {"tutti_context_stream", bad_context_stream},
#endif
#ifdef TESTS_WITH_NCCL
    {"tutti_comm_create_from_nccl", bad_comm_create_from_nccl},
#endif
#ifdef TESTS_WITH_MPI
    {"tutti_comm_create_from_mpi", bad_comm_create_from_mpi},
#endif
    {NULL, NULL},
};
