/* The engine of reproducible mode, of sharded stores, and of copy engines: the transport's engine
 * with other operations for a range.
 * Leaves merge on the caller's stream; then a range is summed over the ranks in two swaps.  In the
 * first each rank sends every other rank that rank's slice of all its own roots; each adds what it
 * received in the order of the tree; in the second it sends the sum to all.  A small range is sent
 * whole in the first swap, and every rank adds all of it: one swap's latency for world_size times
 * the bytes.  A sharded store's ranges have no second swap, and without leaves, there and where
 * gradients travel in bf16, each rank's gradient is a root, which are added in rank order.  On a
 * stream they are added late, so that what is received has room for all ranges: with copy engines
 * in the gradients themselves, where the range before was sent, if they fit, it has no padding and
 * the range is not small.
 * Copy engines write the sums of other stores into all gradients instead of a second swap. */
#include "comm/tree.h"

static const char operation[] = "gradient exchange";

/* Ranges that a kernel adds at once. */
#define ALIKE_MAX 4096

typedef struct slice {
    int64_t begin, end; /* elements */
} slice;

/* The elements that a rank adds. */
static slice slice_of(const tutti__engine *engine, const tutti__engine_range *range, int rank)
{
    const tutti__span own = tutti__engine_slice(engine, range, rank);
    return (slice){own.first, own.first + own.count};
}

/* Where pieces only move: the same on all ranks, as much as the largest. */
size_t tutti__tree_piece_bytes(const tutti__engine *engine, const tutti__engine_range *range)
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

static bool is_small(const tutti__engine *engine, int r)
{
    return engine->ranges[r].gradient.count <= tutti__shard_small(engine->ranges[0].gradient.count);
}

/* Copy engines: a range's pieces are received in the gradients of the range before, each where the
 * slice of the rank that sends it was.  Padding stays 0, since no backward would clear it.  Small
 * ranges have room of their own: the last ones, which no backward hides, so wait for none. */
bool tutti__tree_in_gradients(const tutti__engine *engine, int r)
{
    const tutti__tree *t = engine->tree;
    const tutti__engine_range *range = &engine->ranges[r], *before = range - 1;
    if (!t->shared || engine->spreads || r == 0 || !before->gradient.whole) return false;
    if (is_small(engine, r)) return false;
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
    const tutti__tree *t = engine->tree;
    const tutti__leaves *leaves = engine->leaves;
    const int r = (int)(range - engine->ranges);
    if (tutti__tree_in_gradients(engine, r)) /* a root is a rank */
        return engine->ranges[0].gradient.data + place_of(engine, r - 1, root);
    int other = root < leaves->first_root ? root : root - leaves->own_roots;
    return t->places[r] + (size_t)other * tutti__tree_piece_bytes(engine, range);
}

/* The same of this rank's root k, where another rank receives it. */
static char *received_by(const tutti__engine *engine, int r, int rank, int k)
{
    const tutti__tree *t = engine->tree;
    const tutti__leaves *leaves = engine->leaves;
    const int begin = leaves->rank_roots[rank], end = leaves->rank_roots[rank + 1];
    const size_t others = (size_t)(leaves->roots - (end - begin));
    if (tutti__tree_in_gradients(engine, r))
        return (char *)t->gradients_of[rank] + place_of(engine, r - 1, engine->comm->rank);
    const int root = leaves->first_root + k, other = root < begin ? root : root - (end - begin);
    return (char *)t->received_of[rank] + others * t->ahead[r] +
           (size_t)other * tutti__tree_piece_bytes(engine, &engine->ranges[r]);
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
    const tutti__tree *t = engine->tree;
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

/* Each other rank's slice of all own roots, to where it receives it. */
static tutti_status send_pieces(tutti__engine *engine, int r, tutti__sends *sends)
{
    const tutti_comm *comm = engine->comm;
    const tutti__engine_range *range = &engine->ranges[r];
    const size_t size = tutti__size_of(range->wire.dtype);
    for (int i = 1; i < comm->world_size; i++) {
        const int peer = (comm->rank + i) % comm->world_size;
        const slice part = slice_of(engine, range, peer);
        const size_t skip = (size_t)part.begin * size, bytes = (size_t)part.end * size - skip;
        for (int k = 0; k < engine->roots && bytes > 0; k++)
            TUTTI_TRY(tutti__engine_send(engine, sends, received_by(engine, r, peer, k),
                                         own_root(engine, range, k) + skip, bytes));
        engine->bytes_sent += (int64_t)bytes * engine->roots;
    }
    return TUTTI_OK;
}

/* Copy engines: the first of the small ranges that backward ends with and that are issued at once:
 * a kernel sends them, at once, too.  Copies of theirs, one after another, and the words between
 * them would take longer than what they carry. */
static int last_small(const tutti__engine *engine)
{
    const int count = engine->range_count;
    if (!engine->late || engine->narrow || engine->issuing[1] != count - 1) return count;
    const int least = engine->issuing[0] > 1 ? engine->issuing[0] : 1;
    int first = count;
    while (first > least && count - first < TUTTI__PEERS_WORDS_MAX && is_small(engine, first - 1))
        first--;
    return first;
}

/* Waits until the other ranks have a place for a range's pieces. */
static tutti_status tree_place(tutti__engine *engine, int r)
{
    const tutti__work *work = &engine->ranges[r].work;
    const int begin = engine->followed;
    if (r == 0)
        return tutti__engine_await(engine, work->stream, tutti__word_room(engine, 0), 1, false,
                                   operation, work->sequence);
    if (!tutti__tree_in_gradients(engine, r) || begin >= r) return TUTTI_OK;
    engine->followed = r;
    return tutti__engine_await(engine, work->stream, tutti__word_piece(engine, begin, 0), r - begin,
                               false, operation, work->sequence);
}

/* Copy engines: says that a range has been sent.  A graph, whose steps are whole, awaits here, too,
 * what the next range waits for; elsewhere a step that is given up waits for nothing that it does
 * not need. */
static tutti_status tell_sent(tutti__engine *engine, int r, const int *words, int count, bool idle)
{
    const tutti_comm *comm = engine->comm;
    const tutti__work *work = &engine->ranges[r].work;
    const int begin = engine->followed;
    bool capturing = false;
    if (!idle && r + 1 < engine->range_count && tutti__tree_in_gradients(engine, r + 1))
        TUTTI_TRY(comm->backend->run.stream_capturing(comm->device, work->stream, &capturing));
    if (!capturing) return tutti__engine_post(engine, work->stream, words, count, idle);
    TUTTI_ASSERT(count == 1);
    engine->followed = r + 1;
    return tutti__engine_meet(engine, work->stream, words[0], tutti__word_piece(engine, begin, 0),
                              r + 1 - begin, operation, work->sequence);
}

/* Copy engines: writes other ranks' slices of a range into their memory. */
static tutti_status tree_push(tutti__engine *engine, int r)
{
    const int rank = engine->comm->rank, small = last_small(engine);
    const tutti__engine_range *range = &engine->ranges[r];
    tutti__sends sends = {.stream = range->work.stream, .idle = r >= small};
    int words[TUTTI__PEERS_WORDS_MAX], count = 0;
    if (r > small) return TUTTI_OK;
    for (int i = r; i == r || (r == small && i < engine->range_count); i++) {
        TUTTI_TRY(send_pieces(engine, i, &sends));
        words[count++] = tutti__word_piece(engine, i, rank);
    }
    TUTTI_TRY(tutti__engine_sent(engine, &sends));
    return tell_sent(engine, r, words, count, sends.idle);
}

/* Copy engines: writes the sum of this rank's slice into the other ranks' gradients. */
static tutti_status tree_spread(tutti__engine *engine, int r)
{
    tutti_comm *comm = engine->comm;
    const tutti__tree *t = engine->tree;
    const tutti__engine_range *range = &engine->ranges[r];
    const slice own = slice_of(engine, range, comm->rank);
    const size_t size = tutti__size_of(range->gradient.dtype);
    const char *from = range->gradient.data + (size_t)own.begin * size;
    const size_t place = (size_t)(from - engine->base);
    const size_t bytes =
        tutti__engine_whole(engine, range) ? 0 : (size_t)(own.end - own.begin) * size;
    tutti__sends sends = {.stream = range->work.stream};
    for (int i = 1; i < comm->world_size && bytes > 0; i++) {
        const int peer = (comm->rank + i) % comm->world_size;
        TUTTI_TRY(
            tutti__engine_send(engine, &sends, (char *)t->gradients_of[peer] + place, from, bytes));
        engine->bytes_sent += (int64_t)bytes;
    }
    TUTTI_TRY(tutti__engine_sent(engine, &sends));
    const int word = tutti__word_sum(engine, r, comm->rank);
    return tutti__engine_post(engine, range->work.stream, &word, 1, false);
}

static tutti_status tree_room(tutti__engine *engine, tutti__stream stream)
{
    const int word = tutti__word_room(engine, engine->comm->rank);
    return tutti__engine_post(engine, stream, &word, 1, false);
}

/* Round 0 exchanges the roots, round 1 the sums of the slices. */
static tutti_status tree_start(tutti__engine *engine, int r)
{
    const tutti__tree *t = engine->tree;
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

/* Adds this rank's slice of all roots, for as many ranges as are alike.  beside: as in
 * ops/tree_sum.h. */
static tutti_status add_slices(tutti__engine *engine, const tutti__engine_range *range, int alike,
                               int64_t apart, int64_t far_apart, bool beside)
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
                                 .beside = beside,
                                 .apart = apart,
                                 .far_apart = far_apart};
    if (engine->squares) {
        const int64_t size = (int64_t)tutti__size_of(range->gradient.dtype);
        args.squares = engine->squares + (own_data - engine->base) / size / TUTTI__NORM_RUN;
        args.squares_apart = apart / size / TUTTI__NORM_RUN;
    }
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
    return add_slices(engine, range, 1, 0, 0, false);
}

static tutti_status tree_add(tutti__engine *engine, int first, int last)
{
    int64_t apart, far_apart;
    bool added = false;
    for (int r = first, alike; r <= last; r += alike) {
        const tutti__engine_range *range = &engine->ranges[r];
        const slice own = slice_of(engine, range, engine->comm->rank);
        alike = count_alike(engine, r, last, &apart, &far_apart);
        TUTTI_TRY(add_slices(engine, range, alike, apart, far_apart, added));
        added = added || own.end > own.begin;
    }
    return TUTTI_OK;
}

const tutti__engine_table tutti__tree_moves = {.merge = tree_merge,
                                               .start = tree_start,
                                               .arrived = tree_arrived,
                                               .add = tree_add,
                                               .place = tree_place,
                                               .room = tree_room,
                                               .spread = tree_spread};
