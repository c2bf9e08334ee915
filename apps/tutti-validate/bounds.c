/* Bounds where a case gives none; bounds.h. */
#include "bounds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "spread.h"

/* One line a kind: its file has the record, X_kind. */
#define KINDS(X)     \
    X(layernorm)     \
    X(rmsnorm)       \
    X(softmax)       \
    X(cross_entropy) \
    X(linear)        \
    X(embedding)

#define DECLARE(name) extern const layer_kind name##_kind;
#define ENTRY(name) &name##_kind,
KINDS(DECLARE)
static const layer_kind *const kinds[] = {KINDS(ENTRY)};

const layer_kind *bounds_kind(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i]->name, name) == 0) return kinds[i];
    return NULL;
}

static int index_of(const bounds_work *w, tutti_case_part part, const char *name)
{
    const tutti_case_tensor *tensor = tutti_case_find(w->s->which, part, name);
    return tensor ? (int)(tensor - w->s->which->tensors) : -1;
}

const double *bounds_values(const bounds_work *w, tutti_case_part part, const char *name)
{
    const int index = index_of(w, part, name);
    return index >= 0 ? w->values[index] : NULL;
}

bounds_place bounds_place_of(const bounds_work *w, tutti_case_part part, const char *name)
{
    const int index = index_of(w, part, name);
    if (index < 0) return (bounds_place){NULL, NULL};
    return (bounds_place){w->bounds[index], w->references[index]};
}

tutti_dtype bounds_dtype(const bounds_work *w, tutti_case_part part, const char *name,
                         tutti_dtype otherwise)
{
    const tutti_case_tensor *tensor = tutti_case_find(w->s->which, part, name);
    return tensor ? tensor->dtype : otherwise;
}

/* The word after "name=" among the options, or the option's default; "" if there is no such option. */
static void option_word(const bounds_work *w, const char *name, char *word, size_t size)
{
    const tutti_layer_type *type = w->s->type;
    const size_t length = strlen(name);
    word[0] = 0;
    for (int i = 0; i < type->option_count; i++)
        if (strcmp(type->options[i].name, name) == 0 && type->options[i].default_value)
            snprintf(word, size, "%s", type->options[i].default_value);
    for (const char *at = w->s->which->options; at && *at;) {
        if (strncmp(at, name, length) == 0 && at[length] == '=')
            snprintf(word, size, "%.*s", (int)strcspn(at + length + 1, ","), at + length + 1);
        at = strchr(at, ',');
        if (at) at += 1 + strspn(at + 1, " ");
    }
}

double bounds_option(const bounds_work *w, const char *name)
{
    char word[64];
    option_word(w, name, word, sizeof word);
    return strtod(word, NULL);
}

bool bounds_option_is(const bounds_work *w, const char *name, const char *wanted)
{
    char word[64];
    option_word(w, name, word, sizeof word);
    return strcmp(word, wanted) == 0;
}

static int64_t elements_of(const tutti_case_tensor *tensor)
{
    int64_t count = 1;
    for (int i = 0; i < tensor->ndim; i++) count *= tensor->dims[i];
    return count;
}

static int read_values(const bounds_work *w, int index)
{
    const tutti_case_tensor *tensor = &w->s->which->tensors[index];
    const source *source = w->s->source;
    const int64_t count = elements_of(tensor);
    double *values = malloc(((size_t)count + 1) * sizeof *values);
    w->values[index] = values;
    if (!values) return app_fail(APP_FAILED, "no memory for %s", tensor->name);
    if (tensor->dtype != TUTTI_I32)
        return source->read(source->self, tensor, 0, tensor->dims[0], TUTTI_F64, values);
    int32_t *whole = malloc(((size_t)count + 1) * sizeof *whole);
    if (!whole) return app_fail(APP_FAILED, "no memory for %s", tensor->name);
    const int code = source->read(source->self, tensor, 0, tensor->dims[0], TUTTI_I32, whole);
    for (int64_t i = 0; i < count; i++) values[i] = code == APP_OK ? whole[i] : 0;
    free(whole);
    return code;
}

static int prepare(bounds_work *w)
{
    const tutti_case *which = w->s->which;
    const tutti_layer_type *type = w->s->type;
    bool wide = false;
    for (int i = 0; i < which->tensor_count; i++) {
        const tutti_case_tensor *tensor = &which->tensors[i];
        if (subject_is_result(tensor)) {
            if (tensor->has_bound) continue;
            w->bounds[i] = calloc((size_t)elements_of(tensor) + 1, sizeof **w->bounds);
            if (!w->s->source->has_reference)
                w->references[i] = calloc((size_t)elements_of(tensor) + 1, sizeof **w->references);
            if (!w->bounds[i] || (!w->s->source->has_reference && !w->references[i]))
                return app_fail(APP_FAILED, "no memory for %s", tensor->name);
        } else
            APP_TRY(read_values(w, i));
    }
    for (int i = 0; i < type->option_count; i++)
        wide = wide || (strcmp(type->options[i].type, "dtype") == 0 &&
                        bounds_option_is(w, type->options[i].name, tutti_dtype_name(TUTTI_F64)));
    w->computed = wide ? TUTTI_F64 : TUTTI_F32;
    w->u = spread_roundoff(w->computed) + spread_roundoff(TUTTI_F64);
    return APP_OK;
}

static int compute(bounds_work *w)
{
    const char *layer = w->s->which->layer;
    APP_TRY(prepare(w));
    const layer_kind *kind = bounds_kind(layer);
    if (kind) return kind->bounds(w);
    return subject_fail(w->s, "has results without atol and rtol, and of %s no bound is known",
                        layer);
}

int bounds_compute(const subject *s, double **bounds, double **references)
{
    const int count = s->which->tensor_count;
    bool wanted = false;
    for (int i = 0; i < count; i++)
        wanted =
            wanted || (subject_is_result(&s->which->tensors[i]) && !s->which->tensors[i].has_bound);
    if (!wanted) return APP_OK;
    bounds_work w = {.s = s, .bounds = bounds, .references = references, .rows = s->which->rows};
    w.values = calloc((size_t)count + 1, sizeof *w.values);
    const int code = w.values ? compute(&w) : app_fail(APP_FAILED, "no memory for bounds");
    for (int i = 0; w.values && i < count; i++) free(w.values[i]);
    free(w.values);
    return code;
}
