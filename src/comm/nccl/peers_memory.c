/* Device memory shared by the ranks of one host through CUDA's inter-process handles, and the proof
 * that copy engines move what is written to it. */
#include "comm/nccl/peers_state.h"

#include <stdlib.h>
#include <string.h>

#include "comm/agree.h"

static const char who[] = "grad_sync_create (peers)";

#define SHARE_BYTES ((size_t)2 << 20) /* the unit of what another process can see */

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

tutti_status tutti__peers_share(tutti__peers *peers, void *base, const void *at, void **theirs,
                                bool *shared, char *why, size_t size)
{
    tutti_comm *comm = peers->comm;
    outcome mine = {.well = true};
    offer own, *all = calloc((size_t)peers->world, sizeof *all);
    uint64_t kept[8];
    memset(&own, 0, sizeof own);
    for (int i = 0; i < 8; i++) own.sample[i] = tutti__peers_token() + (uint64_t)i;
    if (!all || peers->shared == SHARED_MAX) fails(&mine, "share", "no memory");
    check_cuda(&mine, cudaSetDevice(peers->device), "cudaSetDevice");
    if (mine.well) check_cuda(&mine, cudaIpcGetMemHandle(&own.handle, base), "cudaIpcGetMemHandle");
    copy_and_wait(peers, &mine, kept, base, sizeof kept);
    copy_and_wait(peers, &mine, base, own.sample, sizeof own.sample);
    const bool written = mine.well;
    own.skip = (const char *)at - (const char *)base;
    tutti_status status = tutti__peers_all_well(comm, &mine, shared, why, size);
    if (status == TUTTI_OK && *shared)
        status = comm->control->gather(comm, &own, all, sizeof own, who);
    if (status == TUTTI_OK && *shared) {
        peers->shared++;
        for (int r = 0; r < peers->world && mine.well; r++)
            if (r != peers->rank) open_offer(peers, r, &all[r], theirs, &mine);
        status = tutti__peers_all_well(comm, &mine, shared, why, size);
    }
    outcome restored = {.well = true};
    if (written) copy_and_wait(peers, &restored, base, kept, sizeof kept);
    free(all);
    if (status != TUTTI_OK) return status;
    return tutti_comm_agree(comm, restored.well
                                      ? TUTTI_OK
                                      : tutti__fail(TUTTI_ERR_DEVICE, "%s: %s", who, restored.why));
}

tutti_status tutti__peers_alloc(tutti__peers *peers, size_t bytes, void **own, void **theirs,
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
    TUTTI_TRY(tutti__peers_all_well(peers->comm, &mine, &well, why, size));
    if (!well) return TUTTI_OK;
    TUTTI_TRY(tutti__peers_share(peers, made, made, theirs, &well, why, size));
    if (well) *own = made;
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
    if (mine->well)
        check_status(
            mine,
            tutti__peers_post(peers, peers->stream, &(tutti__post){next, peers->rank}, 1, false),
            "post");
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
    check_status(mine, tutti__peers_await_some(peers, peers->stream, &before, 1, false), "await");
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

tutti_status tutti__peers_prove(tutti__peers *peers, void *own, void *const *theirs, bool *works,
                                bool *engines, char *why, size_t size)
{
    tutti_comm *comm = peers->comm;
    outcome mine = {.well = true};
    proof p;
    memset(&p, 0, sizeof p);
    *engines = false;
    if (peers->words < peers->world) fails(&mine, "proof", "no room");
    if (mine.well) proof_open(peers, &p, &mine);
    tutti_status status = tutti__peers_all_well(comm, &mine, works, why, size);
    bool held = false; /* a rank's GPU may have other work */
    for (int i = 0; i < PROOF_TRIES && status == TUTTI_OK && *works && !held; i++) {
        send_held(peers, theirs, &p, &mine);
        receive_held(peers, own, &p, &mine);
        status = tutti__peers_all_well(comm, &mine, works, why, size);
        if (status == TUTTI_OK && *works) status = tutti__comm_all(comm, p.held, who, &held);
    }
    if (status == TUTTI_OK && *works) status = tutti__comm_all(comm, p.engines, who, engines);
    if (status == TUTTI_OK && *works && !held)
        snprintf(why, size, "a GPU had other work, so copy engines could not be tried");
    proof_close(peers, &p);
    return status;
}
