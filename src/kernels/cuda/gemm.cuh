/* Matrix products on cuBLASLt, whose algorithms are chosen when a shape is planned.  gemm.cu says
 * how. */
#ifndef TUTTI_KERNELS_CUDA_GEMM_CUH
#define TUTTI_KERNELS_CUDA_GEMM_CUH

#include <cublasLt.h>

#include "kernels/cuda/cuda.h"
#include "ops/gemm.h"

/* What an algorithm may count on: AS_PLANNED, pointers of 16 bytes and strides aligned at least as
 * in the plan; ANY, elements. */
enum { AS_PLANNED, ANY, ALIGNMENTS };

struct gemm_candidate {
    bool bias;                              /* the epilogue adds it */
    bool has[ALIGNMENTS], relu[ALIGNMENTS]; /* relu: the epilogue does the activation */
    bool adds[ALIGNMENTS];                  /* it may be added to what is there, rounding once */
    cublasLtMatmulAlgo_t algorithm[ALIGNMENTS];
};

/* What a plan keeps of a product. */
struct gemm_plan {
    tutti__gemm planned;
    gemm_candidate plain, fused;
};

/* Of a call, at the beginning of its scratch. */
constexpr size_t gemm_workspace = (size_t)32 << 20;

/* Chooses for calls like this one, whatever their addresses and strides; those given are what is
 * to be fast.  Makes the context's handle, and uses its stream and scratch. */
tutti_status tutti__cuda_gemm_plan(tutti_context *ctx, const tutti__gemm *gemm, gemm_plan *plan);
tutti_status tutti__cuda_gemm(tutti_context *ctx, const gemm_plan *plan, const tutti__gemm *gemm,
                              void *workspace);

#endif
