/* --log-json in a program that was built without jansson: refused. */
#include "jsonl.h"

#include <stddef.h>

#include "common/exit_code.h"
#include "common/report.h"

int jsonl_open(const char *path, jsonl **log)
{
    *log = NULL;
    if (!path) return APP_OK;
    return app_fail(APP_FAILED, "--log-json: this program was built without jansson");
}

int jsonl_start(jsonl *log, bool append)
{
    (void)log;
    (void)append;
    return APP_OK;
}

void jsonl_close(jsonl **log)
{
    (void)log;
}

void jsonl_begin(jsonl *log, const char *event)
{
    (void)log;
    (void)event;
}

void jsonl_int(jsonl *log, const char *key, int64_t value)
{
    (void)log;
    (void)key;
    (void)value;
}

void jsonl_real(jsonl *log, const char *key, double value)
{
    (void)log;
    (void)key;
    (void)value;
}

void jsonl_text(jsonl *log, const char *key, const char *value)
{
    (void)log;
    (void)key;
    (void)value;
}

void jsonl_reals(jsonl *log, const char *key, const double *values, int count, int stride)
{
    (void)log;
    (void)key;
    (void)values;
    (void)count;
    (void)stride;
}

void jsonl_ints(jsonl *log, const char *key, const double *values, int count, int stride)
{
    (void)log;
    (void)key;
    (void)values;
    (void)count;
    (void)stride;
}

int jsonl_end(jsonl *log)
{
    (void)log;
    return APP_OK;
}

bool jsonl_lost(const jsonl *log)
{
    (void)log;
    return false;
}
