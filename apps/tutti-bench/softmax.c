/* Softmax. */
#include <math.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "layers.h"

static int check(bench_run *run, bench_result *result)
{
    const int64_t cols = run->shape.dims[1];
    double *x;
    APP_TRY(bench_scratch(run, 3 * cols, &x));
    double *const dy = x + cols, *const got = x + 2 * cols;
    for (int s = 0; s < BENCH_SAMPLES; s++) {
        const int64_t first = bench_sampled(run->rows, s, BENCH_SAMPLES) * cols;
        double dot = 0;
        APP_TRY(bench_values(run, bench_find(run, "x"), first, cols, x));
        APP_TRY(bench_values(run, bench_find(run, "dy"), first, cols, dy));
        const double log_sum = bench_log_sum(x, cols);
        for (int64_t i = 0; i < cols; i++) x[i] = exp(x[i] - log_sum);
        for (int64_t i = 0; i < cols; i++) dot += x[i] * dy[i];
        for (int64_t i = 0; run->backward && i < cols; i++) x[i] *= dy[i] - dot;
        APP_TRY(bench_values(run, bench_find(run, run->backward ? "dx" : "y"), first, cols, got));
        bench_keep(&result->error, bench_error(got, x, cols, 0));
    }
    return APP_OK;
}

const bench_layer bench_softmax = {BENCH_ROWWISE_SHAPES, .check = check};
