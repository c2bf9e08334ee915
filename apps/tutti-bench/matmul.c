/* The batched matrix product, compared with the bare products of the same transposes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "layers.h"

/* An item of the batch: its matrices as they are stored. */
typedef struct item {
    int64_t number, m, n, k;
    bool ta, tb;
    double *a, *b, *dc;
} item;

static bool has(const bench_run *run, const char *option)
{
    return strstr(run->options, option);
}

static int read_item(const bench_run *run, int64_t number, item *of)
{
    *of = (item){number,
                 run->shape.dims[1],
                 run->shape.dims[2],
                 run->shape.dims[3],
                 has(run, "transpose_a=1"),
                 has(run, "transpose_b=1"),
                 NULL,
                 NULL,
                 NULL};
    const int64_t a = of->m * of->k, b = of->k * of->n, dc = of->m * of->n;
    of->a = calloc((size_t)(a + b + dc), sizeof *of->a);
    if (!of->a) return app_fail(APP_FAILED, "no memory for the reference");
    of->b = of->a + a, of->dc = of->b + b;
    APP_TRY(bench_values(run, bench_find(run, "a"), number * a, a, of->a));
    APP_TRY(bench_values(run, bench_find(run, "b"), number * b, b, of->b));
    return bench_values(run, bench_find(run, "dc"), number * dc, dc, of->dc);
}

/* Some of the indices of each dimension: one, or all of it. */
typedef struct part {
    int64_t i, m, j, n, l, k;
} part;

/* `rows` rows of op(matrix), which is [high, wide], from `row` on, and of these `cols` columns from
 * `col` on. */
static void pick(const double *matrix, bool transposed, int64_t high, int64_t wide, int64_t row,
                 int64_t rows, int64_t col, int64_t cols, double *to)
{
    for (int64_t r = row; r < row + rows; r++)
        for (int64_t c = col; c < col + cols; c++)
            *to++ = transposed ? matrix[c * high + r] : matrix[r * wide + c];
}

/* The product of a part of an item, without transposes: the result of a name, from element `first`
 * of its tensor on. */
static int check_part(bench_run *run, bench_result *result, const item *of, const part *p,
                      const char *name, int64_t first, int64_t count)
{
    const int64_t a = p->m * p->k, b = p->k * p->n, dc = p->m * p->n;
    reference_problem problem = bench_problem(run, 0, 1);
    problem.layer = NULL;
    char options[256];
    double *memory = calloc((size_t)(a + b + dc + 2 * count), sizeof *memory);
    if (!memory) return app_fail(APP_FAILED, "no memory for the reference");
    double *const want = memory + a + b + dc;
    pick(of->a, of->ta, of->m, of->k, p->i, p->m, p->l, p->k, memory);
    pick(of->b, of->tb, of->k, of->n, p->l, p->k, p->j, p->n, memory + a);
    pick(of->dc, false, of->m, of->n, p->i, p->m, p->j, p->n, memory + a + b);
    snprintf(options, sizeof options, "m=%lld,n=%lld,k=%lld,dtype=%s", (long long)p->m,
             (long long)p->n, (long long)p->k, tutti_dtype_name(run->dtype));
    int code = app_check(
        tutti_layer_create_by_name(run->machine->ctx, run->type->name, options, &problem.layer));
    problem.options = options;
    problem.any_order = true;
    if (code == APP_OK) {
        reference_place(&problem, "a")->given = memory;
        reference_place(&problem, "b")->given = memory + a;
        reference_place(&problem, "dc")->given = memory + a + b;
        *reference_place(&problem, name) = (reference_tensor){NULL, want, want + count};
        const char *wrong = reference_compute(&problem);
        code = wrong ? app_fail(APP_FAILED, "%s: %s", run->type->name, wrong)
                     : bench_compare(run, result, bench_find(run, name), first, count, want,
                                     want + count);
    }
    tutti_layer_destroy(&problem.layer);
    free(memory);
    return code;
}

/* A line of each result, as it is stored. */
static int check_item(bench_run *run, bench_result *result, const item *of, int sample)
{
    const int64_t m = of->m, n = of->n, k = of->k, number = of->number;
    const int64_t i = bench_sampled(m, sample), j = bench_sampled(n, sample),
                  l = bench_sampled(k, sample);
    const part line = {i, 1, 0, n, 0, k}, column = {0, m, j, 1, 0, k}, inner = {0, m, 0, n, l, 1};
    if (!run->backward) return check_part(run, result, of, &line, "c", (number * m + i) * n, n);
    APP_TRY(of->ta ? check_part(run, result, of, &inner, "da", (number * k + l) * m, m)
                   : check_part(run, result, of, &line, "da", (number * m + i) * k, k));
    return of->tb ? check_part(run, result, of, &column, "db", (number * n + j) * k, k)
                  : check_part(run, result, of, &inner, "db", (number * k + l) * n, n);
}

static int check(bench_run *run, bench_result *result)
{
    int code = APP_OK;
    for (int s = 0; code == APP_OK && s < BENCH_SAMPLES; s++) {
        item of = {0};
        code = read_item(run, bench_sampled(run->rows, s), &of);
        if (code == APP_OK) code = check_item(run, result, &of, s);
        free(of.a);
    }
    return code;
}

/* c, or da and db: of transposed operands, the transposes of the gradients' products. */
static void count(const bench_run *run, bench_result *result, bench_reference *reference)
{
    enum { A, B, C, DA, DB };
    const int64_t batch = run->rows, *dims = run->shape.dims, m = dims[1], n = dims[2], k = dims[3];
    const bool ta = has(run, "transpose_a=1"), tb = has(run, "transpose_b=1");
    const bench_product c = {batch, m, n, k, ta, tb, A, B, C, 0};
    const bench_product da = ta ? (bench_product){batch, k, m, n, tb, 1, B, C, DA, 0}
                                : (bench_product){batch, m, k, n, 0, !tb, C, B, DA, 0};
    const bench_product db = tb ? (bench_product){batch, n, k, m, 1, ta, C, A, DB, 0}
                                : (bench_product){batch, k, n, m, !ta, 0, A, C, DB, 0};
    reference->dtype = run->dtype;
    reference->product_count = run->backward ? 2 : 1;
    reference->products[0] = run->backward ? da : c;
    reference->products[1] = db;
    result->amount =
        (run->backward ? 4.0 : 2.0) * (double)batch * (double)m * (double)n * (double)k;
}

/* As BLAS names them: of a, then of b. */
static const char *const transposes[][2] = {{"NN", ""},
                                            {"TN", "transpose_a=1"},
                                            {"NT", "transpose_b=1"},
                                            {"TT", "transpose_a=1,transpose_b=1"},
                                            {NULL, NULL}};

const bench_layer bench_matmul = {
    .gpu = {{4, {1, 4096, 4096, 4096}}, {4, {16, 2048, 2048, 2048}}, {4, {512, 512, 512, 64}}},
    .host = {{4, {1, 512, 512, 512}}, {4, {8, 256, 256, 256}}, {4, {64, 64, 64, 64}}},
    .named = transposes,
    .about_zero = true,
    .count = count,
    .products = true,
    .check = check,
};
