/* The program's work; validate.h. */
#include "validate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "common/device.h"
#include "common/exit_code.h"
#include "common/signals.h"
#include "kinds.h"
#include "results_file.h"
#include "trained.h"

typedef struct work {
    validator v;
    tutti_cases **files; /* one a name; NULL: not open */
    trained *trained;    /* NULL: no --checkpoint */
    results_file emit, record;
    summary sum;
    int seen; /* cases that match the filter */
} work;

/* A file as the source of its cases' values. */
static int read_file(const void *self, const tutti_case_tensor *tensor, int64_t first,
                     int64_t count, tutti_dtype dtype, void *data)
{
    return tutti_cases_read(self, tensor, first, count, dtype, data);
}

static bool wanted(const work *w, const tutti_case *test_case)
{
    const char *filter = w->v.options->filter;
    return !filter || strstr(test_case->name, filter);
}

/* A hash of a file's list of cases, to detect ranks that read different files. */
static int32_t fingerprint(const tutti_cases *file)
{
    uint32_t hash = 2166136261u;
    for (int i = 0; i < tutti_cases_count(file); i++) {
        const tutti_case *test_case = tutti_cases_get(file, i);
        for (const char *c = test_case->name; *c; c++)
            hash = (hash ^ (unsigned char)*c) * 16777619u;
        hash = (hash ^ (uint32_t)test_case->rows ^ (uint32_t)test_case->tensor_count << 16) *
               16777619u;
    }
    return (int32_t)(hash >> 1);
}

static int same_file(work *w, const char *name, const tutti_cases *file)
{
    const app_group *group = w->v.group;
    const int32_t mine = fingerprint(file);
    int32_t least = mine, most = mine;
    APP_CHECK(
        tutti_comm_all_reduce(group->control, group->host, &mine, &least, 1, TUTTI_I32, TUTTI_MIN));
    APP_CHECK(
        tutti_comm_all_reduce(group->control, group->host, &mine, &most, 1, TUTTI_I32, TUTTI_MAX));
    if (least != most) return app_fail(APP_FAILED, "%s: is not the same file on all ranks", name);
    return APP_OK;
}

static int open_files(work *w)
{
    const validate_options *o = w->v.options;
    w->files = calloc((size_t)o->common.arg_count + 1, sizeof *w->files);
    APP_TRY(app_group_agree(w->v.group,
                            w->files ? APP_OK : app_fail(APP_FAILED, "no memory for the files")));
    for (int i = 0; i < o->common.arg_count; i++) {
        APP_TRY(app_group_agree(w->v.group, tutti_cases_open(o->common.args[i], &w->files[i])));
        APP_TRY(app_group_agree(w->v.group, same_file(w, o->common.args[i], w->files[i])));
        for (int c = 0; c < tutti_cases_count(w->files[i]); c++)
            w->seen += wanted(w, tutti_cases_get(w->files[i], c));
    }
    if (o->checkpoint) APP_TRY(app_group_agree(w->v.group, trained_open(o, &w->trained)));
    for (int i = 0; i < trained_count(w->trained); i++)
        w->seen += wanted(w, trained_case(w->trained, i));
    if (w->seen > 0) return APP_OK;
    return app_fail(APP_FAILED, "no case's name contains '%s'", o->filter ? o->filter : "");
}

/* Cases */

typedef int case_visitor(work *w, const char *file, const source *source,
                         const tutti_case *test_case);

static int for_each_case(work *w, case_visitor *visit)
{
    for (int i = 0; i < w->v.options->common.arg_count; i++) {
        const char *name = w->v.options->common.args[i];
        const source source = {name, read_file, w->files[i], true};
        for (int c = 0; c < tutti_cases_count(w->files[i]); c++) {
            const tutti_case *test_case = tutti_cases_get(w->files[i], c);
            if (wanted(w, test_case)) APP_TRY(visit(w, name, &source, test_case));
        }
    }
    for (int i = 0; i < trained_count(w->trained); i++) {
        const source source = trained_source(w->trained, i);
        const tutti_case *test_case = trained_case(w->trained, i);
        if (wanted(w, test_case)) APP_TRY(visit(w, source.name, &source, test_case));
    }
    return APP_OK;
}

static int list_case(work *w, const char *file, const source *source, const tutti_case *test_case)
{
    (void)w, (void)file, (void)source;
    app_say("%-40s %-13s %6lld rows  %s", test_case->name, test_case->layer,
            (long long)test_case->rows, test_case->options);
    return APP_OK;
}

/* Types and shapes, without reading a value. */
static int probe_case(work *w, const char *file, const source *source, const tutti_case *test_case)
{
    subject s;
    (void)file;
    const int code = subject_make(&w->v, source, test_case, &s);
    if (code == APP_OK) subject_drop(&s);
    return code;
}

static int check_subject(work *w, const char *file, const subject *s)
{
    results r = {0};
    outcome o;
    int code = app_group_agree(w->v.group, results_make(s, &r));
    if (code == APP_OK) code = check_case(&w->v, s, file, &r, &o);
    if (code == APP_OK) {
        code = results_file_add(&w->emit, &w->v, s, &r, &o);
        if (code == APP_OK) code = results_file_add(&w->record, &w->v, s, &r, &o);
        const int said = report_case(&w->v, &w->sum, &o);
        if (code == APP_OK) code = said;
    }
    results_drop(s, &r);
    return code;
}

static int visit_case(work *w, const char *file, const source *source, const tutti_case *test_case)
{
    subject s;
    char place[TUTTI_CASE_NAME_MAX + 8];
    snprintf(place, sizeof place, "case %s", test_case->name);
    APP_TRY(app_group_agree(w->v.group, signals_check(place)));
    APP_TRY(app_group_agree(w->v.group, subject_make(&w->v, source, test_case, &s)));
    const int code = check_subject(w, file, &s);
    subject_drop(&s);
    return code;
}

static int run(work *w)
{
    const validate_options *o = w->v.options;
    report_head(&w->v);
    if (w->trained) APP_TRY(trained_load(w->trained, &w->v));
    /* refuse a file before any of its cases is run */
    APP_TRY(app_group_agree(w->v.group, for_each_case(w, probe_case)));
    APP_TRY(app_group_agree(w->v.group, report_open(&w->v, &w->sum)));
    APP_TRY(results_file_open(&w->emit, &w->v, o->emit, TUTTI_DIFFERENCES_FORMAT));
    APP_TRY(results_file_open(&w->record, &w->v, o->record, TUTTI_CASES_FORMAT));
    APP_TRY(app_group_agree(w->v.group, for_each_case(w, visit_case)));
    report_summary(&w->v, &w->sum);
    APP_TRY(results_file_finish(&w->emit, &w->v, w->sum.wrong_tensors > 0));
    APP_TRY(results_file_finish(&w->record, &w->v, w->sum.wrong_tensors == 0));
    APP_TRY(app_group_agree(w->v.group, report_files(&w->v, &w->sum)));
    if (w->sum.wrong_tensors == 0) return APP_OK;
    return app_fail(APP_MISMATCH, "%d tensors of %d cases do not hold", w->sum.wrong_tensors,
                    w->sum.wrong_cases);
}

int validate(const validate_options *options, app_group *group)
{
    work w = {.v = {.options = options, .group = group}};
    if (options->layers) {
        kinds_list();
        return APP_OK;
    }
    int code = open_files(&w);
    if (code == APP_OK && options->list)
        code = for_each_case(&w, list_case);
    else if (code == APP_OK) {
        code = app_group_agree(group, app_device_open(group, options->common.backend, 0, &w.v.ctx));
        if (code == APP_OK)
            code = app_group_agree(
                group, app_device_connect(group, w.v.ctx, options->common.transport, &w.v.comm));
        if (code == APP_OK) code = run(&w);
    }
    results_file_drop(&w.emit);
    results_file_drop(&w.record);
    report_drop(&w.sum);
    for (int i = 0; w.files && i < options->common.arg_count; i++) tutti_cases_close(&w.files[i]);
    free(w.files);
    trained_close(&w.trained);
    tutti_comm_destroy(&w.v.comm);
    tutti_context_destroy(&w.v.ctx);
    return code;
}
