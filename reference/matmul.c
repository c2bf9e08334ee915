/* Batched matrix product. */
#include "kind.h"
#include "products.h"

typedef struct matmul {
    const reference_work *w;
    tutti_dtype dtype;
    bool tf32;
} matmul;

/* A matrix of a tensor: element [i, j] is at first + i * down + j * right. */
typedef struct place {
    reference_tensor tensor;
    int64_t first, down, right;
} place;

/* Matrix number `item` of [rows, cols], or of [cols, rows] if it is stored transposed. */
static place place_of(reference_tensor tensor, int64_t item, int64_t rows, int64_t cols,
                      bool transposed)
{
    return (place){tensor, item * rows * cols, transposed ? 1 : cols, transposed ? rows : 1};
}

static place transpose(place p)
{
    return (place){p.tensor, p.first, p.right, p.down};
}

/* c = a b, a: [m, k], b: [k, n]. */
static void multiply(const matmul *p, place a, place b, place c, int64_t m, int64_t n, int64_t k)
{
    if (!reference_wants(c.tensor)) return;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            const double *left = &a.tensor.given[a.first + i * a.down];
            const double *right = &b.tensor.given[b.first + j * b.right];
            moments sum = {0};
            for (int64_t l = 0; l < k; l++)
                moments_add(&sum, (real)left[l * a.right] * right[l * b.down]);
            const spread error = spread_add(products_error(p->w->u, p->dtype, p->tf32, &sum),
                                            reference_adding(p->w, &sum));
            const real value = moments_total(&sum);
            reference_set(c.tensor, c.first + i * c.down + j * c.right,
                          reference_stored(p->w, error, value, p->dtype), value);
        }
}

static const char *compute(const reference_work *w)
{
    const int64_t m = (int64_t)reference_option(w, "m"), n = (int64_t)reference_option(w, "n");
    const int64_t k = (int64_t)reference_option(w, "k");
    const bool ta = reference_option(w, "transpose_a") != 0;
    const bool tb = reference_option(w, "transpose_b") != 0;
    matmul p = {.w = w, .dtype = reference_dtype(w, "a")};
    p.tf32 = reference_option(w, "allow_tf32") != 0 && p.dtype == TUTTI_F32;
    const reference_tensor tensors[] = {reference_find(w, "a"), reference_find(w, "b"),
                                        reference_find(w, "c"), reference_find(w, "dc")};
    const reference_tensor grads[] = {reference_find(w, "da"), reference_find(w, "db")};
    for (int64_t item = 0; item < w->rows; item++) {
        const place a = place_of(tensors[0], item, m, k, ta);
        const place b = place_of(tensors[1], item, k, n, tb);
        const place dc = place_of(tensors[3], item, m, n, false);
        multiply(&p, a, b, place_of(tensors[2], item, m, n, false), m, n, k);
        multiply(&p, dc, transpose(b), place_of(grads[0], item, m, k, ta), m, k, n);
        multiply(&p, transpose(a), dc, place_of(grads[1], item, k, n, tb), k, n, m);
    }
    return NULL;
}

const reference_kind reference_matmul = {.name = "matmul", .compute = compute};
