/* What engines share. */
#include "comm/engine.h"

tutti_status tutti__engine_all_reduce(tutti__engine *engine, int r)
{
    tutti_comm *comm = engine->comm;
    tutti__engine_range *range = &engine->ranges[r];
    const int64_t count = range->gradient.count, world = comm->world_size;
    /* what a ring sends */
    engine->bytes_sent +=
        2 * (count * (int64_t)tutti__size_of(range->wire.dtype)) / world * (world - 1);
    return comm->transport->all_reduce(comm, &range->work, range->wire.data, count,
                                       range->wire.dtype);
}
