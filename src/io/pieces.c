/* Tensors of sharded stores: each rank has pieces of them, of any length.  The file is that of the
 * whole tensor, so pieces and blocks overlap as they happen to; what travels between ranks does so
 * through the staging memory, by the communicator, as not every rank may see the file. */
#include "io/checkpoint.h"

#include <stdlib.h>

#include "comm/comm.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The pieces of a slot, if only to count them: pieces may be NULL. */
static int list_pieces(const tutti_params *params, const tutti__slot *slot,
                       tutti__shard_piece *pieces)
{
    const int64_t slot_end = slot->offset + slot->count;
    int n = 0;
    for (int r = 0; r < params->range_count; r++) {
        const tutti__span *range = &params->ranges[r];
        if (range->first >= slot_end || range->first + range->count <= slot->offset) continue;
        for (int rank = 0; rank < params->desc.shards; rank++) {
            const tutti__span slice = tutti__shard_slice(range, rank, params->desc.shards);
            const int64_t begin = most(slice.first, slot->offset);
            const int64_t end = least(slice.first + slice.count, slot_end);
            if (begin >= end) continue;
            if (pieces)
                pieces[n] = (tutti__shard_piece){begin - slot->offset, end - slot->offset, rank};
            n++;
        }
    }
    return n;
}

/* How many of the elements that this rank keeps come before one of the flat buffer. */
static int64_t kept_before(const tutti_params *params, int64_t element)
{
    int64_t kept = 0;
    for (int i = 0; i < params->own_count; i++) {
        const tutti__span *span = &params->own[i].span;
        if (span->first < element) kept += least(span->count, element - span->first);
    }
    return kept;
}

tutti_status tutti__pieces_make(const tutti_params *params, const tutti__slot *slot, void *kept,
                                tutti__item *item)
{
    const size_t size = tutti_dtype_size(item->tensor.dtype);
    if (kept) item->tensor.data = (char *)kept + (size_t)kept_before(params, slot->offset) * size;
    if (params->desc.shards <= 1) return TUTTI_OK;
    const int count = list_pieces(params, slot, NULL);
    item->pieces = calloc((size_t)count + 1, sizeof *item->pieces);
    if (!item->pieces) return tutti__fail(TUTTI_ERR_MEMORY, "checkpoint: no memory");
    item->piece_count = list_pieces(params, slot, item->pieces);
    return TUTTI_OK;
}

/* Blocks of one tensor that follow one another in the staging memory. */
typedef struct stretch {
    const tutti__item *item;
    char *staged;
    int64_t begin, end; /* of the tensor's bytes */
} stretch;

static int64_t next_run(const tutti_checkpoint *checkpoint, const tutti__block *blocks,
                        int64_t count, stretch *next)
{
    int64_t n = 0;
    while (n < count && blocks[n].item == blocks->item) n++;
    *next = (stretch){&checkpoint->items[blocks->item], blocks->data, blocks->begin,
                      blocks[n - 1].begin + blocks[n - 1].bytes};
    return n;
}

/* Copies this rank's pieces of a run to the staging memory and sends each to all, or copies them
 * back.  A rank whose copy fails still takes part. */
static tutti_status move_run(const tutti_checkpoint *checkpoint, const stretch *run, bool gather)
{
    tutti_context *ctx = checkpoint->ctx;
    tutti_comm *comm = checkpoint->comm;
    const int64_t size = (int64_t)tutti_dtype_size(run->item->tensor.dtype);
    char *kept = run->item->tensor.data; /* this rank's next piece */
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < run->item->piece_count; i++) {
        const tutti__shard_piece *piece = &run->item->pieces[i];
        const int64_t first = piece->begin * size;
        const int64_t begin = most(first, run->begin), end = least(piece->end * size, run->end);
        const bool mine = piece->rank == comm->rank;
        if (begin < end) {
            const size_t bytes = (size_t)(end - begin);
            char *staged = run->staged + (begin - run->begin);
            char *here = mine ? kept + (begin - first) : NULL;
            if (mine && status == TUTTI_OK)
                status = ctx->backend->run.copy(ctx->device, ctx->stream, gather ? staged : here,
                                                gather ? here : staged, bytes);
            if (gather)
                TUTTI_TRY(
                    tutti_comm_broadcast(comm, ctx, staged, end - begin, TUTTI_U8, piece->rank));
        }
        if (mine) kept += (piece->end - piece->begin) * size;
    }
    return status;
}

static tutti_status move_round(const tutti_checkpoint *checkpoint, const tutti__block *blocks,
                               int64_t count, bool gather)
{
    tutti_status status = TUTTI_OK;
    stretch next;
    for (int64_t i = 0; i < count;) {
        i += next_run(checkpoint, blocks + i, count - i, &next);
        const tutti_status moved = move_run(checkpoint, &next, gather);
        if (status == TUTTI_OK) status = moved;
    }
    return status;
}

tutti_status tutti__pieces_gather(const tutti_checkpoint *checkpoint, const tutti__block *blocks,
                                  int64_t count)
{
    const tutti_status status = move_round(checkpoint, blocks, count, true);
    const tutti_status idle = tutti_context_synchronize(checkpoint->ctx);
    return status == TUTTI_OK ? idle : status;
}

tutti_status tutti__pieces_keep(const tutti_checkpoint *checkpoint, const tutti__block *blocks,
                                int64_t count)
{
    return move_round(checkpoint, blocks, count, false);
}
