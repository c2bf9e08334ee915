/* Norms of any types: a thread's columns of a row, as arithmetic values, by run-time type. */
#ifndef TUTTI_KERNELS_CUDA_NORM_TYPES_CUH
#define TUTTI_KERNELS_CUDA_NORM_TYPES_CUH

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/rows.cuh"

/* Calls f with a type; that of x is f64 only with f64 arithmetic. */
template<class A, class F>
__device__ __forceinline__ void with_type(tutti_dtype dtype, F &&f)
{
    if (dtype == TUTTI_F16)
        f(tutti__type<__half>{});
    else if (dtype == TUTTI_BF16)
        f(tutti__type<__nv_bfloat16>{});
    else if (sizeof(A) == 4 || dtype == TUTTI_F32)
        f(tutti__type<float>{});
    else if constexpr (sizeof(A) == 8)
        f(tutti__type<double>{});
}

/* Makes the compiler compute again what follows from a value instead of keeping it in scarce
 * registers. */
static __device__ __forceinline__ void forget(float &value)
{
    asm volatile("" : "+f"(value));
}
static __device__ __forceinline__ void forget(double &value)
{
    asm volatile("" : "+d"(value));
}
static __device__ __forceinline__ void forget(int &value)
{
    asm volatile("" : "+r"(value));
}

/* Neighbouring columns of a thread. */
template<class A>
constexpr int any_width = 16 / (int)sizeof(A);

/* A thread's VECS vectors.  Neighbouring threads have neighbouring vectors or, where a row is not
 * whole vectors, which are never read at once, neighbouring columns. */
template<class A, int VECS>
struct own_columns {
    static constexpr int W = any_width<A>;
    int first, step, next, cols; /* columns to the next vector, and within one */

    __device__ __forceinline__ own_columns(int thread, int threads, int block, int all, bool whole)
        : first(block * threads * VECS * W + thread * (whole ? W : 1)), step(threads * W),
          next(whole ? 1 : threads), cols(all)
    {
    }
    __device__ __forceinline__ void forget_columns() { forget(first), forget(cols); }
    __device__ __forceinline__ int column(int k, int i = 0) const
    {
        return first + k * step + i * next;
    }
    __device__ __forceinline__ bool has(int k, int i) const { return column(k, i) < cols; }

    /* f(k, i, value) of the columns of COUNT vectors, which are on their way together, and of 0
     * beyond the row.  even: all rows are whole vectors that may be read at once. */
    template<int COUNT, class T, class F>
    __device__ __forceinline__ void read(int from, const T *row, bool even, F &&f)
    {
        using word = typename access<W *(int)sizeof(T)>::type;
        forget_columns();
        T part[COUNT][W];
        if (even) {
            word raw[COUNT];
#pragma unroll
            for (int k = 0; k < COUNT; k++) {
                raw[k] = {};
                if (column(from + k) < cols) raw[k] = *(const word *)(row + column(from + k));
            }
#pragma unroll
            for (int k = 0; k < COUNT; k++) memcpy(part[k], &raw[k], sizeof raw[k]);
        } else {
#pragma unroll
            for (int k = 0; k < COUNT; k++)
#pragma unroll
                for (int i = 0; i < W; i++)
                    part[k][i] = has(from + k, i) ? row[column(from + k, i)] : T(0.0f);
        }
#pragma unroll
        for (int k = 0; k < COUNT; k++)
#pragma unroll
            for (int i = 0; i < W; i++) f(from + k, i, widen<A>(part[k][i]));
    }
    __device__ __forceinline__ void store(const A (&v)[VECS][W], const tutti__matrix &to,
                                          int64_t row, bool even)
    {
        forget_columns();
        with_type<A>(to.dtype, [&](auto type) {
            using T = typename decltype(type)::type;
            using word = typename access<W *(int)sizeof(T)>::type;
            T *const at = (T *)to.data + row * to.stride;
#pragma unroll
            for (int k = 0; k < VECS; k++) {
                T raw[W];
#pragma unroll
                for (int i = 0; i < W; i++) raw[i] = narrow<T>::of(v[k][i]);
                if (even) {
                    word all;
                    memcpy(&all, raw, sizeof all);
                    if (column(k) < cols) *(word *)(at + column(k)) = all;
                } else {
#pragma unroll
                    for (int i = 0; i < W; i++)
                        if (has(k, i)) at[column(k, i)] = raw[i];
                }
            }
        });
    }
};

/* A thread's sum of term(k, i) over all its columns. */
template<class A, int VECS, class F>
__device__ __forceinline__ A sum_over(F &&term)
{
    A total = 0;
#pragma unroll
    for (int k = 0; k < VECS; k++) {
        A part = term(k, 0);
#pragma unroll
        for (int i = 1; i < any_width<A>; i++) part += term(k, i);
        total = k == 0 ? part : total + part;
    }
    return total;
}

/* Values of the warps of a block, and of the blocks of a cluster.  The blocks' go by stores that
 * count at a barrier where they arrive, so that nobody waits for a fence.  Two places are enough:
 * what is given in turn t + 2 has been preceded by all values of t + 1, each of which was given
 * after those of t had been read. */
template<class A, int VALUES>
struct row_exchange {
    enum { BARRIERS = 16 };
    unsigned char *memory; /* two barriers, [2][warps of the block][VALUES], [2][blocks][VALUES] */
    int cluster, turn = 0;

    static __host__ __device__ constexpr int bytes(int cluster, int threads)
    {
        return BARRIERS + 2 * (threads / 32 + cluster) * VALUES * (int)sizeof(A);
    }

    __device__ __forceinline__ row_exchange(void *shared, int blocks)
        : memory((unsigned char *)shared), cluster(blocks)
    {
#ifdef TUTTI_ROW_CLUSTERS
        if (cluster == 1) return;
        if (threadIdx.x == 0) {
            barrier_init(shared_address(memory), 1), barrier_init(shared_address(memory) + 8, 1);
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncwarp();
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
    }
    /* Of this block, below `cluster`. */
    __device__ __forceinline__ int rank() const
    {
        unsigned number = 0;
#ifdef TUTTI_ROW_CLUSTERS
        asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(number));
#endif
        return (int)number;
    }
    /* Before the first exchange: the other blocks are there. */
    __device__ __forceinline__ void begin() const
    {
#ifdef TUTTI_ROW_CLUSTERS
        if (cluster > 1) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
    }

    /* By all threads of the block; values are the same in a warp's lanes.  Those of its warps. */
    template<int N>
    __device__ __forceinline__ const A *of_warps(const A (&values)[N])
    {
        A *const parts = place((int)blockDim.x / 32, 0);
        if (threadIdx.x % 32 == 0)
#pragma unroll
            for (int n = 0; n < N; n++) parts[threadIdx.x / 32 * VALUES + n] = values[n];
        __syncthreads();
        turn++;
        return parts;
    }
    /* Then, with values that are the same in the block: those of the cluster's blocks. */
    template<int N>
    __device__ __forceinline__ const A *of_blocks(const A (&values)[N])
    {
        turn--;
        A *const parts = place(cluster, 2 * ((int)blockDim.x / 32));
#ifdef TUTTI_ROW_CLUSTERS
        const uint32_t barrier = shared_address(memory) + 8 * (turn & 1);
        if (threadIdx.x == 0) barrier_expect(barrier, (uint32_t)(cluster * N * (int)sizeof(A)));
        if ((int)threadIdx.x < cluster)
#pragma unroll
            for (int n = 0; n < N; n++)
                give(address_in(shared_address(parts + rank() * VALUES + n), (int)threadIdx.x),
                     values[n], address_in(barrier, (int)threadIdx.x));
        wait(barrier, (unsigned)turn / 2 % 2);
#endif
        turn++;
        return parts;
    }

    /* The sum over the row in all its threads.  first, count: the row's warps in the block. */
    template<int N>
    __device__ __forceinline__ void reduce(A (&values)[N], int first, int count)
    {
        reduce_lanes<row_add>(values, 32);
        const A *parts = of_warps(values) + first * VALUES;
        add_parts(values, count, [&](int n, int i) { return parts[i * VALUES + n]; });
        if (cluster == 1) return;
        parts = of_blocks(values);
        add_parts(values, cluster, [&](int n, int i) { return parts[i * VALUES + n]; });
    }
    /* values[n]: the sum of part(n, i), of up to 32. */
    template<int N, class F>
    static __device__ __forceinline__ void add_parts(A (&values)[N], int count, F &&part)
    {
        const int width = count > 16 ? 32 : count > 8 ? 16 : count > 4 ? 8 : 4;
        const int i = threadIdx.x % width;
#pragma unroll
        for (int n = 0; n < N; n++) values[n] = i < count ? part(n, i) : 0;
        reduce_lanes<row_add>(values, width);
    }

  private:
    __device__ __forceinline__ A *place(int count, int before) const
    {
        return (A *)(memory + BARRIERS) + (before + (turn & 1) * count) * VALUES;
    }
#ifdef TUTTI_ROW_CLUSTERS
    static __device__ __forceinline__ void give(uint32_t to, float value, uint32_t barrier)
    {
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, "
                     "[%2];" ::"r"(to),
                     "f"(value), "r"(barrier)
                     : "memory");
    }
    static __device__ __forceinline__ void give(uint32_t to, double value, uint32_t barrier)
    {
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f64 [%0], %1, "
                     "[%2];" ::"r"(to),
                     "d"(value), "r"(barrier)
                     : "memory");
    }
    static __device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity)
    {
        asm volatile("{ .reg .pred done;\n"
                     "again:\n"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
                     "@!done bra again; }" ::"r"(barrier),
                     "r"(parity)
                     : "memory");
    }
#endif
};

#endif
