/* Embedding. */
#include <math.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "layers.h"

/* Tokens, the rows of the table that they name, and y; backward: tokens, dy, and the whole gradient of the table. */
static void count(const bench_run *run, bench_result *result, bench_reference *reference)
{
    (void)reference;
    const double cols = (double)run->shape.dims[2], rows = (double)run->rows;
    const double row_bytes = cols * (double)tutti_dtype_size(run->dtype);
    const double table =
        (double)run->shape.dims[1] * cols * (double)tutti_dtype_size(bench_sums(run->dtype));
    result->amount = rows * (4 + (run->backward ? 1 : 2) * row_bytes) + (run->backward ? table : 0);
}

/* y is a copy of the table's rows.  Of its gradient: the rows of the commonest token, and some others. */
static int check(bench_run *run, bench_result *result)
{
    const int64_t cols = run->shape.dims[2];
    const int32_t *tokens = bench_find(run, "tokens")->indices;
    const bench_tensor *weight = bench_find(run, "weight"), *dy = bench_find(run, "dy");
    double *expected;
    APP_TRY(bench_scratch(run, 2 * cols, &expected));
    double *const got = expected + cols;
    result->tolerance = run->backward ? bench_tolerance(bench_sums(run->dtype)) : 0;
    for (int s = 0; s < BENCH_SAMPLES; s++) {
        const int64_t sampled = bench_sampled(run->rows, s, BENCH_SAMPLES);
        const int32_t token = run->backward && s == 0 ? 0 : tokens[sampled];
        double size = 0;
        if (!run->backward) APP_TRY(bench_values(run, weight, token * cols, cols, expected));
        for (int64_t i = 0; run->backward && i < cols; i++) expected[i] = 0;
        for (int64_t row = 0; run->backward && row < run->rows; row++) {
            if (tokens[row] != token) continue;
            APP_TRY(bench_values(run, dy, row * cols, cols, got));
            for (int64_t i = 0; i < cols; i++) {
                expected[i] += got[i];
                size = fmax(size, fabs(got[i]));
            }
        }
        APP_TRY(bench_values(run, bench_find(run, run->backward ? "dweight" : "y"),
                             (run->backward ? token : sampled) * cols, cols, got));
        bench_keep(&result->error, bench_error(got, expected, cols, size));
    }
    return APP_OK;
}

const bench_layer bench_embedding = {
    .gpu = {{3, {32768, 50257, 1024}}, {3, {65536, 256, 1024}}, {3, {8192, 50257, 4096}}},
    .host = {{3, {4096, 256, 256}}, {3, {1024, 50257, 256}}, {3, {512, 256, 4096}}},
    .count = count,
    .check = check,
};
