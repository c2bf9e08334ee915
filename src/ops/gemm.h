/* Matrix products, as operations pass them to their backend's gemm (kernels/X/gemm.*). */
#ifndef TUTTI_OPS_GEMM_H
#define TUTTI_OPS_GEMM_H

#include "core/op.h"
#include "ops/activation.h"

/* op(A): A or its transpose. */
typedef struct tutti__factor {
    tutti__matrix in;
    bool transposed;
    int64_t apart[2]; /* elements from a batch's product to the next one's */
} tutti__factor;

/* What a product's bits must not depend on, where the fastest algorithm of each shape would; on the
 * host as tiles of its rows have it. */
typedef enum tutti__gemm_keeps {
    TUTTI__GEMM_KEEPS_NOTHING,
    TUTTI__GEMM_KEEPS_ROWS,  /* a row's, on m */
    TUTTI__GEMM_KEEPS_ITEMS, /* on the batch; with beta 1 they are those of the sum of C and the
                               * product with beta 0 */
} tutti__gemm_keeps;

/* z = alpha op(A) op(B) + beta C + bias, rounded to C's type, and C = act(z).  op(A) is [m, k],
 * op(B) [k, n], C [m, n]; batch[0] x batch[1] such products.  Only with beta 0 can they have an
 * epilogue (bias, z, activation), on cuda only a single one.  k is at least 1 on cuda; the host
 * takes 0, too. */
typedef struct tutti__gemm {
    const char *name; /* of the layer, in messages */
    int64_t m, n, k;
    int64_t batch[2];
    tutti__factor a, b;
    tutti__matrix c;
    int64_t c_apart[2];
    double alpha, beta;
    bool tf32;        /* f32 products may use TF32 */
    const void *bias; /* [n], of C's type; or NULL */
    void *z;          /* [batch, m, n] contiguous, of C's type; or NULL */
    tutti__activation activation;
    tutti__gemm_keeps keeps; /* cuda */
    float *a_sums; /* cuda: where A's columns are summed (tutti__cuda_gemm_sums), or NULL */
} tutti__gemm;

/* C = op(A) op(B), of one product */
static inline tutti__gemm tutti__gemm_of(const char *name, int64_t m, int64_t n, int64_t k,
                                         const tutti__matrix *a, bool transpose_a,
                                         const tutti__matrix *b, bool transpose_b,
                                         const tutti__matrix *c)
{
    const tutti__gemm gemm = {name,
                              m,
                              n,
                              k,
                              {1, 1},
                              {*a, transpose_a, {0, 0}},
                              {*b, transpose_b, {0, 0}},
                              *c,
                              {0, 0},
                              1,
                              0,
                              false,
                              NULL,
                              NULL,
                              {TUTTI_ACT_NONE, 0, 0, 0, 0},
                              TUTTI__GEMM_KEEPS_NOTHING,
                              NULL};
    return gemm;
}

#endif
