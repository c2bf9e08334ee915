/* Lines of JSON, by jansson. */
#include "jsonl.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "common/report.h"

struct jsonl {
    FILE *file;
    const char *path;
    json_t *line;
};

/* A run that died, on a full disk say, may have left half a line: it is ended, so that it spoils no other. */
static bool half_a_line(const char *path)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    char last = '\n';
    if (file < 0) return false;
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 &&
        pread(file, &last, 1, info.st_size - 1) != 1)
        last = '\n';
    close(file);
    return last != '\n';
}

int jsonl_open(const char *path, bool append, jsonl **log)
{
    jsonl *made = calloc(1, sizeof *made);
    if (!made) return app_fail(APP_FAILED, "no memory for the log");
    made->path = path;
    const bool half = append && half_a_line(path);
    made->file = fopen(path, append ? "a" : "w");
    *log = made;
    if (!made->file || (half && (fputc('\n', made->file) == EOF || fflush(made->file) != 0)))
        return app_fail(APP_FAILED, "%s: cannot be written: %s", path, strerror(errno));
    return APP_OK;
}

void jsonl_close(jsonl **log)
{
    if (!*log) return;
    if ((*log)->file) fclose((*log)->file);
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
    const int failed = json_dumpf(log->line, log->file, JSON_COMPACT) != 0;
    if (failed || fputc('\n', log->file) == EOF || fflush(log->file) != 0)
        return app_fail(APP_FAILED, "%s: cannot be written: %s", log->path, strerror(errno));
    return APP_OK;
}
