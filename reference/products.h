/* What the errors of matrix products have in common; see docs/numerics.md, FusedLinear. */
#ifndef TUTTI_REFERENCE_PRODUCTS_H
#define TUTTI_REFERENCE_PRODUCTS_H

#include "spread.h"

/* Error of the products in a sum, without the additions; dtype: of the factors; tf32: they may be
 * truncated to 11 digits. */
static inline spread products_error(real u, tutti_dtype dtype, bool tf32, const moments *m)
{
    spread products = {u * m->magnitude, u * u * m->squares, 0};
    /* Tensor cores add 16 products of 16 bits at a time to a partial sum and truncate to f32: up to
     * 2 u of the partial sum, always towards 0 [Fasi et al. 2021] */
    if (tutti_dtype_size(dtype) == 2)
        products.few = 2 * u * m->count / 16 * (fabsl(m->total) + sqrtl(m->squares));
    if (!tf32) return products;
    /* TF32 loses up to 2^-10 of each factor.  If it truncates, all terms shrink, by half of that on
     * average */
    const real lost = 2 * 0x1p-10L, shrunk = lost / 2 * fabsl(m->total);
    const spread cut = {lost * m->magnitude, lost * lost * m->squares, shrunk};
    return spread_add(products, cut);
}

#endif
