/* The engine of reproducible mode, of sharded stores, and of copy engines: the transport's engine
 * with other operations for a range.
 * Leaves merge on the caller's stream; then a range is summed over the ranks in two swaps.  In the
 * first each rank sends every other rank that rank's slice of all its own roots; each adds what it
 * received in the order of the tree; in the second it sends the sum to all.  A small range is sent
 * whole in the first swap, and every rank adds all of it: one swap's latency for world_size times
 * the bytes.  A sharded store's ranges have no second swap, and without leaves, there and where
 * gradients travel in bf16, each rank's gradient is a root, which are added in rank order.  On a
 * stream they are added late, so that what is received has room for all ranges: with copy engines
 * in the gradients themselves, where the range before was sent, if they fit and it has no padding.
 * Copy engines write the sums of other stores into all gradients instead of a second swap. */
#include <stdio.h>
#include <stdlib.h>

#include "comm/agree.h"
#include "comm/engine.h"

/* Ranges that a kernel adds at once. */
#define ALIKE_MAX 4096

typedef struct tree {
    tutti__engine_table table; /* the carrier's, with the tree's own entries */
    bool apart;                /* sums over the ranks are computed in slots, not in the gradients */
    void *received;            /* roots of the other ranks, ... */
    char **places;             /* ... those of each range */
    size_t *ahead;             /* of each range: bytes of one root's slices of the ranges before */
    void **received_of;        /* copy engines: where other ranks receive, ... */
    void **gradients_of;       /* ... and their gradients, ... */
    bool shared;               /* ... if these are used for it */
    tutti__piece *pieces;      /* room for a swap's messages */
} tree;

typedef struct slice {
    int64_t begin, end; /* elements */
} slice;

/* Ranges of a sharded store that are under way at once in host memory, where each needs room for
 * what it receives. */
#define SHARDED_AT_ONCE 2

/* The elements that a rank adds. */
static slice slice_of(const tutti__engine *engine, const tutti__engine_range *range, int rank)
{
    const tutti__span own = tutti__engine_slice(engine, range, rank);
    return (slice){own.first, own.first + own.count};
}

/* Where pieces only move: the same on all ranks, as much as the largest. */
static size_t slice_bytes(const tutti__engine *engine, const tutti__engine_range *range)
{
    const bool same = tutti__engine_only_moves(engine);
    int64_t most = 0;
    for (int rank = 0; rank < engine->comm->world_size; rank++) {
        const int64_t count = tutti__engine_slice(engine, range, rank).count;
        if ((same || rank == engine->comm->rank) && count > most) most = count;
    }
    return ((size_t)most * tutti__size_of(range->wire.dtype) + 255) / 256 * 256;
}

/* Where this rank's root k of a range, 0 the oldest, is sent from. */
static char *own_root(const tutti__engine *engine, const tutti__engine_range *range, int k)
{
    if (k == engine->roots - 1) return range->wire.data;
    return engine->wire_roots + (size_t)k * engine->flat_bytes + range->offset;
}

/* Copy engines: a range's pieces are received in the gradients of the range before, each where the
 * slice of the rank that sends it was.  Padding stays 0, since no backward would clear it. */
static bool in_gradients(const tutti__engine *engine, int r)
{
    const tree *t = engine->tree;
    const tutti__engine_range *range = &engine->ranges[r], *before = range - 1;
    if (!t->shared || engine->spreads || r == 0 || !before->gradient.whole) return false;
    const slice largest = slice_of(engine, range, 0);
    const slice least = slice_of(engine, before, engine->comm->world_size - 1);
    return largest.end - largest.begin <= least.end - least.begin;
}

/* Where a rank's slice of a range lies in its gradients, from the first range on. */
static size_t place_of(const tutti__engine *engine, int r, int rank)
{
    const tutti__engine_range *range = &engine->ranges[r];
    return (size_t)(range->gradient.data - engine->ranges[0].gradient.data) +
           (size_t)slice_of(engine, range, rank).begin * tutti__size_of(range->gradient.dtype);
}

/* A received root of another rank; its element 0 is the slice's first. */
static char *received(const tutti__engine *engine, const tutti__engine_range *range, int root)
{
    const tree *t = engine->tree;
    const tutti__leaves *leaves = engine->leaves;
    const int r = (int)(range - engine->ranges);
    if (in_gradients(engine, r)) /* a root is a rank */
        return engine->ranges[0].gradient.data + place_of(engine, r - 1, root);
    int other = root < leaves->first_root ? root : root - leaves->own_roots;
    return t->places[r] + (size_t)other * slice_bytes(engine, range);
}

/* The same of this rank's root k, where another rank receives it. */
static char *received_by(const tutti__engine *engine, int r, int rank, int k)
{
    const tree *t = engine->tree;
    const tutti__leaves *leaves = engine->leaves;
    const int begin = leaves->rank_roots[rank], end = leaves->rank_roots[rank + 1];
    const size_t others = (size_t)(leaves->roots - (end - begin));
    if (in_gradients(engine, r))
        return (char *)t->gradients_of[rank] + place_of(engine, r - 1, engine->comm->rank);
    const int root = leaves->first_root + k, other = root < begin ? root : root - (end - begin);
    return (char *)t->received_of[rank] + others * t->ahead[r] +
           (size_t)other * slice_bytes(engine, &engine->ranges[r]);
}

static bool is_own(const tutti__engine *engine, int root)
{
    const tutti__leaves *leaves = engine->leaves;
    return root >= leaves->first_root && root < leaves->first_root + leaves->own_roots;
}

/* Merging */

static char *slot_of(const tutti__engine *engine, const tutti__engine_range *range, int slot)
{
    return engine->device_roots + (size_t)slot * engine->flat_bytes + range->offset;
}

/* What happens when the sum of `span` leaves is complete, of which two are each other's neighbours:
 * one merge less than after the second. */
static tutti__leaf_merge merge_of(const tutti__leaves *leaves, int first, int span)
{
    tutti__leaf_merge merge = tutti__leaves_merge(leaves, first);
    if (span == 1) return merge;
    const tutti__leaf_merge second = tutti__leaves_merge(leaves, first + 1);
    TUTTI_ASSERT(span == 2 && second.depth == merge.depth + 1 && second.merges > 0);
    return (tutti__leaf_merge){merge.depth, second.merges - 1};
}

/* The subtrees that the part's leaves end, each of which is added at once: the first one with the
 * slots that it takes in. */
static tutti_status tree_merge(tutti__engine *engine, tutti_context *ctx, int r,
                               const tutti__leaf_part *part)
{
    const tree *t = engine->tree;
    const tutti__engine_range *range = &engine->ranges[r];
    const tutti__leaves *leaves = engine->leaves;
    const int slots = tutti__leaves_merge(leaves, part->first).depth;
    const bool last = !leaves->total || part->first + part->leaves == leaves->first + leaves->count;
    const size_t skip = (size_t)part->begin * tutti__size_of(range->gradient.dtype);
    unsigned char pops[TUTTI__TREE_INPUTS_MAX];
    const int inputs = part->leaves / part->span;
    int begins[2 * TUTTI__LEAVES_LEVELS], base = slots, depth = slots;
    for (int i = 0; i < inputs; i++) {
        const tutti__leaf_merge merge = merge_of(leaves, part->first + i * part->span, part->span);
        pops[i] = (unsigned char)merge.merges;
        begins[merge.depth] = i;
        depth = merge.depth - merge.merges + 1;
        if (depth <= base) base = depth - 1;
    }
    for (int root = base; root < depth; root++) {
        tutti__tree_sum_args args = {
            .count = part->count, .dtype = range->gradient.dtype, .threads = engine->threads};
        const int end = root + 1 < depth ? begins[root + 1] : inputs;
        for (int k = base; root == base && k < slots; k++)
            args.in[args.inputs++] = slot_of(engine, range, k) + skip;
        for (int i = root == base ? 0 : begins[root]; i < end; i++) {
            args.pops[args.inputs] = pops[i];
            args.in[args.inputs++] = part->data + (size_t)i * part->apart;
        }
        args.dst = last && root + 1 == depth && !t->apart ? range->gradient.data + skip
                                                          : slot_of(engine, range, root) + skip;
        if (args.inputs == 1 && args.in[0] == args.dst) continue;
        TUTTI_TRY(ctx->backend->op.tree_sum(ctx->device, ctx->stream, &args));
    }
    return TUTTI_OK;
}

/* Over the ranks */

static void add_piece(tutti__piece *pieces, int *count, int peer, char *data, slice part,
                      size_t size)
{
    if (part.end == part.begin) return;
    pieces[(*count)++] =
        (tutti__piece){peer, data + (size_t)part.begin * size, part.end - part.begin};
}

/* Copy engines: writes each other rank's slice of all own roots into its memory. */
static tutti_status tree_push(tutti__engine *engine, int r)
{
    tutti_comm *comm = engine->comm;
    const tutti__engine_range *range = &engine->ranges[r];
    const tutti__stream stream = range->work.stream;
    const size_t size = tutti__size_of(range->wire.dtype);
    if (!engine->spreads && (r == 0 || in_gradients(engine, r)))
        TUTTI_TRY(tutti__engine_await(engine, stream, tutti__word_room(engine, r, 0), 1,
                                      "gradient exchange", range->work.sequence));
    for (int i = 1; i < comm->world_size; i++) {
        const int peer = (comm->rank + i) % comm->world_size;
        const slice part = slice_of(engine, range, peer);
        const size_t skip = (size_t)part.begin * size, bytes = (size_t)part.end * size - skip;
        for (int k = 0; k < engine->roots && bytes > 0; k++)
            TUTTI_TRY(comm->backend->run.copy(comm->device, stream, received_by(engine, r, peer, k),
                                              own_root(engine, range, k) + skip, bytes));
        engine->bytes_sent += (int64_t)bytes * engine->roots;
    }
    int words[] = {tutti__word_piece(engine, r, comm->rank), 0}, count = 1;
    if (r + 1 < engine->range_count && in_gradients(engine, r + 1))
        words[count++] = tutti__word_room(engine, r + 1, comm->rank);
    return tutti__engine_post(engine, stream, words, count);
}

/* Copy engines: writes the sum of this rank's slice into the other ranks' gradients. */
static tutti_status tree_spread(tutti__engine *engine, int r)
{
    tutti_comm *comm = engine->comm;
    const tree *t = engine->tree;
    const tutti__engine_range *range = &engine->ranges[r];
    const slice own = slice_of(engine, range, comm->rank);
    const size_t size = tutti__size_of(range->gradient.dtype);
    const char *from = range->gradient.data + (size_t)own.begin * size;
    const size_t place = (size_t)(from - engine->base);
    const size_t bytes =
        tutti__engine_whole(engine, range) ? 0 : (size_t)(own.end - own.begin) * size;
    for (int i = 1; i < comm->world_size && bytes > 0; i++) {
        const int peer = (comm->rank + i) % comm->world_size;
        TUTTI_TRY(comm->backend->run.copy(comm->device, range->work.stream,
                                          (char *)t->gradients_of[peer] + place, from, bytes));
        engine->bytes_sent += (int64_t)bytes;
    }
    const int word = tutti__word_sum(engine, r, comm->rank);
    return tutti__engine_post(engine, range->work.stream, &word, 1);
}

/* Of the first range, and of all whose pieces have memory of their own. */
static tutti_status tree_room(tutti__engine *engine, tutti__stream stream)
{
    const int word = tutti__word_room(engine, 0, engine->comm->rank);
    return tutti__engine_post(engine, stream, &word, 1);
}

/* Round 0 exchanges the roots, round 1 the sums of the slices. */
static tutti_status tree_start(tutti__engine *engine, int r)
{
    const tree *t = engine->tree;
    const tutti__leaves *leaves = engine->leaves;
    tutti__engine_range *range = &engine->ranges[r];
    const int rank = engine->comm->rank, world = engine->comm->world_size;
    const bool scatters = range->work.round == 0;
    const size_t size = tutti__size_of(range->wire.dtype);
    const slice own = slice_of(engine, range, rank);
    tutti__swap swap = {.dtype = range->wire.dtype, .sends = t->pieces};
    if (engine->peers) return tree_push(engine, r);
    for (int peer = 0; peer < world; peer++)
        for (int k = scatters ? 0 : engine->roots - 1; peer != rank && k < engine->roots; k++)
            add_piece(swap.sends, &swap.send_count, peer, own_root(engine, range, k),
                      scatters ? slice_of(engine, range, peer) : own, size);
    swap.recvs = swap.sends + swap.send_count;
    for (int peer = 0; peer < world; peer++) {
        if (peer == rank) continue;
        if (!scatters)
            add_piece(swap.recvs, &swap.recv_count, peer, range->wire.data,
                      slice_of(engine, range, peer), size);
        for (int k = leaves->rank_roots[peer]; scatters && k < leaves->rank_roots[peer + 1]; k++)
            add_piece(swap.recvs, &swap.recv_count, peer, received(engine, range, k),
                      (slice){0, own.end - own.begin}, size);
    }
    for (int i = 0; i < swap.send_count; i++)
        engine->bytes_sent += swap.sends[i].count * (int64_t)size;
    range->work.tag = 2 * (r % 8192) + range->work.round;
    return engine->comm->transport->swap(engine->comm, &range->work, &swap);
}

/* Late: how many ranges from this one on, up to `last`, are alike, and have all that is added at
 * equal distances: roots of this rank `apart` bytes, others far_apart. */
static int count_alike(const tutti__engine *engine, int r, int last, int64_t *apart,
                       int64_t *far_apart)
{
    const tutti__leaves *leaves = engine->leaves;
    const tutti__engine_range *first = &engine->ranges[r];
    const int foreign = leaves->first_root > 0 ? 0 : leaves->own_roots;
    int count = 1;
    *apart = (int64_t)tutti__engine_bytes(first);
    *far_apart = 0;
    if (!engine->peers || *apart % 256 != 0) return 1;
    for (; r + count <= last && count < ALIKE_MAX; count++) {
        const tutti__engine_range *next = &first[count];
        bool alike = next->gradient.count == first->gradient.count &&
                     next->gradient.dtype == first->gradient.dtype &&
                     next->gradient.data - first->gradient.data == count * *apart &&
                     (int64_t)(next->offset - first->offset) == count * *apart;
        if (count == 1)
            *far_apart = received(engine, next, foreign) - received(engine, first, foreign);
        for (int k = 0; k < leaves->roots && alike; k++)
            alike = is_own(engine, k) ||
                    received(engine, next, k) - received(engine, first, k) == count * *far_apart;
        if (!alike) break;
    }
    return count;
}

/* Adds this rank's slice of all roots, for as many ranges as are alike. */
static tutti_status add_slices(tutti__engine *engine, const tutti__engine_range *range, int alike,
                               int64_t apart, int64_t far_apart)
{
    const tutti__leaves *leaves = engine->leaves;
    const slice own = slice_of(engine, range, engine->comm->rank);
    const size_t skip = (size_t)own.begin * tutti__size_of(range->wire.dtype);
    /* the wire of this range has been used since; what travels, and the sum, are rounded */
    const bool rounds = tutti__engine_only_moves(engine) && engine->narrow;
    char *own_data =
        rounds ? range->gradient.data + (size_t)own.begin * tutti__size_of(range->gradient.dtype)
               : range->wire.data + skip;
    if (own.begin == own.end) return TUTTI_OK;
    tutti__tree_sum_args args = {.count = own.end - own.begin,
                                 .dtype = range->gradient.dtype,
                                 .in_dtype = range->wire.dtype,
                                 .to_dtype = range->wire.dtype,
                                 .dst = own_data,
                                 .inputs = leaves->roots,
                                 .threads = engine->threads,
                                 .more = alike - 1,
                                 .near = leaves->first_root,
                                 .near_inputs = leaves->own_roots,
                                 .rounds = rounds,
                                 .apart = apart,
                                 .far_apart = far_apart};
    for (int k = 0; k < leaves->roots; k++) {
        args.in[k] = !is_own(engine, k) ? received(engine, range, k)
                     : rounds           ? own_data
                                        : own_root(engine, range, k - leaves->first_root) + skip;
        args.pops[k] = leaves->pops[k];
    }
    /* where the wire is */
    if (engine->comm->transport->style == TUTTI__STYLE_HOST)
        return tutti__host_backend.op.tree_sum(0, NULL, &args);
    return engine->comm->backend->op.tree_sum(engine->comm->device, range->work.stream, &args);
}

static tutti_status tree_arrived(tutti__engine *engine, int r, bool *another)
{
    const tutti__engine_range *range = &engine->ranges[r];
    if (range->work.round == 1) return TUTTI_OK;
    *another = !tutti__engine_whole(engine, range) && !engine->shards;
    return add_slices(engine, range, 1, 0, 0);
}

static tutti_status tree_add(tutti__engine *engine, int first, int last)
{
    int64_t apart, far_apart;
    for (int r = first, alike; r <= last; r += alike) {
        alike = count_alike(engine, r, last, &apart, &far_apart);
        TUTTI_TRY(add_slices(engine, &engine->ranges[r], alike, apart, far_apart));
    }
    return TUTTI_OK;
}

/* Life */

static tutti_status open_slots(tutti__engine *engine, tree *t)
{
    const tutti__leaves *leaves = engine->leaves;
    tutti_comm *comm = engine->comm;
    /* A message of NCCL hangs unless both sides' memory is registered, as gradients may be, or
     * neither's is; so messages go from slots to slots. */
    t->apart = comm->transport->style == TUTTI__STYLE_STREAM && leaves->roots > leaves->own_roots &&
               !engine->narrow && !engine->plain && !engine->peers;
    const int slots =
        t->apart && leaves->own_roots > leaves->slots ? leaves->own_roots : leaves->slots;
    void *memory = NULL;
    if (slots > 0 && engine->flat_bytes > 0)
        TUTTI_TRY(
            comm->backend->run.alloc(comm->device, (size_t)slots * engine->flat_bytes, &memory));
    engine->device_roots = engine->wire_roots = memory;
    engine->bytes_held += (int64_t)((size_t)slots * engine->flat_bytes);
    /* merging gradients one by one leaves out what lies between them, which is sent, too */
    if (memory) {
        TUTTI_TRY(comm->backend->run.zero(comm->device, NULL, memory,
                                          (size_t)slots * engine->flat_bytes));
        TUTTI_TRY(comm->backend->run.stream_synchronize(comm->device, NULL));
    }
    engine->roots = leaves->own_roots;
    for (int r = 0; t->apart && r < engine->range_count; r++)
        engine->ranges[r].wire.data = engine->wire_roots +
                                      (size_t)(engine->roots - 1) * engine->flat_bytes +
                                      engine->ranges[r].offset;
    return TUTTI_OK;
}

/* Wires in bf16: on a stream, which processes one range at a time, and for what is staged, memory
 * of the largest; where sums spread, of some. */
static tutti_status open_narrowed(tutti__engine *engine)
{
    tutti_comm *comm = engine->comm;
    const bool all = comm->transport->style == TUTTI__STYLE_HOST && !engine->staged;
    const size_t places = engine->spreads ? TUTTI__WIRES : 1;
    size_t bytes = 0;
    for (int r = 0; r < engine->range_count; r++) {
        tutti__engine_range *range = &engine->ranges[r];
        const size_t one = (tutti__engine_wire_bytes(range) + 255) / 256 * 256;
        if (all || one > bytes) bytes = all ? bytes + one : one;
    }
    void *memory = NULL;
    if (bytes > 0) TUTTI_TRY(comm->backend->run.alloc(comm->device, places * bytes, &memory));
    char *at = engine->narrowed = memory;
    engine->bytes_held += (int64_t)(places * bytes);
    for (int r = 0; r < engine->range_count; r++) {
        engine->ranges[r].wire.data = at + (size_t)r % places * bytes;
        if (all) at += (tutti__engine_wire_bytes(&engine->ranges[r]) + 255) / 256 * 256;
    }
    return TUTTI_OK;
}

/* Copy engines: every range has its place in memory that is there already. */
static tutti_status place_received(tutti__engine *engine, tree *t)
{
    const size_t others = (size_t)(engine->leaves->roots - engine->leaves->own_roots);
    for (int r = 0; r < engine->range_count; r++)
        t->places[r] = (char *)t->received + others * t->ahead[r];
    return TUTTI_OK;
}

/* Received pieces with memory of their own. */
static void measure_received(tutti__engine *engine, tree *t)
{
    for (int r = 0; r < engine->range_count; r++)
        t->ahead[r + 1] =
            t->ahead[r] + (in_gradients(engine, r) ? 0 : slice_bytes(engine, &engine->ranges[r]));
}

/* Gradients whose memory cannot be shared receive nothing: no pieces, and no sums. */
static tutti_status share_gradients(tutti__engine *engine, tree *t, char *why, size_t size)
{
    tutti_comm *comm = engine->comm;
    const bool pieces = !engine->narrow && engine->leaves->roots == comm->world_size;
    if (!engine->spreads && !pieces) return TUTTI_OK;
    TUTTI_TRY(comm->transport->peers->share(engine->peers, engine->base, engine->base,
                                            t->gradients_of, &t->shared, why, size));
    if (engine->spreads || t->shared) return TUTTI_OK;
    if (comm->rank == 0)
        tutti__log(TUTTI_LOG_INFO, "a sharded store's exchange takes memory of its own: %s", why);
    why[0] = 0;
    return TUTTI_OK;
}

/* Tries copy engines.  *why: empty if they are in use; the same on all ranks. */
static tutti_status try_peers(tutti__engine *engine, tree *t, char *why, size_t size)
{
    tutti_comm *comm = engine->comm;
    const tutti__peers_table *table = comm->transport->peers;
    const size_t others = (size_t)(engine->leaves->roots - engine->leaves->own_roots);
    bool works = false, proven = false;
    if (!table) {
        snprintf(why, size, "the transport has no access to other ranks' memory");
        return TUTTI_OK;
    }
    TUTTI_TRY(table->open(comm, tutti__word_count(engine), &engine->peers, why, size));
    if (!engine->peers) return TUTTI_OK;
    TUTTI_TRY(share_gradients(engine, t, why, size));
    measure_received(engine, t);
    const size_t bytes = others * t->ahead[engine->range_count];
    if (t->shared || !engine->spreads)
        TUTTI_TRY(table->alloc(engine->peers, bytes, &t->received, t->received_of, why, size));
    if (t->received)
        TUTTI_TRY(
            table->prove(engine->peers, t->received, t->received_of, &works, &proven, why, size));
    if (works && !proven && engine->mover == TUTTI_ENGINE_AUTO && !why[0])
        snprintf(why, size, "transfers need multiprocessors");
    if (works && (proven || engine->mover == TUTTI_ENGINE_COPY)) {
        engine->bytes_held += (int64_t)bytes;
        if (comm->rank == 0)
            tutti__log(proven ? TUTTI_LOG_INFO : TUTTI_LOG_WARN,
                       "the %s exchange by copies between GPUs, %s",
                       engine->shards ? "sharded store's" : "gradients'",
                       proven ? "on copy engines" : "which may need multiprocessors");
        return TUTTI_OK;
    }
    table->close(&engine->peers); /* frees t->received */
    t->received = NULL;
    t->shared = false;
    return TUTTI_OK;
}

/* Collective: all ranks use copy engines, or none does. */
static tutti_status open_peers(tutti__engine *engine, tree *t)
{
    tutti_comm *comm = engine->comm;
    char why[192] = "";
    t->ahead = calloc((size_t)engine->range_count + 1, sizeof *t->ahead);
    t->received_of = calloc(2 * (size_t)comm->world_size, sizeof *t->received_of);
    TUTTI_TRY(
        tutti_comm_agree(comm, t->ahead && t->received_of
                                   ? TUTTI_OK
                                   : tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory")));
    t->gradients_of = t->received_of + comm->world_size;
    TUTTI_TRY(try_peers(engine, t, why, sizeof why));
    if (engine->peers) return TUTTI_OK;
    if (engine->mover == TUTTI_ENGINE_COPY)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "grad_sync_create: engine is copy, which cannot be used: %s", why);
    if (comm->rank == 0)
        tutti__log(TUTTI_LOG_INFO, "the %s exchange by the transport: %s",
                   engine->shards ? "sharded store's" : "gradients'", why);
    return TUTTI_OK;
}

/* Room for what the other ranks send. */
static tutti_status open_received(tutti__engine *engine, tree *t)
{
    const tutti__leaves *leaves = engine->leaves;
    tutti_comm *comm = engine->comm;
    const tutti__runtime *run = &comm->backend->run;
    const size_t world = (size_t)comm->world_size;
    const size_t own = (size_t)leaves->own_roots, others = (size_t)leaves->roots - own;
    /* sends and receives of the larger swap */
    t->pieces = calloc((world - 1) * own + others + 2 * world, sizeof *t->pieces);
    t->places = calloc((size_t)engine->range_count + 1, sizeof *t->places);
    if (!t->pieces || !t->places)
        return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    if (engine->peers) return place_received(engine, t);
    /* a stream processes one range at a time, unless sums are late; in host memory several are
     * under way at once */
    const bool on_host = comm->transport->style == TUTTI__STYLE_HOST;
    engine->at_once = engine->shards && on_host ? SHARDED_AT_ONCE : 0;
    const bool all = on_host || engine->late;
    size_t bytes = 0, most = 0;
    for (int r = 0; r < engine->range_count; r++) {
        const size_t one = others * slice_bytes(engine, &engine->ranges[r]);
        bytes += one;
        if (one > most) most = one;
    }
    if (engine->at_once || !all) bytes = most * (on_host ? SHARDED_AT_ONCE : 1);
    if (bytes > 0)
        TUTTI_TRY(
            (engine->staged ? run->host_alloc : run->alloc)(comm->device, bytes, &t->received));
    engine->bytes_held += (int64_t)bytes;
    char *place = t->received;
    for (int r = 0; r < engine->range_count; r++) {
        t->places[r] =
            place && engine->at_once ? place + (size_t)(r % engine->at_once) * most : place;
        if (all && !engine->at_once && place)
            place += others * slice_bytes(engine, &engine->ranges[r]);
    }
    return TUTTI_OK;
}

static bool tree_close(tutti__engine *engine)
{
    const tutti__runtime *run = &engine->comm->backend->run;
    tree *t = engine->tree;
    const int device = engine->comm->device;
    const bool idle = !engine->carrier->close || engine->carrier->close(engine);
    if (idle && engine->device_roots) run->free(device, engine->device_roots);
    if (idle && engine->narrowed) run->free(device, engine->narrowed);
    if (idle && engine->peers)
        engine->comm->transport->peers->close(&engine->peers); /* frees what is received */
    else if (idle && t->received)
        (engine->staged ? run->host_free : run->free)(device, t->received);
    free(t->ahead);
    free(t->received_of);
    free(t->pieces);
    free(t->places);
    free(t);
    return idle;
}

/* The transport's own sum will do. */
static tutti_status leave_to_carrier(tutti__engine *engine, tree *t)
{
    free(t->ahead);
    free(t->received_of);
    free(t);
    engine->tree = NULL;
    engine->table = engine->carrier;
    return engine->table->open ? engine->table->open(engine) : TUTTI_OK;
}

static tutti_status tree_open(tutti__engine *engine)
{
    /* what follows is collective */
    tree *t = engine->tree = tutti__comm_room(engine->comm, sizeof *t, "grad_sync_create");
    if (!t) return TUTTI_ERR_MEMORY;
    t->table = *engine->carrier;
    t->table.merge = tree_merge;
    t->table.start = tree_start;
    t->table.arrived = tree_arrived;
    t->table.add = tree_add;
    t->table.close = tree_close;
    engine->table = &t->table;
    if (engine->narrow)
        for (int r = 0; r < engine->range_count; r++) engine->ranges[r].wire.dtype = TUTTI_BF16;
    if (tutti__engine_only_moves(engine) && engine->range_count > 0 &&
        engine->mover != TUTTI_ENGINE_TRANSPORT)
        TUTTI_TRY(open_peers(engine, t));
    t->table.room = engine->peers && !engine->spreads ? tree_room : NULL;
    t->table.spread = tree_spread;
    if (engine->spreads && !engine->peers) {
        engine->spreads = false;
        if (!engine->narrow && !engine->leaves->total) return leave_to_carrier(engine, t);
    }
    TUTTI_TRY(open_slots(engine, t));
    if (engine->narrow) TUTTI_TRY(open_narrowed(engine));
    TUTTI_TRY(open_received(engine, t));
    return engine->carrier->open ? engine->carrier->open(engine) : TUTTI_OK;
}

const tutti__engine_table tutti__tree_engine = {.open = tree_open};
