/* Matrix products on OpenBLAS whose bits do not depend on the number of threads.  C is divided into
 * tiles by its shape only; each is a single-threaded product (a chain of them if a factor must be
 * widened or copied first) and gets its epilogue while in cache, on the same thread. */
#ifndef TUTTI_KERNELS_HOST_GEMM_H
#define TUTTI_KERNELS_HOST_GEMM_H

#include "kernels/host/host.h"
#include "ops/gemm.h"

/* Bytes of scratch that a product of these sizes and types takes on this context. */
size_t tutti__host_gemm_scratch(const tutti_context *ctx, const tutti__gemm *gemm);
void tutti__host_gemm(const tutti_context *ctx, const tutti__gemm *gemm, void *scratch);

#endif
