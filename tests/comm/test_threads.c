/* Two concurrent threads, each with its own communicator, context and exchange, under
 * MPI_THREAD_MULTIPLE. */
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"

enum { COUNT = 4000, STEPS = 60 };

typedef struct worker {
    tutti_context *ctx;
    tutti_comm *comm;
    tutti_grad_sync *sync;
    tutti_param params[2];
    float *grads; /* on the device */
    int number;
    int steps; /* that were right */
    char message[256];
} worker;

static tutti_status run_step(worker *w, int step, float *values)
{
    const size_t bytes = COUNT * sizeof *values;
    for (int i = 0; i < COUNT; i++) values[i] = (float)(i % 97 + step + w->number + rig_rank());
    tutti_status status = tutti_copy(w->ctx, w->grads, values, bytes);
    for (int p = 0; p < 2 && status == TUTTI_OK; p++)
        status = tutti_grad_sync_ready_param(w->sync, w->ctx, &w->params[p]);
    if (status == TUTTI_OK) status = tutti_grad_sync_finish(w->sync, w->ctx);
    if (status == TUTTI_OK)
        status = tutti_comm_all_reduce(w->comm, w->ctx, w->grads, w->grads, COUNT, TUTTI_F32,
                                       TUTTI_MAX); /* all have the same, so nothing changes */
    if (status == TUTTI_OK) status = tutti_copy(w->ctx, values, w->grads, bytes);
    if (status == TUTTI_OK) status = tutti_context_synchronize(w->ctx);
    return status == TUTTI_OK ? tutti_comm_agree(w->comm, TUTTI_OK) : status;
}

static void *work(void *argument)
{
    worker *w = argument;
    const int n = rig_size();
    float *values = harness_calloc(COUNT, sizeof *values);
    for (int step = 0; step < STEPS; step++) {
        if (run_step(w, step, values) != TUTTI_OK) {
            strncpy(w->message, tutti_last_error(), sizeof w->message - 1);
            break;
        }
        int wrong = 0;
        for (int i = 0; i < COUNT; i++)
            wrong += values[i] != (float)(n * (i % 97 + step + w->number) + n * (n - 1) / 2);
        if (wrong) break;
        w->steps++;
    }
    free(values);
    return NULL;
}

static void open_worker(worker *w, int number, tutti_transport transport)
{
    *w = (worker){.number = number};
    w->ctx = harness_new_context(tutti_context_device(rig_context()), 1);
    w->comm = rig_comm(w->ctx, transport);
    if (!w->comm) return;
    CHECK_OK(tutti_alloc(w->ctx, COUNT * sizeof(float), (void **)&w->grads));
    const tutti_param *list[2];
    for (int p = 0; p < 2; p++) {
        strcpy(w->params[p].name, p ? "upper" : "lower");
        w->params[p].value = w->params[p].grad =
            tutti_tensor_1d(w->grads + p * COUNT / 2, TUTTI_F32, COUNT / 2);
        list[p] = &w->params[p];
    }
    CHECK_OK(tutti_grad_sync_create_list(w->ctx, w->comm, list, 2, NULL, &w->sync));
}

static void two_threads(tutti_transport transport)
{
    int level;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE) {
        harness_skip("MPI has no MPI_THREAD_MULTIPLE");
        return;
    }
    worker workers[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) open_worker(&workers[i], i, transport);
    if (workers[0].sync && workers[1].sync) {
        for (int i = 0; i < 2; i++)
            CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0, "no thread");
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        for (int i = 0; i < 2; i++)
            CHECK(workers[i].steps == STEPS, "thread %d: %d steps were right; %s", i,
                  workers[i].steps, workers[i].message);
    }
    for (int i = 0; i < 2; i++) {
        tutti_grad_sync_destroy(&workers[i].sync);
        tutti_comm_destroy(&workers[i].comm);
        CHECK_OK(tutti_free(workers[i].ctx, (void **)&workers[i].grads));
        tutti_context_destroy(&workers[i].ctx);
    }
}

static void two_threads_mpi(void)
{
    two_threads(TUTTI_TRANSPORT_MPI);
}

static void two_threads_nccl(void)
{
    two_threads(TUTTI_TRANSPORT_NCCL);
}

static const rig_test tests[] = {
    {"two threads over mpi", two_threads_mpi, 1, 0, false},
    {"two threads over nccl", two_threads_nccl, 1, 0, true},
};

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    return rig_main(argc, argv, "threads", tests, HARNESS_COUNT(tests));
}
