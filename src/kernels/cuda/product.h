/* Products of 16-bit matrices with an epilogue of our own, on GPUs of compute capability 9.0 (see
 * sm90a/product.cuh). */
#ifndef TUTTI_KERNELS_CUDA_PRODUCT_H
#define TUTTI_KERNELS_CUDA_PRODUCT_H

#include "ops/gemm.h"

/* Rows of a partial sum of columns. */
enum { TUTTI__CUDA_PRODUCT_RUN = 64 };

#ifdef __cplusplus
extern "C" {
#endif

/* *can: this device can compute products of this shape and these types; *better: it should do so
 * faster than cuBLASLt and the passes that it needs.  Prepares the device for it; before
 * capture. */
tutti_status tutti__cuda_product_plan(int device, const tutti__gemm *gemm, bool *can, bool *better);
/* Whether the operands lie as they must: addresses and rows on 16-byte boundaries. */
bool tutti__cuda_product_takes(const tutti__gemm *gemm);
tutti_status tutti__cuda_product(tutti_context *ctx, const tutti__gemm *gemm);
/* Of those whose B is not transposed, which have no epilogue, but may have sums of A's columns. */
tutti_status tutti__cuda_product_plain_plan(int device, const tutti__gemm *gemm, bool *can,
                                            bool *better);
tutti_status tutti__cuda_product_plain(tutti_context *ctx, const tutti__gemm *gemm);

/* The same for C = (A B, rounded) act'(v), v being z if it is needed and otherwise act(z), and its
 * column sums: each TUTTI__CUDA_PRODUCT_RUN rows give a row of partial sums, [n], unless partial is
 * NULL. */
tutti_status tutti__cuda_product_slope_plan(int device, const tutti__gemm *gemm,
                                            tutti_activation activation, bool *better);
bool tutti__cuda_product_slope_takes(const tutti__gemm *gemm, const tutti__matrix *v);
tutti_status tutti__cuda_product_slope(tutti_context *ctx, const tutti__gemm *gemm,
                                       tutti__activation activation, const tutti__matrix *v,
                                       float *partial);

#ifdef __cplusplus
}
#endif
#endif
