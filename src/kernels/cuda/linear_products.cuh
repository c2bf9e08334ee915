/* FusedLinear's matrix products: choosing cuBLASLt's algorithms when a shape is planned, trying them, running them.  linear.cu
 * says what for. */
#ifndef TUTTI_KERNELS_CUDA_LINEAR_PRODUCTS_CUH
#define TUTTI_KERNELS_CUDA_LINEAR_PRODUCTS_CUH

#include <cublasLt.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/linear_passes.cuh"

#define TRY_CUBLAS(call)                                                     \
    do {                                                                     \
        cublasStatus_t status_ = (call);                                     \
        if (status_ != CUBLAS_STATUS_SUCCESS)                                \
            return tutti__fail(TUTTI_ERR_DEVICE, "linear: cuBLASLt says %s", \
                               cublasLtGetStatusString(status_));            \
    } while (0)

enum { FORWARD_BIAS, FORWARD, DGRAD, WGRAD, PRODUCTS };

/* What the algorithm of a product may count on: AS_PLANNED, pointers of 16 bytes and strides
 * aligned at least as in the plan; ANY, elements. */
enum { AS_PLANNED, ANY, ALIGNMENTS };

/* d = op(a) op(b) in cuBLASLt's column-major view: d is [m, n], op(a) [m, k], op(b) [k, n]. */
struct product {
    cublasOperation_t op_a, op_b;
    uint64_t m, n, k;
    cudaDataType type, d_type, scale_type;
    cublasComputeType_t compute;
    bool bias;
    int64_t lda, ldb, ldd;                  /* as planned: what contiguous tensors have */
    bool has[ALIGNMENTS], relu[ALIGNMENTS]; /* relu: the epilogue does the activation */
    bool adds[ALIGNMENTS];                  /* it may be added to what is there, rounding once */
    cublasLtMatmulAlgo_t algorithm[ALIGNMENTS];
};

/* A plan's data: the products of its direction. */
struct linear_products {
    product products[PRODUCTS];
};

struct operands {
    const void *a;
    int64_t lda;
    const void *b;
    int64_t ldb;
    void *d;
    int64_t ldd;
    const void *bias;
};

struct descriptors {
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t a, b, d;
};

constexpr size_t workspace_bytes = (size_t)32 << 20;
constexpr size_t probe_bytes = (size_t)8 << 20; /* of a probe's matrices */

static tutti_status describe(const product *p, const operands *o, bool relu, descriptors *to)
{
    TRY_CUBLAS(cublasLtMatmulDescInit(&to->op, p->compute, p->scale_type));
    TRY_CUBLAS(cublasLtMatmulDescSetAttribute(&to->op, CUBLASLT_MATMUL_DESC_TRANSA, &p->op_a,
                                              sizeof p->op_a));
    TRY_CUBLAS(cublasLtMatmulDescSetAttribute(&to->op, CUBLASLT_MATMUL_DESC_TRANSB, &p->op_b,
                                              sizeof p->op_b));
    cublasLtEpilogue_t epilogue = p->bias && relu ? CUBLASLT_EPILOGUE_RELU_BIAS
                                  : relu          ? CUBLASLT_EPILOGUE_RELU
                                  : p->bias       ? CUBLASLT_EPILOGUE_BIAS
                                                  : CUBLASLT_EPILOGUE_DEFAULT;
    TRY_CUBLAS(cublasLtMatmulDescSetAttribute(&to->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                              sizeof epilogue));
    if (p->bias)
        TRY_CUBLAS(cublasLtMatmulDescSetAttribute(&to->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                  &o->bias, sizeof o->bias));
    bool ta = p->op_a == CUBLAS_OP_T, tb = p->op_b == CUBLAS_OP_T;
    TRY_CUBLAS(
        cublasLtMatrixLayoutInit(&to->a, p->type, ta ? p->k : p->m, ta ? p->m : p->k, o->lda));
    TRY_CUBLAS(
        cublasLtMatrixLayoutInit(&to->b, p->type, tb ? p->n : p->k, tb ? p->k : p->n, o->ldb));
    TRY_CUBLAS(cublasLtMatrixLayoutInit(&to->d, p->d_type, p->m, p->n, o->ldd));
    return TUTTI_OK;
}

static size_t type_size(cudaDataType type)
{
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

static tutti_dtype type_of(cudaDataType type)
{
    return type == CUDA_R_64F   ? TUTTI_F64
           : type == CUDA_R_32F ? TUTTI_F32
           : type == CUDA_R_16F ? TUTTI_F16
                                : TUTTI_BF16;
}

/* cuBLASLt's first choice; has[] stays false where it knows none. */
static tutti_status choose(cublasLtHandle_t handle, product *p, int alignment, bool relu)
{
    /* an odd leading dimension is the least that an algorithm for any can be asked for */
    int64_t odd = alignment == ANY;
    operands o = {NULL, p->lda | odd, NULL, p->ldb | odd, NULL, p->ldd | odd, NULL};
    /* only the alignment of this address counts */
    if (p->bias) o.bias = (const void *)(uintptr_t)256;
    descriptors d;
    TUTTI_TRY(describe(p, &o, relu, &d));
    cublasLtMatmulPreferenceOpaque_t preference;
    TRY_CUBLAS(cublasLtMatmulPreferenceInit(&preference));
    /* split sums only by way of the workspace, added in a second step: their order does not
     * depend on timing */
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint32_t in = alignment == ANY ? (uint32_t)type_size(p->type) : 16;
    uint32_t out = alignment == ANY ? (uint32_t)type_size(p->d_type) : 16;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t size;
    } attributes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof workspace_bytes},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme, sizeof scheme},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &in, sizeof in},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &in, sizeof in},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out, sizeof out},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out, sizeof out},
    };
    for (const auto &attribute : attributes)
        TRY_CUBLAS(cublasLtMatmulPreferenceSetAttribute(&preference, attribute.name,
                                                        attribute.value, attribute.size));
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, &d.op, &d.a, &d.b, &d.d, &d.d,
                                                           &preference, 1, &result, &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0))
        return TUTTI_OK;
    TRY_CUBLAS(status);
    TRY_CUBLAS(result.state);
    p->algorithm[alignment] = result.algo;
    p->has[alignment] = true;
    p->relu[alignment] = relu;
    return TUTTI_OK;
}

/* The largest power of two up to 16 that divides a stride in bytes. */
static int64_t alignment_of(int64_t ld, cudaDataType type)
{
    int64_t bytes = (ld * (int64_t)type_size(type)) | 16;
    return bytes & -bytes;
}

static cublasStatus_t run(tutti_context *ctx, const product *p, int alignment, const operands *o,
                          const descriptors *d, bool add, void *workspace)
{
    const double one = 1, beta = add;
    const float one_f = 1, beta_f = add;
    bool f64 = p->scale_type == CUDA_R_64F;
    return cublasLtMatmul((cublasLtHandle_t)ctx->backend_data, (cublasLtMatmulDesc_t)&d->op,
                          f64 ? (const void *)&one : &one_f, o->a, (cublasLtMatrixLayout_t)&d->a,
                          o->b, (cublasLtMatrixLayout_t)&d->b, f64 ? (const void *)&beta : &beta_f,
                          o->d, (cublasLtMatrixLayout_t)&d->d, o->d, (cublasLtMatrixLayout_t)&d->d,
                          &p->algorithm[alignment], workspace, workspace_bytes,
                          tutti__cuda_stream(ctx));
}

/* A small forward product with the chosen algorithm: x and W hold x and w in their first column and 0 elsewhere, and
 * `bias` is added: by the epilogue where the product has one, otherwise (add) to what is in y.  *as_wanted: it
 * ran, and every result is `want` (NaN is NaN). */
static tutti_status probe(tutti_context *ctx, const product *p, int alignment, double x, double w,
                          double bias, bool add, double want, char *scratch, bool *as_wanted)
{
    constexpr uint64_t most = 512; /* of m, n, k, each: a few tiles */
    constexpr size_t each = most * most * sizeof(double);
    static_assert(4 * each <= probe_bytes, "the probe's matrices");
    *as_wanted = false;
    product small = *p;
    small.m = p->m < most ? p->m : most;
    small.n = p->n < most ? p->n : most;
    small.k = p->k < most ? p->k : most;
    char *base = scratch + workspace_bytes;
    operands o = {base, most, base + each, most, base + 2 * each, most, base + 3 * each};
    descriptors d;
    TUTTI_TRY(describe(&small, &o, p->relu[alignment], &d));
    cudaStream_t stream = tutti__cuda_stream(ctx);
    tutti_dtype dtype = type_of(p->type);
    size_t size = tutti_dtype_size(dtype), count = most * most;
    char *host = (char *)malloc(count * size);
    if (!host) return tutti__fail(TUTTI_ERR_MEMORY, "linear: no memory for a plan");
    tutti_status status = TUTTI_OK;
    auto copy = [&](void *to, const void *from) {
        if (status == TUTTI_OK)
            status = tutti__cuda_status(
                cudaMemcpyAsync(to, from, count * size, cudaMemcpyDefault, stream), "linear_plan");
        if (status == TUTTI_OK)
            status = tutti__cuda_status(cudaStreamSynchronize(stream), "linear_plan");
    };
    /* value at every step-th element */
    auto fill = [&](void *to, double value, size_t step) {
        double bits = 0; /* holds a value of any type */
        (void)tutti_convert(&bits, dtype, &value, TUTTI_F64, 1);
        memset(host, 0, count * size);
        for (size_t i = 0; i < count; i += step) memcpy(host + i * size, &bits, size);
        copy(to, host);
    };
    fill(base, w, most);
    fill(base + each, x, most);
    fill(base + 2 * each, add ? bias : 0, 1);
    fill(base + 3 * each, bias, 1);
    if (status == TUTTI_OK &&
        run(ctx, &small, alignment, &o, &d, add, scratch) == CUBLAS_STATUS_SUCCESS) {
        copy(host, o.d);
        *as_wanted = status == TUTTI_OK;
        for (size_t i = 0; i < most * small.n && *as_wanted; i++) {
            double got = want;
            if (i % most < small.m) (void)tutti_convert(&got, TUTTI_F64, host + i * size, dtype, 1);
            *as_wanted = got == want || (std::isnan(want) && std::isnan(got));
        }
    }
    free(host);
    return status;
}

/* Whether a 16-bit product with the chosen algorithm is rounded once, after the bias has been added.  Some round before, too,
 * and lose what the bias leaves of the product: some with a bias epilogue, others when they add to y. */
static tutti_status rounds_once(tutti_context *ctx, const product *p, int alignment, bool add,
                                char *scratch, bool *good)
{
    tutti_dtype dtype = type_of(p->type);
    *good = true;
    if (tutti_dtype_size(dtype) > 2) return TUTTI_OK;
    /* (1 + e)^2 - (1 + 2e) = e^2, exact in f32 */
    double e = dtype == TUTTI_F16 ? 0x1p-10 : 0x1p-7;
    return probe(ctx, p, alignment, 1 + e, 1 + e, -(1 + 2 * e), add, e * e, scratch, good);
}

/* What a chosen algorithm must do: with relu let NaN through (some return 0), and round once. */
static tutti_status check_epilogue(tutti_context *ctx, product *p, int alignment, bool forward,
                                   char *scratch, bool *good)
{
    *good = true;
    if (p->relu[alignment])
        TUTTI_TRY(probe(ctx, p, alignment, NAN, 0, 0, false, NAN, scratch, good));
    if (*good && p->bias) TUTTI_TRY(rounds_once(ctx, p, alignment, false, scratch, good));
    if (*good && forward && !p->bias)
        TUTTI_TRY(rounds_once(ctx, p, alignment, true, scratch, &p->adds[alignment]));
    return TUTTI_OK;
}

/* An algorithm that does relu in its epilogue if that is asked for and one does it right; else one that does not.  None
 * (has[] false) where cuBLASLt has none that is right. */
static tutti_status choose_checked(tutti_context *ctx, product *p, int alignment, bool forward,
                                   bool relu, char *scratch)
{
    for (int with_relu = relu; with_relu >= 0; with_relu--) {
        bool good = false;
        TUTTI_TRY(choose((cublasLtHandle_t)ctx->backend_data, p, alignment, with_relu));
        if (p->has[alignment])
            TUTTI_TRY(check_epilogue(ctx, p, alignment, forward, scratch, &good));
        if (good) return TUTTI_OK;
        p->has[alignment] = p->relu[alignment] = false;
    }
    return TUTTI_OK;
}

/* Which of a product's algorithms these operands allow. */
static int alignment_for(const product *p, const operands *o)
{
    bool as_planned = p->has[AS_PLANNED] && aligned(o->a) && aligned(o->b) && aligned(o->d) &&
                      alignment_of(o->lda, p->type) >= alignment_of(p->lda, p->type) &&
                      alignment_of(o->ldb, p->type) >= alignment_of(p->ldb, p->type) &&
                      alignment_of(o->ldd, p->d_type) >= alignment_of(p->ldd, p->d_type);
    return as_planned ? AS_PLANNED : ANY;
}

static tutti_status multiply(tutti_context *ctx, const product *p, int alignment, const operands *o,
                             bool add, void *workspace)
{
    if (!p->has[alignment])
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "linear: cuBLASLt has no algorithm for the product [%llu, %llu, %llu]",
                           (unsigned long long)p->n, (unsigned long long)p->k,
                           (unsigned long long)p->m);
    descriptors d;
    TUTTI_TRY(describe(p, o, p->relu[alignment], &d));
    TRY_CUBLAS(run(ctx, p, alignment, o, &d, add, workspace));
    return TUTTI_OK;
}

#endif
