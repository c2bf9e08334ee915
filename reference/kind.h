/* What the formulas of a kind of layer see of a problem.  A kind is a file with a record, which
 * reference.c lists. */
#ifndef TUTTI_REFERENCE_KIND_H
#define TUTTI_REFERENCE_KIND_H

#include "reference.h"
#include "spread.h"

typedef struct reference_work {
    const reference_problem *problem;
    const tutti_layer_type *type;
    int64_t rows;
    tutti_dtype computed; /* type of the arithmetic */
    real u; /* unit roundoff of the arithmetic, of the values here and of others' values */
} reference_work;

typedef struct reference_kind {
    const char *name;
    const char *(*compute)(const reference_work *w); /* NULL, or what is wrong */
} reference_kind;

#define REFERENCE_NO_MEMORY "no memory for the reference"

/* By name: "x", a gradient as "dx"; all NULL where the layer has no such tensor, or the problem
 * does not give it. */
reference_tensor reference_find(const reference_work *w, const char *name);
static inline const double *reference_given(const reference_work *w, const char *name)
{
    return reference_find(w, name).given;
}
/* A tensor's type; that of the arithmetic for one which the layer has not. */
tutti_dtype reference_dtype(const reference_work *w, const char *name);
/* A number among the options, or its default; whether an option is this word. */
double reference_option(const reference_work *w, const char *name);
bool reference_option_is(const reference_work *w, const char *name, const char *word);

static inline bool reference_wants(reference_tensor t)
{
    return t.value || t.bound;
}
/* Where a value or its bound is no number, only the very value is right. */
static inline void reference_set(reference_tensor t, int64_t i, real bound, real value)
{
    if (t.bound) t.bound[i] = isfinite(value) && isfinite(bound) ? (double)bound : 0;
    if (t.value) t.value[i] = (double)value;
}

/* The number of the type that is nearest, of two the even one. */
real reference_round(tutti_dtype dtype, real value);

/* The bound of a result, and of the value here, handed over as f64. */
static inline real reference_stored(const reference_work *w, spread error, real value,
                                    tutti_dtype dtype)
{
    return spread_stored(error, value, dtype, w->computed);
}

/* Of adding up along a row: blocks merged pairwise; in what others made, in any order. */
static inline spread reference_along_row(const reference_work *w, const moments *m)
{
    const real other = w->problem->expected_roundoff;
    return spread_add(spread_tree(w->u - other, m), spread_chain(other, m));
}
/* Of adding up over rows, or in a matrix product. */
static inline spread reference_adding(const reference_work *w, const moments *m)
{
    return w->problem->any_order ? spread_chain(w->u, m) : spread_blocks(w->u, m);
}
/* A sum over rows, added to the old one if there is one.  error: of the sum. */
void reference_set_sum(const reference_work *w, reference_tensor t, int64_t i, spread error,
                       const moments *sum, tutti_dtype dtype);

#endif
