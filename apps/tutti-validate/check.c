/* Checks one case; check.h. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "bounds.h"
#include "common/exit_code.h"
#include "run.h"

enum { BLOCK = 1 << 18 }; /* elements that are compared at a time */

int results_make(const subject *s, results *r)
{
    const size_t count = (size_t)s->test_case->tensor_count + 1;
    r->together = calloc(count, sizeof *r->together);
    r->alone = calloc(count, sizeof *r->alone);
    r->bounds = calloc(count, sizeof *r->bounds);
    r->references = calloc(count, sizeof *r->references);
    if (r->together && r->alone && r->bounds && r->references) return APP_OK;
    return app_fail(APP_FAILED, "no memory for the results");
}

void results_drop(const subject *s, results *r)
{
    if (r->together) run_free(s, r->together);
    if (r->alone) run_free(s, r->alone);
    if (r->bounds) run_free(s, (void **)r->bounds);
    if (r->references) run_free(s, (void **)r->references);
    free(r->together);
    free(r->alone);
    free(r->bounds);
    free(r->references);
    *r = (results){0};
}

void check_own(const validator *v, const subject *s, const tutti_case_tensor *tensor,
               int64_t *first, int64_t *count)
{
    const int64_t row = subject_row(s, tensor), rows = s->test_case->rows;
    *first = 0;
    *count = row;
    if (!subject_has_rows(s, tensor)) return;
    *first = row * run_share(rows, v->group->rank, v->group->world_size);
    *count = row * run_share(rows, v->group->rank + 1, v->group->world_size) - *first;
}

/* Elements of one step of the first dimension. */
static int64_t unit_of(const tutti_case_tensor *tensor)
{
    int64_t unit = 1;
    for (int i = 1; i < tensor->ndim; i++) unit *= tensor->dims[i];
    return unit;
}

static int run_both(validator *v, const subject *s, results *r)
{
    const int64_t rows = s->test_case->rows;
    run_plan together = {.exchange = true}, alone = {.count = rows};
    together.first = run_share(rows, v->group->rank, v->group->world_size);
    together.count = run_share(rows, v->group->rank + 1, v->group->world_size) - together.first;
    /* a single rank splits the rows over two calls instead of over ranks */
    if (v->group->world_size == 1) alone.cut = (rows + 2) / 3;
    APP_TRY(run_case(v, s, &together, r->together));
    int code = subject_explain(s, run_case(v, s, &alone, r->alone));
    if (code == APP_OK) code = bounds_compute(s, r->bounds, r->references);
    return app_group_agree(v->group, code);
}

/* Compares a block of this rank's elements, as f64. */
static int compare_block(const validator *v, const subject *s, const results *r, int index,
                         int64_t first, int64_t count, double *values, finding *f)
{
    const tutti_case_tensor *tensor = &s->test_case->tensors[index];
    const size_t size = tutti_dtype_size(tensor->dtype);
    const int64_t unit = unit_of(tensor);
    double *alone = values + count, *expected = alone + count;
    part p = {.tensor = tensor, .first = first, .count = count, .rank = v->group->rank};
    int64_t own, all;
    check_own(v, s, tensor, &own, &all);
    APP_CHECK(tutti_convert(values, TUTTI_F64,
                            (const char *)r->together[index] + (size_t)(first - own) * size,
                            tensor->dtype, count));
    APP_CHECK(tutti_convert(alone, TUTTI_F64, (const char *)r->alone[index] + (size_t)first * size,
                            tensor->dtype, count));
    if (s->source->has_reference)
        APP_TRY(s->source->read(s->source->self, tensor, first / unit, count / unit, TUTTI_F64,
                                expected));
    p.actual = values;
    p.alone = alone;
    p.expected = s->source->has_reference ? expected : r->references[index] + first;
    p.bounds = r->bounds[index] ? r->bounds[index] + first : NULL;
    p.same_bits = s->same_bits && subject_has_rows(s, tensor);
    compare_part(&p, f);
    return APP_OK;
}

static int compare(const validator *v, const subject *s, const results *r, int index, finding *f)
{
    const tutti_case_tensor *tensor = &s->test_case->tensors[index];
    const int64_t unit = unit_of(tensor);
    const int64_t most = (BLOCK / unit > 0 ? BLOCK / unit : 1) * unit;
    int64_t first, count;
    check_own(v, s, tensor, &first, &count);
    double *values = calloc((size_t)(count < most ? count : most) * 3 + 1, sizeof *values);
    if (!values) return app_fail(APP_FAILED, "no memory for %s", tensor->name);
    int code = APP_OK;
    compare_start(f);
    for (int64_t end = first + count; code == APP_OK && first < end; first += most) {
        finding block;
        code = compare_block(v, s, r, index, first, end - first < most ? end - first : most, values,
                             &block);
        if (code == APP_OK) compare_merge(f, &block, false);
    }
    free(values);
    return code;
}

/* Merges the findings of all ranks. */
static int gather(validator *v, const subject *s, const finding *mine, outcome *o)
{
    const int world = v->group->world_size, count = o->count;
    finding *all = calloc((size_t)world * (size_t)count + 1, sizeof *all);
    int code = all ? APP_OK : app_fail(APP_FAILED, "no memory for the findings");
    code = app_group_agree(v->group, code);
    if (code == APP_OK)
        code = app_group_agree(v->group, app_check(tutti_comm_all_gather(
                                             v->group->control, v->group->host, mine, all,
                                             (int64_t)count * FINDING_NUMBERS, TUTTI_F64)));
    for (int i = 0; code == APP_OK && i < count; i++) {
        verdict *d = &o->verdicts[i];
        d->found = all[i];
        for (int rank = 1; rank < world; rank++)
            compare_merge(&d->found, &all[rank * count + i], !subject_has_rows(s, d->tensor));
        o->holds = o->holds && finding_holds(&d->found);
    }
    free(all);
    return code;
}

static int start_outcome(const subject *s, const char *file, outcome *o)
{
    *o = (outcome){.file = file, .holds = true};
    strcpy(o->name, s->test_case->name);
    strcpy(o->layer, s->test_case->layer);
    o->verdicts = calloc((size_t)s->test_case->tensor_count + 1, sizeof *o->verdicts);
    return o->verdicts ? APP_OK : app_fail(APP_FAILED, "no memory for the report");
}

static int compare_all(validator *v, const subject *s, const results *r, outcome *o)
{
    finding *mine = calloc((size_t)s->test_case->tensor_count + 1, sizeof *mine);
    int code = mine ? APP_OK : app_fail(APP_FAILED, "no memory for the findings");
    for (int i = 0; code == APP_OK && i < s->test_case->tensor_count; i++) {
        const tutti_case_tensor *tensor = &s->test_case->tensors[i];
        if (!subject_is_result(tensor)) continue;
        code = compare(v, s, r, i, &mine[o->count]);
        const bool bits = s->same_bits && subject_has_rows(s, tensor);
        o->verdicts[o->count++] = (verdict){.tensor = tensor, .alone = bits ? "bits" : "bound"};
    }
    code = app_group_agree(v->group, subject_explain(s, code));
    if (code == APP_OK) code = gather(v, s, mine, o);
    free(mine);
    return code;
}

int check_case(validator *v, const subject *s, const char *file, results *r, outcome *o)
{
    const double begin = app_now();
    APP_TRY(app_group_agree(v->group, start_outcome(s, file, o)));
    int code = run_both(v, s, r);
    if (code == APP_OK) code = compare_all(v, s, r, o);
    o->seconds = app_now() - begin;
    if (code == APP_OK) return code;
    free(o->verdicts);
    o->verdicts = NULL;
    return code;
}
