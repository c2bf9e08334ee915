/* Products of 16-bit matrices with an epilogue of our own, on GPUs of compute capability 9.0 (see
 * sm90a/product.cu). */
#ifndef TUTTI_KERNELS_CUDA_PRODUCT_H
#define TUTTI_KERNELS_CUDA_PRODUCT_H

#include "ops/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *can: this device can compute products of this shape and these types; *better: it should do so
 * faster than cuBLASLt followed by a pass over its result.  Prepares the device for it; before
 * capture. */
tutti_status tutti__cuda_product_plan(int device, const tutti__gemm *gemm, bool *can, bool *better);
/* Whether the operands lie as they must: addresses and rows on 16-byte boundaries. */
bool tutti__cuda_product_takes(const tutti__gemm *gemm);
tutti_status tutti__cuda_product(tutti_context *ctx, const tutti__gemm *gemm);

#ifdef __cplusplus
}
#endif
#endif
