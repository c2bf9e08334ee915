/* What the exchange of a sharded store does for the store and its optimizers. */
#include <stddef.h>

#include "comm/follow.h"
#include "comm/sync.h"

tutti_status tutti__shard_check(const tutti_params *params, const tutti_comm *comm)
{
    static const char who[] = "grad_sync_create";
    const int shards = params->desc.shards, shard = params->desc.shard;
    if (!shards) return TUTTI_OK;
    TUTTI_REQUIRE(shards == comm->world_size && shard == comm->rank,
                  "%s: the store is shard %d of %d, want %d of %d, as the communicator's ranks",
                  who, shard, shards, comm->rank, comm->world_size);
    if (params->link)
        return tutti__fail(TUTTI_ERR_STATE, "%s: the sharded store has an exchange already", who);
    return TUTTI_OK;
}

static tutti_grad_sync *sync_of(tutti__shard_link *link)
{
    return (tutti_grad_sync *)((char *)link - offsetof(tutti_grad_sync, link));
}

/* Other ranks have gone on with an update that failed here after it had begun. */
static tutti_status usable(const tutti_grad_sync *sync)
{
    if (!sync->gather.begun) return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_COMM, "update: an earlier one failed after it had begun, which "
                                       "other ranks have completed: call tutti_comm_abort");
}

#define HOPS_MAX 16 /* a sum of more parts is the transport's */

static tutti_status sum(tutti__shard_link *self, tutti_context *ctx, const double *from, double *to,
                        int64_t count)
{
    static const char operation[] = "all_reduce";
    enum { PART = TUTTI__HOP_BYTES / sizeof(double) };
    const tutti__hop *hop = &sync_of(self)->engine.hop;
    tutti_comm *comm = sync_of(self)->comm;
    TUTTI_TRY(usable(sync_of(self)));
    if (!hop->peers || count > HOPS_MAX * PART)
        return tutti_comm_all_reduce(comm, ctx, from, to, count, TUTTI_F64, TUTTI_SUM);
    TUTTI_TRY(tutti__comm_open(comm, operation));
    comm->sequence++;
    for (int64_t at = 0; at < count; at += PART)
        TUTTI_TRY(tutti__hop_sum(hop, comm, ctx->stream, from + at, to + at,
                                 count - at < PART ? count - at : PART, TUTTI_F64, operation,
                                 comm->sequence));
    return tutti__comm_touch(comm, ctx, operation, true);
}

static const double *squares(const tutti__shard_link *self)
{
    return sync_of((tutti__shard_link *)self)->engine.squares;
}

/* Equal slices are gathered at once, others sent by each rank in turn. */
static tutti_status gather_range(tutti_comm *comm, tutti_context *ctx, char *values, int64_t count,
                                 tutti_dtype dtype)
{
    const size_t size = tutti__size_of(dtype);
    const tutti__span range = {0, count};
    const int world = comm->world_size;
    if (count % (TUTTI__NORM_RUN * (int64_t)world) == 0) {
        const tutti__span own = tutti__shard_slice(&range, comm->rank, world);
        return tutti_comm_all_gather(comm, ctx, values + (size_t)own.first * size, values,
                                     own.count, dtype);
    }
    for (int rank = 0; rank < world; rank++) {
        const tutti__span slice = tutti__shard_slice(&range, rank, world);
        TUTTI_TRY(tutti_comm_broadcast(comm, ctx, values + (size_t)slice.first * size, slice.count,
                                       dtype, rank));
    }
    return TUTTI_OK;
}

static tutti_status gather(tutti__shard_link *self, tutti_context *ctx, bool written)
{
    tutti_grad_sync *sync = sync_of(self);
    tutti_comm *comm = sync->comm;
    if (sync->gather.shared) return tutti__gather_end(&sync->gather, ctx, written);
    const tutti_params *params = sync->params;
    for (int r = 0; r < params->range_count; r++) {
        const tutti__span *range = &params->ranges[r];
        const bool rounded = range->first < params->rounded;
        const tutti_dtype dtype = rounded ? params->working_dtype : params->desc.master_dtype;
        char *values = rounded
                           ? (char *)params->working + (size_t)range->first * tutti__size_of(dtype)
                           : tutti__masters_at(params, range->first);
        TUTTI_TRY(gather_range(comm, ctx, values, range->count, dtype));
    }
    return TUTTI_OK;
}

static tutti_status begin(tutti__shard_link *self, tutti_context *ctx, bool met)
{
    tutti_grad_sync *sync = sync_of(self);
    TUTTI_TRY(usable(sync));
    return sync->gather.shared ? tutti__gather_begin(&sync->gather, ctx, met) : TUTTI_OK;
}

static tutti_status await(tutti__shard_link *self, tutti_context *ctx, int group)
{
    return tutti__gather_await(&sync_of(self)->gather, ctx, group);
}

void tutti__shard_attach(tutti_grad_sync *sync)
{
    sync->link =
        (tutti__shard_link){.sum = sum, .squares = squares, .begin = begin, .gather = gather};
    if (sync->gather.shared) sync->link.replicas = &sync->gather.replicas;
    if (sync->gather.groups > 0) sync->link.await = await;
    if (sync->params->desc.shards > 1) sync->params->link = &sync->link;
}

void tutti__shard_detach(tutti_grad_sync *sync)
{
    if (sync->params->link == &sync->link) sync->params->link = NULL;
}
