/* A file of JSON objects, one a line, flushed: --log-json.  All calls but jsonl_open do nothing for
 * NULL. */
#ifndef TUTTI_TRAIN_JSONL_H
#define TUTTI_TRAIN_JSONL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct jsonl jsonl;

/* As app_output_open and app_output_begin.  A NULL path: no log.  On failure jsonl_close cleans up. */
int jsonl_open(const char *path, jsonl **log);
int jsonl_start(jsonl *log, bool append);
void jsonl_close(jsonl **log);

/* A line: begin, its values, end.  A number that is not finite is written as null. */
void jsonl_begin(jsonl *log, const char *event);
void jsonl_int(jsonl *log, const char *key, int64_t value);
void jsonl_real(jsonl *log, const char *key, double value);
void jsonl_text(jsonl *log, const char *key, const char *value);
/* values: `stride` apart */
void jsonl_reals(jsonl *log, const char *key, const double *values, int count, int stride);
/* the same, whole numbers */
void jsonl_ints(jsonl *log, const char *key, const double *values, int count, int stride);
int jsonl_end(jsonl *log);
/* As app_output_lost: jsonl_end has failed for that reason. */
bool jsonl_lost(const jsonl *log);

#endif
