/* Bodies of gemm.c, for one REAL. */

/* Adds C, applies the epilogue and stores a tile of alpha op(A) op(B). */
static void OF(finish)(const tutti__gemm *gemm, const tile *of)
{
    const tutti_dtype dtype = gemm->c.dtype;
    const bool plain = tutti_dtype_size(dtype) == sizeof(REAL); /* C is of REALs */
    const int64_t cols = of->cols;
    REAL *restrict row = of->row;
    if (gemm->bias) OF(tutti__load)(row, tutti__at(gemm->bias, dtype, of->j), dtype, cols);
    for (int64_t r = 0; r < of->rows; r++) {
        REAL *restrict z = (REAL *)of->data + r * cols;
        void *c = tutti__at(tutti__row(of->c, of->i + r), dtype, of->j);
        if (gemm->bias)
            for (int64_t j = 0; j < cols; j++) z[j] += row[j];
        if (gemm->beta != 0) {
            const REAL *old = plain ? c : row;
            if (!plain) OF(tutti__load)(row, c, dtype, cols);
            for (int64_t j = 0; j < cols; j++) z[j] += (REAL)gemm->beta * old[j];
        }
        if (gemm->activation.kind != TUTTI_ACT_NONE) {
            OF(tutti__round)(z, dtype, cols);
            if (gemm->z) {
                void *kept = tutti__at(gemm->z, dtype, (of->z_row + r) * gemm->n + of->j);
                OF(tutti__store)(kept, dtype, z, cols);
            }
            OF(tutti__activate)(z, gemm->activation, cols);
        }
        if (plain)
            memcpy(c, z, (size_t)cols * sizeof *z);
        else
            OF(tutti__store)(c, dtype, z, cols);
    }
}
