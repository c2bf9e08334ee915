/* FusedLinear. */
#include <stdlib.h>

#include "dense.h"

typedef struct linear {
    dense d;
    const double *x, *weight, *bias, *dy;
    int64_t rows, in, out;
    term *dz; /* [rows, out] */
} linear;

static void forward(const linear *k)
{
    const reference_work *w = k->d.w;
    const activation *act = &k->d.act;
    const reference_tensor place = reference_find(w, "y");
    const tutti_dtype stored = act->kind == ACTIVATION_NONE ? w->computed : act->dtype;
#pragma omp parallel for collapse(2) if (k->rows * k->out * k->in >= DENSE_MANY)
    for (int64_t i = 0; i < k->rows; i++)
        for (int64_t o = 0; o < k->out; o++) {
            const int64_t at = i * k->out + o;
            const inexact z = dense_z(&k->d, k->in, k->x + i * k->in, k->weight + o * k->in,
                                      k->bias ? k->bias + o : NULL);
            const inexact y = activation_apply(act, z);
            reference_set(place, at, reference_stored(w, y.error, y.value, stored), y.value);
            if (!k->dy) continue;
            const inexact dy = {k->dy[at], {0, 0, 0}};
            const double *have = place.given ? &place.given[at] : NULL;
            k->dz[at] = dense_term(dense_gradient(&k->d, z, have, dy));
        }
}

static void backward(const linear *k)
{
    const dense *d = &k->d;
    const int64_t rows = k->rows, in = k->in, out = k->out;
    const tutti_dtype dtype = d->act.dtype, computed = d->w->computed;
    const reference_tensor dx = reference_find(d->w, "dx"),
                           dweight = reference_find(d->w, "dweight");
    const reference_tensor dbias = reference_find(d->w, "dbias");
    for (int64_t i = 0; i < rows; i++) {
        const dense_factors of = {out, k->dz + i * out, 1, k->weight, in};
        dense_set(d, &of, dx, i * in, 1, in, dtype);
    }
    for (int64_t o = 0; o < out; o++) {
        const dense_factors of = {rows, k->dz + o, out, k->x, in};
        dense_set(d, &of, dweight, o * in, 1, in, computed);
        const dense_factors alone = {rows, k->dz + o, out, NULL, 0};
        dense_set(d, &alone, dbias, o, 1, 1, computed);
    }
}

static const char *compute(const reference_work *w)
{
    linear k = {.rows = w->rows};
    k.in = (int64_t)reference_option(w, "in");
    k.out = (int64_t)reference_option(w, "out");
    k.x = reference_given(w, "x");
    k.weight = reference_given(w, "weight");
    k.bias = reference_given(w, "bias");
    k.dy = reference_given(w, "dy");
    const char *wrong = dense_take(&k.d, w, reference_dtype(w, "x"));
    if (wrong) return wrong;
    k.dz = calloc((size_t)(k.rows * k.out) + 1, sizeof *k.dz);
    if (!k.dz) return REFERENCE_NO_MEMORY;
    forward(&k);
    if (k.dy) backward(&k);
    free(k.dz);
    return NULL;
}

const reference_kind reference_linear = {.name = "linear", .compute = compute};
