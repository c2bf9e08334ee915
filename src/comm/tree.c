/* Reproducible mode: leaves merge on the caller's stream; then a range is summed over the ranks in two swaps.  In the
 * first each rank sends every other one its slice of all own roots; it adds what it got in the order of the tree; in the
 * second it sends the sum to all.  A small range is sent whole in the first, and everybody adds all of it: one swap's
 * latency for world_size times the bytes. */
#include <stdlib.h>

#include "comm/exchange.h"

/* Ranges up to this size are sent whole. */
#define WHOLE_BYTES ((size_t)64 << 10)
/* Slices begin at multiples of so many elements, so that vectors in them are whole. */
#define SLICE_ALIGN TUTTI_PARAM_ALIGN

typedef struct slice {
    int64_t begin, end; /* elements */
} slice;

static bool whole(const tutti__exchange_range *range)
{
    return (size_t)range->at.count * tutti_dtype_size(range->at.dtype) <= WHOLE_BYTES;
}

static int64_t slice_begin(int64_t count, int rank, int world_size)
{
    return rank == world_size ? count : count / SLICE_ALIGN * rank / world_size * SLICE_ALIGN;
}

/* What a rank adds. */
static slice slice_of(const tutti_grad_sync *sync, const tutti__exchange_range *range, int rank)
{
    const int world = sync->comm->world_size;
    if (whole(range)) return (slice){0, range->at.count};
    return (slice){slice_begin(range->at.count, rank, world),
                   slice_begin(range->at.count, rank + 1, world)};
}

static size_t slice_bytes(const tutti_grad_sync *sync, const tutti__exchange_range *range)
{
    slice own = slice_of(sync, range, sync->comm->rank);
    return ((size_t)(own.end - own.begin) * tutti_dtype_size(range->at.dtype) + 255) / 256 * 256;
}

/* Where a root lies: this rank's own in place, another's where it is received.  Of the first, element 0 is the range's; of
 * the second, the slice's. */
static char *received(const tutti_grad_sync *sync, const tutti__exchange_range *range, int root)
{
    int other = root < sync->leaves.first_root ? root : root - sync->leaves.own_roots;
    return range->received + (size_t)other * slice_bytes(sync, range);
}

static bool is_own(const tutti_grad_sync *sync, int root)
{
    return root >= sync->leaves.first_root &&
           root < sync->leaves.first_root + sync->leaves.own_roots;
}

/* Life */

tutti_status tutti__tree_open(tutti_grad_sync *sync)
{
    const tutti__runtime *run = &sync->backend->run;
    const tutti__leaves *leaves = &sync->leaves;
    const int world = sync->comm->world_size;
    const bool on_host = sync->comm->transport->style == TUTTI__STYLE_HOST;
    const size_t others = (size_t)(leaves->roots - leaves->own_roots);
    /* NCCL's messages want memory of one kind on both sides (registered, as gradients may be, or not): a kernel would wait
     * for ever otherwise.  So they go from slots to slots. */
    sync->apart = sync->comm->transport->style == TUTTI__STYLE_STREAM && others > 0;
    const int slots =
        sync->apart && leaves->own_roots > leaves->slots ? leaves->own_roots : leaves->slots;
    void *memory = NULL;
    if (slots > 0 && sync->flat_bytes > 0)
        TUTTI_TRY(run->alloc(sync->device, (size_t)slots * sync->flat_bytes, &memory));
    sync->slots = memory;
    if (others == 0) return TUTTI_OK;

    /* sends and receives of the larger swap */
    size_t room = (size_t)(world - 1) * (size_t)leaves->own_roots + others + 2 * (size_t)world;
    sync->pieces = calloc(room, sizeof *sync->pieces);
    if (!sync->pieces) return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    /* on a stream one range follows another; in host memory several fly at a time */
    size_t all = 0, largest = 0;
    for (int r = 0; r < sync->range_count; r++) {
        size_t bytes = others * slice_bytes(sync, &sync->ranges[r]);
        all += bytes;
        if (bytes > largest) largest = bytes;
    }
    size_t bytes = on_host ? all : largest;
    memory = NULL;
    if (bytes > 0)
        TUTTI_TRY(sync->staged ? run->host_alloc(sync->device, bytes, &memory)
                               : run->alloc(sync->device, bytes, &memory));
    sync->received = memory;
    char *place = memory;
    for (int r = 0; r < sync->range_count; r++) {
        sync->ranges[r].received = place;
        if (on_host && place) place += others * slice_bytes(sync, &sync->ranges[r]);
    }
    return TUTTI_OK;
}

void tutti__tree_close(tutti_grad_sync *sync, bool idle)
{
    const tutti__runtime *run = &sync->backend->run;
    free(sync->pieces);
    sync->pieces = NULL;
    tutti__leaves_close(&sync->leaves);
    if (!idle) return; /* a lost sum may still touch it */
    if (sync->slots) run->free(sync->device, sync->slots);
    if (sync->received && sync->staged) run->host_free(sync->device, sync->received);
    if (sync->received && !sync->staged) run->free(sync->device, sync->received);
    sync->slots = sync->received = NULL;
}

/* Merging */

tutti_status tutti__tree_merge(tutti_grad_sync *sync, tutti_context *ctx, int r)
{
    const tutti__exchange_range *range = &sync->ranges[r];
    const tutti__leaf_merge merge = tutti__leaves_merge(&sync->leaves, sync->leaf);
    const bool in_place = sync->leaf == sync->leaves.first + sync->leaves.count - 1 && !sync->apart;
    tutti__tree_sum_args args = {.count = range->at.count,
                                 .dtype = range->at.dtype,
                                 .inputs = merge.merges + 1,
                                 .threads = sync->threads};
    const int base = merge.depth - merge.merges;
    for (int k = 0; k < merge.merges; k++)
        args.in[k] = sync->slots + (size_t)(base + k) * sync->flat_bytes + range->offset;
    args.in[merge.merges] = range->at.data;
    args.pops[merge.merges] = (unsigned char)merge.merges;
    args.dst =
        in_place ? range->at.data : sync->slots + (size_t)base * sync->flat_bytes + range->offset;
    if (in_place && merge.merges == 0) return TUTTI_OK;
    return ctx->backend->op.tree_sum(ctx->device, ctx->stream, &args);
}

/* Over the ranks */

static void add_piece(tutti__piece *pieces, int *count, int peer, char *data, slice part,
                      size_t size)
{
    if (part.end == part.begin) return;
    pieces[(*count)++] =
        (tutti__piece){peer, data + (size_t)part.begin * size, part.end - part.begin};
}

/* Own roots to all, all others' to here. */
static tutti__swap scatter(tutti_grad_sync *sync, tutti__exchange_range *range)
{
    const int rank = sync->comm->rank, world = sync->comm->world_size;
    const tutti__leaves *leaves = &sync->leaves;
    const size_t size = tutti_dtype_size(range->at.dtype);
    tutti__swap swap = {.dtype = range->at.dtype, .sends = sync->pieces};
    const slice own = slice_of(sync, range, rank);
    for (int peer = 0; peer < world; peer++)
        for (int k = 0; peer != rank && k < leaves->own_roots; k++)
            add_piece(swap.sends, &swap.send_count, peer, tutti__exchange_root(sync, range, k),
                      slice_of(sync, range, peer), size);
    swap.recvs = swap.sends + swap.send_count;
    for (int peer = 0; peer < world; peer++)
        for (int k = leaves->rank_roots[peer]; peer != rank && k < leaves->rank_roots[peer + 1];
             k++)
            add_piece(swap.recvs, &swap.recv_count, peer, received(sync, range, k),
                      (slice){0, own.end - own.begin}, size);
    return swap;
}

/* The sum of the own slice to all, all others' to here. */
static tutti__swap gather(tutti_grad_sync *sync, tutti__exchange_range *range)
{
    const int rank = sync->comm->rank, world = sync->comm->world_size;
    const size_t size = tutti_dtype_size(range->at.dtype);
    char *result = tutti__exchange_root(sync, range, sync->leaves.own_roots - 1);
    tutti__swap swap = {.dtype = range->at.dtype, .sends = sync->pieces};
    for (int peer = 0; peer < world; peer++)
        if (peer != rank)
            add_piece(swap.sends, &swap.send_count, peer, result, slice_of(sync, range, rank),
                      size);
    swap.recvs = swap.sends + swap.send_count;
    for (int peer = 0; peer < world; peer++)
        if (peer != rank)
            add_piece(swap.recvs, &swap.recv_count, peer, result, slice_of(sync, range, peer),
                      size);
    return swap;
}

static tutti__swap counted(tutti_grad_sync *sync, tutti__swap swap)
{
    for (int i = 0; i < swap.send_count; i++)
        sync->bytes_sent += swap.sends[i].count * (int64_t)tutti_dtype_size(swap.dtype);
    return swap;
}

/* Adds the own slice of all roots. */
static tutti__tree_sum_args slice_sum(const tutti_grad_sync *sync,
                                      const tutti__exchange_range *range)
{
    const tutti__leaves *leaves = &sync->leaves;
    const slice own = slice_of(sync, range, sync->comm->rank);
    const size_t skip = (size_t)own.begin * tutti_dtype_size(range->at.dtype);
    tutti__tree_sum_args args = {.count = own.end - own.begin,
                                 .dtype = range->at.dtype,
                                 .dst = tutti__exchange_root(sync, range, leaves->own_roots - 1) +
                                        skip,
                                 .inputs = leaves->roots,
                                 .threads = sync->threads};
    for (int k = 0; k < leaves->roots; k++) {
        args.in[k] = is_own(sync, k)
                         ? tutti__exchange_root(sync, range, k - leaves->first_root) + skip
                         : received(sync, range, k);
        args.pops[k] = leaves->pops[k];
    }
    return args;
}

tutti_status tutti__tree_on_stream(tutti_grad_sync *sync, tutti__exchange_range *range)
{
    tutti_comm *comm = sync->comm;
    tutti__swap swap = counted(sync, scatter(sync, range));
    TUTTI_TRY(comm->transport->swap_on_stream(comm, sync->stream, &swap, range->sequence));
    const tutti__tree_sum_args args = slice_sum(sync, range);
    TUTTI_TRY(sync->backend->op.tree_sum(sync->device, sync->stream, &args));
    if (!whole(range)) {
        swap = counted(sync, gather(sync, range));
        TUTTI_TRY(comm->transport->swap_on_stream(comm, sync->stream, &swap, range->sequence));
    }
    return sync->backend->run.copy(sync->device, sync->stream, range->at.data,
                                   tutti__exchange_root(sync, range, sync->leaves.own_roots - 1),
                                   (size_t)range->at.count * tutti_dtype_size(range->at.dtype));
}

static tutti_status swap_start(tutti_grad_sync *sync, tutti__exchange_range *range,
                               tutti__swap swap)
{
    swap.tag = 2 * (int)((range - sync->ranges) % 8192) + range->gathering;
    return sync->comm->transport->swap_start(sync->comm, sync->link, &swap, &range->flight);
}

tutti_status tutti__tree_fly(tutti_grad_sync *sync, tutti__exchange_range *range)
{
    range->gathering = false;
    return swap_start(sync, range, counted(sync, scatter(sync, range)));
}

tutti_status tutti__tree_landed(tutti_grad_sync *sync, tutti__exchange_range *range, bool *landed)
{
    *landed = range->gathering || whole(range);
    if (range->gathering) return TUTTI_OK;
    const tutti__tree_sum_args args = slice_sum(sync, range);
    TUTTI_TRY(tutti__host_backend.op.tree_sum(0, NULL, &args));
    if (*landed) return TUTTI_OK;
    range->gathering = true;
    return swap_start(sync, range, counted(sync, gather(sync, range)));
}
