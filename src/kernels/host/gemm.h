/* Matrix products on OpenBLAS whose bits do not depend on the number of threads. */
#ifndef TUTTI_KERNELS_HOST_GEMM_H
#define TUTTI_KERNELS_HOST_GEMM_H

#include "kernels/host/host.h"

/* One factor of C = A B^T, seen as [outer, k].  It lies in memory by rows of k elements, or,
 * transposed, as k rows of outer elements. */
typedef struct tutti__factor {
    tutti__matrix in;
    bool transposed;
} tutti__factor;

/* Receives a finished tile of C: rows [i, i + rows), columns [j, j + cols), REALs, cols apart. */
typedef struct tutti__tile {
    void *data;
    int64_t i, j, rows, cols;
    void *row; /* room for cols REALs */
} tutti__tile;

/* C [m, n] = A B^T, cut into a grid of tiles that depends on the shape only; each tile is a single-
 * threaded product (a chain of them where a factor must be widened or copied first) and goes to
 * finish, on the thread that made it. */
typedef struct tutti__product {
    int64_t m, n, k;
    tutti__factor a, b;
    tutti_dtype real; /* f32 or f64: of the arithmetic and the tiles */
    void (*finish)(void *data, const tutti__tile *tile);
    void *data;
} tutti__product;

/* Bytes of scratch that a product of these sizes takes on this context. */
size_t tutti__product_scratch(const tutti_context *ctx, int64_t m, int64_t n, int64_t k,
                              tutti_dtype real);
void tutti__product_run(const tutti_context *ctx, const tutti__product *product, void *scratch);

#endif
