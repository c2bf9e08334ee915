/* FusedLinear, compared with the bare matrix products. */
#include <stdio.h>
#include <stdlib.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "layers.h"

/* A layer with one of the outputs only: all rows of x and one column of dy. */
typedef struct column {
    double *x, *weight, *bias, *dy, *dweight, *dbias; /* results are followed by their bounds */
} column;

static int read_column(const bench_run *run, int64_t col, const column *c)
{
    const int64_t in = run->shape.dims[1], out = run->shape.dims[2];
    APP_TRY(bench_values(run, bench_find(run, "x"), 0, run->rows * in, c->x));
    APP_TRY(bench_values(run, bench_find(run, "weight"), col * in, in, c->weight));
    if (bench_find(run, "bias"))
        APP_TRY(bench_values(run, bench_find(run, "bias"), col, 1, c->bias));
    for (int64_t i = 0; i < run->rows; i++)
        APP_TRY(bench_values(run, bench_find(run, "dy"), i * out + col, 1, &c->dy[i]));
    return APP_OK;
}

static int compute_column(bench_run *run, const column *c)
{
    const int64_t in = run->shape.dims[1];
    reference_problem problem = bench_problem(run, 0, run->rows);
    char options[512];
    snprintf(options, sizeof options, "in=%lld,out=1,dtype=%s,activation=%s%s%s", (long long)in,
             tutti_dtype_name(run->dtype), run->variant[0] ? run->variant : "none",
             run->set ? "," : "", run->set ? run->set : "");
    APP_CHECK(
        tutti_layer_create_by_name(run->machine->ctx, run->type->name, options, &problem.layer));
    problem.options = options;
    problem.any_order = true;
    reference_place(&problem, "x")->given = c->x;
    reference_place(&problem, "weight")->given = c->weight;
    reference_place(&problem, "dy")->given = c->dy;
    *reference_place(&problem, "dweight") = (reference_tensor){NULL, c->dweight, c->dweight + in};
    if (bench_find(run, "bias")) {
        reference_place(&problem, "bias")->given = c->bias;
        *reference_place(&problem, "dbias") = (reference_tensor){NULL, c->dbias, c->dbias + 1};
    }
    const char *wrong = reference_compute(&problem);
    tutti_layer_destroy(&problem.layer);
    return wrong ? app_fail(APP_FAILED, "%s: %s", run->type->name, wrong) : APP_OK;
}

/* Gradients of some outputs' weights and biases. */
static int check_sums(bench_run *run, bench_result *result)
{
    const int64_t in = run->shape.dims[1], x_count = run->rows * in;
    column c = {.x = calloc((size_t)(x_count + run->rows + 3 * in + 3), sizeof *c.x)};
    if (!c.x) return app_fail(APP_FAILED, "no memory for the reference");
    c.dy = c.x + x_count, c.weight = c.dy + run->rows, c.dweight = c.weight + in;
    c.bias = c.dweight + 2 * in, c.dbias = c.bias + 1;
    int code = APP_OK;
    for (int s = 0; code == APP_OK && s < BENCH_SAMPLES; s++) {
        const int64_t col = bench_sampled(run->shape.dims[2], s);
        code = read_column(run, col, &c);
        if (code == APP_OK) code = compute_column(run, &c);
        if (code == APP_OK)
            code = bench_compare(run, result, bench_find(run, "dweight"), col * in, in, c.dweight,
                                 c.dweight + in);
        if (code == APP_OK && bench_find(run, "dbias"))
            code =
                bench_compare(run, result, bench_find(run, "dbias"), col, 1, c.dbias, c.dbias + 1);
    }
    free(c.x);
    return code;
}

/* y's product alone, or those of dx and dW. */
static void count(const bench_run *run, bench_result *result, bench_reference *reference)
{
    enum { X, W, Y, DX, DW };
    const int64_t rows = run->rows, in = run->shape.dims[1], out = run->shape.dims[2];
    const bench_product y = {1, rows, out, in, 0, 1, X, W, Y, 0};
    const bench_product dx = {1, rows, in, out, 0, 0, Y, W, DX, 0};
    const bench_product dw = {1, out, in, rows, 1, 0, Y, X, DW, 1};
    reference->dtype = run->dtype;
    reference->product_count = run->backward ? 2 : 1;
    reference->products[0] = run->backward ? dx : y;
    reference->products[1] = dw;
    result->product = 1;
    result->amount = (run->backward ? 4.0 : 2.0) * (double)rows * (double)in * (double)out;
}

const bench_layer bench_linear = {
    .gpu = {{3, {8192, 4096, 4096}}, {3, {8192, 1024, 4096}}, {3, {4096, 4096, 16384}}},
    .host = {{3, {256, 784, 256}}, {3, {512, 512, 512}}, {3, {512, 256, 1024}}},
    .variant = "activation",
    .variants = "none,gelu",
    .key = 'a',
    .about_zero = true,
    .count = count,
    .check_sums = check_sums,
};
