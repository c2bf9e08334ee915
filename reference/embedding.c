/* Embedding: y is a copy; a row of the gradient is the sum of dy over its token's rows. */
#include <stdlib.h>

#include "kind.h"

/* Blocks of 64, merged pairwise, limit the number of additions that a row takes part in. */
static spread blocks_error(real u, const moments *m)
{
    const real additions =
        m->count <= 64 ? fmaxl(m->count - 1, 0) : 63 + ceill(log2l(m->count / 64));
    const real each = u * m->magnitude;
    return (spread){additions * each, additions * each * each, 0};
}

typedef struct table {
    const double *tokens;
    int64_t vocab, cols;
} table;

/* The token of a row; -1 if it is out of range. */
static int64_t token_of(const table *t, int64_t row)
{
    const double token = t->tokens[row];
    return token >= 0 && token < (double)t->vocab ? (int64_t)token : -1;
}

static const char *backward(const reference_work *w, const table *t, reference_tensor dweight)
{
    const double *dy = reference_given(w, "dy");
    moments *sums = calloc((size_t)(t->vocab * t->cols) + 1, sizeof *sums);
    if (!sums) return REFERENCE_NO_MEMORY;
    for (int64_t i = 0; i < w->rows; i++)
        for (int64_t j = 0; token_of(t, i) >= 0 && j < t->cols; j++)
            moments_add(&sums[token_of(t, i) * t->cols + j], dy[i * t->cols + j]);
    for (int64_t i = 0; i < t->vocab * t->cols; i++) {
        const spread error =
            w->problem->any_order ? spread_chain(w->u, &sums[i]) : blocks_error(w->u, &sums[i]);
        reference_set_sum(w, dweight, i, error, &sums[i], w->computed);
    }
    free(sums);
    return NULL;
}

static const char *compute(const reference_work *w)
{
    const reference_tensor y = reference_find(w, "y"), dweight = reference_find(w, "dweight");
    const double *weight = reference_given(w, "weight");
    const table t = {.tokens = reference_given(w, "tokens"),
                     .vocab = (int64_t)reference_option(w, "vocab"),
                     .cols = (int64_t)reference_option(w, "cols")};
    for (int64_t i = 0; reference_wants(y) && i < w->rows; i++)
        for (int64_t j = 0, token = token_of(&t, i); j < t.cols; j++)
            reference_set(y, i * t.cols + j, 0, token >= 0 ? weight[token * t.cols + j] : NAN);
    return reference_wants(dweight) ? backward(w, &t, dweight) : NULL;
}

const reference_kind reference_embedding = {.name = "embedding", .compute = compute};
