/* The public collectives: check their arguments and call the transport. */
#include <stdio.h>
#include <stdlib.h>

#include "comm/agree.h"
#include "comm/comm.h"
#include "comm/control.h"
#include "comm/transport.h"

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t p = (uintptr_t)a, q = (uintptr_t)b;
    return p < q + b_bytes && q < p + a_bytes;
}

static tutti_status collective(tutti_comm *comm, tutti_context *ctx, tutti__collective call)
{
    TUTTI_TRY(tutti__comm_context_check(comm, ctx, call.name));
    TUTTI_REQUIRE(call.count >= 0, "%s: count is %lld, want >= 0", call.name,
                  (long long)call.count);
    size_t size = tutti_dtype_size(call.dtype);
    TUTTI_REQUIRE(size > 0, "%s: dtype is %d, want a tutti_dtype", call.name, (int)call.dtype);
    TUTTI_REQUIRE((int)call.op >= TUTTI_SUM && call.op <= TUTTI_MAX,
                  "%s: op is %d, want sum, min or max", call.name, (int)call.op);
    TUTTI_REQUIRE(call.root >= 0 && call.root < comm->world_size, "%s: root is %d, want 0 to %d",
                  call.name, call.root, comm->world_size - 1);
    TUTTI_REQUIRE((uint64_t)call.count <= PTRDIFF_MAX / size / (size_t)comm->world_size,
                  "%s: count is %lld, more than memory can hold", call.name, (long long)call.count);
    if (call.count > 0) {
        TUTTI_REQUIRE(call.send, "%s: send is NULL", call.name);
        TUTTI_REQUIRE(call.recv, "%s: recv is NULL", call.name);
        size_t block = (size_t)call.count * size, all = block * (size_t)comm->world_size;
        bool scatters = call.kind == TUTTI__REDUCE_SCATTER || call.kind == TUTTI__ALL_TO_ALL;
        bool gathers = call.kind == TUTTI__ALL_GATHER || call.kind == TUTTI__ALL_TO_ALL;
        bool in_place = call.kind == TUTTI__ALL_REDUCE || call.kind == TUTTI__BROADCAST
                            ? call.send == call.recv
                            : call.kind == TUTTI__ALL_GATHER &&
                                  call.send == (char *)call.recv + block * (size_t)comm->rank;
        TUTTI_REQUIRE(in_place || !overlap(call.send, scatters ? all : block, call.recv,
                                           gathers ? all : block),
                      "%s: send and recv overlap", call.name);
    }
    TUTTI_TRY(tutti__comm_open(comm, call.name));
    if (call.count == 0) return TUTTI_OK;
    call.sequence = ++comm->sequence;
    return comm->transport->collective(comm, ctx, &call);
}

tutti_status tutti_comm_all_reduce(tutti_comm *comm, tutti_context *ctx, const void *send,
                                   void *recv, int64_t count, tutti_dtype dtype, tutti_op op)
{
    return collective(
        comm, ctx,
        (tutti__collective){TUTTI__ALL_REDUCE, "all_reduce", send, recv, count, dtype, op, 0, 0});
}

tutti_status tutti_comm_broadcast(tutti_comm *comm, tutti_context *ctx, void *data, int64_t count,
                                  tutti_dtype dtype, int root)
{
    TUTTI_REQUIRE(data || count <= 0, "broadcast: data is NULL");
    return collective(comm, ctx,
                      (tutti__collective){TUTTI__BROADCAST, "broadcast", data, data, count, dtype,
                                          TUTTI_SUM, root, 0});
}

tutti_status tutti_comm_all_gather(tutti_comm *comm, tutti_context *ctx, const void *send,
                                   void *recv, int64_t count, tutti_dtype dtype)
{
    return collective(comm, ctx,
                      (tutti__collective){TUTTI__ALL_GATHER, "all_gather", send, recv, count, dtype,
                                          TUTTI_SUM, 0, 0});
}

tutti_status tutti_comm_reduce_scatter(tutti_comm *comm, tutti_context *ctx, const void *send,
                                       void *recv, int64_t count, tutti_dtype dtype, tutti_op op)
{
    return collective(comm, ctx,
                      (tutti__collective){TUTTI__REDUCE_SCATTER, "reduce_scatter", send, recv,
                                          count, dtype, op, 0, 0});
}

tutti_status tutti_comm_all_to_all(tutti_comm *comm, tutti_context *ctx, const void *send,
                                   void *recv, int64_t count, tutti_dtype dtype)
{
    return collective(comm, ctx,
                      (tutti__collective){TUTTI__ALL_TO_ALL, "all_to_all", send, recv, count, dtype,
                                          TUTTI_SUM, 0, 0});
}

tutti_status tutti_comm_barrier(tutti_comm *comm, tutti_context *ctx)
{
    TUTTI_TRY(tutti__comm_context_check(comm, ctx, "barrier"));
    TUTTI_TRY(tutti__comm_open(comm, "barrier"));
    TUTTI_TRY(tutti_context_synchronize(ctx));
    unsigned char mine = 0, *all = tutti__comm_room(comm, (size_t)comm->world_size, "barrier");
    if (!all) return TUTTI_ERR_MEMORY;
    tutti_status status = comm->control->gather(comm, &mine, all, 1, "barrier");
    free(all);
    return status;
}

tutti_status tutti_comm_abort(tutti_comm *comm, const char *message)
{
    TUTTI_REQUIRE(comm, "comm_abort: comm is NULL");
    TUTTI_REQUIRE(message && message[0], "comm_abort: message is %s", message ? "empty" : "NULL");
    TUTTI_TRY(tutti__comm_open(comm, "comm_abort"));
    char reason[TUTTI__MESSAGE_MAX / 2]; /* message may be tutti_last_error's */
    snprintf(reason, sizeof reason, "%s", message);
    if (comm->control->give_up) comm->control->give_up(comm, reason);
    (void)tutti__comm_die(comm, "rank %d gave up: %s", comm->rank, reason);
    return TUTTI_OK;
}
