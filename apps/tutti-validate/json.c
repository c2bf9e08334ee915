/* --json: the table for programs, by jansson. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "common/exit_code.h"
#include "report.h"

/* JSON has no NaN and no infinity. */
static json_t *number(double value)
{
    if (isfinite(value)) return json_real(value);
    return json_string(isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

static json_t *verdict_json(const verdict *d)
{
    const finding *f = &d->found;
    char at[96], other[96];
    report_index(d->tensor, f->index, at, sizeof at);
    report_index(d->tensor, f->differ_index, other, sizeof other);
    json_t *made =
        json_pack("{s:s, s:s, s:s, s:b, s:I}", "group", tutti_case_part_name(d->tensor->part),
                  "tensor", d->tensor->name, "dtype", tutti_dtype_name(d->tensor->dtype), "holds",
                  finding_holds(f), "elements", (json_int_t)f->elements);
    if (f->elements > 0) {
        json_object_set_new(made, "abs", number(f->abs));
        json_object_set_new(made, "rel", number(f->rel));
        json_object_set_new(made, "ulp", number(f->ulp));
        json_object_set_new(made, "bound", number(f->bound));
        json_object_set_new(made, "actual", number(f->actual));
        json_object_set_new(made, "expected", number(f->expected));
        json_object_set_new(made, "error_over_bound", number(f->load));
        json_object_set_new(made, "index", json_string(at));
        json_object_set_new(made, "rank", json_integer((json_int_t)f->rank));
        json_object_set_new(made, "beyond_bound", json_integer((json_int_t)f->wrong));
    }
    json_object_set_new(made, "compared_with_one_rank", json_string(d->alone));
    json_object_set_new(made, "differing", json_integer((json_int_t)f->differing));
    if (f->differing > 0) {
        json_object_set_new(made, "differ_index", json_string(other));
        json_object_set_new(made, "differ_rank", json_integer((json_int_t)f->differ_rank));
    }
    return made;
}

static json_t *outcome_json(const outcome *o)
{
    json_t *tensors = json_array();
    for (int i = 0; i < o->count; i++)
        json_array_append_new(tensors, verdict_json(&o->verdicts[i]));
    json_t *made = json_pack("{s:s, s:s, s:b, s:f, s:o}", "case", o->name, "layer", o->layer,
                             "holds", o->holds, "seconds", o->seconds, "tensors", tensors);
    json_t *file = json_string(o->file); /* NULL for a name that is no UTF-8 */
    if (file) json_object_set_new(made, "file", file);
    return made;
}

int report_json_check(void)
{
    return APP_OK;
}

int report_json(FILE *file, const validator *v, const summary *sum)
{
    json_t *cases = json_array();
    for (int i = 0; i < sum->cases; i++)
        json_array_append_new(cases, outcome_json(&sum->outcomes[i]));
    json_t *all = json_pack("{s:s, s:i, s:s, s:b, s:i, s:i, s:o}", "version", tutti_version(),
                            "ranks", v->group->world_size, "backend",
                            tutti_context_backend(v->ctx) == TUTTI_BACKEND_CUDA ? "cuda" : "host",
                            "holds", sum->wrong_tensors == 0, "tensors", sum->tensors, "wrong",
                            sum->wrong_tensors, "cases", cases);
    if (!all) return app_fail(APP_FAILED, "no memory for the JSON report");
    (void)json_dumpf(all, file, JSON_INDENT(2)); /* the file's faults are seen when it is closed */
    json_decref(all);
    return APP_OK;
}
