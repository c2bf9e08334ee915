/* tutti-validate's table; report.h. */
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/device.h"
#include "common/exit_code.h"
#include "common/statistics.h"

void report_index(const tutti_case_tensor *tensor, double index, char *text, size_t size)
{
    int64_t rest = (int64_t)index, places[TUTTI_MAX_DIMS] = {0};
    if (index < 0) {
        snprintf(text, size, "-");
        return;
    }
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        places[i] = tensor->dims[i] > 0 ? rest % tensor->dims[i] : 0;
        rest = tensor->dims[i] > 0 ? rest / tensor->dims[i] : 0;
    }
    size_t used = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < tensor->ndim && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i > 0 ? "," : "",
                                 (long long)places[i]);
    if (used < size) snprintf(text + used, size - used, "]");
}

/* Digits enough to tell two numbers apart. */
static int digits_of(double a, double b)
{
    char first[32], second[32];
    for (int digits = 9; digits < 15; digits++) {
        snprintf(first, sizeof first, "%.*g", digits, a);
        snprintf(second, sizeof second, "%.*g", digits, b);
        if (strcmp(first, second) != 0) return digits == 9 ? 9 : digits + 2;
    }
    return a == b ? 9 : 17;
}

void report_why(const verdict *d, char *text, size_t size)
{
    const finding *f = &d->found;
    char at[96];
    text[0] = 0;
    size_t used = 0;
    if (f->wrong > 0) {
        const int digits = digits_of(f->actual, f->expected);
        report_index(d->tensor, f->index, at, sizeof at);
        used = (size_t)snprintf(
            text, size,
            "%.0f of %.0f elements beyond the bound; %s of rank %.0f is %.*g, want %.*g ± %.3g",
            f->wrong, f->elements, at, f->rank, digits, f->actual, digits, f->expected, f->bound);
    }
    if (f->differing > 0 && used < size) {
        report_index(d->tensor, f->differ_index, at, sizeof at);
        snprintf(text + used, size - used,
                 "%s%.0f elements differ from those of one rank alone; %s of rank %.0f is %.17g, "
                 "alone it is %.17g",
                 used ? "; " : "", f->differing, at, f->differ_rank, f->differ_actual,
                 f->differ_alone);
    }
}

static const char *word_of(const verdict *d)
{
    if (d->found.wrong > 0) return "WRONG";
    return d->found.differing > 0 ? "DIFFERS" : "holds";
}

void report_head(const validator *v)
{
    app_say_lines(tutti_build_info());
    app_say("%d rank%s, backend %s", v->group->world_size, v->group->world_size > 1 ? "s" : "",
            app_backend_name(v->ctx));
    app_say("%-36s %-22s %-5s %9s %9s %9s %9s %9s  %-13s %4s %-5s %s", "case", "tensor", "type",
            "abs", "rel", "ulp", "bound", "bound/err", "at", "rank", "alone", "verdict");
}

static void say_tensor(const outcome *o, const verdict *d)
{
    const finding *f = &d->found;
    char tensor[96], at[96], rank[16] = "-", bound[32] = "-", margin[32] = "-", why[512];
    snprintf(tensor, sizeof tensor, "%s/%s", tutti_case_part_name(d->tensor->part),
             d->tensor->name);
    report_index(d->tensor, f->ratio > 0 ? f->index : -1, at, sizeof at);
    if (f->ratio > 0) {
        snprintf(rank, sizeof rank, "%.0f", f->rank);
        snprintf(bound, sizeof bound, "%.2e", f->bound);
        snprintf(margin, sizeof margin, "%.3g", 1 / f->ratio);
    }
    app_say("%-36s %-22s %-5s %9.2e %9.2e %9.2g %9s %9s  %-13s %4s %-5s %s", o->name, tensor,
            tutti_dtype_name(d->tensor->dtype), f->abs, f->rel, f->ulp, bound, margin, at, rank,
            d->alone, word_of(d));
    if (finding_holds(f)) return;
    report_why(d, why, sizeof why);
    app_warn("case %s: %s: %s", o->name, tensor, why);
}

static int take_over(summary *sum, const outcome *o)
{
    if (sum->cases == sum->room) {
        const int room = 2 * sum->room + 16;
        outcome *larger = realloc(sum->outcomes, (size_t)room * sizeof *larger);
        if (!larger) return app_fail(APP_FAILED, "no memory for the report");
        sum->outcomes = larger;
        sum->room = room;
    }
    double *margins =
        realloc(sum->margins, (size_t)(sum->margin_count + o->count + 1) * sizeof *margins);
    if (!margins) return app_fail(APP_FAILED, "no memory for the report");
    sum->margins = margins;
    for (int i = 0; i < o->count; i++) {
        const finding *f = &o->verdicts[i].found;
        if (f->ratio > 0) margins[sum->margin_count++] = 1 / f->ratio;
        sum->wrong_tensors += !finding_holds(f);
    }
    sum->outcomes[sum->cases++] = *o;
    sum->tensors += o->count;
    sum->wrong_cases += !o->holds;
    return APP_OK;
}

int report_case(const validator *v, summary *sum, const outcome *o)
{
    for (int i = 0; i < o->count; i++)
        if (!v->options->quiet || !finding_holds(&o->verdicts[i].found))
            say_tensor(o, &o->verdicts[i]);
    return take_over(sum, o);
}

void report_summary(const validator *v, summary *sum)
{
    char margins[64] = "";
    if (sum->margin_count > 0) {
        const double median = app_median(sum->margins, sum->margin_count);
        snprintf(margins, sizeof margins, "; bound / error: median %.1f, least %.2g", median,
                 sum->margins[0]);
    }
    app_say("%d cases, %d tensors on %d rank%s: %s%s", sum->cases, sum->tensors,
            v->group->world_size, v->group->world_size > 1 ? "s" : "",
            sum->wrong_tensors ? "NOT all hold" : "all hold", margins);
    if (sum->wrong_tensors)
        app_say("%d tensors of %d cases do not hold", sum->wrong_tensors, sum->wrong_cases);
}

int report_open(const validator *v, summary *sum)
{
    if (v->group->rank != 0) return APP_OK;
    APP_TRY(app_output_open(v->options->json, &sum->json));
    return app_output_open(v->options->junit, &sum->junit);
}

int report_files(const validator *v, summary *sum)
{
    if (sum->json) {
        APP_TRY(app_output_begin(sum->json, false));
        report_json(app_output_stream(sum->json), v, sum);
        APP_TRY(app_output_close(&sum->json));
    }
    if (sum->junit) {
        APP_TRY(app_output_begin(sum->junit, false));
        report_junit(app_output_stream(sum->junit), sum);
        APP_TRY(app_output_close(&sum->junit));
    }
    return APP_OK;
}

void report_drop(summary *sum)
{
    for (int i = 0; i < sum->cases; i++) free(sum->outcomes[i].verdicts);
    free(sum->outcomes);
    free(sum->margins);
    app_output_close(&sum->json);
    app_output_close(&sum->junit);
    *sum = (summary){0};
}
