/* What engines share. */
#include "comm/engine.h"
#include "core/params.h"

tutti_status tutti__engine_all_reduce(tutti__engine *engine, int r)
{
    tutti_comm *comm = engine->comm;
    tutti__engine_range *range = &engine->ranges[r];
    const int64_t count = range->gradient.count, world = comm->world_size;
    if (engine->hop.peers && tutti__hop_fits(count, range->wire.dtype)) {
        engine->bytes_sent += (int64_t)tutti__engine_wire_bytes(range) * (world - 1);
        return tutti__hop_sum(&engine->hop, comm, range->work.stream, range->wire.data, count,
                              range->wire.dtype, "gradient exchange", range->work.sequence);
    }
    /* what a ring sends */
    engine->bytes_sent +=
        2 * (count * (int64_t)tutti__size_of(range->wire.dtype)) / world * (world - 1);
    return comm->transport->all_reduce(comm, &range->work, range->wire.data, count,
                                       range->wire.dtype);
}

tutti_status tutti__engine_narrow(tutti__engine *engine, int r, tutti__stream stream, void *to)
{
    const tutti_comm *comm = engine->comm;
    const tutti__range *gradient = &engine->ranges[r].gradient;
    const tutti__span all = {0, gradient->count};
    tutti__span own = {gradient->count, 0};
    if (engine->late) own = tutti__shard_slice(&all, comm->rank, comm->world_size);
    const tutti__span parts[] = {{0, own.first}, {own.first + own.count, 0}};
    for (int i = 0; i < 2; i++) {
        const int64_t first = parts[i].first;
        const tutti__tree_sum_args args = {.count = i == 0 ? parts[i].count : all.count - first,
                                           .dtype = TUTTI_F32,
                                           .to_dtype = TUTTI_BF16,
                                           .dst = (uint16_t *)to + first,
                                           .inputs = 1,
                                           .threads = engine->threads,
                                           .in = {(const float *)(void *)gradient->data + first}};
        if (args.count > 0) TUTTI_TRY(comm->backend->op.tree_sum(comm->device, stream, &args));
    }
    return TUTTI_OK;
}

tutti_status tutti__engine_widen(const tutti__engine *engine, int r, tutti__stream stream,
                                 const void *from)
{
    const tutti_comm *comm = engine->comm;
    const tutti__range *gradient = &engine->ranges[r].gradient;
    tutti__span span = {0, gradient->count};
    if (engine->shards) span = tutti__shard_slice(&span, comm->rank, comm->world_size);
    const tutti__tree_sum_args args = {.count = span.count,
                                       .dtype = TUTTI_F32,
                                       .in_dtype = TUTTI_BF16,
                                       .dst = (float *)(void *)gradient->data + span.first,
                                       .inputs = 1,
                                       .threads = engine->threads,
                                       .in = {(const uint16_t *)from + span.first}};
    return comm->backend->op.tree_sum(comm->device, stream, &args);
}

tutti_status tutti__engine_await(const tutti__engine *engine, tutti__stream stream, int first,
                                 int rows, const char *operation, int64_t sequence)
{
    const tutti_comm *comm = engine->comm;
    enum { ROOM = TUTTI__PEERS_WORDS_MAX };
    int words[ROOM], count = 0;
    for (int i = 0, all = rows * comm->world_size; i < all; i++) {
        if (i % comm->world_size != comm->rank) words[count++] = first + i;
        if (count == 0 || (count < ROOM && i + 1 < all)) continue;
        TUTTI_TRY(comm->transport->peers->await(engine->peers, stream, words, count, operation,
                                                sequence));
        count = 0;
    }
    return TUTTI_OK;
}

tutti_status tutti__engine_post(const tutti__engine *engine, tutti__stream stream, int word)
{
    const tutti_comm *comm = engine->comm;
    for (int rank = 0; rank < comm->world_size; rank++)
        if (rank != comm->rank)
            TUTTI_TRY(comm->transport->peers->post(engine->peers, stream, rank, word));
    return TUTTI_OK;
}
