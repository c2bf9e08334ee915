/* MLP, compared with the bare matrix products. */
#include <stdio.h>
#include <stdlib.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "layers.h"

/* A layer with one of the hidden columns only: all rows of x and dy. */
typedef struct column {
    double *x, *dy, *weight1, *weight2, *bias1; /* bias2 does not matter to the gradients */
    double *dweight1, *dweight2, *dbias1;       /* each is followed by its bounds */
} column;

static int read_column(const bench_run *run, int64_t col, const column *c)
{
    const int64_t in = run->shape.dims[1], hidden = run->shape.dims[2], out = run->shape.dims[3];
    APP_TRY(bench_values(run, bench_find(run, "weight1"), col * in, in, c->weight1));
    for (int64_t j = 0; j < out; j++)
        APP_TRY(bench_values(run, bench_find(run, "weight2"), j * hidden + col, 1, &c->weight2[j]));
    bench_tensor *bias1 = bench_find(run, "bias1");
    return bias1 ? bench_values(run, bias1, col, 1, c->bias1) : APP_OK;
}

static int compute_column(bench_run *run, const column *c)
{
    const int64_t in = run->shape.dims[1], out = run->shape.dims[3];
    reference_problem problem = bench_problem(run, 0, run->rows);
    char options[512];
    snprintf(options, sizeof options, "in=%lld,hidden=1,out=%lld,dtype=%s,activation=%s%s%s",
             (long long)in, (long long)out, tutti_dtype_name(run->dtype), run->variant,
             run->set ? "," : "", run->set ? run->set : "");
    APP_CHECK(
        tutti_layer_create_by_name(run->machine->ctx, run->type->name, options, &problem.layer));
    problem.options = options;
    problem.any_order = true;
    reference_place(&problem, "x")->given = c->x;
    reference_place(&problem, "dy")->given = c->dy;
    reference_place(&problem, "weight1")->given = c->weight1;
    reference_place(&problem, "weight2")->given = c->weight2;
    *reference_place(&problem, "dweight1") =
        (reference_tensor){NULL, c->dweight1, c->dweight1 + in};
    *reference_place(&problem, "dweight2") =
        (reference_tensor){NULL, c->dweight2, c->dweight2 + out};
    if (bench_find(run, "bias1")) {
        reference_place(&problem, "bias1")->given = c->bias1;
        *reference_place(&problem, "dbias1") = (reference_tensor){NULL, c->dbias1, c->dbias1 + 1};
    }
    const char *wrong = reference_compute(&problem);
    tutti_layer_destroy(&problem.layer);
    return wrong ? app_fail(APP_FAILED, "%s: %s", run->type->name, wrong) : APP_OK;
}

static int compare_column(bench_run *run, bench_result *result, int64_t col, const column *c)
{
    const int64_t in = run->shape.dims[1], hidden = run->shape.dims[2], out = run->shape.dims[3];
    APP_TRY(bench_compare(run, result, bench_find(run, "dweight1"), col * in, in, c->dweight1,
                          c->dweight1 + in));
    for (int64_t j = 0; j < out; j++)
        APP_TRY(bench_compare(run, result, bench_find(run, "dweight2"), j * hidden + col, 1,
                              c->dweight2 + j, c->dweight2 + out + j));
    bench_tensor *dbias1 = bench_find(run, "dbias1");
    return dbias1 ? bench_compare(run, result, dbias1, col, 1, c->dbias1, c->dbias1 + 1) : APP_OK;
}

/* Gradients of some hidden columns' weights and biases. */
static int check_sums(bench_run *run, bench_result *result)
{
    const int64_t in = run->shape.dims[1], out = run->shape.dims[3];
    const int64_t x_count = run->rows * in, dy_count = run->rows * out;
    column c = {.x = calloc((size_t)(x_count + dy_count + 3 * (in + out + 1)), sizeof *c.x)};
    if (!c.x) return app_fail(APP_FAILED, "no memory for the reference");
    c.dy = c.x + x_count, c.weight1 = c.dy + dy_count, c.weight2 = c.weight1 + in;
    c.bias1 = c.weight2 + out, c.dweight1 = c.bias1 + 1;
    c.dweight2 = c.dweight1 + 2 * in, c.dbias1 = c.dweight2 + 2 * out;
    int code = bench_values(run, bench_find(run, "x"), 0, x_count, c.x);
    if (code == APP_OK) code = bench_values(run, bench_find(run, "dy"), 0, dy_count, c.dy);
    for (int s = 0; code == APP_OK && s < BENCH_SAMPLES; s++) {
        const int64_t col = bench_sampled(run->shape.dims[2], s);
        code = read_column(run, col, &c);
        if (code == APP_OK) code = compute_column(run, &c);
        if (code == APP_OK) code = compare_column(run, result, col, &c);
    }
    free(c.x);
    return code;
}

/* The two products of forward, or the four of backward. */
static void count(const bench_run *run, bench_result *result, bench_reference *reference)
{
    enum { X, W1, H, W2, Y, DH, DX, DW1, DW2 };
    const int64_t rows = run->rows, in = run->shape.dims[1], hidden = run->shape.dims[2];
    const int64_t out = run->shape.dims[3];
    const bench_product forward[] = {{1, rows, hidden, in, 0, 1, X, W1, H, 0},
                                     {1, rows, out, hidden, 0, 1, H, W2, Y, 0}};
    const bench_product backward[] = {{1, rows, hidden, out, 0, 0, Y, W2, DH, 0},
                                      {1, out, hidden, rows, 1, 0, Y, H, DW2, 1},
                                      {1, rows, in, hidden, 0, 0, DH, W1, DX, 0},
                                      {1, hidden, in, rows, 1, 0, DH, X, DW1, 1}};
    reference->dtype = run->dtype;
    reference->product_count = run->backward ? 4 : 2;
    for (int i = 0; i < reference->product_count; i++)
        reference->products[i] = run->backward ? backward[i] : forward[i];
    result->product = 1;
    result->amount =
        (run->backward ? 4.0 : 2.0) * (double)rows * (double)hidden * (double)(in + out);
}

const bench_layer bench_mlp = {
    .gpu = {{4, {8192, 4096, 4096, 4096}},
            {4, {8192, 1024, 4096, 1024}},
            {4, {8192, 2048, 8192, 2048}}},
    .host = {{4, {256, 256, 1024, 256}}, {4, {512, 128, 512, 128}}},
    .variant = "activation",
    .variants = "gelu",
    .key = 'a',
    .about_zero = true,
    .count = count,
    .check_sums = check_sums,
};
