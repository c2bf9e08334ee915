/* Bounds of rounding errors where a case gives none: docs/numerics.md, formula by formula.  The exact results, which the formulas
 * need for it, are computed in f64; where a case has no reference, they are one.
 *
 *   spread.h            errors that do not know of each other
 *   bounds_norm.c       LayerNorm, RMSNorm
 *   bounds_softmax.c    softmax, log-softmax, cross-entropy
 *   bounds_linear.c     FusedLinear
 *   bounds_embedding.c  Embedding */
#ifndef TUTTI_VALIDATE_BOUNDS_H
#define TUTTI_VALIDATE_BOUNDS_H

#include "subject.h"

/* Fills bounds, one entry a tensor of the case: an array of all its elements, for results that have no bound in the file.
 * The same for references, if the source has none. */
int bounds_compute(const subject *s, double **bounds, double **references);

/* What a layer's formulas see of a case. */
typedef struct bounds_work {
    const subject *s;
    double **values;               /* one a tensor: inputs, parameters, upstream gradients */
    double **bounds, **references; /* one a tensor */
    int64_t rows;
    tutti_dtype computed; /* type of the arithmetic */
    double u;             /* its unit roundoff, and f64's, which references are computed in */
} bounds_work;

/* NULL: the case has no such tensor. */
const double *bounds_values(const bounds_work *w, tutti_case_part part, const char *name);

/* Where bounds of a result go, and its values.  bound NULL: none is wanted; value NULL: the same. */
typedef struct bounds_place {
    double *bound, *value;
} bounds_place;
bounds_place bounds_place_of(const bounds_work *w, tutti_case_part part, const char *name);
static inline void bounds_set(bounds_place place, int64_t i, double bound, double value)
{
    if (place.bound) place.bound[i] = bound;
    if (place.value) place.value[i] = value;
}
/* A number among the layer's options, or its default. */
double bounds_option(const bounds_work *w, const char *name);
/* Whether an option is this word. */
bool bounds_option_is(const bounds_work *w, const char *name, const char *word);
/* The type of a tensor of the case; otherwise. */
tutti_dtype bounds_dtype(const bounds_work *w, tutti_case_part part, const char *name,
                         tutti_dtype otherwise);

/* What the validator has of a kind of layer, in that layer's file; all else is in the library's table (tutti_layer_type). */
typedef struct layer_kind {
    const char *name;
    int (*bounds)(const bounds_work *w); /* the formulas; u and computed are set */
    bool
        by_name; /* of a checkpoint: parameters like this kind's are another's, unless the layer's name has the kind's in it */
} layer_kind;
/* NULL: nothing is known of it. */
const layer_kind *bounds_kind(const char *name);

#endif
