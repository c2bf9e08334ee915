/* Opening and closing a gradient exchange: collects the gradients, cuts them into ranges, compares
 * the ranks and opens the transport's engine. */
#include <stddef.h>
#include <stdlib.h>

#include "comm/agree.h"
#include "comm/follow.h"
#include "comm/life.h"
#include "comm/sync.h"
#include "ops/update.h"

tutti_grad_sync_desc tutti_grad_sync_desc_default(void)
{
    return (tutti_grad_sync_desc)TUTTI_GRAD_SYNC_DESC_INIT;
}

static tutti_status desc_check(const tutti_grad_sync_desc *given, int world_size,
                               const tutti_params *params, bool on_stream,
                               tutti_grad_sync_desc *own)
{
    TUTTI_TRY(tutti__desc_read(own, sizeof *own, given, "grad_sync_create"));
    const bool sharded = params && params->desc.shards;
    TUTTI_REQUIRE(!sharded || (own->range_bytes == 0 && own->last_range_bytes == 0),
                  "grad_sync_create: range_bytes and last_range_bytes are %zu and %zu, want 0: a "
                  "sharded store has ranges already",
                  own->range_bytes, own->last_range_bytes);
    if (own->range_bytes == 0) own->range_bytes = (size_t)32 << 20;
    if (own->last_range_bytes == 0) own->last_range_bytes = (size_t)1 << 20;
    TUTTI_REQUIRE(own->leaves >= 0 && own->leaves <= TUTTI_LEAVES_MAX &&
                      (own->leaves & (own->leaves - 1)) == 0,
                  "grad_sync_create: leaves is %d, want 0 or a power of two up to %d", own->leaves,
                  TUTTI_LEAVES_MAX);
    TUTTI_REQUIRE(own->leaves == 0 || own->leaves >= world_size,
                  "grad_sync_create: leaves is %d, want at least one for each of the %d ranks",
                  own->leaves, world_size);
    TUTTI_REQUIRE(
        own->wire == 0 || own->wire == TUTTI_BF16,
        "grad_sync_create: wire is %d (%s), want 0 for the gradients' own type, or TUTTI_BF16",
        (int)own->wire, tutti_dtype_name(own->wire));
    TUTTI_REQUIRE(!own->wire || !own->leaves,
                  "grad_sync_create: wire is bf16 with %d leaves, whose bits would then depend on "
                  "the number of ranks",
                  own->leaves);
    TUTTI_REQUIRE((int)own->engine >= TUTTI_ENGINE_AUTO && own->engine <= TUTTI_ENGINE_COPY,
                  "grad_sync_create: engine is %d, want auto, transport or copy", (int)own->engine);
    if (own->engine == TUTTI_ENGINE_COPY && world_size > 1 && !(params && on_stream))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "grad_sync_create: engine is copy, which wants %s",
                           params ? "transport nccl" : "a store, not a list");
    return TUTTI_OK;
}

/* Whether sums of a store that is not sharded may spread, as far as this rank knows. */
static bool may_spread(const tutti_grad_sync *sync, const tutti_params *params)
{
    const tutti_comm *comm = sync->comm;
    const int world = comm->world_size;
    return comm->transport->peers && world > 1 && params && !params->desc.shards &&
           (world <= TUTTI__TREE_INPUTS_MAX || sync->desc.engine == TUTTI_ENGINE_COPY) &&
           sync->desc.engine != TUTTI_ENGINE_TRANSPORT;
}

/* Checks the descriptor and the store or list, without the other ranks. */
static tutti_status check_and_collect(tutti_grad_sync *sync, tutti_context *ctx,
                                      const tutti_params *params, const tutti_param *const *list,
                                      int count, bool from_list, const tutti_grad_sync_desc *desc)
{
    tutti_comm *comm = sync->comm;
    TUTTI_TRY(tutti__comm_context_check(comm, ctx, "grad_sync_create"));
    TUTTI_TRY(desc_check(desc, comm->world_size, params,
                         comm->transport->style == TUTTI__STYLE_STREAM, &sync->desc));
    if (from_list) {
        TUTTI_REQUIRE(count >= 0, "grad_sync_create: count is %d, want >= 0", count);
        TUTTI_REQUIRE(list || count == 0, "grad_sync_create: list is NULL");
        for (int i = 0; i < count; i++)
            TUTTI_REQUIRE(list[i], "grad_sync_create: list[%d] is NULL", i);
    } else {
        TUTTI_REQUIRE(params, "grad_sync_create: params is NULL");
        TUTTI_TRY(tutti__params_ready(params, ctx, "grad_sync_create"));
        TUTTI_TRY(tutti__shard_check(params, comm));
    }
    const bool in_rank_order =
        ((params && params->desc.shards) || sync->desc.wire || may_spread(sync, params)) &&
        !sync->desc.leaves;
    TUTTI_TRY(in_rank_order ? tutti__leaves_open_ranks(&sync->leaves, comm->rank, comm->world_size)
                            : tutti__leaves_open(&sync->leaves, sync->desc.leaves, comm->rank,
                                                 comm->world_size));
    sync->leaf = sync->leaves.first;
    TUTTI_TRY(tutti__gradients_collect(&sync->gradients, params, list, count));
    for (int i = 0; sync->desc.wire && i < sync->gradients.count; i++)
        TUTTI_REQUIRE(sync->gradients.list[i].dtype == TUTTI_F32,
                      "grad_sync_create: wire is bf16, but gradients are %s, want f32",
                      tutti_dtype_name(sync->gradients.list[i].dtype));
    return TUTTI_OK;
}

/* Fails unless all ranks have the same options, which those of a sharded store are, too. */
static tutti_status compare_options(const tutti_grad_sync *sync, const tutti_params *params)
{
    char ranks[160];
    int differ, first;
    const uint64_t options[] = {(uint64_t)sync->desc.range_bytes,
                                (uint64_t)sync->desc.last_range_bytes,
                                (uint64_t)sync->desc.leaves,
                                (uint64_t)sync->desc.wire,
                                params ? (uint64_t)params->desc.shards : 0,
                                params ? (uint64_t)params->desc.range_bytes : 0,
                                (uint64_t)sync->desc.engine,
                                (uint64_t)(sync->desc.exclusive != 0)};
    static const char *const names[] = {
        "range_bytes",        "last_range_bytes",        "leaves", "wire",
        "the store's shards", "the store's range_bytes", "engine", "exclusive"};
    TUTTI_TRY(tutti__comm_compare(sync->comm, options, 8, "grad_sync_create", &differ, &first,
                                  ranks, sizeof ranks));
    if (differ < 0) return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_COMM,
        "grad_sync_create: %s on %s differs from rank 0's; want the same value on all ranks",
        names[differ], ranks);
}

/* Cuts the gradients into ranges, equally on all ranks: if memory layouts differ, neighbours do not
 * share ranges. */
static tutti_status cut_ranges(tutti_grad_sync *sync, const tutti_params *params)
{
    tutti__gradients *gradients = &sync->gradients;
    tutti__engine *engine = &sync->engine;
    char ranks[160];
    int differ, first, count;
    TUTTI_TRY(tutti__comm_compare(sync->comm, &gradients->layout, 1, "grad_sync_create", &differ,
                                  &first, ranks, sizeof ranks));
    tutti__range *cut;
    if (params && params->desc.shards)
        TUTTI_TRY(tutti__ranges_of_store(params, gradients->list, gradients->count, &cut, &count));
    else
        TUTTI_TRY(tutti__ranges_cut(gradients->list, gradients->count,
                                    differ >= 0 ? -1 : gradients->gap, sync->desc.range_bytes,
                                    sync->desc.last_range_bytes, &cut, &count));
    sync->ranges = calloc((size_t)count + 1, sizeof *sync->ranges);
    engine->ranges = calloc((size_t)count + 1, sizeof *engine->ranges);
    if (sync->ranges && engine->ranges) engine->range_count = count;
    for (int r = 0; r < engine->range_count; r++) {
        sync->ranges[r].missing = cut[r].gradients;
        engine->ranges[r] = (tutti__engine_range){
            .gradient = cut[r], .wire = {cut[r].data, cut[r].dtype}, .offset = engine->flat_bytes};
        engine->flat_bytes += (tutti__engine_bytes(&engine->ranges[r]) + 255) / 256 * 256;
    }
    free(cut);
    return sync->ranges && engine->ranges
               ? TUTTI_OK
               : tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
}

/* Collective.  NCCL's memory for gradients is a registered window. */
static tutti_status find_plain(tutti_comm *comm, const tutti_params *params, bool *plain)
{
    *plain = false;
    if (!params || !params->desc.shards || comm->transport->style != TUTTI__STYLE_STREAM)
        return TUTTI_OK;
    return tutti__comm_all(comm, !params->desc.gradient_memory.alloc, "grad_sync_create", plain);
}

/* Collective: decides whether sums spread, where copy engines work.  That wants a store on all
 * ranks with its gradients at the same places, and more than small sums, which one hop sums. */
static tutti_status find_spread(tutti_grad_sync *sync, const tutti_params *params)
{
    tutti__engine *engine = &sync->engine;
    tutti_comm *comm = sync->comm;
    char ranks[160];
    int differ, first;
    const bool asked = sync->desc.engine == TUTTI_ENGINE_COPY;
    bool all, large = sync->leaves.total || engine->narrow || asked;
    uint64_t places = TUTTI__HASH_START;
    if (!comm->transport->peers || comm->world_size == 1) return TUTTI_OK;
    for (int r = 0; r < engine->range_count; r++) {
        const tutti__range *range = &engine->ranges[r].gradient;
        const int64_t place = params ? range->data - (char *)params->grad : 0;
        places = tutti__hash(places, &place, sizeof place);
        large = large || !tutti__hop_fits(range->count, range->dtype);
    }
    TUTTI_TRY(tutti__comm_compare(comm, &places, 1, "grad_sync_create", &differ, &first, ranks,
                                  sizeof ranks));
    TUTTI_TRY(tutti__comm_all(comm, may_spread(sync, params), "grad_sync_create", &all));
    engine->spreads = all && differ < 0 && large && engine->range_count > 0;
    if (asked && !engine->shards && differ >= 0)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "grad_sync_create: engine is copy, but gradients of %s lie at other "
                           "places in their store than rank 0's",
                           ranks);
    return TUTTI_OK;
}

/* Whether there are sums that can go in one hop, the same on all ranks. */
static bool has_small_sums(const tutti__engine *engine, const tutti_params *params)
{
    const tutti_comm *comm = engine->comm;
    if (comm->world_size == 1 || !comm->transport->peers) return false;
    if (engine->mover == TUTTI_ENGINE_TRANSPORT) return false;
    if (engine->shards) return params->trained > 0; /* those of the norm */
    bool any = false;
    for (int r = 0; r < engine->range_count && engine->table == &tutti__stream_engine; r++)
        any |= tutti__hop_fits(engine->ranges[r].gradient.count, engine->ranges[r].gradient.dtype);
    return any;
}

/* What adds a sharded store's sums has their squares at hand. */
static tutti_status open_squares(tutti_grad_sync *sync, const tutti_params *params)
{
    tutti__engine *engine = &sync->engine;
    const tutti_comm *comm = sync->comm;
    const tutti__runtime *run = &comm->backend->run;
    if (!engine->shards || !engine->peers || engine->narrow || !sync->desc.exclusive)
        return TUTTI_OK;
    const size_t bytes = (size_t)tutti__norm_runs(params->trained) * sizeof *engine->squares;
    void *squares = NULL;
    TUTTI_TRY(run->alloc(comm->device, bytes + 1, &squares));
    engine->squares = squares;
    engine->bytes_held += (int64_t)bytes;
    TUTTI_TRY(run->zero(comm->device, NULL, squares, bytes));
    return run->stream_synchronize(comm->device, NULL);
}

/* Collective. */
static tutti_status open_engine(tutti_grad_sync *sync, const tutti_params *params)
{
    static const tutti__engine_table *const carriers[] = {
        [TUTTI__STYLE_LOCAL] = &tutti__local_engine,
        [TUTTI__STYLE_STREAM] = &tutti__stream_engine,
        [TUTTI__STYLE_HOST] = &tutti__host_engine};
    tutti__engine *engine = &sync->engine;
    tutti_comm *comm = sync->comm;
    const tutti__transport_style style = comm->transport->style;
    engine->comm = comm;
    engine->leaves = &sync->leaves;
    engine->roots = 1;
    engine->staged = style == TUTTI__STYLE_HOST && comm->backend->kind != TUTTI_BACKEND_HOST;
    engine->carrier = carriers[style];
    engine->shards = params ? params->desc.shards : 0;
    engine->narrow = sync->desc.wire && comm->world_size > 1;
    engine->base = params ? params->grad : NULL;
    TUTTI_TRY(tutti_comm_agree(comm, find_spread(sync, params)));
    const bool tree = sync->leaves.total || engine->narrow || engine->spreads ||
                      (engine->shards && style != TUTTI__STYLE_LOCAL);
    engine->table = tree ? &tutti__tree_engine : engine->carrier;
    engine->late = engine->shards > 1 && style == TUTTI__STYLE_STREAM;
    engine->mover = sync->desc.engine;
    TUTTI_TRY(tutti_comm_agree(comm, find_plain(comm, params, &engine->plain)));
    tutti_status status = TUTTI_OK;
    if (sync->desc.timeline)
        status = tutti__timeline_open(comm, engine->range_count, &engine->times);
    if (tutti__engine_only_moves(engine))
        status = tutti_comm_agree(comm, status); /* since its open is collective */
    if (status == TUTTI_OK && engine->table->open) status = engine->table->open(engine);
    if (status == TUTTI_OK) status = open_squares(sync, params);
    if (status == TUTTI_OK) status = tutti__run_open(sync);
    TUTTI_TRY(tutti_comm_agree(comm, status));
    if (has_small_sums(engine, params)) {
        TUTTI_TRY(tutti__hop_open(&engine->hop, comm, engine->peers));
        if (engine->hop.peers)
            engine->bytes_held += (int64_t)tutti__hop_inbox_bytes(comm->world_size);
    }
    return comm->transport->duplicate_create
               ? comm->transport->duplicate_create(comm, &engine->duplicate)
               : TUTTI_OK;
}

static const char *dead(const tutti__store_exchange *self)
{
    const size_t at = offsetof(tutti_grad_sync, listed);
    const tutti_comm *comm = ((const tutti_grad_sync *)((const char *)self - at))->comm;
    return comm->dead ? comm->why : NULL;
}

static tutti_status create(tutti_context *ctx, tutti_comm *comm, tutti_params *params,
                           const tutti_param *const *list, int count, bool from_list,
                           const tutti_grad_sync_desc *desc, tutti_grad_sync **sync)
{
    TUTTI_REQUIRE(comm, "grad_sync_create: comm is NULL");
    TUTTI_TRY(tutti__comm_open(comm, "grad_sync_create"));
    tutti_grad_sync *made = calloc(1, sizeof *made);
    tutti_status status = TUTTI_OK;
    if (!made)
        status = tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    else if (!sync)
        status = tutti__fail(TUTTI_ERR_ARG, "grad_sync_create: sync is NULL");
    else {
        made->sink = (tutti__ready_sink){tutti__sync_sink_may_begin,
                                         tutti__sync_sink_ready,
                                         tutti__sync_sink_begins,
                                         tutti__run_adds_leaves,
                                         tutti__run_leaf_grads,
                                         tutti__run_add_leaves,
                                         tutti__run_lose};
        made->comm = comm;
        tutti__hold(&comm->holders);
        status = check_and_collect(made, ctx, params, list, count, from_list, desc);
        /* what is tried on the device wants it idle; the values are written for a moment */
        if (status == TUTTI_OK && params && (params->desc.shards > 1 || may_spread(made, params)))
            status = tutti_context_synchronize(ctx);
    }
    status = tutti_comm_agree(comm, status);
    if (status == TUTTI_OK) status = compare_options(made, params);
    if (status == TUTTI_OK) status = tutti__gradients_compare(&made->gradients, comm);
    if (status == TUTTI_OK) status = tutti_comm_agree(comm, cut_ranges(made, params));
    if (status == TUTTI_OK) status = open_engine(made, params);
    if (status == TUTTI_OK && made->engine.peers && made->engine.shards)
        status = tutti__gather_open(&made->gather, &made->engine, params, made->desc.exclusive);
    if (status != TUTTI_OK) {
        if (made && made->comm) tutti_grad_sync_destroy(&made);
        free(made);
        return status;
    }
    if (params) {
        made->params = params;
        tutti__hold(&params->holders);
        made->listed = (tutti__store_exchange){params->exchanges, dead};
        params->exchanges = &made->listed;
        params->summed = false;
        tutti__shard_attach(made);
    }
    *sync = made;
    return TUTTI_OK;
}

tutti_status tutti_grad_sync_create(tutti_context *ctx, tutti_comm *comm, tutti_params *params,
                                    const tutti_grad_sync_desc *desc, tutti_grad_sync **sync)
{
    return create(ctx, comm, params, NULL, 0, false, desc, sync);
}

tutti_status tutti_grad_sync_create_list(tutti_context *ctx, tutti_comm *comm,
                                         const tutti_param *const *list, int count,
                                         const tutti_grad_sync_desc *desc, tutti_grad_sync **sync)
{
    return create(ctx, comm, NULL, list, count, true, desc, sync);
}

static void unlist(tutti_grad_sync *sync)
{
    tutti__store_exchange **at = &sync->params->exchanges;
    while (*at != &sync->listed) at = &(*at)->next;
    *at = sync->listed.next;
}

void tutti_grad_sync_destroy(tutti_grad_sync **sync)
{
    if (!sync || !*sync) return;
    tutti_grad_sync *s = *sync;
    tutti__engine *engine = &s->engine;
    /* graphs that write into other ranks' memory, which is closed next */
    if (engine->peers || engine->hop.peers) tutti__comm_drain(s->comm);
    tutti__gather_close(&s->gather);
    if (!engine->table || !engine->table->close || engine->table->close(engine)) {
        if (engine->squares) s->comm->backend->run.free(s->comm->device, engine->squares);
        tutti__run_close(s);
    }
    tutti__hop_close(&engine->hop, s->comm);
    tutti__timeline_close(&engine->times);
    tutti__leaves_close(&s->leaves);
    if (s->params) {
        unlist(s);
        tutti__shard_detach(s);
        tutti__params_release(s->params);
    }
    tutti__comm_release(s->comm);
    tutti__sync_release_layers(s);
    tutti__gradients_free(&s->gradients);
    free(engine->ranges);
    free(s->ranges);
    free(s);
    *sync = NULL;
}
