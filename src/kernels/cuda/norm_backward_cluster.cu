/* LayerNorm and RMSNorm, backward: rows that a cluster of blocks shares.
 *
 * As in the block kernel (norm_backward.cu), but a row's sums go from block to block while the next
 * row is read: in one turn a block adds up row r, sends its sums to all blocks of the cluster, and
 * writes dx of row r - 1, whose sums have arrived meanwhile.  So the ring holds both rows besides
 * those on their way. */
#include <atomic>

#include "kernels/cuda/norm_backward_rows.cuh"

/* The sums of a cluster's blocks, VALUES floats each.  With four places a block can be two rows
 * ahead of another: it sends those of row r + 4 after it has seen those of row r + 2, which the
 * other one sends when all its warps have read those of row r. */
template<int VALUES>
struct cluster_sums {
    enum { PLACES = 4 };
    struct alignas(4 * VALUES) part {
        float values[VALUES];
    };
    part warps[PLACES][MORE_THREADS / 32], blocks[PLACES][NORM_CLUSTER_MAX];
    uint64_t arrived[PLACES];
};

template<int VALUES>
struct cluster_team {
    using sums = cluster_sums<VALUES>;
    sums &shared;
    int cluster, rank;

    __device__ __forceinline__ cluster_team(sums &space, int size)
        : shared(space), cluster(size), rank(0)
    {
#ifdef TUTTI_ROW_CLUSTERS
        unsigned number;
        asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(number));
        rank = (int)number;
        if (threadIdx.x == 0) {
            for (int i = 0; i < sums::PLACES; i++)
                asm volatile(
                    "mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(here(&shared.arrived[i]))
                    : "memory");
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncwarp();
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
    }
    /* Before the first row: the other blocks are there. */
    __device__ __forceinline__ void begin() const
    {
#ifdef TUTTI_ROW_CLUSTERS
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
    }

    /* This thread's sums of the row of a turn. */
    __device__ __forceinline__ void send(int turn, float (&values)[VALUES]) const
    {
        const int place = turn % sums::PLACES, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        reduce_lanes<row_add>(values, 32);
        if (lane == 0) put(shared.warps[place][warp], values);
        __syncthreads();
        if (warp > 0) return;
        get(values, shared.warps[place], (int)blockDim.x / 32);
#ifdef TUTTI_ROW_CLUSTERS
        const uint32_t arrived = here(&shared.arrived[place]);
        if (lane == 0)
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(arrived),
                         "r"(cluster * VALUES * 4)
                         : "memory");
        if (lane >= cluster) return;
        const uint32_t to = there(here(&shared.blocks[place][rank]), lane);
        if constexpr (VALUES == 1)
            asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, "
                         "[%2];" ::"r"(to),
                         "f"(values[0]), "r"(there(arrived, lane))
                         : "memory");
        else
            asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], "
                         "{%1, %2}, [%3];" ::"r"(to),
                         "f"(values[0]), "f"(values[VALUES - 1]), "r"(there(arrived, lane))
                         : "memory");
#endif
    }

    /* The sums of all threads of the cluster: the same bits in each. */
    __device__ __forceinline__ void receive(int turn, float (&values)[VALUES]) const
    {
        const int place = turn % sums::PLACES;
#ifdef TUTTI_ROW_CLUSTERS
        uint32_t done = 0;
        while (!done)
            asm volatile(
                "{\n"
                ".reg .pred done;\n"
                "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], %2;\n"
                "selp.u32 %0, 1, 0, done;\n"
                "}\n"
                : "=r"(done)
                : "r"(here(&shared.arrived[place])), "r"(turn / sums::PLACES % 2)
                : "memory");
#endif
        get(values, shared.blocks[place], cluster);
    }

  private:
    static __device__ __forceinline__ void put(typename sums::part &to,
                                               const float (&values)[VALUES])
    {
#pragma unroll
        for (int n = 0; n < VALUES; n++) to.values[n] = values[n];
    }
    /* Of up to 16 parts. */
    static __device__ __forceinline__ void get(float (&values)[VALUES],
                                               const typename sums::part *parts, int count)
    {
        const int i = threadIdx.x % 16;
#pragma unroll
        for (int n = 0; n < VALUES; n++) values[n] = i < count ? parts[i].values[n] : 0;
        reduce_lanes<row_add>(values, 16);
    }
    static __device__ __forceinline__ uint32_t here(const void *shared)
    {
        return (uint32_t)__cvta_generic_to_shared(shared);
    }
    /* The same address in another block. */
    static __device__ __forceinline__ uint32_t there(uint32_t mine, int block)
    {
        uint32_t at = 0;
#ifdef TUTTI_ROW_CLUSTERS
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(mine), "r"(block));
#endif
        return at;
    }
};

template<class T, int ELEMENTS, bool CENTERED, bool SKEWED>
__global__ void __launch_bounds__(MORE_THREADS, 1)
    norm_backward_cluster_kernel(tutti__norm_args args, norm_backward_even even,
                                 backward_scratch<float> scratch, int cluster, int depth)
{
    extern __shared__ __align__(128) uint4 shared[];
    constexpr int N = vector16<T>::N, VECS = ELEMENTS / N, VALUES = CENTERED ? 2 : 1;
    __shared__ cluster_sums<VALUES> space;
    start_next();
    const cluster_team<VALUES> team(space, cluster);
    const int threads = blockDim.x, cols = (int)args.cols;
    const int64_t partial_row = blockIdx.x / cluster, stride = gridDim.x / cluster;
    backward_rows<T, ELEMENTS, CENTERED, SKEWED, true> rows(
        args, shared + gamma_words(threads, ELEMENTS),
        row_place{team.rank * threads * VECS + (int)threadIdx.x, threads, 32}, depth);
    rows.ring.clear_beyond(cols);
    int64_t row = partial_row;
    for (int d = 0; d < depth - 1; d++) rows.request(row + d * stride);
    rows.load_statistics(row);
    rows.store_gamma((float4 *)shared, true, even.gamma);
    team.begin();

    /* of the row before: its stage and statistics */
    uint32_t stage = 0;
    float rstd = 0, mean = 0, sums[VALUES];
    auto finish = [&](int turn) {
        const uint32_t now = rows.ring.from;
        const float now_rstd = rows.rstd, now_mean = rows.mean;
        rows.ring.from = stage, rows.rstd = rstd, rows.mean = mean;
        team.receive(turn - 1, sums);
        rows.finish(row - stride, cols, sums, even.inverse_cols);
        rows.ring.from = now, rows.rstd = now_rstd, rows.mean = now_mean;
    };
    const bool writes = args.dx.data != NULL;
    int turn = 0;
    for (; row < args.rows; row += stride, turn++) {
        rows.load_statistics(row + stride);
        rows.ring.wait(depth - 2);
#pragma unroll
        for (int n = 0; n < VALUES; n++) sums[n] = 0;
        rows.add_up(row, sums);
        if (writes) {
            team.send(turn, sums);
            if (turn > 0) finish(turn);
        }
        stage = rows.ring.from, rstd = rows.rstd, mean = rows.mean;
        rows.ring.release();
        rows.request(row + (depth - 1) * stride);
    }
    if (writes && turn > 0) finish(turn);

#pragma unroll
    for (int k = 0; k < VECS; k++) {
        const int col = rows.ring.place.template column<T>(k);
        /* the pitch has room for the last vector */
        const int count = col < cols ? N : 0;
        if (args.dgamma)
            store_elements(scratch.row(partial_row, 0) + col, rows.dgamma[k], count, true);
        if constexpr (CENTERED)
            if (args.dbeta)
                store_elements(scratch.row(partial_row, 1) + col, rows.dbeta[k], count, true);
    }
}

template<class T, int ELEMENTS>
static tutti_status launch(tutti_context *ctx, const tutti__norm_args *args,
                           const backward_plan &plan, const backward_scratch<float> &scratch)
{
    const norm_backward_even even = find_even(args, vector16<T>::N);
    const bool whole = even.is_whole(args, vector16<T>::N);
    const backward_ring ring = backward_ring_for(ctx, args, plan, !whole);
    auto run = [&](auto kernel) {
        /* always the same values: contexts of other threads launch it */
        TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        tutti__cuda_shared_limit(ctx->device) - RING_SPARE),
                   "norm_backward");
        TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
                   "norm_backward");
        return row_launch("norm_backward", kernel, (unsigned)(plan.partials * plan.cluster),
                          plan.threads, plan.cluster, (size_t)ring.bytes, tutti__cuda_stream(ctx),
                          *args, even, scratch, plan.cluster, ring.depth);
    };
    if (args->centered)
        return whole ? run(norm_backward_cluster_kernel<T, ELEMENTS, true, false>)
                     : run(norm_backward_cluster_kernel<T, ELEMENTS, true, true>);
    return whole ? run(norm_backward_cluster_kernel<T, ELEMENTS, false, false>)
                 : run(norm_backward_cluster_kernel<T, ELEMENTS, false, true>);
}

tutti_status tutti__cuda_norm_backward_cluster(tutti_context *ctx, const tutti__norm_args *args,
                                               const backward_plan &plan,
                                               const backward_scratch<float> &scratch)
{
    switch (args->x.dtype) {
    case TUTTI_F16:
        return launch<__half, 16>(ctx, args, plan, scratch);
    case TUTTI_BF16:
        return launch<__nv_bfloat16, 16>(ctx, args, plan, scratch);
    default:
        return launch<float, 8>(ctx, args, plan, scratch);
    }
}

/* What a block needs at least: gamma, and two rows of three skewed tensors. */
constexpr int LEAST_SHARED = gamma_words(MORE_THREADS, 16) * 16 +
                             2 * 3 * ring_words(MORE_THREADS, 32, true) * 32 + RING_SPARE;

/* A cluster's blocks take all shared memory of a multiprocessor each. */
static tutti_status count_clusters_of(int device, int blocks, int *clusters)
{
    auto kernel = norm_backward_cluster_kernel<__nv_bfloat16, 16, true, true>;
    const int bytes = tutti__cuda_shared_limit(device) - RING_SPARE;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {(unsigned)blocks, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(MORE_THREADS);
    config.dynamicSmemBytes = (size_t)bytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    TUTTI_CUDA(cudaSetDevice(device), "norm_backward");
    TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
               "norm_backward");
    TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
               "norm_backward");
    TUTTI_CUDA(cudaOccupancyMaxActiveClusters(clusters, kernel, &config), "norm_backward");
    return TUTTI_OK;
}

tutti_status tutti__cuda_norm_cluster_max(int device, int *most)
{
    enum { DEVICES_CACHED = 64 };
    static std::atomic<int> cache[DEVICES_CACHED]; /* 0: unknown */
    const bool cached = device >= 0 && device < DEVICES_CACHED;
    *most = cached ? cache[device].load(std::memory_order_relaxed) : 0;
    if (*most > 0) return TUTTI_OK;
    const bool may =
        tutti__cuda_has_clusters(device) && tutti__cuda_shared_limit(device) >= LEAST_SHARED;
    int blocks = may ? NORM_CLUSTER_MAX : 1;
    for (int clusters = 0; blocks > 1; blocks /= 2) {
        TUTTI_TRY(count_clusters_of(device, blocks, &clusters));
        if (clusters > 0) break;
    }
    *most = blocks;
    if (cached) cache[device].store(blocks, std::memory_order_relaxed);
    return TUTTI_OK;
}
