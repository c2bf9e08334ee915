/* BiasDropoutActivation. */
#include "activations.h"
#include "philox.h"

/* The error of the fast functions that a GPU takes for the 16-bit types, relative. */
#define FAST 0x1p-17L

typedef struct drop {
    const reference_work *w;
    activation act; /* z is not rounded */
    tutti_dtype dtype;
    bool narrow; /* dtype has 16 bits */
    real dropped, p_keep;
} drop;

/* act(z), or dy act'(z) where `dy` is not NULL. */
static inexact apply(const drop *d, inexact z, const double *dy)
{
    inexact v = dy ? activation_gradient(&d->act, z, NULL, *dy) : activation_apply(&d->act, z);
    if (d->act.kind == ACTIVATION_NONE || !d->narrow) return v;
    /* a slope is the sum of two terms, which are no larger than it and 1/2 together */
    const real fast = FAST * (fabsl(v.value) + (dy ? fabsl(*dy) / 2 : 0));
    if (isfinite(fast)) v.error = spread_add(v.error, spread_single(fast));
    return v;
}

/* An element that is kept, over p_keep, which the 16-bit types multiply by its reciprocal. */
static void keep(const drop *d, inexact *v)
{
    const spread lost = spread_of(spread_least(d->w->computed), 1); /* v may be no normal number */
    v->value /= d->p_keep;
    v->error = spread_times(spread_add(v->error, lost), 1 / d->p_keep);
    if (d->p_keep != 1)
        v->error = spread_add(v->error, spread_of(d->w->u * v->value, 1 + d->narrow));
}

static void set(const drop *d, reference_tensor t, int64_t at, const inexact *v)
{
    reference_set(t, at, reference_stored(d->w, v->error, v->value, d->dtype), v->value);
}

static void set_output(const drop *d, reference_tensor y, int64_t at, inexact v,
                       const double *residual)
{
    if (residual) {
        v.value += residual[at];
        v.error = spread_add(v.error, spread_of(d->w->u * v.value, 1));
    }
    set(d, y, at, &v);
}

static const char *compute(const reference_work *w)
{
    const reference_tensor y = reference_find(w, "y"), dx = reference_find(w, "dx");
    const double *x = reference_given(w, "x"), *bias = reference_given(w, "bias");
    const double *dy = reference_given(w, "dy"), *residual = reference_given(w, "residual");
    const int64_t cols = (int64_t)reference_option(w, "cols");
    const int64_t number = (int64_t)reference_option(w, "layer_number");
    const tutti_step_values *step = &w->problem->step;
    drop d = {.w = w, .dtype = reference_dtype(w, "x")};
    d.narrow = tutti_dtype_size(d.dtype) == 2;
    d.dropped = rintl(65536 * (real)reference_option(w, "p"));
    d.p_keep = 1 - d.dropped / 65536;
    if (!activation_take(&d.act, w, w->computed)) return "an activation without formulas";
    for (int64_t j = 0; j < cols; j++) {
        moments sum = {0};
        spread errors = {0, 0, 0};
        for (int64_t i = 0; i < w->rows; i++) {
            const int64_t at = i * cols + j, row = w->problem->first_row + i;
            if (reference_mask_bits(step->seed, step->step, number, row, j) < d.dropped) {
                reference_set(y, at, 0, residual ? residual[at] : 0);
                reference_set(dx, at, 0, 0);
                moments_add(&sum, 0);
                continue;
            }
            inexact z = {x ? x[at] : 0, {0, 0, 0}};
            if (bias) {
                z.value += bias[j];
                z.error = spread_of(w->u * z.value, 1);
            }
            inexact v = apply(&d, z, NULL);
            keep(&d, &v);
            set_output(&d, y, at, v, residual);
            if (!dy) continue;
            v = apply(&d, z, &dy[at]);
            keep(&d, &v);
            set(&d, dx, at, &v);
            moments_add(&sum, v.value);
            errors = spread_add(errors, spread_part(v.error));
        }
        if (dy)
            reference_set_sum(w, reference_find(w, "dbias"), j,
                              spread_add(errors, reference_adding(w, &sum)), &sum, w->computed);
    }
    return NULL;
}

const reference_kind reference_dropout = {.name = "dropout", .compute = compute};
