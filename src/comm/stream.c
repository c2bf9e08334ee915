/* The engine of a transport that sums on a stream: the engine's own stream waits for an event on
 * the caller's and sums; finish makes the caller's stream wait for the sums.  Nothing waits on the
 * host, so all of it can be captured. */
#include <stdlib.h>

#include "comm/follow.h"
#include "comm/side_stream.h"
#include "comm/wait.h"

static const char operation[] = "gradient exchange";

typedef struct state {
    tutti__side_stream side;
    bool joined; /* the last step was joined outside of a capture */
} state;

static tutti_status stream_open(tutti__engine *engine)
{
    state *s = engine->state = calloc(1, sizeof *s);
    if (!s) return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    return tutti__side_open(&s->side, engine);
}

static tutti_status capturing_of(const tutti__engine *engine, tutti__stream stream, bool *capturing)
{
    return engine->comm->backend->run.stream_capturing(engine->comm->device, stream, capturing);
}

static tutti_status stream_begin(tutti__engine *engine, tutti_context *ctx)
{
    const state *s = engine->state;
    tutti_comm *comm = engine->comm;
    bool capturing = true;
    TUTTI_TRY(tutti__comm_follow(comm, ctx, operation));
    if (s->joined) TUTTI_TRY(capturing_of(engine, ctx->stream, &capturing));
    /* The caller may run ahead of the device by one step only: while a rank is missing, more
     * launches would fill the device's queue and block without a deadline. */
    return capturing ? TUTTI_OK
                     : tutti__wait_device(comm, s->side.join, NULL, operation, comm->sequence);
}

static tutti_status stream_issue(tutti__engine *engine, tutti_context *ctx, int first, int last)
{
    state *s = engine->state;
    TUTTI_TRY(tutti__side_fork(&s->side, ctx));
    for (int r = first; r <= last; r++) {
        tutti__work *work = &engine->ranges[r].work;
        work->stream = s->side.stream;
        TUTTI_TRY(tutti__timeline_mark(engine->times, TUTTI__MOMENT_BEGIN, r, work->stream));
        if (engine->narrow)
            TUTTI_TRY(tutti__engine_narrow(engine, r, work->stream, engine->ranges[r].wire.data));
        bool another = true;
        for (work->round = 0; another; work->round++) {
            TUTTI_TRY(engine->table->start(engine, r));
            another = false;
            if (engine->table->arrived) TUTTI_TRY(engine->table->arrived(engine, r, &another));
        }
        TUTTI_TRY(tutti__side_land(&s->side, engine, r));
    }
    return TUTTI_OK;
}

static tutti_status stream_wait(tutti__engine *engine, tutti_context *ctx, int first, int last)
{
    const state *s = engine->state;
    TUTTI_TRY(tutti__side_wait(&s->side, ctx, first, last));
    return tutti__comm_touch(engine->comm, ctx, operation, !engine->in_step);
}

static tutti_status stream_finish(tutti__engine *engine, tutti_context *ctx)
{
    state *s = engine->state;
    bool capturing;
    if (engine->range_count == 0) return TUTTI_OK;
    TUTTI_TRY(tutti__side_join(&s->side, ctx));
    TUTTI_TRY(capturing_of(engine, ctx->stream, &capturing));
    s->joined = !capturing;
    return tutti__comm_touch(engine->comm, ctx, operation, true);
}

/* Tells the transport where the issued sums end. */
static void stream_abandon(tutti__engine *engine)
{
    const state *s = engine->state;
    tutti_comm *comm = engine->comm;
    bool capturing;
    if (!engine->in_step || !comm->transport->fence || comm->dead) return;
    if (capturing_of(engine, s->side.stream, &capturing) == TUTTI_OK && !capturing)
        (void)comm->transport->fence(comm, s->side.stream);
}

static bool stream_close(tutti__engine *engine)
{
    state *s = engine->state;
    tutti_comm *comm = engine->comm;
    bool capturing = true;
    if (!s) return true;
    stream_abandon(engine);
    if (s->side.stream) (void)capturing_of(engine, s->side.stream, &capturing);
    /* freeing memory would wait for a sum that a rank never joins */
    if (!capturing && !comm->dead)
        (void)tutti__wait_device(comm, NULL, s->side.stream, "grad_sync_destroy", comm->sequence);
    if (comm->dead) return false;
    tutti__side_close(&s->side, engine);
    free(s);
    return true;
}

const tutti__engine_table tutti__stream_engine = {.open = stream_open,
                                                  .begin = stream_begin,
                                                  .issue = stream_issue,
                                                  .wait = stream_wait,
                                                  .finish = stream_finish,
                                                  .abandon = stream_abandon,
                                                  .close = stream_close,
                                                  .start = tutti__engine_all_reduce};
