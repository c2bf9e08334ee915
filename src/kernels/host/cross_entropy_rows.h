/* Body of cross_entropy.c, for one REAL. */
#include "kernels/host/exp_rows.h"

/* The loss of a row from what the plain one consists of, log(sum) and x[label] - most; sets the
 * factor of softmax in the gradient. */
TUTTI__INLINE double OF(whole_loss)(const tutti__cross_entropy_args *args, double log_sum, REAL own,
                                    REAL most, double gaps, REAL *factor)
{
    const double log_z = (double)most + log_sum;
    double loss = log_sum - args->keep * (double)own;
    if (args->share > 0) loss -= args->share * gaps;
    if (args->z_loss > 0) loss += args->z_loss * log_z * log_z;
    *factor = args->z_loss > 0 ? (REAL)(1 + 2 * args->z_loss * log_z) : 1;
    return loss;
}

TUTTI__VECTORISED
static void OF(cross_entropy_rows)(void *data, int64_t begin, int64_t end, int thread)
{
    entropy_task *t = data;
    const tutti__cross_entropy_args *args = t->args;
    const int64_t cols = args->cols;
    const REAL weight = (REAL)t->weight, keep = (REAL)args->keep, share = (REAL)args->share;
    REAL *restrict x = (REAL *)(t->rows + (size_t)thread * t->thread_bytes);
    for (int64_t row = begin; row < end; row++) {
        const int32_t label = args->labels[row];
        double loss = 0;
        if (label == args->ignore_label) {
            for (int64_t j = 0; args->dlogits.data && j < cols; j++) x[j] = 0;
        } else if (label < 0 || label >= cols) {
            tutti__note_first(&t->bad_row, row);
            loss = NAN;
            for (int64_t j = 0; args->dlogits.data && j < cols; j++) x[j] = (REAL)NAN;
        } else {
            OF(tutti__load)(x, tutti__row(&args->logits, row), args->logits.dtype, cols);
            const REAL most = OF(row_max)(x, 1, cols), own = x[label] - most;
            double gaps = 0; /* the sum of x - most */
            if (args->share > 0) OF(row_sums)(x, x, most, cols, &gaps, NULL);
            const tutti__matrix *const next = row + 1 < end ? &args->logits : NULL;
            const double sum = OF(exp_row)(x, x, 1, most, 1, cols, next, row + 1);
            const REAL inverse = (REAL)(1 / sum);
            if (args->plain) {
                loss = log(sum) - (double)own;
                if (args->dlogits.data) {
                    const REAL at_label = (x[label] * inverse - 1) * weight;
                    for (int64_t j = 0; j < cols; j++) x[j] = x[j] * inverse * weight;
                    x[label] = at_label;
                }
            } else {
                REAL factor;
                loss = OF(whole_loss)(args, log(sum), own, most, gaps, &factor);
                if (args->dlogits.data) {
                    const REAL at_label = (x[label] * inverse * factor - share - keep) * weight;
                    for (int64_t j = 0; j < cols; j++)
                        x[j] = (x[j] * inverse * factor - share) * weight;
                    x[label] = at_label;
                }
            }
        }
        if (args->loss) ((REAL *)args->loss)[row] = (REAL)loss;
        if (t->losses) t->losses[row] = loss;
        if (args->dlogits.data)
            OF(tutti__store)(tutti__row(&args->dlogits, row), args->dlogits.dtype, x, cols);
    }
}
