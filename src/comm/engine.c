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
        return tutti__hop_sum(&engine->hop, comm, range->work.stream, range->wire.data,
                              range->wire.data, count, range->wire.dtype, "gradient exchange",
                              range->work.sequence);
    }
    /* what a ring sends */
    engine->bytes_sent +=
        2 * (count * (int64_t)tutti__size_of(range->wire.dtype)) / world * (world - 1);
    return comm->transport->all_reduce(comm, &range->work, range->wire.data, count,
                                       range->wire.dtype);
}

/* Ranges up to this size are sent whole. */
#define WHOLE_BYTES ((size_t)64 << 10)
/* Slices begin at multiples of this many elements, so that vectors in them are whole. */
#define SLICE_ALIGN TUTTI_PARAM_ALIGN

static int64_t slice_begin(int64_t count, int rank, int world_size)
{
    return rank == world_size ? count : count / SLICE_ALIGN * rank / world_size * SLICE_ALIGN;
}

bool tutti__engine_whole(const tutti__engine *engine, const tutti__engine_range *range)
{
    return !engine->shards && tutti__engine_bytes(range) <= WHOLE_BYTES;
}

tutti__span tutti__engine_slice(const tutti__engine *engine, const tutti__engine_range *range,
                                int rank)
{
    const int world = engine->comm->world_size;
    const tutti__span all = {0, range->gradient.count};
    if (engine->shards) return tutti__shard_slice(&all, rank, world);
    if (tutti__engine_whole(engine, range)) return all;
    const int64_t begin = slice_begin(all.count, rank, world);
    return (tutti__span){begin, slice_begin(all.count, rank + 1, world) - begin};
}

tutti_status tutti__engine_narrow(tutti__engine *engine, int r, tutti__stream stream, void *to)
{
    const tutti_comm *comm = engine->comm;
    const tutti__engine_range *range = &engine->ranges[r];
    const tutti__range *gradient = &range->gradient;
    const tutti__span all = {0, gradient->count};
    tutti__span own = {gradient->count, 0};
    if (tutti__engine_only_moves(engine) && !tutti__engine_whole(engine, range))
        own = tutti__engine_slice(engine, range, comm->rank);
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
                                 int rows, bool idle, const char *operation, int64_t sequence)
{
    const tutti_comm *comm = engine->comm;
    enum { ROOM = TUTTI__PEERS_WORDS_MAX };
    int words[ROOM], count = 0;
    for (int i = 0, all = rows * comm->world_size; i < all; i++) {
        if (i % comm->world_size != comm->rank) words[count++] = first + i;
        if (count == 0 || (count < ROOM && i + 1 < all)) continue;
        TUTTI_TRY(comm->transport->peers->await(engine->peers, stream, words, count, idle,
                                                operation, sequence));
        count = 0;
    }
    return TUTTI_OK;
}

tutti_status tutti__engine_post(const tutti__engine *engine, tutti__stream stream, const int *words,
                                int count, bool idle)
{
    const tutti_comm *comm = engine->comm;
    enum { ROOM = TUTTI__PEERS_WORDS_MAX };
    tutti__post posts[ROOM];
    const int all = comm->world_size * count;
    int made = 0;
    for (int i = 0; i < all; i++) {
        const int rank = i / count;
        if (rank != comm->rank) posts[made++] = (tutti__post){rank, words[i % count]};
        if (made == 0 || (made < ROOM && i + 1 < all)) continue;
        TUTTI_TRY(comm->transport->peers->post(engine->peers, stream, posts, made, idle));
        made = 0;
    }
    return TUTTI_OK;
}

tutti_status tutti__engine_meet(const tutti__engine *engine, tutti__stream stream, int word,
                                int first, int rows, const char *operation, int64_t sequence)
{
    const tutti_comm *comm = engine->comm;
    enum { ROOM = TUTTI__PEERS_WORDS_MAX };
    tutti__post posts[ROOM];
    int words[ROOM], made = 0, count = 0;
    if (rows * comm->world_size > ROOM) {
        TUTTI_TRY(tutti__engine_post(engine, stream, &word, 1, false));
        return tutti__engine_await(engine, stream, first, rows, false, operation, sequence);
    }
    for (int rank = 0; rank < comm->world_size; rank++)
        if (rank != comm->rank) posts[made++] = (tutti__post){rank, word};
    for (int i = 0; i < rows * comm->world_size; i++)
        if (i % comm->world_size != comm->rank) words[count++] = first + i;
    return comm->transport->peers->meet(engine->peers, stream, posts, made, words, count, operation,
                                        sequence);
}

tutti_status tutti__engine_sent(const tutti__engine *engine, tutti__sends *sends)
{
    const tutti_comm *comm = engine->comm;
    const tutti__runtime *run = &comm->backend->run;
    const int count = sends->count;
    sends->count = 0;
    if (count == 0) return TUTTI_OK;
    return (sends->idle ? run->push : run->copy_all)(comm->device, sends->stream, sends->copies,
                                                     count);
}

tutti_status tutti__engine_send(const tutti__engine *engine, tutti__sends *sends, void *dst,
                                const void *src, size_t bytes)
{
    sends->copies[sends->count++] = (tutti__copy){dst, src, bytes};
    return sends->count < TUTTI__COPIES_MAX ? TUTTI_OK : tutti__engine_sent(engine, sends);
}
