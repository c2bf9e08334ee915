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

/* What of a call reference/ computes at once: a row, or all rows at one index of a dimension. */
typedef struct slice {
    const char *option; /* which sets that dimension; NULL: a row */
    int64_t at;
} slice;

/* A tensor's part in it: runs of elements, `step` apart. */
typedef struct part {
    int64_t first, length, step, runs;
} part;

/* A parameter's number in the table: a layer may leave out some of its kind, so by name. */
static int param_of(const bench_run *run, int tensor)
{
    const char *name = tutti_layer_param(run->layer, tensor / 2 - run->slots)->name;
    int number = 0;
    while (strcmp(run->type->params[number].name, name) != 0) number++;
    return number;
}

static reference_tensor *place_of(const bench_run *run, reference_problem *problem, int tensor)
{
    return tensor / 2 < run->slots ? &problem->slots[tensor / 2][tensor % 2]
                                   : &problem->params[param_of(run, tensor)][tensor % 2];
}

/* The dimension of a tensor that a slice has one index of; -1: none. */
static int cut_dim(const bench_run *run, int tensor, const char *option)
{
    const int columns = run->tensors[tensor].view.ndim - 1;
    if (!option) return bench_has_rows(run, tensor) ? 0 : -1;
    if (tensor / 2 < run->slots) {
        const char *cols = run->type->slots[tensor / 2].cols;
        return cols && strcmp(cols, option) == 0 ? columns : -1;
    }
    const char *const *dims = run->type->params[param_of(run, tensor)].dims;
    int dim = columns;
    while (dim >= 0 && strcmp(dims[dim], option) != 0) dim--;
    return dim;
}

static part part_of(const bench_run *run, int tensor, slice of)
{
    const tutti_tensor *view = &run->tensors[tensor].view;
    const int cut = cut_dim(run, tensor, of.option);
    part p = {0, 1, 0, 1};
    for (int dim = 0; dim < view->ndim; dim++)
        if (dim != cut) *(dim < cut ? &p.runs : &p.length) *= view->dims[dim];
    if (cut < 0) return p;
    p.first = of.at * p.length;
    p.step = view->dims[cut] * p.length;
    return p;
}

static bool is_judged(const bench_run *run, int tensor, slice of)
{
    return bench_is_result(run, tensor) && cut_dim(run, tensor, of.option) >= 0;
}

/* Inputs and parameters; in backward also the gradients of outputs and, for a row, what forward
 * stored. */
static bool is_given(const bench_run *run, int tensor, slice of)
{
    const bool gradient = tensor % 2;
    if (!run->tensors[tensor].view.data || bench_is_result(run, tensor)) return false;
    if (!is_output(run, tensor)) return !gradient;
    return run->backward && bench_has_rows(run, tensor) && (gradient || !of.option);
}

reference_problem bench_problem(const bench_run *run, int64_t row, int64_t rows)
{
    return (reference_problem){.layer = run->layer,
                               .options = run->options,
                               .rows = rows,
                               .first_row = run->first_row + row,
                               .step = {.step = 1, .loss_weight = 1}};
}

/* The slice's values of an input, or room for those of a result; the caller frees *memory.  What
 * all slices have is read once. */
static int take(const bench_run *run, int tensor, slice of, reference_tensor *place,
                double **memory)
{
    const part p = part_of(run, tensor, of);
    const bool result = is_judged(run, tensor, of), first = !*memory;
    const int64_t count = p.runs * p.length;
    if (!result && !is_given(run, tensor, of)) return APP_OK;
    if (first) *memory = calloc(2 * (size_t)count, sizeof **memory);
    if (!*memory) return app_fail(APP_FAILED, "no memory for the reference");
    if (result)
        *place = (reference_tensor){.value = *memory, .bound = *memory + count};
    else
        place->given = *memory;
    for (int64_t i = 0; !result && (first || p.step) && i < p.runs; i++)
        APP_TRY(bench_values(run, &run->tensors[tensor], p.first + i * p.step, p.length,
                             *memory + i * p.length));
    return APP_OK;
}

static int check_slice(bench_run *run, reference_problem *problem, slice of, double **memory,
                       bench_result *result)
{
    const int count = 2 * (run->slots + run->params);
    for (int i = 0; i < count; i++)
        APP_TRY(take(run, i, of, place_of(run, problem, i), &memory[i]));
    const char *wrong = reference_compute(problem);
    if (wrong) return app_fail(APP_FAILED, "%s: %s", run->type->name, wrong);
    for (int i = 0; i < count; i++) {
        if (!is_judged(run, i, of)) continue;
        const part p = part_of(run, i, of);
        const reference_tensor *place = place_of(run, problem, i);
        for (int64_t j = 0; j < p.runs; j++)
            APP_TRY(bench_compare(run, result, &run->tensors[i], p.first + j * p.step, p.length,
                                  place->value + j * p.length, place->bound + j * p.length));
    }
    return APP_OK;
}

static int check_row(bench_run *run, int64_t row, double **memory, bench_result *result)
{
    reference_problem problem = bench_problem(run, row, 1);
    return check_slice(run, &problem, (slice){NULL, row}, memory, result);
}

/* Kinds of matrix products: a row may take the reference some 0.3 s. */
static bool is_dear(const bench_run *run)
{
    return run->own->slice || run->own->check;
}

/* How many of `count`, of so many elements each, are put to reference/: few, and as many more as
 * take about 20 ms. */
static int64_t sample_count(int64_t count, int64_t elements)
{
    enum { ELEMENTS = 1 << 16, MOST = 1 << 10 };
    const int64_t room = ELEMENTS / elements, fit = room < MOST ? room : MOST;
    const int64_t wanted = fit > BENCH_SAMPLES ? fit : BENCH_SAMPLES;
    return wanted < count ? wanted : count;
}

/* Which one: they are spread evenly. */
static int64_t sample(int64_t count, int64_t samples, int64_t index)
{
    return samples == 1 ? 0 : (count - 1) * index / (samples - 1);
}

int64_t bench_sampled_rows(const bench_run *run)
{
    return sample_count(run->rows, is_dear(run) ? INT64_MAX : bench_widest(run));
}

int64_t bench_sampled_row(const bench_run *run, int64_t index)
{
    return sample(run->rows, bench_sampled_rows(run), index);
}

static void free_all(double **memory, int count)
{
    for (int i = 0; memory && i < count; i++) free(memory[i]);
    free(memory);
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
    free_all(memory, count);
    return code;
}

/* Sums over rows at some indices of the kind's option, each by a layer in which it is 1. */
static int check_sums(bench_run *run, bench_result *result)
{
    const int count = 2 * (run->slots + run->params);
    const char *names[BENCH_DIMS_MAX], *option = run->own->slice;
    bench_run one = *run;
    int dim = 1;
    bench_shape_options(run->type, names);
    while (strcmp(names[dim - 1], option) != 0) dim++;
    one.layer = NULL;
    one.shape.dims[dim] = 1;
    double **memory = calloc((size_t)count, sizeof *memory);
    int code = memory ? bench_create(&one) : app_fail(APP_FAILED, "no memory for the reference");
    const int64_t indices = run->shape.dims[dim];
    const int64_t samples = sample_count(indices, run->rows * bench_widest(run));
    for (int64_t s = 0; code == APP_OK && s < samples; s++) {
        const slice of = {option, sample(indices, samples, s)};
        reference_problem problem = bench_problem(&one, 0, run->rows);
        problem.any_order = true;
        code = check_slice(run, &problem, of, memory, result);
    }
    tutti_layer_destroy(&one.layer);
    free_all(memory, count);
    return code;
}

/* Some rows, and some of the sums over rows where the kind says how. */
static int check_some(bench_run *run, bench_result *result)
{
    const bool known = reference_knows(run->type->name);
    bool rows = false, sums = false;
    if (run->own->check) return run->own->check(run, result);
    for (int i = 0; i < 2 * (run->slots + run->params); i++) {
        rows = rows || (known && bench_is_result(run, i) && bench_has_rows(run, i));
        sums = sums || (bench_is_result(run, i) && !bench_has_rows(run, i));
    }
    if (rows) APP_TRY(check_rows(run, result, NULL));
    if (sums && run->own->slice) APP_TRY(check_sums(run, result));
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
