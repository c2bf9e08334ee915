/* Ending an NCCL communicator although NCCL may not return: ncclCommDestroy waits for other ranks
 * to call it.  So it runs on a thread of its own, which is left running if it takes too long. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "comm/nccl/transport.h"

#define ABORT_SECONDS 2.0
#define DESTROY_SECONDS 1.0
#define EXIT_SECONDS 5.0
#define EXIT_SECONDS_MOST 60.0

typedef struct job {
    ncclComm_t comm;
    int device;
    bool abort;
    double deadline; /* for work in flight, which is then aborted */
    pthread_mutex_t mutex;
    pthread_cond_t finished;
    bool done, left_alone;
} job;

void tutti__cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

bool tutti__cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, double until)
{
    struct timespec limit = {.tv_sec = (time_t)until};
    limit.tv_nsec = (long)((until - (double)limit.tv_sec) * 1e9);
    return pthread_cond_timedwait(cond, mutex, &limit) == 0;
}

static atomic_bool exiting;
static atomic_int holding;             /* threads that use NCCL or CUDA */
static _Atomic double destroyed_until; /* a time: by then jobs that were left alone have ended */

/* NCCL crashes if the process shuts CUDA down while NCCL is at work. */
static void wait_at_exit(void)
{
    atomic_store(&exiting, true);
    const double until = fmin(fmax(tutti__now() + EXIT_SECONDS, atomic_load(&destroyed_until)),
                              tutti__now() + EXIT_SECONDS_MOST);
    while (atomic_load(&holding) > 0 && tutti__now() < until) tutti__sleep(1e-3);
}

static void have_exit_wait(void)
{
    (void)atexit(wait_at_exit);
}

bool tutti__exit_hold(void)
{
    /* registered this late, it runs before the handlers of CUDA and NCCL */
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, have_exit_wait);
    atomic_fetch_add(&holding, 1);
    return !atomic_load(&exiting);
}

void tutti__exit_release(void)
{
    atomic_fetch_sub(&holding, 1);
}

static void job_free(job *work)
{
    pthread_cond_destroy(&work->finished);
    pthread_mutex_destroy(&work->mutex);
    free(work);
}

static void finalize(job *work)
{
    ncclResult_t state = ncclCommFinalize(work->comm);
    while (state == ncclInProgress && tutti__now() < work->deadline) {
        tutti__sleep(1e-4);
        if (ncclCommGetAsyncError(work->comm, &state) != ncclSuccess) state = ncclInternalError;
    }
    if (state == ncclSuccess)
        (void)ncclCommDestroy(work->comm);
    else
        (void)ncclCommAbort(work->comm);
}

static void *run(void *argument)
{
    job *work = argument;
    (void)cudaSetDevice(work->device);
    if (work->abort)
        (void)ncclCommAbort(work->comm);
    else
        finalize(work);
    pthread_mutex_lock(&work->mutex);
    work->done = true;
    bool mine = work->left_alone;
    pthread_cond_signal(&work->finished);
    pthread_mutex_unlock(&work->mutex);
    if (mine) job_free(work);
    tutti__exit_release();
    return NULL;
}

/* Without a thread only an abort is called: it ends kernels that wait for the lost rank, and
 * returns; a destroy may not. */
static bool alone(ncclComm_t comm, bool abort)
{
    if (abort) (void)ncclCommAbort(comm);
    return abort;
}

static bool bounded(ncclComm_t comm, int device, bool abort, double timeout, double seconds)
{
    job *work = calloc(1, sizeof *work);
    if (!work) return alone(comm, abort);
    work->comm = comm;
    work->device = device;
    work->abort = abort;
    work->deadline = tutti__now() + timeout;
    pthread_mutex_init(&work->mutex, NULL);
    tutti__cond_init(&work->finished);

    pthread_t thread;
    (void)tutti__exit_hold();
    if (pthread_create(&thread, NULL, run, work) != 0) {
        tutti__exit_release();
        job_free(work);
        return alone(comm, abort);
    }
    pthread_detach(thread);
    double until = tutti__now() + seconds;
    pthread_mutex_lock(&work->mutex);
    while (!work->done && tutti__cond_wait(&work->finished, &work->mutex, until)) continue;
    bool done = work->done;
    work->left_alone = !done;
    pthread_mutex_unlock(&work->mutex);
    if (done) job_free(work);
    return done;
}

bool tutti__nccl_abort(ncclComm_t comm, int device)
{
    return bounded(comm, device, true, 0, ABORT_SECONDS);
}

bool tutti__nccl_finalize(ncclComm_t comm, int device, double timeout)
{
    if (bounded(comm, device, false, timeout, DESTROY_SECONDS)) return true;
    /* where many programs start and end a destroy took over six seconds */
    const double until = tutti__now() + timeout;
    double latest = atomic_load(&destroyed_until);
    while (until > latest && !atomic_compare_exchange_weak(&destroyed_until, &latest, until))
        continue;
    return false;
}
