/* The list of kinds, and what their formulas share; see reference.h and kind.h. */
#include "reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kind.h"

/* One line per kind, whose file has the record reference_X. */
#define KINDS(X)     \
    X(layernorm)     \
    X(rmsnorm)       \
    X(softmax)       \
    X(cross_entropy) \
    X(linear)        \
    X(mlp)           \
    X(matmul)        \
    X(embedding)     \
    X(dropout)       \
    X(glu)           \
    X(rope)          \
    X(mse)           \
    X(bce_with_logits)

#define DECLARE(name) extern const reference_kind reference_##name;
#define ENTRY(name) &reference_##name,
KINDS(DECLARE)
static const reference_kind *const kinds[] = {KINDS(ENTRY)};

static const reference_kind *find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i]->name, name) == 0) return kinds[i];
    return NULL;
}

bool reference_knows(const char *kind)
{
    return find_kind(kind);
}

/* A tensor's place: a slot or a parameter; number -1: none. */
typedef struct place {
    bool param, gradient;
    int number;
} place;

static place place_named(const tutti_layer_type *type, const char *name, bool gradient)
{
    for (int i = 0; i < type->slot_count; i++)
        if (strcmp(type->slots[i].name, name) == 0) return (place){false, gradient, i};
    for (int i = 0; i < type->param_count; i++)
        if (strcmp(type->params[i].name, name) == 0) return (place){true, gradient, i};
    return (place){.number = -1};
}

/* A tensor's own name may begin with d, as dlogits; otherwise dx is the gradient of x. */
static place place_of(const tutti_layer_type *type, const char *name)
{
    const place own = place_named(type, name, false);
    return own.number >= 0 || name[0] != 'd' ? own : place_named(type, name + 1, true);
}

static const reference_tensor *tensor_at(const reference_problem *problem, const char *name)
{
    const place at = place_of(tutti_layer_type_of(problem->layer), name);
    if (at.number < 0) return NULL;
    return &(at.param ? problem->params : problem->slots)[at.number][at.gradient];
}

reference_tensor *reference_place(reference_problem *problem, const char *name)
{
    return (reference_tensor *)tensor_at(problem, name);
}

reference_tensor reference_find(const reference_work *w, const char *name)
{
    const reference_tensor *tensor = tensor_at(w->problem, name);
    return tensor ? *tensor : (reference_tensor){NULL, NULL, NULL};
}

/* The layer's parameter with this number in the kind's table; NULL if the options leave it out. */
static const tutti_param *param_of(const reference_work *w, int number)
{
    tutti_layer *layer = w->problem->layer;
    for (int i = 0; i < tutti_layer_param_count(layer); i++)
        if (strcmp(tutti_layer_param(layer, i)->name, w->type->params[number].name) == 0)
            return tutti_layer_param(layer, i);
    return NULL;
}

tutti_dtype reference_dtype(const reference_work *w, const char *name)
{
    const place at = place_of(w->type, name);
    tutti_slot_shape shape;
    if (at.number >= 0 && !at.param)
        return tutti_layer_slot_shape(w->problem->layer, at.number, &shape) == TUTTI_OK
                   ? shape.dtype
                   : w->computed;
    const tutti_param *param = at.number >= 0 ? param_of(w, at.number) : NULL;
    if (!param || (at.gradient && !param->grad.data)) return w->computed;
    return at.gradient ? param->grad.dtype : param->value.dtype;
}

real reference_round(tutti_dtype dtype, real value)
{
    int exponent;
    if (value == 0 || !isfinite(value)) return value;
    frexpl(value, &exponent);
    const real step = fmaxl(ldexpl(spread_roundoff(dtype), exponent), spread_least(dtype));
    const real rounded = rintl(value / step) * step;
    return fabsl(rounded) > spread_greatest(dtype) ? copysignl(INFINITY, rounded) : rounded;
}

void reference_set_sum(const reference_work *w, reference_tensor t, int64_t i, spread error,
                       const moments *sum, tutti_dtype dtype)
{
    real value = moments_total(sum);
    if (sum->count == 0 && !t.given) {
        reference_set(t, i, 0, 0);
        return;
    }
    if (t.given && (sum->count > 0 || t.given[i] != 0)) {
        /* the sum may be stored before it is added, in the wider of both types */
        error = spread_add(error, spread_of(fmaxl(w->u, spread_roundoff(dtype)) * value, 1));
        value += t.given[i];
        if (sum->count > 0) error = spread_add(error, spread_of(w->u * value, 1));
    }
    reference_set(t, i, reference_stored(w, error, value, dtype), value);
}

void reference_set_total(const reference_work *w, reference_tensor t, spread errors,
                         const moments *losses)
{
    const real worst =
        (spread_depth((real)w->rows) + 1) * spread_roundoff(TUTTI_F64) * losses->magnitude;
    const spread other = spread_chain(w->problem->expected_roundoff, losses);
    reference_set(t, 0, spread_most(spread_add(errors, other)) + worst, moments_total(losses));
}

/* The word after "name=" among the options, or the option's default; "" if there is no such
 * option. */
static void option_word(const reference_work *w, const char *name, char *word, size_t size)
{
    const size_t length = strlen(name);
    word[0] = 0;
    for (int i = 0; i < w->type->option_count; i++)
        if (strcmp(w->type->options[i].name, name) == 0 && w->type->options[i].default_value)
            snprintf(word, size, "%s", w->type->options[i].default_value);
    for (const char *at = w->problem->options; at && *at;) {
        if (strncmp(at, name, length) == 0 && at[length] == '=')
            snprintf(word, size, "%.*s", (int)strcspn(at + length + 1, ","), at + length + 1);
        at = strchr(at, ',');
        if (at) at += 1 + strspn(at + 1, " ");
    }
}

double reference_option(const reference_work *w, const char *name)
{
    char word[64];
    option_word(w, name, word, sizeof word);
    if (strcmp(word, "true") == 0 || strcmp(word, "True") == 0) return 1;
    return strtod(word, NULL);
}

bool reference_option_is(const reference_work *w, const char *name, const char *wanted)
{
    char word[64];
    option_word(w, name, word, sizeof word);
    return strcmp(word, wanted) == 0;
}

static tutti_dtype arithmetic(const reference_work *w)
{
    for (int i = 0; i < w->type->option_count; i++)
        if (strcmp(w->type->options[i].type, "dtype") == 0 &&
            reference_option_is(w, w->type->options[i].name, tutti_dtype_name(TUTTI_F64)))
            return TUTTI_F64;
    return TUTTI_F32;
}

const char *reference_compute(const reference_problem *problem)
{
    reference_work w = {
        .problem = problem, .type = tutti_layer_type_of(problem->layer), .rows = problem->rows};
    const reference_kind *kind = find_kind(w.type->name);
    if (!kind) return "no formulas of this kind of layer are listed in reference/reference.c";
    w.computed = arithmetic(&w);
    w.u = spread_roundoff(w.computed) + 0x1p-64L + problem->expected_roundoff;
    return kind->compute(&w);
}
