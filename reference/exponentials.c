/* See exponentials.h. */
#include "exponentials.h"

#include <stdlib.h>

bool exponentials_make(exponentials *r, const reference_work *w, int64_t cols, real scale)
{
    *r = (exponentials){.w = w, .u = w->u, .scale = scale, .tiny = spread_tiny(w->computed)};
    if (scale != 0 && w->computed == TUTTI_F32) r->lost = fabsl((real)(float)scale / scale - 1);
    r->gap = calloc((size_t)cols * 3, sizeof *r->gap);
    if (!r->gap) return false;
    r->e = r->gap + cols;
    r->scaled = r->e + cols;
    return true;
}

void exponentials_free(exponentials *r)
{
    free(r->gap);
}

spread exponent_error(const exponentials *r, int64_t j)
{
    if (!isfinite(r->gap[j])) return (spread){0, 0, 0};
    spread error = spread_of(r->u * r->gap[j], 1);
    if (r->bias) {
        /* an error of the largest is common to all and cancels */
        error = spread_add(error, spread_of(r->u * (r->scaled[j] + r->bias[j]), 1));
        if (r->scale == 1) return error;
        error = spread_add(error, spread_of(r->u * r->scaled[j], 1));
        return spread_add(error, spread_single(r->lost * r->scaled[j]));
    }
    if (r->scale == 1) return error;
    error = spread_add(error, spread_of(r->u * r->gap[j], 1));
    return spread_add(error, spread_single(r->lost * r->gap[j]));
}

/* Relative error of an exponential: the change of base and the function itself. */
static spread own_error(const exponentials *r, int64_t j)
{
    if (!isfinite(r->gap[j])) return (spread){0, 0, 0};
    spread error = spread_add(exponent_error(r, j), spread_of(r->u * r->gap[j], 1));
    if (r->gap[j] != 0) error = spread_add(error, spread_single(SPREAD_FUNCTION * r->u));
    return error;
}

void exponentials_take(exponentials *r, const double *x, const double *bias, int64_t cols)
{
    moments sum = {0};
    spread own = {0};
    r->cols = cols;
    r->bias = bias;
    r->most = -INFINITY;
    for (int64_t j = 0; j < cols; j++) {
        r->scaled[j] = r->scale * x[j];
        r->gap[j] = r->scaled[j] + (bias ? bias[j] : 0);
        r->most = fmaxl(r->most, r->gap[j]);
    }
    for (int64_t j = 0; j < cols && !isnan(sum.total); j++) {
        r->gap[j] -= r->most;
        r->e[j] = expl(r->gap[j]);
        moments_add(&sum, r->e[j]);
        own = spread_add(own, spread_part(spread_times(own_error(r, j), r->e[j])));
    }
    r->total = moments_total(&sum);
    r->relative = spread_times(spread_add(own, reference_along_row(r->w, &sum)), 1 / r->total);
}

spread weight_error(const exponentials *r, int64_t j)
{
    if (r->cols <= 1 || !isfinite(r->gap[j])) return (spread){0, 0, 0}; /* a single one is 1 */
    spread error = spread_add(spread_add(own_error(r, j), r->relative), spread_of(r->u, 2));
    return spread_add(spread_times(error, weight_of(r, j)), spread_of(r->tiny, 1));
}
