/* Sums over a row, for one REAL: lanes of REALs inside of a chunk, f64 across. */

TUTTI__INLINE double OF(row_sum)(const REAL *row, int64_t cols)
{
    double total = 0;
    for (int64_t c = 0; c < cols; c += TUTTI__CHUNK) {
        int64_t end = cols - c < TUTTI__CHUNK ? cols : c + TUTTI__CHUNK;
        REAL sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = c; j < end; j++) sum += row[j];
        total += sum;
    }
    return total;
}

TUTTI__INLINE double OF(row_dot)(const REAL *a, const REAL *b, int64_t cols)
{
    double total = 0;
    for (int64_t c = 0; c < cols; c += TUTTI__CHUNK) {
        int64_t end = cols - c < TUTTI__CHUNK ? cols : c + TUTTI__CHUNK;
        REAL sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = c; j < end; j++) sum += a[j] * b[j];
        total += sum;
    }
    return total;
}
