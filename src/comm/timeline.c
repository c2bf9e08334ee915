/* The marks of this step and of the last finished one. */
#include "comm/timeline.h"

#include <stdlib.h>

#include "comm/wait.h"

typedef struct mark {
    tutti__event event; /* NULL on the host */
    double time;
    int range; /* whose event it is */
} mark;

struct tutti__timeline {
    tutti_comm *comm;
    int ranges, current;
    mark marks[]; /* of step 0, then of step 1 */
};

static int mark_count(int ranges)
{
    return (int)TUTTI__MOMENT_READY + 3 * ranges;
}

static mark *mark_of(tutti__timeline *times, int step, tutti__moment moment, int range)
{
    return &times->marks[step * mark_count(times->ranges) + (int)moment + 3 * range];
}

tutti_status tutti__timeline_open(tutti_comm *comm, int ranges, tutti__timeline **opened)
{
    const int count = 2 * mark_count(ranges);
    tutti__timeline *times = calloc(1, sizeof *times + (size_t)count * sizeof times->marks[0]);
    if (!times) return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    times->comm = comm;
    times->ranges = ranges;
    *opened = times;
    for (int i = 0; i < count && comm->backend->kind != TUTTI_BACKEND_HOST; i++)
        TUTTI_TRY(comm->backend->run.event_create(comm->device, true, &times->marks[i].event));
    return TUTTI_OK;
}

void tutti__timeline_close(tutti__timeline **closing)
{
    tutti__timeline *times = *closing;
    if (!times) return;
    const tutti_comm *comm = times->comm;
    for (int i = 0; !comm->dead && i < 2 * mark_count(times->ranges); i++)
        if (times->marks[i].event)
            comm->backend->run.event_destroy(comm->device, times->marks[i].event);
    free(times);
    *closing = NULL;
}

tutti_status tutti__timeline_mark_ranges(tutti__timeline *times, tutti__moment moment, int first,
                                         int last, tutti__stream stream)
{
    if (!times) return TUTTI_OK;
    mark *now = NULL;
    for (int r = first; r <= last; r++) {
        now = mark_of(times, times->current, moment, r);
        now->time = tutti__now();
        now->range = last;
    }
    if (!now || !now->event) return TUTTI_OK;
    return times->comm->backend->run.event_record(times->comm->device, now->event, stream);
}

tutti_status tutti__timeline_mark(tutti__timeline *times, tutti__moment moment, int range,
                                  tutti__stream stream)
{
    return tutti__timeline_mark_ranges(times, moment, range, range, stream);
}

void tutti__timeline_next(tutti__timeline *times)
{
    if (times) times->current = !times->current;
}

/* *ms: from the step's start to this mark, which has been reached. */
static tutti_status read_mark(tutti__timeline *times, tutti__moment moment, int range, double *ms)
{
    const int step = !times->current;
    const mark *start = mark_of(times, step, TUTTI__MOMENT_START, 0);
    const mark *end = mark_of(times, step, moment, range);
    *ms = (end->time - start->time) * 1e3;
    if (!end->event) return TUTTI_OK;
    end = mark_of(times, step, moment, end->range);
    return times->comm->backend->run.event_elapsed(times->comm->device, start->event, end->event,
                                                   ms);
}

tutti_status tutti__timeline_read(tutti__timeline *times, double *ready, double *begin, double *end,
                                  double *finish)
{
    tutti_comm *comm = times->comm;
    const mark *marks = mark_of(times, !times->current, TUTTI__MOMENT_START, 0);
    for (int i = 0; i < mark_count(times->ranges); i++)
        if (marks[i].event)
            TUTTI_TRY(tutti__wait_device(comm, marks[i].event, NULL, "gradient exchange",
                                         comm->sequence));
    for (int r = 0; r < times->ranges; r++) {
        if (ready) TUTTI_TRY(read_mark(times, TUTTI__MOMENT_READY, r, &ready[r]));
        if (begin) TUTTI_TRY(read_mark(times, TUTTI__MOMENT_BEGIN, r, &begin[r]));
        if (end) TUTTI_TRY(read_mark(times, TUTTI__MOMENT_END, r, &end[r]));
    }
    return finish ? read_mark(times, TUTTI__MOMENT_FINISH, 0, finish) : TUTTI_OK;
}
