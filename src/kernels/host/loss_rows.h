/* Body of loss.c, for one REAL. */
#include "kernels/host/sum_rows.h"

/* Both leave the losses of the elements in t, and their gradients in x. */
TUTTI__INLINE void OF(squares)(REAL *restrict x, REAL *restrict t, REAL factor, int64_t cols)
{
    for (int64_t j = 0; j < cols; j++) {
        const REAL difference = x[j] - t[j];
        t[j] = difference * difference;
        x[j] = difference * factor;
    }
}

TUTTI__INLINE void OF(cross_entropies)(REAL *restrict x, REAL *restrict t, REAL pos_weight,
                                       REAL factor, int64_t cols)
{
    for (int64_t j = 0; j < cols; j++) {
        const REAL up = x[j] > 0 ? x[j] : 0, down = x[j] < 0 ? -x[j] : 0;
        const REAL e = OF(tutti__exp)(x[j] < 0 ? x[j] : -x[j]), log_sum = OF(log1p)(e);
        const REAL large = 1 / (1 + e), small = e * large; /* sigmoid of |x| and of -|x| */
        const REAL off = 1 - t[j], on = pos_weight * t[j];
        t[j] = off * (up + log_sum) + on * (down + log_sum);
        x[j] = (x[j] < 0 ? off * small - on * large : off * large - on * small) * factor;
    }
}

/* Whether a target is out of range; NaN is. */
TUTTI__INLINE bool OF(any_outside)(const REAL *t, int64_t cols)
{
    int outside = 0;
    for (int64_t j = 0; j < cols; j++) outside |= !(t[j] >= 0 && t[j] <= 1);
    return outside;
}

TUTTI__VECTORISED
static void OF(loss_rows)(void *data, int64_t begin, int64_t end, int thread)
{
    loss_task *task = data;
    const tutti__loss_args *args = task->args;
    const int64_t cols = args->cols;
    const REAL factor = (REAL)task->factor, pos_weight = (REAL)args->pos_weight;
    REAL *restrict x = (REAL *)(task->rows + (size_t)thread * 2 * task->row_bytes);
    REAL *restrict t = (REAL *)((char *)x + task->row_bytes);
    for (int64_t row = begin; row < end; row++) {
        double loss = NAN;
        OF(tutti__load)(x, tutti__row(&args->x, row), args->x.dtype, cols);
        OF(tutti__load)(t, tutti__row(&args->target, row), args->target.dtype, cols);
        if (args->kind == TUTTI__LOSS_BCE && OF(any_outside)(t, cols)) {
            tutti__note_first(&task->bad_row, row);
            for (int64_t j = 0; j < cols; j++) x[j] = (REAL)NAN;
        } else {
            if (args->kind == TUTTI__LOSS_BCE)
                OF(cross_entropies)(x, t, pos_weight, factor, cols);
            else
                OF(squares)(x, t, factor, cols);
            loss = (double)(REAL)(OF(row_sum)(t, cols)) / (double)cols;
        }
        if (args->loss) ((REAL *)args->loss)[row] = (REAL)loss;
        if (task->losses) task->losses[row] = loss;
        if (args->dx.data) OF(tutti__store)(tutti__row(&args->dx, row), args->dx.dtype, x, cols);
    }
}
