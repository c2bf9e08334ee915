/* Reads the file of --compare: an array of flat objects, as --json writes it; white space and
 * further keys are ignored. */
#include "compare.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"

enum { TEXT_MAX = 160 };
static const size_t largest_file = (size_t)16 << 20;

typedef struct row {
    char op[TEXT_MAX], pass[TEXT_MAX], variant[TEXT_MAX], shape[TEXT_MAX];
    char dtype[TEXT_MAX], param_dtype[TEXT_MAX], backend[TEXT_MAX], device[TEXT_MAX];
    double repeats, us_median, host_us; /* host_us is 0 for null */
    bench_before before;
    bool asked;
} row;

struct bench_earlier {
    const char *path;
    row *rows;
    int count;
};

static const struct {
    const char *key;
    size_t at;
    bool number, nullable;
} fields[] = {
    {"op", offsetof(row, op), false, false},
    {"pass", offsetof(row, pass), false, false},
    {"variant", offsetof(row, variant), false, false},
    {"shape", offsetof(row, shape), false, false},
    {"dtype", offsetof(row, dtype), false, false},
    {"param_dtype", offsetof(row, param_dtype), false, false},
    {"backend", offsetof(row, backend), false, false},
    {"device", offsetof(row, device), false, false},
    {"repeats", offsetof(row, repeats), true, false},
    {"us_median", offsetof(row, us_median), true, false},
    {"host_us", offsetof(row, host_us), true, true},
};
enum { FIELDS = sizeof fields / sizeof fields[0] };

/* Where the reader is. */
typedef struct text {
    const char *path, *begin, *at;
} text;

static int wrong(const text *t, const char *wanted)
{
    int line = 1;
    for (const char *c = t->begin; c < t->at; c++) line += *c == '\n';
    return app_fail(APP_FAILED,
                    "--compare: %s was not written by tutti-bench --json: line %d: want %s",
                    t->path, line, wanted);
}

static bool take(text *t, char wanted)
{
    while (isspace((unsigned char)*t->at)) t->at++;
    if (*t->at != wanted) return false;
    t->at++;
    return true;
}

/* "value"; --json writes no escapes */
static int take_string(text *t, char value[TEXT_MAX])
{
    if (!take(t, '"')) return wrong(t, "a string");
    const size_t length = strcspn(t->at, "\"\\\n");
    if (t->at[length] != '"' || length >= TEXT_MAX) return wrong(t, "the end of a string");
    memcpy(value, t->at, length);
    value[length] = 0;
    t->at += length + 1;
    return APP_OK;
}

static bool take_word(text *t, const char *word)
{
    const size_t length = strlen(word);
    if (strncmp(t->at, word, length) != 0) return false;
    t->at += length;
    return true;
}

static int take_number(text *t, double *value)
{
    char *end;
    *value = strtod(t->at, &end);
    if (!(isdigit((unsigned char)*t->at) || *t->at == '-') || !isfinite(*value))
        return wrong(t, "a number");
    t->at = end;
    return APP_OK;
}

static int take_value(text *t, const char *key, row *r, unsigned *found)
{
    char ignored[TEXT_MAX];
    double number;
    int field = 0;
    while (field < FIELDS && strcmp(fields[field].key, key) != 0) field++;
    if (field < FIELDS) *found |= 1U << field;
    while (isspace((unsigned char)*t->at)) t->at++;
    if (field < FIELDS && fields[field].nullable && take_word(t, "null")) return APP_OK;
    if (field < FIELDS)
        return fields[field].number ? take_number(t, (double *)((char *)r + fields[field].at))
                                    : take_string(t, (char *)r + fields[field].at);
    if (*t->at == '"') return take_string(t, ignored);
    if (take_word(t, "true") || take_word(t, "false") || take_word(t, "null")) return APP_OK;
    return take_number(t, &number);
}

static int take_row(text *t, row *r)
{
    unsigned found = 0;
    if (!take(t, '{')) return wrong(t, "a row, {…}");
    do {
        char key[TEXT_MAX];
        APP_TRY(take_string(t, key));
        if (!take(t, ':')) return wrong(t, ":");
        APP_TRY(take_value(t, key, r, &found));
    } while (take(t, ','));
    if (!take(t, '}')) return wrong(t, "the end of a row");
    for (int i = 0; i < FIELDS; i++)
        if (!(found >> i & 1)) return wrong(t, fields[i].key);
    if (!(r->us_median > 0) || !(r->host_us >= 0)) return wrong(t, "positive times");
    r->before = (bench_before){r->us_median * 1e-6, r->host_us * 1e-6};
    return APP_OK;
}

static int take_rows(text *t, bench_earlier *earlier)
{
    if (!take(t, '[')) return wrong(t, "[");
    do {
        row *rows = realloc(earlier->rows, ((size_t)earlier->count + 1) * sizeof *rows);
        if (!rows) return app_fail(APP_FAILED, "no memory for what --compare reads");
        earlier->rows = rows;
        rows[earlier->count] = (row){0};
        APP_TRY(take_row(t, &rows[earlier->count++]));
    } while (take(t, ','));
    if (!take(t, ']')) return wrong(t, "a comma or ]");
    take(t, '\n');
    return *t->at ? wrong(t, "the end") : APP_OK;
}

/* The whole file, terminated by a 0. */
static int read_file(const char *path, char **content)
{
    FILE *file = fopen(path, "r");
    if (!file) return app_fail(APP_FAILED, "--compare: %s: %s", path, strerror(errno));
    *content = calloc(largest_file + 1, 1);
    const size_t size = *content ? fread(*content, 1, largest_file, file) : 0;
    const bool failed = ferror(file), whole = feof(file);
    const int reason = errno;
    fclose(file);
    if (!*content) return app_fail(APP_FAILED, "no memory for what --compare reads");
    if (failed) return app_fail(APP_FAILED, "--compare: %s: %s", path, strerror(reason));
    if (!whole || strlen(*content) != size)
        return app_fail(APP_FAILED, "--compare: %s was not written by tutti-bench --json", path);
    return APP_OK;
}

int bench_earlier_read(const char *path, bench_earlier **earlier)
{
    *earlier = NULL;
    if (!path) return APP_OK;
    char *content = NULL;
    *earlier = calloc(1, sizeof **earlier);
    if (!*earlier) return app_fail(APP_FAILED, "no memory for what --compare reads");
    (*earlier)->path = path;
    int code = read_file(path, &content);
    if (code == APP_OK) code = take_rows(&(text){path, content, content}, *earlier);
    free(content);
    return code;
}

void bench_earlier_free(bench_earlier **earlier)
{
    if (*earlier) free((*earlier)->rows);
    free(*earlier);
    *earlier = NULL;
}

int bench_earlier_check(const bench_earlier *earlier, const bench_machine *machine)
{
    bool other_repeats = false;
    for (int i = 0; earlier && i < earlier->count; i++) {
        const row *r = &earlier->rows[i];
        if (strcmp(r->backend, machine->backend) != 0 || strcmp(r->device, machine->device) != 0)
            return app_fail(APP_FAILED, "--compare: %s was measured on %s (%s), this is %s (%s)",
                            earlier->path, r->backend, r->device, machine->backend,
                            machine->device);
        if (r->repeats != machine->repeats && !other_repeats)
            app_warn("--compare: %s has medians of %g repeats, these are of %d", earlier->path,
                     r->repeats, machine->repeats);
        other_repeats |= r->repeats != machine->repeats;
    }
    return APP_OK;
}

const bench_before *bench_earlier_find(bench_earlier *earlier, const bench_result *result)
{
    for (int i = 0; i < earlier->count; i++) {
        row *r = &earlier->rows[i];
        if (strcmp(r->op, result->layer) == 0 && strcmp(r->pass, result->pass) == 0 &&
            strcmp(r->variant, result->variant) == 0 && strcmp(r->shape, result->shape) == 0 &&
            strcmp(r->dtype, tutti_dtype_name(result->dtype)) == 0 &&
            strcmp(r->param_dtype, tutti_dtype_name(result->param_dtype)) == 0) {
            r->asked = true;
            return &r->before;
        }
    }
    return NULL;
}

int bench_earlier_rest(const bench_earlier *earlier)
{
    int asked = 0;
    for (int i = 0; earlier && i < earlier->count; i++) {
        const row *r = &earlier->rows[i];
        asked += r->asked;
        if (!r->asked)
            app_warn("--compare: %s %s %s %s %s of %s was not measured", r->op, r->pass, r->variant,
                     r->shape, r->dtype, earlier->path);
    }
    if (earlier && asked == 0)
        return app_fail(APP_FAILED, "--compare: %s has no row that was measured", earlier->path);
    return APP_OK;
}
