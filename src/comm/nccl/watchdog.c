/* A thread that watches the host.  The library's own waits poll until their deadline, but CUDA
 * calls wait too, the caller's as well as ours: for room in the launch queue (about a thousand), or
 * for a kernel's code, which is loaded at its first launch.  Behind a sum that some rank never
 * joins they wait for ever.  So if sums are under way and this rank's thread has not polled for the
 * whole timeout, the watchdog kills the communicator: NCCL's kernels end, and the call returns.
 *
 * The thread does not ask CUDA, which may hold a lock in that call.  Instead the host sets a note
 * in pinned memory before sums, and the stream clears it after them. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "comm/nccl/transport.h"

/* Notes are used in turn; each is clear again before its turn, since no stream holds that many
 * launches. */
#define NOTES 2048

typedef struct notes {
    struct notes *next;
    int device;
    atomic_uint *words; /* pinned: 1 while sums are under way */
} notes;

struct tutti__watchdog {
    tutti_comm *comm;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t wake;
    bool stop;
    const char *operation; /* the last one that began */
    int64_t sequence;

    notes *notes;
    unsigned begun, cleared; /* notes set, and notes whose clearing is enqueued */
};

static bool under_way(const notes *watched)
{
    bool any = false;
    if (tutti__exit_hold()) /* CUDA frees the notes at exit */
        for (int i = 0; i < NOTES && !any; i++) any = atomic_load(&watched->words[i]);
    tutti__exit_release();
    return any;
}

static void *watch(void *argument)
{
    tutti__watchdog *dog = argument;
    tutti_comm *comm = dog->comm;
    const double period = comm->timeout / 8 < 0.25 ? comm->timeout / 8 : 0.25;
    double last = tutti__now(), silent = 0;
    unsigned polls = atomic_load(&comm->polls);
    pthread_mutex_lock(&dog->mutex);
    while (!dog->stop && silent <= comm->timeout) {
        (void)tutti__cond_wait(&dog->wake, &dog->mutex, last + period);
        /* time in which the whole process was stopped does not count */
        double now = tutti__now(), step = now - last < 2 * period ? now - last : period;
        unsigned seen = atomic_load(&comm->polls);
        silent = seen == polls && under_way(dog->notes) ? silent + step : 0;
        polls = seen;
        last = now;
    }
    bool expired = !dog->stop;
    const char *operation = dog->operation;
    long long sequence = dog->sequence;
    pthread_mutex_unlock(&dog->mutex);
    if (tutti__exit_hold() && expired)
        (void)tutti__comm_die(comm,
                              "%s #%lld: not finished after %g s, in which the program made no "
                              "call to this library or was blocked in a CUDA call",
                              operation, sequence, comm->timeout);
    tutti__exit_release();
    return NULL;
}

static tutti_status start(tutti__watchdog *dog)
{
    /* registers the exit handler now that CUDA is loaded, not when the thread first looks */
    (void)tutti__exit_hold();
    tutti__exit_release();
    /* signals are left to the program's threads */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&dog->thread, NULL, watch, dog);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code == 0) return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_MEMORY, "comm_create: cannot start a thread: %s", strerror(code));
}

/* Notes of destroyed communicators, kept because freeing them would wait for the whole device, and
 * so for sums of others and of graphs.  Reused once streams have cleared them all. */
static pthread_mutex_t spare_mutex = PTHREAD_MUTEX_INITIALIZER;
static notes *spare;

static notes *notes_spare(int device)
{
    pthread_mutex_lock(&spare_mutex);
    notes **at = &spare;
    while (*at && ((*at)->device != device || under_way(*at))) at = &(*at)->next;
    notes *found = *at;
    if (found) *at = found->next;
    pthread_mutex_unlock(&spare_mutex);
    return found;
}

static void notes_keep(notes *kept)
{
    pthread_mutex_lock(&spare_mutex);
    kept->next = spare;
    spare = kept;
    pthread_mutex_unlock(&spare_mutex);
}

static tutti_status notes_open(const tutti_comm *comm, notes **opened)
{
    const tutti__runtime *run = &comm->backend->run;
    *opened = notes_spare(comm->device);
    if (*opened) return TUTTI_OK;
    notes *made = calloc(1, sizeof *made);
    if (!made) return tutti__fail(TUTTI_ERR_MEMORY, "comm_create: no memory");
    made->device = comm->device;
    void *words;
    const tutti_status status = run->host_alloc(comm->device, NOTES * sizeof *made->words, &words);
    if (status != TUTTI_OK) {
        free(made);
        return status;
    }
    made->words = memset(words, 0, NOTES * sizeof *made->words);
    *opened = made;
    return TUTTI_OK;
}

tutti_status tutti__watchdog_open(tutti_comm *comm, tutti__watchdog **made)
{
    *made = NULL;
    if (comm->world_size == 1) return TUTTI_OK; /* no other rank to wait for */
    tutti__watchdog *dog = calloc(1, sizeof *dog);
    if (!dog) return tutti__fail(TUTTI_ERR_MEMORY, "comm_create: no memory");
    dog->comm = comm;
    pthread_mutex_init(&dog->mutex, NULL);
    tutti__cond_init(&dog->wake);
    tutti_status status = notes_open(comm, &dog->notes);
    if (status == TUTTI_OK) status = start(dog);
    if (status == TUTTI_OK) {
        *made = dog;
        return TUTTI_OK;
    }
    if (dog->notes) notes_keep(dog->notes);
    pthread_cond_destroy(&dog->wake);
    pthread_mutex_destroy(&dog->mutex);
    free(dog);
    return status;
}

void tutti__watchdog_close(tutti__watchdog **closing)
{
    tutti__watchdog *dog = *closing;
    if (!dog) return;
    *closing = NULL;
    pthread_mutex_lock(&dog->mutex);
    dog->stop = true;
    pthread_cond_signal(&dog->wake);
    pthread_mutex_unlock(&dog->mutex);
    pthread_join(dog->thread, NULL);
    notes_keep(dog->notes);
    pthread_cond_destroy(&dog->wake);
    pthread_mutex_destroy(&dog->mutex);
    free(dog);
}

tutti_status tutti__watchdog_begin(tutti__watchdog *dog, tutti__stream stream,
                                   const char *operation, int64_t sequence)
{
    if (!dog) return TUTTI_OK;
    bool capturing;
    tutti_comm *comm = dog->comm;
    TUTTI_TRY(comm->backend->run.stream_capturing(comm->device, stream, &capturing));
    if (capturing) return TUTTI_OK; /* it is not known when a graph runs */
    pthread_mutex_lock(&dog->mutex);
    dog->operation = operation;
    dog->sequence = sequence;
    pthread_mutex_unlock(&dog->mutex);
    atomic_fetch_add(&comm->polls, 1);
    if (dog->begun == dog->cleared) atomic_store(&dog->notes->words[dog->begun++ % NOTES], 1);
    return TUTTI_OK;
}

tutti_status tutti__watchdog_clear(tutti__watchdog *dog, tutti__stream stream)
{
    if (!dog || dog->begun == dog->cleared) return TUTTI_OK;
    tutti_comm *comm = dog->comm;
    void *note = &dog->notes->words[dog->cleared++ % NOTES];
    return comm->backend->run.word_clear(comm->device, stream, note);
}
