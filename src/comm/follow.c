/* Contexts whose streams wait for other ranks: every wait for such a context has the deadline. */
#include "comm/follow.h"

#include <stdlib.h>

#include "comm/control.h"
#include "comm/transport.h"
#include "comm/wait.h"

/* Added to a context while a STREAM transport may have work there. */
typedef struct tutti__comm_use {
    struct tutti__comm_use *next;
    tutti_comm *comm;
    tutti_context *ctx;
    tutti__progress progress;
    tutti__event event; /* after the last work; NULL if none was enqueued outside of a capture */
    bool captured;      /* graphs hold such work, so it is not known when it runs */
    tutti__wait wait;
    double waited;
} comm_use;

static void leave_context(tutti_comm *comm, comm_use *use)
{
    tutti__progress_remove(use->ctx, &use->progress);
    if (use->event && !comm->dead) comm->backend->run.event_destroy(comm->device, use->event);
    free(use);
}

void tutti__comm_unfollow(tutti_comm *comm)
{
    while (comm->uses) {
        comm_use *use = comm->uses;
        comm->uses = use->next;
        leave_context(comm, use);
    }
}

static tutti_status use_advance(void *self, double waited)
{
    comm_use *use = self;
    tutti_comm *comm = use->comm;
    atomic_fetch_add_explicit(&comm->polls, 1, memory_order_relaxed);
    if (waited < 0) return TUTTI_OK;
    /* checked after a wait, too: an aborted sum ends it like a good one */
    TUTTI_TRY(tutti__comm_alive(comm, "context_synchronize"));
    if (waited == 0) return TUTTI_OK;
    bool done = !use->captured;
    if (done && use->event)
        TUTTI_TRY(comm->backend->run.event_query(comm->device, use->event, &done));
    if (done) return TUTTI_OK;
    TUTTI_TRY(comm->transport->poll(comm));
    if (waited < use->waited) { /* a new wait */
        use->wait.announced = false;
        /* replays of a graph have no sequence numbers: only what is announced from now on counts */
        if (use->captured && comm->control->forget) comm->control->forget(comm);
    }
    use->waited = waited;
    return tutti__wait_check(&use->wait, waited);
}

/* A long-lived communicator would otherwise keep every context it ever had. */
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
    use->progress = (tutti__progress){NULL, use, use_advance};
    use->next = comm->uses;
    comm->uses = use;
    tutti__progress_add(ctx, &use->progress);
    return use;
}

void tutti__comm_drain(tutti_comm *comm)
{
    for (comm_use *use = comm->uses; use && !comm->dead; use = use->next) {
        bool capturing = true;
        if (use->event)
            (void)tutti__wait_device(comm, use->event, NULL, use->wait.operation,
                                     use->wait.sequence);
        /* a graph that holds work may be running there */
        if (use->captured && !use->ctx->holders.closed && !comm->dead)
            (void)comm->backend->run.stream_capturing(use->ctx->device, use->ctx->stream,
                                                      &capturing);
        if (!capturing)
            (void)tutti__wait_device(comm, NULL, use->ctx->stream, use->wait.operation,
                                     use->wait.sequence);
    }
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
