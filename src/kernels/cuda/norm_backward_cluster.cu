/* LayerNorm and RMSNorm, backward: rows that a cluster of blocks shares.
 *
 * As in the block kernel (norm_backward.cu), but a row's sums go from block to block while the next
 * row is read: in one turn a block adds up row r, sends its sums to all blocks of the cluster, and
 * writes dx of row r - 1, whose sums have arrived meanwhile.  So the ring holds both rows besides
 * those on their way.
 *
 * Rows of odd numbers of columns (PIECES) are divided evenly, with more vectors a thread. */
#include <atomic>

#include "kernels/cuda/norm_backward_cluster.cuh"

template<class T, int VECS, bool CENTERED, bool SKEWED>
__global__ void __launch_bounds__(VECS > 2 ? piece_threads(sizeof(T) == 2) : MORE_THREADS, 1)
    norm_backward_cluster_kernel(tutti__norm_args args, norm_backward_even even,
                                 backward_steps steps, backward_scratch<float> scratch, int cluster,
                                 int depth, int piece, int each)
{
    extern __shared__ __align__(128) uint4 shared[];
    constexpr int N = vector16<T>::N, ELEMENTS = VECS * N, VALUES = CENTERED ? 2 : 1;
    constexpr bool PIECES = VECS > 2;
    __shared__ cluster_sums<VALUES> space;
    start_next();
    const cluster_team<VALUES, PIECES> team(space, cluster);
    const int threads = blockDim.x, cols = (int)args.cols;
    const int before = team.rank * (PIECES ? piece : threads * VECS);
    const int end = PIECES ? min(cols, (before + piece) * N) : cols;
    const backward_lane which = {(int)threadIdx.x, threads, 32, before, each};
    const int64_t partial_row = blockIdx.x / cluster;
    backward_rows<T, ELEMENTS, CENTERED, SKEWED, true, PIECES> rows(
        args, cols, end, steps, shared + gamma_words<N>(threads, ELEMENTS, SKEWED), which, depth,
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
        const int count = col < end && (!PIECES || k < each) ? N : 0;
        if (args.dgamma)
            store_elements(scratch.row(partial_row, 0) + col, rows.dgamma[k], count, true);
        if constexpr (CENTERED)
            if (args.dbeta)
                store_elements(scratch.row(partial_row, 1) + col, rows.dbeta[k], count, true);
    }
}

template<class T, int VECS>
static tutti_status launch(tutti_context *ctx, const tutti__norm_args *args,
                           const backward_plan &plan, const backward_scratch<float> &scratch)
{
    const norm_backward_even even = find_even(args, vector16<T>::N);
    const bool whole = even.is_whole(args, vector16<T>::N);
    if (tutti__cuda_norm_has_pieces(ctx, args, plan))
        return tutti__cuda_norm_backward_pieces(ctx, args, plan, scratch);
    const backward_ring ring = backward_ring_for(ctx, args, plan, !whole);
    auto run = [&](auto kernel) {
        return cluster_launch(ctx, kernel, plan, plan.threads, ring.bytes, *args, even,
                              backward_steps::of<T>(args, plan.partials), scratch, plan.cluster,
                              ring.depth, plan.piece, plan.each);
    };
    if constexpr (VECS == 2)
        if (whole)
            return run(args->centered ? norm_backward_cluster_kernel<T, 2, true, false>
                                      : norm_backward_cluster_kernel<T, 2, false, false>);
    return run(args->centered ? norm_backward_cluster_kernel<T, VECS, true, true>
                              : norm_backward_cluster_kernel<T, VECS, false, true>);
}

template<class T>
static tutti_status launch_of(tutti_context *ctx, const tutti__norm_args *args,
                              const backward_plan &plan, const backward_scratch<float> &scratch)
{
    return plan.piece ? launch<T, piece_vecs(sizeof(T) == 2)>(ctx, args, plan, scratch)
                      : launch<T, 2>(ctx, args, plan, scratch);
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
constexpr int LEAST_SHARED =
    gamma_words<4>(piece_threads(false), 4 * piece_vecs(false), true) * 16 +
    2 * 3 * ring_words(piece_threads(false), 32, piece_vecs(false), true) * 16 + RING_SPARE;

/* A cluster's blocks take all shared memory of a multiprocessor each. */
static tutti_status count_clusters_of(int device, int blocks, int *clusters)
{
    auto kernel = norm_backward_cluster_kernel<__nv_bfloat16, 2, true, true>;
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
