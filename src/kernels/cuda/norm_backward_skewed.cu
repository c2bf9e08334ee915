/* LayerNorm and RMSNorm, backward: rows that begin at any byte, of which each has some warps of a
 * block.  A block loops over rows as in norm_backward.cu, whose bits it has. */
#include "kernels/cuda/norm_backward_skewed.cuh"

/* The bits, and thus the threads, are those of norm_backward_kernel. */
template<class T, int ELEMENTS, bool CENTERED, bool TAIL>
__global__ void __launch_bounds__(threads_of(false, ELEMENTS, sizeof(T) == 2, false, false), 1)
    norm_backward_skewed_kernel(tutti__norm_args args, norm_backward_even even,
                                backward_steps steps, backward_scratch<float> scratch,
                                int64_t leaf_rows, int lanes, skewed_space space)
{
    extern __shared__ __align__(128) uint4 shared[];
    constexpr int N = vector16<T>::N, VECS = ELEMENTS / N, VALUES = CENTERED ? 2 : 1;
    using many = warps_team<VALUES>;
    __shared__ __align__(2 * many::PLACE) float places[2 * 32 * VALUES];
    __shared__ skewed_stage stages[ODD_GROUPS * SKEWED_STAGES];
    __shared__ skewed_queue queues[ODD_GROUPS];
    start_next();
    const int group = (int)threadIdx.x / lanes, groups = (int)blockDim.x / lanes;
    const backward_lane which = {(int)threadIdx.x % lanes, lanes, 32, 0};
    many team(places, lanes);
    const int64_t end = (blockIdx.y + (int64_t)1) * leaf_rows;
    const int64_t first = end - leaf_rows + (int64_t)blockIdx.x * groups + group;
    skewed_rows<T, ELEMENTS, CENTERED, TAIL> rows(
        args, steps, space, shared, stages + group * SKEWED_STAGES, which, group, first);
    __shared__ tail_sums tails[TAIL ? ODD_GROUPS : 1];
    if constexpr (TAIL) rows.tails = &tails[group], rows.tail().begin();
    if (rows.leads) rows.start(&queues[group], first, end);
    if (group == 0) rows.store_gamma(even.gamma);
    __syncthreads();
    int left = first < end ? (int)((end - first + steps.rows - 1) / steps.rows) : 0;
    const bool fewer = left < (end - first + group + steps.rows - 1) / steps.rows;
    for (; left > 0; left--) {
        rows.wait();
        float sums[VALUES] = {};
        rows.add_up_known(sums);
        if constexpr (TAIL) rows.add_tail(sums);
        if (args.dx.data)
            team.reduce(sums);
        else
            team.meet();
        /* all threads are through with the row before: its stage is free */
        if (rows.leads) rows.request(&queues[group], end);
        if (args.dx.data) rows.finish(sums, even.inverse_cols);
        rows.release();
    }
    /* as many barriers as the groups with a row more: racecheck takes their number for the order */
    if (fewer) team.meet();
    auto merge = [&](const auto &values, int parameter) {
        float *to = scratch.row(blockIdx.y * (int64_t)gridDim.x + blockIdx.x, parameter);
        merge_parts<T>(values, (float *)shared, {which.first(VECS), 32, 32}, true, group, groups,
                       lanes * ELEMENTS, rows.vector_cols, to);
        if constexpr (TAIL)
            merge_tails(tails, groups, rows.cols - rows.vector_cols, parameter,
                        to + rows.vector_cols);
    };
    if (args.dgamma) merge(rows.dgamma, 0);
    if constexpr (CENTERED)
        if (args.dbeta) merge(rows.dbeta, 1);
}

/* Host side */

static int skewed_limit(const tutti_context *ctx)
{
    return tutti__cuda_shared_limit(ctx->device) - SKEWED_SPARE;
}

bool tutti__cuda_norm_has_skewed(const tutti_context *ctx, const tutti__norm_args *args,
                                 const backward_plan &plan)
{
    const int element = (int)tutti_dtype_size(args->x.dtype);
    skewed_space space;
    const bool fits = element == 2 || !plan.crowded; /* in the registers of its threads */
    return plan.kind == backward_plan::BLOCK && fits && tutti__cuda_has_clusters(ctx->device) &&
           are_skewed_alike(args, element) &&
           skewed_space::find(args, plan, SKEWED_STAGES_LEAST, SKEWED_STAGES, skewed_limit(ctx),
                              &space);
}

template<class T, int ELEMENTS, bool TAIL>
static tutti_status launch(tutti_context *ctx, const tutti__norm_args *args,
                           const backward_plan &plan, const backward_scratch<float> &scratch)
{
    skewed_space space;
    skewed_space::find(args, plan, SKEWED_STAGES_LEAST, SKEWED_STAGES, skewed_limit(ctx), &space);
    const norm_backward_even even = find_even(args, vector16<T>::N);
    auto kernel = args->centered ? norm_backward_skewed_kernel<T, ELEMENTS, true, TAIL>
                                 : norm_backward_skewed_kernel<T, ELEMENTS, false, TAIL>;
    /* always the same value: contexts of other threads launch it */
    TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    tutti__cuda_shared_limit(ctx->device) - SKEWED_SPARE),
               "norm_backward");
    return row_launch("norm_backward", kernel,
                      dim3((unsigned)plan.partials, (unsigned)args->leaves), plan.threads, 1,
                      (size_t)space.bytes, tutti__cuda_stream(ctx), *args, even,
                      backward_steps::of<T>(args, plan.partials * (plan.threads / plan.lanes)),
                      scratch, args->rows / args->leaves, plan.lanes, space);
}

template<class T>
static tutti_status launch_of(tutti_context *ctx, const tutti__norm_args *args,
                              const backward_plan &plan, const backward_scratch<float> &scratch)
{
    if constexpr (sizeof(T) == 2)
        if (plan.tail > 0) return launch<T, 16, true>(ctx, args, plan, scratch);
    return plan.elements == 8 ? launch<T, 8, false>(ctx, args, plan, scratch)
                              : launch<T, 16, false>(ctx, args, plan, scratch);
}

tutti_status tutti__cuda_norm_backward_skewed(tutti_context *ctx, const tutti__norm_args *args,
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
