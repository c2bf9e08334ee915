/* BiasDropoutActivation, element by element. */
#include <stdlib.h>

#include "activations.h"
#include "philox.h"

typedef struct dropout {
    const reference_work *w;
    activation act;
    double dropped; /* of 65536 */
    int64_t number;
} dropout;

static bool keeps(const dropout *k, int64_t row, int64_t col)
{
    const reference_problem *p = k->w->problem;
    return reference_mask_bits(p->step.seed, p->step.step, k->number, p->first_row + row, col) >=
           k->dropped;
}

/* Of the part that is kept. */
static inexact quotient(const dropout *k, inexact a)
{
    const real kept = 1 - k->dropped / 65536;
    a.value /= kept;
    a.error = spread_add(spread_times(a.error, 1 / kept), spread_of(k->w->u * a.value, 1));
    return a;
}

/* Backward makes z again: relu and its kin see it as it is, and squared_relu needs no root. */
static inexact gradient(const dropout *k, inexact z, real dy)
{
    const double y = (double)activation_apply(&k->act, z).value;
    inexact dz = activation_gradient(&k->act, z, &y, dy);
    if (k->act.kind == ACTIVATION_SQUARED_RELU) {
        const bool left = z.value <= 0;
        dz.value = left ? 0 * dy : 2 * z.value * dy;
        dz.error =
            left ? (spread){0, 0, 0}
                 : spread_add(spread_times(z.error, 2 * dy), spread_of(k->w->u * dz.value, 1));
    }
    return quotient(k, dz);
}

static const char *compute(const reference_work *w)
{
    const double *x = reference_given(w, "x"), *bias = reference_given(w, "bias");
    const double *dy = reference_given(w, "dy");
    const reference_tensor y = reference_find(w, "y"), dx = reference_find(w, "dx");
    const reference_tensor dbias = reference_find(w, "dbias");
    const int64_t cols = (int64_t)reference_option(w, "cols");
    dropout k = {.w = w, .number = (int64_t)reference_option(w, "layer_number")};
    k.dropped = nearbyint(reference_option(w, "p") * 65536);
    if (!activation_take(&k.act, w, w->computed)) /* z and act(z) are not stored */
        return "an activation without formulas";
    const tutti_dtype stored = reference_dtype(w, "x");
    moments *sums = calloc((size_t)cols, sizeof *sums);
    spread *errors = calloc((size_t)cols, sizeof *errors);
    for (int64_t i = 0; i < w->rows * cols && sums && errors; i++) {
        const int64_t j = i % cols;
        const bool kept = keeps(&k, i / cols, j);
        inexact z = {x ? x[i] : 0, {0, 0, 0}}, a = {0, {0, 0, 0}}, d = {0, {0, 0, 0}};
        if (bias) {
            z.value += bias[j];
            z.error = spread_of(w->u * z.value, 1);
        }
        if (kept && reference_wants(y)) a = quotient(&k, activation_apply(&k.act, z));
        if (kept && dy) d = gradient(&k, z, dy[i]);
        reference_set(y, i, kept ? reference_stored(w, a.error, a.value, stored) : 0, a.value);
        reference_set(dx, i, kept ? reference_stored(w, d.error, d.value, stored) : 0, d.value);
        if (!kept) continue;
        moments_add(&sums[j], d.value);
        errors[j] = spread_add(errors[j], spread_part(d.error));
    }
    const bool made = sums && errors;
    for (int64_t j = 0; made && j < cols; j++)
        reference_set_sum(w, dbias, j, spread_add(errors[j], reference_adding(w, &sums[j])),
                          &sums[j], reference_dtype(w, "dbias"));
    free(sums);
    free(errors);
    return made ? NULL : REFERENCE_NO_MEMORY;
}

const reference_kind reference_dropout = {.name = "dropout", .compute = compute};
