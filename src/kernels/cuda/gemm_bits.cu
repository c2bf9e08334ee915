/* Whether two ways of a product give the same bits, by a trial of few rows and columns, but all of
 * k.  The sums along k cancel each other: what lies in the second half of k are the numbers of the
 * first, in B with the other sign, and behind an odd k's halves 0.  So what is left are the sums'
 * rounding errors, which depend on the order, and a bias of about their size.  That would not tell
 * sums that are split at k/2, which none of gemm.cu's choices is, and of two or three terms of 16
 * bits nothing at all: gemm.cu asks for longer sums only. */
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gemm_algorithm.cuh"

/* to: element (i, j), of [rows, k], lies at i by_row + j by_k. */
template<class T>
static __global__ void fill_kernel(T *to, int64_t rows, int64_t k, int64_t by_row, int64_t by_k,
                                   float scale, bool opposite)
{
    const int64_t half = k / 2, i = blockIdx.y;
    for (int64_t j = blockIdx.x * blockDim.x + threadIdx.x; j < k; j += gridDim.x * blockDim.x) {
        /* scale, times 1 to 2, times a power of 2 below 256, of either sign */
        uint32_t state = (uint32_t)(i * 0x9e3779b1 + (half > 0 ? j % half : 0) * 0x85ebca77 + rows);
        state = (state ^ state >> 15) * 0x2c1b3c6d;
        state = (state ^ state >> 12) * 0x297a2d39;
        state ^= state >> 15;
        float value = scale * __uint_as_float(0x3f800000 | state >> 9) * (float)(1 << state % 8);
        if (state & 8) value = -value;
        if (opposite && j >= half) value = -value;
        if (opposite && half > 0 && j == 2 * half) value = 0; /* it has no opposite */
        to[i * by_row + j * by_k] = narrow<T>::of(value);
    }
}

static tutti_status fill(const char *name, cudaStream_t stream, tutti_dtype dtype, void *to,
                         int64_t rows, int64_t k, int64_t by_row, int64_t by_k, double scale,
                         bool opposite)
{
    const unsigned blocks = (unsigned)(k < 1 << 16 ? (k + 255) / 256 : 256);
    return tutti__cuda_dispatch(dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        fill_kernel<<<dim3(blocks, (unsigned)rows), 256, 0, stream>>>((T *)to, rows, k, by_row,
                                                                      by_k, (float)scale, opposite);
        return tutti__cuda_status(cudaGetLastError(), name);
    });
}

tutti_status tutti__cuda_gemm_same_bits(tutti_context *ctx, const tutti__gemm *gemm,
                                        const choice *one, const choice *other, char *scratch,
                                        bool *same)
{
    *same = false;
    tutti__gemm g = *gemm;
    const tutti_dtype dtype = g.a.in.dtype;
    const size_t size = tutti_dtype_size(dtype);
    const int64_t k = (g.k + 7) / 8 * 8;
    g.m = 72;
    g.n = g.n < 136 ? g.n : 136;
    const int64_t cols = (g.n + 7) / 8 * 8;
    char *at = scratch + TUTTI__CUDA_GEMM_WORKSPACE;
    const char *end = at + probe_bytes;
    auto place = [&](int64_t elements) {
        char *placed = at;
        at += ((size_t)elements * size + 255) / 256 * 256;
        return placed;
    };
    g.a.in = tutti__matrix{place(g.m * k), dtype, k};
    g.b.in = g.b.transposed ? tutti__matrix{place(g.n * k), dtype, k}
                            : tutti__matrix{place(g.k * cols), dtype, cols};
    const void *bias = place(cols);
    const size_t result = (size_t)(g.m * cols) * size;
    char *c = place(2 * g.m * cols), *z = place(2 * g.m * cols);
    if (at > end) return TUTTI_OK;
    if (g.bias) g.bias = bias;
    g.c = tutti__matrix{c, dtype, cols};
    g.a_sums = NULL;
    for (const choice *made : {one, other}) {
        bool good;
        TUTTI_TRY(tutti__cuda_gemm_computes(ctx, &g, made, &good));
        if (!good) return TUTTI_OK;
    }
    cudaStream_t stream = tutti__cuda_stream(ctx);
    TUTTI_TRY(fill(g.name, stream, dtype, g.a.in.data, g.m, g.k, k, 1, 1, false));
    TUTTI_TRY(fill(g.name, stream, dtype, g.b.in.data, g.n, g.k, g.b.transposed ? k : 1,
                   g.b.transposed ? 1 : cols, 1, true));
    TUTTI_TRY(fill(g.name, stream, dtype, (void *)bias, 1, g.n, 0, 1,
                   dtype == TUTTI_F64 ? 0x1p-37 : 0x1p-8, false));
    char *host = (char *)malloc(4 * result);
    if (!host) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory for a plan", g.name);
    auto trial = [&]() {
        *same = false;
        TUTTI_CUDA(cudaMemsetAsync(c, 0, (size_t)(at - c), stream), g.name);
        for (int i = 0; i < 2; i++) {
            tutti__plan plan = {};
            plan.data = (void *)(i == 0 ? one : other);
            g.c.data = c + i * result;
            if (g.z) g.z = z + i * result;
            const tutti_status ran = tutti__cuda_gemm(ctx, &plan, 0, &g, scratch);
            if (ran) return i == 0 ? ran : TUTTI_OK; /* the other one may be refused here */
        }
        for (int i = 0; i < 2; i++)
            TUTTI_CUDA(cudaMemcpyAsync(host + 2 * i * result, i == 0 ? c : z, 2 * result,
                                       cudaMemcpyDefault, stream),
                       g.name);
        TUTTI_CUDA(cudaStreamSynchronize(stream), g.name);
        *same = memcmp(host, host + result, result) == 0 &&
                memcmp(host + 2 * result, host + 3 * result, result) == 0;
        return TUTTI_OK;
    };
    tutti_status status = trial();
    if (*same && status == TUTTI_OK && g.activation.kind != TUTTI_ACT_RELU &&
        g.activation.kind != TUTTI_ACT_NONE) {
        /* what an activation hides; relu may be the product's */
        g.activation.kind = TUTTI_ACT_NONE;
        g.z = NULL;
        status = trial();
    }
    free(host);
    *same = *same && status == TUTTI_OK;
    return status;
}
