/* Definitions of the layers and bounds of their rounding errors; see oracle.h. */
#include "oracle.h"

#include <math.h>
#include <stdlib.h>

#include "harness.h"

typedef long double real;

enum { FUNCTION = 4 }; /* u of rsqrt, exp, log, tanh, erf */

double oracle_depth(int64_t n)
{
    return n <= 1 ? 0 : n <= 8 ? (double)(n - 1) : 7 + log2((double)n / 8);
}

/* Root of the sum of squares of independent errors, which may be too small to square. */
static double together(const double *errors, int count)
{
    double most = 0, sum = 0;
    for (int i = 0; i < count; i++) most = fmax(most, fabs(errors[i]));
    if (most == 0 || isinf(most)) return most;
    for (int i = 0; i < count; i++) sum += (errors[i] / most) * (errors[i] / most);
    return most * sqrt(sum);
}
#define TOGETHER(...) \
    together((const double[]){__VA_ARGS__}, (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)))

/* Many errors of one kind, from their sum and the sum of their squares. */
static double many(double sum, double squares)
{
    return fmin(sum, 4 * sqrt(squares));
}

/* The oracle hands its results over as f64, which rounds once more. */
static double stored(double error, double value, tutti_dtype dtype)
{
    double roundoff = harness_roundoff(dtype) + harness_roundoff(TUTTI_F64);
    return error + roundoff * (fabs(value) + error) + harness_tiny(dtype) / 2;
}

static double arithmetic_roundoff(tutti_dtype a, tutti_dtype b)
{
    return harness_roundoff(a == TUTTI_F64 || b == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32);
}

/* Sums over rows, an array a column. */
typedef struct column_sums {
    real *value, *magnitude, *errors, *squares;
} column_sums;

static column_sums column_sums_make(int64_t cols)
{
    real *memory = harness_calloc((size_t)cols * 4, sizeof *memory);
    return (column_sums){memory, memory + cols, memory + 2 * cols, memory + 3 * cols};
}

static void column_sums_add(const column_sums *sums, int64_t j, real term, double error)
{
    sums->value[j] += term;
    sums->magnitude[j] += fabsl(term);
    sums->errors[j] += error;
    sums->squares[j] += (real)error * error;
}

/* Sum over rows, addition to what was there, storing. */
static void column_sums_finish(const column_sums *sums, int64_t rows, int64_t cols, double u,
                               tutti_dtype grad, const double *old, double *value, double *bound)
{
    double storage = harness_roundoff(grad);
    for (int64_t j = 0; j < cols && value; j++) {
        real total = sums->value[j] + (old ? (real)old[j] : 0);
        double error =
            TOGETHER(oracle_depth(rows) * u * (double)sums->magnitude[j],
                     many((double)sums->errors[j], (double)sums->squares[j]),
                     /* the sum may be stored before it is added, in the wider of both types */
                     old ? fmax(u, storage) * fabs((double)sums->value[j]) : 0);
        value[j] = (double)total;
        bound[j] = stored(error, value[j], grad);
    }
}

void oracle_norm_backward(const oracle_norm *o, const double *x, const double *dy,
                          const oracle_norm_grads *grads)
{
    double u = arithmetic_roundoff(o->x, o->param), depth = oracle_depth(o->cols);
    column_sums gamma = column_sums_make(o->cols), beta = column_sums_make(o->cols);
    for (int64_t i = 0; i < o->rows; i++, x += o->cols, dy += o->cols) {
        row_stats s = norm_stats(o, x);
        double rstd = fabs((double)s.rstd);
        /* means of g and of g n, and their errors; n carries the errors of mean, of rstd and of its
         * own rounding */
        real sum_g = 0, size_g = 0, sum_gn = 0, size_gn = 0;
        for (int64_t j = 0; j < o->cols; j++) {
            real n = ((real)x[j] - s.mean) * s.rstd, g = dy[j] * norm_factor(o, j);
            sum_g += g;
            size_g += fabsl(g);
            sum_gn += g * n;
            size_gn += fabsl(g * n);
        }
        real mean_g = o->centered ? sum_g / (real)o->cols : 0, mean_gn = sum_gn / (real)o->cols;
        double abs_g = (double)(size_g / (real)o->cols), abs_gn = (double)(size_gn / (real)o->cols);
        double zero = o->zero_centered ? u : 0;
        double mean_g_error = o->centered ? (depth + 2) * u * abs_g + zero * abs_g : 0;
        double mean_gn_error =
            TOGETHER((depth + 4) * u * abs_gn + zero * abs_gn, s.mean_error * rstd * abs_g,
                     s.rstd_relative * fabs((double)mean_gn));
        for (int64_t j = 0; j < o->cols; j++) {
            real n = ((real)x[j] - s.mean) * s.rstd, g = dy[j] * norm_factor(o, j);
            double abs_n = fabs((double)n),
                   n_error = TOGETHER(s.mean_error * rstd, 2 * u * abs_n, s.rstd_relative * abs_n);
            column_sums_add(&gamma, j, (real)dy[j] * n, fabs(dy[j]) * TOGETHER(n_error, u * abs_n));
            column_sums_add(&beta, j, dy[j], 0);
            if (!grads->dx) continue;
            real inner = s.rstd * (g - mean_g - n * mean_gn);
            real result = inner + (grads->dsum ? (real)grads->dsum[i * o->cols + j] : 0);
            double terms = fabs((double)g) + fabs((double)mean_g) + fabs((double)(n * mean_gn));
            double error = TOGETHER(rstd * mean_g_error, rstd * abs_n * mean_gn_error,
                                    rstd * fabs((double)mean_gn) * n_error,
                                    (2 * u + zero) * rstd * terms, /* products, two differences */
                                    (s.rstd_relative + u) * fabs((double)inner),
                                    grads->dsum ? u * fabs((double)result) : 0);
            grads->dx[i * o->cols + j] = (double)result;
            grads->dx_bound[i * o->cols + j] = stored(error, (double)result, o->x);
        }
    }
    column_sums_finish(&gamma, o->rows, o->cols, u, o->grad, grads->old_dgamma, grads->dgamma,
                       grads->dgamma_bound);
    column_sums_finish(&beta, o->rows, o->cols, u, o->grad, grads->old_dbeta, grads->dbeta,
                       grads->dbeta_bound);
    free(gamma.value);
    free(beta.value);
}
