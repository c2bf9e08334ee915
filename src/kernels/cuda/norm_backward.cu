/* LayerNorm and RMSNorm, backward: dx, dgamma and dbeta.  include/tutti/layernorm.h has the
 * mathematics.
 *
 * Fewest bytes: x and dy read, dx written, once each.  As many blocks as the device holds at a time
 * loop over the rows, so that each thread always has the same columns: it keeps their part of
 * dgamma and dbeta in registers and their gamma in shared memory, where the next rows of x and dy
 * arrive meanwhile (row_ring.cuh); a row is read from there once for its sums and once for dx.  At
 * the end each block writes one partial row per parameter to scratch, and a second kernel adds
 * these in order.
 *
 *   warp     up to 512 columns: some lanes of a warp a row
 *   block    up to 8192 columns, of f32 mostly 4096: some warps of a block a row; if rows begin at
 *            any byte mostly by norm_backward_skewed.cu, with the same bits
 *   cluster  whole vectors of up to 65536 columns of f32, 131072 of 16-bit types: a cluster of
 *            blocks a row (norm_backward_cluster.cu)
 *   grid     odd columns, and longer rows: blocks anywhere on the device (norm_backward_grid.cu)
 *   kept     f64 and dy of another type than x, up to 65536 columns of f64, 131072 of others
 *            (norm_backward_kept.cu)
 *   sliced   all others (norm_backward_sliced.cu)
 *
 * Few rows have no partial rows, and mostly one kernel (norm_backward_few.cu). */
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/norm_backward_rows.cuh"

enum { SHORT_TURNS = 32, FEW_ROWS_MAX = 2048, FEW_BYTES_MAX = 9 << 20, FEW_ELEMENTS_MAX = 3 << 20 };

/* The blocks that a multiprocessor has at a time. */
__host__ __device__ constexpr int blocks_of(bool warp, int elements, bool centered, bool narrow,
                                            bool whole)
{
    if (!warp) return 1;
    return elements == 8 && (narrow || whole) ? 3 + (narrow && whole)
           : centered                         ? 2
                                              : 2 + (narrow && whole);
}

/* `lanes` threads of a block have a row, of which up to ELEMENTS elements each; the block's groups
 * of lanes are added at the end, in the memory of the ring.  A leaf has a line of blocks. */
template<class T, int ELEMENTS, bool CENTERED, bool SKEWED, bool WARP, bool CROWDED>
__global__ void __launch_bounds__(threads_of(WARP, ELEMENTS, sizeof(T) == 2, !SKEWED, CROWDED),
                                  blocks_of(WARP, ELEMENTS, CENTERED, sizeof(T) == 2, !SKEWED))
    norm_backward_kernel(tutti__norm_args args, norm_backward_even even, backward_steps steps,
                         backward_scratch<float> scratch, int64_t leaf_rows, int lanes, int tail,
                         int depth)
{
    extern __shared__ __align__(128) uint4 shared[];
    constexpr int N = vector16<T>::N, VECS = ELEMENTS / N, VALUES = CENTERED ? 2 : 1;
    using many = warps_team<VALUES>;
    __shared__ __align__(2 * many::PLACE) float places[2 * 32 * VALUES];
    __shared__ tail_sums tails[SKEWED && !WARP ? ODD_GROUPS : 1];
    auto team = [&] {
        if constexpr (WARP)
            return lanes_team<VALUES>{lanes};
        else
            return many(places, lanes);
    }();
    const int group = threadIdx.x / lanes;
    const backward_lane which = {(int)threadIdx.x % lanes, lanes, WARP ? lanes : 32, 0};
    const int groups = blockDim.x / lanes, cols = (int)args.cols - tail;
    const int64_t end = (blockIdx.y + (int64_t)1) * leaf_rows;
    const int64_t first = end - leaf_rows + (int64_t)blockIdx.x * groups;
    backward_rows<T, ELEMENTS, CENTERED, SKEWED> rows(
        args, cols, steps, shared + gamma_words<N>(lanes, ELEMENTS, SKEWED), which, depth,
        first + group, end);
    if constexpr (SKEWED && !WARP)
        rows.tail = {&tails[group], which.lane - (lanes - 32), tail}, rows.tail.begin();
    rows.begin(shared, which, group == 0, even.gamma, depth - 1);
    __syncthreads();
    /* the block's groups go round together: one past the end has no row, but takes part in the
     * shuffles */
    for (int turns = (int)((end - first + steps.rows - 1) / steps.rows); turns > 0; turns--) {
        rows.load_statistics();
        rows.request(depth - 3);
        rows.ring.wait(depth - 1);
        rows.template run<!WARP>(team, rows.coming + depth > 0, even.inverse_cols);
        rows.ring.release(steps.skew);
    }

    start_next(); /* not at once: a kernel that is started delays this one's first rows */
    /* groups of a warp, then those of the block */
    auto merge = [&](float(&values)[VECS][N], int which) {
        for (int offset = 16; WARP && offset >= lanes; offset /= 2)
#pragma unroll
            for (int k = 0; k < VECS; k++)
#pragma unroll
                for (int i = 0; i < N; i++)
                    values[k][i] += __shfl_xor_sync(0xffffffffu, values[k][i], offset);
        merge_parts<T>(values, (float *)shared, rows.ring.place, !WARP || threadIdx.x % 32 < lanes,
                       WARP ? (int)threadIdx.x / 32 : group, WARP ? WARP_THREADS / 32 : groups,
                       (WARP ? 32 : lanes) * ELEMENTS, cols,
                       scratch.row(blockIdx.y * (int64_t)gridDim.x + blockIdx.x, which));
        if constexpr (SKEWED && !WARP)
            merge_tails(tails, groups, tail, which,
                        scratch.row(blockIdx.y * (int64_t)gridDim.x + blockIdx.x, which) + cols);
    };
    if (args.dgamma) merge(rows.dgamma, 0);
    if constexpr (CENTERED)
        if (args.dbeta) merge(rows.dbeta, 1);
}

/* Host side */

static int64_t at_most(int64_t value, int64_t limit)
{
    return value < limit ? value : limit;
}

static int64_t divide_up(int64_t value, int64_t by)
{
    return (value + by - 1) / by;
}

/* Whether a crowded block is faster, as it has more rows at a time: two instead of one, of 16-bit
 * types three instead of two, too. */
static bool gains_crowded(int elements, int64_t cols, bool narrow, bool whole)
{
    const int lanes = row_round_up((int)divide_up(cols, elements), 32);
    const int few = MORE_THREADS / lanes, many = threads_of(false, elements, narrow, whole, true);
    return whole && (elements == 16) == narrow && few >= 1 && few <= 1 + narrow &&
           many / lanes > few;
}

/* Whether with 16 elements each a block has but one row at a time, or fewer than 7 in 10 of its
 * threads have columns. */
static bool leaves_threads_idle(int64_t cols, int threads)
{
    const int64_t wanted = divide_up(cols, 16), lanes = divide_up(wanted, 32) * 32;
    return lanes <= threads &&
           (2 * lanes > threads || 10 * wanted * (threads / lanes) < 7 * threads);
}

/* With 8 elements a thread a row costs more instructions, but a block's threads may be filled
 * better, and the ring holds more rows of f32: so the blocks of a cluster have 8192 columns, of f32
 * 4096; clusters: the device has any. */
static void plan_own(backward_plan *plan, const tutti__norm_args *args, bool clusters)
{
    const int64_t cols = args->cols;
    const bool narrow = tutti_dtype_size(args->x.dtype) == 2, whole = cols % (narrow ? 8 : 4) == 0;
    const bool warp = cols <= 512;
    const int most_of_8 = threads_of(false, 8, narrow, whole, false),
              most_of_16 =
                  threads_of(false, 16, narrow, whole, gains_crowded(16, cols, narrow, whole));
    plan->kind = warp ? backward_plan::WARP : backward_plan::BLOCK;
    plan->elements = 16;
    const bool words =
        narrow && !whole; /* a warp has instructions for those that it has columns of */
    if (warp ? cols <= 256
             : !words && (cols <= 768 || (!narrow && whole && cols <= 8 * MORE_THREADS) ||
                          (cols <= 8 * most_of_8 && leaves_threads_idle(cols, most_of_16))))
        plan->elements = 8;
    if (cols > (narrow || !whole || !clusters ? 16 : 8) * MORE_THREADS) {
        plan->kind = backward_plan::CLUSTER;
        plan->elements = narrow ? 16 : 8;
        while (cols > (int64_t)plan->elements * MORE_THREADS * plan->cluster) plan->cluster *= 2;
    }
    plan->lanes = row_round_up((int)divide_up(cols, plan->elements * plan->cluster), 32);
    while (warp && plan->lanes > 1 && plan->lanes / 2 * plan->elements >= cols) plan->lanes /= 2;
    plan->crowded =
        plan->kind == backward_plan::BLOCK && gains_crowded(plan->elements, cols, narrow, whole);
    const int most = plan->cluster > 1
                         ? plan->lanes
                         : threads_of(warp, plan->elements, narrow, whole, plan->crowded);
    /* a warp for part of a vector would take as many instructions as for all that it can have */
    const int part = (int)(cols % 8);
    if (plan->kind == backward_plan::BLOCK && words && plan->lanes > 64 &&
        (cols - part) % (32 * plan->elements) == 0 && most / (plan->lanes - 32) <= ODD_GROUPS &&
        most / (plan->lanes - 32) > most / plan->lanes)
        plan->tail = part, plan->lanes -= 32;
    plan->threads = most / plan->lanes * plan->lanes;
    plan->resident = blocks_of(warp, plan->elements, args->centered, narrow, whole);
}

/* Blocks, or clusters, that the device surely holds at a time: those beyond would double the time.
 * The groups of multiprocessors that share clusters differ from device to device of one kind; of an
 * H200's 132 an example holds 66 clusters of 2, 30 of 4, 15 of 8 and 7 of 16. */
static int64_t resident_rows(const backward_plan &plan, int64_t sms)
{
    const int64_t whole = sms * plan.resident / plan.cluster;
    const int64_t spare = plan.cluster <= 2 ? 0 : whole < 18 ? 1 : whole / 9;
    return whole > spare ? whole - spare : 1;
}

/* Of any types.  False if a row fits on no cluster, or its memory nowhere.  Four small blocks on a
 * multiprocessor are faster than one large one (8192 x 4096 of f64, RMSNorm: 78 -> 88 %), but lanes
 * come in whole warps, which may leave blocks of a cluster without columns: 8192 x 4099 has 67 % in
 * clusters of 2, 58 of 4, 50 of 8. */
static bool plan_kept(backward_plan *plan, int64_t cols, int cluster_max, int shared)
{
    const int64_t vectors = divide_up(cols, plan->wide ? 2 : 4);
    const int most = (int)at_most(cluster_max, ROW_CLUSTER_MAX);
    auto divide = [&](int cluster) {
        plan->cluster = cluster;
        plan->lanes = row_round_up((int)divide_up(vectors, KEPT_VECS * cluster), 32);
    };
    divide(1);
    while (plan->lanes > KEPT_SMALL && plan->cluster < most) divide(2 * plan->cluster);
    while (plan->lanes > KEPT_BACKWARD_THREADS) divide(2 * plan->cluster);
    while (plan->cluster > 1 && 2 * plan->lanes <= KEPT_BACKWARD_THREADS &&
           20 * vectors < 17 * plan->cluster * plan->lanes * KEPT_VECS)
        divide(plan->cluster / 2);
    while (plan->lanes > 1 && plan->lanes / 2 * KEPT_VECS >= vectors) plan->lanes /= 2;
    const int threads = plan->lanes <= KEPT_SMALL ? KEPT_SMALL : plan->lanes;
    plan->kind = backward_plan::KEPT;
    plan->threads = plan->cluster > 1 ? plan->lanes : threads / plan->lanes * plan->lanes;
    plan->resident = KEPT_BACKWARD_THREADS / plan->threads;
    const int element = plan->wide ? 8 : 4;
    return plan->cluster <= cluster_max &&
           kept_bytes(*plan, element, 2, 3 * element, 1) <= shared / plan->resident;
}

/* Of shared memory: gamma, and a ring of so many rows of so many tensors. */
static int ring_bytes(const backward_plan &plan, int element, int tensors, int depth, bool skewed)
{
    const int words = ring_words(plan.threads, plan.lanes < 32 ? plan.lanes : 32,
                                 plan.elements * element / 16, skewed);
    const int gamma = element == 2 ? gamma_words<8>(plan.lanes, plan.elements, skewed)
                                   : gamma_words<4>(plan.lanes, plan.elements, skewed);
    return 16 * (gamma + depth * tensors * words);
}

backward_ring backward_ring_for(const tutti_context *ctx, const tutti__norm_args *args,
                                const backward_plan &plan, bool skewed)
{
    const int element = (int)tutti_dtype_size(args->x.dtype), tensors = args->dsum.data ? 3 : 2;
    const int limit = tutti__cuda_shared_limit(ctx->device) / plan.resident - RING_SPARE;
    backward_ring size = {plan.kind == backward_plan::CLUSTER ? 5 : plan.elements == 8 ? 4 : 3, 0};
    /* in a short run the first rows count, which others that are asked for would delay */
    const int64_t turn = args->leaves * plan.partials * (plan.threads / plan.lanes);
    if (plan.kind == backward_plan::BLOCK && plan.elements == 16 && !skewed &&
        args->rows < SHORT_TURNS * turn)
        size.depth = 2;
    while (size.depth > 1 && ring_bytes(plan, element, tensors, size.depth, skewed) > limit)
        size.depth--;
    size.bytes = ring_bytes(plan, element, tensors, size.depth, skewed);
    const int merged = plan.threads * plan.elements * (int)sizeof(float);
    if (size.bytes < merged) size.bytes = merged;
    return size;
}

/* Whether a block has room for a row of each of its groups, whatever tensors a call has. */
static bool has_room(const tutti_context *ctx, const backward_plan &plan, int element)
{
    return plan.kind == backward_plan::WARP || plan.kind == backward_plan::GRID ||
           ring_bytes(plan, element, 3, 1, true) <=
               tutti__cuda_shared_limit(ctx->device) - RING_SPARE;
}

/* Whether a block of columns is soon through all rows.  On an H200, beside partial sums, 2048 rows
 * of 1024 columns in bf16 take 0.92 of the time, 512 of 4096 0.93 to 1.0, 1055 of 4096 1.01 to 1.1.
 * Clusters are to leave as many multiprocessors as they take. */
static bool has_few_rows(const tutti__norm_args *args, const backward_plan &plan, int64_t sms)
{
    const int64_t rows = args->rows, element = (int64_t)tutti_dtype_size(args->x.dtype);
    if (args->in_leaves || rows == 0 || args->cols % (16 / element) != 0 ||
        plan.kind == backward_plan::GRID)
        return false;
    if (plan.kind == backward_plan::CLUSTER) return 2 * rows * plan.cluster <= sms;
    return rows <= FEW_ROWS_MAX && rows * args->cols <= FEW_ELEMENTS_MAX &&
           rows * args->cols * element <= FEW_BYTES_MAX;
}

static tutti_status plan_backward(const tutti_context *ctx, const tutti__norm_args *args,
                                  backward_plan *chosen)
{
    const int64_t rows = args->rows / args->leaves, cols = args->cols;
    const int64_t sms = tutti__cuda_sm_count(ctx->device);
    backward_plan plan = {};
    plan.wide = tutti__accumulate_dtype(args->x.dtype, args->param_dtype) == TUTTI_F64;
    plan.pitch = divide_up(cols, 16) * 16;
    plan.lanes = 32;
    plan.cluster = 1;
    bool own = !plan.wide && args->dy.dtype == args->x.dtype;
    int cluster_max = 1;
    if (cols > (own ? 8 * MORE_THREADS : 2 * KEPT_VECS * KEPT_SMALL))
        TUTTI_TRY(tutti__cuda_norm_cluster_max(ctx->device, &cluster_max));
    if (own) {
        plan_own(&plan, args, cluster_max > 1);
        const int element = (int)tutti_dtype_size(args->x.dtype);
        if (plan.kind == backward_plan::CLUSTER && tutti__cuda_has_clusters(ctx->device) &&
            (plan.cluster > cluster_max || cols % (16 / element) != 0))
            tutti__cuda_norm_grid_plan(ctx, args, &plan);
        while (plan.threads > plan.lanes && !has_room(ctx, plan, element))
            plan.threads -= plan.lanes;
        own = has_room(ctx, plan, element);
    }
    if (own && plan.cluster <= cluster_max) {
        /* a partial row costs as much as a few rows of x, which a block takes in turn; a leaf has
         * as few blocks as let eight leaves of 1024 rows be on an H200 in two waves */
        const int64_t each = plan.kind == backward_plan::WARP ? 4 : args->in_leaves ? 8 : 1;
        const int64_t most =
            plan.kind == backward_plan::GRID ? plan.partials : resident_rows(plan, sms);
        plan.partials = at_most(divide_up(rows, plan.threads / plan.lanes * each), most);
        if (plan.kind == backward_plan::GRID)
            plan.sums_bytes = divide_up((int64_t)tutti__cuda_norm_grid_bytes(plan), 256) * 256;
        plan.few = has_few_rows(args, plan, sms);
    } else if (plan_kept(&plan, cols, cluster_max, tutti__cuda_shared_limit(ctx->device))) {
        const int64_t each = args->in_leaves ? 8 : 1;
        plan.partials =
            at_most(divide_up(rows, plan.threads / plan.lanes * each), resident_rows(plan, sms));
    } else {
        plan.kind = backward_plan::SLICED;
        plan.cluster = 1;
        plan.threads = 32;
        while (plan.threads < BACKWARD_ANY_THREADS && plan.threads * BACKWARD_ANY_WIDTH < cols)
            plan.threads *= 2;
        plan.slices = (int)divide_up(cols, plan.threads * BACKWARD_ANY_WIDTH);
        int64_t resident = sms * 1024 / plan.threads;
        plan.partials = at_most(divide_up(rows, 8), divide_up(resident, plan.slices));
        plan.sums_bytes = (size_t)divide_up(rows * 2 * (plan.wide ? 8 : 4), 256) * 256;
    }
    if (!plan.few)
        plan.bytes = plan.sums_bytes + (size_t)(args->leaves * plan.partials * 2 * plan.pitch) *
                                           (plan.wide ? sizeof(double) : sizeof(float));
    *chosen = plan;
    return TUTTI_OK;
}

template<class T, int ELEMENTS, bool CENTERED, bool SKEWED>
static tutti_status launch_own(tutti_context *ctx, const tutti__norm_args *args,
                               const backward_plan &plan, const backward_scratch<float> &scratch,
                               const norm_backward_even &even)
{
    cudaStream_t stream = tutti__cuda_stream(ctx);
    if (SKEWED && tutti__cuda_norm_has_skewed(ctx, args, plan))
        return tutti__cuda_norm_backward_skewed(ctx, args, plan, scratch);
    const backward_ring ring = backward_ring_for(ctx, args, plan, SKEWED);
    auto launch = [&](auto kernel) {
        if (ring.bytes > 40 << 10) /* always the same value: contexts of other threads launch it */
            TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            tutti__cuda_shared_limit(ctx->device) - RING_SPARE),
                       "norm_backward");
        return row_launch("norm_backward", kernel,
                          dim3((unsigned)plan.partials, (unsigned)args->leaves), plan.threads, 1,
                          (size_t)ring.bytes, stream, *args, even,
                          backward_steps::of<T>(args, plan.partials * (plan.threads / plan.lanes)),
                          scratch, args->rows / args->leaves, plan.lanes, plan.tail, ring.depth);
    };
    if constexpr (sizeof(T) == 2 ? ELEMENTS == 16 && !SKEWED : ELEMENTS == 8)
        if (plan.crowded)
            return launch(norm_backward_kernel<T, ELEMENTS, CENTERED, SKEWED, false, true>);
    return plan.kind == backward_plan::WARP
               ? launch(norm_backward_kernel<T, ELEMENTS, CENTERED, SKEWED, true, false>)
               : launch(norm_backward_kernel<T, ELEMENTS, CENTERED, SKEWED, false, false>);
}

template<class T, int ELEMENTS>
static tutti_status launch_elements(tutti_context *ctx, const tutti__norm_args *args,
                                    const backward_plan &plan,
                                    const backward_scratch<float> &scratch)
{
    const norm_backward_even even = find_even(args, vector16<T>::N);
    const bool whole = even.is_whole(args, vector16<T>::N);
    auto kernels = args->centered ? whole ? launch_own<T, ELEMENTS, true, false>
                                          : launch_own<T, ELEMENTS, true, true>
                   : whole ? launch_own<T, ELEMENTS, false, false>
                                  : launch_own<T, ELEMENTS, false, true>;
    return kernels(ctx, args, plan, scratch, even);
}

template<class T>
static tutti_status backward_of(tutti_context *ctx, const tutti__norm_args *args,
                                const backward_plan &plan, const backward_scratch<float> &scratch)
{
    if (plan.elements == 8) return launch_elements<T, 8>(ctx, args, plan, scratch);
    return launch_elements<T, 16>(ctx, args, plan, scratch);
}

static tutti_status backward_own(tutti_context *ctx, const tutti__norm_args *args,
                                 const backward_plan &plan, const backward_scratch<float> &scratch)
{
    switch (args->x.dtype) {
    case TUTTI_F16:
        return backward_of<__half>(ctx, args, plan, scratch);
    case TUTTI_BF16:
        return backward_of<__nv_bfloat16>(ctx, args, plan, scratch);
    default:
        return backward_of<float>(ctx, args, plan, scratch);
    }
}

/* Adds the partial rows of a parameter, 0 gamma and 1 beta, or of both. */
template<class A, class G>
static tutti_status add_partials(tutti_context *ctx, const tutti__norm_args *args,
                                 const backward_plan &plan, const backward_scratch<A> &scratch,
                                 int which, bool both)
{
    const column_parts<A, G> parts = {scratch.row(0, which),
                                      plan.partials,
                                      args->cols,
                                      2 * plan.pitch,
                                      args->centered ? plan.pitch : 0,
                                      (G *)(which ? args->dbeta : args->dgamma),
                                      both ? (G *)args->dbeta : NULL,
                                      plan.partials * 2 * plan.pitch,
                                      which ? args->dbeta_apart : args->dgamma_apart,
                                      which ? args->dbeta_span : args->dgamma_span};
    return column_sums_finish("norm_backward", tutti__cuda_stream(ctx), parts, args->accumulate,
                              (unsigned)args->leaves, plan.kind == backward_plan::BLOCK);
}

template<class A, class G>
static tutti_status finish(tutti_context *ctx, const tutti__norm_args *args,
                           const backward_plan &plan, const backward_scratch<A> &scratch)
{
    if (args->rows == 0 && args->accumulate) return TUTTI_OK;
    const bool both = args->dgamma && args->dbeta && args->dgamma_apart == args->dbeta_apart &&
                      args->dgamma_span == args->dbeta_span;
    if (args->dgamma) TUTTI_TRY((add_partials<A, G>(ctx, args, plan, scratch, 0, both)));
    if (args->dbeta && !both) TUTTI_TRY((add_partials<A, G>(ctx, args, plan, scratch, 1, false)));
    return TUTTI_OK;
}

/* The rows of one leaf. */
static tutti__norm_args leaf_of(const tutti__norm_args *args, int leaf, size_t statistic)
{
    tutti__norm_args one = *args;
    one.rows = args->rows / args->leaves;
    one.leaves = 1;
    const int64_t first = leaf * one.rows;
    for (tutti__matrix *m : {&one.x, &one.dy, &one.dsum, &one.dx})
        if (m->data) m->data = tutti__cuda_at(m->data, m->dtype, first * m->stride);
    for (void **values : {&one.mean, &one.rstd})
        if (*values) *values = (char *)*values + (size_t)first * statistic;
    return one;
}

/* By the kernels that know no leaves. */
template<class A>
static tutti_status backward_by_leaf(tutti_context *ctx, const tutti__norm_args *args,
                                     const backward_plan &plan, backward_scratch<A> scratch)
{
    if (plan.kind == backward_plan::GRID)
        TUTTI_CUDA(cudaMemsetAsync(scratch.sums, 0, plan.sums_bytes, tutti__cuda_stream(ctx)),
                   "norm_backward");
    for (int leaf = 0; leaf < args->leaves; leaf++) {
        const tutti__norm_args one = leaf_of(args, leaf, sizeof(A));
        if (plan.kind == backward_plan::SLICED)
            TUTTI_TRY(tutti__cuda_norm_backward_sliced(ctx, &one, plan, scratch));
        else if constexpr (sizeof(A) == sizeof(float)) {
            if (plan.kind == backward_plan::GRID)
                TUTTI_TRY(tutti__cuda_norm_backward_grid(ctx, &one, plan, scratch,
                                                         1 + (uint32_t)(leaf * one.rows)));
            else
                TUTTI_TRY(tutti__cuda_norm_backward_cluster(ctx, &one, plan, scratch));
        }
        scratch.partial += plan.partials * 2 * plan.pitch;
    }
    return TUTTI_OK;
}

template<class A>
static tutti_status backward(tutti_context *ctx, const tutti__norm_args *args,
                             const backward_plan &plan, void *memory)
{
    backward_scratch<A> scratch = {(A *)((char *)memory + plan.sums_bytes), (A *)memory,
                                   plan.pitch};
    if (args->rows > 0) {
        if (plan.kind == backward_plan::SLICED || plan.kind == backward_plan::CLUSTER ||
            plan.kind == backward_plan::GRID)
            TUTTI_TRY(backward_by_leaf(ctx, args, plan, scratch));
        else if (plan.kind == backward_plan::KEPT)
            TUTTI_TRY(tutti__cuda_norm_backward_kept(ctx, args, plan, scratch));
        else if constexpr (sizeof(A) == sizeof(float))
            TUTTI_TRY(backward_own(ctx, args, plan, scratch));
    }
    return args->grad_dtype == TUTTI_F64 ? finish<A, double>(ctx, args, plan, scratch)
                                         : finish<A, float>(ctx, args, plan, scratch);
}

static tutti_status norm_plan(tutti_context *ctx, const void *untyped, bool backward,
                              tutti__plan *plan)
{
    const tutti__norm_args *args = (const tutti__norm_args *)untyped;
    if (!backward) {
        tutti__cuda_norm_forward_plan(ctx, args, plan);
        return TUTTI_OK;
    }
    backward_plan *chosen = tutti__cuda_parameters<backward_plan>(plan);
    TUTTI_TRY(plan_backward(ctx, args, chosen));
    plan->scratch = chosen->bytes;
    return TUTTI_OK;
}

static tutti_status norm_backward(const tutti__job *job, const void *untyped)
{
    const tutti__norm_args *args = (const tutti__norm_args *)untyped;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, "norm_backward"));
    const backward_plan &plan = *tutti__cuda_parameters<backward_plan>(job->plan);
    if (plan.few) return tutti__cuda_norm_backward_few(job->ctx, args, plan);
    return plan.wide ? backward<double>(job->ctx, args, plan, job->scratch)
                     : backward<float>(job->ctx, args, plan, job->scratch);
}

extern "C" const tutti__op tutti__cuda_norm = {norm_plan, tutti__cuda_norm_forward, norm_backward};
