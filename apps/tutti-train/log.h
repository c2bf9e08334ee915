/* What a run says and writes while it goes on: lines, --losses, --log-json. */
#ifndef TUTTI_TRAIN_LOG_H
#define TUTTI_TRAIN_LOG_H

#include "common/json.h"
#include "common/output.h"
#include "common/report.h"
#include "lap.h"
#include "options.h"
#include "progress.h"

/* Where the run is, and how long it is. */
typedef struct log_place {
    int64_t step, epoch, epoch_step; /* made; the epoch's number from 1, and the steps made of it */
    int64_t steps, epochs;           /* an epoch has; the run has */
} log_place;

/* What an evaluation has come to. */
typedef struct log_score {
    char report[160];      /* for people */
    double loss, accuracy; /* accuracy: NaN where it is not counted */
} log_score;

/* What the run has come to, or this part of it. */
typedef struct log_total {
    int64_t steps, samples, skipped;
    double seconds;
    double rate, waiting_share; /* of the time in steps */
} log_total;

typedef struct train_log {
    progress progress;
    app_output *losses;      /* rank 0, with --losses */
    app_output *json_output; /* rank 0, with --log-json */
    app_json json;
    char lost[APP_MESSAGE_MAX]; /* why the lines of one of them have stopped; "" if none have */
    int ranks;
    const char *samples, *rate; /* the task's words */
} train_log;

/* Whether the files can be written; leaves them as they are.  Not collective.  On failure log_close
 * cleans up. */
int log_open(train_log *log, const train_options *options, const app_group *group);
void log_close(train_log *log);

/* Begins the files: with what the run is, for --log-json. */
int log_start(train_log *log, const train_options *options, const log_place *place, bool resumed,
              const char *data, const char *backend, const char *transport);
/* A failure if the lines of a file have stopped before the run's end, as its reader has gone: the
 * run itself does not. */
int log_complete(const train_log *log);
/* A line about the step just made.  rate: samples or tokens a second.  loss_scale: 0: there is
 * none. */
int log_step(train_log *log, const log_place *place, const lap *lap, double grad_norm, double lr,
             double rate, double loss_scale);
/* A line about the evaluation after an epoch that took this long, or of --evaluate. */
int log_evaluated(train_log *log, const log_place *place, const log_score *score, double seconds,
                  bool epoch);
/* The last lines: how fast the run was, as long as it has been, and what it comes to. */
void log_summary(train_log *log, const log_total *total);
int log_end(train_log *log, const log_place *place, const log_total *total, const log_score *score);

/* An update that was not made, and why. */
int log_skipped(train_log *log, const log_place *place, int64_t epoch_step, const char *why);
int log_saved(train_log *log, const log_place *place, double seconds);
int log_stopped(train_log *log, const log_place *place, const char *why);

#endif
