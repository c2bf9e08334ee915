/* A rank may write to another's values only once that one reads them no more, of which it is told
 * by a word or, in an update, by the sum of squares before it, and it tells the other when they are
 * there: the order of words in engine.h.
 *
 * An update writes values to all ranks at the rate of the links between GPUs, which on four is half
 * that of its own memory.  Beside what follows it, which is the next forward pass, it only writes
 * its own and those of small ranges, and a stream of copies sends the others, those that forward
 * reads first first: these are updated first, and sent while the update goes on.  Another stream
 * awaits them all, and a call of a layer waits for the event behind its own. */
#include "comm/gather.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "comm/follow.h"
#include "comm/wait.h"
#include "core/layer.h"

static const char operation[] = "gather of values";

static tutti_status share(tutti__gather *g, void *base, const void *at, void **theirs)
{
    const tutti_comm *comm = g->engine->comm;
    char why[192] = "";
    TUTTI_TRY(comm->transport->peers->share(g->engine->peers, base, at, theirs, &g->shared, why,
                                            sizeof why));
    if (!g->shared && comm->rank == 0)
        tutti__log(TUTTI_LOG_INFO, "a sharded store's values go by the transport: %s", why);
    return TUTTI_OK;
}

/* The pointers on the device. */
static tutti_status place_pointers(tutti__gather *g)
{
    const tutti_comm *comm = g->engine->comm;
    const tutti__runtime *run = &comm->backend->run;
    const size_t world = (size_t)comm->world_size, bytes = 2 * world * sizeof(void *);
    void *placed = NULL;
    TUTTI_TRY(run->alloc(comm->device, bytes, &placed));
    g->replicas = (tutti__shard_replicas){.rounded = placed,
                                          .masters = (void *const *)placed + world,
                                          .rank = comm->rank,
                                          .world = comm->world_size,
                                          .dead = comm->transport->peers->dead(g->engine->peers)};
    TUTTI_TRY(run->copy(comm->device, NULL, placed, g->rounded, bytes));
    return run->stream_synchronize(comm->device, NULL);
}

static int64_t largest_slice(const tutti__gather *g, int range)
{
    return tutti__shard_slice(&g->params->ranges[range], 0, g->engine->comm->world_size).count;
}

/* Elements of a slice of a small range. */
static int64_t small_slice(const tutti__gather *g)
{
    return tutti__shard_small(largest_slice(g, 0));
}

/* An update writes the slices of the first groups first where they are its last ones. */
static tutti_status open_early(tutti__gather *g)
{
    const tutti_comm *comm = g->engine->comm;
    const tutti_params *params = g->params;
    const int first = g->groups > 1 ? g->ranges[1] : 0;
    int slices = 0;
    for (int r = 0; r < first; r++)
        if (largest_slice(g, r) <= small_slice(g)) return TUTTI_OK;
    for (int i = 0; i < params->own_count && first > 0; i++)
        slices += params->own[i].span.first >= params->ranges[first].first;
    if (slices == 0) return TUTTI_OK;
    TUTTI_TRY(comm->backend->run.event_create(comm->device, false, &g->early));
    g->replicas.early_slices = slices;
    return TUTTI_OK;
}

/* The last one with elements of a slot; -1: it is frozen. */
static int group_of(const tutti__gather *g, const tutti__slot *slot)
{
    int last = -1;
    for (int r = 0; r < g->params->range_count; r++) {
        const tutti__span *range = &g->params->ranges[r];
        if (slot->offset + slot->count <= range->first ||
            slot->offset >= range->first + range->count)
            continue;
        if (last < 0) last = 0;
        for (int k = 1; k < g->groups; k++)
            if (g->ranges[k] == r && k > last) last = k;
    }
    return last;
}

/* What calls of layers wait for. */
static void tell_layers(const tutti__gather *g)
{
    const tutti_params *params = g->params;
    for (int i = 0; i < params->entry_count; i++)
        if (params->entries[i].layer) params->entries[i].layer->values_group = -1;
    for (int i = 0; i < params->entry_count; i++) {
        tutti_layer *layer = params->entries[i].layer;
        const int group = group_of(g, &params->slots[params->entries[i].slot]);
        if (layer && group > layer->values_group) layer->values_group = group;
    }
}

static tutti_status open_beside(tutti__gather *g)
{
    static atomic_uint_least64_t gathers;
    const tutti_comm *comm = g->engine->comm;
    const tutti__runtime *run = &comm->backend->run;
    g->ranges = calloc((size_t)g->params->range_count + 1, sizeof *g->ranges);
    g->arrived = calloc((size_t)g->params->range_count + 2, sizeof *g->arrived);
    if (!g->ranges || !g->arrived)
        return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    g->number = atomic_fetch_add(&gathers, 1) + 1;
    g->groups = 1;
    for (int r = g->params->range_count - 1; r >= 0; r--)
        if (largest_slice(g, r) > small_slice(g)) g->ranges[g->groups++] = r;
    TUTTI_TRY(run->stream_create(comm->device, true, &g->send));
    TUTTI_TRY(run->stream_create(comm->device, true, &g->arrive));
    TUTTI_TRY(run->event_create(comm->device, false, &g->updated));
    TUTTI_TRY(run->event_create(comm->device, false, &g->sent));
    for (int k = 0; k <= g->groups; k++)
        TUTTI_TRY(run->event_create(comm->device, false, &g->arrived[k]));
    tell_layers(g);
    return open_early(g);
}

tutti_status tutti__gather_open(tutti__gather *g, const tutti__engine *engine, tutti_params *params,
                                bool beside)
{
    tutti_comm *comm = engine->comm;
    const size_t world = (size_t)comm->world_size;
    *g = (tutti__gather){.engine = engine, .params = params};
    g->rounded = calloc(2 * world, sizeof *g->rounded);
    TUTTI_TRY(tutti_comm_agree(
        comm,
        g->rounded ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory")));
    g->masters = g->rounded + world;
    g->shared = true;
    if (params->rounded > 0) TUTTI_TRY(share(g, params->working, params->working, g->rounded));
    if (params->trained > params->rounded && g->shared)
        TUTTI_TRY(share(g, params->master, tutti__masters_at(params, params->rounded), g->masters));
    if (!g->shared) return TUTTI_OK;
    tutti_status status = place_pointers(g);
    if (status == TUTTI_OK && beside) status = open_beside(g);
    return tutti_comm_agree(comm, status);
}

static void close_beside(tutti__gather *g)
{
    tutti_comm *comm = g->engine->comm;
    const tutti__runtime *run = &comm->backend->run;
    const tutti__stream streams[] = {g->send, g->arrive};
    for (int i = 0; i < 2; i++)
        if (streams[i] && !comm->dead)
            (void)tutti__wait_device(comm, NULL, streams[i], operation, g->sequence);
    if (!comm->dead) { /* or they wait for ever */
        for (int i = 0; i < 2; i++)
            if (streams[i]) run->stream_destroy(comm->device, streams[i]);
        tutti__event events[] = {g->early, g->updated, g->sent};
        for (int i = 0; i < 3; i++)
            if (events[i]) run->event_destroy(comm->device, events[i]);
        for (int k = 0; g->arrived && k <= g->groups; k++)
            if (g->arrived[k]) run->event_destroy(comm->device, g->arrived[k]);
    }
    free(g->ranges);
    free(g->arrived);
}

void tutti__gather_close(tutti__gather *g)
{
    if (!g->engine) return;
    tutti_comm *comm = g->engine->comm;
    close_beside(g);
    free(g->rounded);
    if (!comm->dead && g->replicas.rounded)
        comm->backend->run.free(comm->device, (void *)g->replicas.rounded);
}

tutti_status tutti__gather_begin(tutti__gather *g, tutti_context *ctx, bool met)
{
    const tutti__engine *engine = g->engine;
    tutti_comm *comm = engine->comm;
    bool capturing;
    TUTTI_TRY(tutti__comm_open(comm, operation));
    TUTTI_TRY(tutti__comm_follow(comm, ctx, operation));
    TUTTI_TRY(comm->backend->run.stream_capturing(ctx->device, ctx->stream, &capturing));
    g->sequence = ++comm->sequence;
    g->begun = true;
    /* a capture ends with all streams joined, and what it holds waits for no other update */
    g->captured = g->captured || (met && capturing);
    g->beside = g->groups > 0 && met && !g->captured;
    g->replicas.most = g->beside ? small_slice(g) : INT64_MAX;
    g->replicas.early = g->beside ? g->early : NULL;
    if (met) return TUTTI_OK;
    const int word = tutti__word_values_room(engine, comm->rank);
    TUTTI_TRY(tutti__engine_post(engine, ctx->stream, &word, 1, true));
    return tutti__engine_await(engine, ctx->stream, tutti__word_values_room(engine, 0), 1, true,
                               operation, g->sequence);
}

/* Where elements from `first` on lie on this rank, or on another; *size: of one. */
static char *place_of(const tutti__gather *g, int rank, int64_t first, size_t *size)
{
    const tutti_params *params = g->params;
    const bool own = rank == g->engine->comm->rank, rounded = first < params->rounded;
    *size = tutti__size_of(rounded ? params->working_dtype : params->desc.master_dtype);
    if (rounded) return (char *)(own ? params->working : g->rounded[rank]) + (size_t)first * *size;
    if (own) return tutti__masters_at(params, first);
    return (char *)g->masters[rank] + (size_t)(first - params->rounded) * *size;
}

static tutti_status copy_slice(const tutti__gather *g, tutti__stream stream,
                               const tutti__span *span)
{
    const tutti_comm *comm = g->engine->comm;
    tutti__sends sends = {.stream = stream};
    size_t size;
    const char *own = place_of(g, comm->rank, span->first, &size);
    for (int i = 1; i < comm->world_size && span->count > 0; i++) {
        const int rank = (comm->rank + i) % comm->world_size;
        TUTTI_TRY(tutti__engine_send(g->engine, &sends, place_of(g, rank, span->first, &size), own,
                                     (size_t)span->count * size));
    }
    return tutti__engine_sent(g->engine, &sends);
}

/* Sends the groups, behind what ctx has updated. */
static tutti_status send(const tutti__gather *g, const tutti_context *ctx)
{
    const tutti__engine *engine = g->engine;
    const tutti_comm *comm = engine->comm;
    const tutti__runtime *run = &comm->backend->run;
    tutti__event first = g->early ? g->early : g->updated;
    TUTTI_TRY(run->event_record(comm->device, g->updated, ctx->stream));
    TUTTI_TRY(run->stream_wait_event(comm->device, g->send, first));
    for (int k = 1; k < g->groups; k++) {
        const int r = g->ranges[k];
        if (k == 2) TUTTI_TRY(run->stream_wait_event(comm->device, g->send, g->updated));
        const tutti__span slice =
            tutti__shard_slice(&g->params->ranges[r], comm->rank, comm->world_size);
        TUTTI_TRY(copy_slice(g, g->send, &slice));
        const int word = tutti__word_range_values(engine, r, comm->rank);
        TUTTI_TRY(tutti__engine_post(engine, g->send, &word, 1, false));
    }
    return run->event_record(comm->device, g->sent, g->send);
}

/* Says that the small ranges' are there.  Awaits those of the other ranks, and then the copies of
 * this one's. */
static tutti_status receive(const tutti__gather *g)
{
    const tutti__engine *engine = g->engine;
    tutti_comm *comm = engine->comm;
    const tutti__runtime *run = &comm->backend->run;
    const int own = tutti__word_values(engine, comm->rank);
    tutti__event first = g->early ? g->early : g->updated;
    TUTTI_TRY(run->stream_wait_event(comm->device, g->arrive, first));
    TUTTI_TRY(tutti__engine_post(engine, g->arrive, &own, 1, false));
    for (int k = 0; k < g->groups; k++) {
        const int word = k == 0 ? tutti__word_values(engine, 0)
                                : tutti__word_range_values(engine, g->ranges[k], 0);
        TUTTI_TRY(tutti__engine_await(engine, g->arrive, word, 1, false, operation, g->sequence));
        if (k == 0) /* its own */
            TUTTI_TRY(run->stream_wait_event(comm->device, g->arrive, g->updated));
        TUTTI_TRY(run->event_record(comm->device, g->arrived[k], g->arrive));
    }
    TUTTI_TRY(run->stream_wait_event(comm->device, g->arrive, g->sent));
    TUTTI_TRY(run->event_record(comm->device, g->arrived[g->groups], g->arrive));
    return comm->transport->fence ? comm->transport->fence(comm, g->arrive) : TUTTI_OK;
}

static tutti_status exchange_beside(tutti__gather *g, const tutti_context *ctx)
{
    TUTTI_TRY(send(g, ctx));
    TUTTI_TRY(receive(g));
    g->round++;
    return TUTTI_OK;
}

tutti_status tutti__gather_end(tutti__gather *g, tutti_context *ctx, bool written)
{
    const tutti__engine *engine = g->engine;
    tutti_comm *comm = engine->comm;
    TUTTI_ASSERT(g->begun);
    if (g->beside) {
        TUTTI_ASSERT(written);
        TUTTI_TRY(exchange_beside(g, ctx));
        g->begun = false;
        return TUTTI_OK;
    }
    for (int i = 0; i < g->params->own_count && !written; i++)
        TUTTI_TRY(copy_slice(g, ctx->stream, &g->params->own[i].span));
    const int word = tutti__word_values(engine, comm->rank);
    TUTTI_TRY(tutti__engine_post(engine, ctx->stream, &word, 1, true));
    TUTTI_TRY(tutti__engine_await(engine, ctx->stream, tutti__word_values(engine, 0), 1, true,
                                  operation, g->sequence));
    TUTTI_TRY(tutti__comm_touch(comm, ctx, operation, true));
    g->begun = false; /* if this fails, too, it has not ended */
    return TUTTI_OK;
}

/* What the context remembers of this gather. */
static tutti__values_seen *seen_by(const tutti__gather *g, tutti_context *ctx)
{
    for (int i = 0; i < TUTTI__VALUES_SEEN; i++)
        if (ctx->values[i].gather == g->number) return &ctx->values[i];
    tutti__values_seen *seen = &ctx->values[ctx->values_next++ % TUTTI__VALUES_SEEN];
    *seen = (tutti__values_seen){.gather = g->number};
    return seen;
}

tutti_status tutti__gather_await(tutti__gather *g, tutti_context *ctx, int group)
{
    tutti_comm *comm = g->engine->comm;
    const tutti__runtime *run = &comm->backend->run;
    bool capturing;
    if (!g->round || group < 0) return TUTTI_OK;
    tutti__values_seen *seen = seen_by(g, ctx);
    if (seen->round == g->round && seen->group >= group) return TUTTI_OK;
    TUTTI_TRY(tutti__comm_open(comm, operation));
    TUTTI_TRY(run->stream_capturing(ctx->device, ctx->stream, &capturing));
    if (capturing)
        return tutti__fail(TUTTI_ERR_STATE,
                           "values of the last update are on their way while the stream is being "
                           "captured: call tutti_params_settle before");
    const int last = group < g->groups ? group : g->groups;
    TUTTI_TRY(run->stream_wait_event(ctx->device, ctx->stream, g->arrived[last]));
    TUTTI_TRY(tutti__comm_touch(comm, ctx, operation, false));
    seen->round = g->round;
    seen->group = group;
    return TUTTI_OK;
}
