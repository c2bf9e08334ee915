/* Device memory shared by the ranks of one host through CUDA's inter-process handles, and words in
 * a file of shared memory that every rank has registered with its device. */
#include <cuda.h>
#include <cudaTypedefs.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/agree.h"
#include "comm/nccl/transport.h"
#include "comm/wait.h"

static const char who[] = "grad_sync_create (peers)";

#define RANKS_MAX 256
#define SHARED_MAX 8                  /* memories of a rank that others write */
#define SHARE_BYTES ((size_t)2 << 20) /* the unit of what another process can see */
#define LEAVE_SECONDS 0.5             /* that close waits for other ranks */

/* The file: this page, then the words of each rank. */
typedef struct page {
    uint64_t token;
    atomic_uint left[RANKS_MAX]; /* rank r uses no other rank's memory any more */
} page;
#define PAGE_BYTES 4096

struct tutti__peers {
    tutti__peers *next; /* of the communicator's, or of those that other ranks still use */
    tutti_comm *comm;   /* NULL once closed */
    const tutti__runtime *run;
    int rank, world, device;
    page *page;
    size_t bytes, stride; /* of the file; words of a rank */
    bool registered;
    int words;
    CUdeviceptr device_words;
    PFN_cuStreamWriteValue32_v11070 write;
    PFN_cuStreamBatchMemOp_v11070 batch;
    unsigned flush;       /* a flag of waits, where the device has it */
    tutti__stream stream; /* of set-up */
    void *opened[SHARED_MAX][RANKS_MAX];
    int shared;
    void *own[SHARED_MAX]; /* from alloc */
    int own_count;
};

/* What a rank tells the others after a part of set-up. */
typedef struct outcome {
    int32_t well;
    char why[124];
} outcome;

static void fails(outcome *mine, const char *what, const char *why)
{
    if (!mine->well) return;
    mine->well = false;
    snprintf(mine->why, sizeof mine->why, "%s: %.90s", what, why);
}

static void check_cuda(outcome *mine, cudaError_t code, const char *what)
{
    if (code == cudaSuccess) return;
    (void)cudaGetLastError();
    fails(mine, what, cudaGetErrorString(code));
}

static void check_status(outcome *mine, tutti_status status, const char *what)
{
    if (status != TUTTI_OK) fails(mine, what, tutti_last_error());
}

/* *well: of all ranks; otherwise `why` names the first that is not. */
static tutti_status all_well(tutti_comm *comm, const outcome *mine, bool *well, char *why,
                             size_t size)
{
    outcome all[RANKS_MAX]; /* no allocation, which could fail on this rank alone */
    const tutti_status status = comm->control->gather(comm, mine, all, sizeof *mine, who);
    *well = status == TUTTI_OK;
    for (int r = 0; r < comm->world_size && *well; r++) {
        *well = all[r].well;
        all[r].why[sizeof all[r].why - 1] = 0;
        if (!*well) snprintf(why, size, "rank %d: %s", r, all[r].why);
    }
    return status;
}

static atomic_uint *words_of(const tutti__peers *peers, int rank)
{
    return (atomic_uint *)((char *)peers->page + PAGE_BYTES) + (size_t)rank * peers->stride;
}

static CUdeviceptr device_word(const tutti__peers *peers, int rank, int word)
{
    return peers->device_words + ((size_t)rank * peers->stride + (size_t)word) * sizeof(uint32_t);
}

/* Closing.  Another rank may still write to this one's memory, for which it has to have it open. */

static pthread_mutex_t behind_mutex = PTHREAD_MUTEX_INITIALIZER;
static tutti__peers *behind; /* closed here, in use elsewhere */

static bool all_left(const tutti__peers *peers)
{
    bool left = true;
    for (int r = 0; peers->page && r < peers->world && left; r++)
        left = r == peers->rank || atomic_load(&peers->page->left[r]);
    return left;
}

static void peers_free(tutti__peers *peers)
{
    (void)cudaSetDevice(peers->device);
    for (int i = 0; i < peers->own_count; i++) peers->run->free(peers->device, peers->own[i]);
    if (peers->registered) (void)cudaHostUnregister(peers->page);
    (void)cudaGetLastError();
    if (peers->page) munmap(peers->page, peers->bytes);
    free(peers);
}

static void free_behind(void)
{
    pthread_mutex_lock(&behind_mutex);
    for (tutti__peers **at = &behind; *at;) {
        tutti__peers *peers = *at;
        if (!all_left(peers)) {
            at = &peers->next;
            continue;
        }
        *at = peers->next;
        peers_free(peers);
    }
    pthread_mutex_unlock(&behind_mutex);
}

/* Guards the lists of communicators; never held for long. */
static pthread_mutex_t open_mutex = PTHREAD_MUTEX_INITIALIZER;

/* False: the communicator is dead, so streams may still wait, and others write. */
static bool forget(tutti__peers *peers)
{
    tutti__nccl *nccl = peers->comm->state;
    pthread_mutex_lock(&open_mutex);
    const bool alive = !peers->comm->dead;
    for (tutti__peers **at = &nccl->peers; alive && *at; at = &(*at)->next)
        if (*at == peers) {
            *at = peers->next;
            break;
        }
    pthread_mutex_unlock(&open_mutex);
    return alive;
}

/* Freeing must not break the capture of some stream. */
static void exchange_capture_mode(enum cudaStreamCaptureMode *mode)
{
    (void)cudaThreadExchangeStreamCaptureMode(mode);
}

static void peers_close(tutti__peers **closing)
{
    tutti__peers *peers = *closing;
    if (!peers) return;
    *closing = NULL;
    if (!forget(peers)) return;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    exchange_capture_mode(&mode);
    (void)cudaSetDevice(peers->device);
    for (int i = 0; i < peers->shared; i++)
        for (int r = 0; r < peers->world; r++)
            if (peers->opened[i][r]) (void)cudaIpcCloseMemHandle(peers->opened[i][r]);
    (void)cudaGetLastError();
    if (peers->stream) peers->run->stream_destroy(peers->device, peers->stream);
    if (peers->page) atomic_store(&peers->page->left[peers->rank], 1);
    for (double until = tutti__now() + LEAVE_SECONDS; !all_left(peers) && tutti__now() < until;)
        tutti__sleep(1e-4);
    peers->comm = NULL;
    pthread_mutex_lock(&behind_mutex);
    peers->next = behind;
    behind = peers;
    pthread_mutex_unlock(&behind_mutex);
    free_behind();
    exchange_capture_mode(&mode);
}

/* Release */

/* Streams clear a word when they have awaited it, and may await it again in a later step. */
static void *release(void *argument)
{
    tutti__nccl *nccl = argument;
    const double begin = tutti__now();
    for (;;) {
        pthread_mutex_lock(&open_mutex);
        for (tutti__peers *peers = nccl->peers; peers; peers = peers->next)
            for (int w = 0; w < peers->words; w++)
                atomic_store(&words_of(peers, peers->rank)[w], 1);
        pthread_mutex_unlock(&open_mutex);
        tutti__sleep(tutti__now() - begin < 2 ? 1e-4 : 2e-2);
    }
    return NULL;
}

void tutti__peers_release(tutti__nccl *nccl)
{
    pthread_t thread;
    pthread_mutex_lock(&open_mutex);
    const bool any = nccl->peers;
    for (tutti__peers *peers = nccl->peers; peers; peers = peers->next)
        atomic_store(&words_of(peers, peers->rank)[peers->words], 1); /* dead */
    pthread_mutex_unlock(&open_mutex);
    if (!any) return;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool made = pthread_create(&thread, NULL, release, nccl) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (made)
        pthread_detach(thread); /* lives as long as the process, which should end soon */
    else
        tutti__log(TUTTI_LOG_WARN, "cannot start a thread: streams may wait for other ranks");
}

/* Opening */

/* function: a pointer to one */
static void find(outcome *mine, const char *name, void *function)
{
    void *at = NULL;
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    check_cuda(mine, cudaGetDriverEntryPointByVersion(name, &at, 12000, cudaEnableDefault, &found),
               name);
#else
    check_cuda(mine, cudaGetDriverEntryPoint(name, &at, cudaEnableDefault, &found), name);
#endif
    if (!at || found != cudaDriverEntryPointSuccess) fails(mine, name, "not in this driver");
    memcpy(function, &at, sizeof at);
}

static void find_driver(tutti__peers *peers, outcome *mine)
{
    check_cuda(mine, cudaSetDevice(peers->device), "cudaSetDevice");
    find(mine, "cuStreamWriteValue32", &peers->write);
    find(mine, "cuStreamBatchMemOp", &peers->batch);
    int flushes = 0;
    check_cuda(mine,
               cudaDeviceGetAttribute(&flushes, cudaDevAttrCanFlushRemoteWrites, peers->device),
               "cudaDeviceGetAttribute");
    peers->flush = flushes ? CU_STREAM_WAIT_VALUE_FLUSH : 0;
    if (mine->well)
        check_status(mine, peers->run->stream_create(peers->device, true, &peers->stream),
                     "a stream");
}

/* Whether all ranks are processes of one host. */
static tutti_status meet(tutti__peers *peers, outcome *mine)
{
    typedef struct process {
        char host[64];
        int64_t pid;
    } process;
    tutti_comm *comm = peers->comm;
    process own, all[RANKS_MAX];
    memset(&own, 0, sizeof own);
    (void)gethostname(own.host, sizeof own.host - 1);
    own.pid = getpid();
    const tutti_status status = comm->control->gather(comm, &own, all, sizeof own, who);
    for (int r = 0; r < peers->world && status == TUTTI_OK; r++) {
        if (memcmp(all[r].host, own.host, sizeof own.host) != 0)
            fails(mine, "ranks are on several hosts", all[r].host);
        else if (r != peers->rank && all[r].pid == own.pid)
            fails(mine, "two ranks are one process", own.host);
    }
    return status;
}

static void map_file(tutti__peers *peers, int file, outcome *mine)
{
    void *at = mmap(NULL, peers->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED)
        fails(mine, "mmap", strerror(errno));
    else
        peers->page = at;
}

static uint64_t new_token(void)
{
    const double now = tutti__now();
    const int64_t pid = getpid();
    return tutti__hash(tutti__hash(TUTTI__HASH_START, &now, sizeof now), &pid, sizeof pid);
}

/* Rank 0 makes the file, whose name it removes at once: the others open it through rank 0. */
static tutti_status open_file(tutti__peers *peers, outcome *mine, bool *well, char *why,
                              size_t size)
{
    tutti_comm *comm = peers->comm;
    struct {
        uint64_t token;
        char path[64];
    } place;
    memset(&place, 0, sizeof place);
    int file = -1;
    if (peers->rank == 0) {
        char name[] = "/dev/shm/tutti-XXXXXX";
        place.token = new_token();
        file = mkostemp(name, O_CLOEXEC);
        const int code = file < 0 ? errno : posix_fallocate(file, 0, (off_t)peers->bytes);
        if (file >= 0) (void)unlink(name);
        snprintf(place.path, sizeof place.path, "/proc/%ld/fd/%d", (long)getpid(), file);
        if (code != 0) fails(mine, "shared memory in /dev/shm", strerror(code));
        if (mine->well) map_file(peers, file, mine);
        if (peers->page) peers->page->token = place.token;
    }
    tutti_status status = comm->control->broadcast(comm, &place, sizeof place, 0, who);
    if (status == TUTTI_OK) status = all_well(comm, mine, well, why, size);
    if (status == TUTTI_OK && *well && peers->rank > 0) {
        file = open(place.path, O_RDWR | O_CLOEXEC);
        if (file < 0)
            fails(mine, "the shared memory of rank 0", strerror(errno));
        else
            map_file(peers, file, mine);
        if (peers->page && peers->page->token != place.token)
            fails(mine, "the shared memory of rank 0", "another file has its name");
    }
    if (status == TUTTI_OK && *well) status = all_well(comm, mine, well, why, size);
    if (file >= 0) close(file);
    return status;
}

static void register_words(tutti__peers *peers, outcome *mine)
{
    void *at = NULL;
    check_cuda(mine,
               cudaHostRegister(peers->page, peers->bytes,
                                cudaHostRegisterMapped | cudaHostRegisterPortable),
               "cudaHostRegister");
    peers->registered = mine->well;
    if (mine->well)
        check_cuda(mine, cudaHostGetDevicePointer(&at, peers->page, 0), "cudaHostGetDevicePointer");
    peers->device_words = (CUdeviceptr)at + PAGE_BYTES;
}

static tutti_status set_up(tutti__peers *peers, bool *well, char *why, size_t size)
{
    tutti_comm *comm = peers->comm;
    outcome mine = {.well = true};
    find_driver(peers, &mine);
    TUTTI_TRY(meet(peers, &mine));
    TUTTI_TRY(all_well(comm, &mine, well, why, size));
    if (!*well) return TUTTI_OK;
    TUTTI_TRY(open_file(peers, &mine, well, why, size));
    if (!*well) return TUTTI_OK;
    register_words(peers, &mine);
    return all_well(comm, &mine, well, why, size);
}

static tutti_status peers_open(tutti_comm *comm, int words, tutti__peers **opened, char *why,
                               size_t size)
{
    tutti__nccl *nccl = comm->state;
    *opened = NULL;
    free_behind();
    if (comm->world_size > RANKS_MAX) {
        snprintf(why, size, "there are %d ranks, want at most %d", comm->world_size, RANKS_MAX);
        return TUTTI_OK;
    }
    tutti__peers *peers = calloc(1, sizeof *peers);
    tutti_status status = tutti_comm_agree(
        comm, peers ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who));
    if (status != TUTTI_OK) {
        free(peers);
        return status;
    }
    peers->comm = comm;
    peers->run = &comm->backend->run;
    peers->rank = comm->rank;
    peers->world = comm->world_size;
    peers->device = comm->device;
    peers->words = words;
    peers->stride = ((size_t)words + 32) / 32 * 32; /* and `dead`; ranks share no line */
    peers->bytes = PAGE_BYTES + (size_t)peers->world * peers->stride * sizeof(uint32_t);
    peers->bytes = (peers->bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    bool well = false;
    status = set_up(peers, &well, why, size);
    if (status == TUTTI_OK && well) {
        pthread_mutex_lock(&open_mutex);
        peers->next = nccl->peers;
        nccl->peers = peers;
        pthread_mutex_unlock(&open_mutex);
        *opened = peers;
        return TUTTI_OK;
    }
    if (peers->stream) peers->run->stream_destroy(peers->device, peers->stream);
    peers_free(peers);
    return status;
}

/* Sharing memory */

/* What a rank has to share: its handle, where `at` is in it, and what it has put into its first
 * bytes meanwhile. */
typedef struct offer {
    cudaIpcMemHandle_t handle;
    int64_t skip;
    uint64_t sample[8];
} offer;

static void copy_and_wait(tutti__peers *peers, outcome *mine, void *dst, const void *src,
                          size_t bytes)
{
    if (!mine->well) return;
    check_status(mine, peers->run->copy(peers->device, peers->stream, dst, src, bytes), "copy");
    if (mine->well)
        check_status(mine, peers->run->stream_synchronize(peers->device, peers->stream), "copy");
}

static void open_offer(tutti__peers *peers, int r, const offer *given, void **theirs, outcome *mine)
{
    uint64_t seen[8];
    void **opened = &peers->opened[peers->shared - 1][r];
    check_cuda(mine, cudaIpcOpenMemHandle(opened, given->handle, cudaIpcMemLazyEnablePeerAccess),
               "cudaIpcOpenMemHandle");
    if (!mine->well) *opened = NULL;
    if (!mine->well) return;
    theirs[r] = (char *)*opened + given->skip;
    copy_and_wait(peers, mine, seen, *opened, sizeof seen);
    if (mine->well && memcmp(seen, given->sample, sizeof seen) != 0)
        fails(mine, "cudaIpcOpenMemHandle", "other memory than that rank's");
}

static tutti_status peers_share(tutti__peers *peers, void *base, const void *at, void **theirs,
                                bool *shared, char *why, size_t size)
{
    tutti_comm *comm = peers->comm;
    outcome mine = {.well = true};
    offer own, *all = calloc((size_t)peers->world, sizeof *all);
    uint64_t kept[8];
    memset(&own, 0, sizeof own);
    for (int i = 0; i < 8; i++) own.sample[i] = new_token() + (uint64_t)i;
    if (!all || peers->shared == SHARED_MAX) fails(&mine, "share", "no memory");
    check_cuda(&mine, cudaSetDevice(peers->device), "cudaSetDevice");
    if (mine.well) check_cuda(&mine, cudaIpcGetMemHandle(&own.handle, base), "cudaIpcGetMemHandle");
    copy_and_wait(peers, &mine, kept, base, sizeof kept);
    copy_and_wait(peers, &mine, base, own.sample, sizeof own.sample);
    const bool written = mine.well;
    own.skip = (const char *)at - (const char *)base;
    tutti_status status = all_well(comm, &mine, shared, why, size);
    if (status == TUTTI_OK && *shared)
        status = comm->control->gather(comm, &own, all, sizeof own, who);
    if (status == TUTTI_OK && *shared) {
        peers->shared++;
        for (int r = 0; r < peers->world && mine.well; r++)
            if (r != peers->rank) open_offer(peers, r, &all[r], theirs, &mine);
        status = all_well(comm, &mine, shared, why, size);
    }
    outcome restored = {.well = true};
    if (written) copy_and_wait(peers, &restored, base, kept, sizeof kept);
    free(all);
    if (status != TUTTI_OK) return status;
    return tutti_comm_agree(comm, restored.well
                                      ? TUTTI_OK
                                      : tutti__fail(TUTTI_ERR_DEVICE, "%s: %s", who, restored.why));
}

static tutti_status peers_alloc(tutti__peers *peers, size_t bytes, void **own, void **theirs,
                                char *why, size_t size)
{
    outcome mine = {.well = true};
    bool well = false;
    void *made = NULL;
    bytes = (bytes + SHARE_BYTES - 1) / SHARE_BYTES * SHARE_BYTES;
    *own = NULL;
    if (peers->own_count == SHARED_MAX) fails(&mine, "share", "no memory");
    if (mine.well) check_status(&mine, peers->run->alloc(peers->device, bytes, &made), "alloc");
    if (mine.well) {
        peers->own[peers->own_count++] = made;
        check_status(&mine, peers->run->zero(peers->device, peers->stream, made, bytes), "zero");
    }
    TUTTI_TRY(all_well(peers->comm, &mine, &well, why, size));
    if (!well) return TUTTI_OK;
    TUTTI_TRY(peers_share(peers, made, made, theirs, &well, why, size));
    if (well) *own = made;
    return TUTTI_OK;
}

/* Words */

static tutti_status driver_status(CUresult code, const char *what)
{
    if (code == CUDA_SUCCESS) return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_DEVICE, "%s: error %d", what, (int)code);
}

static tutti_status set_word(tutti__peers *peers, tutti__stream stream, int rank, int word,
                             unsigned value)
{
    cudaError_t code = cudaSetDevice(peers->device);
    if (code != cudaSuccess)
        return tutti__fail(TUTTI_ERR_DEVICE, "cudaSetDevice: %s", cudaGetErrorString(code));
    return driver_status(peers->write((CUstream)stream, device_word(peers, rank, word), value,
                                      CU_STREAM_WRITE_VALUE_DEFAULT),
                         "cuStreamWriteValue32");
}

/* Behind this rank's words. */
static const uint32_t *peers_dead(const tutti__peers *peers)
{
    return (const uint32_t *)(uintptr_t)device_word(peers, peers->rank, peers->words);
}

static tutti_status peers_post(tutti__peers *peers, tutti__stream stream, int rank, int word)
{
    return set_word(peers, stream, rank, word, 1);
}

static tutti_status await_some(tutti__peers *peers, tutti__stream stream, const int *words,
                               int count)
{
    CUstreamBatchMemOpParams ops[2 * 64];
    memset(ops, 0, sizeof ops);
    for (int i = 0; i < count; i++) {
        const CUdeviceptr at = device_word(peers, peers->rank, words[i]);
        ops[2 * i].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
        ops[2 * i].waitValue.address = at;
        ops[2 * i].waitValue.value = 1;
        ops[2 * i].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ | (i + 1 == count ? peers->flush : 0);
        ops[2 * i + 1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        ops[2 * i + 1].writeValue.address = at;
        ops[2 * i + 1].writeValue.value = 0;
        ops[2 * i + 1].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    }
    return driver_status(peers->batch((CUstream)stream, (unsigned)(2 * count), ops, 0),
                         "cuStreamBatchMemOp");
}

static tutti_status peers_await(tutti__peers *peers, tutti__stream stream, const int *words,
                                int count, const char *operation, int64_t sequence)
{
    tutti__nccl *nccl = peers->comm->state;
    cudaError_t code = cudaSetDevice(peers->device);
    if (code != cudaSuccess)
        return tutti__fail(TUTTI_ERR_DEVICE, "cudaSetDevice: %s", cudaGetErrorString(code));
    TUTTI_TRY(tutti__watchdog_begin(nccl->watchdog, stream, operation, sequence));
    for (int done = 0; done < count; done += 64)
        TUTTI_TRY(await_some(peers, stream, words + done, count - done < 64 ? count - done : 64));
    return TUTTI_OK;
}

/* The proof */

#define PROOF_BYTES ((size_t)1 << 20) /* at most SHARE_BYTES */
#define PROOF_TRIES 3
#define HOLD_BLOCKS 4096
#define HOLD_SECONDS 0.25
#define ARRIVE_SECONDS 2.0 /* at most half of the communicator's deadline */

typedef struct proof {
    uint32_t *running; /* [HOLD_BLOCKS], then stop */
    tutti__stream holder;
    tutti__event event;
    void *source;
    unsigned char *sent, *got; /* PROOF_BYTES each */
    bool held;                 /* all multiprocessors, when the transfer began, ... */
    bool engines;              /* ... and when it had ended */
} proof;

static void proof_open(tutti__peers *peers, proof *p, outcome *mine)
{
    const tutti__runtime *run = peers->run;
    const int device = peers->device;
    const size_t held = (HOLD_BLOCKS + 1) * sizeof *p->running;
    void *words = NULL, *sent = NULL, *got = NULL;
    check_status(mine, run->host_alloc(device, held, &words), "host memory");
    if (mine->well) check_status(mine, run->host_alloc(device, PROOF_BYTES, &sent), "host memory");
    if (mine->well) check_status(mine, run->host_alloc(device, PROOF_BYTES, &got), "host memory");
    if (mine->well) check_status(mine, run->alloc(device, PROOF_BYTES, &p->source), "memory");
    if (mine->well) check_status(mine, run->stream_create(device, false, &p->holder), "stream");
    if (mine->well) check_status(mine, run->event_create(device, false, &p->event), "event");
    p->running = words;
    p->sent = sent;
    p->got = got;
    if (!mine->well) return;
    for (size_t i = 0; i < PROOF_BYTES; i++)
        p->sent[i] = (unsigned char)((i >> 8) + 7 * i + 31 * (size_t)peers->rank + 1);
    copy_and_wait(peers, mine, p->source, p->sent, PROOF_BYTES);
}

static void proof_close(tutti__peers *peers, proof *p)
{
    const tutti__runtime *run = peers->run;
    const int device = peers->device;
    if (p->holder) (void)run->stream_synchronize(device, p->holder);
    if (p->event) run->event_destroy(device, p->event);
    if (p->holder) run->stream_destroy(device, p->holder);
    if (p->source) run->free(device, p->source);
    if (p->running) run->host_free(device, p->running);
    if (p->sent) run->host_free(device, p->sent);
    if (p->got) run->host_free(device, p->got);
}

static bool all_run(const proof *p, int blocks)
{
    bool all = true;
    for (int b = 0; b < blocks && all; b++) all = ((volatile uint32_t *)p->running)[b] != 0;
    return all;
}

/* Waits for what is enqueued on a stream up to an event; false: not within that time. */
static bool reached(tutti__peers *peers, tutti__event event, double seconds, outcome *mine)
{
    bool done = false;
    for (double until = tutti__now() + seconds; !done && mine->well && tutti__now() < until;)
        check_status(mine, peers->run->event_query(peers->device, event, &done), "event");
    return done;
}

/* Writes to the next rank while a kernel holds this rank's multiprocessors. */
static void send_held(tutti__peers *peers, void *const *theirs, proof *p, outcome *mine)
{
    const tutti__runtime *run = peers->run;
    const int device = peers->device, next = (peers->rank + 1) % peers->world;
    uint32_t *stop = p->running + HOLD_BLOCKS;
    int blocks = 0;
    memset(p->running, 0, (HOLD_BLOCKS + 1) * sizeof *p->running);
    check_status(mine,
                 run->hold(device, p->holder, p->running, HOLD_BLOCKS, stop, HOLD_SECONDS, &blocks),
                 "hold");
    for (double until = tutti__now() + HOLD_SECONDS; mine->well && !all_run(p, blocks);)
        if (tutti__now() > until) break;
    p->held = mine->well && all_run(p, blocks);
    if (mine->well)
        check_status(mine, run->copy(device, peers->stream, theirs[next], p->source, PROOF_BYTES),
                     "copy");
    if (mine->well) check_status(mine, peers_post(peers, peers->stream, next, peers->rank), "post");
    if (mine->well) check_status(mine, run->event_record(device, p->event, peers->stream), "event");
    const bool done = reached(peers, p->event, HOLD_SECONDS / 2, mine);
    p->engines = p->held && done && all_run(p, blocks);
    *(volatile uint32_t *)stop = 1;
    (void)run->stream_synchronize(device, p->holder); /* HOLD_SECONDS at most */
}

/* Compares what the rank before has written. */
static void receive_held(tutti__peers *peers, const void *own, proof *p, outcome *mine)
{
    const tutti__runtime *run = peers->run;
    const int device = peers->device, before = (peers->rank + peers->world - 1) % peers->world;
    if (!mine->well) return;
    check_status(mine, await_some(peers, peers->stream, &before, 1), "await");
    if (mine->well)
        check_status(mine, run->copy(device, peers->stream, p->got, own, PROOF_BYTES), "copy");
    if (mine->well) check_status(mine, run->event_record(device, p->event, peers->stream), "event");
    if (!mine->well) return;
    const double half = peers->comm->timeout / 2;
    if (!reached(peers, p->event, half < ARRIVE_SECONDS ? half : ARRIVE_SECONDS, mine)) {
        fails(mine, "a transfer", "has not arrived");
        atomic_store(&words_of(peers, peers->rank)[before], 1);
        (void)run->stream_synchronize(device, peers->stream);
        return;
    }
    bool same = true;
    for (size_t i = 0; i < PROOF_BYTES && same; i++)
        same = p->got[i] == (unsigned char)((i >> 8) + 7 * i + 31 * (size_t)before + 1);
    if (!same) fails(mine, "a transfer", "other bytes have arrived than were sent");
}

static tutti_status peers_prove(tutti__peers *peers, void *own, void *const *theirs, bool *works,
                                bool *engines, char *why, size_t size)
{
    tutti_comm *comm = peers->comm;
    outcome mine = {.well = true};
    proof p;
    memset(&p, 0, sizeof p);
    *engines = false;
    if (peers->words < peers->world) fails(&mine, "proof", "no room");
    if (mine.well) proof_open(peers, &p, &mine);
    tutti_status status = all_well(comm, &mine, works, why, size);
    bool held = false; /* a rank's GPU may have other work */
    for (int i = 0; i < PROOF_TRIES && status == TUTTI_OK && *works && !held; i++) {
        send_held(peers, theirs, &p, &mine);
        receive_held(peers, own, &p, &mine);
        status = all_well(comm, &mine, works, why, size);
        if (status == TUTTI_OK && *works) status = tutti__comm_all(comm, p.held, who, &held);
    }
    if (status == TUTTI_OK && *works) status = tutti__comm_all(comm, p.engines, who, engines);
    if (status == TUTTI_OK && *works && !held)
        snprintf(why, size, "a GPU had other work, so copy engines could not be tried");
    proof_close(peers, &p);
    return status;
}

const tutti__peers_table tutti__nccl_peers = {.open = peers_open,
                                              .alloc = peers_alloc,
                                              .share = peers_share,
                                              .prove = peers_prove,
                                              .post = peers_post,
                                              .await = peers_await,
                                              .dead = peers_dead,
                                              .close = peers_close};
