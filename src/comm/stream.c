/* The engine of a transport that sums on a stream: the engine's own stream waits for an event on
 * the caller's and sums; finish makes the caller's stream wait for the sums.  Nothing waits on the
 * host, so all of it can be captured.
 * Late sums (of a sharded store): during backward the ranges' pieces only travel.  A kernel that
 * adds them would wait for multiprocessors until a product ends, and the next pieces with it; so
 * finish adds them, or wait those up to its range, on a second stream of the engine's, and those of
 * the last ranges, behind which nothing is sent, on the first.
 * Sums that spread (of other stores, by copy engines) travel back to all ranks, for which there
 * would be no time after backward.  So they are added on the caller's stream, between two of its
 * products, when the next ranges are ready and their pieces have most likely arrived; the second
 * stream waits for the others' sums. */
#include <stdlib.h>

#include "comm/follow.h"
#include "comm/side_stream.h"
#include "comm/tree.h"
#include "comm/wait.h"

static const char operation[] = "gradient exchange";

/* Ranges that are ready after one whose sum spreads, before it is added: the more, the less one
 * rank waits for another; after the last ones no product hides the sums that are left. */
#define AHEAD_LEAST 2
#define AHEAD_MOST 8

typedef struct state {
    tutti__side_stream side;
    tutti__side_stream late; /* late sums are added here, or end; awaits sums that spread */
    int added;               /* late or spread sums that are enqueued in this step */
    int landed;              /* sums that spread: those that are awaited */
    int met;                 /* ranges whose pieces are awaited on late, up to late.fork */
    tutti__event spread;     /* in a capture: the last one that was sent */
    bool joined;             /* the last step was joined outside of a capture */
} state;

/* Where sums end. */
static tutti__side_stream *sums_of(const tutti__engine *engine)
{
    state *s = engine->state;
    return tutti__engine_only_moves(engine) ? &s->late : &s->side;
}

static tutti_status stream_open(tutti__engine *engine)
{
    state *s = engine->state = calloc(1, sizeof *s);
    if (!s) return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    TUTTI_TRY(tutti__side_open(&s->side, engine));
    if (tutti__engine_only_moves(engine)) TUTTI_TRY(tutti__side_open(&s->late, engine));
    if (engine->spreads)
        TUTTI_TRY(engine->comm->backend->run.event_create(engine->comm->device, false, &s->spread));
    return engine->table->room ? engine->table->room(engine, s->late.stream) : TUTTI_OK;
}

static tutti_status capturing_of(const tutti__engine *engine, tutti__stream stream, bool *capturing)
{
    return engine->comm->backend->run.stream_capturing(engine->comm->device, stream, capturing);
}

static tutti_status stream_begin(tutti__engine *engine, tutti_context *ctx)
{
    state *s = engine->state;
    tutti_comm *comm = engine->comm;
    bool capturing = true;
    s->added = s->landed = s->met = engine->followed = 0;
    TUTTI_TRY(tutti__comm_follow(comm, ctx, operation));
    if (s->joined) TUTTI_TRY(capturing_of(engine, ctx->stream, &capturing));
    /* The caller may run ahead of the device by one step only: while a rank is missing, more
     * launches would fill the device's queue and block without a deadline. */
    return capturing
               ? TUTTI_OK
               : tutti__wait_device(comm, sums_of(engine)->join, NULL, operation, comm->sequence);
}

/* What the sums of these ranges follow is enqueued: the moves of their pieces, and, if that is done
 * on the same stream, the waits for the others'. */
static tutti_status mark_moved(tutti__engine *engine, int first, int last)
{
    const state *s = engine->state;
    const tutti_comm *comm = engine->comm;
    for (int r = first; r <= last; r++)
        TUTTI_TRY(comm->backend->run.event_record(comm->device, s->side.summed[r], s->side.stream));
    return TUTTI_OK;
}

/* Sums that spread: adds this rank's slices of the ranges up to this one, which have been issued,
 * and sends them. */
static tutti_status add_between(tutti__engine *engine, tutti_context *ctx, int last)
{
    state *s = engine->state;
    tutti_comm *comm = engine->comm;
    const tutti__runtime *run = &comm->backend->run;
    bool capturing;
    if (s->added > last) return TUTTI_OK;
    TUTTI_TRY(capturing_of(engine, s->side.stream, &capturing)); /* ctx may join it only here */
    for (; s->added <= last; s->added++) {
        const int r = s->added;
        tutti__work *work = &engine->ranges[r].work;
        /* other ranks wait for this one's pieces meanwhile, and for the sums before: in a graph
         * only what it waits for is sure to come first */
        TUTTI_TRY(run->stream_wait_event(ctx->device, ctx->stream, s->side.summed[r]));
        if (capturing && r > 0)
            TUTTI_TRY(run->stream_wait_event(ctx->device, ctx->stream, s->spread));
        TUTTI_TRY(tutti__engine_await(engine, ctx->stream, tutti__word_piece(engine, r, 0), 1,
                                      false, operation, work->sequence));
        TUTTI_TRY(tutti__comm_touch(comm, ctx, operation, false));
        work->stream = ctx->stream;
        TUTTI_TRY(engine->table->add(engine, r, r));
        work->stream = s->side.stream;
        TUTTI_TRY(tutti__side_fork(&s->side, ctx));
        TUTTI_TRY(engine->table->spread(engine, r));
        if (capturing) TUTTI_TRY(run->event_record(ctx->device, s->spread, s->side.stream));
    }
    return TUTTI_OK;
}

/* Sums that spread: rounds a range on the caller's stream, where it waits for no multiprocessor,
 * when the one whose wire it takes has been sent. */
static tutti_status narrow_between(tutti__engine *engine, tutti_context *ctx, int r)
{
    state *s = engine->state;
    const tutti__runtime *run = &engine->comm->backend->run;
    if (r >= TUTTI__WIRES)
        TUTTI_TRY(
            run->stream_wait_event(ctx->device, ctx->stream, s->side.summed[r - TUTTI__WIRES]));
    TUTTI_TRY(tutti__engine_narrow(engine, r, ctx->stream, engine->ranges[r].wire.data));
    return tutti__side_fork(&s->side, ctx);
}

/* Copy engines: the range has a place on the other ranks. */
static tutti_status follow_place(tutti__engine *engine, int r)
{
    const state *s = engine->state;
    const tutti_comm *comm = engine->comm;
    const int before = engine->followed;
    if (s->met >= r && tutti__tree_in_gradients(engine, r))
        TUTTI_TRY(comm->backend->run.stream_wait_event(comm->device, s->side.stream, s->late.fork));
    TUTTI_TRY(engine->table->place(engine, r));
    return mark_moved(engine, before, engine->followed - 1);
}

static tutti_status stream_issue(tutti__engine *engine, tutti_context *ctx, int first, int last)
{
    state *s = engine->state;
    TUTTI_TRY(tutti__side_fork(&s->side, ctx));
    engine->issuing[0] = first;
    engine->issuing[1] = last;
    for (int r = first; r <= last; r++) {
        tutti__work *work = &engine->ranges[r].work;
        work->stream = s->side.stream;
        TUTTI_TRY(tutti__timeline_mark(engine->times, TUTTI__MOMENT_BEGIN, r, work->stream));
        if (engine->narrow && engine->spreads)
            TUTTI_TRY(narrow_between(engine, ctx, r));
        else if (engine->narrow)
            TUTTI_TRY(tutti__engine_narrow(engine, r, work->stream, engine->ranges[r].wire.data));
        bool another = true;
        if (engine->table->place) TUTTI_TRY(follow_place(engine, r));
        const int before = engine->followed; /* at most r; start may await pieces, up to r's */
        for (work->round = 0; another; work->round++) {
            TUTTI_TRY(engine->table->start(engine, r));
            another = false;
            if (tutti__engine_only_moves(engine)) break;
            if (engine->table->arrived) TUTTI_TRY(engine->table->arrived(engine, r, &another));
        }
        TUTTI_TRY(tutti__engine_only_moves(engine)
                      ? mark_moved(engine, engine->followed > r ? before : r, r)
                      : tutti__side_land(&s->side, engine, r, r));
    }
    if (!engine->spreads) return TUTTI_OK;
    const int half = (engine->range_count - 1 - last) / 2;
    const int ahead = half < AHEAD_LEAST ? AHEAD_LEAST : half < AHEAD_MOST ? half : AHEAD_MOST;
    return add_between(engine, ctx, last - ahead);
}

/* What follows on the second stream follows the moves, too. */
static tutti_status join_moves(tutti__engine *engine)
{
    state *s = engine->state;
    const tutti__runtime *run = &engine->comm->backend->run;
    const int device = engine->comm->device;
    if (!tutti__engine_only_moves(engine)) return TUTTI_OK;
    TUTTI_TRY(run->event_record(device, s->side.join, s->side.stream));
    return run->stream_wait_event(device, s->late.stream, s->side.join);
}

/* Copy engines: waits for the pieces of the ranges from `first` up to *end, on *stream, where they
 * are to be added, but for those that the stream of the moves has awaited.  Most have been there
 * for long when sums are wanted, so all but the last two are one wait, and those another: where
 * nothing is sent any more behind them on the stream of the moves, so that others are added
 * meanwhile. */
static tutti_status await_pieces(tutti__engine *engine, int first, int last, bool idle,
                                 tutti__stream *stream, int *end)
{
    state *s = engine->state;
    const tutti__runtime *run = &engine->comm->backend->run;
    const int device = engine->comm->device;
    const int count = last - 1 > first ? last - 1 - first : last + 1 - first;
    *end = first + count;
    if (*end == engine->range_count)
        *stream = s->side.stream;
    else
        TUTTI_TRY(run->stream_wait_event(device, *stream, s->side.summed[*end - 1]));
    const int begin = first > engine->followed ? first : engine->followed;
    if (begin >= *end) return TUTTI_OK;
    engine->followed = *end;
    TUTTI_TRY(tutti__engine_await(engine, *stream, tutti__word_piece(engine, begin, 0),
                                  *end - begin, idle, operation,
                                  engine->ranges[first].work.sequence));
    if (*stream != s->late.stream) return TUTTI_OK;
    s->met = *end; /* ranges may follow, whose pieces take the place of these */
    return run->event_record(device, s->late.fork, *stream);
}

/* Adds the late sums up to this range that have not been added yet.  Its pieces have been issued,
 * and all ranks issue in one order: so what other ranks need from this one, before they send what
 * is waited for here, is enqueued already.  idle: both streams follow all else. */
static tutti_status add_late(tutti__engine *engine, int last, bool idle)
{
    state *s = engine->state;
    const tutti__runtime *run = &engine->comm->backend->run;
    const int device = engine->comm->device;
    if (!engine->late || s->added > last) return TUTTI_OK;
    while (s->added <= last) {
        tutti__stream stream = s->late.stream;
        int end = s->added + 1;
        if (engine->peers)
            TUTTI_TRY(await_pieces(engine, s->added, last, idle, &stream, &end));
        else
            TUTTI_TRY(run->stream_wait_event(device, stream, s->side.summed[s->added]));
        for (int r = s->added; r < end; r++) engine->ranges[r].work.stream = stream;
        TUTTI_TRY(engine->table->add(engine, s->added, end - 1));
        if (stream != s->late.stream) TUTTI_TRY(join_moves(engine));
        TUTTI_TRY(tutti__side_land(&s->late, engine, s->added, end - 1));
        s->added = end;
    }
    return TUTTI_OK;
}

/* The late sums that are left, behind backward: unless more is known to have followed, it ended
 * where the last ranges were issued, and what ctx has been given since are copies, say, beside
 * which they can be added. */
static tutti_status add_rest(tutti__engine *engine, tutti_context *ctx)
{
    state *s = engine->state;
    const bool idle = engine->late && engine->peers;
    if (idle && engine->more) TUTTI_TRY(tutti__side_fork(&s->side, ctx));
    if (idle)
        TUTTI_TRY(ctx->backend->run.stream_wait_event(ctx->device, s->late.stream, s->side.fork));
    return add_late(engine, engine->range_count - 1, idle);
}

/* Sums that spread: adds those up to this range, and waits for the others'.  Other ranks wait for
 * what this one has sent meanwhile. */
static tutti_status land_spread(tutti__engine *engine, tutti_context *ctx, int last)
{
    state *s = engine->state;
    const int first = s->landed;
    if (!engine->spreads || first > last) return TUTTI_OK;
    TUTTI_TRY(add_between(engine, ctx, last));
    TUTTI_TRY(join_moves(engine));
    TUTTI_TRY(tutti__engine_await(engine, s->late.stream, tutti__word_sum(engine, first, 0),
                                  last + 1 - first, false, operation,
                                  engine->ranges[last].work.sequence));
    TUTTI_TRY(tutti__side_land(&s->late, engine, first, last));
    s->landed = last + 1;
    return TUTTI_OK;
}

static tutti_status stream_wait(tutti__engine *engine, tutti_context *ctx, int first, int last)
{
    if (engine->in_step) {
        TUTTI_TRY(add_late(engine, last, false));
        TUTTI_TRY(land_spread(engine, ctx, last));
    }
    TUTTI_TRY(tutti__side_wait(sums_of(engine), ctx, first, last));
    return tutti__comm_touch(engine->comm, ctx, operation, !engine->in_step);
}

static tutti_status stream_finish(tutti__engine *engine, tutti_context *ctx)
{
    state *s = engine->state;
    bool capturing;
    if (engine->range_count == 0) return TUTTI_OK;
    TUTTI_TRY(add_rest(engine, ctx));
    TUTTI_TRY(land_spread(engine, ctx, engine->range_count - 1));
    if (engine->late) TUTTI_TRY(join_moves(engine));
    TUTTI_TRY(capturing_of(engine, ctx->stream, &capturing));
    /* for the next step, so ctx does not wait for it, but at the end of a capture */
    if (engine->table->room && capturing) TUTTI_TRY(engine->table->room(engine, s->late.stream));
    TUTTI_TRY(tutti__side_join(sums_of(engine), ctx));
    if (engine->table->room && !capturing) TUTTI_TRY(engine->table->room(engine, s->late.stream));
    s->joined = !capturing;
    return tutti__comm_touch(engine->comm, ctx, operation, true);
}

/* Tells the transport where the issued sums end. */
static void stream_abandon(tutti__engine *engine)
{
    const tutti__stream stream = sums_of(engine)->stream;
    tutti_comm *comm = engine->comm;
    bool capturing;
    if (!engine->in_step || !comm->transport->fence || comm->dead) return;
    if (capturing_of(engine, stream, &capturing) != TUTTI_OK || capturing) return;
    if (join_moves(engine) == TUTTI_OK) (void)comm->transport->fence(comm, stream);
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
    const tutti__stream streams[] = {s->side.stream, s->late.stream};
    for (int i = 0; i < 2; i++)
        if (streams[i] && !capturing && !comm->dead)
            (void)tutti__wait_device(comm, NULL, streams[i], "grad_sync_destroy", comm->sequence);
    if (comm->dead) return false;
    tutti__side_close(&s->side, engine);
    tutti__side_close(&s->late, engine);
    if (s->spread) comm->backend->run.event_destroy(comm->device, s->spread);
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
