/* What the exchange of a sharded store does for the store and its optimizers. */
#include <stddef.h>

#include "comm/sync.h"

tutti_status tutti__shard_check(const tutti_params *params, const tutti_comm *comm)
{
    static const char who[] = "grad_sync_create";
    const int shards = params->desc.shards, shard = params->desc.shard;
    if (!shards) return TUTTI_OK;
    TUTTI_REQUIRE(shards == comm->world_size && shard == comm->rank,
                  "%s: the store is shard %d of %d, want %d of %d, as the communicator's ranks", who,
                  shard, shards, comm->rank, comm->world_size);
    if (params->link)
        return tutti__fail(TUTTI_ERR_STATE, "%s: the sharded store has an exchange already", who);
    return TUTTI_OK;
}

static tutti_grad_sync *sync_of(tutti__shard_link *link)
{
    return (tutti_grad_sync *)((char *)link - offsetof(tutti_grad_sync, link));
}

static tutti_status sum(tutti__shard_link *self, tutti_context *ctx, double *values, int64_t count)
{
    return tutti_comm_all_reduce(sync_of(self)->comm, ctx, values, values, count, TUTTI_F64,
                                 TUTTI_SUM);
}

/* Equal slices are gathered at once, others sent by each rank in turn. */
static tutti_status gather(tutti__shard_link *self, tutti_context *ctx)
{
    const tutti_grad_sync *sync = sync_of(self);
    tutti_comm *comm = sync->comm;
    const tutti_params *params = sync->params;
    const int world = comm->world_size;
    const tutti_dtype dtype = params->working_dtype;
    char *values = params->working ? params->working : params->master;
    const size_t size = tutti__size_of(dtype);
    for (int r = 0; r < params->range_count; r++) {
        const tutti__span *range = &params->ranges[r];
        const tutti__span own = tutti__shard_slice(range, comm->rank, world);
        char *data = values + (size_t)range->first * size;
        if (range->count % (TUTTI__NORM_RUN * (int64_t)world) == 0) {
            TUTTI_TRY(tutti_comm_all_gather(comm, ctx, values + (size_t)own.first * size, data,
                                            own.count, dtype));
            continue;
        }
        for (int rank = 0; rank < world; rank++) {
            const tutti__span slice = tutti__shard_slice(range, rank, world);
            TUTTI_TRY(tutti_comm_broadcast(comm, ctx, values + (size_t)slice.first * size,
                                           slice.count, dtype, rank));
        }
    }
    return TUTTI_OK;
}

void tutti__shard_attach(tutti_grad_sync *sync)
{
    sync->link = (tutti__shard_link){sum, gather};
    if (sync->params->desc.shards > 1) sync->params->link = &sync->link;
}

void tutti__shard_detach(tutti_grad_sync *sync)
{
    if (sync->params->link == &sync->link) sync->params->link = NULL;
}
