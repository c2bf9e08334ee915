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

/* LayerNorm (centered) and RMSNorm. */
typedef struct oracle_norm {
    int64_t rows, cols;
    bool centered, zero_centered;
    double eps;
    tutti_dtype x, param, y, grad;
    const double *gamma, *beta; /* [cols] or NULL */
} oracle_norm;

void oracle_norm_forward(const oracle_norm *norm, const double *x, double *y, double *bound);
/* dsum and the old gradients may be NULL; so may each result with its bound. */
typedef struct oracle_norm_grads {
    const double *dsum, *old_dgamma, *old_dbeta;
    double *dx, *dx_bound, *dgamma, *dgamma_bound, *dbeta, *dbeta_bound;
} oracle_norm_grads;
void oracle_norm_backward(const oracle_norm *norm, const double *x, const double *dy,
                          const oracle_norm_grads *grads);

/* depth(n) above */
double oracle_depth(int64_t n);

#endif
