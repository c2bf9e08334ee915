/* Shared by softmax.c and cross_entropy.c, for one REAL: the largest element of a row, and exp over
 * it. */
#include "kernels/host/sum_rows.h"

TUTTI__INLINE REAL OF(row_max)(const REAL *row, int64_t cols)
{
    /* a NaN compares false here and shows in the sum of exp */
    REAL most = -(REAL)INFINITY;
#pragma omp simd reduction(max : most)
    for (int64_t j = 0; j < cols; j++) most = row[j] > most ? row[j] : most;
    return most;
}

/* out[j] = exp((row[j] - shift) * size); returns their sum.  out may be row.  Meanwhile asks for
 * the row `next` of a matrix, if that is not NULL. */
TUTTI__INLINE double OF(exp_row)(const REAL *row, REAL *out, REAL shift, REAL size, int64_t cols,
                                 const tutti__matrix *matrix, int64_t next)
{
    tutti__long_sum total = {0, 0};
    for (int64_t c = 0; c < cols; c += TUTTI__CHUNK) {
        int64_t end = cols - c < TUTTI__CHUNK ? cols : c + TUTTI__CHUNK;
        if (matrix) tutti__expect(matrix, next, c, end - c);
        for (int64_t j = c; j < end; j++) out[j] = OF(tutti__exp)((row[j] - shift) * size);
        tutti__long_add(&total, OF(row_sum)(out + c, end - c));
    }
    return tutti__long_total(&total);
}
