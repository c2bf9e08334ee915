/* MLP. */
#include <stdlib.h>

#include "dense.h"

typedef struct mlp {
    dense d;
    int64_t rows, in, hidden, out;
    const double *x, *weight1, *bias1, *weight2, *bias2, *dy;
    const double *h_given; /* as forward stored it; NULL: as it is computed here */
    inexact *z;            /* [rows, hidden] */
    term *h, *dz, *dy_terms;
} mlp;

static void hidden_layer(const mlp *k)
{
    const reference_work *w = k->d.w;
    const activation *act = &k->d.act;
    const reference_tensor place = reference_find(w, "h");
    const tutti_dtype stored = act->kind == ACTIVATION_NONE ? w->computed : act->dtype;
#pragma omp parallel for collapse(2) if (k->rows * k->hidden * k->in >= DENSE_MANY)
    for (int64_t i = 0; i < k->rows; i++)
        for (int64_t o = 0; o < k->hidden; o++) {
            const int64_t at = i * k->hidden + o;
            k->z[at] = dense_z(&k->d, k->in, k->x + i * k->in, k->weight1 + o * k->in,
                               k->bias1 ? k->bias1 + o : NULL);
            inexact h = activation_apply(act, k->z[at]);
            reference_set(place, at, reference_stored(w, h.error, h.value, stored), h.value);
            if (act->kind != ACTIVATION_NONE)
                h.error = spread_add(h.error, activation_rounding(act, h.value));
            if (k->h_given) h = (inexact){k->h_given[at], {0, 0, 0}};
            k->h[at] = dense_term(h);
        }
}

/* y = h W2^T + b2 */
static void output_layer(const mlp *k)
{
    const reference_work *w = k->d.w;
    const reference_tensor y = reference_find(w, "y");
    if (!reference_wants(y)) return;
#pragma omp parallel for collapse(2) if (k->rows * k->out * k->hidden >= DENSE_MANY)
    for (int64_t i = 0; i < k->rows; i++)
        for (int64_t j = 0; j < k->out; j++) {
            dense_sums s;
            const dense_factors of = {k->hidden, k->h + i * k->hidden, 1,
                                      k->weight2 + j * k->hidden, 1};
            dense_add_up(&k->d, &of, 0, 1, &s);
            real value = moments_total(&s.sum[0]);
            if (k->bias2) {
                value += k->bias2[j];
                s.error[0] = spread_add(s.error[0], spread_of(w->u * value, 1));
            }
            const real bound = reference_stored(w, s.error[0], value, k->d.act.dtype);
            reference_set(y, i * k->out + j, bound, value);
        }
}

/* dz = (dy W2) act'(z) */
static void hidden_gradient(const mlp *k)
{
    const dense *d = &k->d;
#pragma omp parallel for collapse(2) if (k->rows * k->out * k->hidden >= DENSE_MANY)
    for (int64_t i = 0; i < k->rows; i++)
        for (int64_t first = 0; first < k->hidden; first += DENSE_COLUMNS) {
            const dense_factors of = {k->out, k->dy_terms + i * k->out, 1, k->weight2, k->hidden};
            dense_sums s;
            const int64_t left = k->hidden - first;
            const int cols = (int)(left < DENSE_COLUMNS ? left : DENSE_COLUMNS);
            dense_add_up(d, &of, first, cols, &s);
            for (int j = 0; j < cols; j++) {
                const int64_t at = i * k->hidden + first + j;
                inexact dh = {moments_total(&s.sum[j]), s.error[j]};
                dh.error = spread_add(dh.error, activation_rounding(&d->act, dh.value));
                const double *have = k->h_given ? &k->h_given[at] : NULL;
                k->dz[at] = dense_term(dense_gradient(d, k->z[at], have, dh));
            }
        }
}

static void sums(const mlp *k)
{
    const dense *d = &k->d;
    const reference_work *w = d->w;
    const int64_t rows = k->rows, in = k->in, hidden = k->hidden, out = k->out;
    const tutti_dtype computed = w->computed;
    const reference_tensor up = reference_find(w, "dweight1");
    const reference_tensor bias1 = reference_find(w, "dbias1");
    const reference_tensor down = reference_find(w, "dweight2");
    const reference_tensor bias2 = reference_find(w, "dbias2");
    const reference_tensor dx = reference_find(w, "dx");
    for (int64_t i = 0; i < rows; i++) {
        const dense_factors of = {hidden, k->dz + i * hidden, 1, k->weight1, in};
        dense_set(d, &of, dx, i * in, 1, in, d->act.dtype);
    }
    for (int64_t o = 0; o < hidden; o++) {
        const dense_factors of_up = {rows, k->dz + o, hidden, k->x, in};
        const dense_factors of_bias = {rows, k->dz + o, hidden, NULL, 0};
        const dense_factors of_down = {rows, k->h + o, hidden, k->dy, out};
        dense_set(d, &of_up, up, o * in, 1, in, computed);
        dense_set(d, &of_bias, bias1, o, 1, 1, computed);
        dense_set(d, &of_down, down, o, hidden, out, computed);
    }
    for (int64_t j = 0; j < out; j++) {
        const dense_factors of_bias = {rows, k->dy_terms + j, out, NULL, 0};
        dense_set(d, &of_bias, bias2, j, 1, 1, computed);
    }
}

static bool make_room(mlp *k)
{
    const size_t hidden = (size_t)(k->rows * k->hidden) + 1;
    k->z = calloc(hidden, sizeof *k->z);
    k->h = calloc(hidden, sizeof *k->h);
    k->dz = calloc(hidden, sizeof *k->dz);
    k->dy_terms = calloc((size_t)(k->rows * k->out) + 1, sizeof *k->dy_terms);
    return k->z && k->h && k->dz && k->dy_terms;
}

static const char *compute(const reference_work *w)
{
    mlp k = {.rows = w->rows};
    k.in = (int64_t)reference_option(w, "in");
    k.hidden = (int64_t)reference_option(w, "hidden");
    k.out = (int64_t)reference_option(w, "out");
    k.x = reference_given(w, "x");
    k.weight1 = reference_given(w, "weight1");
    k.bias1 = reference_given(w, "bias1");
    k.weight2 = reference_given(w, "weight2");
    k.bias2 = reference_given(w, "bias2");
    k.dy = reference_given(w, "dy");
    k.h_given = reference_given(w, "h");
    const char *wrong = dense_take(&k.d, w, reference_dtype(w, "x"));
    if (wrong) return wrong;
    if (make_room(&k)) {
        hidden_layer(&k);
        output_layer(&k);
        for (int64_t i = 0; k.dy && i < k.rows * k.out; i++) k.dy_terms[i].value = k.dy[i];
        if (k.dy) hidden_gradient(&k);
        if (k.dy) sums(&k);
    } else {
        wrong = REFERENCE_NO_MEMORY;
    }
    free(k.z);
    free(k.h);
    free(k.dz);
    free(k.dy_terms);
    return wrong;
}

const reference_kind reference_mlp = {.name = "mlp", .compute = compute};
