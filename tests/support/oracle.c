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

/* Linear */

/* The smooth ones are z times something that goes from 0 to 1. */
static bool is_smooth(tutti_activation a)
{
    return a == TUTTI_ACT_GELU || a == TUTTI_ACT_GELU_ERF || a == TUTTI_ACT_SILU;
}

static real activate(const oracle_linear *o, real z)
{
    if (isinf(z) && is_smooth(o->activation)) return z > 0 ? z : 0;
    switch (o->activation) {
    case TUTTI_ACT_NONE:
        return z;
    case TUTTI_ACT_RELU:
        return isnan(z) ? z : z > 0 ? z : 0;
    case TUTTI_ACT_LEAKY_RELU:
        return z > 0 ? z : (real)o->slope * z;
    case TUTTI_ACT_GELU: {
        real k = sqrtl(2 / 3.14159265358979323846264338327950288L);
        return z / 2 * (1 + tanhl(k * (z + 0.044715L * z * z * z)));
    }
    case TUTTI_ACT_GELU_ERF:
        return z / 2 * erfcl(-z * sqrtl(0.5L));
    case TUTTI_ACT_SQUARED_RELU:
        return isnan(z) ? z : z > 0 ? z * z : 0;
    case TUTTI_ACT_SILU:
        return z / (1 + expl(-z));
    }
    return NAN;
}

/* act'(z), or from y where the header says so */
static real slope_at(const oracle_linear *o, real z, double y)
{
    const real pi = 3.14159265358979323846264338327950288L;
    if (isinf(z) && is_smooth(o->activation)) return z > 0;
    switch (o->activation) {
    case TUTTI_ACT_NONE:
        return 1;
    case TUTTI_ACT_RELU:
        return isnan(y) ? y : y > 0 ? 1 : 0;
    case TUTTI_ACT_LEAKY_RELU:
        return isnan(y) ? y : y > 0 ? 1 : (real)o->slope;
    case TUTTI_ACT_SQUARED_RELU:
        return isnan(y) ? y : y > 0 ? 2 * sqrtl((real)y) : 0;
    case TUTTI_ACT_GELU: {
        real k = sqrtl(2 / pi), t = tanhl(k * (z + 0.044715L * z * z * z));
        return (1 + t) / 2 + z / 2 * (1 - t * t) * k * (1 + 3 * 0.044715L * z * z);
    }
    case TUTTI_ACT_GELU_ERF:
        return erfcl(-z * sqrtl(0.5L)) / 2 + z * expl(-z * z / 2) / sqrtl(2 * pi);
    case TUTTI_ACT_SILU: {
        real s = 1 / (1 + expl(-z));
        return s * (1 + z * (1 - s));
    }
    }
    return NAN;
}

/* z of row i, output k, and its error before and after it is rounded to the type */
static real preactivation(const oracle_linear *o, const double *x, int64_t k, double u,
                          double *error)
{
    real sum = 0, magnitude = 0;
    for (int64_t j = 0; j < o->in; j++) {
        real term = (real)x[j] * o->weight[k * o->in + j];
        sum += term;
        magnitude += fabsl(term);
    }
    real z = sum + (o->bias ? (real)o->bias[k] : 0);
    *error = TOGETHER((oracle_depth(o->in) + 1) * u * (double)magnitude,
                      o->bias ? u * fabs((double)z) : 0);
    return z;
}

void oracle_linear_forward(const oracle_linear *o, const double *x, double *y, double *bound)
{
    double u = arithmetic_roundoff(o->dtype, o->dtype);
    for (int64_t i = 0; i < o->rows; i++, x += o->in, y += o->out, bound += o->out)
        for (int64_t k = 0; k < o->out; k++) {
            double error;
            real z = preactivation(o, x, k, u, &error);
            double rounded = stored(error, (double)z, o->dtype);
            real result = activate(o, z);
            y[k] = (double)result;
            bound[k] = 0;
            if (isinf(z)) continue; /* which no rounding moves */
            if (o->activation == TUTTI_ACT_NONE) {
                bound[k] = rounded;
                continue;
            }
            /* the change that z's error makes, its second order, and the function's own arithmetic,
             * whose steps work with numbers as large as z even where the result is small */
            double change = fmax(fabs((double)(activate(o, z + rounded) - result)),
                                 fabs((double)(activate(o, z - rounded) - result)));
            double own =
                is_smooth(o->activation) ? 6 * u * fabs((double)z) : 2 * u * fabs((double)result);
            bound[k] = stored(TOGETHER(change, own) + rounded * rounded, y[k], o->dtype);
        }
}

void oracle_linear_backward(const oracle_linear *o, const double *x, const double *y,
                            const double *dy, const oracle_linear_grads *grads)
{
    double u = arithmetic_roundoff(o->dtype, o->dtype), storage = harness_roundoff(o->dtype);
    tutti_dtype grad = o->dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    size_t count = (size_t)(o->rows * o->out);
    double *dz = harness_calloc(count, sizeof *dz), *dz_error = harness_calloc(count, sizeof *dz);
    for (int64_t i = 0; i < o->rows; i++)
        for (int64_t k = 0; k < o->out; k++) {
            int64_t at = i * o->out + k;
            real z = 0;
            double error, rounded = 0;
            if (is_smooth(o->activation)) {
                z = preactivation(o, x + i * o->in, k, u, &error);
                rounded = isinf(z) ? 0 : stored(error, (double)z, o->dtype);
            }
            real slope = slope_at(o, z, y ? y[at] : 0);
            double change = fmax(fabs((double)(slope_at(o, z + rounded, y ? y[at] : 0) - slope)),
                                 fabs((double)(slope_at(o, z - rounded, y ? y[at] : 0) - slope)));
            /* |act''| and |act'''| of the smooth ones are below 2; their arithmetic has steps of
             * size 1 + |z| */
            double own = is_smooth(o->activation) && !isinf(z)
                             ? 2 * rounded * rounded + 8 * u * (1 + fabs((double)z))
                             : 2 * u * fabs((double)slope);
            /* 1 - tanh^2 carries twice the error of tanh, 2 u near 1, and two roundings */
            if (o->activation == TUTTI_ACT_GELU && !isinf(z))
                own +=
                    (FUNCTION + 2) * u * fabs((double)z) * 0.4 * (1 + 0.134145 * (double)(z * z));
            real product = slope * dy[at];
            dz[at] = (double)product;
            /* dz may be rounded to the type before the products */
            dz_error[at] = fabs(dy[at]) * (change + own) + u * fabs(dz[at]);
            if (o->activation != TUTTI_ACT_NONE)
                dz_error[at] += storage * fabs(dz[at]) + harness_tiny(o->dtype) / 2;
            else
                dz_error[at] = 0;
        }
    for (int64_t i = 0; i < o->rows && grads->dx; i++)
        for (int64_t j = 0; j < o->in; j++) {
            real sum = 0, magnitude = 0, errors = 0, squares = 0;
            for (int64_t k = 0; k < o->out; k++) {
                real w = o->weight[k * o->in + j], term = w * dz[i * o->out + k];
                real error = fabsl(w) * dz_error[i * o->out + k];
                sum += term;
                magnitude += fabsl(term);
                errors += error;
                squares += error * error;
            }
            double error = TOGETHER((oracle_depth(o->out) + 1) * u * (double)magnitude,
                                    many((double)errors, (double)squares));
            grads->dx[i * o->in + j] = (double)sum;
            grads->dx_bound[i * o->in + j] = stored(error, (double)sum, o->dtype);
        }
    column_sums weight = column_sums_make(o->in), bias = column_sums_make(o->out);
    for (int64_t i = 0; i < o->rows; i++)
        for (int64_t k = 0; k < o->out; k++)
            column_sums_add(&bias, k, dz[i * o->out + k], dz_error[i * o->out + k]);
    column_sums_finish(&bias, o->rows, o->out, u, grad, grads->old_dbias, grads->dbias,
                       grads->dbias_bound);
    for (int64_t k = 0; k < o->out && grads->dweight; k++) {
        for (int64_t j = 0; j < o->in; j++)
            weight.value[j] = weight.magnitude[j] = weight.errors[j] = weight.squares[j] = 0;
        for (int64_t i = 0; i < o->rows; i++)
            for (int64_t j = 0; j < o->in; j++) {
                real term = (real)x[i * o->in + j] * dz[i * o->out + k];
                column_sums_add(&weight, j, term,
                                fabs(x[i * o->in + j]) * dz_error[i * o->out + k] +
                                    u * fabs((double)term));
            }
        const double *old = grads->old_dweight;
        column_sums_finish(&weight, o->rows, o->in, u, grad, old ? old + k * o->in : NULL,
                           grads->dweight + k * o->in, grads->dweight_bound + k * o->in);
    }
    free(weight.value);
    free(bias.value);
    free(dz);
    free(dz_error);
}
