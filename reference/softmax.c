/* Softmax and log-softmax, row by row. */
#include <stdlib.h>

#include "exponentials.h"

typedef struct softmax {
    exponentials row;
    bool log;
    tutti_dtype dtype, computed;
    real *y;                /* the row's, as backward reads it */
    const double *stored_y; /* the exact y; NULL: y is computed */
} softmax;

static void set_all(reference_tensor place, int64_t first, int64_t end, real value)
{
    for (int64_t i = first; i < end; i++) reference_set(place, i, 0, value);
}

/* The error of storing y before backward reads it. */
static spread rounding(const softmax *s, real size)
{
    if (s->dtype == s->computed || size == 1) return (spread){0, 0, 0};
    return spread_single(size * spread_roundoff(s->dtype) + spread_least(s->dtype) / 2);
}

static real value_of(const softmax *s, int64_t j)
{
    return s->log ? s->row.gap[j] - logl(s->row.total) : weight_of(&s->row, j);
}

/* Error of y before it is stored. */
static spread forward_error(const softmax *s, int64_t j, real y)
{
    const exponentials *r = &s->row;
    if (!s->log) return weight_error(r, j);
    spread error = spread_add(exponent_error(r, j), r->relative);
    error = spread_add(error, spread_of(r->u * y, 1));
    return spread_add(error, spread_single(SPREAD_FUNCTION * r->u * logl(r->total)));
}

/* Error of y as backward reads it. */
static spread y_error(const softmax *s, int64_t j)
{
    const real y = s->y[j];
    if (s->stored_y || !isfinite(y) || !isfinite(s->row.gap[j])) return (spread){0, 0, 0};
    return spread_add(forward_error(s, j, y), rounding(s, fabsl(y)));
}

static void forward(const softmax *s, const reference_work *w, reference_tensor place,
                    int64_t first)
{
    const exponentials *r = &s->row;
    /* here and below: arithmetic on NaN takes a hundred times as long */
    if (isnan(r->total)) {
        set_all(place, first, first + r->cols, NAN);
        return;
    }
    for (int64_t j = 0; j < r->cols; j++) {
        const real y = value_of(s, j);
        const real bound =
            isfinite(r->gap[j]) ? reference_stored(w, forward_error(s, j, y), y, s->dtype) : 0;
        reference_set(place, first + j, bound, y);
    }
}

/* exp(y), the weight in log-softmax's backward. */
static real weight(const softmax *s, int64_t j)
{
    return s->stored_y ? expl(s->y[j]) : weight_of(&s->row, j);
}

static spread log_gradient(const softmax *s, int64_t j, real p, real dy, real total,
                           spread total_error)
{
    const real u = s->row.u, subtrahend = fabsl(p * total);
    const spread own = y_error(s, j);
    const real most = spread_most(own);
    spread error = spread_times(total_error, p);
    error = spread_add(error, spread_single(SPREAD_FUNCTION * u * subtrahend));
    error = spread_add(error, spread_of(u * subtrahend, 1));
    error = spread_add(error, spread_of(u * (dy - p * total), 1));
    if (p == 0) return error;
    error = spread_add(error, spread_of(u * s->y[j] * subtrahend, 1));
    if (most == 0) return error;
    return spread_add(error, spread_times(own, subtrahend * expm1l(most) / most));
}

static spread gradient(const softmax *s, int64_t j, real dy, real total, spread total_error)
{
    const real u = s->row.u, difference = dy - total;
    spread error =
        spread_add(spread_times(total_error, s->y[j]), spread_times(y_error(s, j), difference));
    return spread_add(error, spread_of(u * s->y[j] * difference, 2));
}

/* The sum of a row that backward subtracts. */
static real subtracted(const softmax *s, const double *dy, spread *error)
{
    const real u = s->row.u;
    moments sum = {0};
    *error = (spread){0, 0, 0};
    for (int64_t j = 0; j < s->row.cols && !isnan(sum.total); j++) {
        moments_add(&sum, s->log ? dy[j] : s->y[j] * dy[j]);
        if (s->log) continue;
        const spread own =
            spread_add(spread_times(y_error(s, j), dy[j]), spread_of(u * s->y[j] * dy[j], 1));
        *error = spread_add(*error, spread_part(own));
    }
    const real total = moments_total(&sum);
    *error = spread_add(*error,
                        spread_add(reference_along_row(s->row.w, &sum), spread_of(u * total, 1)));
    return total;
}

static void backward(softmax *s, const reference_work *w, const double *dy,
                     const reference_tensor places[2], int64_t first)
{
    const real u = s->row.u, scale = s->row.scale, tiny = s->row.tiny;
    spread total_error;
    for (int64_t j = 0; j < s->row.cols; j++)
        s->y[j] = s->stored_y ? s->stored_y[first + j] : value_of(s, j);
    const real total = subtracted(s, dy, &total_error);
    if (isnan(total)) {
        for (int i = 0; i < 2; i++) set_all(places[i], first, first + s->row.cols, NAN);
        return;
    }
    for (int64_t j = 0; j < s->row.cols; j++) {
        const real p = s->log ? weight(s, j) : s->y[j];
        const real plain = s->log ? dy[j] - p * total : p * (dy[j] - total);
        if (isnan(plain)) {
            for (int i = 0; i < 2; i++) reference_set(places[i], first + j, 0, NAN);
            continue;
        }
        const spread before = s->log ? log_gradient(s, j, p, dy[j], total, total_error)
                                     : gradient(s, j, dy[j], total, total_error);
        for (int i = 0; i < 2; i++) {
            const real times = i ? 1 : scale, value = times * plain;
            spread error =
                spread_add(spread_times(before, times), spread_of(u * value, 1 + (times != 1)));
            error = spread_add(error, spread_add(spread_of(tiny, 1), spread_of(tiny * times, 1)));
            reference_set(places[i], first + j, reference_stored(w, error, value, s->dtype), value);
        }
    }
}

/* The columns that row i sees; -1 if its length is out of range. */
static int64_t visible_columns(const reference_work *w, int64_t i, int64_t cols)
{
    const double *lengths = reference_given(w, "lengths");
    const int64_t period = (int64_t)reference_option(w, "causal_period");
    const int64_t place = period ? (w->problem->first_row + i) % period : cols;
    const int64_t causal = place < cols ? place + 1 : cols;
    if (!lengths) return causal;
    if (lengths[i] < 0 || lengths[i] > (double)cols) return -1;
    return lengths[i] < (double)causal ? (int64_t)lengths[i] : causal;
}

static const char *compute(const reference_work *w)
{
    const double *x = reference_given(w, "x"), *dy = reference_given(w, "dy"),
                 *bias = reference_given(w, "bias");
    const reference_tensor y = reference_find(w, "y"),
                           dx[2] = {reference_find(w, "dx"), reference_find(w, "dbias")};
    const int64_t cols = (int64_t)reference_option(w, "cols");
    softmax s = {.log = reference_option(w, "log") != 0,
                 .dtype = reference_dtype(w, "x"),
                 .computed = w->computed,
                 .stored_y = y.given};
    s.y = calloc((size_t)cols, sizeof *s.y);
    const bool made = exponentials_make(&s.row, w, cols, reference_option(w, "scale")) && s.y;
    for (int64_t i = 0; made && i < w->rows; i++) {
        const int64_t found = visible_columns(w, i, cols), visible = found > 0 ? found : 0;
        const int64_t first = i * cols;
        const real hidden = s.log ? -INFINITY : 0;
        s.row.cols = visible;
        if (x) exponentials_take(&s.row, x + first, bias ? bias + first : NULL, visible);
        if (reference_wants(y)) {
            forward(&s, w, y, first);
            set_all(y, first + visible, first + cols, found < 0 ? NAN : hidden);
        }
        if (!reference_wants(dx[0]) && !reference_wants(dx[1])) continue;
        backward(&s, w, dy + first, dx, first);
        for (int k = 0; k < 2; k++)
            set_all(dx[k], first + visible, first + cols, found < 0 ? NAN : 0);
    }
    free(s.y);
    exponentials_free(&s.row);
    return made ? NULL : REFERENCE_NO_MEMORY;
}

const reference_kind reference_softmax = {.name = "softmax", .compute = compute};
