/* Bounds of Embedding: y is a copy, a row of the gradient a chain over the rows of its token. */
#include <stdlib.h>

#include "bounds.h"
#include "common/exit_code.h"
#include "spread.h"

static int bounds_embedding(const bounds_work *w)
{
    const bounds_place y = bounds_place_of(w, TUTTI_CASE_EXPECTED, "y");
    const bounds_place dweight = bounds_place_of(w, TUTTI_CASE_EXPECTED_GRAD, "dweight");
    const double *weight = bounds_values(w, TUTTI_CASE_PARAMS, "weight");
    const double *tokens = bounds_values(w, TUTTI_CASE_INPUTS, "tokens");
    const double *dy = bounds_values(w, TUTTI_CASE_UPSTREAM, "dy");
    const int64_t cols = (int64_t)bounds_option(w, "cols"),
                  vocab = (int64_t)bounds_option(w, "vocab");
    for (int64_t i = 0; i < w->rows * cols; i++)
        bounds_set(y, i, 0, weight[(int64_t)tokens[i / cols] * cols + i % cols]);
    if (!dweight.bound || !dy) return APP_OK;
    moments *sums = calloc((size_t)(vocab * cols) + 1, sizeof *sums);
    if (!sums) return app_fail(APP_FAILED, "no memory for bounds");
    for (int64_t i = 0; i < w->rows; i++)
        for (int64_t j = 0; j < cols; j++)
            moments_add(&sums[(int64_t)tokens[i] * cols + j], dy[i * cols + j]);
    for (int64_t i = 0; i < vocab * cols; i++)
        if (sums[i].count > 0)
            bounds_set(dweight, i,
                       spread_stored(spread_chain(w->u, &sums[i]), moments_total(&sums[i]),
                                     w->computed, w->computed),
                       moments_total(&sums[i]));
    free(sums);
    return APP_OK;
}

const layer_kind embedding_kind = {
    .name = "embedding",
    .bounds = bounds_embedding,
    .by_name = true, /* a linear layer without bias has a weight, too */
};
