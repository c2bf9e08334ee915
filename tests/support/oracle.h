/* What the layers should compute, from their definitions, in long double, and how far a right
 * implementation may be from it.  Shares no code with the library.  Matrices are dense, row after
 * row, values already rounded to their types; NaN and infinities take the course that the formulas
 * give them.
 *
 * Bounds.  u is the unit roundoff of the type that the layer computes in, U that of the type a
 * result is stored in. Every bound is put together from the rounding errors that the header's
 * formula makes unavoidable:
 *   - a sum of n terms has an error of at most depth(n) u times the sum of the terms' magnitudes,
 *     with depth(n) = n - 1 up to 8 and 7 + log2(n / 8) beyond: blocks of 8 merged pairwise.  Long
 *     chains of additions in u do not stay within it, and should not;
 *   - each other operation makes an error of u times its result; rsqrt, exp, log, tanh and erf are
 *     allowed 4 u (2 ulp);
 *   - an error e in an argument becomes |f'| e;
 *   - errors of different sources do not know of each other, so worst cases of sources are
 *     combined by root of the sum of squares, and many roundings of one kind (of K products'
 *     factors, say) by min(sum, 4 * root of the sum of squares): 4 worst cases of a uniform error
 *     are 6.9 standard deviations;
 *   - storing adds U |result| and half the type's least positive number, in full.
 * Nothing is fitted to what a backend returns. */
#ifndef TESTS_ORACLE_H
#define TESTS_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/tutti.h"

typedef struct oracle_linear {
    int64_t rows, in, out;
    tutti_activation activation;
    double slope;
    tutti_dtype dtype;
    const double *weight, *bias; /* [out, in]; [out] or NULL */
} oracle_linear;

void oracle_linear_forward(const oracle_linear *linear, const double *x, double *y, double *bound);
/* y as it was stored, for relu, leaky_relu and squared_relu, whose derivative is taken from it.
 * Results may be NULL. */
typedef struct oracle_linear_grads {
    const double *old_dweight, *old_dbias;
    double *dx, *dx_bound, *dweight, *dweight_bound, *dbias, *dbias_bound;
} oracle_linear_grads;
void oracle_linear_backward(const oracle_linear *linear, const double *x, const double *y,
                            const double *dy, const oracle_linear_grads *grads);

/* depth(n) above */
double oracle_depth(int64_t n);

#endif
