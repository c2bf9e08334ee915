/* Random inputs and errors of results. */
#include "pattern.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"

int bench_pattern_make(tutti_dtype dtype, tutti_dtype rounded, int64_t count, uint64_t seed,
                       double offset, double scale, bench_pattern *pattern)
{
    const int64_t period = count < BENCH_PERIOD ? count : BENCH_PERIOD;
    const size_t bytes = (size_t)period * sizeof(double);
    *pattern = (bench_pattern){malloc(bytes), malloc(bytes)};
    if (!pattern->values || !pattern->typed) {
        bench_pattern_free(pattern);
        return app_fail(APP_FAILED, "no memory for random inputs");
    }
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (int64_t i = 0; i < period; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        pattern->values[i] = offset + scale * ((double)(state >> 32) / 2147483648.0 - 1.0);
    }
    APP_CHECK(tutti_convert(pattern->typed, rounded, pattern->values, TUTTI_F64, period));
    APP_CHECK(tutti_convert(pattern->values, TUTTI_F64, pattern->typed, rounded, period));
    return app_check(tutti_convert(pattern->typed, dtype, pattern->values, TUTTI_F64, period));
}

void bench_pattern_free(bench_pattern *pattern)
{
    free(pattern->values);
    free(pattern->typed);
    *pattern = (bench_pattern){0};
}

void bench_pattern_read(const bench_pattern *pattern, int64_t first, int64_t count, double *values)
{
    int64_t at = first % BENCH_PERIOD;
    while (count > 0) {
        int64_t run = BENCH_PERIOD - at < count ? BENCH_PERIOD - at : count;
        memcpy(values, pattern->values + at, (size_t)run * sizeof *values);
        values += run;
        count -= run;
        at = 0;
    }
}

int bench_fill(tutti_context *ctx, const bench_pattern *pattern, tutti_dtype dtype, int64_t count,
               void *data)
{
    const size_t size = tutti_dtype_size(dtype), bytes = (size_t)count * size;
    if (!pattern->values) return app_check(tutti_zero(ctx, data, bytes));
    size_t filled = bytes < BENCH_PERIOD * size ? bytes : BENCH_PERIOD * size;
    APP_CHECK(tutti_copy(ctx, data, pattern->typed, filled));
    while (filled < bytes) { /* whole periods, so that the pattern continues */
        size_t more = bytes - filled < filled ? bytes - filled : filled;
        APP_CHECK(tutti_copy(ctx, (char *)data + filled, data, more));
        filled += more;
    }
    return APP_OK;
}

int bench_alloc(tutti_context *ctx, const bench_pattern *pattern, tutti_dtype dtype, int64_t count,
                void **data)
{
    APP_CHECK(tutti_alloc(ctx, (size_t)count * tutti_dtype_size(dtype), data));
    return bench_fill(ctx, pattern, dtype, count, *data);
}

int bench_read(tutti_context *ctx, const void *data, tutti_dtype dtype, int64_t first,
               int64_t count, double *values)
{
    size_t size = tutti_dtype_size(dtype);
    void *typed = malloc((size_t)count * size);
    if (!typed) return app_fail(APP_FAILED, "no memory for %lld results", (long long)count);
    int code = app_check(
        tutti_copy(ctx, typed, (const char *)data + (size_t)first * size, (size_t)count * size));
    if (code == APP_OK) code = app_check(tutti_context_synchronize(ctx));
    if (code == APP_OK) code = app_check(tutti_convert(values, TUTTI_F64, typed, dtype, count));
    free(typed);
    return code;
}

double bench_error(const double *got, const double *expected, int64_t count, double scale)
{
    double largest = scale, worst = 0;
    for (int64_t i = 0; i < count; i++) {
        double difference = fabs(got[i] - expected[i]);
        if (!(difference <= worst)) worst = isnan(difference) ? INFINITY : difference;
        if (fabs(expected[i]) > largest) largest = fabs(expected[i]);
    }
    return largest > 0 ? worst / largest : worst;
}

double bench_tolerance(tutti_dtype dtype)
{
    switch (dtype) {
    case TUTTI_F64:
        return 1e-10;
    case TUTTI_F32:
        return 2e-4;
    case TUTTI_F16:
        return 4e-3;
    default:
        return 3e-2;
    }
}
