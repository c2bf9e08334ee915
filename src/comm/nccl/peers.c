/* Ranks of one host: opening, closing, and words in a file of shared memory that every rank has
 * registered with its device. */
#include "comm/nccl/peers_state.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/agree.h"
#include "comm/wait.h"

static const char who[] = "grad_sync_create (peers)";

#define LEAVE_SECONDS 0.5 /* that close waits for other ranks */

tutti_status tutti__peers_all_well(tutti_comm *comm, const outcome *mine, bool *well, char *why,
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

uint64_t tutti__peers_token(void)
{
    const double now = tutti__now();
    const int64_t pid = getpid();
    return tutti__hash(tutti__hash(TUTTI__HASH_START, &now, sizeof now), &pid, sizeof pid);
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
static tutti_status find_ranks(tutti__peers *peers, outcome *mine)
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
        place.token = tutti__peers_token();
        file = mkostemp(name, O_CLOEXEC);
        const int code = file < 0 ? errno : posix_fallocate(file, 0, (off_t)peers->bytes);
        if (file >= 0) (void)unlink(name);
        snprintf(place.path, sizeof place.path, "/proc/%ld/fd/%d", (long)getpid(), file);
        if (code != 0) fails(mine, "shared memory in /dev/shm", strerror(code));
        if (mine->well) map_file(peers, file, mine);
        if (peers->page) peers->page->token = place.token;
    }
    tutti_status status = comm->control->broadcast(comm, &place, sizeof place, 0, who);
    if (status == TUTTI_OK) status = tutti__peers_all_well(comm, mine, well, why, size);
    if (status == TUTTI_OK && *well && peers->rank > 0) {
        file = open(place.path, O_RDWR | O_CLOEXEC);
        if (file < 0)
            fails(mine, "the shared memory of rank 0", strerror(errno));
        else
            map_file(peers, file, mine);
        if (peers->page && peers->page->token != place.token)
            fails(mine, "the shared memory of rank 0", "another file has its name");
    }
    if (status == TUTTI_OK && *well) status = tutti__peers_all_well(comm, mine, well, why, size);
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
    TUTTI_TRY(find_ranks(peers, &mine));
    TUTTI_TRY(tutti__peers_all_well(comm, &mine, well, why, size));
    if (!*well) return TUTTI_OK;
    TUTTI_TRY(open_file(peers, &mine, well, why, size));
    if (!*well) return TUTTI_OK;
    register_words(peers, &mine);
    return tutti__peers_all_well(comm, &mine, well, why, size);
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

/* Words */

static tutti_status driver_status(CUresult code, const char *what)
{
    if (code == CUDA_SUCCESS) return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_DEVICE, "%s: error %d", what, (int)code);
}

static tutti_status use_device(const tutti__peers *peers)
{
    const cudaError_t code = cudaSetDevice(peers->device);
    if (code == cudaSuccess) return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_DEVICE, "cudaSetDevice: %s", cudaGetErrorString(code));
}

/* Operations of a stream, one after another. */
typedef struct operations {
    CUstreamBatchMemOpParams list[3 * TUTTI__PEERS_WORDS_MAX];
    int count;
} operations;

static void add_write(operations *o, CUdeviceptr at, uint32_t value)
{
    CUstreamBatchMemOpParams *op = &o->list[o->count++];
    memset(op, 0, sizeof *op);
    op->writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op->writeValue.address = at;
    op->writeValue.value = value;
    op->writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
}

static void add_wait(operations *o, CUdeviceptr at, unsigned flags)
{
    CUstreamBatchMemOpParams *op = &o->list[o->count++];
    memset(op, 0, sizeof *op);
    op->waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    op->waitValue.address = at;
    op->waitValue.value = 1;
    op->waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ | flags;
}

static void add_posts(operations *o, const tutti__peers *peers, const tutti__post *posts, int count)
{
    TUTTI_ASSERT(count <= TUTTI__PEERS_WORDS_MAX);
    for (int i = 0; i < count; i++)
        add_write(o, device_word(peers, posts[i].rank, posts[i].word), 1);
}

static void add_awaits(operations *o, const tutti__peers *peers, const int *words, int count)
{
    TUTTI_ASSERT(count <= TUTTI__PEERS_WORDS_MAX);
    for (int i = 0; i < count; i++) {
        const CUdeviceptr at = device_word(peers, peers->rank, words[i]);
        add_wait(o, at, i + 1 == count ? peers->flush : 0);
        add_write(o, at, 0);
    }
}

static tutti_status enqueue(const tutti__peers *peers, tutti__stream stream, operations *o)
{
    return driver_status(peers->batch((CUstream)stream, (unsigned)o->count, o->list, 0),
                         "cuStreamBatchMemOp");
}

tutti_status tutti__peers_post(tutti__peers *peers, tutti__stream stream, const tutti__post *posts,
                               int count, bool idle)
{
    uint32_t *words[TUTTI__PEERS_WORDS_MAX];
    operations o;
    for (int i = 0; i < count && idle; i++)
        words[i] = (uint32_t *)(uintptr_t)device_word(peers, posts[i].rank, posts[i].word);
    if (idle) return peers->run->words_set(peers->device, stream, words, count);
    TUTTI_TRY(use_device(peers));
    o.count = 0;
    add_posts(&o, peers, posts, count);
    return enqueue(peers, stream, &o);
}

/* Behind this rank's words. */
static const uint32_t *peers_dead(const tutti__peers *peers)
{
    return (const uint32_t *)(uintptr_t)device_word(peers, peers->rank, peers->words);
}

tutti_status tutti__peers_await_some(tutti__peers *peers, tutti__stream stream, const int *words,
                                     int count, bool idle)
{
    uint32_t *own[TUTTI__PEERS_WORDS_MAX];
    operations o;
    for (int i = 0; i < count && idle; i++)
        own[i] = (uint32_t *)(uintptr_t)device_word(peers, peers->rank, words[i]);
    if (idle) return peers->run->words_await(peers->device, stream, own, count);
    o.count = 0;
    add_awaits(&o, peers, words, count);
    return enqueue(peers, stream, &o);
}

static tutti_status watch(const tutti__peers *peers, tutti__stream stream, const char *operation,
                          int64_t sequence)
{
    const tutti__nccl *nccl = peers->comm->state;
    TUTTI_TRY(use_device(peers));
    return tutti__watchdog_begin(nccl->watchdog, stream, operation, sequence);
}

static tutti_status peers_await(tutti__peers *peers, tutti__stream stream, const int *words,
                                int count, bool idle, const char *operation, int64_t sequence)
{
    TUTTI_TRY(watch(peers, stream, operation, sequence));
    return tutti__peers_await_some(peers, stream, words, count, idle);
}

static tutti_status peers_meet(tutti__peers *peers, tutti__stream stream, const tutti__post *posts,
                               int post_count, const int *words, int count, const char *operation,
                               int64_t sequence)
{
    operations o;
    TUTTI_TRY(watch(peers, stream, operation, sequence));
    o.count = 0;
    add_posts(&o, peers, posts, post_count);
    add_awaits(&o, peers, words, count);
    return enqueue(peers, stream, &o);
}

const tutti__peers_table tutti__nccl_peers = {.open = peers_open,
                                              .alloc = tutti__peers_alloc,
                                              .share = tutti__peers_share,
                                              .prove = tutti__peers_prove,
                                              .post = tutti__peers_post,
                                              .await = peers_await,
                                              .meet = peers_meet,
                                              .dead = peers_dead,
                                              .close = peers_close};
