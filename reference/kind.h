/* A problem as the formulas of a kind of layer use it.  A kind is a file with a record, which
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
    real u; /* sum of the unit roundoffs of the arithmetic, of real and of the values compared */
} reference_work;

typedef struct reference_kind {
    const char *name;
    const char *(*compute)(const reference_work *w); /* NULL, or an error message */
} reference_kind;

#define REFERENCE_NO_MEMORY "no memory for the reference"

/* The tensor with this name: "x", a gradient as "dx"; all NULL if the layer has no such tensor or
 * the problem does not give it. */
reference_tensor reference_find(const reference_work *w, const char *name);
static inline const double *reference_given(const reference_work *w, const char *name)
{
    return reference_find(w, name).given;
}
/* A tensor's type; the arithmetic's if the layer has no such tensor. */
tutti_dtype reference_dtype(const reference_work *w, const char *name);
/* The value of a numeric option, or its default; whether an option has this value. */
double reference_option(const reference_work *w, const char *name);
bool reference_option_is(const reference_work *w, const char *name, const char *word);

static inline bool reference_wants(reference_tensor t)
{
    return t.value || t.bound;
}
/* If a value or its bound is not finite, only the exact value is right. */
static inline void reference_set(reference_tensor t, int64_t i, real bound, real value)
{
    if (t.bound) t.bound[i] = isfinite(value) && isfinite(bound) ? (double)bound : 0;
    if (t.value) t.value[i] = (double)value;
}

/* value rounded to the type, to nearest even. */
real reference_round(tutti_dtype dtype, real value);

/* The bound of a result, including the rounding of the value here to f64. */
static inline real reference_stored(const reference_work *w, spread error, real value,
                                    tutti_dtype dtype)
{
    return spread_stored(error, value, dtype, w->computed);
}

/* Error of a sum along a row: blocks merged pairwise, or any order for others' results. */
static inline spread reference_along_row(const reference_work *w, const moments *m)
{
    const real other = w->problem->expected_roundoff;
    return spread_add(spread_tree(w->u - other, m), spread_chain(other, m));
}
/* Error of a sum over rows, or in a matrix product. */
static inline spread reference_adding(const reference_work *w, const moments *m)
{
    return w->problem->any_order ? spread_chain(w->u, m) : spread_blocks(w->u, m);
}
/* What multiplies the gradients of a loss. */
static inline real reference_loss_factor(const reference_work *w)
{
    const tutti_step_values *step = &w->problem->step;
    return (real)(step->loss_weight != 0 ? step->loss_weight : 1) *
           (step->loss_scale != 0 ? step->loss_scale : 1);
}
/* Sets the sum of the rows' losses, which is added up in f64; errors: of the losses. */
void reference_set_total(const reference_work *w, reference_tensor t, spread errors,
                         const moments *losses);

/* Sets a sum over rows, added to the old one if there is one.  error: of the sum. */
void reference_set_sum(const reference_work *w, reference_tensor t, int64_t i, spread error,
                       const moments *sum, tutti_dtype dtype);

#endif
