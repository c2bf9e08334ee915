/* CrossEntropy, row by row. */
#include "exponentials.h"

typedef struct cross_entropy {
    const double *logits, *labels;
    double ignored;
    int64_t cols;
    reference_tensor loss, dlogits;
    real factor, smoothing, z;
    tutti_dtype dtype;
} cross_entropy;

/* log Z and its error. */
static real log_z(const exponentials *r, spread *error)
{
    const real log_total = logl(r->total), value = r->most + log_total;
    *error = spread_add(r->relative, spread_single(SPREAD_FUNCTION * r->u * log_total));
    *error = spread_add(*error, spread_of(r->u * value, 1));
    return value;
}

/* The sum of label smoothing, e mean(x - most), and its error: each gap's, the sum's, the factor's
 * and the product's.  The gaps may be taken from the label's logit first. */
static real smoothed(const exponentials *r, const reference_work *w, const cross_entropy *k,
                     real own, spread *error)
{
    moments sum = {0}, apart = {0};
    spread gaps = {0, 0, 0};
    for (int64_t j = 0; j < r->cols; j++) {
        const real far = fabsl(r->gap[j]) + fabsl(own);
        moments_add(&sum, r->gap[j]);
        moments_add(&apart, far);
        gaps = spread_add(gaps, spread_part(spread_of(r->u * far, 1)));
    }
    const real part = k->smoothing / (real)r->cols, value = part * moments_total(&sum);
    *error = spread_times(spread_add(gaps, reference_along_row(w, &apart)), part);
    *error = spread_add(*error, spread_of(r->u * k->smoothing * own, 3));
    *error = spread_add(*error, spread_of(r->u * value, 3));
    return value;
}

/* The same with label smoothing and z-loss: each product's, each sum's, the factors'. */
static real whole_loss(const exponentials *r, const reference_work *w, const cross_entropy *k,
                       real own, real *bound)
{
    const real u = r->u, keep = 1 - k->smoothing, gap = own - r->most;
    spread z_error, mean_error = {0, 0, 0};
    const real log_total = logl(r->total), normal = log_z(r, &z_error);
    const real mean = k->smoothing > 0 ? smoothed(r, w, k, gap, &mean_error) : 0;
    const real square = k->z > 0 ? k->z * normal * normal : 0;
    const real value = log_total - keep * gap - mean + square;
    spread error = spread_add(r->relative, spread_single(SPREAD_FUNCTION * u * log_total));
    error = spread_add(error, spread_of(u * keep * gap, 3));
    error = spread_add(error, spread_of(u * (log_total - keep * gap), 1));
    error = spread_add(error, spread_of(u * (log_total - keep * gap - mean), 1));
    error = spread_add(error, mean_error);
    if (k->z > 0) {
        error = spread_add(error, spread_times(z_error, 2 * k->z * normal));
        error = spread_add(error, spread_of(u * square, 3));
    }
    error = spread_add(error, spread_of(u * value, 1));
    *bound = reference_stored(w, error, value, w->computed);
    return value;
}

/* The row's loss and its error. */
static real loss_of(const exponentials *r, const reference_work *w, const cross_entropy *k,
                    real own, real *bound)
{
    if (k->smoothing > 0 || k->z > 0) return whole_loss(r, w, k, own, bound);
    const real u = r->u, log_total = logl(r->total), value = r->most + log_total - own;
    spread error = spread_add(r->relative, spread_single(SPREAD_FUNCTION * u * log_total));
    error = spread_add(error, spread_of(u * (r->most + log_total), 1));
    error = spread_add(error, spread_of(u * value, 1));
    error = spread_add(error, spread_of(u * (r->most - own), 1));
    *bound = reference_stored(w, error, value, w->computed);
    return value;
}

static void set_dlogits(const exponentials *r, const reference_work *w, const cross_entropy *k,
                        int64_t label, int64_t first)
{
    const bool plain = k->smoothing == 0 && k->z == 0;
    const real u = r->u, share = k->smoothing / (real)r->cols, keep = 1 - k->smoothing;
    spread z_error = {0, 0, 0};
    const real more = k->z > 0 ? 2 * k->z * log_z(r, &z_error) : 0, times = 1 + more;
    for (int64_t j = 0; j < r->cols; j++) {
        const real p = weight_of(r, j), part = times * p;
        const real hit = j == label ? keep : 0, difference = part - share - hit;
        const real value = difference * k->factor;
        spread error = spread_add(weight_error(r, j), spread_of(u * difference, 1));
        if (!plain) {
            error = spread_add(spread_times(weight_error(r, j), times),
                               spread_times(z_error, 2 * k->z * p));
            error = spread_add(error, spread_of(u * more * p, 3));
            error = spread_add(error, spread_of(u * part, 2));
            error = spread_add(error, spread_of(u * share, 1));
            error = spread_add(error, spread_of(u * hit, 1));
            error = spread_add(error, spread_of(u * (part - share), 1));
            error = spread_add(error, spread_of(u * difference, 1));
        }
        error = spread_add(spread_times(error, k->factor), spread_of(r->u * value, 2));
        error = spread_add(error, spread_of(r->tiny, 1));
        reference_set(k->dlogits, first + j, reference_stored(w, error, value, k->dtype), value);
    }
}

/* For a row that is ignored or has a label out of range. */
static real set_all(const cross_entropy *k, int64_t i, real value)
{
    reference_set(k->loss, i, 0, value);
    for (int64_t j = 0; j < k->cols; j++) reference_set(k->dlogits, i * k->cols + j, 0, value);
    return value;
}

/* Returns the row's loss. */
static real one_row(const cross_entropy *k, exponentials *r, const reference_work *w, int64_t i,
                    real *bound)
{
    const double *x = k->logits + i * k->cols;
    const double label = k->labels[i];
    *bound = 0;
    if (label == k->ignored) return set_all(k, i, 0);
    if (label < 0 || label >= (double)k->cols) return set_all(k, i, NAN);
    exponentials_take(r, x, NULL, k->cols);
    const real value = loss_of(r, w, k, x[(int64_t)label], bound);
    reference_set(k->loss, i, *bound, value);
    if (reference_wants(k->dlogits)) set_dlogits(r, w, k, (int64_t)label, i * k->cols);
    return value;
}

static const char *compute(const reference_work *w)
{
    const cross_entropy k = {.logits = reference_given(w, "logits"),
                             .labels = reference_given(w, "labels"),
                             .ignored = reference_option(w, "ignore_label"),
                             .cols = (int64_t)reference_option(w, "cols"),
                             .loss = reference_find(w, "loss"),
                             .dlogits = reference_find(w, "dlogits"),
                             .factor = reference_loss_factor(w),
                             .smoothing = reference_option(w, "label_smoothing"),
                             .z = reference_option(w, "z_loss"),
                             .dtype = reference_dtype(w, "logits")};
    exponentials row;
    if (!exponentials_make(&row, w, k.cols, 1)) return REFERENCE_NO_MEMORY;
    spread errors = {0, 0, 0};
    moments losses = {0};
    for (int64_t i = 0; i < w->rows; i++) {
        real bound;
        moments_add(&losses, one_row(&k, &row, w, i, &bound));
        errors = spread_add(errors, spread_of(bound, 1));
    }
    reference_set_total(w, reference_find(w, "loss_sum"), errors, &losses);
    exponentials_free(&row);
    return NULL;
}

const reference_kind reference_cross_entropy = {.name = "cross_entropy", .compute = compute};
