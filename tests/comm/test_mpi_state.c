/* Messages when MPI is not in the state that a communicator needs: not initialised, without
 * threads, finalised.  One process passes through these states in order. */
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "tutti/mpi.h"

static tutti_status create(tutti_transport transport)
{
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    tutti_comm *comm = NULL;
    desc.transport = transport;
    tutti_status status = tutti_comm_create(harness_context(), &desc, &comm);
    tutti_comm_destroy(&comm);
    return status;
}

/* The environment of a rank under a launcher, which would train alone; one variable alone may be
 * left over in a shell. */
static void launched(const char *size, const char *companion)
{
    setenv(size, "2", 1);
    CHECK_OK(create(TUTTI_TRANSPORT_AUTO));
    setenv(companion, "1", 1);
    CHECK_FAILS(TUTTI_ERR_STATE, "MPI_Init_thread", create(TUTTI_TRANSPORT_AUTO));
    unsetenv(size);
    CHECK_OK(create(TUTTI_TRANSPORT_AUTO));
    unsetenv(companion);
}

static void not_initialised(void)
{
    CHECK_FAILS(TUTTI_ERR_STATE, "MPI_Init_thread", create(TUTTI_TRANSPORT_MPI));
    if (strstr(tutti_build_info(), "nccl: not built"))
        CHECK_FAILS(TUTTI_ERR_UNSUPPORTED, "NCCL", create(TUTTI_TRANSPORT_NCCL));
    else
        CHECK_FAILS(TUTTI_ERR_STATE, "MPI_Init_thread", create(TUTTI_TRANSPORT_NCCL));
    CHECK_OK(create(TUTTI_TRANSPORT_AUTO)); /* no launcher */
    launched("OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE");
    launched("PMI_SIZE", "PMI_RANK");
    CHECK_OK(create(TUTTI_TRANSPORT_SELF));
    tutti_comm *comm = NULL;
    CHECK_FAILS(TUTTI_ERR_STATE, "MPI_Init_thread",
                tutti_comm_create_from_mpi(harness_context(), MPI_COMM_WORLD, NULL, &comm));
    CHECK(strstr(tutti_build_info(), "mpi: "), "build_info does not mention MPI");
}

static void *on_another_thread(void *unused)
{
    (void)unused;
    CHECK_FAILS(TUTTI_ERR_STATE, "MPI_THREAD_SERIALIZED", create(TUTTI_TRANSPORT_MPI));
    return NULL;
}

/* Uses of a communicator on a thread that must not call MPI: refused, and destroying does not call
 * MPI. */
typedef struct handles {
    tutti_comm *comm;
    tutti_grad_sync *sync;
    tutti_param param;
    float values[4];
} handles;

static void *used_on_another_thread(void *argument)
{
    handles *h = argument;
    tutti_context *ctx = harness_context();
    float *v = h->values;
    CHECK_FAILS(TUTTI_ERR_STATE, "MPI_THREAD_FUNNELED", tutti_comm_barrier(h->comm, ctx));
    CHECK_FAILS(TUTTI_ERR_STATE, "want MPI_THREAD_SERIALIZED", tutti_comm_agree(h->comm, TUTTI_OK));
    CHECK_FAILS(TUTTI_ERR_STATE, "MPI_THREAD_MULTIPLE otherwise",
                tutti_comm_all_reduce(h->comm, ctx, v, v, 4, TUTTI_F32, TUTTI_SUM));
    CHECK_FAILS(TUTTI_ERR_STATE, "MPI_THREAD_FUNNELED",
                tutti_grad_sync_ready_param(h->sync, ctx, &h->param));
    CHECK_FAILS(TUTTI_ERR_STATE, "MPI_THREAD_FUNNELED", tutti_grad_sync_finish(h->sync, ctx));
    CHECK_FAILS(TUTTI_ERR_STATE, "MPI_THREAD_FUNNELED", tutti_comm_abort(h->comm, "why"));
    CHECK(tutti_comm_rank(h->comm) == 0 && tutti_comm_world_size(h->comm) == 1, "another rank");
    return NULL;
}

static void *destroyed_on_another_thread(void *argument)
{
    handles *h = argument;
    tutti_comm_destroy(&h->comm);
    tutti_grad_sync_destroy(&h->sync);
    return NULL;
}

static void run_on_another_thread(void *(*call)(void *), void *argument)
{
    pthread_t thread;
    if (CHECK(pthread_create(&thread, NULL, call, argument) == 0, "no thread"))
        pthread_join(thread, NULL);
}

static void used_from_threads(void)
{
    tutti_context *ctx = harness_context();
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    desc.transport = TUTTI_TRANSPORT_MPI;
    handles h = {.param = {.name = "p"}};
    h.param.value = h.param.grad = tutti_tensor_1d(h.values, TUTTI_F32, 4);
    const tutti_param *list[] = {&h.param};
    CHECK_OK(tutti_comm_create(ctx, &desc, &h.comm));
    CHECK_OK(tutti_grad_sync_create_list(ctx, h.comm, list, 1, NULL, &h.sync));
    run_on_another_thread(used_on_another_thread, &h);
    CHECK_OK(tutti_grad_sync_ready_param(h.sync, ctx, &h.param)); /* the refusals did no harm */
    CHECK_OK(tutti_grad_sync_finish(h.sync, ctx));
    run_on_another_thread(destroyed_on_another_thread, &h);
}

static void threads(void)
{
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SINGLE, &provided);
    if (provided == MPI_THREAD_SINGLE)
        CHECK_FAILS(TUTTI_ERR_STATE, "MPI_THREAD_FUNNELED", create(TUTTI_TRANSPORT_MPI));
    else if (provided == MPI_THREAD_FUNNELED) {
        CHECK_OK(create(TUTTI_TRANSPORT_MPI));
        run_on_another_thread(on_another_thread, NULL);
        used_from_threads();
    }
    CHECK_OK(create(TUTTI_TRANSPORT_SELF));
}

static void finalised(void)
{
    /* a communicator that outlives MPI can be destroyed */
    int level;
    tutti_comm *late = NULL;
    MPI_Query_thread(&level);
    if (level >= MPI_THREAD_FUNNELED) {
        tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
        desc.transport = TUTTI_TRANSPORT_MPI;
        CHECK_OK(tutti_comm_create(harness_context(), &desc, &late));
    }
    MPI_Finalize();
    tutti_comm_destroy(&late);
    CHECK_FAILS(TUTTI_ERR_STATE, "finalised", create(TUTTI_TRANSPORT_MPI));
    CHECK_OK(create(TUTTI_TRANSPORT_AUTO));
}

static const harness_test tests[] = {{"MPI is not initialised", not_initialised},
                                     {"MPI without threads", threads},
                                     {"MPI is finalised", finalised}};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, "state of MPI", tests, HARNESS_COUNT(tests));
}
