/* Matrix products on OpenBLAS whose bits do not depend on the number of threads.  C is cut into a
 * grid of tiles that depends on the shape only; each tile is a single-threaded product (a chain of
 * them where a factor must be widened or copied first), and gets its epilogue while it is in
 * cache, on the thread that made it. */
#ifndef TUTTI_KERNELS_HOST_GEMM_H
#define TUTTI_KERNELS_HOST_GEMM_H

#include "kernels/host/host.h"
#include "ops/gemm.h"

/* Bytes of scratch that a product of these sizes and types takes on this context. */
size_t tutti__host_gemm_scratch(const tutti_context *ctx, const tutti__gemm *gemm);
void tutti__host_gemm(const tutti_context *ctx, const tutti__gemm *gemm, void *scratch);

#endif
