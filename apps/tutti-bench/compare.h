/* --compare: figures beside those of an earlier run. */
#ifndef TUTTI_BENCH_COMPARE_H
#define TUTTI_BENCH_COMPARE_H

#include "layers.h"

typedef struct bench_earlier bench_earlier;

/* What of an earlier run belongs to a result. */
typedef struct bench_times {
    double seconds, call_seconds; /* call_seconds is 0 where it was not timed */
} bench_times;

/* Reads a file of --json.  APP_FAILED if it is none, or none of this version's; path NULL: *earlier
 * is NULL. */
int bench_earlier_read(const char *path, bench_earlier **earlier);
void bench_earlier_free(bench_earlier **earlier);

/* APP_FAILED if it was measured on another backend or device; a warning if with other repeats. */
int bench_earlier_check(const bench_earlier *earlier, const bench_machine *machine);

/* NULL: the earlier run has no such row. */
const bench_times *bench_earlier_find(bench_earlier *earlier, const bench_result *result);

/* Names the rows that bench_earlier_find was never asked for.  APP_FAILED if that is all of
 * them. */
int bench_earlier_rest(const bench_earlier *earlier);

#endif
