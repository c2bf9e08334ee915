/* Sums over rows of each column, in two steps of fixed order: a first kernel's blocks of
 * (lanes, strips) threads each sum column_run rows and write a row of partial sums (write_partial),
 * then column_sums_finish adds the rows.  Without rows there is no partial row, and the sums are
 * 0. */
#ifndef TUTTI_KERNELS_CUDA_COLUMN_SUMS_CUH
#define TUTTI_KERNELS_CUDA_COLUMN_SUMS_CUH

#include "kernels/cuda/device.cuh"

constexpr int threads = 256;
constexpr int lanes = 32; /* neighbouring threads along a row */
constexpr int strips = threads / lanes;
constexpr int chain = 64; /* numbers that are added one after the other */

static inline int64_t div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* How many rows a block sums: at least 4 per thread, for about 1024 blocks, two waves or more on
 * current GPUs; at most chain per thread, so that the error does not grow with the rows, until the
 * grid is full.  Depends only on the shape, and so does the order of the sum. */
static inline int64_t column_run(int64_t rows, int64_t cols, tutti_dtype dtype)
{
    int64_t tile = lanes * (16 / (int64_t)tutti_dtype_size(dtype));
    int64_t runs = 1024 / div_up(cols, tile);
    int64_t most = div_up(rows, 4 * strips);
    int64_t least = div_up(rows, chain * strips);
    if (least > 32768) least = 32768;
    if (runs < least) runs = least;
    if (runs > most) runs = most;
    if (runs < 1) runs = 1;
    int64_t each = div_up(rows, runs);
    return (each > 0 ? div_up(each, strips) : 1) *
           strips; /* at least one round, also without rows */
}

/* A product that is not fused with a sum that follows: column sums have the same bits whether the
 * products themselves are stored or not. */
__device__ __forceinline__ float rounded_product(float a, float b)
{
    return __fmul_rn(a, b);
}
__device__ __forceinline__ double rounded_product(double a, double b)
{
    return __dmul_rn(a, b);
}

/* The end of a first kernel: adds the sums of a block's strips in order.  A block has lanes * WIDTH
 * columns; a thread has those at lane + k * APART. */
template<int WIDTH, int APART, class R>
__device__ __forceinline__ void write_partial(const R (&sum)[WIDTH], int lane, int64_t cols,
                                              R *partial)
{
    __shared__ R sums[strips][lanes * WIDTH];
#pragma unroll
    for (int k = 0; k < WIDTH; k++) sums[threadIdx.y][lane + k * APART] = sum[k];
    __syncthreads();
    const int64_t base = int64_t(blockIdx.x) * (lanes * WIDTH);
    for (int c = threadIdx.y * lanes + threadIdx.x; c < lanes * WIDTH; c += threads) {
        if (base + c >= cols) break;
        R total = sums[0][c];
#pragma unroll
        for (int s = 1; s < strips; s++) total += sums[s][c];
        partial[blockIdx.y * cols + base + c] = total;
    }
}

/* sum[c] (+)= partial[0][c] + partial[1][c] + …: strip s of a block adds rows s, s + STRIPS, …,
 * chain of them at a time, then the strips are added as a tree. */
template<class R, int STRIPS>
__global__ void __launch_bounds__(lanes *STRIPS)
    column_sums_kernel(int64_t count, int64_t cols, const R *partial, R *sum, bool accumulate)
{
    __shared__ R sums[STRIPS][lanes + 1];
    const int64_t base = int64_t(blockIdx.x) * lanes, col = base + threadIdx.x;
    wait_for_previous();
    R mine = 0;
    for (int64_t first = threadIdx.y; col < cols && first < count; first += chain * STRIPS) {
        int64_t end = first + chain * STRIPS < count ? first + chain * STRIPS : count;
        R part = 0;
#pragma unroll 8
        for (int64_t i = first; i < end; i += STRIPS) part += partial[i * cols + col];
        mine += part;
    }
    sums[threadIdx.y][threadIdx.x] = mine;
    __syncthreads();
    const int thread = threadIdx.y * lanes + threadIdx.x, at = thread / STRIPS;
    R total = sums[thread % STRIPS][at];
#pragma unroll
    for (int half = STRIPS / 2; half > 0; half /= 2)
        total += __shfl_down_sync(0xffffffffu, total, half, STRIPS);
    if (thread % STRIPS || base + at >= cols) return;
    sum[base + at] = accumulate ? sum[base + at] + total : total;
}

template<class R>
static tutti_status column_sums_finish(const char *what, cudaStream_t stream, int64_t count,
                                       int64_t cols, const R *partial, R *sum, bool accumulate)
{
    /* Few blocks: the more strips, the fewer reads follow each other. */
    const bool few = cols <= 8192;
    int device = 0;
    TUTTI_TRY(tutti__cuda_status(cudaGetDevice(&device), what));
    return launch_early(what, device, few ? column_sums_kernel<R, 32> : column_sums_kernel<R, 8>,
                        (unsigned)div_up(cols, lanes), dim3(lanes, few ? 32 : 8), stream, count,
                        cols, partial, sum, accumulate);
}

#endif
