/* Bounds of softmax, log-softmax and cross-entropy, row by row. */
#include <stdlib.h>

#include "bounds.h"
#include "common/exit_code.h"
#include "spread.h"

/* The exponentials of a row. */
typedef struct row {
    int64_t cols, seen_count;
    double u, scale, tiny;
    double lost; /* of scale, relative, as a number of the arithmetic */
    tutti_dtype dtype, computed;
    double *t, *gap, *e; /* scaled elements, -inf where masked; t - max; exp(gap) */
    double *y;
    spread *y_error; /* as backward reads y */
    double most, total;
    spread relative; /* of the total */
} row;

static int row_make(row *r)
{
    r->t = calloc((size_t)r->cols * 4, sizeof *r->t);
    r->y_error = calloc((size_t)r->cols, sizeof *r->y_error);
    if (!r->t || !r->y_error) return app_fail(APP_FAILED, "no memory for bounds");
    r->gap = r->t + r->cols;
    r->e = r->gap + r->cols;
    r->y = r->e + r->cols;
    return APP_OK;
}

static void row_drop(row *r)
{
    free(r->t);
    free(r->y_error);
}

static bool seen(const row *r, int64_t j)
{
    return isfinite(r->gap[j]);
}

/* Of an exponent: the difference, which comes first, the product, the scale. */
static spread exponent_error(const row *r, int64_t j)
{
    if (!seen(r, j)) return (spread){0, 0, 0};
    spread error = spread_of(r->u * r->gap[j], 1);
    if (r->scale == 1) return error;
    error = spread_add(error, spread_of(r->u * r->gap[j], 1));
    return spread_add(error, spread_single(r->lost * r->gap[j]));
}

/* Of an exponential, relative to it: another base, the function itself. */
static spread own_error(const row *r, int64_t j)
{
    if (!seen(r, j)) return (spread){0, 0, 0};
    spread error = spread_add(exponent_error(r, j), spread_of(r->u * r->gap[j], 1));
    if (r->gap[j] != 0) error = spread_add(error, spread_single(SPREAD_FUNCTION * r->u));
    return error;
}

/* From t. */
static void exponentials(row *r)
{
    moments sum = {0};
    spread own = {0};
    r->most = -INFINITY;
    r->seen_count = 0;
    for (int64_t j = 0; j < r->cols; j++) r->most = fmax(r->most, r->t[j]);
    for (int64_t j = 0; j < r->cols; j++) {
        r->gap[j] = r->t[j] - r->most;
        r->e[j] = exp(r->gap[j]);
        r->seen_count += seen(r, j);
        moments_add(&sum, r->e[j]);
        own = spread_add(own, spread_part(spread_times(own_error(r, j), r->e[j])));
    }
    r->total = moments_total(&sum);
    r->relative = spread_times(spread_add(own, spread_tree(r->u, &sum)), 1 / r->total);
}

static double weight(const row *r, int64_t j)
{
    return r->e[j] / r->total;
}

static spread weight_error(const row *r, int64_t j)
{
    if (r->seen_count <= 1 || !seen(r, j)) return (spread){0, 0, 0}; /* one alone is 1 */
    spread error = spread_add(spread_add(own_error(r, j), r->relative), spread_of(r->u, 2));
    return spread_add(spread_times(error, weight(r, j)), spread_of(r->tiny, 1));
}

/* What storing y adds, before backward reads it. */
static spread rounding(const row *r, double size)
{
    if (r->dtype == r->computed || size == 1) return (spread){0, 0, 0};
    return spread_single(size * spread_roundoff(r->dtype) + spread_least(r->dtype) / 2);
}

/* first: of the row's elements. */
static void forward(row *r, bool log_softmax, bounds_place place, int64_t first)
{
    const double log_total = log(r->total);
    for (int64_t j = 0; j < r->cols; j++) {
        spread error = {0, 0, 0};
        double size = 0;
        if (log_softmax) {
            r->y[j] = seen(r, j) ? r->gap[j] - log_total : -INFINITY;
            size = seen(r, j) ? fabs(r->y[j]) : 0;
            error = spread_add(exponent_error(r, j), r->relative);
            error = spread_add(error, spread_of(r->u * size, 1));
            error = spread_add(error, spread_single(SPREAD_FUNCTION * r->u * log_total));
        } else {
            r->y[j] = size = weight(r, j);
            error = weight_error(r, j);
        }
        bounds_set(place, first + j,
                   seen(r, j) ? spread_stored(error, size, r->dtype, r->computed) : 0, r->y[j]);
        r->y_error[j] = seen(r, j) ? spread_add(error, rounding(r, size)) : error;
    }
}

static spread log_gradient(const row *r, int64_t j, double dy, double total, spread total_error)
{
    const double u = r->u, p = weight(r, j), subtrahend = fabs(p * total);
    const double most = spread_most(r->y_error[j]);
    spread error = spread_times(total_error, p);
    error = spread_add(error, spread_single(SPREAD_FUNCTION * u * subtrahend));
    error = spread_add(error, spread_of(u * subtrahend, 1));
    error = spread_add(error, spread_of(u * (dy - p * total), 1));
    if (!seen(r, j)) return error;
    error = spread_add(error, spread_of(u * r->y[j] * subtrahend, 1));
    return spread_add(error,
                      spread_times(r->y_error[j], subtrahend * expm1(most) / fmax(most, r->tiny)));
}

static spread gradient(const row *r, int64_t j, double dy, double total, spread total_error)
{
    const double difference = dy - total;
    spread error =
        spread_add(spread_times(total_error, r->y[j]), spread_times(r->y_error[j], difference));
    return spread_add(error, spread_of(r->u * r->y[j] * difference, 2));
}

/* dy: 0 where the mask hides. */
static void backward(const row *r, bool log_softmax, const double *dy, bounds_place place,
                     int64_t first)
{
    const double u = r->u, scale = r->scale;
    moments sum = {0};
    spread total_error = {0, 0, 0};
    for (int64_t j = 0; j < r->cols; j++) {
        moments_add(&sum, log_softmax ? dy[j] : r->y[j] * dy[j]);
        if (log_softmax) continue;
        spread own =
            spread_add(spread_times(r->y_error[j], dy[j]), spread_of(u * r->y[j] * dy[j], 1));
        total_error = spread_add(total_error, spread_part(own));
    }
    const double total = moments_total(&sum);
    total_error =
        spread_add(total_error, spread_add(spread_tree(u, &sum), spread_of(u * total, 1)));
    for (int64_t j = 0; j < r->cols; j++) {
        const double value =
            scale * (log_softmax ? dy[j] - weight(r, j) * total : r->y[j] * (dy[j] - total));
        spread error = log_softmax ? log_gradient(r, j, dy[j], total, total_error)
                                   : gradient(r, j, dy[j], total, total_error);
        error = spread_add(spread_times(error, scale), spread_of(u * value, 1 + (scale != 1)));
        error = spread_add(error, spread_add(spread_of(r->tiny, 1), spread_of(r->tiny * scale, 1)));
        bounds_set(place, first + j,
                   seen(r, j) || dy[j] != 0 ? spread_stored(error, value, r->dtype, r->computed)
                                            : 0,
                   value);
    }
}

static int bounds_softmax(const bounds_work *w)
{
    const double *x = bounds_values(w, TUTTI_CASE_INPUTS, "x");
    const double *dy = bounds_values(w, TUTTI_CASE_UPSTREAM, "dy");
    const bounds_place y = bounds_place_of(w, TUTTI_CASE_EXPECTED, "y");
    const bounds_place dx = bounds_place_of(w, TUTTI_CASE_EXPECTED_GRAD, "dx");
    row r = {.cols = (int64_t)bounds_option(w, "cols"), .u = w->u, .computed = w->computed};
    const int64_t cols = r.cols, period = (int64_t)bounds_option(w, "causal_period");
    const bool log_softmax = bounds_option(w, "log") != 0;
    r.scale = bounds_option(w, "scale");
    if (r.scale != 0 && w->computed == TUTTI_F32)
        r.lost = fabs((double)(float)r.scale / r.scale - 1);
    r.tiny = spread_tiny(w->computed);
    r.dtype = bounds_dtype(w, TUTTI_CASE_INPUTS, "x", TUTTI_F32);
    double *visible_dy = calloc((size_t)cols, sizeof *visible_dy);
    int code = visible_dy ? row_make(&r) : app_fail(APP_FAILED, "no memory for bounds");
    for (int64_t i = 0; code == APP_OK && i < w->rows; i++) {
        const int64_t last = period ? (w->s->which->first_row + i) % period : cols - 1;
        for (int64_t j = 0; j < cols; j++) {
            r.t[j] = j <= last ? r.scale * x[i * cols + j] : -INFINITY;
            visible_dy[j] = dy && j <= last ? dy[i * cols + j] : 0;
        }
        exponentials(&r);
        forward(&r, log_softmax, y, i * cols);
        if (dx.bound) backward(&r, log_softmax, visible_dy, dx, i * cols);
    }
    free(visible_dy);
    row_drop(&r);
    return code;
}

/* Of a row's loss. */
static double loss_bound(const row *r, double own)
{
    const double u = r->u, log_total = log(r->total), value = r->most + log_total - own;
    spread error = spread_add(r->relative, spread_single(SPREAD_FUNCTION * u * log_total));
    error = spread_add(error, spread_of(u * (r->most + log_total), 1));
    error = spread_add(error, spread_of(u * value, 1));
    error = spread_add(error, spread_of(u * (r->most - own), 1));
    return spread_stored(error, value, r->computed, r->computed);
}

static void dlogits_bounds(const row *r, int64_t label, double factor, bounds_place place,
                           int64_t first)
{
    for (int64_t j = 0; j < r->cols; j++) {
        const double difference = weight(r, j) - (j == label), value = difference * factor;
        spread error = spread_add(weight_error(r, j), spread_of(r->u * difference, 1));
        error = spread_add(spread_times(error, factor), spread_of(r->u * value, 2));
        error = spread_add(error, spread_of(r->tiny, 1));
        bounds_set(place, first + j, spread_stored(error, value, r->dtype, r->computed), value);
    }
}

static int bounds_cross_entropy(const bounds_work *w)
{
    const double *x = bounds_values(w, TUTTI_CASE_INPUTS, "logits");
    const double *labels = bounds_values(w, TUTTI_CASE_INPUTS, "labels");
    const bounds_place loss = bounds_place_of(w, TUTTI_CASE_EXPECTED, "loss");
    const bounds_place loss_sum = bounds_place_of(w, TUTTI_CASE_EXPECTED, "loss_sum");
    const bounds_place dlogits = bounds_place_of(w, TUTTI_CASE_EXPECTED, "dlogits");
    const double factor = w->s->which->loss_weight * w->s->which->loss_scale;
    const double ignored = bounds_option(w, "ignore_label");
    row r = {.cols = (int64_t)bounds_option(w, "cols"), .u = w->u, .computed = w->computed};
    spread errors = {0, 0, 0};
    moments losses = {0};
    r.scale = 1;
    r.tiny = spread_tiny(w->computed);
    r.dtype = bounds_dtype(w, TUTTI_CASE_INPUTS, "logits", TUTTI_F32);
    const int code = row_make(&r);
    for (int64_t i = 0; code == APP_OK && i < w->rows; i++) {
        const int64_t label = (int64_t)labels[i];
        if (labels[i] == ignored || label < 0 || label >= r.cols) continue;
        for (int64_t j = 0; j < r.cols; j++) r.t[j] = x[i * r.cols + j];
        exponentials(&r);
        const double bound = loss_bound(&r, r.t[label]);
        errors = spread_add(errors, spread_of(bound, 1));
        const double value = r.most + log(r.total) - r.t[label];
        moments_add(&losses, value);
        bounds_set(loss, i, bound, value);
        if (dlogits.bound) dlogits_bounds(&r, label, factor, dlogits, i * r.cols);
    }
    const double sum = moments_total(&losses); /* losses are not negative */
    bounds_set(loss_sum, 0,
               spread_most(errors) +
                   (spread_depth((double)w->rows) + 1) * spread_roundoff(TUTTI_F64) * sum,
               sum);
    row_drop(&r);
    return code;
}

const layer_kind softmax_kind = {.name = "softmax", .bounds = bounds_softmax};
const layer_kind cross_entropy_kind = {.name = "cross_entropy", .bounds = bounds_cross_entropy};
