/* --log-json in a program that was built without jansson: refused. */
#include "jsonl.h"

#include <stddef.h>

#include "common/exit_code.h"
#include "common/report.h"

int jsonl_open(const char *path, bool append, jsonl **log)
{
    (void)path;
    (void)append;
    *log = NULL;
    return app_fail(APP_FAILED, "--log-json: this program was built without jansson");
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
