/* The handle of a communicator: its properties, its checks and its death. */
#include "comm/comm.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>

#include "comm/control.h"
#include "comm/transport.h"

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

tutti_status tutti__comm_context_check(const tutti_comm *comm, const tutti_context *ctx,
                                       const char *who)
{
    TUTTI_REQUIRE(comm, "%s: comm is NULL", who);
    TUTTI_REQUIRE(ctx, "%s: ctx is NULL", who);
    TUTTI_TRY(tutti__context_open(ctx, who));
    TUTTI_REQUIRE(comm->backend == ctx->backend && comm->device == ctx->device,
                  "%s: the communicator is on %s device %d, the context on %s device %d", who,
                  comm->backend->name, comm->device, ctx->backend->name, ctx->device);
    return TUTTI_OK;
}

tutti_status tutti__comm_capture_check(const tutti_comm *comm, const tutti_context *ctx,
                                       const char *who)
{
    bool capturing;
    if (comm->transport->style != TUTTI__STYLE_HOST) return TUTTI_OK;
    TUTTI_TRY(ctx->backend->run.stream_capturing(ctx->device, ctx->stream, &capturing));
    if (!capturing) return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_STATE,
        "%s: the mpi transport works on the host and cannot be captured; use transport nccl", who);
}

/* Death */

tutti_status tutti__comm_alive(const tutti_comm *comm, const char *who)
{
    if (!comm->dead) return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_COMM, "%s: the communicator is dead: %s", who, comm->why);
}

/* Why the first communicator of this process died; written once. */
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
        (void)tutti_text_clean(comm->why); /* it may have another rank's text */
        lose(comm);
        comm->dead = true;
        if (comm->transport->abandon) comm->transport->abandon(comm);
    }
    while (!comm->dead) sched_yield();
    return tutti__fail(TUTTI_ERR_COMM, "%s", comm->why);
}
