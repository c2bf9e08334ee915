/* The exponentials of a row, which softmax and cross-entropy share, and their errors. */
#ifndef TUTTI_REFERENCE_EXPONENTIALS_H
#define TUTTI_REFERENCE_EXPONENTIALS_H

#include "kind.h"

typedef struct exponentials {
    const reference_work *w;
    int64_t cols; /* visible */
    real u, scale, tiny;
    real lost;          /* relative error of scale, rounded to the arithmetic's type */
    real *gap, *e;      /* t - max of the scaled elements t; exp(gap) */
    real *scaled;       /* scale x */
    const double *bias; /* of the row; NULL: none */
    real most, total;
    spread relative; /* error of the total */
} exponentials;

/* Allocates for rows of up to cols columns. */
bool exponentials_make(exponentials *r, const reference_work *w, int64_t cols, real scale);
void exponentials_free(exponentials *r);
/* bias: added to scale x; or NULL. */
void exponentials_take(exponentials *r, const double *x, const double *bias, int64_t cols);

/* Error of an exponent: of the difference, which comes first, the product, the scale; with a bias,
 * of the product, the sum and the difference. */
spread exponent_error(const exponentials *r, int64_t j);
static inline real weight_of(const exponentials *r, int64_t j)
{
    return r->e[j] / r->total;
}
spread weight_error(const exponentials *r, int64_t j);

#endif
