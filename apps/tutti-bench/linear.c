/* FusedLinear beside the bare matrix products. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "common/exit_code.h"
#include "common/report.h"
#include "pattern.h"

enum { X, W, B, DY, PATTERNS };
enum { ROWS = 2, COLUMNS = 16 }; /* sampled */

typedef struct linear {
    bench_machine *machine;
    tutti_dtype dtype, sums;
    const char *activation;
    int64_t rows, in, out;
    bench_pattern patterns[PATTERNS];
    bench_memory memory;
    tutti_layer *layer;
    void *x, *y, *dy, *dx, *weight, *bias, *dweight, *dbias, *saved;
    double *x_row, *w_row, *z_row; /* of in, in, out elements */
} linear;

static int64_t sampled(int64_t count, int index, int samples)
{
    return (count - 1) * index / (samples - 1);
}

static double round_to(tutti_dtype dtype, double value)
{
    uint64_t typed;
    (void)tutti_convert(&typed, dtype, &value, TUTTI_F64, 1);
    (void)tutti_convert(&value, TUTTI_F64, &typed, dtype, 1);
    return value;
}

/* act(z) and act'(z), from tutti/linear.h's formulas. */
static void activate(const char *name, double z, double *value, double *slope)
{
    const double c = sqrt(2 / acos(-1.0)), slow = 0.01;
    double t;
    *value = z;
    *slope = 1;
    if (strcmp(name, "relu") == 0) {
        *value = fmax(z, 0);
        *slope = z > 0;
    } else if (strcmp(name, "leaky_relu") == 0) {
        *value = z > 0 ? z : slow * z;
        *slope = z > 0 ? 1 : slow;
    } else if (strcmp(name, "squared_relu") == 0) {
        *value = z > 0 ? z * z : 0;
        *slope = z > 0 ? 2 * z : 0;
    } else if (strcmp(name, "gelu") == 0) {
        t = tanh(c * (z + 0.044715 * z * z * z));
        *value = 0.5 * z * (1 + t);
        *slope = 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * c * (1 + 3 * 0.044715 * z * z);
    } else if (strcmp(name, "gelu_erf") == 0) {
        t = 0.5 * erfc(-z / sqrt(2));
        *value = z * t;
        *slope = t + z * exp(-0.5 * z * z) * 0.5 * c;
    } else if (strcmp(name, "silu") == 0) {
        t = 1 / (1 + exp(-z));
        *value = z * t;
        *slope = t * (1 + z * (1 - t));
    }
}

static double dot(const double *a, const double *b, int64_t count)
{
    double sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (int k = 0; k < 4; k++) sum[k] += a[i + k] * b[i + k];
    for (; i < count; i++) sum[0] += a[i] * b[i];
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

static double element(const bench_pattern *pattern, int64_t index)
{
    return pattern->values[index % BENCH_PERIOD];
}

static void keep(double *worst, double error)
{
    if (!(error <= *worst)) *worst = error;
}

static int check_forward(linear *l, double *error)
{
    double expected[COLUMNS], got[COLUMNS], slope;
    for (int r = 0; r < ROWS; r++) {
        int64_t row = sampled(l->rows, r, ROWS);
        bench_pattern_read(&l->patterns[X], row * l->in, l->in, l->x_row);
        for (int c = 0; c < COLUMNS; c++) {
            int64_t col = sampled(l->out, c, COLUMNS);
            bench_pattern_read(&l->patterns[W], col * l->in, l->in, l->w_row);
            double z = dot(l->x_row, l->w_row, l->in) + element(&l->patterns[B], col);
            activate(l->activation, round_to(l->dtype, z), &expected[c], &slope);
            APP_TRY(bench_read(l->machine->ctx, l->y, l->dtype, row * l->out + col, 1, &got[c]));
        }
        keep(error, bench_error(got, expected, COLUMNS, 0));
    }
    return APP_OK;
}

/* dz of one row, all columns, into z_row. */
static void dz_of_row(linear *l, int64_t row)
{
    double value, slope;
    bench_pattern_read(&l->patterns[X], row * l->in, l->in, l->x_row);
    for (int64_t col = 0; col < l->out; col++) {
        bench_pattern_read(&l->patterns[W], col * l->in, l->in, l->w_row);
        double z = dot(l->x_row, l->w_row, l->in) + element(&l->patterns[B], col);
        activate(l->activation, round_to(l->dtype, z), &value, &slope);
        l->z_row[col] = element(&l->patterns[DY], row * l->out + col) * slope;
    }
}

static int check_backward(linear *l, double *error)
{
    double expected[COLUMNS], got[COLUMNS], value, slope;
    for (int r = 0; r < ROWS; r++) {
        int64_t row = sampled(l->rows, r, ROWS);
        dz_of_row(l, row);
        for (int c = 0; c < COLUMNS; c++) {
            int64_t col = sampled(l->in, c, COLUMNS);
            expected[c] = 0;
            for (int64_t i = 0; i < l->out; i++)
                expected[c] += l->z_row[i] * element(&l->patterns[W], i * l->in + col);
            APP_TRY(bench_read(l->machine->ctx, l->dx, l->dtype, row * l->in + col, 1, &got[c]));
        }
        keep(error, bench_error(got, expected, COLUMNS, 0));
    }
    for (int r = 0; r < ROWS; r++) { /* some columns of two rows of dW, and db there */
        int64_t row = sampled(l->out, r, ROWS);
        double dbias = 0, got_dbias, bias = element(&l->patterns[B], row);
        memset(expected, 0, sizeof expected);
        bench_pattern_read(&l->patterns[W], row * l->in, l->in, l->w_row);
        for (int64_t i = 0; i < l->rows; i++) {
            bench_pattern_read(&l->patterns[X], i * l->in, l->in, l->x_row);
            double z = round_to(l->dtype, dot(l->x_row, l->w_row, l->in) + bias);
            activate(l->activation, z, &value, &slope);
            double dz = element(&l->patterns[DY], i * l->out + row) * slope;
            dbias += dz;
            for (int c = 0; c < COLUMNS; c++)
                expected[c] += dz * l->x_row[sampled(l->in, c, COLUMNS)];
        }
        for (int c = 0; c < COLUMNS; c++)
            APP_TRY(bench_read(l->machine->ctx, l->dweight, l->sums,
                               row * l->in + sampled(l->in, c, COLUMNS), 1, &got[c]));
        keep(error, bench_error(got, expected, COLUMNS, 0));
        APP_TRY(bench_read(l->machine->ctx, l->dbias, l->sums, row, 1, &got_dbias));
        /* db may cancel to nearly nothing: measure it by the size of what it sums */
        keep(error, fabs(got_dbias - dbias) / sqrt((double)l->rows));
    }
    return APP_OK;
}

static int prepare(linear *l)
{
    char options[160];
    snprintf(options, sizeof options, "in=%lld,out=%lld,dtype=%s,activation=%s", (long long)l->in,
             (long long)l->out, tutti_dtype_name(l->dtype), l->activation);
    APP_CHECK(tutti_layer_create_by_name(l->machine->ctx, "linear", options, &l->layer));
    APP_CHECK(tutti_layer_plan(l->layer, l->machine->ctx, l->rows));

    APP_TRY(bench_pattern_make(l->dtype, 1, 0, 1.7, &l->patterns[X]));
    APP_TRY(bench_pattern_make(l->dtype, 2, 0, 1.7 / sqrt((double)l->in), &l->patterns[W]));
    APP_TRY(bench_pattern_make(l->dtype, 3, 0, 0.5, &l->patterns[B]));
    APP_TRY(bench_pattern_make(l->dtype, 4, 0, 1.7, &l->patterns[DY]));
    bench_memory *memory = &l->memory;
    APP_TRY(bench_memory_fill(memory, &l->patterns[X], l->rows * l->in, &l->x));
    APP_TRY(bench_memory_fill(memory, &l->patterns[W], l->out * l->in, &l->weight));
    APP_TRY(bench_memory_fill(memory, &l->patterns[B], l->out, &l->bias));
    APP_TRY(bench_memory_fill(memory, &l->patterns[DY], l->rows * l->out, &l->dy));
    APP_TRY(bench_memory_alloc(memory, l->dtype, l->rows * l->out, &l->y));
    APP_TRY(bench_memory_alloc(memory, l->dtype, l->rows * l->in, &l->dx));
    APP_TRY(bench_memory_alloc(memory, l->sums, l->out * l->in, &l->dweight));
    APP_TRY(bench_memory_alloc(memory, l->sums, l->out, &l->dbias));
    size_t saved = tutti_layer_saved_bytes(l->layer, l->rows);
    if (saved) APP_TRY(bench_memory_alloc(memory, TUTTI_U8, (int64_t)saved, &l->saved));

    tutti_tensor weight = tutti_tensor_2d(l->weight, l->dtype, l->out, l->in);
    tutti_tensor dweight = tutti_tensor_2d(l->dweight, l->sums, l->out, l->in);
    tutti_tensor bias = tutti_tensor_1d(l->bias, l->dtype, l->out);
    tutti_tensor dbias = tutti_tensor_1d(l->dbias, l->sums, l->out);
    APP_CHECK(tutti_param_bind(tutti_layer_param(l->layer, 0), &weight, &dweight));
    APP_CHECK(tutti_param_bind(tutti_layer_param(l->layer, 1), &bias, &dbias));

    l->x_row = malloc((size_t)l->in * sizeof(double));
    l->w_row = malloc((size_t)l->in * sizeof(double));
    l->z_row = malloc((size_t)l->out * sizeof(double));
    if (!l->x_row || !l->w_row || !l->z_row)
        return app_fail(APP_FAILED, "no memory for a row of the reference");
    return APP_OK;
}

static int measure(linear *l, bench_sink sink, void *user)
{
    tutti_tensor x = tutti_tensor_2d(l->x, l->dtype, l->rows, l->in);
    tutti_tensor y = tutti_tensor_2d(l->y, l->dtype, l->rows, l->out);
    tutti_tensor dy = tutti_tensor_2d(l->dy, l->dtype, l->rows, l->out);
    tutti_tensor dx = tutti_tensor_2d(l->dx, l->dtype, l->rows, l->in);
    for (int backward = 0; backward < 2; backward++) {
        bench_call call = {l->machine->ctx, l->layer, TUTTI_CALL_INIT, backward};
        call.call.in[0] = &x;
        call.call.out[0] = &y;
        call.call.saved = l->saved;
        if (backward) {
            call.call.upstream[0] = &dy;
            call.call.din[0] = &dx;
        }
        bench_result result = {.dtype = l->dtype, .product = 1};
        snprintf(result.layer, sizeof result.layer, "linear");
        snprintf(result.pass, sizeof result.pass, backward ? "backward" : "forward");
        snprintf(result.variant, sizeof result.variant, "%s", l->activation);
        snprintf(result.shape, sizeof result.shape, "%lldx%lldx%lld", (long long)l->rows,
                 (long long)l->in, (long long)l->out);
        result.tolerance = bench_tolerance(l->dtype);
        result.amount = (backward ? 4.0 : 2.0) * (double)l->rows * (double)l->in * (double)l->out;
        bench_reference products = {.product = 1,
                                    .dtype = l->dtype,
                                    .rows = l->rows,
                                    .in = l->in,
                                    .out = l->out,
                                    .backward = backward};
        APP_TRY(bench_time(l->machine, bench_run_call, &call, &products, &result.seconds,
                           &result.reference));
        APP_TRY(bench_time_call(l->machine, bench_run_call, &call, l->rows, &result.seconds,
                                &result.call_seconds));
        APP_CHECK(tutti_context_check(l->machine->ctx));
        APP_TRY(backward ? check_backward(l, &result.error) : check_forward(l, &result.error));
        sink(user, &result);
    }
    return APP_OK;
}

int bench_linear(bench_machine *machine, tutti_dtype dtype, const char *activation, int64_t rows,
                 int64_t in, int64_t out, bench_sink sink, void *user)
{
    linear l = {
        .machine = machine,
        .dtype = dtype,
        .sums = dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32,
        .activation = activation,
        .rows = rows,
        .in = in,
        .out = out,
    };
    l.memory.ctx = machine->ctx;
    int code = prepare(&l);
    if (code == APP_OK) code = measure(&l, sink, user);
    bench_memory_free(&l.memory);
    tutti_layer_destroy(&l.layer);
    for (int i = 0; i < PATTERNS; i++) bench_pattern_free(&l.patterns[i]);
    free(l.x_row);
    free(l.w_row);
    free(l.z_row);
    return code;
}
