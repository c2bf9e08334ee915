/* LayerNorm and RMSNorm, which has neither mean nor beta. */
#include <math.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "layers.h"

static const double eps = 1e-5; /* of .options */

typedef struct norm {
    bench_run *run;
    const bench_tensor *beta; /* NULL: RMSNorm */
    int64_t cols;
    double *x, *gamma, *shift, *dy, *expected, *got; /* rows; shift is beta */
    double mean, rstd;                               /* of x */
} norm;

static int read_row(norm *n, int64_t row)
{
    double sum = 0, squares = 0;
    APP_TRY(bench_values(n->run, bench_find(n->run, "x"), row * n->cols, n->cols, n->x));
    APP_TRY(bench_values(n->run, bench_find(n->run, "dy"), row * n->cols, n->cols, n->dy));
    for (int64_t i = 0; i < n->cols; i++) sum += n->x[i];
    n->mean = n->beta ? sum / (double)n->cols : 0;
    for (int64_t i = 0; i < n->cols; i++) squares += (n->x[i] - n->mean) * (n->x[i] - n->mean);
    n->rstd = 1 / sqrt(squares / (double)n->cols + eps);
    return APP_OK;
}

static int check_row(norm *n, int64_t row, double *error)
{
    double g_sum = 0, gn_sum = 0, scale = 0;
    const bool backward = n->run->backward;
    for (int64_t i = 0; i < n->cols; i++) {
        const double g = n->dy[i] * n->gamma[i];
        g_sum += n->beta ? g / (double)n->cols : 0;
        gn_sum += g * (n->x[i] - n->mean) * n->rstd / (double)n->cols;
        scale = fmax(scale, fabs(n->rstd * g));
    }
    for (int64_t i = 0; i < n->cols; i++) {
        const double normed = (n->x[i] - n->mean) * n->rstd;
        n->expected[i] = backward ? n->rstd * (n->dy[i] * n->gamma[i] - g_sum - normed * gn_sum)
                                  : normed * n->gamma[i] + n->shift[i];
    }
    APP_TRY(bench_values(n->run, bench_find(n->run, backward ? "dx" : "y"), row * n->cols, n->cols,
                         n->got));
    bench_keep(error, bench_error(n->got, n->expected, n->cols, backward ? scale : 0));
    return APP_OK;
}

/* Gradients of some columns' parameters. */
static int check_params(norm *n, double sums[2][BENCH_SAMPLES], double *error)
{
    const bench_tensor *grads[2] = {bench_find(n->run, "dgamma"), bench_find(n->run, "dbeta")};
    double got[BENCH_SAMPLES];
    for (int which = 0; which < 2 && grads[which]; which++) {
        for (int s = 0; s < BENCH_SAMPLES; s++)
            APP_TRY(bench_values(n->run, grads[which], bench_sampled(n->cols, s, BENCH_SAMPLES), 1,
                                 &got[s]));
        bench_keep(error, bench_error(got, sums[which], BENCH_SAMPLES, 0));
    }
    return APP_OK;
}

static int check(bench_run *run, bench_result *result)
{
    norm n = {.run = run, .beta = bench_find(run, "beta"), .cols = run->shape.dims[1]};
    double sums[2][BENCH_SAMPLES] = {{0}};
    APP_TRY(bench_scratch(run, 6 * n.cols, &n.x));
    double **const rows[] = {&n.gamma, &n.shift, &n.dy, &n.expected, &n.got};
    for (int i = 0; i < 5; i++) *rows[i] = n.x + (i + 1) * n.cols;
    APP_TRY(bench_values(run, bench_find(run, "gamma"), 0, n.cols, n.gamma));
    if (n.beta) APP_TRY(bench_values(run, n.beta, 0, n.cols, n.shift));
    for (int s = 0; s < BENCH_SAMPLES; s++) {
        const int64_t row = bench_sampled(run->rows, s, BENCH_SAMPLES);
        APP_TRY(read_row(&n, row));
        APP_TRY(check_row(&n, row, &result->error));
    }
    for (int64_t row = 0; run->backward && row < run->rows; row++) {
        APP_TRY(read_row(&n, row));
        for (int s = 0; s < BENCH_SAMPLES; s++) {
            const int64_t col = bench_sampled(n.cols, s, BENCH_SAMPLES);
            sums[0][s] += n.dy[col] * (n.x[col] - n.mean) * n.rstd;
            sums[1][s] += n.dy[col];
        }
    }
    return run->backward ? check_params(&n, sums, &result->error) : APP_OK;
}

const bench_layer bench_layernorm = {BENCH_ROWWISE_SHAPES, .options = "eps=1e-5", .check = check};
const bench_layer bench_rmsnorm = {BENCH_ROWWISE_SHAPES, .options = "eps=1e-5", .check = check};
