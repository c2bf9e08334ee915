/* A stream beside the caller's, and the events between them. */
#include "comm/side_stream.h"

#include <stdlib.h>

tutti_status tutti__side_open(tutti__side_stream *side, const tutti__engine *engine)
{
    const tutti__runtime *run = &engine->comm->backend->run;
    const int device = engine->comm->device;
    side->summed = calloc((size_t)engine->range_count + 1, sizeof *side->summed);
    side->behind = calloc((size_t)engine->range_count + 1, sizeof *side->behind);
    if (!side->summed || !side->behind)
        return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    TUTTI_TRY(run->stream_create(device, true, &side->stream));
    TUTTI_TRY(run->event_create(device, false, &side->fork));
    TUTTI_TRY(run->event_create(device, false, &side->join));
    for (int r = 0; r < engine->range_count; r++) {
        side->behind[r] = r;
        TUTTI_TRY(run->event_create(device, false, &side->summed[r]));
    }
    return TUTTI_OK;
}

void tutti__side_close(tutti__side_stream *side, const tutti__engine *engine)
{
    const tutti__runtime *run = &engine->comm->backend->run;
    const int device = engine->comm->device;
    for (int r = 0; side->summed && r < engine->range_count; r++)
        if (side->summed[r]) run->event_destroy(device, side->summed[r]);
    if (side->fork) run->event_destroy(device, side->fork);
    if (side->join) run->event_destroy(device, side->join);
    if (side->stream) run->stream_destroy(device, side->stream);
    free(side->summed);
    free(side->behind);
}

tutti_status tutti__side_fork(tutti__side_stream *side, const tutti_context *ctx)
{
    const tutti__runtime *run = &ctx->backend->run;
    TUTTI_TRY(run->event_record(ctx->device, side->fork, ctx->stream));
    return run->stream_wait_event(ctx->device, side->stream, side->fork);
}

static tutti_status land(tutti__side_stream *side, const tutti__engine *engine, int r)
{
    const tutti__runtime *run = &engine->comm->backend->run;
    const int device = engine->comm->device;
    const tutti__engine_range *range = &engine->ranges[r];
    if (engine->narrow && engine->staged)
        TUTTI_TRY(run->copy(device, side->stream, engine->narrowed, range->wire.data,
                            tutti__engine_wire_bytes(range)));
    if (engine->narrow && !tutti__engine_only_moves(engine))
        TUTTI_TRY(tutti__engine_widen(engine, r, side->stream,
                                      engine->staged ? engine->narrowed : range->wire.data));
    else if (!engine->narrow && range->wire.data != range->gradient.data)
        TUTTI_TRY(run->copy(device, side->stream, range->gradient.data, range->wire.data,
                            tutti__engine_bytes(range)));
    return TUTTI_OK;
}

tutti_status tutti__side_land(tutti__side_stream *side, const tutti__engine *engine, int first,
                              int last)
{
    for (int r = first; r <= last; r++) {
        TUTTI_TRY(land(side, engine, r));
        side->behind[r] = last;
    }
    TUTTI_TRY(
        tutti__timeline_mark_ranges(engine->times, TUTTI__MOMENT_END, first, last, side->stream));
    return engine->comm->backend->run.event_record(engine->comm->device, side->summed[last],
                                                   side->stream);
}

tutti_status tutti__side_wait(const tutti__side_stream *side, const tutti_context *ctx, int first,
                              int last)
{
    for (int r = first; r <= last; r = side->behind[r] + 1)
        TUTTI_TRY(ctx->backend->run.stream_wait_event(ctx->device, ctx->stream,
                                                      side->summed[side->behind[r]]));
    return TUTTI_OK;
}

tutti_status tutti__side_join(tutti__side_stream *side, const tutti_context *ctx)
{
    const tutti__runtime *run = &ctx->backend->run;
    TUTTI_TRY(run->event_record(ctx->device, side->join, side->stream));
    return run->stream_wait_event(ctx->device, ctx->stream, side->join);
}
