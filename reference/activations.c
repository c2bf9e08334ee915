/* See activations.h. */
#include "activations.h"

#define ROOT 0.797884560802865355879892119868763737L /* sqrt(2 / pi) */
#define CUBE 0.044715L
#define HALF_ROOT 0.707106781186547524400844362104849039L
#define DENSITY 0.398942280401432677939946059934381868L /* 1 / sqrt(2 pi) */

bool activation_take(activation *a, const reference_work *w, tutti_dtype dtype)
{
#define TEXT(name, text, from) text,
    static const char *const names[ACTIVATION_KINDS] = {TUTTI_ACTIVATION_LIST(TEXT)};
#undef TEXT
    int kind = 0;
    while (kind < ACTIVATION_KINDS && !reference_option_is(w, "activation", names[kind])) kind++;
    *a = (activation){.kind = (activation_kind)kind,
                      .slope = reference_option(w, "slope"),
                      .beta = reference_option(w, "smelu_beta"),
                      .scale = reference_option(w, "star_scale"),
                      .bias = reference_option(w, "star_bias"),
                      .u = w->u,
                      .dtype = dtype,
                      .computed = w->computed};
    return kind < ACTIVATION_KINDS;
}

/* Those of exponentials, whose formulas have no value at infinite z. */
static bool is_smooth(const activation *a)
{
    return a->kind == ACTIVATION_GELU || a->kind == ACTIVATION_GELU_ERF ||
           a->kind == ACTIVATION_SILU;
}

static bool keeps_z(const activation *a)
{
#define FROM(name, text, from) from,
    static const char from[ACTIVATION_KINDS] = {TUTTI_ACTIVATION_LIST(FROM)};
#undef FROM
    return from[a->kind] == 'z';
}

static real relu(real z)
{
    return z > 0 || isnan(z) ? z : 0;
}

static real value_at(const activation *a, real z)
{
    if (isinf(z) && is_smooth(a)) return relu(z);
    switch (a->kind) {
    case ACTIVATION_RELU:
        return relu(z);
    case ACTIVATION_LEAKY_RELU:
        return z > 0 ? z : a->slope * z;
    case ACTIVATION_SQUARED_RELU:
        return relu(z) * relu(z);
    case ACTIVATION_GELU: /* (1 + tanh(t)) / 2 is the logistic function of 2 t */
        return z / (1 + expl(-2 * ROOT * (z + CUBE * z * z * z)));
    case ACTIVATION_GELU_ERF:
        return z / 2 * erfcl(-z * HALF_ROOT);
    case ACTIVATION_SILU:
        return z / (1 + expl(-z));
    case ACTIVATION_SMELU:
        return z <= -a->beta ? 0 : z >= a->beta ? z : (z + a->beta) * (z + a->beta) / (4 * a->beta);
    case ACTIVATION_STAR_RELU:
        return a->scale * relu(z) * relu(z) + a->bias;
    default:
        return z;
    }
}

/* act'(z); NaN for NaN. */
static real slope_at(const activation *a, real z)
{
    real t;
    if (isinf(z) && is_smooth(a)) return z > 0;
    if (isnan(z) && a->kind != ACTIVATION_NONE) return z;
    switch (a->kind) {
    case ACTIVATION_RELU:
        return z > 0;
    case ACTIVATION_LEAKY_RELU:
        return z > 0 ? 1 : a->slope;
    case ACTIVATION_SQUARED_RELU:
        return 2 * relu(z);
    case ACTIVATION_GELU:
        t = tanhl(ROOT * (z + CUBE * z * z * z));
        return (1 + t) / 2 + z / 2 * (1 - t * t) * ROOT * (1 + 3 * CUBE * z * z);
    case ACTIVATION_GELU_ERF:
        return erfcl(-z * HALF_ROOT) / 2 + z * expl(-z * z / 2) * DENSITY;
    case ACTIVATION_SILU:
        t = 1 / (1 + expl(-z));
        return t * (1 + z * (1 - t));
    case ACTIVATION_SMELU:
        return z <= -a->beta ? 0 : z >= a->beta ? 1 : (z + a->beta) / (2 * a->beta);
    case ACTIVATION_STAR_RELU:
        return 2 * a->scale * relu(z);
    default:
        return 1;
    }
}

spread activation_rounding(const activation *a, real value)
{
    if (a->dtype == a->computed) return (spread){0, 0, 0};
    return spread_single(spread_roundoff(a->dtype) * fabsl(value) + spread_least(a->dtype) / 2);
}

typedef real (*function_of)(const activation *a, real z);

/* Error of a function's value because beta, scale and bias are numbers of the arithmetic. */
static spread constants_error(const activation *a, function_of function, real z)
{
    activation as = *a;
    if (a->kind != ACTIVATION_SMELU && a->kind != ACTIVATION_STAR_RELU) return (spread){0, 0, 0};
    as.beta = reference_round(a->computed, a->beta);
    as.scale = reference_round(a->computed, a->scale);
    as.bias = reference_round(a->computed, a->bias);
    return spread_single(function(&as, z) - function(a, z));
}

/* The error of the functions that a GPU has for 16-bit types, relative: far left their argument is
 * large. */
#define FAST 0x1p-16L
static spread fast_error(const activation *a, real size)
{
    return spread_single(a->fast && is_smooth(a) ? FAST * size : 0);
}

/* A function of z with the error that z's causes.  An infinite z has no error. */
static inexact change(const activation *a, function_of function, inexact z)
{
    const real most = spread_most(z.error), value = function(a, z.value);
    if (isinf(z.value) || most == 0) return (inexact){value, {0, 0, 0}};
    const real above = fabsl(function(a, z.value + most) - value);
    const real below = fabsl(function(a, z.value - most) - value);
    return (inexact){value, spread_times(z.error, fmaxl(above, below) / most)};
}

/* Rounding errors of act itself.  Intermediate values may be as large as z where the result is
 * small. */
static spread own_errors(const activation *a, real z, real value)
{
    const real u = a->u;
    if (a->kind == ACTIVATION_RELU) return (spread){0, 0, 0}; /* max(z, 0) is exact */
    spread last = spread_of(u * value, 2);
    if (a->kind == ACTIVATION_SMELU) { /* z + beta twice, 1 / (4 beta), two products; or z itself */
        if (z > a->beta * (1 + 2 * u)) return (spread){0, 0, 0};
        return spread_add(spread_of(2 * u * value, 1), spread_of(u * value, 3));
    }
    if (a->kind == ACTIVATION_STAR_RELU)
        return spread_add(spread_of(u * a->scale * relu(z) * relu(z), 2), spread_of(u * value, 1));
    if (a->kind == ACTIVATION_GELU || a->kind == ACTIVATION_GELU_ERF)
        last = spread_add(last, spread_add(spread_single(SPREAD_FUNCTION / 2.0L * u * z),
                                           spread_of(u * z / 2, 1)));
    if (a->kind == ACTIVATION_GELU) return spread_add(last, spread_of(0.22L * u * z, 4));
    if (a->kind == ACTIVATION_GELU_ERF) return spread_add(last, spread_of(0.25L * u * z, 1));
    if (a->kind == ACTIVATION_SILU)
        return spread_add(
            last, spread_add(spread_single(SPREAD_FUNCTION * u * value), spread_of(u * value, 1)));
    return last;
}

inexact activation_apply(const activation *a, inexact z)
{
    if (a->kind == ACTIVATION_NONE) return z;
    inexact y = change(a, value_at, z);
    if (isfinite(y.value)) y.error = spread_add(y.error, constants_error(a, value_at, z.value));
    if (isinf(z.value)) return y;
    y.error = spread_add(y.error, own_errors(a, z.value, y.value));
    y.error = spread_add(y.error, fast_error(a, y.value));
    return y;
}

static spread gelu_slope_errors(real u, real z, real slope)
{
    const real t = tanhl(ROOT * (z + CUBE * z * z * z));
    const real factor = fabsl(z) / 2 * ROOT * (1 + 3 * CUBE * z * z), second = factor * (1 - t * t);
    spread error = spread_single(SPREAD_FUNCTION * u * (0.5L + factor * 2 * fabsl(t)) * t);
    error = spread_add(error, spread_of(u / 2, 1));
    error = spread_add(error, spread_of(u * factor, 1));
    error = spread_add(error, spread_of(0.22L * u * (1 + 2 * factor), 4));
    error = spread_add(error, spread_of(u * second, 4));
    return spread_add(error, spread_of(u * slope, 1));
}

static spread gelu_erf_slope_errors(real u, real z, real slope)
{
    const real second = fabsl(z) * expl(-z * z / 2) * DENSITY;
    spread error = spread_single(SPREAD_FUNCTION * u * (0.5L + second));
    error = spread_add(error, spread_of(u / 2, 1));
    error = spread_add(error, spread_of(u * second, 3));
    error = spread_add(error, spread_of(u * second * z * z, 1));
    return spread_add(error, spread_of(u * slope, 1));
}

static spread silu_slope_errors(real u, real z, real slope)
{
    const real s = 1 / (1 + expl(-z)), size = fabsl(z);
    spread error = spread_single(SPREAD_FUNCTION * u * s * (1 - s) * (1 + size));
    error = spread_add(error, spread_of(u * s * (1 + size), 2));
    error = spread_add(error, spread_of(u * s * size, 2));
    return spread_add(error, spread_of(u * slope, 2));
}

/* 2 sqrt(y) of the stored y, which is 0 where it underflows. */
static spread squared_relu_slope_errors(const activation *a, real z, real slope)
{
    const real u = a->u, y = z * z;
    const real most = spread_most(spread_add(activation_rounding(a, y), spread_of(u * y, 1))) +
                      spread_least(a->dtype) / 2;
    const real below = fabsl(z) - sqrtl(fmaxl(y - most, 0)), above = sqrtl(y + most) - fabsl(z);
    return spread_add(spread_single(2 * fmaxl(below, above)), spread_of(u * slope, 3));
}

/* z + beta, 1 / (2 beta) and the product; exactly 1 beyond the middle. */
static spread smelu_slope_errors(const activation *a, real z, real slope)
{
    const int roundings = z > a->beta * (1 + 2 * a->u) ? 0 : 3;
    return spread_add(spread_of(a->u * slope, roundings), constants_error(a, slope_at, z));
}

/* The derivative as backward computes it from z. */
static inexact slope_of(const activation *a, inexact z)
{
    const real u = a->u, at = z.value, left = a->kind == ACTIVATION_LEAKY_RELU ? a->slope : 0;
    const real off = spread_most(z.error);
    inexact slope = change(a, slope_at, z);
    if (isinf(at)) return slope;
    switch (a->kind) {
    case ACTIVATION_GELU:
        slope.error = spread_add(slope.error, gelu_slope_errors(u, at, slope.value));
        break;
    case ACTIVATION_GELU_ERF:
        slope.error = spread_add(slope.error, gelu_erf_slope_errors(u, at, slope.value));
        break;
    case ACTIVATION_SILU:
        slope.error = spread_add(slope.error, silu_slope_errors(u, at, slope.value));
        break;
    case ACTIVATION_SQUARED_RELU:
        if (a->from_z) break; /* 2 z is exact */
        slope.error = spread_add(slope.error, squared_relu_slope_errors(a, at, slope.value));
        break;
    case ACTIVATION_SMELU:
        slope.error = spread_add(slope.error, smelu_slope_errors(a, at, slope.value));
        break;
    case ACTIVATION_STAR_RELU:
        slope.error = spread_add(slope.error, spread_add(spread_of(u * slope.value, 1),
                                                         constants_error(a, slope_at, at)));
        break;
    default: /* constant, except at the kink, where rounding decides on which side z lies */
        slope.error = spread_single(off > 0 && fabsl(at) <= off ? 1 - left : 0);
        break;
    }
    /* a slope is the sum of two terms, which are no larger than it and 1/2 together */
    slope.error = spread_add(slope.error, fast_error(a, fabsl(slope.value) + 0.5L));
    return slope;
}

/* From y, which is on z's side of the kink; exact except squared_relu's root. */
static inexact slope_from(const activation *a, real y)
{
    const bool squared = a->kind == ACTIVATION_SQUARED_RELU;
    const real slope = slope_at(a, squared && y > 0 ? sqrtl(y) : y);
    return (inexact){slope, spread_of(a->u * slope, squared ? 3 : 0)};
}

inexact activation_gradient(const activation *a, inexact z, const double *y, real dy)
{
    if (a->kind == ACTIVATION_NONE) return (inexact){dy, {0, 0, 0}};
    const inexact slope = y && !keeps_z(a) ? slope_from(a, *y) : slope_of(a, z);
    inexact dz = {slope.value * dy, spread_times(slope.error, dy)};
    if (a->kind == ACTIVATION_RELU) return dz;
    /* the slope of leaky_relu as a number of the arithmetic, the product */
    dz.error =
        spread_add(dz.error, spread_of(a->u * dz.value, a->kind == ACTIVATION_LEAKY_RELU ? 2 : 1));
    return dz;
}
