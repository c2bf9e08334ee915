/* The communicator of one rank: every verb is a copy. */
#include <string.h>

#include "comm/control.h"
#include "comm/transport.h"

static tutti_status self_gather(tutti_comm *comm, const void *send, void *recv, size_t bytes,
                                const char *operation)
{
    (void)comm, (void)operation;
    memcpy(recv, send, bytes);
    return TUTTI_OK;
}

static tutti_status self_broadcast(tutti_comm *comm, void *data, size_t bytes, int root,
                                   const char *operation)
{
    (void)comm, (void)data, (void)bytes, (void)root, (void)operation;
    return TUTTI_OK;
}

static tutti_status self_collective(tutti_comm *comm, tutti_context *ctx,
                                    const tutti__collective *call)
{
    (void)comm;
    if (call->kind == TUTTI__BROADCAST || call->send == call->recv) return TUTTI_OK;
    size_t bytes = (size_t)call->count * tutti_dtype_size(call->dtype);
    return ctx->backend->run.copy(ctx->device, ctx->stream, call->recv, call->send, bytes);
}

static void self_destroy(tutti_comm *comm)
{
    (void)comm;
}

const tutti__control tutti__self_control = {
    .gather = self_gather, .broadcast = self_broadcast, .destroy = self_destroy};

const tutti__transport tutti__self_transport = {.kind = TUTTI_TRANSPORT_SELF,
                                                .style = TUTTI__STYLE_LOCAL,
                                                .collective = self_collective,
                                                .destroy = self_destroy};
