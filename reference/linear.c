/* FusedLinear. */
#include <stdlib.h>

#include "activations.h"
#include "products.h"

/* A gradient of z, and its error's part in a sum over many. */
typedef struct gradient {
    real value;
    spread part;
} gradient;

typedef struct linear {
    const reference_work *w;
    const double *x, *weight, *bias, *dy;
    int64_t rows, in, out;
    activation act;
    real u;
    bool tf32;    /* factors of products may be truncated to 11 digits */
    gradient *dz; /* [rows, out] */
} linear;

static inexact preactivation(const linear *k, int64_t i, int64_t o)
{
    moments sum = {0};
    for (int64_t j = 0; j < k->in; j++)
        moments_add(&sum, (real)k->x[i * k->in + j] * k->weight[o * k->in + j]);
    inexact z = {moments_total(&sum), spread_add(products_error(k->u, k->act.dtype, k->tf32, &sum),
                                                 reference_adding(k->w, &sum))};
    if (k->bias) {
        z.value += k->bias[o];
        z.error = spread_add(z.error, spread_of(k->u * z.value, 1));
    }
    z.error = spread_add(z.error, activation_rounding(&k->act, z.value));
    return z;
}

static void set_y(const linear *k, reference_tensor place, int64_t i, inexact z)
{
    const inexact y = activation_apply(&k->act, z);
    const tutti_dtype dtype = k->act.kind == ACTIVATION_NONE ? k->w->computed : k->act.dtype;
    reference_set(place, i, reference_stored(k->w, y.error, y.value, dtype), y.value);
}

static gradient gradient_of(const linear *k, inexact z, const double *y, real dy)
{
    inexact dz = activation_gradient(&k->act, z, y, dy);
    const bool as_it_is = k->act.kind == ACTIVATION_NONE || k->act.kind == ACTIVATION_RELU;
    if (!as_it_is && dy != 0)
        dz.error = spread_add(dz.error, activation_rounding(&k->act, dz.value));
    return (gradient){dz.value, spread_part(dz.error)};
}

static void forward(const linear *k)
{
    const reference_tensor y = reference_find(k->w, "y");
    for (int64_t i = 0; i < k->rows; i++)
        for (int64_t o = 0; o < k->out; o++) {
            const int64_t at = i * k->out + o;
            const inexact z = preactivation(k, i, o);
            set_y(k, y, at, z);
            if (k->dy) k->dz[at] = gradient_of(k, z, y.given ? &y.given[at] : NULL, k->dy[at]);
        }
}

enum { COLUMNS = 64 };

/* A sum over rows for each of several neighbouring columns. */
typedef struct sums {
    moments sum[COLUMNS];
    spread error[COLUMNS];
} sums;

/* sum over n of dz[n * dz_step] b[n * b_step + j], for j below cols; b NULL: of dz. */
static void add_up(const linear *k, sums *s, int64_t count, const gradient *dz, int64_t dz_step,
                   const double *b, int64_t b_step, int cols)
{
    for (int j = 0; j < cols; j++) {
        s->sum[j] = (moments){0};
        s->error[j] = (spread){0, 0, 0};
    }
    for (int64_t n = 0; n < count; n++) {
        const gradient *left = &dz[n * dz_step];
        for (int j = 0; j < cols; j++) {
            const real right = b ? b[n * b_step + j] : 1;
            moments_add(&s->sum[j], left->value * right);
            s->error[j].total += left->part.total * fabsl(right);
            s->error[j].squares += left->part.squares * right * right;
        }
    }
    for (int j = 0; j < cols; j++) {
        if (b)
            s->error[j] =
                spread_add(s->error[j], products_error(k->u, k->act.dtype, k->tf32, &s->sum[j]));
        s->error[j] = spread_add(s->error[j], reference_adding(k->w, &s->sum[j]));
    }
}

/* A row of products with b, [count, in]. */
static void set_row(const linear *k, reference_tensor place, int64_t row, int64_t count,
                    const gradient *dz, int64_t dz_step, const double *b, tutti_dtype dtype)
{
    sums s;
    for (int64_t first = 0; reference_wants(place) && first < k->in; first += COLUMNS) {
        const int cols = (int)(k->in - first < COLUMNS ? k->in - first : COLUMNS);
        add_up(k, &s, count, dz, dz_step, b + first, k->in, cols);
        for (int j = 0; j < cols; j++)
            reference_set_sum(k->w, place, row * k->in + first + j, s.error[j], &s.sum[j], dtype);
    }
}

static void backward(const linear *k)
{
    const reference_work *w = k->w;
    const reference_tensor dx = reference_find(w, "dx"), dweight = reference_find(w, "dweight");
    const reference_tensor dbias = reference_find(w, "dbias");
    sums s;
    for (int64_t i = 0; i < k->rows; i++)
        set_row(k, dx, i, k->out, k->dz + i * k->out, 1, k->weight, k->act.dtype);
    for (int64_t o = 0; o < k->out; o++)
        set_row(k, dweight, o, k->rows, k->dz + o, k->out, k->x, w->computed);
    for (int64_t o = 0; reference_wants(dbias) && o < k->out; o++) {
        add_up(k, &s, k->rows, k->dz + o, k->out, NULL, 0, 1);
        reference_set_sum(w, dbias, o, s.error[0], &s.sum[0], w->computed);
    }
}

static const char *compute(const reference_work *w)
{
    linear k = {.w = w, .rows = w->rows, .u = w->u};
    k.in = (int64_t)reference_option(w, "in");
    k.out = (int64_t)reference_option(w, "out");
    k.x = reference_given(w, "x");
    k.weight = reference_given(w, "weight");
    k.bias = reference_given(w, "bias");
    k.dy = reference_given(w, "dy");
    if (!activation_take(&k.act, w, reference_dtype(w, "x")))
        return "an activation without formulas";
    k.tf32 = reference_option(w, "allow_tf32") != 0 && k.act.dtype == TUTTI_F32;
    k.dz = calloc((size_t)(k.rows * k.out) + 1, sizeof *k.dz);
    if (!k.dz) return REFERENCE_NO_MEMORY;
    forward(&k);
    if (k.dy) backward(&k);
    free(k.dz);
    return NULL;
}

const reference_kind reference_linear = {.name = "linear", .compute = compute};
