/* Checks what was timed: some rows against reference/, then all (check_all.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "layers.h"
#include "reference/spread.h"

void bench_keep(bench_result *result, double error, double allowed)
{
    if (isnan(error)) error = INFINITY;
    if (error * result->tolerance > result->error * allowed) { /* no division: `allowed` may be 0 */
        result->error = error;
        result->tolerance = allowed;
    }
}

int bench_compare(bench_run *run, bench_result *result, bench_tensor *tensor, int64_t first,
                  int64_t count, const double *expected, const double *bound)
{
    double *got, largest = 0;
    APP_TRY(bench_scratch(run, count, &got));
    APP_TRY(bench_values(run, tensor, first, count, got));
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(expected[i]));
    if (largest == 0) largest = 1;
    const double roundoff = (double)spread_roundoff(tensor->view.dtype);
    tensor->bounded = true;
    for (int64_t i = 0; i < count; i++) {
        tensor->slack = fmax(tensor->slack, bound[i] - roundoff * fabs(expected[i]));
        if (got[i] != expected[i])
            bench_keep(result, fabs(got[i] - expected[i]) / largest, bound[i] / largest);
    }
    return APP_OK;
}

static bool is_output(const bench_run *run, int tensor)
{
    return tensor / 2 < run->slots && run->type->slots[tensor / 2].role == TUTTI_SLOT_OUT;
}

bool bench_has_rows(const bench_run *run, int tensor)
{
    return tensor / 2 < run->slots && !(run->type->slots[tensor / 2].flags & TUTTI_SLOT_SUM);
}

bool bench_is_result(const bench_run *run, int tensor)
{
    const bool output = is_output(run, tensor), gradient = tensor % 2;
    if (!run->tensors[tensor].view.data) return false;
    return run->backward ? gradient && !output : output && !gradient;
}

static bool is_row_result(const bench_run *run, int tensor)
{
    return bench_is_result(run, tensor) && bench_has_rows(run, tensor);
}

/* Inputs and parameters; in backward also what forward stored, and its gradients. */
static bool is_given(const bench_run *run, int tensor)
{
    const bool gradient = tensor % 2;
    if (!run->tensors[tensor].view.data || bench_is_result(run, tensor)) return false;
    if (is_output(run, tensor)) return run->backward && bench_has_rows(run, tensor);
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
    const int64_t count = bench_has_rows(run, tensor) ? all / run->rows : all;
    const bool result = is_row_result(run, tensor), first = !*memory;
    if (!result && !is_given(run, tensor)) return APP_OK;
    if (first) *memory = calloc(2 * (size_t)count, sizeof **memory);
    if (!*memory) return app_fail(APP_FAILED, "no memory for the reference");
    if (result)
        *place = (reference_tensor){.value = *memory, .bound = *memory + count};
    else
        place->given = *memory;
    if (result || !(first || bench_has_rows(run, tensor))) return APP_OK;
    return bench_values(run, from, bench_has_rows(run, tensor) ? row * count : 0, count, *memory);
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

/* Kinds that count or check for themselves: a row may be a matrix product, of some 0.3 s. */
static bool is_dear(const bench_run *run)
{
    return run->own->count || run->own->check;
}

/* So many that they take reference/ about 20 ms; of dear rows, few. */
int64_t bench_sampled_rows(const bench_run *run)
{
    enum { ELEMENTS = 1 << 16, MOST = 1 << 10 };
    const int64_t room = is_dear(run) ? 0 : ELEMENTS / bench_widest(run);
    const int64_t fit = room < MOST ? room : MOST;
    const int64_t wanted = fit > BENCH_SAMPLES ? fit : BENCH_SAMPLES;
    return wanted < run->rows ? wanted : run->rows;
}

int64_t bench_sampled_row(const bench_run *run, int64_t index)
{
    const int64_t count = bench_sampled_rows(run);
    return count == 1 ? 0 : (run->rows - 1) * index / (count - 1);
}

/* Checks the samples, or the suspects up to the first that is wrong.  Where there are too many to
 * judge, the result counts as wrong: it is off, whatever the reason. */
static int check_rows(bench_run *run, bench_result *result, const bool *suspects)
{
    enum { JUDGED_MAX = 4096, DEAR_MAX = 64 };
    const int64_t most = is_dear(run) ? DEAR_MAX : JUDGED_MAX;
    const int count = 2 * (run->slots + run->params);
    const int64_t rows = suspects ? run->rows : bench_sampled_rows(run);
    double **memory = calloc((size_t)count, sizeof *memory);
    int code = memory ? APP_OK : app_fail(APP_FAILED, "no memory for the reference");
    int64_t judged = 0;
    for (int64_t i = 0; code == APP_OK && i < rows; i++) {
        if (suspects && !suspects[i]) continue;
        if (suspects && !(result->error <= result->tolerance)) break;
        if (suspects && ++judged > most)
            bench_keep(result, INFINITY, result->tolerance);
        else
            code = check_row(run, suspects ? i : bench_sampled_row(run, i), memory, result);
    }
    for (int i = 0; memory && i < count; i++) free(memory[i]);
    free(memory);
    return code;
}

/* Some rows, and sums over rows where the kind has its own check of them. */
static int check_some(bench_run *run, bench_result *result)
{
    const bool known = reference_knows(run->type->name);
    bool rows = false, sums = false;
    if (run->own->check) return run->own->check(run, result);
    for (int i = 0; i < 2 * (run->slots + run->params); i++) {
        rows = rows || (known && is_row_result(run, i));
        sums = sums || (bench_is_result(run, i) && !bench_has_rows(run, i));
    }
    if (rows) APP_TRY(check_rows(run, result, NULL));
    return sums && run->own->check_sums ? run->own->check_sums(run, result) : APP_OK;
}

int bench_check(bench_run *run, bench_result *result)
{
    for (int i = 0; i < 2 * (run->slots + run->params); i++) {
        run->tensors[i].bounded = false;
        run->tensors[i].slack = 0;
    }
    APP_TRY(check_some(run, result));
    bool *suspects = calloc((size_t)run->rows, sizeof *suspects);
    if (!suspects) return app_fail(APP_FAILED, "no memory for the check");
    int code = bench_check_all(run, result, run->own->check ? NULL : suspects);
    if (code == APP_OK) code = check_rows(run, result, suspects);
    free(suspects);
    return code;
}
