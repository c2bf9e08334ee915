/* Bodies of softmax.c, for one REAL. */
#include "kernels/host/exp_rows.h"

/* The visible part of a row: x, or scale x + bias in room; more: a second row, for the bias. */
TUTTI__INLINE const REAL *OF(exponents)(const tutti__softmax_args *args, int64_t row, int64_t seen,
                                        REAL *room, REAL *more)
{
    const REAL *x = OF(tutti__row_in)(room, &args->x, row, seen), scale = (REAL)args->scale;
    if (!args->bias.data) return x;
    OF(tutti__load)
    (more, tutti__row(&args->bias, row % args->bias_period), args->bias.dtype, seen);
#pragma omp simd /* room may be x */
    for (int64_t j = 0; j < seen; j++) room[j] = x[j] * scale + more[j];
    return room;
}

TUTTI__VECTORISED
static void OF(softmax_forward_rows)(void *data, int64_t begin, int64_t end, int thread)
{
    softmax_task *t = data;
    const tutti__softmax_args *args = t->args;
    const int64_t cols = args->cols;
    const bool biased = args->bias.data;
    const REAL lead = biased ? 1 : (REAL)args->lead, size = biased ? 1 : (REAL)args->size;
    REAL *const room = (REAL *)(t->rows + (size_t)thread * t->thread_bytes);
    REAL *const more = (REAL *)((char *)room + t->row_bytes);
    for (int64_t row = begin; row < end; row++) {
        const int64_t found = visible(t, row), seen = found > 0 ? found : 0;
        REAL *y = OF(tutti__row_out)(room, &args->y, row, false);
        const REAL *x = OF(exponents)(args, row, seen, room, more);
        REAL hidden = args->log ? -(REAL)INFINITY : 0;
        const REAL most = OF(row_max)(x, lead, seen);
        const tutti__matrix *const next = row + 1 < end ? &args->x : NULL;
        const double sum =
            OF(exp_row)(x, args->log ? more : y, lead, most, size, seen, next, row + 1);
        if (args->log) {
            const REAL log_sum = (REAL)log(sum);
#pragma omp simd /* y may be x, as above */
            for (int64_t j = 0; j < seen; j++) y[j] = (x[j] * lead - most) * size - log_sum;
        } else {
            const REAL factor = (REAL)(1 / sum);
            for (int64_t j = 0; j < seen; j++) y[j] *= factor;
        }
        if (found < 0) hidden = (REAL)NAN;
        for (int64_t j = seen; j < cols; j++) y[j] = hidden;
        OF(tutti__store_row)(&args->y, row, y, cols, false);
    }
}

TUTTI__VECTORISED
static void OF(softmax_backward_rows)(void *data, int64_t begin, int64_t end, int thread)
{
    softmax_task *t = data;
    const tutti__softmax_args *args = t->args;
    const int64_t cols = args->cols;
    const bool biased = args->dbias.data;
    const REAL scale = (REAL)args->scale, factor = biased ? 1 : scale;
    REAL *const room = (REAL *)(t->rows + (size_t)thread * t->thread_bytes);
    REAL *const more = (REAL *)((char *)room + t->row_bytes);
    const bool past = tutti__past_caches(3, &args->dx, args->rows, cols);
    for (int64_t row = begin; row < end; row++) {
        const int64_t found = visible(t, row), seen = found > 0 ? found : 0;
        const REAL *y = OF(tutti__row_in)(room, &args->y, row, seen);
        const REAL *dy = OF(tutti__row_in)(more, &args->dy, row, seen);
        const REAL sum = (REAL)(args->log ? OF(row_sum)(dy, seen) : OF(row_dot)(y, dy, seen));
        for (int64_t c = 0; c < seen; c += TUTTI__PIECE) {
            const int64_t count = tutti__piece_of(seen, c);
            const tutti__matrix out = tutti__columns_from(&args->dx, row, c);
            if (row + 1 < end) {
                tutti__expect(&args->y, row + 1, c, count);
                tutti__expect(&args->dy, row + 1, c, count);
            }
            /* not yet to dx where dbias comes first */
            REAL *const here = biased ? more + c : more;
            REAL *const dx = biased ? here : OF(tutti__row_out)(here, &out, 0, past);
            if (args->log) {
#pragma omp simd /* dx may be dy or y, here and below */
                for (int64_t j = 0; j < count; j++)
                    dx[j] = factor * (dy[c + j] - OF(tutti__exp)(y[c + j]) * sum);
            } else {
#pragma omp simd
                for (int64_t j = 0; j < count; j++) dx[j] = factor * y[c + j] * (dy[c + j] - sum);
            }
            if (!biased) OF(tutti__store_row)(&out, 0, dx, count, past);
        }
        for (int64_t j = seen; j < cols; j++) more[j] = found < 0 ? (REAL)NAN : 0;
        if (biased) {
            OF(tutti__store)(tutti__row(&args->dbias, row), args->dbias.dtype, more, cols);
            for (int64_t j = 0; j < seen; j++) more[j] *= scale;
        }
        const int64_t rest = biased ? 0 : seen;
        const tutti__matrix out = tutti__columns_from(&args->dx, row, rest);
        OF(tutti__store_row)(&out, 0, more + rest, cols - rest, past);
    }
}
