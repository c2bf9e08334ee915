/* --compare: times of an earlier run. */
#ifndef TUTTI_BENCH_COMPARE_H
#define TUTTI_BENCH_COMPARE_H

#include "layers.h"

typedef struct bench_earlier bench_earlier;

/* A result's times in the earlier run, in seconds. */
typedef struct bench_before {
    double median, call; /* call is 0 where it was not timed */
} bench_before;

/* Reads a file that --json wrote.  APP_FAILED if it is not one, or of another version.  *earlier is
 * NULL for a NULL path. */
int bench_earlier_read(const char *path, bench_earlier **earlier);
void bench_earlier_free(bench_earlier **earlier);

/* APP_FAILED if it was measured on another backend or device; warns of another number of
 * repeats. */
int bench_earlier_check(const bench_earlier *earlier, const bench_machine *machine);

/* NULL: the earlier run has no such row. */
const bench_before *bench_earlier_find(bench_earlier *earlier, const bench_result *result);

/* Warns of rows that bench_earlier_find did not return.  APP_FAILED if it returned none. */
int bench_earlier_rest(const bench_earlier *earlier);

#endif
