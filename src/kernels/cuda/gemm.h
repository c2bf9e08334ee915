/* Matrix products on cuBLASLt, whose algorithms are chosen when a shape is planned (see
 * gemm.cu). */
#ifndef TUTTI_KERNELS_CUDA_GEMM_H
#define TUTTI_KERNELS_CUDA_GEMM_H

#include "ops/gemm.h"

/* Bytes at the beginning of a call's scratch. */
enum { TUTTI__CUDA_GEMM_WORKSPACE = 32 << 20 };
/* What is chosen for any number of rows is chosen for so many. */
enum { TUTTI__CUDA_GEMM_USUAL_ROWS = 8192 };

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the plan's data to the algorithms chosen for `count` products like these, for any addresses
 * and strides, but fastest for those given.  Uses the context's stream and scratch. */
tutti_status tutti__cuda_gemm_plan(tutti_context *ctx, const tutti__gemm *gemms, int count,
                                   tutti__plan *plan);
/* Whether a product that was planned with a_sums, and wants them, has a kernel that leaves them
 * there: a row, [k], for each TUTTI__CUDA_PRODUCT_RUN rows of A. */
bool tutti__cuda_gemm_sums(const tutti__plan *plan, int which);
/* Whether A's columns are to be summed in such rows in any case, as for other numbers of rows there
 * is such a kernel. */
bool tutti__cuda_gemm_runs(const tutti__plan *plan, int which);
/* Whether this product, like number `which`, has a kernel that lets the next one start while it
 * runs (start_next), once it has waited for those before it. */
bool tutti__cuda_gemm_is_early(const tutti__plan *plan, int which, const tutti__gemm *gemm);
/* A product like number `which` of the plan. */
tutti_status tutti__cuda_gemm(tutti_context *ctx, const tutti__plan *plan, int which,
                              const tutti__gemm *gemm, void *workspace);

#ifdef __cplusplus
}
#endif
#endif
