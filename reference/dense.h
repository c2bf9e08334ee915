/* What the references of FusedLinear and MLP have in common: z, dz, products with an inexact
 * factor. */
#ifndef TUTTI_REFERENCE_DENSE_H
#define TUTTI_REFERENCE_DENSE_H

#include "activations.h"

/* A factor in a sum of products, and its error's part in a sum over many. */
typedef struct term {
    real value;
    spread part;
} term;

typedef struct dense {
    const reference_work *w;
    activation act;
    bool tf32; /* factors of products may be truncated to 11 digits */
} dense;

/* From the layer's options; dtype: of its tensors.  NULL, or an error message. */
const char *dense_take(dense *d, const reference_work *w, tutti_dtype dtype);

/* x w + bias over `count` elements, rounded to the layer's type; bias NULL: none. */
inexact dense_z(const dense *d, int64_t count, const double *x, const double *w,
                const double *bias);
/* dy act'(z), rounded to the layer's type where that is not dy or 0.  y as in
 * activation_gradient. */
inexact dense_gradient(const dense *d, inexact z, const double *y, inexact dy);

static inline term dense_term(inexact a)
{
    return (term){a.value, spread_part(a.error)};
}

/* Loops with so many products or more use all cores; their results do not depend on that. */
enum { DENSE_MANY = 1 << 20 };

/* Sums over n of left[n * left_step] right[n * right_step + j], for neighbouring j; right NULL: of
 * left alone. */
enum { DENSE_COLUMNS = 64 };
typedef struct dense_sums {
    moments sum[DENSE_COLUMNS];
    spread error[DENSE_COLUMNS];
} dense_sums;
typedef struct dense_factors {
    int64_t count;
    const term *left;
    int64_t left_step;
    const double *right;
    int64_t right_step;
} dense_factors;
void dense_add_up(const dense *d, const dense_factors *of, int64_t first, int cols, dense_sums *to);

/* Sets `cols` such sums, which are of type dtype, at place[first], place[first + apart], …, where
 * that is wanted. */
void dense_set(const dense *d, const dense_factors *of, reference_tensor place, int64_t first,
               int64_t apart, int64_t cols, tutti_dtype dtype);

#endif
