/* Sums over a row, for one REAL: lanes of REALs inside of a chunk, f64 across.  The lanes are
 * written out, so that the order and the accuracy are the code's and not the vectoriser's. */

#define LANES 32

TUTTI__INLINE double OF(row_sum)(const REAL *row, int64_t cols)
{
    double total = 0;
    for (int64_t c = 0; c < cols; c += TUTTI__CHUNK) {
        int64_t end = cols - c < TUTTI__CHUNK ? cols : c + TUTTI__CHUNK, j = c;
        REAL lane[LANES] = {0};
        for (; j + LANES <= end; j += LANES)
            for (int k = 0; k < LANES; k++) lane[k] += row[j + k];
        for (int k = 0; j < end; j++, k++) lane[k] += row[j];
        for (int half = LANES / 2; half > 0; half /= 2)
            for (int k = 0; k < half; k++) lane[k] += lane[k + half];
        total += lane[0];
    }
    return total;
}

TUTTI__INLINE double OF(row_dot)(const REAL *a, const REAL *b, int64_t cols)
{
    double total = 0;
    for (int64_t c = 0; c < cols; c += TUTTI__CHUNK) {
        int64_t end = cols - c < TUTTI__CHUNK ? cols : c + TUTTI__CHUNK, j = c;
        REAL lane[LANES] = {0};
        for (; j + LANES <= end; j += LANES)
            for (int k = 0; k < LANES; k++) lane[k] += a[j + k] * b[j + k];
        for (int k = 0; j < end; j++, k++) lane[k] += a[j] * b[j];
        for (int half = LANES / 2; half > 0; half /= 2)
            for (int k = 0; k < half; k++) lane[k] += lane[k + half];
        total += lane[0];
    }
    return total;
}

#undef LANES
