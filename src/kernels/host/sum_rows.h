/* Sums over a row, for one REAL: a chunk is summed in 32 lanes of REALs, each a chain of up to 16
 * terms, merged pairwise; chunks are added in two words.  The lanes are explicit, so that order and
 * accuracy do not depend on the vectoriser. */

/* Adds the terms of count <= TUTTI__CHUNK columns to lanes. */
TUTTI__INLINE void OF(add_columns)(REAL *sums, REAL *products, const REAL *a, const REAL *b,
                                   REAL shift, int64_t count)
{
    int64_t j = 0;
    for (; j + TUTTI__LANES <= count; j += TUTTI__LANES)
        for (int k = 0; k < TUTTI__LANES; k++) {
            if (sums) sums[k] += a[j + k] - shift;
            if (products) products[k] += (a[j + k] - shift) * (b[j + k] - shift);
        }
    for (int k = 0; j < count; j++, k++) {
        if (sums) sums[k] += a[j] - shift;
        if (products) products[k] += (a[j] - shift) * (b[j] - shift);
    }
}

TUTTI__INLINE void OF(fold_lanes)(REAL *lane, int half)
{
    for (int k = 0; k < half; k++) lane[k] += lane[k + half];
}

/* Unrolled, so that the compiler keeps the lanes in registers. */
TUTTI__INLINE REAL OF(merge_lanes)(REAL *lane)
{
    OF(fold_lanes)(lane, 16);
    OF(fold_lanes)(lane, 8);
    OF(fold_lanes)(lane, 4);
    OF(fold_lanes)(lane, 2);
    return lane[0] + lane[1];
}

TUTTI__INLINE void OF(chunk_sums)(const REAL *a, const REAL *b, REAL shift, int64_t count,
                                  REAL *sum, REAL *product)
{
    REAL lane[TUTTI__LANES] = {0}, lane_of_products[TUTTI__LANES] = {0};
    OF(add_columns)(sum ? lane : NULL, product ? lane_of_products : NULL, a, b, shift, count);
    if (sum) *sum = OF(merge_lanes)(lane);
    if (product) *product = OF(merge_lanes)(lane_of_products);
}

/* The sums of a - shift and of (a - shift) (b - shift).  A NULL sum is not computed once
 * inlined. */
TUTTI__INLINE void OF(row_sums)(const REAL *a, const REAL *b, REAL shift, int64_t cols, double *sum,
                                double *product)
{
    tutti__long_sum sums = {0, 0}, products = {0, 0};
    REAL s = 0, p = 0;
    int64_t c = 0;
    for (; c + TUTTI__CHUNK <= cols; c += TUTTI__CHUNK) {
        OF(chunk_sums)(a + c, b + c, shift, TUTTI__CHUNK, sum ? &s : NULL, product ? &p : NULL);
        if (sum) tutti__long_add(&sums, s);
        if (product) tutti__long_add(&products, p);
    }
    if (c < cols) {
        OF(chunk_sums)(a + c, b + c, shift, cols - c, sum ? &s : NULL, product ? &p : NULL);
        if (sum) tutti__long_add(&sums, s);
        if (product) tutti__long_add(&products, p);
    }
    if (sum) *sum = tutti__long_total(&sums);
    if (product) *product = tutti__long_total(&products);
}

TUTTI__INLINE double OF(row_sum)(const REAL *row, int64_t cols)
{
    double sum;
    OF(row_sums)(row, row, 0, cols, &sum, NULL);
    return sum;
}

TUTTI__INLINE double OF(row_dot)(const REAL *a, const REAL *b, int64_t cols)
{
    double product;
    OF(row_sums)(a, b, 0, cols, NULL, &product);
    return product;
}
