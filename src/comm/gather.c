/* A rank may write to another's values only once that one has told it that it reads them no more,
 * and it tells the other when all are there; the order of these two is that of the words in
 * engine.h. */
#include "comm/gather.h"

#include <stdlib.h>

#include "comm/follow.h"

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

tutti_status tutti__gather_open(tutti__gather *g, const tutti__engine *engine,
                                const tutti_params *params)
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
    return g->shared ? tutti_comm_agree(comm, place_pointers(g)) : TUTTI_OK;
}

void tutti__gather_close(tutti__gather *g)
{
    if (!g->engine) return;
    tutti_comm *comm = g->engine->comm;
    free(g->rounded);
    if (!comm->dead && g->replicas.rounded)
        comm->backend->run.free(comm->device, (void *)g->replicas.rounded);
}

tutti_status tutti__gather_begin(tutti__gather *g, tutti_context *ctx)
{
    const tutti__engine *engine = g->engine;
    tutti_comm *comm = engine->comm;
    TUTTI_TRY(tutti__comm_open(comm, operation));
    TUTTI_TRY(tutti__comm_follow(comm, ctx, operation));
    g->sequence = ++comm->sequence;
    g->begun = true;
    const int word = tutti__word_values_room(engine, comm->rank);
    TUTTI_TRY(tutti__engine_post(engine, ctx->stream, &word, 1));
    return tutti__engine_await(engine, ctx->stream, tutti__word_values_room(engine, 0), 1,
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

static tutti_status copy_slice(const tutti__gather *g, tutti_context *ctx, const tutti__span *span)
{
    const tutti_comm *comm = g->engine->comm;
    size_t size;
    const char *own = place_of(g, comm->rank, span->first, &size);
    for (int i = 1; i < comm->world_size; i++) {
        const int rank = (comm->rank + i) % comm->world_size;
        TUTTI_TRY(comm->backend->run.copy(comm->device, ctx->stream,
                                          place_of(g, rank, span->first, &size), own,
                                          (size_t)span->count * size));
    }
    return TUTTI_OK;
}

tutti_status tutti__gather_end(tutti__gather *g, tutti_context *ctx, bool written)
{
    const tutti__engine *engine = g->engine;
    tutti_comm *comm = engine->comm;
    TUTTI_ASSERT(g->begun);
    for (int i = 0; i < g->params->own_count && !written; i++)
        TUTTI_TRY(copy_slice(g, ctx, &g->params->own[i].span));
    const int word = tutti__word_values(engine, comm->rank);
    TUTTI_TRY(tutti__engine_post(engine, ctx->stream, &word, 1));
    TUTTI_TRY(tutti__engine_await(engine, ctx->stream, tutti__word_values(engine, 0), 1, operation,
                                  g->sequence));
    TUTTI_TRY(tutti__comm_touch(comm, ctx, operation, true));
    g->begun = false; /* if this fails, too, it has not ended */
    return TUTTI_OK;
}
