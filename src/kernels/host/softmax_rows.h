/* Bodies of softmax.c, for one REAL. */
#include "kernels/host/exp_rows.h"

TUTTI__VECTORISED
static void OF(softmax_forward_rows)(void *data, int64_t begin, int64_t end, int thread)
{
    const softmax_task *t = data;
    const tutti__softmax_args *args = t->args;
    const int64_t cols = args->cols;
    const REAL lead = (REAL)args->lead, size = (REAL)args->size;
    REAL *restrict x = (REAL *)(t->rows + (size_t)thread * t->thread_bytes);
    for (int64_t row = begin; row < end; row++) {
        const int64_t seen = visible(args, row);
        OF(tutti__load)(x, tutti__row(&args->x, row), args->x.dtype, seen);
        for (int64_t j = 0; j < seen; j++) x[j] *= lead;
        const REAL most = OF(row_max)(x, seen);
        if (args->log) {
            REAL *restrict e = (REAL *)((char *)x + t->row_bytes);
            const REAL log_sum = (REAL)log(OF(exp_row)(x, e, most, size, seen));
            for (int64_t j = 0; j < seen; j++) x[j] = (x[j] - most) * size - log_sum;
        } else {
            const REAL factor = (REAL)(1 / OF(exp_row)(x, x, most, size, seen));
            for (int64_t j = 0; j < seen; j++) x[j] *= factor;
        }
        for (int64_t j = seen; j < cols; j++) x[j] = args->log ? -(REAL)INFINITY : 0;
        OF(tutti__store)(tutti__row(&args->y, row), args->y.dtype, x, cols);
    }
}

TUTTI__VECTORISED
static void OF(softmax_backward_rows)(void *data, int64_t begin, int64_t end, int thread)
{
    const softmax_task *t = data;
    const tutti__softmax_args *args = t->args;
    const int64_t cols = args->cols;
    const REAL scale = (REAL)args->scale;
    REAL *restrict y = (REAL *)(t->rows + (size_t)thread * t->thread_bytes);
    REAL *restrict dy = (REAL *)((char *)y + t->row_bytes);
    for (int64_t row = begin; row < end; row++) {
        const int64_t seen = visible(args, row);
        OF(tutti__load)(y, tutti__row(&args->y, row), args->y.dtype, seen);
        OF(tutti__load)(dy, tutti__row(&args->dy, row), args->dy.dtype, seen);
        if (args->log) {
            const REAL sum = (REAL)OF(row_sum)(dy, seen);
            for (int64_t j = 0; j < seen; j++) dy[j] = scale * (dy[j] - OF(tutti__exp)(y[j]) * sum);
        } else {
            const REAL sum = (REAL)OF(row_dot)(y, dy, seen);
            for (int64_t j = 0; j < seen; j++) dy[j] = scale * y[j] * (dy[j] - sum);
        }
        for (int64_t j = seen; j < cols; j++) dy[j] = 0;
        OF(tutti__store)(tutti__row(&args->dx, row), args->dx.dtype, dy, cols);
    }
}

#undef REAL
#undef OF
