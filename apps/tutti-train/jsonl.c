/* Lines of JSON, by jansson. */
#include "jsonl.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/exit_code.h"
#include "common/output.h"
#include "common/report.h"

struct jsonl {
    app_output *output;
    json_t *line;
};

int jsonl_open(const char *path, jsonl **log)
{
    *log = NULL;
    if (!path) return APP_OK;
    *log = calloc(1, sizeof **log);
    if (!*log) return app_fail(APP_FAILED, "no memory for the log");
    return app_output_open(path, &(*log)->output);
}

int jsonl_start(jsonl *log, bool append)
{
    return log ? app_output_begin(log->output, append) : APP_OK;
}

void jsonl_close(jsonl **log)
{
    if (!*log) return;
    app_output_close(&(*log)->output);
    json_decref((*log)->line);
    free(*log);
    *log = NULL;
}

/* A value that cannot be made (a file's name that is no UTF-8, say) leaves its key out. */
static void set(jsonl *log, const char *key, json_t *value)
{
    if (value) json_object_set_new(log->line, key, value);
}

void jsonl_begin(jsonl *log, const char *event)
{
    if (!log) return;
    json_decref(log->line);
    log->line = json_object();
    jsonl_text(log, "event", event);
}

void jsonl_int(jsonl *log, const char *key, int64_t value)
{
    if (log) set(log, key, json_integer(value));
}

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

void jsonl_real(jsonl *log, const char *key, double value)
{
    if (log) set(log, key, real(value));
}

void jsonl_text(jsonl *log, const char *key, const char *value)
{
    if (log) set(log, key, json_string(value));
}

void jsonl_reals(jsonl *log, const char *key, const double *values, int count, int stride)
{
    if (!log) return;
    json_t *array = json_array();
    for (int i = 0; i < count; i++) json_array_append_new(array, real(values[i * stride]));
    set(log, key, array);
}

void jsonl_ints(jsonl *log, const char *key, const double *values, int count, int stride)
{
    if (!log) return;
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(array, json_integer((json_int_t)values[i * stride]));
    set(log, key, array);
}

int jsonl_end(jsonl *log)
{
    if (!log) return APP_OK;
    FILE *stream = app_output_stream(log->output);
    const bool made = json_dumpf(log->line, stream, JSON_COMPACT) == 0;
    fputc('\n', stream);
    APP_TRY(app_output_flush(log->output));
    return made ? APP_OK : app_fail(APP_FAILED, "no memory for a line of the log");
}

bool jsonl_lost(const jsonl *log)
{
    return log && app_output_lost(log->output);
}
