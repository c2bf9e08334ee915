/* Body of cross_entropy.c, for one REAL. */
#include "kernels/host/exp_rows.h"

TUTTI__VECTORISED
static void OF(cross_entropy_rows)(void *data, int64_t begin, int64_t end, int thread)
{
    entropy_task *t = data;
    const tutti__cross_entropy_args *args = t->args;
    const int64_t cols = args->cols;
    const REAL weight = (REAL)t->weight;
    REAL *restrict x = (REAL *)(t->rows + (size_t)thread * t->thread_bytes);
    for (int64_t row = begin; row < end; row++) {
        const int32_t label = args->labels[row];
        double loss = 0;
        if (label == args->ignore_label) {
            for (int64_t j = 0; args->dlogits.data && j < cols; j++) x[j] = 0;
        } else if (label < 0 || label >= cols) {
            note_bad_row(t, row);
            loss = NAN;
            for (int64_t j = 0; args->dlogits.data && j < cols; j++) x[j] = (REAL)NAN;
        } else {
            OF(tutti__load)(x, tutti__row(&args->logits, row), args->logits.dtype, cols);
            const REAL most = OF(row_max)(x, cols), own = x[label] - most;
            const double sum = OF(exp_row)(x, x, most, 1, cols);
            loss = log(sum) - (double)own;
            if (args->dlogits.data) {
                const REAL inverse = (REAL)(1 / sum);
                const REAL at_label = (x[label] * inverse - 1) * weight;
                for (int64_t j = 0; j < cols; j++) x[j] = x[j] * inverse * weight;
                x[label] = at_label;
            }
        }
        if (args->loss) ((REAL *)args->loss)[row] = (REAL)loss;
        if (t->losses) t->losses[row] = loss;
        if (args->dlogits.data)
            OF(tutti__store)(tutti__row(&args->dlogits, row), args->dlogits.dtype, x, cols);
    }
}

#undef REAL
#undef OF
