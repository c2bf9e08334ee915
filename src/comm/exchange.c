/* Moving ranges of gradients.  Three styles of transport:
 *   LOCAL   one rank: a range is done when it is complete.
 *   STREAM  an event on the caller's stream, the exchange's own stream waits for it and sums there; finish makes the
 *           caller's stream wait for that.  Nothing waits on the host, so all of it can be captured.
 *   HOST    the sum flies in host memory and is moved on by every layer call through the context's watch.  Device memory
 *           is staged: copied to the host on the exchange's own stream, summed, copied back. */
#include "comm/exchange.h"

#include <stdlib.h>

#include "comm/control.h"
#include "comm/follow.h"
#include "comm/wait.h"

static tutti__timeline *now_times(tutti_grad_sync *sync)
{
    return &sync->times[sync->current];
}

tutti_status tutti__exchange_mark(tutti_grad_sync *sync, tutti__mark *mark, tutti__stream stream)
{
    if (!sync->desc.timeline) return TUTTI_OK;
    mark->set = true;
    if (mark->event) return sync->backend->run.event_record(sync->device, mark->event, stream);
    mark->time = tutti__now();
    return TUTTI_OK;
}

/* The same in an array of the timeline, which is there only on request. */
static tutti_status mark_range(tutti_grad_sync *sync, tutti__mark *marks, int range,
                               tutti__stream stream)
{
    return marks ? tutti__exchange_mark(sync, &marks[range], stream) : TUTTI_OK;
}

/* Life */

static tutti_status mark_open(tutti_grad_sync *sync, tutti__mark *mark)
{
    if (sync->backend->kind == TUTTI_BACKEND_HOST) return TUTTI_OK;
    return sync->backend->run.event_create(sync->device, true, &mark->event);
}

static tutti_status timeline_open(tutti_grad_sync *sync, tutti__timeline *times)
{
    size_t n = (size_t)sync->range_count + 1;
    times->ready = calloc(n, sizeof *times->ready);
    times->begin = calloc(n, sizeof *times->begin);
    times->end = calloc(n, sizeof *times->end);
    if (!times->ready || !times->begin || !times->end)
        return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    TUTTI_TRY(mark_open(sync, &times->start));
    TUTTI_TRY(mark_open(sync, &times->finish));
    for (int r = 0; r < sync->range_count; r++) {
        TUTTI_TRY(mark_open(sync, &times->ready[r]));
        TUTTI_TRY(mark_open(sync, &times->begin[r]));
        TUTTI_TRY(mark_open(sync, &times->end[r]));
    }
    return TUTTI_OK;
}

static void mark_close(tutti_grad_sync *sync, tutti__mark *mark)
{
    if (mark->event) sync->backend->run.event_destroy(sync->device, mark->event);
}

static void timeline_close(tutti_grad_sync *sync, tutti__timeline *times)
{
    mark_close(sync, &times->start);
    mark_close(sync, &times->finish);
    for (int r = 0; r < sync->range_count; r++) {
        if (times->ready) mark_close(sync, &times->ready[r]);
        if (times->begin) mark_close(sync, &times->begin[r]);
        if (times->end) mark_close(sync, &times->end[r]);
    }
    free(times->ready);
    free(times->begin);
    free(times->end);
}

tutti_status tutti__exchange_open(tutti_grad_sync *sync)
{
    const tutti__runtime *run = &sync->backend->run;
    tutti__transport_style style = sync->comm->transport->style;
    sync->staged = style == TUTTI__STYLE_HOST && sync->backend->kind != TUTTI_BACKEND_HOST;
    if (sync->desc.timeline)
        for (int i = 0; i < 2; i++) TUTTI_TRY(timeline_open(sync, &sync->times[i]));
    for (int r = 0; r < sync->range_count; r++) {
        const tutti__range *at = &sync->ranges[r].at;
        sync->ranges[r].offset = sync->flat_bytes;
        sync->flat_bytes += ((size_t)at->count * tutti_dtype_size(at->dtype) + 255) / 256 * 256;
    }
    if (sync->leaves.total) TUTTI_TRY(tutti__tree_open(sync));
    if (style != TUTTI__STYLE_STREAM && !sync->staged) return TUTTI_OK;

    TUTTI_TRY(run->stream_create(sync->device, true, &sync->stream));
    TUTTI_TRY(run->event_create(sync->device, false, &sync->fork));
    TUTTI_TRY(run->event_create(sync->device, false, &sync->join));
    for (int r = 0; r < sync->range_count; r++)
        TUTTI_TRY(run->event_create(sync->device, false, &sync->ranges[r].summed));
    if (!sync->staged) return TUTTI_OK;
    void *staging = NULL;
    size_t bytes = sync->flat_bytes * (size_t)tutti__exchange_roots(sync);
    if (bytes > 0) TUTTI_TRY(run->host_alloc(sync->device, bytes, &staging));
    sync->staging = staging;
    for (int r = 0; r < sync->range_count; r++)
        TUTTI_TRY(run->event_create(sync->device, false, &sync->ranges[r].copied));
    return TUTTI_OK;
}

int tutti__exchange_roots(const tutti_grad_sync *sync)
{
    return sync->leaves.total ? sync->leaves.own_roots : 1;
}

char *tutti__exchange_root(const tutti_grad_sync *sync, const tutti__exchange_range *range, int k)
{
    if (sync->staged) return sync->staging + (size_t)k * sync->flat_bytes + range->offset;
    if (k == tutti__exchange_roots(sync) - 1 && !sync->apart) return range->at.data;
    return sync->slots + (size_t)k * sync->flat_bytes + range->offset;
}

static tutti_status fly(tutti_grad_sync *sync, tutti__exchange_range *range)
{
    int r = (int)(range - sync->ranges);
    if (!sync->staged) TUTTI_TRY(mark_range(sync, now_times(sync)->begin, r, sync->stream));
    if (sync->leaves.total)
        TUTTI_TRY(tutti__tree_fly(sync, range));
    else
        TUTTI_TRY(sync->comm->transport->flight_start(
            sync->comm, sync->link, tutti__exchange_root(sync, range, 0), range->at.count,
            range->at.dtype, &range->flight));
    range->state = TUTTI__RANGE_FLYING;
    sync->started_count++;
    return TUTTI_OK;
}

/* In the order of issue, which all ranks share. */
static tutti_status start_flights(tutti_grad_sync *sync)
{
    while (sync->started_count < sync->issued_count) {
        tutti__exchange_range *range = &sync->ranges[sync->started_count];
        if (sync->staged) {
            bool copied;
            TUTTI_TRY(sync->backend->run.event_query(sync->device, range->copied, &copied));
            if (!copied) break;
        }
        TUTTI_TRY(fly(sync, range));
    }
    return TUTTI_OK;
}

/* Asks after a flight; one of the tree's may be followed by a second. */
static tutti_status test_flight(tutti_grad_sync *sync, tutti__exchange_range *range, bool *landed)
{
    TUTTI_TRY(sync->comm->transport->flight_test(sync->comm, &range->flight, landed));
    if (*landed && sync->leaves.total) return tutti__tree_landed(sync, range, landed);
    return TUTTI_OK;
}

/* Sums that all ranks have begun land by themselves; others never do, and destroying must not wait for them.  What is issued
 * here may be under way elsewhere, so it is begun here too. */
static bool flights_landed(tutti_grad_sync *sync, double seconds)
{
    tutti_comm *comm = sync->comm;
    if (comm->transport->style != TUTTI__STYLE_HOST || sync->issued_count == sync->done_count)
        return true;
    if (comm->control->thread && comm->control->thread(comm, "grad_sync_destroy") != TUTTI_OK)
        return false;
    double begin = tutti__now();
    for (;;) {
        if (start_flights(sync) != TUTTI_OK) return false;
        bool all = sync->started_count == sync->issued_count;
        for (int r = 0; r < sync->range_count; r++) {
            bool landed = !sync->ranges[r].flight;
            if (!landed && test_flight(sync, &sync->ranges[r], &landed) != TUTTI_OK) return false;
            all = all && landed;
        }
        if (all) return true;
        if (tutti__now() - begin > seconds) return false;
        tutti__sleep(5e-5);
    }
}

void tutti__exchange_give_up(tutti_grad_sync *sync)
{
    tutti_comm *comm = sync->comm;
    bool capturing;
    if (!sync->started || !sync->stream || !comm->transport->fence || comm->dead) return;
    if (sync->backend->run.stream_capturing(sync->device, sync->stream, &capturing) == TUTTI_OK &&
        !capturing)
        (void)comm->transport->fence(comm, sync->stream);
}

/* Waits, with the deadline, for sums on the exchange's stream: memory could not be freed behind one that a rank never
 * joins. */
static void stream_ended(tutti_grad_sync *sync)
{
    const tutti__runtime *run = &sync->backend->run;
    bool capturing, ended = false;
    if (sync->comm->transport->style != TUTTI__STYLE_STREAM || !sync->stream) return;
    if (run->stream_capturing(sync->device, sync->stream, &capturing) != TUTTI_OK || capturing)
        return;
    tutti__wait wait = tutti__wait_begin(sync->comm, "grad_sync_destroy", sync->comm->sequence);
    while (!sync->comm->dead) {
        if (run->stream_query(sync->device, sync->stream, &ended) != TUTTI_OK || ended) return;
        if (sync->comm->transport->poll(sync->comm) == TUTTI_OK) (void)tutti__wait_poll(&wait);
    }
}

void tutti__exchange_close(tutti_grad_sync *sync)
{
    const tutti__runtime *run = &sync->backend->run;
    if (sync->watched) tutti__context_unwatch(sync->watched, &sync->watch);
    sync->watched = NULL;
    tutti__exchange_give_up(sync);
    stream_ended(sync);
    bool idle = !sync->comm->dead && flights_landed(sync, 1.0);
    if (!idle && !sync->comm->dead) /* MPI writes into the gradients still */
        (void)tutti__comm_die(
            sync->comm, "grad_sync_destroy: sums are under way that not all ranks have joined");
    if (sync->link) sync->comm->transport->link_destroy(sync->comm, sync->link, idle);
    tutti__tree_close(sync, idle);
    if (idle && sync->stream) {
        /* copies between the devices end by themselves; sums of a living communicator do too */
        for (int r = 0; r < sync->range_count; r++) {
            if (sync->ranges[r].copied) run->event_destroy(sync->device, sync->ranges[r].copied);
            if (sync->ranges[r].summed) run->event_destroy(sync->device, sync->ranges[r].summed);
        }
        if (sync->staged) run->stream_synchronize(sync->device, sync->stream);
        if (sync->staging) run->host_free(sync->device, sync->staging);
        if (sync->fork) run->event_destroy(sync->device, sync->fork);
        if (sync->join) run->event_destroy(sync->device, sync->join);
        run->stream_destroy(sync->device, sync->stream);
    }
    if (!sync->comm->dead)
        for (int i = 0; i < 2; i++) timeline_close(sync, &sync->times[i]);
}

/* The caller's stream up to here comes before what follows on the exchange's. */
static tutti_status fork_stream(tutti_grad_sync *sync, tutti_context *ctx)
{
    if (sync->forked) return TUTTI_OK;
    const tutti__runtime *run = &sync->backend->run;
    TUTTI_TRY(run->event_record(sync->device, sync->fork, ctx->stream));
    TUTTI_TRY(run->stream_wait_event(sync->device, sync->stream, sync->fork));
    sync->forked = true;
    return TUTTI_OK;
}

/* Going out */

tutti_status tutti__exchange_begin(tutti_grad_sync *sync, tutti_context *ctx)
{
    bool capturing = true;
    if (sync->comm->transport->style == TUTTI__STYLE_STREAM)
        TUTTI_TRY(tutti__comm_follow(sync->comm, ctx, "gradient exchange"));
    if (sync->join_recorded)
        TUTTI_TRY(sync->backend->run.stream_capturing(ctx->device, ctx->stream, &capturing));
    if (capturing) return TUTTI_OK;
    /* The caller may run ahead of the device by one step.  With more, its launches would fill the device's queue
     * while a rank is missing, and block where no deadline reaches them. */
    tutti__wait wait = tutti__wait_begin(sync->comm, "gradient exchange", sync->comm->sequence);
    for (;;) {
        bool done;
        TUTTI_TRY(sync->backend->run.event_query(sync->device, sync->join, &done));
        if (done) return TUTTI_OK;
        TUTTI_TRY(sync->comm->transport->poll(sync->comm));
        TUTTI_TRY(tutti__wait_poll(&wait));
    }
}

static void done(tutti_grad_sync *sync, tutti__exchange_range *range)
{
    range->state = TUTTI__RANGE_DONE;
    sync->done_count++;
}

tutti_status tutti__exchange_complete(tutti_grad_sync *sync, tutti_context *ctx, int range)
{
    return mark_range(sync, now_times(sync)->ready, range, ctx->stream);
}

tutti_status tutti__exchange_issue(tutti_grad_sync *sync, tutti_context *ctx, int r)
{
    tutti__exchange_range *range = &sync->ranges[r];
    const tutti__runtime *run = &sync->backend->run;
    tutti__timeline *times = now_times(sync);
    size_t bytes = (size_t)range->at.count * tutti_dtype_size(range->at.dtype);
    range->sequence = ++sync->comm->sequence;
    range->state = TUTTI__RANGE_ISSUED;
    if (!sync->leaves.total) /* what a ring sends */
        sync->bytes_sent +=
            2 * (int64_t)bytes / sync->comm->world_size * (sync->comm->world_size - 1);
    sync->issued_count++;
    switch (sync->comm->transport->style) {
    case TUTTI__STYLE_LOCAL:
        TUTTI_TRY(mark_range(sync, times->begin, r, ctx->stream));
        TUTTI_TRY(mark_range(sync, times->end, r, ctx->stream));
        done(sync, range);
        return TUTTI_OK;
    case TUTTI__STYLE_STREAM:
        TUTTI_TRY(fork_stream(sync, ctx));
        TUTTI_TRY(mark_range(sync, times->begin, r, sync->stream));
        if (sync->leaves.total)
            TUTTI_TRY(tutti__tree_on_stream(sync, range));
        else
            TUTTI_TRY(sync->comm->transport->all_reduce_on_stream(
                sync->comm, sync->stream, range->at.data, range->at.count, range->at.dtype,
                range->sequence));
        TUTTI_TRY(mark_range(sync, times->end, r, sync->stream));
        TUTTI_TRY(run->event_record(sync->device, range->summed, sync->stream));
        done(sync, range);
        return TUTTI_OK;
    case TUTTI__STYLE_HOST:
        break;
    }
    if (!sync->staged) return tutti__exchange_advance(sync);
    TUTTI_TRY(fork_stream(sync, ctx));
    TUTTI_TRY(mark_range(sync, times->begin, r, sync->stream));
    const int roots = tutti__exchange_roots(sync);
    for (int k = 0; k < roots; k++) {
        const char *root = k < roots - 1
                               ? sync->slots + (size_t)k * sync->flat_bytes + range->offset
                               : range->at.data;
        TUTTI_TRY(run->copy(sync->device, sync->stream, tutti__exchange_root(sync, range, k), root,
                            bytes));
    }
    return run->event_record(sync->device, range->copied, sync->stream);
}

/* The sum has landed. */
static tutti_status land(tutti_grad_sync *sync, tutti__exchange_range *range)
{
    int r = (int)(range - sync->ranges);
    if (sync->staged) {
        size_t bytes = (size_t)range->at.count * tutti_dtype_size(range->at.dtype);
        TUTTI_TRY(sync->backend->run.copy(
            sync->device, sync->stream, range->at.data,
            tutti__exchange_root(sync, range, tutti__exchange_roots(sync) - 1), bytes));
        TUTTI_TRY(sync->backend->run.event_record(sync->device, range->summed, sync->stream));
    }
    TUTTI_TRY(mark_range(sync, now_times(sync)->end, r, sync->stream));
    done(sync, range);
    return TUTTI_OK;
}

tutti_status tutti__exchange_advance(tutti_grad_sync *sync)
{
    TUTTI_TRY(start_flights(sync));
    for (int i = 0; i < sync->started_count; i++) {
        tutti__exchange_range *range = &sync->ranges[i];
        if (range->state != TUTTI__RANGE_FLYING) continue;
        bool landed;
        TUTTI_TRY(test_flight(sync, range, &landed));
        if (landed) TUTTI_TRY(land(sync, range));
    }
    return TUTTI_OK;
}

/* Coming back */

/* Of these ranges, which have been issued. */
static tutti_status wait_for_flights(tutti_grad_sync *sync, int first, int last)
{
    double begin = tutti__now();
    tutti__wait wait;
    for (int oldest = -1;;) {
        TUTTI_TRY(tutti__exchange_advance(sync));
        while (first <= last && sync->ranges[first].state == TUTTI__RANGE_DONE) first++;
        if (first > last) break;
        /* each sum has the whole deadline */
        if (first != oldest)
            wait = tutti__wait_begin(sync->comm, "gradient exchange", sync->ranges[first].sequence);
        oldest = first;
        TUTTI_TRY(tutti__wait_poll(&wait));
    }
    sync->wait_seconds += tutti__now() - begin;
    return TUTTI_OK;
}

tutti_status tutti__exchange_wait(tutti_grad_sync *sync, tutti_context *ctx, int first, int last)
{
    const tutti__transport_style style = sync->comm->transport->style;
    if (style == TUTTI__STYLE_HOST && sync->started) TUTTI_TRY(wait_for_flights(sync, first, last));
    for (int r = first; r <= last && sync->ranges[r].summed; r++)
        TUTTI_TRY(sync->backend->run.stream_wait_event(sync->device, ctx->stream,
                                                       sync->ranges[r].summed));
    if (style != TUTTI__STYLE_STREAM) return TUTTI_OK;
    return tutti__comm_touch(sync->comm, ctx, "gradient exchange", !sync->started);
}

tutti_status tutti__exchange_finish(tutti_grad_sync *sync, tutti_context *ctx)
{
    const tutti__runtime *run = &sync->backend->run;
    tutti__transport_style style = sync->comm->transport->style;
    TUTTI_TRY(tutti__exchange_mark(sync, &now_times(sync)->finish, ctx->stream));
    if (style == TUTTI__STYLE_HOST) TUTTI_TRY(wait_for_flights(sync, 0, sync->range_count - 1));
    if (sync->stream && sync->range_count > 0) {
        TUTTI_TRY(run->event_record(sync->device, sync->join, sync->stream));
        TUTTI_TRY(run->stream_wait_event(sync->device, ctx->stream, sync->join));
    }
    if (style != TUTTI__STYLE_STREAM || sync->range_count == 0) return TUTTI_OK;
    bool capturing;
    TUTTI_TRY(run->stream_capturing(ctx->device, ctx->stream, &capturing));
    sync->join_recorded = !capturing;
    return tutti__comm_touch(sync->comm, ctx, "gradient exchange", true);
}
