/* Life of the tree's engine: memory for its slots, for wires in bf16 and for what other ranks send,
 * and whether copy engines move. */
#include <stdio.h>
#include <stdlib.h>

#include "comm/agree.h"
#include "comm/tree.h"

/* Ranges of a sharded store that are under way at once in host memory, where each needs room for
 * what it receives. */
#define SHARDED_AT_ONCE 2

static tutti_status open_slots(tutti__engine *engine, tutti__tree *t)
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
static tutti_status place_received(tutti__engine *engine, tutti__tree *t)
{
    const size_t others = (size_t)(engine->leaves->roots - engine->leaves->own_roots);
    for (int r = 0; r < engine->range_count; r++)
        t->places[r] = (char *)t->received + others * t->ahead[r];
    return TUTTI_OK;
}

/* Received pieces with memory of their own. */
static void measure_received(tutti__engine *engine, tutti__tree *t)
{
    for (int r = 0; r < engine->range_count; r++)
        t->ahead[r + 1] = t->ahead[r] + (tutti__tree_in_gradients(engine, r)
                                             ? 0
                                             : tutti__tree_piece_bytes(engine, &engine->ranges[r]));
}

/* Gradients whose memory cannot be shared receive nothing: no pieces, and no sums. */
static tutti_status share_gradients(tutti__engine *engine, tutti__tree *t, char *why, size_t size)
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
static tutti_status try_peers(tutti__engine *engine, tutti__tree *t, char *why, size_t size)
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
static tutti_status open_peers(tutti__engine *engine, tutti__tree *t)
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
static tutti_status open_received(tutti__engine *engine, tutti__tree *t)
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
        const size_t one = others * tutti__tree_piece_bytes(engine, &engine->ranges[r]);
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
            place += others * tutti__tree_piece_bytes(engine, &engine->ranges[r]);
    }
    return TUTTI_OK;
}

static bool tree_close(tutti__engine *engine)
{
    const tutti__runtime *run = &engine->comm->backend->run;
    tutti__tree *t = engine->tree;
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
static tutti_status leave_to_carrier(tutti__engine *engine, tutti__tree *t)
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
    tutti__tree *t = engine->tree = tutti__comm_room(engine->comm, sizeof *t, "grad_sync_create");
    if (!t) return TUTTI_ERR_MEMORY;
    t->table = *engine->carrier;
    t->table.merge = tutti__tree_moves.merge;
    t->table.start = tutti__tree_moves.start;
    t->table.arrived = tutti__tree_moves.arrived;
    t->table.add = tutti__tree_moves.add;
    t->table.spread = tutti__tree_moves.spread;
    t->table.close = tree_close;
    engine->table = &t->table;
    if (engine->narrow)
        for (int r = 0; r < engine->range_count; r++) engine->ranges[r].wire.dtype = TUTTI_BF16;
    if (tutti__engine_only_moves(engine) && engine->range_count > 0 &&
        engine->mover != TUTTI_ENGINE_TRANSPORT)
        TUTTI_TRY(open_peers(engine, t));
    if (engine->peers && !engine->spreads) {
        t->table.place = tutti__tree_moves.place;
        t->table.room = tutti__tree_moves.room;
    }
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
