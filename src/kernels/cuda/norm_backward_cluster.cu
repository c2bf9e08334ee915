/* LayerNorm and RMSNorm, backward: rows that a cluster of blocks shares.
 *
 * As in the block kernel (norm_backward.cu), but a row's sums go from block to block while the next
 * row is read: in one turn a block adds up row r, sends its sums to all blocks of the cluster, and
 * writes dx of row r - 1, whose sums have arrived meanwhile.  So the ring holds both rows besides
 * those on their way.
 *
 * Rows of odd numbers of columns have blocks anywhere on the device (norm_backward_grid.cu). */
#include <atomic>

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/norm_backward_rows.cuh"

/* The sums of a cluster's warps, VALUES floats each, which every warp sends to every block.  Four
 * places are enough: a warp sends those of row r + 4 after it has received those of row r + 2,
 * which every other one sent after it had received those of row r. */
template<int VALUES>
struct cluster_sums {
    enum { PLACES = 4 };
    float warps[PLACES][NORM_CLUSTER_MAX * MORE_THREADS / 32][VALUES];
    uint64_t arrived[PLACES];
};

template<int VALUES>
struct cluster_team {
    using sums = cluster_sums<VALUES>;
    sums &shared;
    int cluster, rank;

    __device__ __forceinline__ cluster_team(sums &space, int size)
        : shared(space), cluster(size), rank(cluster_join(shared.arrived, sums::PLACES))
    {
    }
    /* Before the first row: the other blocks are there. */
    __device__ __forceinline__ void begin() const { cluster_is_there(); }

    /* This thread's sums of the row of a turn. */
    __device__ __forceinline__ void send(int turn, float (&values)[VALUES]) const
    {
#ifdef TUTTI_ROW_CLUSTERS
        const int place = turn % sums::PLACES, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const int warps = (int)blockDim.x / 32;
        const float mine = sum_lanes(values, 32);
        const uint32_t arrived = shared_address(&shared.arrived[place]);
        if (threadIdx.x == 0) barrier_expect(arrived, cluster * warps * VALUES * 4);
        if (lane >= cluster * VALUES) return;
        const int to = lane / VALUES;
        const float *part = &shared.warps[place][rank * warps + warp][lane % VALUES];
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, "
                     "[%2];" ::"r"(address_in(shared_address(part), to)),
                     "f"(mine), "r"(address_in(arrived, to))
                     : "memory");
#endif
    }

    /* The sums of all threads of the cluster: the same bits in each. */
    __device__ __forceinline__ void receive(int turn, float (&values)[VALUES]) const
    {
        const int place = turn % sums::PLACES, lane = threadIdx.x % 32;
        cluster_await(shared_address(&shared.arrived[place]), turn / sums::PLACES % 2);
        const float *parts = shared.warps[place][0];
        const int count = cluster * VALUES * ((int)blockDim.x / 32);
        float part = lane < count ? parts[lane] : 0;
        for (int i = lane + 32; i < count; i += 32) part += parts[i];
        share_sums(values, part, 32 / VALUES);
    }
};

template<class T, bool CENTERED, bool SKEWED>
__global__ void __launch_bounds__(MORE_THREADS, 1)
    norm_backward_cluster_kernel(tutti__norm_args args, norm_backward_even even,
                                 backward_steps steps, backward_scratch<float> scratch, int cluster,
                                 int depth)
{
    extern __shared__ __align__(128) uint4 shared[];
    constexpr int N = vector16<T>::N, VECS = 2, ELEMENTS = VECS * N, VALUES = CENTERED ? 2 : 1;
    __shared__ cluster_sums<VALUES> space;
    start_next();
    const cluster_team<VALUES> team(space, cluster);
    const int threads = blockDim.x, cols = (int)args.cols;
    const backward_lane which = {(int)threadIdx.x, threads, 32, team.rank * threads * VECS};
    const int64_t partial_row = blockIdx.x / cluster;
    backward_rows<T, ELEMENTS, CENTERED, SKEWED, true> rows(
        args, cols, steps, shared + gamma_words<N>(threads, ELEMENTS, SKEWED), which, depth,
        partial_row, args.rows);
    const int turns = rows.coming;
    rows.begin(shared, which, true, even.gamma, depth - 1);
    team.begin();

    /* of the row before: where it is, and its statistics */
    uint32_t from = 0, skew = 0;
    float rstd = 0, mean = 0, sums[VALUES];
    auto finish = [&](int turn) {
        const uint32_t now = rows.ring.from, now_skew = rows.ring.skew;
        const float now_rstd = rows.rstd, now_mean = rows.mean;
        rows.ring.from = from, rows.ring.skew = skew, rows.rstd = rstd, rows.mean = mean;
        team.receive(turn - 1, sums);
        rows.finish(sums, even.inverse_cols);
        rows.ring.from = now, rows.ring.skew = now_skew;
        rows.rstd = now_rstd, rows.mean = now_mean;
    };
    const bool writes = args.dx.data != NULL;
    for (int turn = 0; turn < turns; turn++) {
        rows.load_statistics();
        rows.ring.wait(depth - 2);
#pragma unroll
        for (int n = 0; n < VALUES; n++) sums[n] = 0;
        rows.add_up_known(sums);
        if (writes) {
            team.send(turn, sums);
            if (turn > 0) finish(turn);
        }
        from = rows.ring.from, skew = rows.ring.skew, rstd = rows.rstd, mean = rows.mean;
        rows.ring.release(steps.skew);
        rows.request(depth - 3);
    }
    if (writes && turns > 0) finish(turns);

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

template<class T>
static tutti_status launch_of(tutti_context *ctx, const tutti__norm_args *args,
                              const backward_plan &plan, const backward_scratch<float> &scratch)
{
    const norm_backward_even even = find_even(args, vector16<T>::N);
    const bool whole = even.is_whole(args, vector16<T>::N);
    const backward_ring ring = backward_ring_for(ctx, args, plan, !whole);
    auto kernel = args->centered ? whole ? norm_backward_cluster_kernel<T, true, false>
                                         : norm_backward_cluster_kernel<T, true, true>
                  : whole ? norm_backward_cluster_kernel<T, false, false>
                                 : norm_backward_cluster_kernel<T, false, true>;
    /* always the same values: contexts of other threads launch it */
    TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    tutti__cuda_shared_limit(ctx->device) - RING_SPARE),
               "norm_backward");
    TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
               "norm_backward");
    return row_launch("norm_backward", kernel, (unsigned)(plan.partials * plan.cluster),
                      plan.threads, plan.cluster, (size_t)ring.bytes, tutti__cuda_stream(ctx),
                      *args, even, backward_steps::of<T>(args, plan.partials), scratch,
                      plan.cluster, ring.depth);
}

tutti_status tutti__cuda_norm_backward_cluster(tutti_context *ctx, const tutti__norm_args *args,
                                               const backward_plan &plan,
                                               const backward_scratch<float> &scratch)
{
    switch (args->x.dtype) {
    case TUTTI_F16:
        return launch_of<__half>(ctx, args, plan, scratch);
    case TUTTI_BF16:
        return launch_of<__nv_bfloat16>(ctx, args, plan, scratch);
    default:
        return launch_of<float>(ctx, args, plan, scratch);
    }
}

/* What a block needs at least: gamma, and two rows of three skewed tensors; most of it in f32. */
constexpr int LEAST_SHARED = gamma_words<4>(MORE_THREADS, 8, true) * 16 +
                             2 * 3 * ring_words(MORE_THREADS, 32, 2, true) * 16 + RING_SPARE;

/* A cluster's blocks take all shared memory of a multiprocessor each. */
static tutti_status count_clusters_of(int device, int blocks, int *clusters)
{
    auto kernel = norm_backward_cluster_kernel<__nv_bfloat16, true, true>;
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
