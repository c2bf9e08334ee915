/* Bodies of norm.c, for one REAL. */
#include "kernels/host/sum_rows.h"

/* Two passes; the second corrects the first one's mean by the mean of x - mean, and the variance by
 * its square [Chan, Golub & LeVeque 1983].  If that square is a large part of the sum, as in nearly
 * constant rows, subtracting it would cancel: one more pass, about the corrected mean.  A sum that
 * overflows REAL makes the row NaN. */
TUTTI__INLINE void OF(row_statistics)(const REAL *x, const tutti__norm_args *args, REAL *mean,
                                      REAL *rstd)
{
    const double cols = (double)args->cols, most = sizeof(REAL) == 4 ? FLT_MAX : DBL_MAX;
    double squares, variance, moved, moved_square = 0;
    *mean = 0;
    if (args->centered) {
        const double sum = OF(row_sum)(x, args->cols);
        *mean = fabs(sum) <= most ? (REAL)(sum / cols) : (REAL)NAN;
        bool near = false;
        for (int pass = 0; pass < 2 && !near; pass++) {
            OF(row_sums)(x, x, *mean, args->cols, &moved, &squares);
            moved /= cols;
            moved_square = moved * moved;
            *mean = (REAL)(*mean + moved);
            variance = squares / cols;
            near = squares <= most && 16 * moved_square <= variance;
        }
    } else {
        squares = OF(row_dot)(x, x, args->cols);
        variance = squares / cols;
    }
    variance = variance < moved_square ? 0 : variance - moved_square;
    *rstd = squares <= most ? (REAL)(1 / sqrt(variance + args->eps)) : (REAL)NAN;
}

/* y = (x - mean) * rstd * gamma + beta */
TUTTI__VECTORISED
static void OF(norm_forward_rows)(void *data, int64_t begin, int64_t end, int thread)
{
    const forward_task *t = data;
    const tutti__norm_args *args = t->args;
    const int64_t cols = args->cols;
    const REAL *restrict gamma = t->gamma, *restrict beta = t->beta;
    REAL *restrict room = (REAL *)(t->rows + (size_t)thread * t->thread_bytes);
    REAL *restrict r = (REAL *)((char *)room + t->row_bytes);
    for (int64_t row = begin; row < end; row++) {
        const REAL *x = room;
        if (args->residual.data) {
            OF(tutti__load)(room, tutti__row(&args->x, row), args->x.dtype, cols);
            OF(tutti__load)(r, tutti__row(&args->residual, row), args->residual.dtype, cols);
            for (int64_t j = 0; j < cols; j++) room[j] += r[j];
            OF(tutti__round)(room, args->x.dtype, cols);
            if (args->sum.data)
                OF(tutti__store)(tutti__row(&args->sum, row), args->sum.dtype, room, cols);
        } else {
            x = OF(tutti__row_in)(room, &args->x, row, cols);
        }
        REAL mean, rstd;
        OF(row_statistics)(x, args, &mean, &rstd);
        if (args->mean) ((REAL *)args->mean)[row] = mean;
        if (args->rstd) ((REAL *)args->rstd)[row] = rstd;
        REAL *y = OF(tutti__row_out)(room, &args->y, row);
        if (beta) {
#pragma omp simd /* y may be x */
            for (int64_t j = 0; j < cols; j++) y[j] = (x[j] - mean) * rstd * gamma[j] + beta[j];
        } else if (gamma) {
#pragma omp simd
            for (int64_t j = 0; j < cols; j++) y[j] = (x[j] - mean) * rstd * gamma[j];
        } else {
#pragma omp simd
            for (int64_t j = 0; j < cols; j++) y[j] = (x[j] - mean) * rstd;
        }
        OF(tutti__store_row)(&args->y, row, y, cols);
    }
}

/* With g = dy * gamma and n = (x - mean) * rstd:
 *     dx = rstd * (g - mean(g) - n * mean(g * n)) + dsum
 *     dgamma = sum of dy * n,   dbeta = sum of dy
 * mean(g) only if centered.  dgamma and dbeta of a block of rows go to the block's partial rows. */
TUTTI__VECTORISED
static void OF(norm_backward_blocks)(void *data, int64_t begin, int64_t end, int thread)
{
    const backward_task *t = data;
    const tutti__norm_args *args = t->args;
    const int64_t cols = args->cols;
    const REAL *restrict gamma = t->gamma, *mean = args->mean, *rstd = args->rstd;
    REAL *restrict n = (REAL *)(t->rows + (size_t)thread * t->thread_bytes);
    REAL *restrict g = (REAL *)((char *)n + t->row_bytes);
    REAL *restrict s = (REAL *)((char *)g + t->row_bytes);
    for (int64_t block = begin; block < end; block++) {
        REAL *restrict dgamma =
            args->dgamma ? (REAL *)(t->dgamma + (size_t)block * t->row_bytes) : NULL;
        REAL *restrict dbeta =
            args->dbeta ? (REAL *)(t->dbeta + (size_t)block * t->row_bytes) : NULL;
        if (dgamma) memset(dgamma, 0, (size_t)cols * sizeof *dgamma);
        if (dbeta) memset(dbeta, 0, (size_t)cols * sizeof *dbeta);
        const int64_t first = block * t->blocks.rows;
        const int64_t last =
            args->rows - first < t->blocks.rows ? args->rows : first + t->blocks.rows;
        for (int64_t row = first; row < last; row++) {
            const REAL mu = args->centered ? mean[row] : 0, scale = rstd[row];
            const REAL *x = OF(tutti__row_in)(n, &args->x, row, cols);
            const REAL *dy = OF(tutti__row_in)(g, &args->dy, row, cols);
            for (int64_t j = 0; j < cols; j++) n[j] = (x[j] - mu) * scale;
            if (dgamma)
                for (int64_t j = 0; j < cols; j++) dgamma[j] += dy[j] * n[j];
            if (dbeta)
                for (int64_t j = 0; j < cols; j++) dbeta[j] += dy[j];
            if (!args->dx.data) continue;
            if (gamma) {
#pragma omp simd /* dy may be g */
                for (int64_t j = 0; j < cols; j++) g[j] = dy[j] * gamma[j];
                dy = g;
            }
            const REAL mean_g = args->centered ? (REAL)(OF(row_sum)(dy, cols) / (double)cols) : 0;
            const REAL mean_gn = (REAL)(OF(row_dot)(dy, n, cols) / (double)cols);
            /* not yet to dx where there is a dsum, which dx may be */
            REAL *dx = args->dsum.data ? g : OF(tutti__row_out)(g, &args->dx, row);
#pragma omp simd /* dx may be dy, or x, which is no longer read */
            for (int64_t j = 0; j < cols; j++) dx[j] = scale * (dy[j] - mean_g - n[j] * mean_gn);
            if (args->dsum.data) {
                OF(tutti__load)(s, tutti__row(&args->dsum, row), args->dsum.dtype, cols);
                for (int64_t j = 0; j < cols; j++) dx[j] += s[j];
            }
            OF(tutti__store_row)(&args->dx, row, dx, cols);
        }
    }
}

/* A parameter as a row of REALs, `offset` added (1 for zero-centred gamma). */
static const void *OF(widen_param)(void *room, const void *param, tutti_dtype dtype, int64_t cols,
                                   REAL offset)
{
    REAL *row = room;
    OF(tutti__load)(row, param, dtype, cols);
    if (offset != 0)
        for (int64_t j = 0; j < cols; j++) row[j] += offset;
    return row;
}

#undef REAL
#undef OF
