/* Checks what was timed: some rows against reference/, sums over rows against the same layer in f64
 * on the host or as the kind's own file defines. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "layers.h"

void bench_keep(bench_result *result, double error, double allowed)
{
    if (isnan(error)) error = INFINITY;
    if (error * result->tolerance > result->error * allowed) { /* no division: `allowed` may be 0 */
        result->error = error;
        result->tolerance = allowed;
    }
}

int bench_compare(bench_run *run, bench_result *result, const bench_tensor *tensor, int64_t first,
                  int64_t count, const double *expected, const double *bound)
{
    double *got, largest = 0;
    APP_TRY(bench_scratch(run, count, &got));
    APP_TRY(bench_values(run, tensor, first, count, got));
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(expected[i]));
    if (largest == 0) largest = 1;
    for (int64_t i = 0; i < count; i++)
        if (got[i] != expected[i])
            bench_keep(result, fabs(got[i] - expected[i]) / largest, bound[i] / largest);
    return APP_OK;
}

static bool is_output(const bench_run *run, int tensor)
{
    return tensor / 2 < run->slots && run->type->slots[tensor / 2].role == TUTTI_SLOT_OUT;
}

static bool has_rows(const bench_run *run, int tensor)
{
    return tensor / 2 < run->slots && !(run->type->slots[tensor / 2].flags & TUTTI_SLOT_SUM);
}

static bool is_result(const bench_run *run, int tensor)
{
    const bool output = is_output(run, tensor), gradient = tensor % 2;
    if (!run->tensors[tensor].view.data) return false;
    return run->backward ? gradient && !output : output && !gradient;
}

static bool is_row_result(const bench_run *run, int tensor)
{
    return is_result(run, tensor) && has_rows(run, tensor);
}

/* Inputs and parameters; in backward also what forward stored, and its gradients. */
static bool is_given(const bench_run *run, int tensor)
{
    const bool gradient = tensor % 2;
    if (!run->tensors[tensor].view.data || is_result(run, tensor)) return false;
    if (is_output(run, tensor)) return run->backward && has_rows(run, tensor);
    return !gradient;
}

reference_problem bench_problem(const bench_run *run, int64_t row, int64_t rows)
{
    return (reference_problem){.layer = run->layer,
                               .options = run->options,
                               .rows = rows,
                               .first_row = run->first_row + row,
                               .step = {.step = 1, .loss_weight = 1}};
}

/* A row's values of an input, or room for those of a result; the caller frees *memory.  Parameters
 * are read once, for all rows. */
static int take(const bench_run *run, int tensor, int64_t row, reference_tensor *place,
                double **memory)
{
    const bench_tensor *from = &run->tensors[tensor];
    const int64_t all = tutti_tensor_count(&from->view);
    const int64_t count = has_rows(run, tensor) ? all / run->rows : all;
    const bool result = is_row_result(run, tensor), first = !*memory;
    if (!result && !is_given(run, tensor)) return APP_OK;
    if (first) *memory = calloc(2 * (size_t)count, sizeof **memory);
    if (!*memory) return app_fail(APP_FAILED, "no memory for the reference");
    if (result)
        *place = (reference_tensor){.value = *memory, .bound = *memory + count};
    else
        place->given = *memory;
    if (result || !(first || has_rows(run, tensor))) return APP_OK;
    return bench_values(run, from, has_rows(run, tensor) ? row * count : 0, count, *memory);
}

/* A layer may leave out parameters of its kind, so they are found by name. */
static reference_tensor *place_of(const bench_run *run, reference_problem *problem, int tensor)
{
    const int i = tensor / 2;
    if (i < run->slots) return &problem->slots[i][tensor % 2];
    int number = 0;
    const char *name = tutti_layer_param(run->layer, i - run->slots)->name;
    while (strcmp(run->type->params[number].name, name) != 0) number++;
    return &problem->params[number][tensor % 2];
}

static int check_row(bench_run *run, int64_t row, double **memory, bench_result *result)
{
    const int count = 2 * (run->slots + run->params);
    reference_problem problem = bench_problem(run, row, 1);
    for (int i = 0; i < count; i++)
        APP_TRY(take(run, i, row, place_of(run, &problem, i), &memory[i]));
    const char *wrong = reference_compute(&problem);
    if (wrong) return app_fail(APP_FAILED, "%s: %s", run->type->name, wrong);
    for (int i = 0; i < count; i++) {
        if (!is_row_result(run, i)) continue;
        const reference_tensor *place = place_of(run, &problem, i);
        const int64_t cols = tutti_tensor_count(&run->tensors[i].view) / run->rows;
        APP_TRY(bench_compare(run, result, &run->tensors[i], row * cols, cols, place->value,
                              place->bound));
    }
    return APP_OK;
}

static int check_rows(bench_run *run, bench_result *result)
{
    const int count = 2 * (run->slots + run->params);
    double **memory = calloc((size_t)count, sizeof *memory);
    int code = memory ? APP_OK : app_fail(APP_FAILED, "no memory for the reference");
    for (int s = 0; code == APP_OK && s < BENCH_SAMPLES; s++)
        code = check_row(run, bench_sampled(run->rows, s), memory, result);
    for (int i = 0; memory && i < count; i++) free(memory[i]);
    free(memory);
    return code;
}

/* Compares with the same run in f64 on the host: some rows of a tensor that has rows, all of a sum
 * over rows. */
static int compare_with(bench_run *run, bench_run *twin, int tensor, bench_result *result)
{
    const int64_t count = tutti_tensor_count(&run->tensors[tensor].view);
    const int64_t width = has_rows(run, tensor) ? count / run->rows : count;
    double *got, *expected;
    APP_TRY(bench_scratch(run, width, &got));
    APP_TRY(bench_scratch(twin, width, &expected));
    for (int s = 0; s < (width < count ? BENCH_SAMPLES : 1); s++) {
        const int64_t first = width < count ? bench_sampled(run->rows, s) * width : 0;
        APP_TRY(bench_values(run, &run->tensors[tensor], first, width, got));
        APP_TRY(bench_values(twin, &twin->tensors[tensor], first, width, expected));
        bench_keep(result, bench_error(got, expected, width, 0), bench_tolerance(run->dtype));
    }
    return APP_OK;
}

static int check_by_f64(bench_run *run, bench_result *result, bool known)
{
    bench_machine host = {0};
    bench_run twin = {.machine = &host,
                      .type = run->type,
                      .own = run->own,
                      .variant = run->variant,
                      .more = run->more,
                      .shape = run->shape,
                      .dtype = TUTTI_F64,
                      .rounded = run->rounded};
    const tutti_context_desc desc = {.backend = TUTTI_BACKEND_HOST};
    APP_CHECK(tutti_context_create(&desc, &host.ctx));
    int code = bench_prepare(&twin);
    if (code == APP_OK) code = bench_layer_call(&twin);
    twin.backward = run->backward;
    if (code == APP_OK && twin.backward) code = bench_layer_call(&twin);
    for (int i = 0; code == APP_OK && i < 2 * (run->slots + run->params); i++)
        if (is_result(run, i) && !(known && is_row_result(run, i)))
            code = compare_with(run, &twin, i, result);
    bench_release(&twin);
    tutti_context_destroy(&host.ctx);
    return code;
}

int bench_check(bench_run *run, bench_result *result)
{
    const bool known = reference_knows(run->type->name);
    if (run->own->check) return run->own->check(run, result);
    bool rows = false, others = false;
    for (int i = 0; i < 2 * (run->slots + run->params); i++) {
        rows = rows || (known && is_row_result(run, i));
        others = others || (is_result(run, i) && !(known && is_row_result(run, i)));
    }
    if (rows) APP_TRY(check_rows(run, result));
    if (!others) return APP_OK;
    return run->own->check_sums ? run->own->check_sums(run, result)
                                : check_by_f64(run, result, known);
}
