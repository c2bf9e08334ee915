/* The time of steps. */
#include "lap.h"

#include <stdlib.h>

#include "common/exit_code.h"
#include "common/report.h"

int laps_create(laps *l, const app_group *group)
{
    *l = (laps){.gathered = calloc((size_t)group->world_size * LAP_PARTS, sizeof *l->gathered)};
    return l->gathered ? APP_OK : app_fail(APP_FAILED, "no memory for the log");
}

void laps_free(laps *l)
{
    free(l->gathered);
    free(l->range_ends);
}

/* The waiting time is part of the lap: on the host it lies within finish; a GPU has its
 * sums after the lap began, and has finished the step before this rank reads its result. */
int laps_waited(laps *l, tutti_grad_sync *sync)
{
    tutti_grad_sync_info info;
    APP_CHECK(tutti_grad_sync_get_info(sync, &info));
    if (!l->range_ends) l->range_ends = calloc((size_t)info.ranges + 1, sizeof(double));
    if (!l->range_ends) return app_fail(APP_FAILED, "no memory for the log");
    double finish, ms = 0.0;
    APP_CHECK(tutti_grad_sync_get_timeline(sync, NULL, NULL, l->range_ends, &finish));
    for (int r = 0; r < info.ranges; r++)
        if (l->range_ends[r] - finish > ms) ms = l->range_ends[r] - finish;
    l->waited += 1e-3 * ms;
    return APP_OK;
}

int laps_begin(laps *l, const tutti_grad_sync *sync, double begin)
{
    tutti_grad_sync_info info;
    APP_CHECK(tutti_grad_sync_get_info(sync, &info));
    l->begin = begin;
    l->sent = info.bytes_sent;
    l->waited = l->agreed = 0.0;
    l->steps = l->rows = 0;
    return APP_OK;
}

int laps_gather(laps *l, const app_group *group, const tutti_grad_sync *sync, bool on_host,
                double loss, lap *lap)
{
    const int ranks = group->world_size;
    const double seconds = l->end - l->begin, steps = (double)l->steps;
    /* while a host agrees it does nothing else; a GPU computes, or waits, which `waited` counts */
    const double waiting = l->waited + (on_host ? l->agreed : 0.0);
    tutti_grad_sync_info info;
    APP_CHECK(tutti_grad_sync_get_info(sync, &info));
    double mine[LAP_PARTS] = {
        [LAP_LOSS] = loss,
        [LAP_OWN] = 1e3 * (seconds - waiting) / steps,
        [LAP_WAITING] = 1e3 * waiting / steps,
        [LAP_ROWS] = (double)(l->rows / l->steps),
        [LAP_SENT] = (double)((info.bytes_sent - l->sent) / l->steps),
    };
    APP_CHECK(tutti_comm_all_gather(group->control, group->host, mine, l->gathered, LAP_PARTS,
                                    TUTTI_F64));
    lap->loss = 0.0;
    lap->ms = 1e3 * seconds / steps;
    lap->ranks = l->gathered;
    lap->fastest_ms = lap->slowest_ms = l->gathered[LAP_OWN];
    for (int r = 0; r < ranks; r++) {
        const double *part = l->gathered + r * LAP_PARTS;
        const double own = part[LAP_OWN];
        lap->loss += part[LAP_LOSS];
        l->waiting += 1e-3 * steps * part[LAP_WAITING] / ranks;
        l->stepping += 1e-3 * steps * (own + part[LAP_WAITING]) / ranks;
        if (own < lap->fastest_ms) lap->fastest_ms = own;
        if (own > lap->slowest_ms) lap->slowest_ms = own;
    }
    return APP_OK;
}
