/* Bodies of linear.c, for one REAL. */

/* Beyond some -bound the smooth ones are -0, beyond ±bound their slopes 0 or 1; there z times a vanished factor must not
 * become Inf times 0.  A NaN stays. */
TUTTI__INLINE REAL OF(above)(REAL z, REAL bound)
{
    return z < bound ? bound : z;
}
TUTTI__INLINE REAL OF(within)(REAL z, REAL bound)
{
    return OF(above)(z > bound ? bound : z, -bound);
}

/* z / (1 + exp(-a)): silu for a = z, and gelu, as 1 + tanh(u) = 2 / (1 + exp(-2u)). */
TUTTI__INLINE REAL OF(gated)(REAL z, REAL a)
{
    const bool far = a < -OF(far_from);
    const REAL e = OF(tutti__exp)(far ? a + OF(far_from) : -a);
    return far ? z * e * OF(far_factor) : z / (1 + e);
}

/* Its derivative, da being that of a. */
TUTTI__INLINE REAL OF(gated_slope)(REAL z, REAL a, REAL da)
{
    const bool far = a < -OF(far_from);
    const REAL e = OF(tutti__exp)(far ? a + OF(far_from) : -a), gate = 1 / (1 + e);
    return far ? (1 + z * da) * e * OF(far_factor) : gate + z * da * gate * (1 - gate);
}

/* gelu's a, 2u */
TUTTI__INLINE REAL OF(gelu_exponent)(REAL z)
{
    return 2 * ((REAL)0.79788456080286535588 * (z + (REAL)0.044715 * z * z * z));
}

TUTTI__VECTORISED
void OF(tutti__activate)(REAL *row, tutti_activation activation, double leak, int64_t count)
{
    const REAL slope = (REAL)leak;
    switch (activation) {
    case TUTTI_ACT_NONE:
        break;
    case TUTTI_ACT_RELU: /* comparisons are written so that a NaN stays */
        for (int64_t j = 0; j < count; j++) row[j] = row[j] < 0 ? 0 : row[j];
        break;
    case TUTTI_ACT_LEAKY_RELU:
        for (int64_t j = 0; j < count; j++) row[j] = row[j] > 0 ? row[j] : slope * row[j];
        break;
    case TUTTI_ACT_SQUARED_RELU:
        for (int64_t j = 0; j < count; j++) {
            REAL z = row[j] < 0 ? 0 : row[j];
            row[j] = z * z;
        }
        break;
    case TUTTI_ACT_GELU:
        for (int64_t j = 0; j < count; j++) {
            const REAL z = OF(above)(row[j], -30);
            row[j] = OF(gated)(z, OF(gelu_exponent)(z));
        }
        break;
    case TUTTI_ACT_GELU_ERF:
        for (int64_t j = 0; j < count; j++) {
            const REAL z = OF(above)(row[j], -40);
            row[j] = z * (REAL)0.5 * OF(erfc_of)(z * (REAL)-0.70710678118654752440);
        }
        break;
    case TUTTI_ACT_SILU:
        for (int64_t j = 0; j < count; j++) {
            const REAL z = OF(above)(row[j], -800);
            row[j] = OF(gated)(z, z);
        }
        break;
    }
}

TUTTI__VECTORISED
void OF(tutti__activate_backward)(REAL *restrict d, const REAL *restrict from,
                                  tutti_activation activation, double leak, int64_t count)
{
    const REAL slope = (REAL)leak;
    switch (activation) {
    case TUTTI_ACT_NONE:
        break;
    case TUTTI_ACT_RELU:
        for (int64_t j = 0; j < count; j++) {
            REAL y = from[j], slope_here = y > 0 ? 1 : 0;
            d[j] *= y != y ? y : slope_here;
        }
        break;
    case TUTTI_ACT_LEAKY_RELU:
        for (int64_t j = 0; j < count; j++) {
            REAL y = from[j], slope_here = y > 0 ? 1 : slope;
            d[j] *= y != y ? y : slope_here;
        }
        break;
    case TUTTI_ACT_SQUARED_RELU:
        for (int64_t j = 0; j < count; j++) d[j] *= 2 * OF(root)(from[j]);
        break;
    case TUTTI_ACT_GELU:
        for (int64_t j = 0; j < count; j++) {
            const REAL z = OF(within)(from[j], 30);
            const REAL du = (REAL)0.79788456080286535588 * (1 + (REAL)(3 * 0.044715) * z * z);
            d[j] *= OF(gated_slope)(z, OF(gelu_exponent)(z), 2 * du);
        }
        break;
    case TUTTI_ACT_GELU_ERF:
        for (int64_t j = 0; j < count; j++) {
            const REAL z = OF(within)(from[j], 40);
            const REAL density = (REAL)0.39894228040143267794 * OF(tutti__exp)(z * z * (REAL)-0.5);
            d[j] *= (REAL)0.5 * OF(erfc_of)(z * (REAL)-0.70710678118654752440) + z * density;
        }
        break;
    case TUTTI_ACT_SILU:
        for (int64_t j = 0; j < count; j++) {
            const REAL z = OF(within)(from[j], 800);
            d[j] *= OF(gated_slope)(z, z, 1);
        }
        break;
    }
}

/* A tile of x W^T: add the bias, round to z, keep it if asked, y = act(z). */
static void OF(finish_forward)(void *data, const tutti__tile *tile)
{
    const tutti__linear_args *args = data;
    const tutti__linear_shape *shape = &args->shape;
    const tutti_dtype dtype = shape->dtype;
    REAL *restrict bias = tile->row;
    if (args->bias) OF(tutti__load)(bias, tutti__at(args->bias, dtype, tile->j), dtype, tile->cols);
    for (int64_t r = 0; r < tile->rows; r++) {
        REAL *restrict z = (REAL *)tile->data + r * tile->cols;
        const int64_t row = tile->i + r;
        if (args->bias)
            for (int64_t j = 0; j < tile->cols; j++) z[j] += bias[j];
        OF(tutti__round)(z, dtype, tile->cols);
        if (args->saved) OF(tutti__store)
        (tutti__at(args->saved, dtype, row * shape->out + tile->j), dtype, z, tile->cols);
        OF(tutti__activate)(z, shape->activation, shape->slope, tile->cols);
        OF(tutti__store)
        (tutti__at(tutti__row(&args->y, row), dtype, tile->j), dtype, z, tile->cols);
    }
}

/* A tile of dx. */
static void OF(finish_dx)(void *data, const tutti__tile *tile)
{
    const tutti__linear_args *args = data;
    for (int64_t r = 0; r < tile->rows; r++) OF(tutti__store)
    (tutti__at(tutti__row(&args->dx, tile->i + r), args->dx.dtype, tile->j), args->dx.dtype,
     (REAL *)tile->data + r * tile->cols, tile->cols);
}

/* A tile of dW, which is of REALs. */
static void OF(finish_dweight)(void *data, const tutti__tile *tile)
{
    const tutti__linear_args *args = data;
    for (int64_t r = 0; r < tile->rows; r++) {
        const REAL *restrict sum = (REAL *)tile->data + r * tile->cols;
        REAL *restrict dw = (REAL *)args->dweight + (tile->i + r) * args->shape.in + tile->j;
        if (args->accumulate)
            for (int64_t j = 0; j < tile->cols; j++) dw[j] += sum[j];
        else
            memcpy(dw, sum, (size_t)tile->cols * sizeof *dw);
    }
}

/* dz = dy * act', and the partial sums of db, by blocks of rows: RUN rows in REALs, these sums in f64. */
TUTTI__VECTORISED
static void OF(backward_blocks)(void *data, int64_t begin, int64_t end, int thread)
{
    const backward_task *t = data;
    const tutti__linear_args *args = t->args;
    const tutti__linear_shape *shape = &args->shape;
    const int64_t cols = shape->out;
    REAL *spare = (REAL *)(t->rows + (size_t)thread * t->thread_bytes);
    REAL *restrict from = (REAL *)((char *)spare + t->row_bytes);
    REAL *restrict sum = args->dbias ? (REAL *)((char *)from + t->row_bytes) : NULL;
    for (int64_t block = begin; block < end; block++) {
        double *restrict total = (double *)(t->partials + (size_t)block * t->partial_bytes);
        if (sum) memset(total, 0, (size_t)cols * sizeof *total);
        const int64_t first = block * t->blocks.rows;
        const int64_t last =
            shape->rows - first < t->blocks.rows ? shape->rows : first + t->blocks.rows;
        for (int64_t row = first; row < last; row++) {
            REAL *restrict d = t->dz ? (REAL *)t->dz + row * cols : spare;
            OF(tutti__load)(d, tutti__row(&args->dy, row), shape->dtype, cols);
            if (t->dz) {
                const void *have = args->saved ? tutti__at(args->saved, shape->dtype, row * cols)
                                               : tutti__row(&args->y, row);
                OF(tutti__load)(from, have, shape->dtype, cols);
                OF(tutti__activate_backward)(d, from, shape->activation, shape->slope, cols);
            }
            if (!sum) continue;
            if ((row - first) % RUN == 0) memset(sum, 0, (size_t)cols * sizeof *sum);
            for (int64_t j = 0; j < cols; j++) sum[j] += d[j];
            if ((row - first) % RUN == RUN - 1 || row == last - 1)
                for (int64_t j = 0; j < cols; j++) total[j] += sum[j];
        }
    }
}

#undef REAL
#undef OF
