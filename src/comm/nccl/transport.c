/* The nccl transport: collectives on the caller's stream through a non-blocking communicator, so
 * that no call waits for a lost rank. */
#include "comm/nccl/transport.h"

#include <stdlib.h>

#include "comm/follow.h"

/* Verbs */

static ncclDataType_t type_of(tutti_dtype dtype)
{
    switch (dtype) {
    case TUTTI_F32:
        return ncclFloat32;
    case TUTTI_F64:
        return ncclFloat64;
    case TUTTI_F16:
        return ncclFloat16;
    case TUTTI_BF16:
        return ncclBfloat16;
    case TUTTI_I32:
        return ncclInt32;
    case TUTTI_U8:
        break;
    }
    return ncclUint8;
}

static ncclRedOp_t op_of(tutti_op op)
{
    return op == TUTTI_MIN ? ncclMin : op == TUTTI_MAX ? ncclMax : ncclSum;
}

/* Inside of a registered window? */
static bool in_window(const tutti__nccl *nccl, const void *data)
{
    uintptr_t at = (uintptr_t)data;
    for (const tutti__nccl_memory *memory = nccl->memory; memory; memory = memory->next) {
        uintptr_t begin = (uintptr_t)memory->data;
        if (memory->window && at >= begin && at < begin + memory->bytes) return true;
    }
    return false;
}

/* In NCCL 2.28 a message between a registered window and plain memory never ends.  A peer's kind of
 * memory is unknown here, so messages always use plain memory. */
static tutti_status all_to_all(tutti_comm *comm, tutti_context *ctx, const tutti__collective *call)
{
    tutti__nccl *nccl = comm->state;
    size_t count = (size_t)call->count, block = count * tutti_dtype_size(call->dtype);
    size_t bytes = block * (size_t)comm->world_size, room = (bytes + 255) / 256 * 256;
    ncclDataType_t type = type_of(call->dtype);
    bool send_apart = in_window(nccl, call->send), recv_apart = in_window(nccl, call->recv);
    const tutti__runtime *run = &comm->backend->run;
    void *scratch;
    TUTTI_TRY(tutti__scratch(ctx, room * (size_t)(send_apart + recv_apart), &scratch));
    const char *send = send_apart ? scratch : call->send;
    char *recv = recv_apart ? (char *)scratch + (send_apart ? room : 0) : call->recv;
    if (send_apart) TUTTI_TRY(run->copy(comm->device, ctx->stream, scratch, call->send, bytes));

    TUTTI_TRY(tutti__nccl_enter(comm, call->name));
    ncclResult_t worst = ncclGroupStart();
    for (int r = 0; r < comm->world_size && worst == ncclSuccess; r++) {
        size_t skip = block * (size_t)r;
        worst = ncclSend(send + skip, count, type, r, nccl->comm, ctx->stream);
        if (worst == ncclSuccess)
            worst = ncclRecv(recv + skip, count, type, r, nccl->comm, ctx->stream);
    }
    ncclResult_t ended = ncclGroupEnd();
    tutti__nccl_leave(comm);
    TUTTI_TRY(
        tutti__nccl_settle(comm, worst == ncclSuccess ? ended : worst, call->name, call->sequence));
    return recv_apart ? run->copy(comm->device, ctx->stream, call->recv, recv, bytes) : TUTTI_OK;
}

static ncclResult_t enqueue(ncclComm_t nccl, cudaStream_t stream, const tutti__collective *call)
{
    size_t count = (size_t)call->count;
    ncclDataType_t type = type_of(call->dtype);
    ncclRedOp_t op = op_of(call->op);
    switch (call->kind) {
    case TUTTI__ALL_REDUCE:
        return ncclAllReduce(call->send, call->recv, count, type, op, nccl, stream);
    case TUTTI__BROADCAST:
        return ncclBroadcast(call->send, call->recv, count, type, call->root, nccl, stream);
    case TUTTI__ALL_GATHER:
        return ncclAllGather(call->send, call->recv, count, type, nccl, stream);
    case TUTTI__REDUCE_SCATTER:
        return ncclReduceScatter(call->send, call->recv, count, type, op, nccl, stream);
    case TUTTI__ALL_TO_ALL:
        break; /* several calls */
    }
    return ncclInternalError;
}

/* All collectives but all-to-all. */
static tutti_status on_stream(tutti_comm *comm, tutti__stream stream, const tutti__collective *call)
{
    tutti__nccl *nccl = comm->state;
    TUTTI_TRY(tutti__nccl_enter(comm, call->name));
    ncclResult_t result = enqueue(nccl->comm, (cudaStream_t)stream, call);
    tutti__nccl_leave(comm);
    return tutti__nccl_settle(comm, result, call->name, call->sequence);
}

static tutti_status nccl_collective(tutti_comm *comm, tutti_context *ctx,
                                    const tutti__collective *call)
{
    tutti__nccl *nccl = comm->state;
    TUTTI_TRY(tutti__watchdog_begin(nccl->watchdog, ctx->stream, call->name, call->sequence));
    TUTTI_TRY(call->kind == TUTTI__ALL_TO_ALL ? all_to_all(comm, ctx, call)
                                              : on_stream(comm, ctx->stream, call));
    return tutti__comm_touch(comm, ctx, call->name, true);
}

static const char exchange[] = "gradient exchange";

static tutti_status nccl_all_reduce(tutti_comm *comm, tutti__work *work, void *data, int64_t count,
                                    tutti_dtype dtype)
{
    tutti__nccl *nccl = comm->state;
    const tutti__collective call = {TUTTI__ALL_REDUCE, exchange, data,          data, count, dtype,
                                    TUTTI_SUM,         0,        work->sequence};
    TUTTI_TRY(tutti__watchdog_begin(nccl->watchdog, work->stream, exchange, work->sequence));
    return on_stream(comm, work->stream, &call);
}

static tutti_status nccl_swap(tutti_comm *comm, tutti__work *work, const tutti__swap *swap)
{
    tutti__nccl *nccl = comm->state;
    ncclDataType_t type = type_of(swap->dtype);
    cudaStream_t stream = (cudaStream_t)work->stream;
    TUTTI_TRY(tutti__watchdog_begin(nccl->watchdog, stream, exchange, work->sequence));
    TUTTI_TRY(tutti__nccl_enter(comm, exchange));
    ncclResult_t worst = ncclGroupStart();
    for (int i = 0; i < swap->send_count && worst == ncclSuccess; i++)
        worst = ncclSend(swap->sends[i].data, (size_t)swap->sends[i].count, type,
                         swap->sends[i].peer, nccl->comm, stream);
    for (int i = 0; i < swap->recv_count && worst == ncclSuccess; i++)
        worst = ncclRecv(swap->recvs[i].data, (size_t)swap->recvs[i].count, type,
                         swap->recvs[i].peer, nccl->comm, stream);
    ncclResult_t ended = ncclGroupEnd();
    tutti__nccl_leave(comm);
    return tutti__nccl_settle(comm, worst == ncclSuccess ? ended : worst, exchange, work->sequence);
}

static tutti_status nccl_watch(tutti_comm *comm, tutti__stream stream, const char *operation,
                               int64_t sequence)
{
    tutti__nccl *nccl = comm->state;
    return tutti__watchdog_begin(nccl->watchdog, stream, operation, sequence);
}

static tutti_status nccl_fence(tutti_comm *comm, tutti__stream stream)
{
    tutti__nccl *nccl = comm->state;
    return tutti__watchdog_clear(nccl->watchdog, stream);
}

/* Life */

void tutti__nccl_state_free(tutti__nccl *state)
{
    if (!state) return;
    pthread_mutex_destroy(&state->calls);
    free(state);
}

/* Also called by the watchdog, wherever the rank's thread is. */
static void nccl_abandon(tutti_comm *comm)
{
    tutti__nccl *nccl = comm->state;
    if (!nccl) return;
    tutti__peers_release(nccl);
    /* Non-blocking calls of NCCL end soon.  If one does not, aborting from another thread is what
     * NCCL advises. */
    bool held = false;
    for (double until = tutti__now() + 1; !held && tutti__now() < until;) {
        held = pthread_mutex_trylock(&nccl->calls) == 0;
        if (!held) tutti__sleep(1e-3);
    }
    ncclComm_t handle = nccl->comm; /* no thread enters any more: comm is dead */
    if (held) pthread_mutex_unlock(&nccl->calls);
    /* ends the kernels that wait for the lost rank, so that their streams complete */
    if (handle && !tutti__nccl_abort(handle, comm->device))
        tutti__log(TUTTI_LOG_WARN, "ncclCommAbort does not return; left running");
}

static void nccl_destroy(tutti_comm *comm)
{
    tutti__nccl *nccl = comm->state;
    if (!nccl) return;
    tutti__watchdog_close(&nccl->watchdog);
    if (comm->dead) return;
    comm->state = NULL;
    if (nccl->control_stream) comm->backend->run.stream_destroy(comm->device, nccl->control_stream);
    if (nccl->comm && nccl->owned && !tutti__nccl_finalize(nccl->comm, comm->device, comm->timeout))
        tutti__log(TUTTI_LOG_INFO,
                   "NCCL is still destroying a communicator in the background: another rank has "
                   "not begun to, or CUDA graphs that hold its work must be destroyed");
    for (tutti__nccl_memory *memory = nccl->memory, *next; memory; memory = next) {
        next = memory->next; /* not freed before the communicator: the memory stays its user's */
        free(memory);
    }
    tutti__nccl_state_free(nccl);
}

const tutti__transport tutti__nccl_transport = {
    .kind = TUTTI_TRANSPORT_NCCL,
    .style = TUTTI__STYLE_STREAM,
    .collective = nccl_collective,
    .all_reduce = nccl_all_reduce,
    .swap = nccl_swap,
    .watch = nccl_watch,
    .fence = nccl_fence,
    .poll = tutti__nccl_poll,
    .alloc = tutti__nccl_alloc,
    .free = tutti__nccl_free,
    .peers = &tutti__nccl_peers,
    .abandon = nccl_abandon,
    .destroy = nccl_destroy,
};
