/* The engine of a transport that sums in host memory: MPI makes no progress by itself, so every
 * layer call drives what is under way.  Device memory is copied to the host on the engine's own
 * stream, summed and copied back. */
#include <stdlib.h>

#include "comm/control.h"
#include "comm/side_stream.h"

typedef struct range_state {
    tutti__event copied; /* staged: to the host */
    bool summed;
} range_state;

typedef struct state {
    range_state *ranges;
    int started, done;       /* how many ranges, in order; how many, in any order */
    tutti__side_stream side; /* staged */
    tutti__progress progress;
    tutti_context *ctx; /* in a step */
    bool closing;
} state;

static tutti_status host_advance(tutti__engine *engine);

static tutti_status on_layer_call(void *self, double waited)
{
    tutti__engine *engine = self;
    const tutti_comm *comm = engine->comm;
    (void)waited;                    /* the stream does not wait for these sums */
    if (comm->dead) return TUTTI_OK; /* finish reports it */
    if (comm->control->thread)
        TUTTI_TRY(comm->control->thread(comm, "a call on a context with sums under way"));
    return host_advance(engine);
}

/* Life */

static tutti_status open_staging(tutti__engine *engine, state *s)
{
    const tutti__runtime *run = &engine->comm->backend->run;
    const int device = engine->comm->device;
    void *staging = NULL;
    TUTTI_TRY(tutti__side_open(&s->side, engine));
    if (engine->flat_bytes > 0)
        TUTTI_TRY(run->host_alloc(device, engine->flat_bytes * (size_t)engine->roots, &staging));
    engine->bytes_held += (int64_t)(engine->flat_bytes * (size_t)engine->roots);
    engine->wire_roots = staging;
    for (int r = 0; r < engine->range_count; r++) {
        TUTTI_TRY(run->event_create(device, false, &s->ranges[r].copied));
        engine->ranges[r].wire.data = engine->wire_roots +
                                      (size_t)(engine->roots - 1) * engine->flat_bytes +
                                      engine->ranges[r].offset;
    }
    return TUTTI_OK;
}

static tutti_status host_open(tutti__engine *engine)
{
    state *s = engine->state = calloc(1, sizeof *s);
    if (s) s->ranges = calloc((size_t)engine->range_count + 1, sizeof *s->ranges);
    if (!s || !s->ranges) return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    s->progress = (tutti__progress){NULL, engine, on_layer_call};
    return engine->staged ? open_staging(engine, s) : TUTTI_OK;
}

static void host_abandon(tutti__engine *engine)
{
    state *s = engine->state;
    if (s->ctx) tutti__progress_remove(s->ctx, &s->progress);
    s->ctx = NULL;
}

/* Sums that all ranks have begun complete by themselves; others never do, and closing must not wait
 * for them.  What was issued here may be under way elsewhere, so it is begun here too. */
static bool all_end(tutti__engine *engine, double seconds)
{
    tutti_comm *comm = engine->comm;
    state *s = engine->state;
    if (comm->dead) return false;
    if (!engine->in_step || engine->issued == s->done) return true;
    if (comm->control->thread && comm->control->thread(comm, "grad_sync_destroy") != TUTTI_OK)
        return false;
    s->closing = true;
    for (double begin = tutti__now(); tutti__now() - begin <= seconds; tutti__sleep(5e-5)) {
        if (host_advance(engine) != TUTTI_OK) return false;
        if (engine->issued == s->done) return true;
    }
    return false;
}

static bool host_close(tutti__engine *engine)
{
    const tutti__runtime *run = &engine->comm->backend->run;
    state *s = engine->state;
    tutti_comm *comm = engine->comm;
    if (!s) return true;
    host_abandon(engine);
    const bool idle = !s->ranges || all_end(engine, 1.0);
    if (!idle && !comm->dead) /* MPI may still write to the gradients */
        (void)tutti__comm_die(comm,
                              "grad_sync_destroy: not all ranks have joined the sums under way");
    if (engine->duplicate) comm->transport->duplicate_destroy(comm, engine->duplicate, idle);
    if (!idle) return false;
    if (s->side.stream) run->stream_synchronize(comm->device, s->side.stream);
    if (engine->staged && engine->wire_roots) run->host_free(comm->device, engine->wire_roots);
    for (int r = 0; s->ranges && r < engine->range_count; r++)
        if (s->ranges[r].copied) run->event_destroy(comm->device, s->ranges[r].copied);
    tutti__side_close(&s->side, engine);
    free(s->ranges);
    free(s);
    return true;
}

/* A step */

static tutti_status host_begin(tutti__engine *engine, tutti_context *ctx)
{
    state *s = engine->state;
    s->started = s->done = 0;
    for (int r = 0; r < engine->range_count; r++) s->ranges[r].summed = false;
    tutti__progress_add(ctx, &s->progress);
    s->ctx = ctx;
    return TUTTI_OK;
}

static tutti_status to_host(tutti__engine *engine, int r)
{
    state *s = engine->state;
    const tutti__runtime *run = &engine->comm->backend->run;
    const int device = engine->comm->device;
    const tutti__engine_range *range = &engine->ranges[r];
    const size_t bytes = tutti__engine_bytes(range);
    TUTTI_TRY(tutti__timeline_mark(engine->times, TUTTI__MOMENT_BEGIN, r, s->side.stream));
    for (int k = 0; k < engine->roots - 1; k++) {
        const size_t place = (size_t)k * engine->flat_bytes + range->offset;
        TUTTI_TRY(run->copy(device, s->side.stream, engine->wire_roots + place,
                            engine->device_roots + place, bytes));
    }
    if (engine->narrow)
        TUTTI_TRY(tutti__engine_narrow(engine, r, s->side.stream, engine->narrowed));
    TUTTI_TRY(run->copy(device, s->side.stream, range->wire.data,
                        engine->narrow ? engine->narrowed : range->gradient.data,
                        tutti__engine_wire_bytes(range)));
    return run->event_record(device, s->ranges[r].copied, s->side.stream);
}

static tutti_status host_issue(tutti__engine *engine, tutti_context *ctx, int first, int last)
{
    state *s = engine->state;
    if (!engine->staged) return TUTTI_OK; /* advance follows */
    TUTTI_TRY(tutti__side_fork(&s->side, ctx));
    for (int r = first; r <= last; r++) TUTTI_TRY(to_host(engine, r));
    return TUTTI_OK;
}

/* In the order of issue, which all ranks share. */
static tutti_status start_ranges(tutti__engine *engine)
{
    state *s = engine->state;
    const tutti_comm *comm = engine->comm;
    for (; s->started < engine->issued; s->started++) {
        const int r = s->started;
        tutti__work *work = &engine->ranges[r].work;
        if (engine->at_once && r >= engine->at_once && !s->ranges[r - engine->at_once].summed)
            break;
        bool copied = true;
        if (engine->staged)
            TUTTI_TRY(comm->backend->run.event_query(comm->device, s->ranges[r].copied, &copied));
        else
            TUTTI_TRY(tutti__timeline_mark(engine->times, TUTTI__MOMENT_BEGIN, r, NULL));
        if (!copied) break;
        if (engine->narrow && !engine->staged)
            TUTTI_TRY(tutti__engine_narrow(engine, r, NULL, engine->ranges[r].wire.data));
        work->duplicate = engine->duplicate;
        work->round = 0;
        TUTTI_TRY(engine->table->start(engine, r));
    }
    return TUTTI_OK;
}

/* Tests a round of messages and starts the next, if there is one. */
static tutti_status test(tutti__engine *engine, int r, bool *summed)
{
    tutti__work *work = &engine->ranges[r].work;
    bool another = false;
    TUTTI_TRY(engine->comm->transport->test(engine->comm, work, summed));
    if (*summed && engine->table->arrived) TUTTI_TRY(engine->table->arrived(engine, r, &another));
    if (!another) return TUTTI_OK;
    *summed = false;
    work->round++;
    return engine->table->start(engine, r);
}

static tutti_status host_advance(tutti__engine *engine)
{
    state *s = engine->state;
    TUTTI_TRY(start_ranges(engine));
    for (int r = 0; r < s->started; r++) {
        if (s->ranges[r].summed) continue;
        TUTTI_TRY(test(engine, r, &s->ranges[r].summed));
        if (!s->ranges[r].summed) continue;
        s->done++;
        if (s->closing) continue; /* the sum is not used */
        if (engine->staged) {
            TUTTI_TRY(tutti__side_land(&s->side, engine, r, r));
            continue;
        }
        if (engine->narrow)
            TUTTI_TRY(tutti__engine_widen(engine, r, NULL, engine->ranges[r].wire.data));
        TUTTI_TRY(tutti__timeline_mark(engine->times, TUTTI__MOMENT_END, r, NULL));
    }
    return TUTTI_OK;
}

static tutti_status wait_for_sums(tutti__engine *engine, int first, int last)
{
    const state *s = engine->state;
    const double begin = tutti__now();
    tutti__wait wait;
    for (int oldest = -1;;) {
        TUTTI_TRY(host_advance(engine));
        while (first <= last && s->ranges[first].summed) first++;
        if (first > last) break;
        /* each sum gets the full timeout */
        if (first != oldest)
            wait = tutti__wait_begin(engine->comm, "gradient exchange",
                                     engine->ranges[first].work.sequence);
        oldest = first;
        TUTTI_TRY(tutti__wait_poll(&wait));
    }
    engine->wait_seconds += tutti__now() - begin;
    return TUTTI_OK;
}

static tutti_status host_wait(tutti__engine *engine, tutti_context *ctx, int first, int last)
{
    const state *s = engine->state;
    if (engine->in_step) TUTTI_TRY(wait_for_sums(engine, first, last));
    return engine->staged ? tutti__side_wait(&s->side, ctx, first, last) : TUTTI_OK;
}

static tutti_status host_finish(tutti__engine *engine, tutti_context *ctx)
{
    state *s = engine->state;
    TUTTI_TRY(wait_for_sums(engine, 0, engine->range_count - 1));
    host_abandon(engine);
    return engine->staged && engine->range_count > 0 ? tutti__side_join(&s->side, ctx) : TUTTI_OK;
}

const tutti__engine_table tutti__host_engine = {.open = host_open,
                                                .begin = host_begin,
                                                .issue = host_issue,
                                                .advance = host_advance,
                                                .wait = host_wait,
                                                .finish = host_finish,
                                                .abandon = host_abandon,
                                                .close = host_close,
                                                .start = tutti__engine_all_reduce};
