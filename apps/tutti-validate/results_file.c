/* --emit and --record; results_file.h. */
#include "results_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "run.h"

int results_file_open(results_file *f, validator *v, const char *path, const char *format)
{
    if (!path) return APP_OK;
    *f = (results_file){.path = path, .records = strcmp(format, TUTTI_CASES_FORMAT) == 0};
    int code = APP_OK;
    if (v->group->rank == 0) code = tutti_cases_writer_create(path, format, &f->writer);
    return app_group_agree(v->group, code);
}

/* Gathers all ranks' rows of a tensor on every rank, in its own type. */
static int gather(validator *v, const subject *s, const results *r, int index, void **whole)
{
    const tutti_case_tensor *tensor = &s->test_case->tensors[index];
    const int64_t row = subject_row(s, tensor) * (int64_t)tutti_dtype_size(tensor->dtype);
    const int64_t rows = subject_rows_of(s, tensor, s->test_case->rows);
    const bool split = subject_has_rows(s, tensor);
    char *data = malloc((size_t)(split ? row * rows : row) + 1);
    const int code = data ? APP_OK : app_fail(APP_FAILED, "no memory for %s", tensor->name);
    *whole = data;
    APP_TRY(app_group_agree(v->group, code));
    if (!split) {
        memcpy(data, r->together[index], (size_t)row);
        return APP_OK;
    }
    for (int rank = 0; rank < v->group->world_size; rank++) {
        const int64_t first = run_share(rows, rank, v->group->world_size);
        const int64_t bytes = (run_share(rows, rank + 1, v->group->world_size) - first) * row;
        char *at = data + first * row;
        if (bytes == 0) continue;
        if (rank == v->group->rank) memcpy(at, r->together[index], (size_t)bytes);
        APP_TRY(app_group_agree(v->group,
                                app_check(tutti_comm_broadcast(v->group->control, v->group->host,
                                                               at, bytes, TUTTI_U8, rank))));
    }
    return APP_OK;
}

static int64_t elements_of(const tutti_case_tensor *tensor)
{
    int64_t count = 1;
    for (int i = 0; i < tensor->ndim; i++) count *= tensor->dims[i];
    return count;
}

/* Doubles the bound: a later run may be off by it in the other direction. */
static void widen(const tutti_case_tensor *given, const double *bounds, tutti_case_tensor *tensor)
{
    tensor->has_bound = 1;
    tensor->rtol = 2 * given->rtol * (1 + given->rtol);
    tensor->atol = 2 * given->atol * (1 + given->rtol);
    for (int64_t i = 0; bounds && i < elements_of(given); i++)
        tensor->atol = fmax(tensor->atol, 2 * bounds[i]);
}

/* Writes a result as a reference.  For rank 0, as below. */
static int record_tensor(results_file *f, const results *r, int index,
                         const tutti_case_tensor *given, const void *whole)
{
    tutti_case_tensor tensor = *given;
    const int64_t count = elements_of(given);
    double *values = malloc(((size_t)count + 1) * sizeof *values);
    if (!values) return app_fail(APP_FAILED, "no memory for %s", given->name);
    widen(given, r->bounds[index], &tensor);
    int code = app_check(tutti_convert(values, TUTTI_F64, whole, given->dtype, count));
    if (code == APP_OK) code = tutti_cases_writer_tensor(f->writer, &tensor, TUTTI_F64, values);
    free(values);
    return code;
}

/* Copies an input of the case. */
static int copy_tensor(results_file *f, const subject *s, const tutti_case_tensor *tensor)
{
    const int64_t count = elements_of(tensor);
    void *data = malloc((size_t)count * tutti_dtype_size(tensor->dtype) + 1);
    if (!data) return app_fail(APP_FAILED, "no memory for %s", tensor->name);
    int code = s->source->read(s->source->self, tensor, 0, tensor->dims[0], tensor->dtype, data);
    if (code == APP_OK) code = tutti_cases_writer_tensor(f->writer, tensor, tensor->dtype, data);
    free(data);
    return code;
}

/* Writes a result as actual, expected and difference. */
static int emit_tensor(results_file *f, const subject *s, const results *r, int index,
                       const void *whole)
{
    const tutti_case_tensor *given = &s->test_case->tensors[index];
    const int64_t count = elements_of(given);
    double *values = malloc(((size_t)count * 3 + 1) * sizeof *values);
    if (!values) return app_fail(APP_FAILED, "no memory for %s", given->name);
    double *expected = values + count, *difference = expected + count;
    int code = app_check(tutti_convert(values, TUTTI_F64, whole, given->dtype, count));
    if (r->references[index])
        memcpy(expected, r->references[index], (size_t)count * sizeof *expected);
    else if (code == APP_OK)
        code = s->source->read(s->source->self, given, 0, given->dims[0], TUTTI_F64, expected);
    for (int64_t i = 0; i < count; i++) difference[i] = values[i] - expected[i];
    const tutti_case_part parts[] = {TUTTI_CASE_ACTUAL, TUTTI_CASE_EXPECTED, TUTTI_CASE_DIFFERENCE};
    for (int i = 0; code == APP_OK && i < 3; i++) {
        tutti_case_tensor tensor = *given;
        tensor.part = parts[i];
        code = tutti_cases_writer_tensor(f->writer, &tensor, TUTTI_F64, values + i * count);
    }
    free(values);
    return code;
}

static int add_result(results_file *f, validator *v, const subject *s, const results *r, int index)
{
    const tutti_case_tensor *tensor = &s->test_case->tensors[index];
    void *whole = NULL;
    int code = gather(v, s, r, index, &whole);
    if (code == APP_OK && v->group->rank == 0)
        code = f->records ? record_tensor(f, r, index, tensor, whole)
                          : emit_tensor(f, s, r, index, whole);
    free(whole);
    return app_group_agree(v->group, code);
}

int results_file_add(results_file *f, validator *v, const subject *s, const results *r,
                     const outcome *o)
{
    if (!f->path || (f->records ? !o->holds : o->holds)) return APP_OK;
    int code = APP_OK;
    if (v->group->rank == 0) code = tutti_cases_writer_add(f->writer, s->test_case);
    code = app_group_agree(v->group, code);
    for (int i = 0, result = 0; code == APP_OK && i < s->test_case->tensor_count; i++) {
        const tutti_case_tensor *tensor = &s->test_case->tensors[i];
        if (!subject_is_result(tensor)) {
            if (f->records && v->group->rank == 0) code = copy_tensor(f, s, tensor);
            code = app_group_agree(v->group, code);
            continue;
        }
        if (f->records || !finding_holds(&o->verdicts[result].found))
            code = add_result(f, v, s, r, i);
        result++;
    }
    return code;
}

int results_file_finish(results_file *f, validator *v, bool keep)
{
    int code = APP_OK;
    if (f->path && keep && v->group->rank == 0) code = tutti_cases_writer_finish(f->writer);
    return app_group_agree(v->group, code);
}

void results_file_drop(results_file *f)
{
    tutti_cases_writer_destroy(&f->writer);
}
