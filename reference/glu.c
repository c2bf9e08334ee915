/* GLU. */
#include "activations.h"

/* A number of the arithmetic times an exact factor; lost: where it was no normal number. */
static void set_product(const reference_work *w, reference_tensor t, int64_t at, inexact v,
                        real factor, tutti_dtype dtype)
{
    const spread lost = spread_of(spread_least(w->computed), 1);
    const real value = v.value * factor;
    spread error = spread_times(spread_add(v.error, lost), factor);
    error = spread_add(error, spread_of(w->u * value, 1));
    reference_set(t, at, reference_stored(w, error, value, dtype), value);
}

static const char *compute(const reference_work *w)
{
    const reference_tensor y = reference_find(w, "y");
    const reference_tensor da = reference_find(w, "da"), db = reference_find(w, "db");
    const double *a = reference_given(w, "a"), *b = reference_given(w, "b");
    const double *dy = reference_given(w, "dy");
    const tutti_dtype dtype = reference_dtype(w, "a");
    const int64_t count = w->rows * (int64_t)reference_option(w, "cols");
    activation act; /* a is exact, and act(a) is not rounded */
    if (!activation_take(&act, w, w->computed)) return "an activation without formulas";
    act.from_z = true;
    act.fast = tutti_dtype_size(dtype) == 2;
    for (int64_t i = 0; i < count; i++) {
        const inexact z = {a[i], {0, 0, 0}}, gate = activation_apply(&act, z);
        set_product(w, y, i, gate, b[i], dtype);
        if (!dy) continue;
        set_product(w, da, i, activation_gradient(&act, z, NULL, dy[i]), b[i], dtype);
        set_product(w, db, i, gate, dy[i], dtype);
    }
    return NULL;
}

const reference_kind reference_glu = {.name = "glu", .compute = compute};
