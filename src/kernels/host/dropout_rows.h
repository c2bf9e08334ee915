/* Bodies of dropout.c, for one REAL. */

/* z = x + bias */
TUTTI__INLINE void OF(load_z)(REAL *restrict z, const dropout_task *t, int64_t row)
{
    const REAL *restrict bias = t->bias;
    OF(tutti__load)(z, tutti__row(&t->args->x, row), t->args->dtype, t->args->cols);
    for (int64_t j = 0; bias && j < t->args->cols; j++) z[j] += bias[j];
}

/* v = keep ? v / (1 - p) : 0 */
TUTTI__INLINE void OF(drop)(REAL *v, const tutti__dropout_args *args, int64_t row)
{
    if (args->dropped == 0) return;
    const REAL kept = tutti__dropout_kept(args);
    const uint64_t seed = args->step->seed;
    const int64_t step = args->step->step;
    for (int64_t j = 0; j < args->cols; j += 8) {
        const tutti__random bits = tutti__dropout_bits(args, seed, step, row, j / 8);
        const int count = args->cols - j < 8 ? (int)(args->cols - j) : 8;
        for (int i = 0; i < count; i++)
            v[j + i] = tutti__dropout_goes(args, &bits, i) ? 0 : v[j + i] / kept;
    }
}

TUTTI__VECTORISED
static void OF(dropout_rows)(void *data, int64_t begin, int64_t end, int thread)
{
    const dropout_task *t = data;
    const tutti__dropout_args *args = t->args;
    REAL *z = (REAL *)(t->rows + (size_t)thread * 2 * t->row_bytes);
    for (int64_t row = begin; row < end; row++) {
        OF(load_z)(z, t, row);
        OF(tutti__activate)(z, args->activation, args->cols);
        OF(drop)(z, args, row);
        OF(tutti__store)(tutti__row(&args->y, row), args->dtype, z, args->cols);
    }
}

TUTTI__VECTORISED
static void OF(dropout_backward_blocks)(void *data, int64_t begin, int64_t end, int thread)
{
    const dropout_task *t = data;
    const tutti__dropout_args *args = t->args;
    const int64_t cols = args->cols;
    REAL *restrict d = (REAL *)(t->rows + (size_t)thread * 2 * t->row_bytes);
    REAL *restrict z = (REAL *)((char *)d + t->row_bytes);
    for (int64_t block = begin; block < end; block++) {
        double *restrict sum = (double *)(t->partials + (size_t)block * t->partial_bytes);
        memset(sum, 0, (size_t)cols * sizeof *sum);
        const int64_t first = block * t->blocks.rows;
        const int64_t last =
            args->rows - first < t->blocks.rows ? args->rows : first + t->blocks.rows;
        for (int64_t row = first; row < last; row++) {
            OF(tutti__load)(d, tutti__row(&args->dy, row), args->dtype, cols);
            if (args->activation.kind != TUTTI_ACT_NONE) {
                OF(load_z)(z, t, row);
                OF(tutti__activate_backward)(d, z, TUTTI__FROM_Z, args->activation, cols);
            }
            OF(drop)(d, args, row);
            for (int64_t j = 0; args->dbias && j < cols; j++) sum[j] += d[j];
            if (args->dx.data) OF(tutti__store)(tutti__row(&args->dx, row), args->dtype, d, cols);
        }
    }
}

#undef REAL
#undef OF
