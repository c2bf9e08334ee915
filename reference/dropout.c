/* BiasDropoutActivation. */
#include "activations.h"
#include "philox.h"

/* An element that is kept, over p_keep. */
static void set_kept(const reference_work *w, reference_tensor t, int64_t at, inexact *v,
                     real p_keep, tutti_dtype dtype)
{
    const spread lost = spread_of(spread_least(w->computed), 1); /* where v is no normal number */
    v->value /= p_keep;
    v->error = spread_times(spread_add(v->error, lost), 1 / p_keep);
    if (p_keep != 1) v->error = spread_add(v->error, spread_of(w->u * v->value, 1));
    reference_set(t, at, reference_stored(w, v->error, v->value, dtype), v->value);
}

static const char *compute(const reference_work *w)
{
    const reference_tensor y = reference_find(w, "y"), dx = reference_find(w, "dx");
    const double *x = reference_given(w, "x"), *bias = reference_given(w, "bias");
    const double *dy = reference_given(w, "dy");
    const tutti_dtype dtype = reference_dtype(w, "x");
    const int64_t cols = (int64_t)reference_option(w, "cols");
    const int64_t number = (int64_t)reference_option(w, "layer_number");
    const real dropped = rintl(65536 * (real)reference_option(w, "p")),
               p_keep = 1 - dropped / 65536;
    const tutti_step_values *step = &w->problem->step;
    activation act; /* z is not rounded */
    if (!activation_take(&act, w, w->computed)) return "an activation without formulas";
    for (int64_t j = 0; j < cols; j++) {
        moments sum = {0};
        spread errors = {0, 0, 0};
        for (int64_t i = 0; i < w->rows; i++) {
            const int64_t at = i * cols + j, row = w->problem->first_row + i;
            if (reference_mask_bits(step->seed, step->step, number, row, j) < dropped) {
                reference_set(y, at, 0, 0);
                reference_set(dx, at, 0, 0);
                moments_add(&sum, 0);
                continue;
            }
            inexact z = {x ? x[at] : 0, {0, 0, 0}};
            if (bias) {
                z.value += bias[j];
                z.error = spread_of(w->u * z.value, 1);
            }
            inexact v = activation_apply(&act, z);
            set_kept(w, y, at, &v, p_keep, dtype);
            if (!dy) continue;
            v = activation_gradient(&act, z, NULL, dy[at]);
            set_kept(w, dx, at, &v, p_keep, dtype);
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
