/* Random inputs, the same for the device and the reference: a prime number of values, repeated as
 * often as a tensor needs.  And errors of results. */
#ifndef TUTTI_BENCH_PATTERN_H
#define TUTTI_BENCH_PATTERN_H

#include "machine.h"

#define BENCH_PERIOD 1048573

typedef struct bench_pattern {
    double *values;
    void *typed; /* in the tensor's type */
} bench_pattern;

/* Values uniform in offset ± scale, rounded to `rounded`, for count elements of dtype. */
int bench_pattern_make(tutti_dtype dtype, tutti_dtype rounded, int64_t count, uint64_t seed,
                       double offset, double scale, bench_pattern *pattern);
void bench_pattern_free(bench_pattern *pattern);

/* Elements first, first + 1, … of a tensor filled with the pattern. */
void bench_pattern_read(const bench_pattern *pattern, int64_t first, int64_t count, double *values);

/* Device memory becomes count elements of the pattern, or zeros if it is empty. */
int bench_fill(tutti_context *ctx, const bench_pattern *pattern, tutti_dtype dtype, int64_t count,
               void *data);
/* Device memory for them. */
int bench_alloc(tutti_context *ctx, const bench_pattern *pattern, tutti_dtype dtype, int64_t count,
                void **data);

/* Elements first, first + 1, … of a tensor on the device. */
int bench_read(tutti_context *ctx, const void *data, tutti_dtype dtype, int64_t first,
               int64_t count, double *values);

/* The largest difference over the largest expected value, or over scale where that is larger (for
 * results that may cancel); infinite for a NaN. */
double bench_error(const double *got, const double *expected, int64_t count, double scale);
/* The largest bench_error allowed for results of a type. */
double bench_tolerance(tutti_dtype dtype);

#endif
