/* Shared by softmax.c and cross_entropy.c, for one REAL: the largest element of a row times lead,
 * and exp over it. */
#include "kernels/host/sum_rows.h"

TUTTI__INLINE REAL OF(row_max)(const REAL *row, REAL lead, int64_t cols)
{
    /* a NaN compares false here and shows in the sum of exp */
    REAL most = -(REAL)INFINITY;
#pragma omp simd reduction(max : most)
    for (int64_t j = 0; j < cols; j++) {
        const REAL x = row[j] * lead;
        most = x > most ? x : most;
    }
    return most;
}

/* out[j] = exp((lead row[j] - shift) * size); returns their sum.  out may be row.  Meanwhile asks
 * for the row `next` of a matrix, if that is not NULL. */
TUTTI__INLINE double OF(exp_row)(const REAL *row, REAL *out, REAL lead, REAL shift, REAL size,
                                 int64_t cols, const tutti__matrix *matrix, int64_t next)
{
    tutti__long_sum total = {0, 0};
    for (int64_t c = 0; c < cols; c += TUTTI__CHUNK) {
        int64_t end = cols - c < TUTTI__CHUNK ? cols : c + TUTTI__CHUNK;
        if (matrix) tutti__expect(matrix, next, c, end - c);
        if (lead == 1 && size == 1) { /* usual, and 4 % faster */
#pragma omp simd
            for (int64_t j = c; j < end; j++) out[j] = OF(tutti__exp)(row[j] - shift);
        } else {
#pragma omp simd
            for (int64_t j = c; j < end; j++)
                out[j] = OF(tutti__exp)((row[j] * lead - shift) * size);
        }
        tutti__long_add(&total, OF(row_sum)(out + c, end - c));
    }
    return tutti__long_total(&total);
}
