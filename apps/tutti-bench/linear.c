/* FusedLinear beside the bare matrix products. */
#include <math.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "layers.h"

enum { ROWS = 2, COLUMNS = 16 }; /* sampled */

typedef struct linear {
    bench_run *run;
    const bench_tensor *x, *w, *b, *dy;
    int64_t rows, in, out;
    double *x_row, *w_row; /* in elements each */
} linear;

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

static double element(const bench_tensor *tensor, int64_t index)
{
    return tensor->pattern.values[index % BENCH_PERIOD];
}

/* act and act' of one element's rounded z, from x_row and w_row. */
static void activated(const linear *l, int64_t col, double *value, double *slope)
{
    const double z = dot(l->x_row, l->w_row, l->in) + element(l->b, col);
    activate(l->run->variant, round_to(l->run->dtype, z), value, slope);
}

static int read_x(const linear *l, int64_t row)
{
    return bench_values(l->run, l->x, row * l->in, l->in, l->x_row);
}
static int read_w(const linear *l, int64_t row)
{
    return bench_values(l->run, l->w, row * l->in, l->in, l->w_row);
}

/* Some columns of a row of a result. */
static int compare(const linear *l, const char *name, int64_t row, int64_t cols,
                   const double expected[COLUMNS], double *error)
{
    double got[COLUMNS];
    for (int c = 0; c < COLUMNS; c++)
        APP_TRY(bench_values(l->run, bench_find(l->run, name),
                             row * cols + bench_sampled(cols, c, COLUMNS), 1, &got[c]));
    bench_keep(error, bench_error(got, expected, COLUMNS, 0));
    return APP_OK;
}

static int check_y(const linear *l, int64_t row, double *error)
{
    double expected[COLUMNS], slope;
    APP_TRY(read_x(l, row));
    for (int c = 0; c < COLUMNS; c++) {
        const int64_t col = bench_sampled(l->out, c, COLUMNS);
        APP_TRY(read_w(l, col));
        activated(l, col, &expected[c], &slope);
    }
    return compare(l, "y", row, l->out, expected, error);
}

static int check_dx(const linear *l, int64_t row, double *error)
{
    double expected[COLUMNS] = {0}, value, slope;
    APP_TRY(read_x(l, row));
    for (int64_t col = 0; col < l->out; col++) {
        APP_TRY(read_w(l, col));
        activated(l, col, &value, &slope);
        const double dz = element(l->dy, row * l->out + col) * slope;
        for (int c = 0; c < COLUMNS; c++)
            expected[c] += dz * l->w_row[bench_sampled(l->in, c, COLUMNS)];
    }
    return compare(l, "dx", row, l->in, expected, error);
}

/* A row of dW, and db there. */
static int check_dw(const linear *l, int64_t row, double *error)
{
    double expected[COLUMNS] = {0}, dbias = 0, got, value, slope;
    APP_TRY(read_w(l, row));
    for (int64_t i = 0; i < l->rows; i++) {
        APP_TRY(read_x(l, i));
        activated(l, row, &value, &slope);
        const double dz = element(l->dy, i * l->out + row) * slope;
        dbias += dz;
        for (int c = 0; c < COLUMNS; c++)
            expected[c] += dz * l->x_row[bench_sampled(l->in, c, COLUMNS)];
    }
    APP_TRY(compare(l, "dweight", row, l->in, expected, error));
    APP_TRY(bench_values(l->run, bench_find(l->run, "dbias"), row, 1, &got));
    /* db may cancel to nearly nothing: measure it by the size of what it sums */
    bench_keep(error, fabs(got - dbias) / sqrt((double)l->rows));
    return APP_OK;
}

static int check(bench_run *run, bench_result *result)
{
    linear l = {.run = run,
                .x = bench_find(run, "x"),
                .w = bench_find(run, "weight"),
                .b = bench_find(run, "bias"),
                .dy = bench_find(run, "dy"),
                .rows = run->rows,
                .in = run->shape.dims[1],
                .out = run->shape.dims[2]};
    APP_TRY(bench_scratch(run, 2 * l.in, &l.x_row));
    l.w_row = l.x_row + l.in;
    for (int r = 0; r < ROWS; r++) {
        const int64_t row = bench_sampled(l.rows, r, ROWS);
        APP_TRY((run->backward ? check_dx : check_y)(&l, row, &result->error));
        if (run->backward) APP_TRY(check_dw(&l, bench_sampled(l.out, r, ROWS), &result->error));
    }
    return APP_OK;
}

/* y's product alone, or those of dx and dW. */
static void count(const bench_run *run, bench_result *result, bench_reference *reference)
{
    *reference = (bench_reference){.product = 1,
                                   .dtype = run->dtype,
                                   .rows = run->rows,
                                   .in = run->shape.dims[1],
                                   .out = run->shape.dims[2],
                                   .backward = run->backward};
    result->product = 1;
    result->amount = (run->backward ? 4.0 : 2.0) * (double)run->rows * (double)reference->in *
                     (double)reference->out;
}

const bench_layer bench_linear = {
    .gpu = {{3, {8192, 4096, 4096}}, {3, {8192, 1024, 4096}}, {3, {4096, 4096, 16384}}},
    .host = {{3, {256, 784, 256}}, {3, {512, 512, 512}}, {3, {512, 256, 1024}}},
    .variant = "activation",
    .variants = "none,gelu",
    .key = 'a',
    .about_zero = true,
    .count = count,
    .check = check,
};
