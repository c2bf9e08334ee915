/* Communicators: the public verbs check their arguments and hand over to a transport; waiting, death, agreement. */
#include "comm/comm.h"

#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Life */

tutti_comm_desc tutti_comm_desc_default(void)
{
    return (tutti_comm_desc)TUTTI_COMM_DESC_INIT;
}

static tutti_status desc_check(const tutti_comm_desc *given, const char *who, tutti_comm_desc *own)
{
    TUTTI_TRY(tutti__desc_read(own, sizeof *own, given, who));
    TUTTI_REQUIRE((int)own->transport >= TUTTI_TRANSPORT_AUTO &&
                      own->transport <= TUTTI_TRANSPORT_NCCL,
                  "%s: transport is %d, want auto, self, mpi or nccl", who, (int)own->transport);
    own->timeout = tutti__field(own->timeout, 60);
    TUTTI_REQUIRE(isfinite(own->timeout) && own->timeout > 0,
                  "%s: timeout is %g, want seconds > 0, or 0 for 60", who, own->timeout);
    return TUTTI_OK;
}

tutti_status tutti__comm_desc_check(const tutti_comm_desc *given, const char *who,
                                    tutti_comm_desc *wanted)
{
    tutti_status status = desc_check(given, who, wanted);
    if (status != TUTTI_OK)
        *wanted = (tutti_comm_desc){.timeout = 60}; /* to tell the others with */
    return status;
}

tutti_status tutti__comm_new(tutti_context *ctx, double timeout, tutti_comm **comm)
{
    tutti_comm *made = calloc(1, sizeof *made);
    if (!made) return tutti__fail(TUTTI_ERR_MEMORY, "comm_create: no memory");
    made->transport = &tutti__self_transport;
    made->control = &tutti__self_control;
    if (ctx) {
        made->backend = ctx->backend;
        made->device = ctx->device;
    }
    made->world_size = 1;
    made->timeout = timeout;
    *comm = made;
    return TUTTI_OK;
}

tutti_status tutti_comm_create(tutti_context *ctx, const tutti_comm_desc *desc, tutti_comm **comm)
{
#ifdef TUTTI_WITH_MPI
    /* everything is checked in there: what is wrong on one rank must fail on all */
    bool made;
    TUTTI_TRY(tutti__comm_create_world(ctx, desc, &made, comm));
    if (made) return TUTTI_OK;
#endif
    tutti_comm_desc wanted;
    TUTTI_REQUIRE(ctx, "comm_create: ctx is NULL");
    TUTTI_REQUIRE(comm, "comm_create: comm is NULL");
    TUTTI_TRY(tutti__comm_desc_check(desc, "comm_create", &wanted));
    if (wanted.transport == TUTTI_TRANSPORT_MPI || wanted.transport == TUTTI_TRANSPORT_NCCL)
        return tutti__fail(
            TUTTI_ERR_UNSUPPORTED,
            "comm_create: transport %s needs MPI and the library was built without "
            "it; want auto or self%s",
            wanted.transport == TUTTI_TRANSPORT_MPI ? "mpi" : "nccl",
            wanted.transport == TUTTI_TRANSPORT_MPI ? "" : ", or tutti_comm_create_from_nccl");
    return tutti__comm_new(ctx, wanted.timeout, comm);
}

/* What hangs on a context while a STREAM transport may have work there. */
typedef struct tutti__comm_use {
    struct tutti__comm_use *next;
    tutti_comm *comm;
    tutti_context *ctx;
    tutti__watch watch;
    tutti__event event; /* behind the last work; NULL before the first outside of a capture */
    bool captured;      /* graphs hold such work, and when they run is not known */
    tutti__wait wait;
    double waited;
} comm_use;

static void leave_context(tutti_comm *comm, comm_use *use)
{
    tutti__context_unwatch(use->ctx, &use->watch);
    if (use->event && !comm->dead) comm->backend->run.event_destroy(comm->device, use->event);
    free(use);
}

/* No wait for a context is this communicator's affair any more. */
static void leave_contexts(tutti_comm *comm)
{
    while (comm->uses) {
        comm_use *use = comm->uses;
        comm->uses = use->next;
        leave_context(comm, use);
    }
}

static void let_go(tutti_comm *comm, bool caller)
{
    if (!tutti__let_go(&comm->holders, caller)) return;
    leave_contexts(comm);
    comm->transport->destroy(comm);
    comm->control->destroy(comm);
    free(comm);
}

void tutti__comm_release(tutti_comm *comm)
{
    let_go(comm, false);
}

void tutti_comm_destroy(tutti_comm **comm)
{
    if (!comm || !*comm) return;
    if ((*comm)->dead) leave_contexts(*comm);
    let_go(*comm, true);
    *comm = NULL;
}

tutti_status tutti__comm_open(const tutti_comm *comm, const char *who)
{
    if (comm->holders.closed)
        return tutti__fail(TUTTI_ERR_STATE, "%s: the communicator has been destroyed", who);
    if (comm->control->thread) TUTTI_TRY(comm->control->thread(comm, who));
    return tutti__comm_alive(comm, who);
}

int tutti_comm_rank(const tutti_comm *comm)
{
    return comm ? comm->rank : -1;
}

int tutti_comm_world_size(const tutti_comm *comm)
{
    return comm ? comm->world_size : 0;
}

tutti_transport tutti_comm_transport(const tutti_comm *comm)
{
    return comm ? comm->transport->kind : TUTTI_TRANSPORT_AUTO;
}

/* Death */

tutti_status tutti__comm_alive(const tutti_comm *comm, const char *who)
{
    if (!comm->dead) return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_COMM, "%s: the communicator is dead: %s", who, comm->why);
}

/* Of the first communicator of this process that died, written once. */
static char lost_why[TUTTI__MESSAGE_MAX];
static atomic_bool losing, lost;

static void lose(const tutti_comm *comm)
{
    if (atomic_exchange(&losing, true)) return;
    snprintf(lost_why, sizeof lost_why, "%s", comm->why);
    lost = true;
}

const char *tutti_comm_lost(void)
{
    return lost ? lost_why : NULL;
}

tutti_status tutti__comm_die(tutti_comm *comm, const char *format, ...)
{
    if (!atomic_exchange(&comm->dying, true)) {
        va_list args;
        va_start(args, format);
        vsnprintf(comm->why, sizeof comm->why, format, args);
        va_end(args);
        lose(comm);
        comm->dead = true;
        if (comm->transport->abandon) comm->transport->abandon(comm);
    }
    while (!comm->dead) sched_yield();
    return tutti__fail(TUTTI_ERR_COMM, "%s", comm->why);
}

tutti_status tutti_comm_abort(tutti_comm *comm, const char *message)
{
    TUTTI_REQUIRE(comm, "comm_abort: comm is NULL");
    TUTTI_REQUIRE(message && message[0], "comm_abort: message is %s", message ? "empty" : "NULL");
    TUTTI_TRY(tutti__comm_open(comm, "comm_abort"));
    char reason[TUTTI__MESSAGE_MAX / 2]; /* the message may be the library's last */
    snprintf(reason, sizeof reason, "%s", message);
    if (comm->control->give_up) comm->control->give_up(comm, reason);
    (void)tutti__comm_die(comm, "rank %d gave up: %s", comm->rank, reason);
    return TUTTI_OK;
}

/* Waiting */

#define PAUSES_MAX 8 /* that are not counted as waiting */

tutti__wait tutti__wait_begin(tutti_comm *comm, const char *operation, int64_t sequence)
{
    double now = tutti__now();
    return (tutti__wait){comm, operation, sequence, now, now, 0, 0, false};
}

#define ANSWER_SECONDS 1.0 /* that ranks get to answer at the deadline */

/* A rank may have begun to wait only now, or wait where it has not said so: nobody is named who was not asked.  Time in which this
 * process was stopped, or got no processor, is not taken from the others. */
static void ask_around(const tutti__wait *wait)
{
    tutti_comm *comm = wait->comm;
    double last = tutti__now(), waited = 0;
    comm->control->ask(wait);
    while (waited < ANSWER_SECONDS && !comm->dead) {
        (void)comm->control->hear(wait);
        if (comm->control->answered(comm)) return;
        tutti__sleep(1e-3);
        atomic_fetch_add_explicit(&comm->polls, 1, memory_order_relaxed);
        double now = tutti__now();
        waited += fmin(now - last, 0.1);
        last = now;
    }
}

static tutti_status missed(const tutti__wait *wait)
{
    tutti_comm *comm = wait->comm;
    const long long sequence = wait->sequence;
    const bool asks = comm->control->ask;
    char late[160] = "", lost_there[160] = "", astray[256] = "";
    if (asks) {
        ask_around(wait);
        comm->control->silent(wait, false, late, sizeof late);
        comm->control->silent(wait, true, lost_there, sizeof lost_there);
        comm->control->astray(wait, astray, sizeof astray);
    }
    if (late[0])
        return tutti__comm_die(comm, "%s #%lld: not finished after %g s, nothing heard of %s",
                               wait->operation, sequence, comm->timeout, late);
    if (lost_there[0])
        return tutti__comm_die(
            comm,
            "%s #%lld: not finished after %g s, nothing more heard of %s, which had come to it",
            wait->operation, sequence, comm->timeout, lost_there);
    if (astray[0])
        return tutti__comm_die(comm, "%s #%lld: not finished after %g s, while %s", wait->operation,
                               sequence, comm->timeout, astray);
    return tutti__comm_die(comm, "%s #%lld: not finished after %g s%s", wait->operation, sequence,
                           comm->timeout, asks ? ", although every rank has come to it" : "");
}

/* Tells and hears where ranks are, and gives up at the deadline. */
static tutti_status linger(tutti__wait *wait, double waited)
{
    tutti_comm *comm = wait->comm;
    atomic_fetch_add_explicit(&comm->polls, 1, memory_order_relaxed);
    TUTTI_TRY(tutti__comm_alive(comm, wait->operation));
    if (waited > 0.01 && comm->control->announce) {
        bool others_wait = comm->control->hear(wait);
        char reason[TUTTI__MESSAGE_MAX];
        const int gone = comm->control->gave_up(comm, reason, sizeof reason);
        if (gone >= 0) return tutti__comm_die(comm, "rank %d gave up: %s", gone, reason);
        double patience = fmin(1.0, comm->timeout / 4);
        if (!wait->announced && (others_wait || waited > patience)) {
            comm->control->announce(wait);
            wait->announced = true;
        }
    }
    return waited > comm->timeout ? missed(wait) : TUTTI_OK;
}

tutti_status tutti__wait_poll(tutti__wait *wait)
{
    double now = tutti__now();
    /* A process that was itself stopped for a while has not waited for the others in that time.  One whose every poll is so slow
     * (a driver that answers late) has. */
    if (now - wait->last > 0.5 && wait->pauses++ < PAUSES_MAX) wait->begin += now - wait->last;
    wait->last = now;
    double waited = now - wait->begin;
    /* spin while an answer is a matter of microseconds, then leave the core to others */
    if (++wait->polls < 64 && waited < 1e-3) return TUTTI_OK;
    if (waited < 0.02)
        sched_yield();
    else
        tutti__sleep(waited < 1 ? 5e-5 : 1e-3);
    return linger(wait, waited);
}

/* Streams that wait for other ranks */

static tutti_status use_advance(void *self, double waited)
{
    comm_use *use = self;
    tutti_comm *comm = use->comm;
    atomic_fetch_add_explicit(&comm->polls, 1, memory_order_relaxed);
    if (waited < 0) return TUTTI_OK;
    /* of a wait that is over too: aborting a sum ends it like any other */
    TUTTI_TRY(tutti__comm_alive(comm, "context_synchronize"));
    if (waited == 0) return TUTTI_OK;
    bool done = !use->captured;
    if (done && use->event)
        TUTTI_TRY(comm->backend->run.event_query(comm->device, use->event, &done));
    if (done) return TUTTI_OK;
    TUTTI_TRY(comm->transport->poll(comm));
    if (waited < use->waited) { /* another wait than the last */
        use->wait.announced = false;
        /* replays of a graph have no numbers: who waits in this one says so now */
        if (use->captured && comm->control->forget) comm->control->forget(comm);
    }
    use->waited = waited;
    return linger(&use->wait, waited);
}

/* Contexts come and go; a long-lived communicator does not keep them all. */
static void leave_closed(tutti_comm *comm)
{
    for (comm_use **at = &comm->uses; *at;) {
        comm_use *use = *at;
        if (!use->ctx->holders.closed) {
            at = &use->next;
            continue;
        }
        *at = use->next;
        leave_context(comm, use);
    }
}

/* NULL, with the message written, if there is no memory. */
static comm_use *use_of(tutti_comm *comm, tutti_context *ctx, const char *operation)
{
    comm_use *use = comm->uses;
    while (use && use->ctx != ctx) use = use->next;
    if (use) return use;
    leave_closed(comm);
    use = calloc(1, sizeof *use);
    if (!use) {
        (void)tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", operation);
        return NULL;
    }
    use->comm = comm;
    use->ctx = ctx;
    use->watch = (tutti__watch){NULL, use, use_advance};
    use->next = comm->uses;
    comm->uses = use;
    tutti__context_watch(ctx, &use->watch);
    return use;
}

tutti_status tutti__comm_follow(tutti_comm *comm, tutti_context *ctx, const char *operation)
{
    return use_of(comm, ctx, operation) ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

tutti_status tutti__comm_touch(tutti_comm *comm, tutti_context *ctx, const char *operation,
                               bool all)
{
    const tutti__runtime *run = &comm->backend->run;
    comm_use *use = use_of(comm, ctx, operation);
    if (!use) return TUTTI_ERR_MEMORY;
    use->wait = tutti__wait_begin(comm, operation, comm->sequence);
    bool capturing;
    TUTTI_TRY(run->stream_capturing(ctx->device, ctx->stream, &capturing));
    if (capturing) {
        use->captured = true;
        return TUTTI_OK;
    }
    if (all && comm->transport->fence) TUTTI_TRY(comm->transport->fence(comm, ctx->stream));
    if (!use->event) TUTTI_TRY(run->event_create(comm->device, false, &use->event));
    return run->event_record(comm->device, use->event, ctx->stream);
}

/* Verbs */

tutti_status tutti__comm_context_check(const tutti_comm *comm, const tutti_context *ctx,
                                       const char *who)
{
    TUTTI_REQUIRE(comm, "%s: comm is NULL", who);
    TUTTI_REQUIRE(ctx, "%s: ctx is NULL", who);
    TUTTI_REQUIRE(comm->backend == ctx->backend && comm->device == ctx->device,
                  "%s: the communicator is on %s device %d, the context on %s device %d", who,
                  comm->backend->name, comm->device, ctx->backend->name, ctx->device);
    return TUTTI_OK;
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t p = (uintptr_t)a, q = (uintptr_t)b;
    return p < q + b_bytes && q < p + a_bytes;
}

static tutti_status collective(tutti_comm *comm, tutti_context *ctx, tutti__collective what)
{
    TUTTI_TRY(tutti__comm_context_check(comm, ctx, what.name));
    TUTTI_REQUIRE(what.count >= 0, "%s: count is %lld, want >= 0", what.name,
                  (long long)what.count);
    size_t size = tutti_dtype_size(what.dtype);
    TUTTI_REQUIRE(size > 0, "%s: dtype is %d, which is no type", what.name, (int)what.dtype);
    TUTTI_REQUIRE((int)what.op >= TUTTI_SUM && what.op <= TUTTI_MAX,
                  "%s: op is %d, want sum, min or max", what.name, (int)what.op);
    TUTTI_REQUIRE(what.root >= 0 && what.root < comm->world_size, "%s: root is %d, want 0 to %d",
                  what.name, what.root, comm->world_size - 1);
    TUTTI_REQUIRE((uint64_t)what.count <= PTRDIFF_MAX / size / (size_t)comm->world_size,
                  "%s: count is %lld, more than memory can hold", what.name, (long long)what.count);
    if (what.count > 0) {
        TUTTI_REQUIRE(what.send, "%s: send is NULL", what.name);
        TUTTI_REQUIRE(what.recv, "%s: recv is NULL", what.name);
        size_t block = (size_t)what.count * size, all = block * (size_t)comm->world_size;
        bool scatters = what.kind == TUTTI__REDUCE_SCATTER || what.kind == TUTTI__ALL_TO_ALL;
        bool gathers = what.kind == TUTTI__ALL_GATHER || what.kind == TUTTI__ALL_TO_ALL;
        bool in_place = what.kind == TUTTI__ALL_REDUCE || what.kind == TUTTI__BROADCAST
                            ? what.send == what.recv
                            : what.kind == TUTTI__ALL_GATHER &&
                                  what.send == (char *)what.recv + block * (size_t)comm->rank;
        TUTTI_REQUIRE(in_place || !overlap(what.send, scatters ? all : block, what.recv,
                                           gathers ? all : block),
                      "%s: send and recv overlap", what.name);
    }
    TUTTI_TRY(tutti__comm_open(comm, what.name));
    if (what.count == 0) return TUTTI_OK;
    what.sequence = ++comm->sequence;
    return comm->transport->collective(comm, ctx, &what);
}

tutti_status tutti_comm_all_reduce(tutti_comm *comm, tutti_context *ctx, const void *send,
                                   void *recv, int64_t count, tutti_dtype dtype, tutti_op op)
{
    return collective(comm, ctx,
                      (tutti__collective){.kind = TUTTI__ALL_REDUCE,
                                          .name = "all_reduce",
                                          .send = send,
                                          .recv = recv,
                                          .count = count,
                                          .dtype = dtype,
                                          .op = op});
}

tutti_status tutti_comm_broadcast(tutti_comm *comm, tutti_context *ctx, void *data, int64_t count,
                                  tutti_dtype dtype, int root)
{
    TUTTI_REQUIRE(data || count <= 0, "broadcast: data is NULL");
    return collective(comm, ctx,
                      (tutti__collective){.kind = TUTTI__BROADCAST,
                                          .name = "broadcast",
                                          .send = data,
                                          .recv = data,
                                          .count = count,
                                          .dtype = dtype,
                                          .root = root});
}

tutti_status tutti_comm_all_gather(tutti_comm *comm, tutti_context *ctx, const void *send,
                                   void *recv, int64_t count, tutti_dtype dtype)
{
    return collective(comm, ctx,
                      (tutti__collective){.kind = TUTTI__ALL_GATHER,
                                          .name = "all_gather",
                                          .send = send,
                                          .recv = recv,
                                          .count = count,
                                          .dtype = dtype});
}

tutti_status tutti_comm_reduce_scatter(tutti_comm *comm, tutti_context *ctx, const void *send,
                                       void *recv, int64_t count, tutti_dtype dtype, tutti_op op)
{
    return collective(comm, ctx,
                      (tutti__collective){.kind = TUTTI__REDUCE_SCATTER,
                                          .name = "reduce_scatter",
                                          .send = send,
                                          .recv = recv,
                                          .count = count,
                                          .dtype = dtype,
                                          .op = op});
}

tutti_status tutti_comm_all_to_all(tutti_comm *comm, tutti_context *ctx, const void *send,
                                   void *recv, int64_t count, tutti_dtype dtype)
{
    return collective(comm, ctx,
                      (tutti__collective){.kind = TUTTI__ALL_TO_ALL,
                                          .name = "all_to_all",
                                          .send = send,
                                          .recv = recv,
                                          .count = count,
                                          .dtype = dtype});
}

tutti_status tutti_comm_barrier(tutti_comm *comm, tutti_context *ctx)
{
    TUTTI_TRY(tutti__comm_context_check(comm, ctx, "barrier"));
    TUTTI_TRY(tutti__comm_open(comm, "barrier"));
    TUTTI_TRY(tutti_context_synchronize(ctx));
    unsigned char mine = 0, *all = malloc((size_t)comm->world_size);
    if (!all) return tutti__fail(TUTTI_ERR_MEMORY, "barrier: no memory");
    tutti_status status = comm->control->gather(comm, &mine, all, 1, "barrier");
    free(all);
    return status;
}

tutti_status tutti_comm_agree(tutti_comm *comm, tutti_status status)
{
    TUTTI_REQUIRE(comm, "agree: comm is NULL");
    TUTTI_TRY(tutti__comm_open(comm, "agree"));
    if (comm->world_size == 1) return status; /* the message is written already */
    char message[TUTTI__MESSAGE_MAX] = "";
    if (status != TUTTI_OK)
        snprintf(message, sizeof message, "%s",
                 tutti_last_error()[0] ? tutti_last_error() : tutti_status_string(status));
    int32_t mine = (int32_t)status, *all = malloc((size_t)comm->world_size * sizeof *all);
    if (!all) return tutti__fail(TUTTI_ERR_MEMORY, "agree: no memory");
    tutti_status moved = comm->control->gather(comm, &mine, all, sizeof mine, "agree");
    int first = 0;
    while (moved == TUTTI_OK && first < comm->world_size && all[first] == TUTTI_OK) first++;
    if (moved == TUTTI_OK && first < comm->world_size) {
        status = (tutti_status)all[first];
        moved = comm->control->broadcast(comm, message, sizeof message, first, "agree");
        message[sizeof message - 1] = 0;
        if (moved == TUTTI_OK) tutti__fail(status, "rank %d: %s", first, message);
    }
    free(all);
    return moved == TUTTI_OK ? status : moved;
}

/* Memory */

static tutti_status free_memory(tutti_comm *comm, void *data)
{
    for (comm_use *use = comm->uses; use && !comm->dead; use = use->next) {
        tutti__wait wait = tutti__wait_begin(comm, use->wait.operation, use->wait.sequence);
        bool done = !use->event;
        while (!done && !comm->dead) {
            if (comm->backend->run.event_query(comm->device, use->event, &done) != TUTTI_OK) break;
            if (!done) (void)tutti__wait_poll(&wait);
        }
    }
    /* what a lost operation may still write stays allocated */
    if (comm->dead) return TUTTI_OK;
    if (comm->transport->free) return comm->transport->free(comm, data);
    comm->backend->run.free(comm->device, data);
    return TUTTI_OK;
}

static tutti_status allocator_free(void *self, void *data)
{
    tutti_comm *comm = self;
    if (!data) return TUTTI_OK;
    tutti_status status = free_memory(comm, data);
    tutti__comm_release(comm); /* it may go with its last memory */
    return status;
}

/* All ranks get it or none. */
static tutti_status allocator_alloc(void *self, size_t bytes, void **data)
{
    tutti_comm *comm = self;
    *data = NULL;
    TUTTI_TRY(tutti__comm_open(comm, "allocator"));
    if (bytes == 0) return TUTTI_OK;
    tutti_status mine = comm->transport->alloc
                            ? comm->transport->alloc(comm, bytes, data)
                            : comm->backend->run.alloc(comm->device, bytes, data);
    tutti_status status = tutti_comm_agree(comm, mine);
    if (status == TUTTI_OK) {
        tutti__hold(&comm->holders);
        return TUTTI_OK;
    }
    if (mine == TUTTI_OK) (void)free_memory(comm, *data);
    *data = NULL;
    return status;
}

static void allocator_hold(void *self)
{
    tutti__hold(&((tutti_comm *)self)->holders);
}

static void allocator_release(void *self)
{
    tutti__comm_release(self);
}

tutti_allocator tutti_comm_allocator(tutti_comm *comm)
{
    if (!comm) return (tutti_allocator){.self = NULL};
    return (tutti_allocator){allocator_alloc, allocator_free, comm, allocator_hold,
                             allocator_release};
}
