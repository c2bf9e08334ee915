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

/* y = (x - mean) * rstd * gamma + beta, a piece of it */
TUTTI__INLINE void OF(normalise)(const REAL *x, REAL mean, REAL rstd, const REAL *restrict gamma,
                                 const REAL *restrict beta, REAL *room, const tutti__matrix *out,
                                 int64_t count, bool past)
{
    REAL *y = OF(tutti__row_out)(room, out, 0, past);
    if (beta) {
#pragma omp simd /* y may be x */
        for (int64_t j = 0; j < count; j++) y[j] = (x[j] - mean) * rstd * gamma[j] + beta[j];
    } else if (gamma) {
#pragma omp simd
        for (int64_t j = 0; j < count; j++) y[j] = (x[j] - mean) * rstd * gamma[j];
    } else {
#pragma omp simd
        for (int64_t j = 0; j < count; j++) y[j] = (x[j] - mean) * rstd;
    }
    OF(tutti__store_row)(out, 0, y, count, past);
}

TUTTI__VECTORISED
static void OF(norm_forward_rows)(void *data, int64_t begin, int64_t end, int thread)
{
    const forward_task *t = data;
    const tutti__norm_args *args = t->args;
    const int64_t cols = args->cols;
    const REAL *restrict gamma = t->gamma, *restrict beta = t->beta;
    REAL *restrict room = (REAL *)(t->rows + (size_t)thread * t->thread_bytes);
    REAL *restrict r = (REAL *)((char *)room + t->row_bytes);
    const bool past = tutti__past_caches(2, &args->y, args->rows, cols);
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
        for (int64_t c = 0; c < cols; c += TUTTI__PIECE) {
            const tutti__matrix out = tutti__columns_from(&args->y, row, c);
            if (row + 1 < end) tutti__expect(&args->x, row + 1, c, tutti__piece_of(cols, c));
            OF(normalise)
            (x + c, mean, rstd, gamma ? gamma + c : NULL, beta ? beta + c : NULL, room, &out,
             tutti__piece_of(cols, c), past);
        }
    }
}

/* A row on its way through backward; with g = dy * gamma and n = (x - mean) * rstd:
 *     dx = rstd * (g - mean(g) - n * mean(g * n)) + dsum
 *     dgamma = sum of dy * n,   dbeta = sum of dy
 * mean(g) and dbeta only if centered. */
typedef struct OF(backward_row) {
    const REAL *x, *dy;
    REAL mean, rstd;
    tutti__long_sum g, gn;
} OF(backward_row);

/* Column j of some rows, which is lane k's: their sums of g and g n, and dgamma and dbeta, which
 * get the rows in order. */
TUTTI__INLINE void OF(add_column)(int rows, bool centered, const OF(backward_row) * r,
                                  const REAL *gamma, REAL *dgamma, REAL *dbeta, int64_t j,
                                  REAL (*g)[TUTTI__LANES], REAL (*gn)[TUTTI__LANES], int k)
{
    REAL for_gamma = dgamma[j], for_beta = centered ? dbeta[j] : 0;
    for (int i = 0; i < rows; i++) {
        const REAL dy = r[i].dy[j], n = (r[i].x[j] - r[i].mean) * r[i].rstd;
        const REAL scaled = dy * gamma[j];
        for_gamma += dy * n;
        gn[i][k] += scaled * n;
        if (!centered) continue;
        for_beta += dy;
        g[i][k] += scaled;
    }
    dgamma[j] = for_gamma;
    if (centered) dbeta[j] = for_beta;
}

/* All columns of some rows.  Several rows at a time, a constant number, load and store dgamma and
 * dbeta once. */
TUTTI__INLINE void OF(add_rows)(int rows, bool centered, OF(backward_row) * r,
                                const REAL *restrict gamma, REAL *restrict dgamma,
                                REAL *restrict dbeta, int64_t cols)
{
    for (int64_t c = 0; c < cols; c += TUTTI__CHUNK) {
        const int64_t end = cols - c < TUTTI__CHUNK ? cols : c + TUTTI__CHUNK;
        REAL g[NORM_GROUP][TUTTI__LANES] = {{0}}, gn[NORM_GROUP][TUTTI__LANES] = {{0}};
        int64_t j = c;
        for (; j + TUTTI__LANES <= end; j += TUTTI__LANES)
            for (int k = 0; k < TUTTI__LANES; k++)
                OF(add_column)(rows, centered, r, gamma, dgamma, dbeta, j + k, g, gn, k);
        for (int k = 0; j + k < end; k++)
            OF(add_column)(rows, centered, r, gamma, dgamma, dbeta, j + k, g, gn, k);
        for (int i = 0; i < rows; i++) {
            tutti__long_add(&r[i].gn, OF(merge_lanes)(gn[i]));
            if (centered) tutti__long_add(&r[i].g, OF(merge_lanes)(g[i]));
        }
    }
}

/* Of one row, whose sums are complete.  next: the row that comes in its place, or -1. */
TUTTI__INLINE void OF(write_dx)(const tutti__norm_args *args, const OF(backward_row) * r,
                                const REAL *gamma, int64_t row, int64_t next, REAL *room,
                                REAL *room_of_dsum)
{
    const int64_t cols = args->cols;
    const REAL mean = r->mean, scale = r->rstd;
    const REAL mean_g = (REAL)(tutti__long_total(&r->g) / (double)cols);
    const REAL mean_gn = (REAL)(tutti__long_total(&r->gn) / (double)cols);
    const bool past = tutti__past_caches(3, &args->dx, args->rows, cols);
    for (int64_t c = 0; c < cols; c += TUTTI__PIECE) {
        const int64_t count = tutti__piece_of(cols, c);
        const REAL *const x = r->x + c, *const dy = r->dy + c, *const scales = gamma + c;
        const tutti__matrix out = tutti__columns_from(&args->dx, row, c);
        if (next >= 0) {
            tutti__expect(&args->x, next, c, count);
            tutti__expect(&args->dy, next, c, count);
        }
        /* not yet to dx where there is a dsum, which dx may be */
        REAL *const dx = args->dsum.data ? room : OF(tutti__row_out)(room, &out, 0, past);
#pragma omp simd /* dx may be dy, or x */
        for (int64_t j = 0; j < count; j++)
            dx[j] = scale * (dy[j] * scales[j] - mean_g - (x[j] - mean) * scale * mean_gn);
        if (args->dsum.data) {
            const tutti__matrix from = tutti__columns_from(&args->dsum, row, c);
            const REAL *const dsum = OF(tutti__row_in)(room_of_dsum, &from, 0, count);
            for (int64_t j = 0; j < count; j++) dx[j] += dsum[j];
        }
        OF(tutti__store_row)(&out, 0, dx, count, past);
    }
}

/* dgamma and dbeta of a block of rows go to the block's partial rows. */
TUTTI__VECTORISED
static void OF(norm_backward_blocks)(void *data, int64_t begin, int64_t end, int thread)
{
    const backward_task *t = data;
    const tutti__norm_args *args = t->args;
    const int64_t cols = args->cols;
    const REAL *restrict gamma = t->gamma, *mean = args->mean, *rstd = args->rstd;
    char *const room = t->rows + (size_t)thread * t->thread_bytes;
    for (int64_t block = begin; block < end; block++) {
        REAL *restrict dgamma = (REAL *)(t->dgamma + (size_t)block * t->row_bytes);
        REAL *restrict dbeta = (REAL *)(t->dbeta + (size_t)block * t->row_bytes);
        memset(dgamma, 0, (size_t)cols * sizeof *dgamma);
        memset(dbeta, 0, (size_t)cols * sizeof *dbeta);
        const int64_t first = block * t->blocks.rows;
        const int64_t last =
            args->rows - first < t->blocks.rows ? args->rows : first + t->blocks.rows;
        for (int64_t row = first; row < last;) {
            const int rows = last - row < t->group ? 1 : t->group;
            OF(backward_row) r[NORM_GROUP];
            REAL *rooms[NORM_GROUP][2];
            for (int i = 0; i < rows; i++) {
                for (int k = 0; k < 2; k++)
                    rooms[i][k] = (REAL *)(room + (size_t)(2 * i + k) * t->row_bytes);
                r[i] = (OF(backward_row)){OF(tutti__row_in)(rooms[i][0], &args->x, row + i, cols),
                                          OF(tutti__row_in)(rooms[i][1], &args->dy, row + i, cols),
                                          args->centered ? mean[row + i] : 0,
                                          rstd[row + i],
                                          {0, 0},
                                          {0, 0}};
            }
            if (rows == NORM_GROUP && args->centered)
                OF(add_rows)(NORM_GROUP, true, r, gamma, dgamma, dbeta, cols);
            else if (rows == NORM_GROUP)
                OF(add_rows)(NORM_GROUP, false, r, gamma, dgamma, dbeta, cols);
            else if (args->centered)
                OF(add_rows)(1, true, r, gamma, dgamma, dbeta, cols);
            else
                OF(add_rows)(1, false, r, gamma, dgamma, dbeta, cols);
            for (int i = 0; args->dx.data && i < rows; i++) {
                const int64_t next = row + rows + i < last ? row + rows + i : -1;
                OF(write_dx)(args, &r[i], gamma, row + i, next, rooms[i][1], rooms[i][0]);
            }
            row += rows;
        }
    }
}

/* A parameter as a row of REALs, `offset` added (1 for zero-centred gamma); 1 if it is NULL. */
static const void *OF(widen_param)(void *room, const void *param, tutti_dtype dtype, int64_t cols,
                                   REAL offset)
{
    REAL *row = room;
    if (!param) {
        for (int64_t j = 0; j < cols; j++) row[j] = 1;
        return row;
    }
    OF(tutti__load)(row, param, dtype, cols);
    if (offset != 0)
        for (int64_t j = 0; j < cols; j++) row[j] += offset;
    return row;
}
