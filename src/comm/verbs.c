/* The public verbs: they check their arguments and hand over to a transport. */
#include <stdio.h>
#include <stdlib.h>

#include "comm/comm.h"
#include "comm/control.h"
#include "comm/transport.h"

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
    unsigned char mine = 0, *all = malloc((size_t)comm->world_size);
    if (!all) return tutti__fail(TUTTI_ERR_MEMORY, "barrier: no memory");
    tutti_status status = comm->control->gather(comm, &mine, all, 1, "barrier");
    free(all);
    return status;
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
