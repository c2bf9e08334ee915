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

/* Where the partial rows are, and what becomes of them: the first `cols` columns of each, which are
 * `pitch` apart, are added to sum; those from `apart` on to more, if that is wanted (apart 0: there
 * are none).  Of several leaves, a grid's line of blocks adds `span`, 1 or 2, to a sum: elements to
 * the next leaf's partial rows, and to the next sum. */
template<class R, class G>
struct column_parts {
    const R *partial;
    int64_t count, cols, pitch, apart;
    G *sum, *more;
    int64_t leaf, leaf_sum;
    int span = 1;
    /* the partial rows were there before the kernel before this one began (see wait_at_end) */
    bool there = false;
};

/* Such a kernel runs beside the one before it, but ends after it: what comes next waits for both
 * then. */
__device__ __forceinline__ void wait_at_end(bool there)
{
    if (there && blockIdx.x == 0 && blockIdx.y == 0) wait_for_previous();
}

/* sum[c] (+)= partial[0][c] + partial[1][c] + …: strip s of a block adds rows s, s + STRIPS, …,
 * chain of them at a time, then the strips are added as a tree.  A thread has WIDTH neighbouring
 * columns, which it reads at once.  A second leaf's sum is added to the first one's, each rounded
 * to G.  Started early, it runs once on no rows while it waits for the first kernel: its
 * instructions come from memory, too. */
template<class R, class G, int WIDTH, int THREADS>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    column_sums_kernel(const __grid_constant__ column_parts<R, G> parts, unsigned slices,
                       bool accumulate)
{
    constexpr int LANES = lanes / WIDTH, STRIPS = THREADS / LANES, WARPS = THREADS / 32, AHEAD = 4;
    __shared__ R sums[WARPS][lanes];
    const int lane = threadIdx.x % LANES;
    const bool first_one = blockIdx.x < slices;
    const int64_t cols = parts.cols, pitch = parts.pitch;
    const int64_t base = int64_t(first_one ? blockIdx.x : blockIdx.x - slices) * lanes;
    const int64_t col = base + lane * WIDTH;
    const R *partial =
        parts.partial + blockIdx.y * parts.span * parts.leaf + (first_one ? 0 : parts.apart) + col;
    G *to = (first_one ? parts.sum : parts.more) + blockIdx.y * parts.leaf_sum + base + threadIdx.x;
    const bool writes = threadIdx.x < lanes && base + threadIdx.x < cols;
    G sum = 0; /* of the leaves before */
#if __CUDA_ARCH__ >= 900
    int leaf = parts.there ? 0 : -1;
#else
    int leaf = 0;
#endif
#pragma unroll 1
    for (;; leaf++) {
        const int64_t rows = leaf >= 0 ? parts.count : 0;
        R mine[WIDTH] = {};
        int64_t first = threadIdx.x / LANES;
#pragma unroll 1
        do {
            const int64_t end = first + chain * STRIPS < rows ? first + chain * STRIPS : rows;
            R part[WIDTH] = {};
            int64_t i = first;
#pragma unroll 1
            do {
                R next[AHEAD][WIDTH] = {}; /* on their way together */
#pragma unroll
                for (int k = 0; k < AHEAD; k++)
                    if (i + k * STRIPS < end && col < cols)
                        load_elements(next[k], partial + (i + k * STRIPS) * pitch, WIDTH, true);
#pragma unroll
                for (int k = 0; k < AHEAD * WIDTH; k++)
                    part[k % WIDTH] += next[k / WIDTH][k % WIDTH];
                i += AHEAD * STRIPS;
            } while (i < end);
#pragma unroll
            for (int w = 0; w < WIDTH; w++) mine[w] += part[w];
            first += chain * STRIPS;
        } while (first < rows);
#pragma unroll
        for (int w = 0; w < WIDTH; w++) {
#pragma unroll
            for (int apart = LANES; apart < 32; apart *= 2)
                mine[w] += __shfl_xor_sync(0xffffffffu, mine[w], apart);
            if (threadIdx.x % 32 < LANES) sums[threadIdx.x / 32][lane * WIDTH + w] = mine[w];
        }
        __syncthreads();
        R total[WARPS];
#pragma unroll
        for (int k = 0; k < WARPS; k++) total[k] = sums[k][threadIdx.x % lanes];
#pragma unroll
        for (int apart = 1; apart < WARPS; apart *= 2)
#pragma unroll
            for (int k = 0; k < WARPS; k++)
                if (k % (2 * apart) == 0) total[k] += total[k + apart];
        if (leaf >= 0) sum = leaf == 0 ? (G)total[0] : sum + (G)total[0];
        if (leaf + 1 == parts.span) {
            if (writes) *to = accumulate ? *to + sum : sum;
            wait_at_end(parts.there);
            return;
        }
        __syncthreads();
        if (leaf < 0)
            wait_for_previous();
        else
            partial += parts.leaf;
    }
}

/* The same for few rows of many columns: a thread adds its columns' in order. */
enum { FEW_ROWS = 16, MANY_COLUMNS = 65536 };
template<class R, class G, int WIDTH>
__global__ void __launch_bounds__(threads)
    few_row_sums_kernel(const __grid_constant__ column_parts<R, G> parts, unsigned slices,
                        bool accumulate)
{
    const bool first_one = blockIdx.x < slices;
    const int64_t block = first_one ? blockIdx.x : blockIdx.x - slices;
    const int64_t col = (block * threads + threadIdx.x) * WIDTH;
    if (col >= parts.cols) return;
    const R *partial =
        parts.partial + blockIdx.y * parts.span * parts.leaf + (first_one ? 0 : parts.apart) + col;
    G *to = (first_one ? parts.sum : parts.more) + blockIdx.y * parts.leaf_sum + col;
    if (!parts.there) wait_for_previous();
    G sum[WIDTH];
#pragma unroll 1
    for (int leaf = 0; leaf < parts.span; leaf++, partial += parts.leaf) {
        R next[FEW_ROWS][WIDTH] = {}; /* on their way together */
#pragma unroll
        for (int i = 0; i < FEW_ROWS; i++)
            if (i < parts.count) load_elements(next[i], partial + i * parts.pitch, WIDTH, true);
#pragma unroll
        for (int i = 1; i < FEW_ROWS; i++)
#pragma unroll
            for (int w = 0; w < WIDTH; w++) next[0][w] += next[i][w];
#pragma unroll
        for (int w = 0; w < WIDTH; w++) sum[w] = leaf == 0 ? (G)next[0][w] : sum[w] + (G)next[0][w];
    }
#pragma unroll
    for (int w = 0; w < WIDTH; w++) to[w] = accumulate ? to[w] + sum[w] : sum[w];
    wait_at_end(parts.there);
}

enum column_shape { FEW_COLUMNS, FEW_ROWS_OF_MANY, OTHER_COLUMNS };

/* even: vectors of partial are whole and 16-byte aligned.  Of few columns there are few blocks: the
 * more strips, the fewer reads follow each other. */
template<class R, class G>
static inline auto column_sums_kernel_of(bool even, column_shape shape)
{
    constexpr int width = 16 / (int)sizeof(R);
    auto of = [&](auto vector) {
        constexpr int WIDTH = decltype(vector)::value;
        return shape == FEW_COLUMNS        ? column_sums_kernel<R, G, WIDTH, 512>
               : shape == FEW_ROWS_OF_MANY ? few_row_sums_kernel<R, G, WIDTH>
                                           : column_sums_kernel<R, G, WIDTH, threads>;
    };
    return even ? of(std::integral_constant<int, width>()) : of(std::integral_constant<int, 1>());
}

/* narrow: the first kernel leaves no room for blocks of 512 threads beside its own. */
template<class R, class G>
static tutti_status column_sums_finish(const char *what, cudaStream_t stream,
                                       const column_parts<R, G> &parts, bool accumulate,
                                       unsigned leaves = 1, bool narrow = false)
{
    constexpr int width = 16 / (int)sizeof(R);
    const bool even = parts.cols % width == 0 && parts.pitch % width == 0 &&
                      parts.apart % width == 0 && parts.leaf % width == 0 &&
                      (uintptr_t)parts.partial % 16 == 0;
    const int sums = parts.more ? 2 : 1;
    /* a sum's order must not depend on whether the other one is wanted */
    const int64_t partials = parts.cols * (parts.apart ? 2 : 1);
    const column_shape shape = partials <= 8192 && !narrow ? FEW_COLUMNS
                               : parts.count <= FEW_ROWS && partials >= MANY_COLUMNS
                                   ? FEW_ROWS_OF_MANY
                                   : OTHER_COLUMNS;
    const int each = shape == FEW_ROWS_OF_MANY ? threads * (even ? width : 1) : lanes;
    const unsigned slices = (unsigned)div_up(parts.cols, each);
    TUTTI_ASSERT(parts.span >= 1 && leaves % parts.span == 0);
    int device = 0;
    TUTTI_TRY(tutti__cuda_status(cudaGetDevice(&device), what));
    return launch_early(what, device, column_sums_kernel_of<R, G>(even, shape),
                        dim3(slices * sums, leaves / parts.span),
                        dim3(shape == FEW_COLUMNS ? 512 : threads), stream, parts, slices,
                        accumulate);
}

template<class R>
static tutti_status column_sums_finish(const char *what, cudaStream_t stream, int64_t count,
                                       int64_t cols, const R *partial, R *sum, bool accumulate)
{
    return column_sums_finish(what, stream,
                              column_parts<R, R>{partial, count, cols, cols, 0, sum, NULL, 0, 0},
                              accumulate);
}

#endif
