/* One algorithm of cuBLASLt: its descriptors, running it, and trials of what it computes, as some
 * lose NaN in relu, or round C twice.
 *
 * cuBLASLt is column-major: a row-major [r, c] matrix with row stride s is its c x r matrix with
 * leading dimension s.  All products are therefore written transposed, C^T = op(B)^T op(A)^T: its
 * first factor is B, its m is n. */
#include "kernels/cuda/gemm_algorithm.cuh"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "ops/tree_sum.h"

static cudaDataType type_of(tutti_dtype dtype)
{
    return dtype == TUTTI_F64   ? CUDA_R_64F
           : dtype == TUTTI_F32 ? CUDA_R_32F
           : dtype == TUTTI_F16 ? CUDA_R_16F
                                : CUDA_R_16BF;
}

/* A row-major matrix [rows, cols] as cuBLASLt's, of a batch along batch[1]. */
static tutti_status lay_out(const tutti__gemm *g, const tutti__matrix *matrix, int64_t rows,
                            int64_t cols, int64_t apart, cublasLtMatrixLayoutOpaque_t *to)
{
    TRY_CUBLAS(g->name, cublasLtMatrixLayoutInit(to, type_of(matrix->dtype), (uint64_t)cols,
                                                 (uint64_t)rows, matrix->stride));
    if (g->batch[1] == 1) return TUTTI_OK;
    const int32_t count = (int32_t)g->batch[1];
    TRY_CUBLAS(g->name, cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                         &count, sizeof count));
    TRY_CUBLAS(g->name, cublasLtMatrixLayoutSetAttribute(
                            to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &apart, sizeof apart));
    return TUTTI_OK;
}

template<class V>
static tutti_status set(const tutti__gemm *g, descriptors *of,
                        cublasLtMatmulDescAttributes_t attribute, const V &value)
{
    TRY_CUBLAS(g->name, cublasLtMatmulDescSetAttribute(&of->op, attribute, &value, sizeof value));
    return TUTTI_OK;
}

tutti_status tutti__cuda_gemm_describe(const tutti__gemm *g, bool bias, bool relu, descriptors *to)
{
    const bool wide = g->a.in.dtype == TUTTI_F64, ta = g->a.transposed, tb = g->b.transposed;
    const cublasComputeType_t compute = wide ? CUBLAS_COMPUTE_64F
                                        : g->a.in.dtype == TUTTI_F32 && g->tf32
                                            ? CUBLAS_COMPUTE_32F_FAST_TF32
                                            : CUBLAS_COMPUTE_32F;
    const cublasLtEpilogue_t epilogue = bias && relu ? CUBLASLT_EPILOGUE_RELU_BIAS
                                        : relu       ? CUBLASLT_EPILOGUE_RELU
                                        : bias       ? CUBLASLT_EPILOGUE_BIAS
                                                     : CUBLASLT_EPILOGUE_DEFAULT;
    TRY_CUBLAS(g->name, cublasLtMatmulDescInit(&to->op, compute, wide ? CUDA_R_64F : CUDA_R_32F));
    TUTTI_TRY(set(g, to, CUBLASLT_MATMUL_DESC_TRANSA, tb ? CUBLAS_OP_T : CUBLAS_OP_N));
    TUTTI_TRY(set(g, to, CUBLASLT_MATMUL_DESC_TRANSB, ta ? CUBLAS_OP_T : CUBLAS_OP_N));
    TUTTI_TRY(set(g, to, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
    if (bias) TUTTI_TRY(set(g, to, CUBLASLT_MATMUL_DESC_BIAS_POINTER, g->bias));
    TUTTI_TRY(lay_out(g, &g->b.in, tb ? g->n : g->k, tb ? g->k : g->n, g->b.apart[1], &to->a));
    TUTTI_TRY(lay_out(g, &g->a.in, ta ? g->k : g->m, ta ? g->m : g->k, g->a.apart[1], &to->b));
    return lay_out(g, &g->c, g->m, g->n, g->c_apart[1], &to->c);
}

tutti__gemm tutti__cuda_gemm_of_many(const tutti__gemm *gemm, int64_t many)
{
    tutti__gemm g = *gemm;
    if (g.keeps == TUTTI__GEMM_KEEPS_ROWS) g.m = many;
    if (g.keeps == TUTTI__GEMM_KEEPS_ITEMS) {
        g.batch[1] = many;
        g.a.apart[1] = (g.a.transposed ? g.k : g.m) * g.a.in.stride;
        g.b.apart[1] = (g.b.transposed ? g.n : g.k) * g.b.in.stride;
        g.c_apart[1] = g.m * g.c.stride;
    }
    return g;
}

cublasStatus_t tutti__cuda_gemm_run(tutti_context *ctx, const tutti__gemm *g, const candidate *p,
                                    int alignment, const descriptors *d, void *workspace)
{
    const float alpha = (float)g->alpha, beta = (float)g->beta;
    const bool wide = g->a.in.dtype == TUTTI_F64;
    return cublasLtMatmul((cublasLtHandle_t)((const tutti__cuda_own *)ctx->backend_data)->products,
                          (cublasLtMatmulDesc_t)&d->op, wide ? (const void *)&g->alpha : &alpha,
                          g->b.in.data, (cublasLtMatrixLayout_t)&d->a, g->a.in.data,
                          (cublasLtMatrixLayout_t)&d->b, wide ? (const void *)&g->beta : &beta,
                          g->c.data, (cublasLtMatrixLayout_t)&d->c, g->c.data,
                          (cublasLtMatrixLayout_t)&d->c, &p->algorithm[alignment], workspace,
                          TUTTI__CUDA_GEMM_WORKSPACE, tutti__cuda_stream(ctx));
}

/* Trials */

/* A small product with the chosen algorithm: op(A) holds x in its first column, op(B) w in its
 * first row, and 0 elsewhere, and `bias` is added: by the epilogue if the candidate has one,
 * otherwise (add) to C.  *as_wanted: it ran, and every result is `want` (NaN is NaN). */
static tutti_status probe(tutti_context *ctx, const tutti__gemm *gemm, const candidate *p,
                          int alignment, double x, double w, double bias, bool add, double want,
                          char *scratch, bool *as_wanted)
{
    constexpr int64_t most = 512; /* of m, n, k, each: a few tiles */
    constexpr int64_t count = most * most;
    constexpr size_t each = count * sizeof(double);
    static_assert(4 * each <= probe_bytes, "the probe's matrices");
    *as_wanted = false;
    const tutti_dtype dtype = gemm->a.in.dtype;
    char *base = scratch + TUTTI__CUDA_GEMM_WORKSPACE;
    tutti__gemm small = *gemm;
    const int64_t rows = gemm->keeps == TUTTI__GEMM_KEEPS_ROWS ? usual_rows : gemm->m;
    small.m = rows < most ? rows : most;
    small.n = gemm->n < most ? gemm->n : most;
    small.k = gemm->k < most ? gemm->k : most;
    small.b.in = tutti__matrix{base, dtype, most};
    small.a.in = tutti__matrix{base + each, dtype, most};
    small.c = tutti__matrix{base + 2 * each, dtype, most};
    small.bias = base + 3 * each;
    small.beta = add;
    descriptors d;
    TUTTI_TRY(tutti__cuda_gemm_describe(&small, p->bias, p->relu[alignment], &d));
    cudaStream_t stream = tutti__cuda_stream(ctx);
    size_t size = tutti_dtype_size(dtype);
    char *host = (char *)malloc(count * size);
    if (!host) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory for a plan", gemm->name);
    tutti_status status = TUTTI_OK;
    auto copy = [&](void *to, const void *from) {
        if (status == TUTTI_OK)
            status = tutti__cuda_status(
                cudaMemcpyAsync(to, from, count * size, cudaMemcpyDefault, stream), gemm->name);
        if (status == TUTTI_OK)
            status = tutti__cuda_status(cudaStreamSynchronize(stream), gemm->name);
    };
    /* value at every step-th of the first `end` elements */
    auto fill = [&](const void *to, double value, int64_t step, int64_t end) {
        double bits = 0; /* holds a value of any type */
        (void)tutti_convert(&bits, dtype, &value, TUTTI_F64, 1);
        memset(host, 0, count * size);
        for (int64_t i = 0; i < end; i += step) memcpy(host + i * size, &bits, size);
        copy((void *)to, host);
    };
    auto fill_first = [&](const void *to, double value, bool row) {
        fill(to, value, row ? 1 : most, row ? most : count);
    };
    fill_first(small.a.in.data, x, small.a.transposed);
    fill_first(small.b.in.data, w, !small.b.transposed);
    fill(small.c.data, add ? bias : 0, 1, count);
    fill(small.bias, bias, 1, count);
    if (status == TUTTI_OK &&
        tutti__cuda_gemm_run(ctx, &small, p, alignment, &d, scratch) == CUBLAS_STATUS_SUCCESS) {
        copy(host, small.c.data);
        *as_wanted = status == TUTTI_OK;
        for (int64_t i = 0; i < most * small.m && *as_wanted; i++) {
            double got = want;
            if (i % most < small.n) (void)tutti_convert(&got, TUTTI_F64, host + i * size, dtype, 1);
            *as_wanted = got == want || (std::isnan(want) && std::isnan(got));
        }
    }
    free(host);
    return status;
}

/* Whether a 16-bit product with the chosen algorithm is rounded once, after the bias has been
 * added.  Some also round before it, which loses digits where the bias cancels the product: some
 * with a bias epilogue, others when they add to C. */
static tutti_status rounds_once(tutti_context *ctx, const tutti__gemm *gemm, const candidate *p,
                                int alignment, bool add, char *scratch, bool *good)
{
    const tutti_dtype dtype = gemm->a.in.dtype;
    *good = true;
    if (tutti_dtype_size(dtype) > 2) return TUTTI_OK;
    /* (1 + e)^2 - (1 + 2e) = e^2, exact in f32 */
    double e = dtype == TUTTI_F16 ? 0x1p-10 : 0x1p-7;
    return probe(ctx, gemm, p, alignment, 1 + e, 1 + e, -(1 + 2 * e), add, e * e, scratch, good);
}

/* Whether the algorithm with beta 1 gives the bits of the product with beta 0 and a sum by the
 * kernel that adds leaves, in a product of uneven numbers. */
static tutti_status adds_exactly(tutti_context *ctx, const tutti__gemm *gemm, const candidate *p,
                                 int alignment, char *scratch, bool *good)
{
    constexpr int64_t most = 136, count = most * most; /* of m, n, k, each: more than a tile */
    constexpr size_t each = count * sizeof(double);
    static_assert(4 * each <= probe_bytes && each % 256 == 0, "the matrices");
    char *base = scratch + TUTTI__CUDA_GEMM_WORKSPACE;
    tutti__gemm small = tutti__cuda_gemm_of_many(gemm, 1);
    small.m = gemm->m < most ? gemm->m : most;
    small.n = gemm->n < most ? gemm->n : most;
    small.k = gemm->k < most ? gemm->k : most;
    small.a.in = tutti__matrix{base, gemm->a.in.dtype, most};
    small.b.in = tutti__matrix{base + each, gemm->b.in.dtype, most};
    small.c = tutti__matrix{base + 2 * each, gemm->c.dtype, most};
    small.beta = 0;
    tutti__gemm added = small;
    added.c.data = base + 3 * each;
    added.beta = 1;
    tutti__tree_sum_args sum = {};
    sum.count = count;
    sum.dtype = gemm->c.dtype;
    sum.dst = small.c.data;
    sum.inputs = 2;
    sum.in[0] = added.c.data;
    sum.in[1] = small.c.data;
    sum.pops[1] = 1;
    cudaStream_t stream = tutti__cuda_stream(ctx);
    const size_t size = tutti_dtype_size(gemm->c.dtype);
    char *host = (char *)malloc(2 * each);
    if (!host) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory for a plan", gemm->name);
    auto copy = [&](void *to, const void *from, size_t bytes) {
        TUTTI_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), gemm->name);
        return tutti__cuda_status(cudaStreamSynchronize(stream), gemm->name);
    };
    uint64_t state = 1;
    auto fill = [&](const tutti__matrix &to) {
        double *values = (double *)(host + each);
        for (int64_t i = 0; i < count; i++) {
            state = state * UINT64_C(6364136223846793005) + 1;
            values[i] = (double)(int64_t)state * 0x1p-63;
        }
        TUTTI_TRY(tutti_convert(host, to.dtype, values, TUTTI_F64, count));
        return copy(to.data, host, (size_t)count * tutti_dtype_size(to.dtype));
    };
    auto trial = [&]() {
        descriptors d;
        for (const tutti__matrix &matrix : {small.a.in, small.b.in, small.c, added.c})
            TUTTI_TRY(fill(matrix));
        TUTTI_TRY(tutti__cuda_gemm_describe(&small, p->bias, p->relu[alignment], &d));
        *good =
            tutti__cuda_gemm_run(ctx, &small, p, alignment, &d, scratch) == CUBLAS_STATUS_SUCCESS;
        TUTTI_TRY(tutti__cuda_tree_sum(ctx->device, ctx->stream, &sum));
        *good = *good && tutti__cuda_gemm_run(ctx, &added, p, alignment, &d, scratch) ==
                             CUBLAS_STATUS_SUCCESS;
        TUTTI_TRY(copy(host, small.c.data, count * size));
        return copy(host + each, added.c.data, count * size);
    };
    const tutti_status status = trial();
    for (int64_t i = 0; i < small.m && status == TUTTI_OK; i++)
        *good = *good && memcmp(host + i * most * size, host + each + i * most * size,
                                (size_t)small.n * size) == 0;
    free(host);
    return status;
}

tutti_status tutti__cuda_gemm_try(tutti_context *ctx, const tutti__gemm *gemm, candidate *p,
                                  int alignment, char *scratch, bool *good)
{
    *good = true;
    if (p->relu[alignment])
        TUTTI_TRY(probe(ctx, gemm, p, alignment, NAN, 0, 0, false, NAN, scratch, good));
    if (*good && p->bias) TUTTI_TRY(rounds_once(ctx, gemm, p, alignment, false, scratch, good));
    if (*good && gemm->bias && !p->bias)
        TUTTI_TRY(rounds_once(ctx, gemm, p, alignment, true, scratch, &p->adds[alignment]));
    if (*good && gemm->keeps == TUTTI__GEMM_KEEPS_ITEMS)
        TUTTI_TRY(adds_exactly(ctx, gemm, p, alignment, scratch, good));
    return TUTTI_OK;
}
