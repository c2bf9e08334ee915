/* Random inputs that both the device and the reference know: a prime number of values, repeated
 * as often as a tensor needs.  And what every case does with memory. */
#ifndef TUTTI_BENCH_PATTERN_H
#define TUTTI_BENCH_PATTERN_H

#include "machine.h"

#define BENCH_PERIOD 1048573

typedef struct bench_pattern {
    tutti_dtype dtype;
    double *values; /* as dtype rounds them */
    void *typed;
} bench_pattern;

/* Values uniform in offset ± scale.  0 or an exit code. */
int bench_pattern_make(tutti_dtype dtype, uint64_t seed, double offset, double scale,
                       bench_pattern *pattern);
void bench_pattern_free(bench_pattern *pattern);

/* Elements first, first + 1, … of a tensor filled with the pattern. */
void bench_pattern_read(const bench_pattern *pattern, int64_t first, int64_t count, double *values);

/* The device memory of a case, freed together. */
typedef struct bench_memory {
    tutti_context *ctx;
    void *blocks[16];
    int count;
} bench_memory;

/* count zeros. */
int bench_memory_alloc(bench_memory *memory, tutti_dtype dtype, int64_t count, void **data);
/* count elements of the pattern. */
int bench_memory_fill(bench_memory *memory, const bench_pattern *pattern, int64_t count,
                      void **data);
void bench_memory_free(bench_memory *memory);

/* Elements first, first + 1, … of a tensor on the device. */
int bench_read(tutti_context *ctx, const void *data, tutti_dtype dtype, int64_t first,
               int64_t count, double *values);

/* The largest difference over the largest expected value, or over scale where that is larger (for
 * results that may cancel); infinite for a NaN. */
double bench_error(const double *got, const double *expected, int64_t count, double scale);
/* What bench_error may be for results of a type. */
double bench_tolerance(tutti_dtype dtype);

#endif
