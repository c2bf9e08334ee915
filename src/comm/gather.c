/* A gather has two streams: one pushes this rank's slices, one waits for the other ranks'.  A rank
 * may write to another's values only once that one has told it that it reads them no more, and it
 * tells the other when all are there; the order of these two is that of the words in engine.h. */
#include "comm/gather.h"

#include <stdlib.h>

#include "comm/follow.h"
#include "comm/wait.h"

static const char operation[] = "gather of values";

static tutti_status share(tutti__gather *g, void *base, const void *at, void **theirs)
{
    const tutti_comm *comm = g->engine->comm;
    char why[192] = "";
    TUTTI_TRY(comm->transport->peers->share(g->engine->peers, base, at, theirs, &g->copies, why,
                                            sizeof why));
    if (!g->copies && comm->rank == 0)
        tutti__log(TUTTI_LOG_INFO, "a sharded store's values go by the transport: %s", why);
    return TUTTI_OK;
}

static tutti_status open_streams(tutti__gather *g)
{
    const tutti_comm *comm = g->engine->comm;
    const tutti__runtime *run = &comm->backend->run;
    tutti__event *const events[] = {&g->fork, &g->updated, &g->pushed, &g->arrived};
    TUTTI_TRY(run->stream_create(comm->device, true, &g->push));
    TUTTI_TRY(run->stream_create(comm->device, true, &g->arrive));
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        TUTTI_TRY(run->event_create(comm->device, false, events[i]));
    return TUTTI_OK;
}

tutti_status tutti__gather_open(tutti__gather *g, const tutti__engine *engine,
                                const tutti_params *params)
{
    tutti_comm *comm = engine->comm;
    const size_t world = (size_t)comm->world_size;
    *g = (tutti__gather){.engine = engine, .params = params};
    g->values = calloc(world, sizeof *g->values);
    g->masters = calloc(world, sizeof *g->masters);
    TUTTI_TRY(
        tutti_comm_agree(comm, g->values && g->masters
                                   ? TUTTI_OK
                                   : tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory")));
    g->copies = true;
    if (params->rounded > 0) TUTTI_TRY(share(g, params->working, params->working, g->values));
    if (params->trained > params->rounded && g->copies)
        TUTTI_TRY(share(g, params->master, tutti__masters_at(params, params->rounded), g->masters));
    return g->copies ? tutti_comm_agree(comm, open_streams(g)) : TUTTI_OK;
}

void tutti__gather_close(tutti__gather *g)
{
    if (!g->engine) return;
    tutti_comm *comm = g->engine->comm;
    const tutti__runtime *run = &comm->backend->run;
    const tutti__stream streams[] = {g->push, g->arrive};
    const tutti__event events[] = {g->fork, g->updated, g->pushed, g->arrived};
    for (int i = 0; i < 2; i++) {
        bool capturing = true;
        if (streams[i]) (void)run->stream_capturing(comm->device, streams[i], &capturing);
        if (!capturing && !comm->dead)
            (void)tutti__wait_device(comm, NULL, streams[i], "grad_sync_destroy", comm->sequence);
    }
    free(g->values);
    free(g->masters);
    if (comm->dead) return;
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        if (events[i]) run->event_destroy(comm->device, events[i]);
    for (int i = 0; i < 2; i++)
        if (streams[i]) run->stream_destroy(comm->device, streams[i]);
}

/* What ctx has enqueued so far precedes what follows on the stream. */
static tutti_status follow(const tutti_context *ctx, tutti__event event, tutti__stream stream)
{
    const tutti__runtime *run = &ctx->backend->run;
    TUTTI_TRY(run->event_record(ctx->device, event, ctx->stream));
    return run->stream_wait_event(ctx->device, stream, event);
}

tutti_status tutti__gather_begin(tutti__gather *g, tutti_context *ctx)
{
    const tutti__engine *engine = g->engine;
    tutti_comm *comm = engine->comm;
    const tutti__runtime *run = &comm->backend->run;
    TUTTI_TRY(tutti__comm_open(comm, operation));
    TUTTI_TRY(tutti__comm_follow(comm, ctx, operation));
    g->sequence = ++comm->sequence;
    g->sent = 0;
    g->begun = true;
    TUTTI_TRY(follow(ctx, g->fork, g->arrive));
    TUTTI_TRY(tutti__engine_post(engine, g->arrive, tutti__word_values_room(engine, comm->rank)));
    /* the wait follows the post, which others wait for, where a graph keeps no other order */
    TUTTI_TRY(run->event_record(comm->device, g->fork, g->arrive));
    TUTTI_TRY(run->stream_wait_event(comm->device, g->push, g->fork));
    return tutti__engine_await(engine, g->push, tutti__word_values_room(engine, 0), 1, operation,
                               g->sequence);
}

/* Where elements from `first` on lie on this rank, or on another; *size: of one. */
static char *place_of(const tutti__gather *g, int rank, int64_t first, size_t *size)
{
    const tutti_params *params = g->params;
    const bool own = rank == g->engine->comm->rank, rounded = first < params->rounded;
    *size = tutti__size_of(rounded ? params->working_dtype : params->desc.master_dtype);
    if (rounded) return (char *)(own ? params->working : g->values[rank]) + (size_t)first * *size;
    if (own) return tutti__masters_at(params, first);
    return (char *)g->masters[rank] + (size_t)(first - params->rounded) * *size;
}

tutti_status tutti__gather_send(tutti__gather *g, tutti_context *ctx, int index)
{
    const tutti_comm *comm = g->engine->comm;
    const tutti__span *span = &g->params->own[index].span;
    size_t size;
    TUTTI_ASSERT(g->begun && index == g->sent);
    g->sent = index + 1;
    TUTTI_TRY(follow(ctx, g->updated, g->push));
    const char *own = place_of(g, comm->rank, span->first, &size);
    for (int i = 1; i < comm->world_size; i++) {
        const int rank = (comm->rank + i) % comm->world_size;
        TUTTI_TRY(comm->backend->run.copy(comm->device, g->push,
                                          place_of(g, rank, span->first, &size), own,
                                          (size_t)span->count * size));
    }
    return TUTTI_OK;
}

tutti_status tutti__gather_end(tutti__gather *g, tutti_context *ctx)
{
    const tutti__engine *engine = g->engine;
    tutti_comm *comm = engine->comm;
    const tutti__runtime *run = &comm->backend->run;
    TUTTI_ASSERT(g->begun);
    while (g->sent < g->params->own_count) TUTTI_TRY(tutti__gather_send(g, ctx, g->sent));
    TUTTI_TRY(tutti__engine_post(engine, g->push, tutti__word_values(engine, comm->rank)));
    TUTTI_TRY(run->event_record(comm->device, g->pushed, g->push));
    TUTTI_TRY(run->stream_wait_event(comm->device, g->arrive, g->pushed));
    TUTTI_TRY(tutti__engine_await(engine, g->arrive, tutti__word_values(engine, 0), 1, operation,
                                  g->sequence));
    TUTTI_TRY(run->event_record(comm->device, g->arrived, g->arrive));
    TUTTI_TRY(run->stream_wait_event(comm->device, ctx->stream, g->arrived));
    TUTTI_TRY(tutti__comm_touch(comm, ctx, operation, true));
    g->begun = false; /* if this fails, too, it has not ended */
    return TUTTI_OK;
}
