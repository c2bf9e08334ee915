/* Bodies of linear.c, for one REAL. */

/* dz = dy * act', and the partial sums of db, by blocks of a leaf's rows: sums of RUN rows in
 * REALs, and of these in f64. */
TUTTI__VECTORISED
static void OF(backward_blocks)(void *data, int64_t begin, int64_t end, int thread)
{
    const backward_task *t = data;
    const tutti__linear_args *args = t->args;
    const tutti__linear_shape *shape = &args->shape;
    const int64_t cols = shape->out;
    REAL *spare = (REAL *)(t->rows + (size_t)thread * t->thread_bytes);
    REAL *restrict v = (REAL *)((char *)spare + t->row_bytes);
    REAL *restrict sum = args->dbias ? (REAL *)((char *)v + t->row_bytes) : NULL;
    for (int64_t block = begin; block < end; block++) {
        double *restrict total = (double *)(t->partials + (size_t)block * t->partial_bytes);
        if (sum) memset(total, 0, (size_t)cols * sizeof *total);
        const int64_t leaf = block / t->blocks.count, end_of_leaf = (leaf + 1) * t->leaf_rows;
        const int64_t first =
            leaf * t->leaf_rows + (block - leaf * t->blocks.count) * t->blocks.rows;
        const int64_t last =
            end_of_leaf - first < t->blocks.rows ? end_of_leaf : first + t->blocks.rows;
        for (int64_t row = first; row < last; row++) {
            REAL *restrict d = t->dz ? (REAL *)t->dz + row * cols : spare;
            OF(tutti__load)(d, tutti__row(&args->dy, row), shape->dtype, cols);
            if (t->dz) {
                const tutti__slope_from from = t->z ? TUTTI__FROM_Z : TUTTI__FROM_Y;
                const void *have =
                    t->z ? tutti__at(t->z, shape->dtype, row * cols) : tutti__row(&args->y, row);
                OF(tutti__load)(v, have, shape->dtype, cols);
                OF(tutti__activate_backward)(d, v, from, shape->activation, cols);
            }
            if (!sum) continue;
            if ((row - first) % RUN == 0) memset(sum, 0, (size_t)cols * sizeof *sum);
            for (int64_t j = 0; j < cols; j++) sum[j] += d[j];
            if ((row - first) % RUN == RUN - 1 || row == last - 1)
                for (int64_t j = 0; j < cols; j++) total[j] += sum[j];
        }
    }
}
