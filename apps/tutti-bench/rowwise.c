/* The layers that work row by row, beside a copy of the same bytes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "common/exit_code.h"
#include "common/report.h"
#include "pattern.h"

enum { X, DY, GAMMA, BETA, PATTERNS };
enum { SAMPLED = 3 };

static const double norm_eps = 1e-5;

typedef struct rowwise {
    bench_machine *machine;
    tutti_dtype dtype, sums; /* sums: of statistics and of the parameters' gradients */
    int64_t rows, cols;
    bool centered; /* layernorm */
    bench_pattern patterns[PATTERNS];
    bench_memory memory;
    tutti_layer *layer;
    void *x, *y, *dy, *dx, *gamma, *beta, *dgamma, *dbeta, *saved, *labels, *loss, *loss_sum;
    double *buffer; /* 6 rows */
} rowwise;

static double *row_buffer(const rowwise *w, int index)
{
    return w->buffer + index * w->cols;
}

static int64_t sampled(int64_t count, int index)
{
    return (count - 1) * index / (SAMPLED - 1);
}

int bench_run_call(void *self)
{
    bench_call *c = self;
    return app_check(c->backward ? tutti_layer_backward(c->layer, c->ctx, &c->call)
                                 : tutti_layer_forward(c->layer, c->ctx, &c->call));
}

static void keep(double *worst, double error)
{
    if (!(error <= *worst)) *worst = error;
}

/* Norms */

static void statistics(const rowwise *w, const double *x, double *mean, double *rstd)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < w->cols; i++) sum += x[i];
    *mean = w->centered ? sum / (double)w->cols : 0;
    for (int64_t i = 0; i < w->cols; i++) squares += (x[i] - *mean) * (x[i] - *mean);
    *rstd = 1 / sqrt(squares / (double)w->cols + norm_eps);
}

static int check_norm_forward(rowwise *w, double *error)
{
    double *x = row_buffer(w, 0), *gamma = row_buffer(w, 1), *beta = row_buffer(w, 2),
           *expected = row_buffer(w, 3), *got = row_buffer(w, 4);
    bench_pattern_read(&w->patterns[GAMMA], 0, w->cols, gamma);
    bench_pattern_read(&w->patterns[BETA], 0, w->cols, beta);
    for (int s = 0; s < SAMPLED; s++) {
        int64_t first = sampled(w->rows, s) * w->cols;
        double mean, rstd;
        bench_pattern_read(&w->patterns[X], first, w->cols, x);
        statistics(w, x, &mean, &rstd);
        for (int64_t i = 0; i < w->cols; i++)
            expected[i] = (x[i] - mean) * rstd * gamma[i] + (w->centered ? beta[i] : 0);
        APP_TRY(bench_read(w->machine->ctx, w->y, w->dtype, first, w->cols, got));
        keep(error, bench_error(got, expected, w->cols, 0));
    }
    return APP_OK;
}

static int check_norm_backward(rowwise *w, double *error)
{
    double *x = row_buffer(w, 0), *gamma = row_buffer(w, 1), *dy = row_buffer(w, 2),
           *expected = row_buffer(w, 3), *got = row_buffer(w, 4);
    double dgamma[SAMPLED] = {0}, dbeta[SAMPLED] = {0}, value[SAMPLED];
    int next = 0;
    bench_pattern_read(&w->patterns[GAMMA], 0, w->cols, gamma);
    for (int64_t row = 0; row < w->rows; row++) {
        int64_t first = row * w->cols;
        double mean, rstd;
        bench_pattern_read(&w->patterns[X], first, w->cols, x);
        bench_pattern_read(&w->patterns[DY], first, w->cols, dy);
        statistics(w, x, &mean, &rstd);
        for (int s = 0; s < SAMPLED; s++) {
            int64_t col = sampled(w->cols, s);
            dgamma[s] += dy[col] * (x[col] - mean) * rstd;
            dbeta[s] += dy[col];
        }
        if (next == SAMPLED || row != sampled(w->rows, next)) continue;
        while (next < SAMPLED && row == sampled(w->rows, next)) next++;
        double g_sum = 0, gn_sum = 0, scale = 0;
        for (int64_t i = 0; i < w->cols; i++) {
            double g = dy[i] * gamma[i];
            g_sum += g;
            scale = fmax(scale, fabs(rstd * g));
            gn_sum += g * (x[i] - mean) * rstd;
        }
        g_sum = w->centered ? g_sum / (double)w->cols : 0;
        gn_sum /= (double)w->cols;
        for (int64_t i = 0; i < w->cols; i++)
            expected[i] = rstd * (dy[i] * gamma[i] - g_sum - (x[i] - mean) * rstd * gn_sum);
        APP_TRY(bench_read(w->machine->ctx, w->dx, w->dtype, first, w->cols, got));
        keep(error, bench_error(got, expected, w->cols, scale));
    }
    for (int which = 0; which < (w->centered ? 2 : 1); which++) {
        for (int s = 0; s < SAMPLED; s++)
            APP_TRY(bench_read(w->machine->ctx, which ? w->dbeta : w->dgamma, w->sums,
                               sampled(w->cols, s), 1, &value[s]));
        keep(error, bench_error(value, which ? dbeta : dgamma, SAMPLED, 0));
    }
    return APP_OK;
}

/* Softmax and cross-entropy */

/* Probabilities of a row of logits; returns the logarithm of their sum. */
static double softmax_row(const double *x, int64_t cols, double *p)
{
    double largest = x[0], sum = 0;
    for (int64_t i = 1; i < cols; i++) largest = fmax(largest, x[i]);
    for (int64_t i = 0; i < cols; i++) sum += p[i] = exp(x[i] - largest);
    for (int64_t i = 0; i < cols; i++) p[i] /= sum;
    return largest + log(sum);
}

static int check_softmax(rowwise *w, bool backward, double *error)
{
    double *x = row_buffer(w, 0), *p = row_buffer(w, 1), *dy = row_buffer(w, 2),
           *expected = row_buffer(w, 3), *got = row_buffer(w, 4);
    for (int s = 0; s < SAMPLED; s++) {
        int64_t first = sampled(w->rows, s) * w->cols;
        double dot = 0;
        bench_pattern_read(&w->patterns[X], first, w->cols, x);
        bench_pattern_read(&w->patterns[DY], first, w->cols, dy);
        softmax_row(x, w->cols, p);
        for (int64_t i = 0; i < w->cols; i++) dot += p[i] * dy[i];
        for (int64_t i = 0; i < w->cols; i++) expected[i] = backward ? p[i] * (dy[i] - dot) : p[i];
        APP_TRY(
            bench_read(w->machine->ctx, backward ? w->dx : w->y, w->dtype, first, w->cols, got));
        keep(error, bench_error(got, expected, w->cols, 0));
    }
    return APP_OK;
}

static int32_t label_of(const rowwise *w, int64_t row)
{
    return (int32_t)(row * 7919 % w->cols);
}

static int check_cross_entropy(rowwise *w, double *error)
{
    double *x = row_buffer(w, 0), *p = row_buffer(w, 1), *got = row_buffer(w, 2);
    for (int s = 0; s < SAMPLED; s++) {
        int64_t row = sampled(w->rows, s), first = row * w->cols;
        int32_t label = label_of(w, row);
        bench_pattern_read(&w->patterns[X], first, w->cols, x);
        double expected_loss = softmax_row(x, w->cols, p) - x[label], loss;
        APP_TRY(bench_read(w->machine->ctx, w->loss, w->sums, row, 1, &loss));
        keep(error, bench_error(&loss, &expected_loss, 1, 0));
        APP_TRY(bench_read(w->machine->ctx, w->dx, w->dtype, first, w->cols, got));
        double expected_label = p[label] - 1;
        keep(error, bench_error(&got[label], &expected_label, 1, 0));
        got[label] = p[label]; /* the others are far smaller: on their own */
        keep(error, bench_error(got, p, w->cols, 0));
    }
    double *losses = malloc((size_t)w->rows * sizeof *losses), sum = 0, got_sum;
    if (!losses) return app_fail(APP_FAILED, "no memory for %lld losses", (long long)w->rows);
    int code = bench_read(w->machine->ctx, w->loss, w->sums, 0, w->rows, losses);
    for (int64_t i = 0; i < w->rows; i++) sum += losses[i];
    free(losses);
    APP_TRY(code);
    APP_TRY(bench_read(w->machine->ctx, w->loss_sum, TUTTI_F64, 0, 1, &got_sum));
    keep(error, bench_error(&got_sum, &sum, 1, 0));
    return APP_OK;
}

/* The run */

static int bind(rowwise *w, int index, void *value, void *grad)
{
    tutti_tensor v = tutti_tensor_1d(value, w->dtype, w->cols);
    tutti_tensor g = tutti_tensor_1d(grad, w->sums, w->cols);
    return app_check(tutti_param_bind(tutti_layer_param(w->layer, index), &v, &g));
}

static int prepare(rowwise *w, const char *layer)
{
    bool norm = strstr(layer, "norm") != NULL;
    const char *type = tutti_dtype_name(w->dtype);
    char options[160];
    if (norm)
        snprintf(options, sizeof options, "cols=%lld,eps=%g,x_dtype=%s,param_dtype=%s,y_dtype=%s",
                 (long long)w->cols, norm_eps, type, type, type);
    else
        snprintf(options, sizeof options, "cols=%lld,dtype=%s", (long long)w->cols, type);
    APP_CHECK(tutti_layer_create_by_name(w->machine->ctx, layer, options, &w->layer));
    APP_CHECK(tutti_layer_plan(w->layer, w->machine->ctx, w->rows));

    APP_TRY(bench_pattern_make(w->dtype, 1, 0.1, 1.7, &w->patterns[X]));
    APP_TRY(bench_pattern_make(w->dtype, 2, 0.0, 1.7, &w->patterns[DY]));
    int64_t count = w->rows * w->cols;
    bench_memory *memory = &w->memory;
    APP_TRY(bench_memory_fill(memory, &w->patterns[X], count, &w->x));
    APP_TRY(bench_memory_alloc(memory, w->dtype, count, &w->y));
    APP_TRY(bench_memory_alloc(memory, w->dtype, count, &w->dx));
    APP_TRY(bench_memory_fill(memory, &w->patterns[DY], count, &w->dy));
    size_t saved = tutti_layer_saved_bytes(w->layer, w->rows);
    if (saved) APP_TRY(bench_memory_alloc(memory, TUTTI_U8, (int64_t)saved, &w->saved));
    if (norm) {
        APP_TRY(bench_pattern_make(w->dtype, 3, 1.0, 0.5, &w->patterns[GAMMA]));
        APP_TRY(bench_pattern_make(w->dtype, 4, 0.0, 0.5, &w->patterns[BETA]));
        APP_TRY(bench_memory_fill(memory, &w->patterns[GAMMA], w->cols, &w->gamma));
        APP_TRY(bench_memory_fill(memory, &w->patterns[BETA], w->cols, &w->beta));
        APP_TRY(bench_memory_alloc(memory, w->sums, w->cols, &w->dgamma));
        APP_TRY(bench_memory_alloc(memory, w->sums, w->cols, &w->dbeta));
        APP_TRY(bind(w, 0, w->gamma, w->dgamma));
        if (w->centered) APP_TRY(bind(w, 1, w->beta, w->dbeta));
    }
    if (strcmp(layer, "cross_entropy") == 0) {
        APP_TRY(bench_memory_alloc(memory, TUTTI_I32, w->rows, &w->labels));
        APP_TRY(bench_memory_alloc(memory, w->sums, w->rows, &w->loss));
        APP_TRY(bench_memory_alloc(memory, TUTTI_F64, 1, &w->loss_sum));
        int32_t *labels = malloc((size_t)w->rows * sizeof *labels);
        if (!labels) return app_fail(APP_FAILED, "no memory for %lld labels", (long long)w->rows);
        for (int64_t i = 0; i < w->rows; i++) labels[i] = label_of(w, i);
        int code = app_check(
            tutti_copy(w->machine->ctx, w->labels, labels, (size_t)w->rows * sizeof *labels));
        if (code == APP_OK) code = app_check(tutti_context_synchronize(w->machine->ctx));
        free(labels);
        APP_TRY(code);
    }
    w->buffer = malloc(6 * (size_t)w->cols * sizeof *w->buffer);
    return w->buffer ? APP_OK : app_fail(APP_FAILED, "no memory for a row of the reference");
}

static int measure(rowwise *w, const char *layer, bench_sink sink, void *user)
{
    tutti_tensor x = tutti_tensor_2d(w->x, w->dtype, w->rows, w->cols);
    tutti_tensor y = tutti_tensor_2d(w->y, w->dtype, w->rows, w->cols);
    tutti_tensor dy = tutti_tensor_2d(w->dy, w->dtype, w->rows, w->cols);
    tutti_tensor dx = tutti_tensor_2d(w->dx, w->dtype, w->rows, w->cols);
    tutti_tensor labels = tutti_tensor_1d(w->labels, TUTTI_I32, w->rows);
    tutti_tensor loss = tutti_tensor_1d(w->loss, w->sums, w->rows);
    tutti_tensor loss_sum = tutti_tensor_1d(w->loss_sum, TUTTI_F64, 1);
    bool norm = w->gamma != NULL, entropy = w->labels != NULL;
    for (int backward = 0; backward < (entropy ? 1 : 2); backward++) {
        bench_call call = {w->machine->ctx, w->layer, TUTTI_CALL_INIT, backward};
        call.call.in[0] = &x;
        call.call.out[0] = &y;
        call.call.saved = w->saved;
        if (entropy) {
            call.call.in[1] = &labels;
            call.call.out[0] = &loss;
            call.call.out[1] = &loss_sum;
            call.call.out[2] = &dx;
        }
        if (backward) {
            call.call.upstream[0] = &dy;
            call.call.din[0] = &dx;
        }
        bench_result result = {.dtype = w->dtype, .tolerance = bench_tolerance(w->dtype)};
        snprintf(result.layer, sizeof result.layer, "%s", layer);
        snprintf(result.pass, sizeof result.pass,
                 entropy    ? "loss+grad"
                 : backward ? "backward"
                            : "forward");
        snprintf(result.shape, sizeof result.shape, "%lldx%lld", (long long)w->rows,
                 (long long)w->cols);
        result.amount = (backward ? 3.0 : 2.0) * (double)w->rows * (double)w->cols *
                        (double)tutti_dtype_size(w->dtype);
        bench_reference copy = {.bytes = (size_t)result.amount};
        APP_TRY(bench_time(w->machine, bench_run_call, &call, &copy, &result.seconds,
                           &result.reference));
        APP_TRY(bench_time_call(w->machine, bench_run_call, &call, w->rows, &result.seconds,
                                &result.call_seconds));
        APP_CHECK(tutti_context_check(w->machine->ctx));
        APP_TRY(entropy    ? check_cross_entropy(w, &result.error)
                : !norm    ? check_softmax(w, backward, &result.error)
                : backward ? check_norm_backward(w, &result.error)
                           : check_norm_forward(w, &result.error));
        sink(user, &result);
    }
    return APP_OK;
}

int bench_rowwise(bench_machine *machine, const char *layer, tutti_dtype dtype, int64_t rows,
                  int64_t cols, bench_sink sink, void *user)
{
    rowwise w = {.machine = machine, .dtype = dtype, .rows = rows, .cols = cols};
    w.sums = dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    w.centered = strcmp(layer, "layernorm") == 0;
    w.memory.ctx = machine->ctx;
    int code = prepare(&w, layer);
    if (code == APP_OK) code = measure(&w, layer, sink, user);
    bench_memory_free(&w.memory);
    tutti_layer_destroy(&w.layer);
    for (int i = 0; i < PATTERNS; i++) bench_pattern_free(&w.patterns[i]);
    free(w.buffer);
    return code;
}
