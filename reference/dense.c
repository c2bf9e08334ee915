/* See dense.h. */
#include "dense.h"

#include "products.h"

const char *dense_take(dense *d, const reference_work *w, tutti_dtype dtype)
{
    d->w = w;
    d->tf32 = reference_option(w, "allow_tf32") != 0 && dtype == TUTTI_F32;
    return activation_take(&d->act, w, dtype) ? NULL : "an activation without formulas";
}

inexact dense_z(const dense *d, int64_t count, const double *x, const double *w, const double *bias)
{
    moments sum = {0};
    for (int64_t j = 0; j < count; j++) moments_add(&sum, (real)x[j] * w[j]);
    inexact z = {moments_total(&sum),
                 spread_add(products_error(d->w->u, d->act.dtype, d->tf32, &sum),
                            reference_adding(d->w, &sum))};
    if (bias) {
        z.value += *bias;
        z.error = spread_add(z.error, spread_of(d->w->u * z.value, 1));
    }
    z.error = spread_add(z.error, activation_rounding(&d->act, z.value));
    return z;
}

inexact dense_gradient(const dense *d, inexact z, const double *y, inexact dy)
{
    const activation *act = &d->act;
    inexact dz = activation_gradient(act, z, y, dy.value);
    const real off = spread_most(dy.error);
    if (off > 0) {
        dz.error = activation_gradient(act, z, y, fabsl(dy.value) + off).error;
        dz.error =
            spread_add(dz.error, spread_times(dy.error, activation_gradient(act, z, y, 1).value));
    }
    const bool as_it_is = act->kind == ACTIVATION_NONE || act->kind == ACTIVATION_RELU;
    if (!as_it_is && dy.value != 0)
        dz.error = spread_add(dz.error, activation_rounding(act, dz.value));
    return dz;
}

void dense_add_up(const dense *d, const dense_factors *of, int64_t first, int cols, dense_sums *to)
{
    for (int j = 0; j < cols; j++) {
        to->sum[j] = (moments){0};
        to->error[j] = (spread){0, 0, 0};
    }
    for (int64_t n = 0; n < of->count; n++) {
        const term *left = &of->left[n * of->left_step];
        for (int j = 0; j < cols; j++) {
            const real right = of->right ? of->right[n * of->right_step + first + j] : 1;
            moments_add(&to->sum[j], left->value * right);
            to->error[j].total += left->part.total * fabsl(right);
            to->error[j].squares += left->part.squares * right * right;
        }
    }
    for (int j = 0; j < cols; j++) {
        if (of->right)
            to->error[j] = spread_add(to->error[j],
                                      products_error(d->w->u, d->act.dtype, d->tf32, &to->sum[j]));
        to->error[j] = spread_add(to->error[j], reference_adding(d->w, &to->sum[j]));
    }
}

void dense_set(const dense *d, const dense_factors *of, reference_tensor place, int64_t first,
               int64_t apart, int64_t cols, tutti_dtype dtype)
{
    if (!reference_wants(place)) return;
#pragma omp parallel for if (of->count * cols >= DENSE_MANY)
    for (int64_t from = 0; from < cols; from += DENSE_COLUMNS) {
        dense_sums s;
        const int some = (int)(cols - from < DENSE_COLUMNS ? cols - from : DENSE_COLUMNS);
        dense_add_up(d, of, from, some, &s);
        for (int j = 0; j < some; j++)
            reference_set_sum(d->w, place, first + (from + j) * apart, s.error[j], &s.sum[j],
                              dtype);
    }
}
