/* LayerNorm and RMSNorm, backward, of any types: as the block and cluster kernels
 * (norm_backward.cu), but by run-time type, in f64 or f32.
 *
 * A thread has up to 4 vectors of 16 bytes of arithmetic values of a row.  It fetches the next rows
 * of x and dy itself, as they are stored, with cp.async, and reads a row from there once: it keeps
 * its n and g in registers until the row's sums are known.  So the memory is free for another row
 * as soon as a row is read, and no barrier stands between a thread's fetching and reading.  Rows
 * that begin anywhere are fetched one element at a time. */
#include "kernels/cuda/norm_backward.cuh"
#include "kernels/cuda/norm_types.cuh"
#include "kernels/cuda/row_ring.cuh"

enum { VECS = KEPT_VECS, KEPT_DEPTH = 3, KEPT_SPARE = 1 << 10 };

/* Bytes of an element in shared memory. */
static __host__ __device__ __forceinline__ int kept_element(tutti_dtype dtype, bool even)
{
    return dtype == TUTTI_F64 ? 8 : dtype == TUTTI_F32 || !even ? 4 : 2;
}

/* A tensor's next rows in shared memory, as they are stored: a thread's vectors, of which it reads
 * only what it fetched itself.  Vectors of neighbouring threads lie beside each other. */
template<class A>
struct kept_ring {
    static constexpr int W = any_width<A>;
    const tutti__matrix &from;
    unsigned char *memory; /* of this thread and stage 0 */
    bool even;

    __device__ __forceinline__ kept_ring(const tutti__matrix &matrix, unsigned char *&shared,
                                         int depth, bool is_even)
        : from(matrix), even(is_even)
    {
        memory = shared + (size_t)threadIdx.x * W * size();
        shared += depth * stage();
    }
    /* 16-bit elements that are fetched alone come with the word that they lie in. */
    __device__ __forceinline__ int size() const { return kept_element(from.dtype, even); }
    __device__ __forceinline__ int stage() const { return (int)blockDim.x * VECS * W * size(); }

    /* What lies beyond the row is never fetched: 0, once. */
    __device__ __forceinline__ void clear(int depth, const own_columns<A, VECS> &own) const
    {
        if (own.has(VECS - 1, W - 1)) return;
        for (int at = 0; at < depth * VECS; at++)
            for (int i = 0; i < W * size(); i += 2)
                *(uint16_t *)(memory + (size_t)at * blockDim.x * W * size() + i) = 0;
    }

    __device__ __forceinline__ void fetch(int at, int64_t row, own_columns<A, VECS> &own) const
    {
        with_type<A>(from.dtype, [&](auto type) {
            using T = typename decltype(type)::type;
            const T *const row_at = (const T *)from.data + row * from.stride;
            T *const to = (T *)(memory + at * stage());
            const int apart = (int)blockDim.x * W;
            if (even) {
#pragma unroll
                for (int k = 0; k < VECS; k++)
                    if (own.column(k) < own.cols)
                        fetch_bytes<W *(int)sizeof(T)>(to + k * apart, row_at + own.column(k));
            } else {
#pragma unroll
                for (int k = 0; k < VECS; k++)
#pragma unroll
                    for (int i = 0; i < W; i++)
                        if (own.has(k, i)) {
                            const T *const element = row_at + own.column(k, i);
                            if constexpr (sizeof(T) > 2)
                                fetch_bytes<(int)sizeof(T)>(to + k * apart + i, element);
                            else
                                fetch_word((uint32_t *)(memory + at * stage()) + k * apart + i,
                                           element);
                        }
            }
        });
    }
    /* No byte behind the element. */
    static __device__ __forceinline__ void fetch_word(void *to, const void *element)
    {
        const unsigned high = (unsigned)(uintptr_t)element & 2;
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                         (uint32_t)__cvta_generic_to_shared(to)),
                     "l"((const char *)element - high), "r"(2 + high)
                     : "memory");
    }
    template<int BYTES>
    static __device__ __forceinline__ void fetch_bytes(void *to, const void *from)
    {
        const uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
        if constexpr (BYTES == 16)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from)
                         : "memory");
        else
            asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from),
                         "n"(BYTES)
                         : "memory");
    }

    /* f(k, i, value) of what was fetched. */
    template<class F>
    __device__ __forceinline__ void read(int at, int64_t row, const own_columns<A, VECS> &own,
                                         F &&f) const
    {
        const int apart = (int)blockDim.x * W;
        with_type<A>(from.dtype, [&](auto type) {
            using T = typename decltype(type)::type;
            using word = typename access<W *(int)sizeof(T)>::type;
            T part[VECS][W];
            if (sizeof(T) > 2 || even) {
                const T *const first = (const T *)(memory + at * stage());
#pragma unroll
                for (int k = 0; k < VECS; k++) {
                    const word raw = *(const word *)(first + k * apart);
                    memcpy(part[k], &raw, sizeof raw);
                }
            } else {
                const uint32_t *const first = (const uint32_t *)(memory + at * stage());
                const T *const row_at = (const T *)from.data + row * from.stride;
#pragma unroll
                for (int k = 0; k < VECS; k++)
#pragma unroll
                    for (int i = 0; i < W; i++) {
                        const unsigned high = (unsigned)(uintptr_t)(row_at + own.column(k, i)) & 2;
                        const uint16_t half = (uint16_t)(first[k * apart + i] >> 8 * high);
                        memcpy(&part[k][i], &half, sizeof half);
                    }
            }
#pragma unroll
            for (int k = 0; k < VECS; k++)
#pragma unroll
                for (int i = 0; i < W; i++) f(k, i, widen<A>(part[k][i]));
        });
    }
};

template<class A, bool CENTERED>
__global__ void __launch_bounds__(KEPT_BACKWARD_THREADS, 1)
    norm_backward_kept_kernel(tutti__norm_args args, norm_backward_even even,
                              backward_scratch<A> scratch, int64_t leaf_rows, int lanes,
                              int cluster, int depth, A inverse_cols)
{
    extern __shared__ __align__(128) unsigned char dynamic_shared[];
    constexpr int W = any_width<A>, VALUES = CENTERED ? 2 : 1;
    const int threads = (int)blockDim.x, groups = threads / lanes;
    const int lane = (int)threadIdx.x % lanes, group = (int)threadIdx.x / lanes;
    A *const own_gamma = (A *)dynamic_shared + threadIdx.x * W, *const merged = (A *)dynamic_shared;
    unsigned char *shared = dynamic_shared + threads * VECS * W * sizeof(A);
    row_exchange<A, VALUES> team(shared, cluster);
    shared += kept_places((int)sizeof(A), VALUES, cluster, threads);
    const bool whole = args.cols % W == 0;
    own_columns<A, VECS> own(lane, lanes, team.rank(), (int)args.cols, whole);
    const int warps = lanes / 32;
    const kept_ring<A> xs(args.x, shared, depth, even.x), dys(args.dy, shared, depth, even.dy);
    const kept_ring<A> dsums(args.dsum, shared, args.dsum.data ? depth : 0, even.dsum);

    const int64_t partial = blockIdx.x / cluster, step = gridDim.x / cluster * (int64_t)groups;
    const int64_t end = (blockIdx.y + (int64_t)1) * leaf_rows;
    int64_t row = end - leaf_rows + partial * groups;
    const int turns = (int)((end - row + step - 1) / step);
    row += group;
    const bool writes = args.dx.data != NULL, has_dsum = args.dsum.data && writes;
    auto fetch = [&](int at, int64_t of) {
        if (of < end) xs.fetch(at, of, own), dys.fetch(at, of, own);
        fetches_end();
    };
    auto fetch_dsum = [&](int at, int64_t of) {
        if (!has_dsum) return;
        if (of < end) dsums.fetch(at, of, own);
        fetches_end();
    };
    xs.clear(depth, own), dys.clear(depth, own);
    for (int at = 0; at < depth; at++) fetch(at, row + at * step), fetch_dsum(at, row + at * step);
    A next_mean = 0, next_rstd = 0;
    auto load_statistics = [&](int64_t of) {
        if (of >= end) return;
        if (CENTERED) next_mean = ((const A *)args.mean)[of];
        next_rstd = ((const A *)args.rstd)[of];
    };
    load_statistics(row);
    A gamma[VECS][W];
#pragma unroll
    for (int k = 0; k < VECS; k++)
#pragma unroll
        for (int i = 0; i < W; i++) gamma[k][i] = 1;
    if (args.gamma)
        with_type<A>(args.param_dtype, [&](auto type) {
            using T = typename decltype(type)::type;
            const A more = args.zero_centered ? 1 : 0;
            own.template read<VECS>(0, (const T *)args.gamma, even.gamma,
                                    [&](int k, int i, A value) { gamma[k][i] = value + more; });
        });
#pragma unroll
    for (int k = 0; k < VECS; k++) store_elements(own_gamma + k * threads * W, gamma[k], W, true);
    team.begin();

    A dgamma[VECS][W] = {}, dbeta[VECS][W] = {};
    const int pending = (depth - 1) * (has_dsum ? 2 : 1);
    for (int turn = 0, at = 0; turn < turns; turn++, row += step) {
        const A mean = next_mean, rstd = next_rstd;
        const bool has_row = row < end;
        A n[VECS][W], g[VECS][W], sums[VALUES] = {};
        load_statistics(row + step);
        fetches_wait(pending);
        if (has_row) {
            xs.read(at, row, own, [&](int k, int i, A x) { n[k][i] = (x - mean) * rstd; });
            dys.read(at, row, own, [&](int k, int i, A dy) {
                dgamma[k][i] += dy * n[k][i];
                if (CENTERED) dbeta[k][i] += dy;
                g[k][i] = dy;
            });
        }
        fetch(at, row + depth * step);
        if (writes) {
            if (has_row) {
#pragma unroll
                for (int k = 0; k < VECS; k++)
#pragma unroll
                    for (int i = 0; i < W; i++) g[k][i] *= own_gamma[k * threads * W + i];
                sums[0] = sum_over<A, VECS>([&](int k, int i) { return g[k][i] * n[k][i]; });
                if constexpr (CENTERED)
                    sums[1] = sum_over<A, VECS>([&](int k, int i) { return g[k][i]; });
            }
            if (lanes <= 32)
                reduce_lanes<row_add>(sums, lanes);
            else
                team.reduce(sums, group * warps, warps);
            if (has_row) {
                const A mean_gn = sums[0] * inverse_cols;
                const A mean_g = CENTERED ? sums[VALUES - 1] * inverse_cols : 0;
#pragma unroll
                for (int k = 0; k < VECS; k++)
#pragma unroll
                    for (int i = 0; i < W; i++)
                        n[k][i] = rstd * (g[k][i] - mean_g - n[k][i] * mean_gn);
                if (has_dsum)
                    dsums.read(at, row, own, [&](int k, int i, A dsum) { n[k][i] += dsum; });
                own.store(n, args.dx, row, even.dx);
            }
            fetch_dsum(at, row + depth * step);
        }
        at = at + 1 == depth ? 0 : at + 1;
    }

    start_next();
    auto write = [&](const A(&values)[VECS][W], int which) {
        A *const to = scratch.row(blockIdx.y * (int64_t)(gridDim.x / cluster) + partial, which);
        auto store = [&](const own_columns<A, VECS> &at, int k, const A(&sums)[W]) {
            if (whole)
                store_elements(to + at.column(k), sums, at.has(k, 0) ? W : 0, true);
            else
#pragma unroll
                for (int i = 0; i < W; i++)
                    if (at.has(k, i)) to[at.column(k, i)] = sums[i];
        };
        if (groups == 1) {
#pragma unroll
            for (int k = 0; k < VECS; k++) store(own, k, values[k]);
            return;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < VECS; k++)
            store_elements(merged + (k * threads + threadIdx.x) * W, values[k], W, true);
        __syncthreads();
        for (int v = threadIdx.x; v < lanes * VECS; v += threads) {
            A total[W] = {};
            for (int other = 0; other < groups; other++)
#pragma unroll
                for (int i = 0; i < W; i++)
                    total[i] += merged[(v / lanes * threads + other * lanes + v % lanes) * W + i];
            store(own_columns<A, VECS>(v % lanes, lanes, 0, (int)args.cols, whole), v / lanes,
                  total);
        }
    };
    if (args.dgamma) write(dgamma, 0);
    if constexpr (CENTERED)
        if (args.dbeta) write(dbeta, 1);
}

/* Host side */

template<class A>
tutti_status tutti__cuda_norm_backward_kept(tutti_context *ctx, const tutti__norm_args *args,
                                            const backward_plan &plan,
                                            const backward_scratch<A> &scratch)
{
    norm_backward_even even = {};
    if (args->cols % any_width<A> == 0) even = find_even(args, any_width<A>);
    const int values = args->centered ? 2 : 1, limit = tutti__cuda_shared_limit(ctx->device);
    const int column = kept_element(args->x.dtype, even.x) + kept_element(args->dy.dtype, even.dy) +
                       (args->dsum.data ? kept_element(args->dsum.dtype, even.dsum) : 0);
    auto bytes = [&](int rows) { return kept_bytes(plan, sizeof(A), values, column, rows); };
    int depth = args->dsum.data ? 2 : KEPT_DEPTH;
    while (depth > 1 && bytes(depth) > limit / plan.resident - KEPT_SPARE) depth--;
    auto run = [&](auto kernel) {
        /* always the same values: contexts of other threads launch it */
        TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, limit),
                   "norm_backward");
        if (tutti__cuda_has_clusters(ctx->device))
            TUTTI_CUDA(
                cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
                "norm_backward");
        const dim3 grid((unsigned)(plan.partials * plan.cluster), (unsigned)args->leaves);
        return row_launch("norm_backward", kernel, grid, plan.threads, plan.cluster,
                          (size_t)bytes(depth), tutti__cuda_stream(ctx), *args, even, scratch,
                          args->rows / args->leaves, plan.lanes, plan.cluster, depth,
                          (A)(1.0 / (double)args->cols));
    };
    return args->centered ? run(norm_backward_kept_kernel<A, true>)
                          : run(norm_backward_kept_kernel<A, false>);
}

template tutti_status tutti__cuda_norm_backward_kept(tutti_context *, const tutti__norm_args *,
                                                     const backward_plan &,
                                                     const backward_scratch<float> &);
template tutti_status tutti__cuda_norm_backward_kept(tutti_context *, const tutti__norm_args *,
                                                     const backward_plan &,
                                                     const backward_scratch<double> &);
