/* Row-wise kernels: how a row is divided among threads, and the reductions over it.
 *
 *   warp   rows of up to 128 vectors: a group of 1 to 32 lanes a row, several rows a warp
 *   block  a block a row, the row in registers; beyond 32 KiB a cluster of up to 8 blocks a row,
 *          which exchange their partial sums over distributed shared memory
 *   long   rows beyond that (256 or 512 KiB), and devices without clusters: a block a row that
 *          reads it more than once
 *
 * The choice depends on the number of columns, the type and the device only: the bits of a row do
 * not depend on the number of rows. */
#ifndef TUTTI_KERNELS_CUDA_ROWS_CUH
#define TUTTI_KERNELS_CUDA_ROWS_CUH

#include <math_constants.h>
#include <type_traits>
#include <utility>

#include "kernels/cuda/device.cuh"

/* Host side: the choice and the launch */

enum row_kind { ROW_WARP, ROW_BLOCK, ROW_LONG };

struct row_plan {
    row_kind kind;
    int vecs;    /* vectors a thread holds */
    int lanes;   /* warp: lanes a row */
    int threads; /* of a block */
    int cluster; /* blocks a row */
};

enum {
    ROW_WARP_THREADS = 128,
    ROW_WARP_VECS = 4, /* vectors in flight a thread, over all its rows */
    ROW_CLUSTER_MAX = 8,
    ROW_WARPS_MAX = 32
};

static inline int row_round_up(int value, int multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* tensors: how many rows a thread holds at once, 1 or 2. */
static inline row_plan row_plan_for(int64_t cols, int width, int tensors, bool clusters)
{
    int vectors = (int)((cols + width - 1) / width);
    row_plan plan = {ROW_WARP, 1, 32, ROW_WARP_THREADS, 1};
    if (vectors <= 128) {
        while (plan.lanes / 2 >= vectors) plan.lanes /= 2;
        plan.vecs = vectors <= 32 ? 1 : vectors <= 64 ? 2 : 4;
        return plan;
    }
    plan.kind = ROW_BLOCK;
    plan.vecs = 4;
    plan.threads = row_round_up((vectors + 3) / 4, 32);
    if (plan.threads <= 512) return plan;
    /* the registers of 1024 threads hold one tensor's vectors, not two */
    plan.threads = tensors == 1 && vectors > 512 * 4 * ROW_CLUSTER_MAX ? 1024 : 512;
    while (plan.cluster < ROW_CLUSTER_MAX && plan.cluster * plan.threads * 4 < vectors)
        plan.cluster *= 2;
    if (!clusters || plan.cluster * plan.threads * 4 < vectors) plan = {ROW_LONG, 1, 32, 1024, 1};
    return plan;
}

/* Calls f with the number of vectors as a compile-time constant. */
template<class F>
static inline tutti_status row_with_vecs(const row_plan &plan, F &&f)
{
    if (plan.vecs == 1) return f(std::integral_constant<int, 1>{});
    if (plan.vecs == 2) return f(std::integral_constant<int, 2>{});
    return f(std::integral_constant<int, 4>{});
}

/* Blocks for `rows` rows, rows_a_block at a time; kernels loop over the remaining rows. */
static inline unsigned row_grid(int64_t rows, int64_t rows_a_block, int cluster)
{
    int64_t blocks = (rows + rows_a_block - 1) / rows_a_block;
    int64_t most = (INT64_C(1) << 30) / cluster;
    return (unsigned)((blocks < most ? blocks : most) * cluster);
}

template<class... P, class... Q>
static inline tutti_status row_launch(const char *what, void (*kernel)(P...), dim3 grid,
                                      int threads, int cluster, size_t shared, cudaStream_t stream,
                                      Q &&...args)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    cudaLaunchAttribute attribute = {};
    if (cluster > 1) {
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim = {(unsigned)cluster, 1, 1};
        config.attrs = &attribute;
        config.numAttrs = 1;
    }
    return tutti__cuda_status(
        cudaLaunchKernelEx(&config, kernel, static_cast<P>(std::forward<Q>(args))...), what);
}

/* Whether rows of a tensor can be read in whole accesses of `bytes` (a power of two). */
static inline bool row_aligned(const tutti__matrix &matrix, int64_t rows, int bytes)
{
    size_t pitch = rows > 1 ? (size_t)matrix.stride * tutti_dtype_size(matrix.dtype) : 0;
    return (((uintptr_t)matrix.data | pitch) & (size_t)(bytes - 1)) == 0;
}

/* For chunks of `width` elements. */
static inline bool row_even(const tutti__matrix &matrix, int64_t rows, int width)
{
    return row_aligned(matrix, rows, access_bytes(width * (int)tutti_dtype_size(matrix.dtype)));
}

static inline bool row_param_even(const void *data, tutti_dtype dtype, int width)
{
    return row_even(tutti__matrix{(void *)data, dtype, 0}, 1, width);
}

/* Device side: reductions */

struct row_add {
    template<class A>
    static __device__ __forceinline__ A of(A a, A b)
    {
        return a + b;
    }
    static __device__ __forceinline__ float identity() { return 0; }
};

/* NaN is ignored here: it shows in the sum of exponentials. */
struct row_max {
    static __device__ __forceinline__ float of(float a, float b) { return fmaxf(a, b); }
    static __device__ __forceinline__ double of(double a, double b) { return fmax(a, b); }
    static __device__ __forceinline__ float identity() { return -CUDART_INF_F; }
};

/* A thread's sum of up to thousands of terms: of floats in f64, of doubles in two words.  A chain
 * of additions in the arithmetic's own type would exceed the bounds of docs/numerics.md. */
template<class A>
struct row_total;
template<>
struct row_total<float> {
    double sum = 0;
    __device__ __forceinline__ void add(float term) { sum += term; }
    __device__ __forceinline__ void scale(float factor) { sum *= factor; }
    __device__ __forceinline__ float value() const { return (float)sum; }
};
template<>
struct row_total<double> {
    double high = 0, low = 0;
    __device__ __forceinline__ void add(double term)
    {
        double sum = __dadd_rn(high, term), part = __dsub_rn(sum, high);
        low += __dadd_rn(__dsub_rn(high, __dsub_rn(sum, part)), __dsub_rn(term, part));
        high = sum;
    }
    __device__ __forceinline__ void scale(double factor) { high *= factor, low *= factor; }
    /* an infinity has no second word */
    __device__ __forceinline__ double value() const { return isfinite(high) ? high + low : high; }
};

/* Every lane of a group gets the result, the same bits. */
template<class Op, int N, class A>
__device__ __forceinline__ void reduce_lanes(A (&values)[N], int lanes)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        if (offset < lanes) {
#pragma unroll
            for (int n = 0; n < N; n++)
                values[n] = Op::of(values[n], __shfl_xor_sync(0xffffffffu, values[n], offset));
        }
}

/* A group of lanes for a row. */
struct lane_team {
    int lanes;
    __device__ __forceinline__ void begin() { __syncwarp(); }
    template<class Op, int N, class A>
    __device__ __forceinline__ void reduce(A (&values)[N])
    {
        if (lanes == 32)
            reduce_lanes<Op>(values, 32); /* without branches */
        else
            reduce_lanes<Op>(values, lanes);
    }
    /* Whether it is true for one of the rows that are reduced together. */
    __device__ __forceinline__ bool any(bool so) const { return __any_sync(0xffffffffu, so); }
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define TUTTI_ROW_CLUSTERS 1
#endif

/* A block, or a cluster of blocks, for a row.  Every warp sends its partial result to every block
 * of the cluster; after one barrier each thread combines all of them in the same order.  Two
 * alternating buffers make one barrier per reduction enough. */
template<class A, int VALUES>
struct block_team_slots {
    A partial[2][VALUES][ROW_CLUSTER_MAX * ROW_WARPS_MAX];
};

template<class A, int VALUES>
struct block_team {
    block_team_slots<A, VALUES> &slots;
    int cluster, rank, turn;

    __device__ __forceinline__ block_team(block_team_slots<A, VALUES> &shared, int cluster_size)
        : slots(shared), cluster(cluster_size), rank(0), turn(0)
    {
#ifdef TUTTI_ROW_CLUSTERS
        if (cluster > 1) {
            unsigned number;
            asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(number));
            rank = (int)number;
            asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
        }
#endif
    }

    /* Before the first reduction: waits for the other blocks' shared memory. */
    __device__ __forceinline__ void begin()
    {
#ifdef TUTTI_ROW_CLUSTERS
        if (cluster > 1) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
    }

    template<class Op, int N>
    __device__ __forceinline__ void reduce(A (&values)[N])
    {
        reduce_lanes<Op>(values, 32);
        spread(values);
        collect<Op>(values, [&](int n, int i) { return slots.partial[turn][n][i]; });
        turn ^= 1;
    }

    /* A warp's values, the same in its lanes, to the slots of all blocks: until turn is changed,
     * those of warp i of the row are slots.partial[turn][n][i]. */
    template<int N>
    __device__ __forceinline__ void spread(const A (&values)[N])
    {
        static_assert(N <= VALUES, "more values than slots");
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
        int mine = rank * warps + warp;
        if (cluster == 1) {
            if (lane == 0) {
#pragma unroll
                for (int n = 0; n < N; n++) slots.partial[turn][n][mine] = values[n];
            }
            __syncthreads();
        }
#ifdef TUTTI_ROW_CLUSTERS
        else {
            if (lane < cluster) {
#pragma unroll
                for (int n = 0; n < N; n++) {
                    uint64_t there;
                    asm("mapa.u64 %0, %1, %2;"
                        : "=l"(there)
                        : "l"((uint64_t)&slots.partial[turn][n][mine]), "r"(lane));
                    *(A *)there = values[n];
                }
            }
            asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
            asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
        }
#endif
    }

    /* values[n]: f(n, i) of all warps of the row, combined in an order that depends on their number
     * only. */
    template<class Op, int N, class F>
    __device__ __forceinline__ void collect(A (&values)[N], F &&f) const
    {
        const int lane = threadIdx.x % 32, count = cluster * (int)(blockDim.x / 32);
        const int i = lane < count ? lane : 0;
#pragma unroll
        for (int n = 0; n < N; n++) {
            const A first = f(n, i);
            values[n] = lane < count ? first : (A)Op::identity();
        }
        if (cluster > 1)
            for (int other = lane + 32; other < count; other += 32)
#pragma unroll
                for (int n = 0; n < N; n++) values[n] = Op::of(values[n], f(n, other));
        reduce_lanes<Op>(values, 32);
    }

    /* One row: the same in all its threads. */
    __device__ __forceinline__ bool any(bool so) const
    {
        return so;
    }
};

#endif
