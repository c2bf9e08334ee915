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
 *   warp     up to 512 columns: a group of lanes a row
 *   block    up to 8192 columns: a block a row
 *   cluster  up to 65536 columns of f32, 131072 of 16-bit types: a cluster of blocks a row
 *            (norm_backward_cluster.cu)
 *   sliced   all others, and pairings that nobody trains with (norm_backward_sliced.cu) */
#include "kernels/cuda/norm_backward_rows.cuh"

enum { WARP_THREADS = 256, FINISH_THREADS = 1024 };

/* Of the warp kernel; narrow: whole vectors of a 16-bit type. */
__host__ __device__ constexpr int warp_blocks(int elements, bool centered, bool narrow)
{
    return elements == 8 ? 3 + narrow : centered ? 2 : 2 + narrow;
}

/* Of the block kernel with the most threads that it takes; easy: not both f32 and skewed. */
__host__ __device__ constexpr int block_blocks(int elements, bool easy)
{
    return elements == 8 ? 2 + easy : 1;
}

/* A group of lanes a row, up to 16 elements a lane; the block's groups are added at the end, in
 * the memory of the ring. */
template<class T, int ELEMENTS, bool CENTERED, bool SKEWED>
__global__ void __launch_bounds__(WARP_THREADS,
                                  warp_blocks(ELEMENTS, CENTERED, sizeof(T) == 2 && !SKEWED))
    norm_backward_warp_kernel(tutti__norm_args args, norm_backward_even even,
                              backward_scratch<float> scratch, int lanes, int depth)
{
    extern __shared__ __align__(128) uint4 shared[];
    constexpr int N = vector16<T>::N, VECS = ELEMENTS / N, WARPS = WARP_THREADS / 32;
    start_next();
    lane_team team = {lanes};
    const int lane = threadIdx.x % lanes, group = threadIdx.x / lanes;
    const int groups = WARP_THREADS / lanes, cols = (int)args.cols;
    const int64_t stride = (int64_t)gridDim.x * groups;
    float4 *gamma = (float4 *)shared;
    backward_rows<T, ELEMENTS, CENTERED, SKEWED> rows(args, shared + gamma_words(lanes, ELEMENTS),
                                                      row_place{lane, lanes, lanes}, depth);
    rows.ring.clear_beyond(cols);
    int64_t base = (int64_t)blockIdx.x * groups;
    for (int d = 0; d < depth - 1; d++) rows.request(base + d * stride + group);
    rows.load_statistics(base + group);
    rows.store_gamma(gamma, group == 0, even.gamma);
    __syncthreads();
    /* whole warps go round together: a group past the end has zeros but takes part in the
     * shuffles */
    for (; base < args.rows; base += stride) {
        rows.load_statistics(base + stride + group);
        rows.request(base + (depth - 1) * stride + group);
        rows.ring.wait(depth - 1);
        rows.run(team, base + group, base + group < args.rows, even.inverse_cols);
        rows.ring.release();
    }

    /* groups of a warp, then warps of the block */
    float(*merged)[32 * ELEMENTS] = (float(*)[32 * ELEMENTS]) shared;
    const int warp = threadIdx.x / 32;
    auto merge = [&](float(&values)[VECS][N], int which) {
        __syncthreads();
        for (int offset = 16; offset >= lanes; offset /= 2)
#pragma unroll
            for (int k = 0; k < VECS; k++)
#pragma unroll
                for (int i = 0; i < N; i++)
                    values[k][i] += __shfl_xor_sync(0xffffffffu, values[k][i], offset);
        if (threadIdx.x % 32 < lanes) {
#pragma unroll
            for (int k = 0; k < VECS; k++)
#pragma unroll
                for (int i = 0; i < N; i++)
                    merged[warp][rows.ring.place.template column<T>(k) + i] = values[k][i];
        }
        __syncthreads();
        float *to = scratch.row(blockIdx.x, which);
        for (int col = threadIdx.x; col < cols; col += WARP_THREADS) {
            float sum = 0;
            for (int w = 0; w < WARPS; w++) sum += merged[w][col];
            to[col] = sum;
        }
    };
    if (args.dgamma) merge(rows.dgamma, 0);
    if constexpr (CENTERED)
        if (args.dbeta) merge(rows.dbeta, 1);
}

/* A block a row. */
template<class T, int ELEMENTS, bool CENTERED, bool SKEWED>
__global__ void __launch_bounds__(ELEMENTS == 8 ? FEW_THREADS : MORE_THREADS,
                                  block_blocks(ELEMENTS, sizeof(T) == 2 || !SKEWED))
    norm_backward_block_kernel(tutti__norm_args args, norm_backward_even even,
                               backward_scratch<float> scratch, int depth)
{
    extern __shared__ __align__(128) uint4 shared[];
    constexpr int N = vector16<T>::N, VECS = ELEMENTS / N, VALUES = CENTERED ? 2 : 1;
    __shared__ block_team_slots<float, VALUES> slots;
    start_next();
    block_team<float, VALUES> team(slots, 1);
    const int threads = blockDim.x, cols = (int)args.cols;
    const int64_t partial_row = blockIdx.x, stride = gridDim.x;
    backward_rows<T, ELEMENTS, CENTERED, SKEWED> rows(args, shared + gamma_words(threads, ELEMENTS),
                                                      row_place{(int)threadIdx.x, threads, 32},
                                                      depth);
    rows.ring.clear_beyond(cols);
    int64_t row = partial_row;
    for (int d = 0; d < depth - 1; d++) rows.request(row + d * stride);
    rows.load_statistics(row);
    rows.store_gamma((float4 *)shared, true, even.gamma);
    for (; row < args.rows; row += stride) {
        rows.load_statistics(row + stride);
        rows.request(row + (depth - 1) * stride);
        rows.ring.wait(depth - 1);
        rows.run(team, row, true, even.inverse_cols);
        rows.ring.release();
    }
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

/* Adds the partial rows, 32 columns per block: each of 32 warps every 32nd row, then the warps as a
 * tree. */
template<class A, class G>
__global__ void __launch_bounds__(FINISH_THREADS)
    norm_backward_finish_kernel(backward_scratch<A> scratch, int64_t partials, int cols, G *dgamma,
                                G *dbeta, bool accumulate)
{
    constexpr int WARPS = FINISH_THREADS / 32;
    __shared__ A sums[WARPS][33];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int slices = (cols + 31) / 32;
    /* if only one gradient is wanted there are blocks for one only */
    const int which = dgamma ? (int)blockIdx.x / slices : 1;
    const int first = (int)blockIdx.x % slices * 32;
    wait_for_previous();
    A sum = 0;
    if (first + lane < cols) {
#pragma unroll 8
        for (int64_t p = warp; p < partials; p += WARPS) sum += scratch.row(p, which)[first + lane];
    }
    sums[warp][lane] = sum;
    __syncthreads();
    A total[1] = {sums[lane][warp]};
    reduce_lanes<row_add>(total, 32);
    if (lane > 0 || first + warp >= cols) return;
    G *to = (which ? dbeta : dgamma) + first + warp;
    *to = accumulate ? *to + (G)total[0] : (G)total[0];
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

/* Up to 512 columns a group of lanes has a row; otherwise a block or a cluster, whose blocks have
 * 8192 columns, of f32 4096: so the ring holds five rows. */
static void plan_own(backward_plan *plan, const tutti__norm_args *args)
{
    const int64_t cols = args->cols;
    const bool narrow = tutti_dtype_size(args->x.dtype) == 2, whole = cols % (narrow ? 8 : 4) == 0;
    if (cols <= 512) {
        plan->kind = backward_plan::WARP;
        plan->elements = cols <= 256 ? 8 : 16;
        plan->threads = WARP_THREADS;
        plan->resident = warp_blocks(plan->elements, args->centered, narrow && whole);
        while (plan->lanes > 1 && plan->lanes / 2 * plan->elements >= cols) plan->lanes /= 2;
        return;
    }
    plan->kind = backward_plan::BLOCK;
    plan->elements = cols <= 8 * FEW_THREADS ? 8 : 16;
    if (cols > (int64_t)plan->elements * MORE_THREADS) {
        plan->kind = backward_plan::CLUSTER;
        plan->elements = narrow ? 16 : 8;
        while (cols > (int64_t)plan->elements * MORE_THREADS * plan->cluster) plan->cluster *= 2;
    }
    const int64_t each = plan->elements * plan->cluster;
    plan->threads = row_round_up((int)divide_up(cols, each), 32);
    const int threads = (plan->elements == 8 ? FEW_THREADS : MORE_THREADS) *
                        block_blocks(plan->elements, narrow || whole);
    plan->resident = plan->cluster > 1 ? 1 : threads / plan->threads;
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

static tutti_status plan_backward(const tutti_context *ctx, const tutti__norm_args *args,
                                  backward_plan *chosen)
{
    int64_t rows = args->rows, cols = args->cols, sms = tutti__cuda_sm_count(ctx->device);
    backward_plan plan = {};
    plan.wide = tutti__accumulate_dtype(args->x.dtype, args->param_dtype) == TUTTI_F64;
    plan.pitch = divide_up(cols, 16) * 16;
    plan.lanes = 32;
    plan.cluster = 1;
    const bool own = !plan.wide && args->dy.dtype == args->x.dtype;
    int cluster_max = 1;
    if (own) plan_own(&plan, args);
    if (plan.cluster > 1) TUTTI_TRY(tutti__cuda_norm_cluster_max(ctx->device, &cluster_max));
    if (own && plan.cluster <= cluster_max) {
        /* a partial row costs as much as a few rows of x */
        const int64_t at_a_time = plan.kind == backward_plan::WARP ? WARP_THREADS / plan.lanes : 1;
        plan.partials = at_most(divide_up(rows, at_a_time * 4), resident_rows(plan, sms));
    } else {
        plan.kind = backward_plan::SLICED;
        plan.threads = 32;
        while (plan.threads < BACKWARD_ANY_THREADS && plan.threads * BACKWARD_ANY_WIDTH < cols)
            plan.threads *= 2;
        plan.slices = (int)divide_up(cols, plan.threads * BACKWARD_ANY_WIDTH);
        int64_t resident = sms * 1024 / plan.threads;
        plan.partials = at_most(divide_up(rows, 8), divide_up(resident, plan.slices));
        plan.sums_bytes = (size_t)divide_up(rows * 2 * (plan.wide ? 8 : 4), 256) * 256;
    }
    plan.bytes = plan.sums_bytes + (size_t)(plan.partials * 2 * plan.pitch) *
                                       (plan.wide ? sizeof(double) : sizeof(float));
    *chosen = plan;
    return TUTTI_OK;
}

backward_ring backward_ring_for(const tutti_context *ctx, const tutti__norm_args *args,
                                const backward_plan &plan, bool skewed)
{
    const bool warp = plan.kind == backward_plan::WARP;
    const int element = (int)tutti_dtype_size(args->x.dtype), lanes = warp ? plan.lanes : 32;
    const int stage = ring_words(plan.threads, lanes, skewed) * plan.elements * element *
                      (args->dsum.data ? 3 : 2);
    const int gamma = gamma_words(warp ? lanes : plan.threads, plan.elements) * 16;
    const int limit = tutti__cuda_shared_limit(ctx->device) / plan.resident - RING_SPARE;
    backward_ring size = {plan.kind == backward_plan::CLUSTER ? 5 : plan.elements == 8 ? 4 : 3, 0};
    while (size.depth > 1 && gamma + size.depth * stage > limit) size.depth--;
    size.bytes = gamma + size.depth * stage;
    const int merged = WARP_THREADS * plan.elements * (int)sizeof(float);
    if (warp && size.bytes < merged) size.bytes = merged;
    return size;
}

template<class T, int ELEMENTS, bool CENTERED, bool SKEWED>
static tutti_status launch_own(tutti_context *ctx, const tutti__norm_args *args,
                               const backward_plan &plan, const backward_scratch<float> &scratch,
                               const norm_backward_even &even)
{
    cudaStream_t stream = tutti__cuda_stream(ctx);
    const backward_ring ring = backward_ring_for(ctx, args, plan, SKEWED);
    auto launch = [&](auto kernel, auto... lanes) {
        if (ring.bytes > 40 << 10) /* always the same value: contexts of other threads launch it */
            TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            tutti__cuda_shared_limit(ctx->device) - RING_SPARE),
                       "norm_backward");
        return row_launch("norm_backward", kernel, (unsigned)plan.partials, plan.threads, 1,
                          (size_t)ring.bytes, stream, *args, even, scratch, lanes..., ring.depth);
    };
    if (plan.kind == backward_plan::WARP)
        return launch(norm_backward_warp_kernel<T, ELEMENTS, CENTERED, SKEWED>, plan.lanes);
    return launch(norm_backward_block_kernel<T, ELEMENTS, CENTERED, SKEWED>);
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

template<class A>
static tutti_status finish(tutti_context *ctx, const tutti__norm_args *args,
                           const backward_plan &plan, const backward_scratch<A> &scratch)
{
    if (!args->dgamma && !args->dbeta) return TUTTI_OK;
    if (args->rows == 0 && args->accumulate) return TUTTI_OK;
    int wanted = (args->dgamma ? 1 : 0) + (args->dbeta ? 1 : 0);
    const unsigned grid = (unsigned)(divide_up(args->cols, 32) * wanted);
    auto add = [&](auto zero) {
        using G = decltype(zero);
        return launch_early("norm_backward", ctx->device, norm_backward_finish_kernel<A, G>, grid,
                            dim3(FINISH_THREADS), tutti__cuda_stream(ctx), scratch, plan.partials,
                            args->cols, (G *)args->dgamma, (G *)args->dbeta, args->accumulate);
    };
    return args->grad_dtype == TUTTI_F64 ? add(0.0) : add(0.0f);
}

template<class A>
static tutti_status backward(tutti_context *ctx, const tutti__norm_args *args,
                             const backward_plan &plan, void *memory)
{
    backward_scratch<A> scratch = {(A *)((char *)memory + plan.sums_bytes), (A *)memory,
                                   plan.pitch};
    if (args->rows > 0) {
        if (plan.kind == backward_plan::SLICED)
            TUTTI_TRY(tutti__cuda_norm_backward_sliced(ctx, args, plan, scratch));
        else if constexpr (sizeof(A) == sizeof(float)) {
            if (plan.kind == backward_plan::CLUSTER)
                TUTTI_TRY(tutti__cuda_norm_backward_cluster(ctx, args, plan, scratch));
            else
                TUTTI_TRY(backward_own(ctx, args, plan, scratch));
        }
    }
    return finish<A>(ctx, args, plan, scratch);
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
    return plan.wide ? backward<double>(job->ctx, args, plan, job->scratch)
                     : backward<float>(job->ctx, args, plan, job->scratch);
}

extern "C" const tutti__op tutti__cuda_norm = {norm_plan, tutti__cuda_norm_forward, norm_backward};
