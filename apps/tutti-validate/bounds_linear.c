/* Bounds of FusedLinear. */
#include <stdlib.h>
#include <string.h>

#include "bounds.h"
#include "common/exit_code.h"
#include "spread.h"

#define ROOT 0.79788456080286535588 /* sqrt(2 / pi) */
#define CUBE 0.044715
#define HALF_ROOT 0.70710678118654752440
#define DENSITY 0.39894228040143267794 /* 1 / sqrt(2 pi) */

typedef enum kind { NONE, RELU, LEAKY_RELU, GELU, GELU_ERF, SQUARED_RELU, SILU, KINDS } kind;
static const char *const names[KINDS] = {"none",     "relu",         "leaky_relu", "gelu",
                                         "gelu_erf", "squared_relu", "silu"};

/* A number and its error. */
typedef struct inexact {
    double value;
    spread error;
} inexact;

typedef struct linear {
    const bounds_work *w;
    const double *x, *weight, *bias, *dy;
    int64_t rows, in, out;
    kind act;
    double slope, u;
    bool tf32; /* factors of products may be cut to 11 digits */
    tutti_dtype dtype, computed;
    inexact *dz; /* [rows, out] */
} linear;

static bool is_smooth(const linear *k)
{
    return k->act == GELU || k->act == GELU_ERF || k->act == SILU;
}

/* gelu is z times a logistic function of this. */
static double gelu_exponent(double z)
{
    return 2 * ROOT * (z + CUBE * z * z * z);
}

static double activate(const linear *k, double z)
{
    if (isinf(z) && is_smooth(k)) return fmax(z, 0);
    switch (k->act) {
    case RELU:
        return fmax(z, 0);
    case LEAKY_RELU:
        return z > 0 ? z : k->slope * z;
    case SQUARED_RELU:
        return fmax(z, 0) * fmax(z, 0);
    case GELU:
        return z / (1 + exp(-gelu_exponent(z)));
    case GELU_ERF:
        return z / 2 * erfc(-z * HALF_ROOT);
    case SILU:
        return z / (1 + exp(-z));
    default:
        return z;
    }
}

static double derivative(const linear *k, double z)
{
    double t;
    if (isinf(z) && is_smooth(k)) return z > 0;
    switch (k->act) {
    case RELU:
        return z > 0;
    case LEAKY_RELU:
        return z > 0 ? 1 : k->slope;
    case SQUARED_RELU:
        return 2 * fmax(z, 0);
    case GELU:
        t = tanh(ROOT * (z + CUBE * z * z * z));
        return (1 + t) / 2 + z / 2 * (1 - t * t) * ROOT * (1 + 3 * CUBE * z * z);
    case GELU_ERF:
        return erfc(-z * HALF_ROOT) / 2 + z * exp(-z * z / 2) * DENSITY;
    case SILU:
        t = 1 / (1 + exp(-z));
        return t * (1 + z * (1 - t));
    default:
        return 1;
    }
}

/* What the arithmetic of act loses.  Steps may be as large as z where the result is small. */
static spread own_errors(const linear *k, double z, double value)
{
    const double u = k->u;
    spread last = spread_of(u * value, 2);
    if (k->act == GELU || k->act == GELU_ERF)
        last = spread_add(last, spread_add(spread_single(SPREAD_FUNCTION / 2.0 * u * z),
                                           spread_of(u * z / 2, 1)));
    if (k->act == GELU) return spread_add(last, spread_of(0.22 * u * z, 4));
    if (k->act == GELU_ERF) return spread_add(last, spread_of(0.25 * u * z, 1));
    if (k->act == SILU)
        return spread_add(
            last, spread_add(spread_single(SPREAD_FUNCTION * u * value), spread_of(u * value, 1)));
    return last;
}

static spread gelu_slope_errors(double u, double z, double slope)
{
    const double t = tanh(ROOT * (z + CUBE * z * z * z));
    const double factor = fabs(z) / 2 * ROOT * (1 + 3 * CUBE * z * z),
                 second = factor * (1 - t * t);
    spread error = spread_single(SPREAD_FUNCTION * u * (0.5 + factor * 2 * fabs(t)) * t);
    error = spread_add(error, spread_of(u / 2, 1));
    error = spread_add(error, spread_of(u * factor, 1));
    error = spread_add(error, spread_of(0.22 * u * (1 + 2 * factor), 4));
    error = spread_add(error, spread_of(u * second, 4));
    return spread_add(error, spread_of(u * slope, 1));
}

static spread gelu_erf_slope_errors(double u, double z, double slope)
{
    const double second = fabs(z) * exp(-z * z / 2) * DENSITY;
    spread error = spread_single(SPREAD_FUNCTION * u * (0.5 + second));
    error = spread_add(error, spread_of(u / 2, 1));
    error = spread_add(error, spread_of(u * second, 3));
    error = spread_add(error, spread_of(u * second * z * z, 1));
    return spread_add(error, spread_of(u * slope, 1));
}

static spread silu_slope_errors(double u, double z, double slope)
{
    const double s = 1 / (1 + exp(-z)), size = fabs(z);
    spread error = spread_single(SPREAD_FUNCTION * u * s * (1 - s) * (1 + size));
    error = spread_add(error, spread_of(u * s * (1 + size), 2));
    error = spread_add(error, spread_of(u * s * size, 2));
    return spread_add(error, spread_of(u * slope, 2));
}

/* Of a value that is stored in the type: nothing where it is computed in it. */
static spread rounding(const linear *k, double value)
{
    if (k->dtype == k->computed) return (spread){0, 0, 0};
    return spread_single(spread_roundoff(k->dtype) * fabs(value) + spread_least(k->dtype) / 2);
}

/* A product's sum; inexact says of the terms' first factors, scaled by the second, what they add. */
static spread product_error(const linear *k, const moments *m, spread inherited)
{
    const double u = k->u;
    const spread products = {u * m->magnitude, u * u * m->squares, 0};
    spread error = spread_add(spread_add(inherited, products), spread_chain(u, m));
    if (!k->tf32) return error;
    /* TF32 loses up to 2^-10 of each factor.  If it cuts, all terms shrink: by half of that on average */
    const double lost = 2 * 0x1p-10, shrunk = lost / 2 * fabs(m->total);
    const spread cut = {lost * m->magnitude, lost * lost * m->squares, shrunk};
    return spread_add(error, cut);
}

static inexact preactivation(const linear *k, int64_t i, int64_t o)
{
    moments sum = {0};
    for (int64_t j = 0; j < k->in; j++)
        moments_add(&sum, k->x[i * k->in + j] * k->weight[o * k->in + j]);
    inexact z = {moments_total(&sum), product_error(k, &sum, (spread){0, 0, 0})};
    if (k->bias) {
        z.value += k->bias[o];
        z.error = spread_add(z.error, spread_of(k->u * z.value, 1));
    }
    z.error = spread_add(z.error, rounding(k, z.value));
    return z;
}

/* What z's error makes of a function of it.  An infinite z has none. */
static inexact change(const linear *k, double (*function)(const linear *k, double z), inexact z)
{
    if (isinf(z.value)) return (inexact){function(k, z.value), {0, 0, 0}};
    const double most = spread_most(z.error), value = function(k, z.value);
    const double above = fabs(function(k, z.value + most) - value);
    const double below = fabs(function(k, z.value - most) - value);
    return (inexact){value, spread_times(z.error, fmax(above, below) / fmax(most, 0x1p-1074))};
}

static void set_y(const linear *k, bounds_place place, int64_t i, inexact z)
{
    if (k->act == NONE) {
        bounds_set(place, i, spread_most(z.error) + 0x1p-53 * fabs(z.value), z.value);
        return;
    }
    inexact y = change(k, activate, z);
    if (!isinf(z.value)) y.error = spread_add(y.error, own_errors(k, z.value, y.value));
    bounds_set(place, i, spread_stored(y.error, y.value, k->dtype, k->computed), y.value);
}

/* The slope as backward sees it. */
static inexact slope_of(const linear *k, inexact z)
{
    const double u = k->u, at = z.value;
    inexact slope = change(k, derivative, z);
    if (isinf(at)) return slope;
    switch (k->act) {
    case GELU:
        slope.error = spread_add(slope.error, gelu_slope_errors(u, at, slope.value));
        break;
    case GELU_ERF:
        slope.error = spread_add(slope.error, gelu_erf_slope_errors(u, at, slope.value));
        break;
    case SILU:
        slope.error = spread_add(slope.error, silu_slope_errors(u, at, slope.value));
        break;
    case SQUARED_RELU: { /* 2 sqrt(y), y as stored: nothing where it underflows */
        const double y = at * at;
        const double most = spread_most(spread_add(rounding(k, y), spread_of(u * y, 1))) +
                            spread_least(k->dtype) / 2;
        const double below = fabs(at) - sqrt(fmax(y - most, 0)), above = sqrt(y + most) - fabs(at);
        slope.error = spread_add(slope.error, spread_single(2 * fmax(below, above)));
        slope.error = spread_add(slope.error, spread_of(u * slope.value, 3));
        break;
    }
    default: /* constant, but for the kink, where rounding decides on which side z lies */
        slope.error = spread_single(
            fabs(at) <= spread_most(z.error) ? (k->act == LEAKY_RELU ? fabs(1 - k->slope) : 1) : 0);
        if (k->act == LEAKY_RELU)
            slope.error = spread_add(slope.error, spread_of(u * slope.value, 1));
        break;
    }
    return slope;
}

static inexact gradient_of(const linear *k, inexact z, double dy)
{
    if (k->act == NONE) return (inexact){dy, {0, 0, 0}};
    const inexact slope = slope_of(k, z);
    inexact dz = {slope.value * dy, spread_times(slope.error, dy)};
    if (k->act == RELU) return dz;
    dz.error = spread_add(dz.error, spread_of(k->u * dz.value, 1));
    if (dy != 0) dz.error = spread_add(dz.error, rounding(k, dz.value));
    return dz;
}

static void forward(linear *k)
{
    const bounds_place y = bounds_place_of(k->w, TUTTI_CASE_EXPECTED, "y");
    for (int64_t i = 0; i < k->rows; i++)
        for (int64_t o = 0; o < k->out; o++) {
            const inexact z = preactivation(k, i, o);
            set_y(k, y, i * k->out + o, z);
            if (k->dy) k->dz[i * k->out + o] = gradient_of(k, z, k->dy[i * k->out + o]);
        }
}

/* sum over n of a[n * a_step] b[n * b_step] */
static void set_chain(const linear *k, bounds_place place, int64_t i, int64_t count,
                      const inexact *a, int64_t a_step, const double *b, int64_t b_step,
                      tutti_dtype dtype)
{
    moments sum = {0};
    spread inherited = {0, 0, 0};
    for (int64_t n = 0; n < count; n++) {
        const inexact *left = &a[n * a_step];
        const double right = b ? b[n * b_step] : 1;
        moments_add(&sum, left->value * right);
        inherited = spread_add(inherited, spread_part(spread_times(left->error, right)));
    }
    const spread error =
        b ? product_error(k, &sum, inherited) : spread_add(inherited, spread_chain(k->u, &sum));
    const double total = moments_total(&sum);
    bounds_set(place, i, spread_stored(error, total, dtype, k->computed), total);
}

static void backward(const linear *k)
{
    const bounds_place dx = bounds_place_of(k->w, TUTTI_CASE_EXPECTED_GRAD, "dx");
    const bounds_place dweight = bounds_place_of(k->w, TUTTI_CASE_EXPECTED_GRAD, "dweight");
    const bounds_place dbias = bounds_place_of(k->w, TUTTI_CASE_EXPECTED_GRAD, "dbias");
    for (int64_t i = 0; dx.bound && i < k->rows; i++)
        for (int64_t j = 0; j < k->in; j++)
            set_chain(k, dx, i * k->in + j, k->out, k->dz + i * k->out, 1, k->weight + j, k->in,
                      k->dtype);
    for (int64_t o = 0; dweight.bound && o < k->out; o++)
        for (int64_t j = 0; j < k->in; j++)
            set_chain(k, dweight, o * k->in + j, k->rows, k->dz + o, k->out, k->x + j, k->in,
                      k->computed);
    for (int64_t o = 0; dbias.bound && o < k->out; o++)
        set_chain(k, dbias, o, k->rows, k->dz + o, k->out, NULL, 0, k->computed);
}

static int bounds_linear(const bounds_work *w)
{
    linear k = {.w = w, .rows = w->rows, .u = w->u, .computed = w->computed};
    k.in = (int64_t)bounds_option(w, "in");
    k.out = (int64_t)bounds_option(w, "out");
    k.slope = bounds_option(w, "slope");
    k.x = bounds_values(w, TUTTI_CASE_INPUTS, "x");
    k.weight = bounds_values(w, TUTTI_CASE_PARAMS, "weight");
    k.bias = bounds_values(w, TUTTI_CASE_PARAMS, "bias");
    k.dy = bounds_values(w, TUTTI_CASE_UPSTREAM, "dy");
    k.dtype = bounds_dtype(w, TUTTI_CASE_INPUTS, "x", TUTTI_F32);
    while (k.act < KINDS && !bounds_option_is(w, "activation", names[k.act])) k.act++;
    if (k.act == KINDS)
        return subject_fail(w->s, "has results without atol and rtol, and of its activation no "
                                  "bound is known");
    k.tf32 = bounds_option(w, "allow_tf32") != 0 && k.dtype == TUTTI_F32;
    k.dz = calloc((size_t)(k.rows * k.out) + 1, sizeof *k.dz);
    if (!k.dz) return app_fail(APP_FAILED, "no memory for bounds");
    forward(&k);
    if (k.dy) backward(&k);
    free(k.dz);
    return APP_OK;
}

const layer_kind linear_kind = {.name = "linear", .bounds = bounds_linear};
