/* Body of dropout.c, for one REAL. */

/* v = keep ? v / p_keep : 0 */
TUTTI__INLINE void OF(drop)(REAL *v, const tutti__dropout_args *args, int64_t row)
{
    const REAL p_keep = tutti__dropout_p_keep(args);
    for (int64_t j = 0; j < args->cols; j += 8) {
        const uint32_t kept = tutti__dropout_kept(args, row, j / 8);
        for (int i = 0; i < 8 && j + i < args->cols; i++)
            v[j + i] = kept >> i & 1 ? v[j + i] / p_keep : 0;
    }
}

/* y, or dx and the partial sums of dbias in f64. */
TUTTI__VECTORISED
static void OF(dropout_blocks)(void *data, int64_t begin, int64_t end, int thread)
{
    const dropout_task *t = data;
    const tutti__dropout_args *args = t->args;
    const int64_t cols = args->cols;
    REAL *restrict bias = (REAL *)(t->rows + (size_t)thread * ROWS * t->row_bytes);
    REAL *restrict z = (REAL *)((char *)bias + t->row_bytes);
    REAL *restrict d = (REAL *)((char *)z + t->row_bytes);
    if (args->bias) OF(tutti__load)(bias, args->bias, args->dtype, cols);
    for (int64_t block = begin; block < end; block++) {
        double *restrict sum = (double *)(t->partials + (size_t)block * t->partial_bytes);
        if (t->backward) memset(sum, 0, (size_t)cols * sizeof *sum);
        const int64_t first = block * t->blocks.rows;
        const int64_t last =
            args->rows - first < t->blocks.rows ? args->rows : first + t->blocks.rows;
        for (int64_t row = first; row < last; row++) {
            if (args->x.data) { /* backward may do without */
                OF(tutti__load)(z, tutti__row(&args->x, row), args->dtype, cols);
                for (int64_t j = 0; args->bias && j < cols; j++) z[j] += bias[j];
            }
            if (!t->backward) {
                OF(tutti__activate)(z, args->activation, cols);
                OF(drop)(z, args, row);
                if (args->residual.data)
                    OF(tutti__load)(d, tutti__row(&args->residual, row), args->dtype, cols);
                for (int64_t j = 0; args->residual.data && j < cols; j++) z[j] += d[j];
                OF(tutti__store)(tutti__row(&args->y, row), args->dtype, z, cols);
                continue;
            }
            OF(tutti__load)(d, tutti__row(&args->dy, row), args->dtype, cols);
            OF(tutti__activate_backward)(d, z, TUTTI__FROM_Z, args->activation, cols);
            OF(drop)(d, args, row);
            for (int64_t j = 0; j < cols; j++) sum[j] += d[j];
            if (args->dx.data) OF(tutti__store)(tutti__row(&args->dx, row), args->dtype, d, cols);
        }
    }
}
