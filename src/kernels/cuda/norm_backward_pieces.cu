/* LayerNorm and RMSNorm, backward: rows of odd numbers of columns, of which each block of a cluster
 * has a piece.  The order of a row's sums is that of norm_backward_cluster.cu, and so are the bits;
 * but rows come by bulk copies (norm_backward_skewed.cuh).  A warp of its own asks for a row as
 * soon as the others are through with the one whose place it takes.  That they say on a barrier of
 * the hardware's, one a stage, at which they do not wait [PTX ISA, bar.arrive]: racecheck follows
 * those, but not mbarriers. */
#include "kernels/cuda/norm_backward_cluster.cuh"
#include "kernels/cuda/norm_backward_skewed.cuh"

enum { PIECES_STAGES = 5 };

/* threads: those that arrive and those that wait, in whole warps. */
__device__ __forceinline__ void stage_arrive(int stage, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(1 + stage), "r"(threads) : "memory");
}
__device__ __forceinline__ void stage_wait(int stage, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(1 + stage), "r"(threads) : "memory");
}

template<class T, bool CENTERED>
__global__ void __launch_bounds__(piece_threads(true) + 32, 1)
    norm_backward_pieces_kernel(tutti__norm_args args, norm_backward_even even,
                                backward_steps steps, backward_scratch<float> scratch, int cluster,
                                int piece, int each, skewed_space space)
{
    extern __shared__ __align__(128) uint4 shared[];
    constexpr int N = vector16<T>::N, VECS = piece_vecs(true), VALUES = CENTERED ? 2 : 1;
    __shared__ cluster_sums<VALUES> sums_space;
    __shared__ skewed_stage stages[PIECES_STAGES];
    start_next();
    const int threads = (int)blockDim.x, lanes = threads - 32;
    const cluster_team<VALUES, true, 1> team(sums_space, cluster);
    const backward_lane which = {(int)threadIdx.x, lanes, 32, team.rank * piece, each};
    const int64_t first = blockIdx.x / cluster;
    skewed_rows<T, VECS * N, CENTERED, false, true> rows(args, steps, space, shared, stages, which,
                                                         0, first, piece);
    const int turns = (int)((args.rows - first + steps.rows - 1) / steps.rows);
    const bool asks = (int)threadIdx.x >= lanes; /* the last warp */
    skewed_queue queue;
    if ((int)threadIdx.x == lanes) rows.start(&queue, first, args.rows);
    if (!asks) rows.store_gamma(even.gamma);
    __syncthreads();
    team.begin();
    if (asks) {
        for (int turn = space.depth, stage = 0; turn < turns; turn++) {
            stage_wait(stage, threads);
            if ((int)threadIdx.x == lanes) rows.request(&queue, args.rows);
            if (++stage == space.depth) stage = 0;
        }
        await_fetches();
        return;
    }

    skewed_place last = {}; /* of the row before */
    float sums[VALUES];
    const bool writes = args.dx.data != NULL;
    auto finish = [&](int turn) {
        const skewed_place now = rows.place;
        rows.place = last;
        team.receive(turn - 1, sums);
        rows.finish(sums, even.inverse_cols);
        rows.place = now;
    };
    int stage = 0; /* of the row before */
    for (int turn = 0; turn < turns; turn++) {
        rows.wait();
#pragma unroll
        for (int n = 0; n < VALUES; n++) sums[n] = 0;
        rows.add_up_known(sums);
        if (writes) team.send(turn, sums);
        if (turn > 0) {
            if (writes) finish(turn);
            if (turn - 1 + space.depth < turns) stage_arrive(stage, threads);
            if (++stage == space.depth) stage = 0;
        }
        last = rows.place;
        rows.release();
    }
    if (writes) finish(turns);

#pragma unroll
    for (int k = 0; k < VECS; k++) {
        const int vector = rows.word + k * 32;
        /* the pitch has room for the last vector */
        const int vectors = rows.beyond ? rows.beyond : (rows.cols + N - 1) / N;
        const int count = k < each && vector < vectors ? N : 0;
        if (args.dgamma)
            store_elements(scratch.row(first, 0) + vector * N, rows.dgamma[k], count, true);
        if constexpr (CENTERED)
            if (args.dbeta)
                store_elements(scratch.row(first, 1) + vector * N, rows.dbeta[k], count, true);
    }
}

/* Host side */

bool tutti__cuda_norm_has_pieces(const tutti_context *ctx, const tutti__norm_args *args,
                                 const backward_plan &plan)
{
    const int element = (int)tutti_dtype_size(args->x.dtype);
    skewed_space space;
    return plan.piece > 0 && element == 2 && are_skewed_alike(args, element) &&
           skewed_space::find(ctx, args, plan, PIECES_STAGES, RING_SPARE, &space);
}

template<class T>
static tutti_status launch(tutti_context *ctx, const tutti__norm_args *args,
                           const backward_plan &plan, const backward_scratch<float> &scratch)
{
    skewed_space space;
    skewed_space::find(ctx, args, plan, PIECES_STAGES, RING_SPARE, &space);
    const norm_backward_even even = find_even(args, vector16<T>::N);
    auto kernel = args->centered ? norm_backward_pieces_kernel<T, true>
                                 : norm_backward_pieces_kernel<T, false>;
    return cluster_launch(ctx, kernel, plan, plan.threads + 32, space.bytes, *args, even,
                          backward_steps::of<T>(args, plan.partials), scratch, plan.cluster,
                          plan.piece, plan.each, space);
}

tutti_status tutti__cuda_norm_backward_pieces(tutti_context *ctx, const tutti__norm_args *args,
                                              const backward_plan &plan,
                                              const backward_scratch<float> &scratch)
{
    return args->x.dtype == TUTTI_F16 ? launch<__half>(ctx, args, plan, scratch)
                                      : launch<__nv_bfloat16>(ctx, args, plan, scratch);
}
