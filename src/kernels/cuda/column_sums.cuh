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

/* sum[c] (+)= partial[0][c] + partial[1][c] + …: strip s of a block adds rows s, s + strips, …,
 * chain of them at a time, then the strips are added in order. */
template<class R>
__global__ void __launch_bounds__(threads)
    column_sums_kernel(int64_t count, int64_t cols, const R *partial, R *sum, bool accumulate)
{
    __shared__ R sums[strips][lanes];
    int64_t col = int64_t(blockIdx.x) * lanes + threadIdx.x;
    R mine = 0;
    for (int64_t first = threadIdx.y; col < cols && first < count; first += chain * strips) {
        int64_t end = first + chain * strips < count ? first + chain * strips : count;
        R part = 0;
#pragma unroll 8
        for (int64_t i = first; i < end; i += strips) part += partial[i * cols + col];
        mine += part;
    }
    sums[threadIdx.y][threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.y || col >= cols) return;
    R total = sums[0][threadIdx.x];
#pragma unroll
    for (int s = 1; s < strips; s++) total += sums[s][threadIdx.x];
    sum[col] = accumulate ? sum[col] + total : total;
}

template<class R>
static tutti_status column_sums_finish(const char *what, cudaStream_t stream, int64_t count,
                                       int64_t cols, const R *partial, R *sum, bool accumulate)
{
    column_sums_kernel<R><<<(unsigned)div_up(cols, lanes), dim3(lanes, strips), 0, stream>>>(
        count, cols, partial, sum, accumulate);
    return tutti__cuda_status(cudaGetLastError(), what);
}

#endif
