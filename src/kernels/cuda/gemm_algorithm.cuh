/* One algorithm of cuBLASLt for a product: its descriptors, running it, and trials of what it
 * computes. */
#ifndef TUTTI_KERNELS_CUDA_GEMM_ALGORITHM_CUH
#define TUTTI_KERNELS_CUDA_GEMM_ALGORITHM_CUH

#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm.h"

#define TRY_CUBLAS(name, call)                                                   \
    do {                                                                         \
        cublasStatus_t status_ = (call);                                         \
        if (status_ != CUBLAS_STATUS_SUCCESS)                                    \
            return tutti__fail(TUTTI_ERR_DEVICE, "%s: cuBLASLt says %s", (name), \
                               cublasLtGetStatusString(status_));                \
    } while (0)

/* The alignment that an algorithm may assume: AS_PLANNED, pointers of 16 bytes and strides as in
 * the plan or better; ANY, that of elements. */
enum { AS_PLANNED, ANY, ALIGNMENTS };

struct candidate {
    bool bias;                              /* the epilogue adds it */
    bool has[ALIGNMENTS], relu[ALIGNMENTS]; /* relu: the epilogue does the activation */
    bool adds[ALIGNMENTS];                  /* it may be added to C, rounding once */
    cublasLtMatmulAlgo_t algorithm[ALIGNMENTS];
};

struct descriptors {
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t a, b, c; /* A and B of cuBLASLt are our b and a */
};

constexpr int64_t usual_rows = TUTTI__CUDA_GEMM_USUAL_ROWS;
constexpr size_t probe_bytes = (size_t)8 << 20; /* of a trial's matrices */

/* As many rows, or products one after another. */
tutti__gemm tutti__cuda_gemm_of_many(const tutti__gemm *gemm, int64_t many);
tutti_status tutti__cuda_gemm_describe(const tutti__gemm *g, bool bias, bool relu, descriptors *to);
cublasStatus_t tutti__cuda_gemm_run(tutti_context *ctx, const tutti__gemm *g, const candidate *p,
                                    int alignment, const descriptors *d, void *workspace);
/* Requirements of an algorithm: relu keeps NaN (some return 0), C is rounded once, and where pairs
 * of products are added, a sum has the bits of the kernel that adds leaves.  scratch: of
 * TUTTI__CUDA_GEMM_WORKSPACE + probe_bytes. */
tutti_status tutti__cuda_gemm_try(tutti_context *ctx, const tutti__gemm *gemm, candidate *p,
                                  int alignment, char *scratch, bool *good);

/* A plan's data of a product, of gemm.cu alone. */
struct choice;
/* Whether it can compute g, whose operands lie as planned. */
tutti_status tutti__cuda_gemm_computes(tutti_context *ctx, const tutti__gemm *g, const choice *made,
                                       bool *good);
/* gemm_bits.cu: whether a trial shows two choices to give the same bits; scratch as above. */
tutti_status tutti__cuda_gemm_same_bits(tutti_context *ctx, const tutti__gemm *gemm,
                                        const choice *one, const choice *other, char *scratch,
                                        bool *same);

#endif
