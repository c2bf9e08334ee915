/* The output of a run: lines, --losses, --log-json. */
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
    int64_t step, epoch, epoch_step; /* steps made; the epoch, from 1; steps made of the epoch */
    int64_t steps, epochs;           /* steps of an epoch; epochs of the run */
} log_place;

/* The result of an evaluation. */
typedef struct log_score {
    char report[160];      /* for people */
    double loss, accuracy; /* accuracy: NaN where it is not counted */
} log_score;

/* Totals of the run, or of this part of it. */
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
    char lost[APP_MESSAGE_MAX]; /* why one of these files gets no more lines; "" if none is lost */
    int ranks;
    const char *samples, *rate; /* the task's words */
} train_log;

/* Checks that the files can be written, without changing them.  Not collective.  On failure
 * log_close cleans up. */
int log_open(train_log *log, const train_options *options, const app_group *group);
void log_close(train_log *log);

/* Begins the files, --log-json with a description of the run. */
int log_start(train_log *log, const train_options *options, const log_place *place, bool resumed,
              const char *data, const char *backend, const char *transport);
/* APP_FAILED if a file's reader has gone before the end of the run. */
int log_complete(const train_log *log);
/* A line about the last step.  rate: samples or tokens a second.  loss_scale: 0 if there is
 * none. */
int log_step(train_log *log, const log_place *place, const lap *lap, double grad_norm, double lr,
             double rate, double loss_scale);
/* A line about the evaluation after an epoch that took this long, or of --evaluate. */
int log_evaluated(train_log *log, const log_place *place, const log_score *score, double seconds,
                  bool epoch);
/* The last lines: the speed of the run so far, and its result. */
void log_summary(train_log *log, const log_total *total);
int log_end(train_log *log, const log_place *place, const log_total *total, const log_score *score);

/* A skipped update, and why. */
int log_skipped(train_log *log, const log_place *place, int64_t epoch_step, const char *why);
int log_saved(train_log *log, const log_place *place, double seconds);
int log_stopped(train_log *log, const log_place *place, const char *why);

#endif
