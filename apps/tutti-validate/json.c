/* --json: the table for programs. */
#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "common/device.h"
#include "common/json.h"
#include "report.h"

/* As a text where it is not finite, which JSON cannot represent. */
static void put_number(app_json *json, const char *key, double value)
{
    if (isfinite(value))
        app_json_real(json, key, value);
    else
        app_json_text(json, key, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

static void put_verdict(app_json *json, const verdict *d)
{
    const finding *f = &d->found;
    char at[96], other[96];
    report_index(d->tensor, f->index, at, sizeof at);
    report_index(d->tensor, f->differ_index, other, sizeof other);
    app_json_open(json, NULL, '{');
    app_json_text(json, "group", tutti_case_part_name(d->tensor->part));
    app_json_text(json, "tensor", d->tensor->name);
    app_json_text(json, "dtype", tutti_dtype_name(d->tensor->dtype));
    app_json_bool(json, "holds", finding_holds(f));
    app_json_int(json, "elements", (int64_t)f->elements);
    if (f->elements > 0) {
        put_number(json, "abs", f->abs);
        put_number(json, "rel", f->rel);
        put_number(json, "ulp", f->ulp);
        put_number(json, "bound", f->bound);
        put_number(json, "actual", f->actual);
        put_number(json, "expected", f->expected);
        put_number(json, "error_over_bound", f->ratio);
        app_json_text(json, "index", at);
        app_json_int(json, "rank", (int64_t)f->rank);
        app_json_int(json, "beyond_bound", (int64_t)f->wrong);
    }
    app_json_text(json, "compared_with_one_rank", d->alone);
    app_json_int(json, "differing", (int64_t)f->differing);
    if (f->differing > 0) {
        app_json_text(json, "differ_index", other);
        app_json_int(json, "differ_rank", (int64_t)f->differ_rank);
    }
    app_json_close(json, '}');
}

static void put_outcome(app_json *json, const outcome *o)
{
    app_json_open(json, NULL, '{');
    app_json_text(json, "case", o->name);
    app_json_text(json, "layer", o->layer);
    app_json_bool(json, "holds", o->holds);
    app_json_real(json, "seconds", o->seconds);
    app_json_open(json, "tensors", '[');
    for (int i = 0; i < o->count; i++) put_verdict(json, &o->verdicts[i]);
    app_json_close(json, ']');
    app_json_text(json, "file", o->file);
    app_json_close(json, '}');
}

void report_json(FILE *file, const validator *v, const summary *sum)
{
    app_json json = {.file = file, .lines = INT_MAX, .spaced = true};
    app_json_open(&json, NULL, '{');
    app_json_text(&json, "version", tutti_version());
    app_json_int(&json, "ranks", v->group->world_size);
    app_json_text(&json, "backend", app_backend_name(v->ctx));
    app_json_bool(&json, "holds", sum->wrong_tensors == 0);
    app_json_int(&json, "tensors", sum->tensors);
    app_json_int(&json, "wrong", sum->wrong_tensors);
    app_json_open(&json, "cases", '[');
    for (int i = 0; i < sum->cases; i++) put_outcome(&json, &sum->outcomes[i]);
    app_json_close(&json, ']');
    app_json_close(&json, '}');
}
