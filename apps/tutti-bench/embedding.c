/* Embedding. */
#include <stdio.h>
#include <stdlib.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "layers.h"

/* Tokens, the rows of the table that they name, and y; backward: tokens, dy, and the whole
 * gradient of the table. */
static void count(const bench_run *run, bench_result *result, bench_reference *reference)
{
    (void)reference;
    const double cols = (double)run->shape.dims[2], rows = (double)run->rows;
    const double row_bytes = cols * (double)tutti_dtype_size(run->dtype);
    const double table =
        (double)run->shape.dims[1] * cols * (double)tutti_dtype_size(bench_sums(run->dtype));
    result->amount = rows * (4 + (run->backward ? 1 : 2) * row_bytes) + (run->backward ? table : 0);
}

/* Checks a token's gradient by a table of that token alone, with the rows that name it. */
static int check_token(bench_run *run, int32_t token, bench_result *result)
{
    const int64_t cols = run->shape.dims[2];
    const int32_t *tokens = bench_find(run, "tokens")->indices;
    reference_problem problem = bench_problem(run, 0, 0);
    char options[128];
    int64_t rows = 0;
    for (int64_t i = 0; i < run->rows; i++) rows += tokens[i] == token;
    double *dy = calloc((size_t)(rows * (cols + 1) + 2 * cols), sizeof *dy);
    if (!dy) return app_fail(APP_FAILED, "no memory for the reference");
    double *const zeros = dy + rows * cols, *const sum = zeros + rows, *const bound = sum + cols;
    int code = APP_OK;
    for (int64_t i = 0; code == APP_OK && i < run->rows; i++)
        if (tokens[i] == token)
            code = bench_values(run, bench_find(run, "dy"), i * cols, cols,
                                dy + problem.rows++ * cols);
    snprintf(options, sizeof options, "vocab=1,cols=%lld,dtype=%s", (long long)cols,
             tutti_dtype_name(run->dtype));
    problem.options = options;
    if (code == APP_OK)
        code = app_check(tutti_layer_create_by_name(run->machine->ctx, run->type->name, options,
                                                    &problem.layer));
    if (code == APP_OK) {
        reference_place(&problem, "tokens")->given = zeros;
        reference_place(&problem, "dy")->given = dy;
        *reference_place(&problem, "dweight") = (reference_tensor){NULL, sum, bound};
        const char *wrong = reference_compute(&problem);
        code = wrong ? app_fail(APP_FAILED, "%s: %s", run->type->name, wrong)
                     : bench_compare(run, result, bench_find(run, "dweight"), token * cols, cols,
                                     sum, bound);
        tutti_layer_destroy(&problem.layer);
    }
    free(dy);
    return code;
}

/* Rows of the table's gradient: of the commonest token, and of some others. */
static int check_sums(bench_run *run, bench_result *result)
{
    const int32_t *tokens = bench_find(run, "tokens")->indices;
    for (int s = 0; s < BENCH_SAMPLES; s++)
        APP_TRY(check_token(run, s == 0 ? 0 : tokens[bench_sampled(run->rows, s)], result));
    return APP_OK;
}

const bench_layer bench_embedding = {
    .gpu = {{3, {32768, 50257, 1024}}, {3, {65536, 256, 1024}}, {3, {8192, 50257, 4096}}},
    .host = {{3, {4096, 256, 256}}, {3, {1024, 50257, 256}}, {3, {512, 256, 4096}}},
    .count = count,
    .check_sums = check_sums,
};
