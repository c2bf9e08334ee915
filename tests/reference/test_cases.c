/* The reference beside the committed cases, whose expected values and bounds NumPy computed
 * (tools/cases/): two versions of every formula that share nothing but docs/numerics.md. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "common/exit_code.h"
#include "common/report.h"
#include "harness.h"
#include "reference/adamw.h"
#include "reference/reference.h"
#include "reference/spread.h"

/* A result of a case. */
typedef struct result {
    const tutti_case_tensor *tensor;
    int64_t count;
    double *expected, *value, *bound;
} result;

enum { RESULTS_MAX = 8, GIVEN_MAX = 8 };

/* A case as a problem. */
typedef struct setting {
    reference_problem problem;
    int result_count, given_count;
    result results[RESULTS_MAX];
    double *given[GIVEN_MAX];
} setting;

static int64_t elements_of(const tutti_case_tensor *tensor)
{
    int64_t count = 1;
    for (int i = 0; i < tensor->ndim; i++) count *= tensor->dims[i];
    return count;
}

static double *read_tensor(const tutti_cases *file, const tutti_case_tensor *tensor)
{
    const int64_t count = elements_of(tensor);
    const bool whole = tensor->dtype == TUTTI_I32;
    double *values = harness_calloc((size_t)count + 1, sizeof *values);
    const int code =
        tutti_cases_read(file, tensor, 0, tensor->dims[0], whole ? TUTTI_I32 : TUTTI_F64, values);
    CHECK(code == APP_OK, "%s", app_failure());
    const int32_t *numbers = (const int32_t *)values;
    for (int64_t i = count - 1; whole && i >= 0; i--) values[i] = numbers[i];
    return values;
}

static setting set_up(const tutti_cases *file, const tutti_case *which, tutti_layer *layer)
{
    setting s = {.problem = {.layer = layer,
                             .options = which->options,
                             .rows = which->rows,
                             .first_row = which->first_row,
                             .any_order = true}};
    s.problem.step.step = 1;
    s.problem.step.loss_weight = which->loss_weight;
    s.problem.step.loss_scale = which->loss_scale;
    for (int i = 0; i < which->tensor_count; i++) {
        const tutti_case_tensor *tensor = &which->tensors[i];
        reference_tensor *place = reference_place(&s.problem, tensor->name);
        const int64_t count = elements_of(tensor);
        if (tensor->part < TUTTI_CASE_EXPECTED) {
            place->given = s.given[s.given_count++] = read_tensor(file, tensor);
            continue;
        }
        place->value = harness_calloc((size_t)count + 1, sizeof(double));
        place->bound = harness_calloc((size_t)count + 1, sizeof(double));
        s.results[s.result_count++] =
            (result){tensor, count, read_tensor(file, tensor), place->value, place->bound};
    }
    return s;
}

static void tear_down(setting *s)
{
    for (int i = 0; i < s->given_count; i++) free(s->given[i]);
    for (int i = 0; i < s->result_count; i++) {
        free(s->results[i].expected);
        free(s->results[i].value);
        free(s->results[i].bound);
    }
}

/* Both are of long double, but for NumPy's erfc, which is of f64, and handed over as f64: what
 * is left is a roundoff's share of the bound. */
static void check_values(const result *r, double u)
{
    double *allowed = harness_calloc((size_t)r->count + 1, sizeof *allowed);
    for (int64_t i = 0; i < r->count; i++)
        allowed[i] = 0x1p-52 * fabs(r->expected[i]) + 0x1p-53 / 4 / u * r->bound[i] + 0x1p-1074;
    CHECK_CLOSE(r->tensor->name, r->value, r->expected, allowed, r->count);
    free(allowed);
}

/* A case's bound is a line through the largest.  Short chains of a case have a bound up to
 * sqrt(6) times as narrow as those of any data; columns that a mask hides count in it; and it
 * knows that TF32 cuts nothing of the case's numbers. */
static void check_bounds(const result *r, bool tf32)
{
    double most = 0, size = 0, wide = 0;
    for (int64_t i = 0; i < r->count; i++) {
        most = fmax(most, r->bound[i]);
        size = fmax(size, isfinite(r->expected[i]) ? fabs(r->expected[i]) : 0);
    }
    wide = r->tensor->atol + r->tensor->rtol * size;
    if (size == 0) return;
    CHECK(most >= 0.5 * wide && (most <= 2.5 * wide || tf32), "the bound of %s is %.6g, want %.6g",
          r->tensor->name, most, wide);
}

static void check_case(const tutti_cases *file, const tutti_case *which)
{
    tutti_layer *layer = NULL;
    harness_where("%s", which->name);
    if (!CHECK_OK(
            tutti_layer_create_by_name(harness_context(), which->layer, which->options, &layer)))
        return;
    setting s = set_up(file, which, layer);
    const char *wrong = reference_compute(&s.problem);
    CHECK(!wrong, "%s", wrong);
    const bool wide = strstr(which->options, "f64");
    for (int i = 0; !wrong && i < s.result_count; i++) {
        check_values(&s.results[i], (double)spread_roundoff(wide ? TUTTI_F64 : TUTTI_F32));
        check_bounds(&s.results[i], strstr(which->options, "allow_tf32=1"));
    }
    tear_down(&s);
    tutti_layer_destroy(&layer);
}

static void test_cases(void)
{
    tutti_cases *file = NULL;
    if (!CHECK(tutti_cases_open(TESTS_CASES, &file) == APP_OK, "%s", app_failure())) return;
    for (int i = 0; i < tutti_cases_count(file); i++) check_case(file, tutti_cases_get(file, i));
    harness_where(NULL);
    tutti_cases_close(&file);
}

/* Where every gradient is the same, m and v approach it and its square, and their quotient is its
 * sign. */
static void test_adamw(void)
{
    const double g = -0.75;
    const reference_adamw adamw = {.beta1 = 0.75,
                                   .beta2 = 0.875,
                                   .eps = 0.25,
                                   .weight_decay = 0.5,
                                   .learning_rate = 0.125,
                                   .factor = 0.5,
                                   .dtype = TUTTI_F64};
    const double half = g * adamw.factor;
    reference_adamw_state state = {.master = 2}, bound;
    for (int t = 1; t <= 20; t++) {
        reference_adamw now = adamw;
        now.t = t;
        const double decayed = state.master * (1 - adamw.learning_rate * adamw.weight_decay);
        const double want[] = {decayed - adamw.learning_rate * half / (fabs(half) + adamw.eps),
                               half * (1 - pow(adamw.beta1, t)),
                               half * half * (1 - pow(adamw.beta2, t))};
        state = reference_adamw_update(&now, &state, g, &bound);
        harness_where("update %d", t);
        CHECK_CLOSE("master", &state.master, &want[0], &bound.master, 1);
        CHECK_CLOSE("m", &state.m, &want[1], &bound.m, 1);
        CHECK_CLOSE("v", &state.v, &want[2], &bound.v, 1);
    }
    harness_where(NULL);
}

int main(int argc, char **argv)
{
    static const harness_test tests[] = {{"cases of NumPy", test_cases},
                                         {"AdamW of equal gradients", test_adamw}};
    return harness_main(argc, argv, "reference", tests, HARNESS_COUNT(tests));
}
