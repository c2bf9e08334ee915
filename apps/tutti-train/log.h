/* What a run says and writes while it goes on: lines, --losses, --log-json. */
#ifndef TUTTI_TRAIN_LOG_H
#define TUTTI_TRAIN_LOG_H

#include "common/output.h"
#include "common/report.h"
#include "jsonl.h"
#include "progress.h"
#include "task.h"

struct trainer;

/* Times are in seconds. */
typedef struct train_log {
    progress progress;
    app_output *losses;         /* rank 0, with --losses */
    jsonl *json;                /* rank 0, with --log-json */
    char lost[APP_MESSAGE_MAX]; /* why the lines of one of them have stopped; "" if none have */
    double begin, seconds;      /* of the run; how long it was in the end */
    int64_t first_step;         /* made before */

    /* The lap: since the last line about a step.  One interval of this rank's clock, at whose beginning and end no step is under way
     * on the device either; what was no step's (a save) moves its beginning on. */
    double lap_begin;
    int64_t lap_steps;
    double lap_waited; /* of it, for the sums of its steps' gradients */
    double lap_agreed; /* and in the agreements after them */
    int64_t lap_rows;  /* that this rank has computed */
    int64_t sync_sent; /* the exchange's own count when the lap began */

    /* of all laps, mean over the ranks */
    double stepping, waiting; /* in steps; of that, for the exchange */
    double *gathered;         /* [world_size][parts] */
    double *range_ends;       /* [ranges of the exchange], ms: room for a timeline */
} train_log;

/* Whether the files can be written; leaves them as they are.  Not collective.  On failure log_close cleans up. */
int log_open(struct trainer *trainer);
void log_close(struct trainer *trainer);

/* Begins the files: with what the run is, for --log-json. */
int log_start(struct trainer *trainer);
/* A failure if the lines of a file have stopped before the run's end, as its reader has gone: the run itself does not. */
int log_complete(const struct trainer *trainer);
/* Forgets the time since the last line: it was not spent in steps. */
int log_lap(struct trainer *trainer);
/* Adds how long the exchange of the step just looked at, which is over, has made this rank wait. */
int log_waited(struct trainer *trainer);
/* A line about the step just made, which was looked at.  Collective. */
int log_step(struct trainer *trainer, double lr);
/* A line about the evaluation after an epoch that took this long. */
int log_epoch(struct trainer *trainer, const task_score *score, double seconds);
/* The one line of --evaluate. */
int log_evaluated(struct trainer *trainer, const task_score *score);
/* The last lines: how fast the run was, as long as it has been, and what it comes to. */
void log_summary(struct trainer *trainer);
int log_end(struct trainer *trainer, const task_score *score);

/* An update that was not made, and why. */
int log_skipped(struct trainer *trainer, int64_t epoch_step, const char *why);
int log_saved(struct trainer *trainer, double seconds);
int log_stopped(struct trainer *trainer, const char *why);

#endif
