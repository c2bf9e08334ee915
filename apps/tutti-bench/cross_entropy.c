/* CrossEntropy, whose forward gives the gradient too. */
#include <math.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "layers.h"

static int check(bench_run *run, bench_result *result)
{
    const int64_t cols = run->shape.dims[1];
    const bench_tensor *logits = bench_find(run, "logits"), *labels = bench_find(run, "labels"),
                       *losses = bench_find(run, "loss"), *gradient = bench_find(run, "dlogits");
    double *x, loss, sum = 0, got_sum, *error = &result->error;
    APP_TRY(bench_scratch(run, 2 * cols + run->rows, &x));
    double *const got = x + cols, *const all = x + 2 * cols;
    for (int s = 0; s < BENCH_SAMPLES; s++) {
        const int64_t row = bench_sampled(run->rows, s, BENCH_SAMPLES), first = row * cols;
        const int32_t label = labels->indices[row];
        APP_TRY(bench_values(run, logits, first, cols, x));
        const double log_sum = bench_log_sum(x, cols), expected_loss = log_sum - x[label];
        APP_TRY(bench_values(run, losses, row, 1, &loss));
        bench_keep(error, bench_error(&loss, &expected_loss, 1, 0));
        APP_TRY(bench_values(run, gradient, first, cols, got));
        for (int64_t i = 0; i < cols; i++) x[i] = exp(x[i] - log_sum);
        const double expected_label = x[label] - 1;
        bench_keep(error, bench_error(&got[label], &expected_label, 1, 0));
        got[label] = x[label]; /* the others are far smaller: on their own */
        bench_keep(error, bench_error(got, x, cols, 0));
    }
    APP_TRY(bench_values(run, losses, 0, run->rows, all));
    for (int64_t i = 0; i < run->rows; i++) sum += all[i];
    APP_TRY(bench_values(run, bench_find(run, "loss_sum"), 0, 1, &got_sum));
    bench_keep(error, bench_error(&got_sum, &sum, 1, 0));
    return APP_OK;
}

const bench_layer bench_cross_entropy = {BENCH_ROWWISE_SHAPES, .pass = "loss+grad", .check = check};
