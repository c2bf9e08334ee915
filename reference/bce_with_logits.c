/* BCE of logits, and MSE: means over a row of losses of its elements. */
#include "kind.h"

typedef struct result {
    real value, slope; /* the element's loss, and its derivative */
    spread error, slope_error;
} result;

typedef struct elementwise {
    const reference_work *w;
    real pos_weight, lost; /* lost: its relative error as a number of the arithmetic's type */
    result (*of)(const struct elementwise *k, real x, real target);
    bool bounded; /* targets are from 0 to 1 */
    const double *x, *target;
    int64_t cols;
    reference_tensor loss, dx;
    real factor, factor_error;
    tutti_dtype dtype;
} elementwise;

static result squared(const elementwise *k, real x, real target)
{
    const real u = k->w->u, difference = x - target, square = difference * difference;
    return (result){square, difference,
                    spread_add(spread_of(2 * u * square, 1), spread_of(u * square, 1)),
                    spread_of(u * difference, 1)};
}

/* Of a product of two numbers that were rounded once each, with a third as a factor's own error. */
static spread product_error(real u, real value, real lost)
{
    return spread_add(spread_of(u * value, 2), spread_single(lost * value));
}

static result cross_entropy_of(const elementwise *k, real x, real target)
{
    const real u = k->w->u, e = expl(-fabsl(x)), log_sum = log1pl(e), s = 1 / (1 + e);
    const real large = x < 0 ? e * s : s, small = x < 0 ? s : e * s; /* of x and -x */
    const real up = fmaxl(x, 0) + log_sum, down = fmaxl(-x, 0) + log_sum;
    const real off = 1 - target, on = k->pos_weight * target;
    /* of e, relative: the function's own, the change of its base */
    spread own = {0, 0, 0};
    if (isfinite(x) && x != 0)
        own = spread_add(spread_single(SPREAD_FUNCTION * u), spread_of(u * x, 1));
    const spread log_error =
        spread_add(spread_single(SPREAD_FUNCTION * u * log_sum), spread_times(own, e * s));
    spread error = spread_times(log_error, off + on);
    error = spread_add(error, spread_of(u * off * up, 1));
    error = spread_add(error, spread_of(u * on * down, 1));
    error = spread_add(error, product_error(u, off * up, 0));
    error = spread_add(error, product_error(u, on * down, k->lost));
    const real value = off * up + on * down;
    error = spread_add(error, spread_of(u * value, 1));
    /* of both sigmoids: two roundings and e's error, one more in the smaller */
    spread slope_error = spread_times(own, e * s * s * (off + on));
    slope_error = spread_add(slope_error, spread_of(u * off * large, 3));
    slope_error = spread_add(slope_error, spread_of(u * on * small, 3));
    slope_error = spread_add(slope_error, product_error(u, off * large, 0));
    slope_error = spread_add(slope_error, product_error(u, on * small, k->lost));
    const real slope = off * large - on * small;
    slope_error = spread_add(slope_error, spread_of(u * slope, 1));
    return (result){value, slope, error, slope_error};
}

static void set_slope(const elementwise *k, int64_t at, const result *r)
{
    const real value = r->slope * k->factor;
    spread error = spread_times(r->slope_error, k->factor);
    error = spread_add(error, spread_single(k->factor_error * value));
    error = spread_add(error, spread_of(k->w->u * value, 1));
    error = spread_add(error, spread_of(spread_tiny(k->w->computed), 1));
    reference_set(k->dx, at, reference_stored(k->w, error, value, k->dtype), value);
}

static bool is_bad(const elementwise *k, const double *target)
{
    for (int64_t j = 0; k->bounded && j < k->cols; j++)
        if (!(target[j] >= 0 && target[j] <= 1)) return true;
    return false;
}

/* Returns the row's loss. */
static real one_row(const elementwise *k, int64_t row, real *bound)
{
    const int64_t first = row * k->cols;
    const bool bad = is_bad(k, k->target + first);
    const tutti_dtype computed = k->w->computed;
    moments sum = {0};
    spread error = {0, 0, 0};
    *bound = 0;
    for (int64_t j = first; j < first + k->cols; j++) {
        const result r = k->of(k, k->x[j], k->target[j]);
        if (bad)
            reference_set(k->dx, j, 0, NAN);
        else
            set_slope(k, j, &r);
        moments_add(&sum, r.value);
        error = spread_add(error, spread_part(r.error));
        error = spread_add(error, spread_of(spread_tiny(computed), 1));
    }
    real value = moments_total(&sum) / (real)k->cols;
    if (sum.total > spread_greatest(computed)) value = INFINITY;
    if (bad) value = NAN;
    error = spread_add(error, reference_along_row(k->w, &sum));
    error = spread_times(error, 1 / (real)k->cols);
    if (k->cols > 1) error = spread_add(error, spread_of(k->w->u * value, 2));
    if (isfinite(value)) *bound = reference_stored(k->w, error, value, computed);
    reference_set(k->loss, row, *bound, value);
    return value;
}

static const char *compute_rows(elementwise *k)
{
    const reference_work *w = k->w;
    k->target = reference_given(w, "target");
    k->cols = (int64_t)reference_option(w, "cols");
    k->loss = reference_find(w, "loss");
    k->dtype = reference_dtype(w, "target");
    k->factor *= reference_loss_factor(w) / (real)k->cols;
    /* three operations in f64, and its rounding to the arithmetic's type */
    k->factor_error = 3 * spread_roundoff(TUTTI_F64) + w->u;
    moments losses = {0};
    spread errors = {0, 0, 0};
    for (int64_t i = 0; i < w->rows; i++) {
        real bound;
        moments_add(&losses, one_row(k, i, &bound));
        errors = spread_add(errors, spread_of(bound, 1));
    }
    reference_set_total(w, reference_find(w, "loss_sum"), errors, &losses);
    return NULL;
}

static const char *compute(const reference_work *w)
{
    elementwise k = {.w = w,
                     .pos_weight = reference_option(w, "pos_weight"),
                     .of = cross_entropy_of,
                     .bounded = true,
                     .x = reference_given(w, "logits"),
                     .dx = reference_find(w, "dlogits"),
                     .factor = 1};
    if (w->computed == TUTTI_F32 && k.pos_weight != 0)
        k.lost = fabsl((real)(float)k.pos_weight / k.pos_weight - 1);
    return compute_rows(&k);
}

static const char *compute_squares(const reference_work *w)
{
    elementwise k = {.w = w,
                     .of = squared,
                     .x = reference_given(w, "prediction"),
                     .dx = reference_find(w, "dprediction"),
                     .factor = 2};
    return compute_rows(&k);
}

const reference_kind reference_bce_with_logits = {.name = "bce_with_logits", .compute = compute};
const reference_kind reference_mse = {.name = "mse", .compute = compute_squares};
