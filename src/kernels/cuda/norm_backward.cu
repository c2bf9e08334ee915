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
 *   warp    up to 512 columns: a group of lanes a row
 *   block   a block or a cluster a row, up to 65536 columns; RMSNorm of 16-bit types to 131072
 *   sliced  all others, and pairings that nobody trains with (norm_backward_sliced.cu) */
#include "kernels/cuda/norm_backward.cuh"
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/row_ring.cuh"

enum { WARP_THREADS = 256, FINISH_THREADS = 1024 };

/* The most threads of a block with 8 elements a thread; with 16. */
constexpr int FEW_THREADS = 288, MORE_THREADS = 512, MOST_THREADS = 1024;

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

/* Of gamma in shared memory, ahead of the ring. */
__host__ __device__ constexpr int gamma_words(int threads, int elements)
{
    return (threads * elements / 4 + 7) / 8 * 8;
}

/* A row's threads (Team) and what they keep from row to row. */
template<class T, int ELEMENTS, bool CENTERED, bool SKEWED, bool TIGHT = SKEWED>
struct backward_rows {
    static constexpr int N = vector16<T>::N, VECS = ELEMENTS / N;
    const tutti__norm_args &args;
    row_ring<T, VECS, SKEWED> ring;
    uint32_t gamma, words; /* this thread's, N / 4 words a vector; bytes between two */
    int cols;
    float dgamma[VECS][N] = {}, dbeta[CENTERED ? VECS : 1][N] = {};
    float mean = 0, rstd = 0, next_mean = 0, next_rstd = 0;

    __device__ __forceinline__ backward_rows(const tutti__norm_args &a, void *shared,
                                             row_place place, int depth)
        : args(a), ring(shared, place, a.dsum.data ? 3 : 2, depth), cols((int)a.cols)
    {
    }

    /* The same columns' gamma of all rows of a block: `first` one of them stores it. */
    __device__ __forceinline__ void store_gamma(float4 *shared, bool leads, bool even)
    {
        const int apart = ring.place.step;
        float4 *to = shared + ring.place.first % apart;
        words = (uint32_t)apart * 16;
        gamma = (uint32_t)__cvta_generic_to_shared(to);
        if (!leads) return;
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            const int col = ring.place.template column<T>(k);
            float values[N];
#pragma unroll
            for (int i = 0; i < N; i++) values[i] = 1;
            if (args.gamma && col < cols) {
                load_param(values, args.gamma, args.param_dtype, col, cols - col, even);
                if (args.zero_centered) {
#pragma unroll
                    for (int i = 0; i < N; i++) values[i] += 1;
                }
            }
#pragma unroll
            for (int q = 0; q < N / 4; q++)
                to[(k * (N / 4) + q) * apart] = make_float4(values[4 * q], values[4 * q + 1],
                                                            values[4 * q + 2], values[4 * q + 3]);
        }
    }

    template<class U>
    static __device__ __forceinline__ const T *row_of(const U &matrix, int64_t row)
    {
        return (const T *)matrix.data + row * matrix.stride;
    }

    __device__ __forceinline__ void request(int64_t row)
    {
        if (row < args.rows) {
            ring.request(0, row_of(args.x, row), cols);
            ring.request(1, row_of(args.dy, row), cols);
            if (args.dsum.data) ring.request(2, row_of(args.dsum, row), cols);
        }
        ring.send();
    }
    /* Those of the row that was asked for before; asks for the next row's. */
    __device__ __forceinline__ void load_statistics(int64_t next)
    {
        rstd = next_rstd, mean = next_mean;
        /* which ptxas does not know: it would move a number that all lanes load to a uniform
         * register, and wait for it */
        const unsigned zero = __shfl_sync(0xffffffffu, 0u, 0);
        if (next >= args.rows) return;
        next_rstd = ((const float *)args.rstd + next)[zero];
        if (CENTERED) next_mean = ((const float *)args.mean + next)[zero];
    }

    struct vectors {
        float n[N], dy[N], gamma[N]; /* n: the normalised x */
    };
    __device__ __forceinline__ vectors take(int k, unsigned x_skew, unsigned dy_skew) const
    {
        vectors v;
        unpack(ring.take(0, k, x_skew), v.n);
        unpack(ring.take(1, k, dy_skew), v.dy);
#pragma unroll
        for (int q = 0; q < N / 4; q++) {
            const uint4 raw = read16(gamma + (k * (N / 4) + q) * words);
            memcpy(&v.gamma[4 * q], &raw, sizeof raw);
        }
#pragma unroll
        for (int i = 0; i < N; i++) v.n[i] = (CENTERED ? v.n[i] - mean : v.n[i]) * rstd;
        return v;
    }
    static __device__ __forceinline__ void unpack(const uint4 &raw, float (&values)[N])
    {
        ::unpack<T>(raw, values);
    }

    /* The row in stage `from`; with `there` false there is none, but its threads take part in the
     * sums. */
    template<class Team>
    __device__ __forceinline__ void run(Team &team, int64_t row, bool there, float inverse_cols)
    {
        unsigned x_skew = 0, dy_skew = 0;
        if (SKEWED && there) {
            x_skew = skew_of(row_of(args.x, row));
            dy_skew = skew_of(row_of(args.dy, row));
        }
        float sums[CENTERED ? 2 : 1] = {}; /* of g * n, and of g */
        if (there) {
#pragma unroll
            for (int k = 0; k < VECS; k++) {
                const vectors v = take(k, x_skew, dy_skew);
#pragma unroll
                for (int i = 0; i < N; i++) {
                    const float g = __fmul_rn(v.dy[i], v.gamma[i]);
                    sums[0] = fmaf(g, v.n[i], sums[0]);
                    dgamma[k][i] = fmaf(v.dy[i], v.n[i], dgamma[k][i]);
                    if constexpr (CENTERED) {
                        sums[1] += g;
                        dbeta[k][i] += v.dy[i];
                    }
                }
            }
        }
        if (!args.dx.data) return;
        team.template reduce<row_add>(sums);
        /* whole warps store skewed rows */
        if (!SKEWED && !there) return;
        const float mean_gn = sums[0] * inverse_cols;
        const float mean_g = CENTERED ? sums[CENTERED] * inverse_cols : 0;
        if (!there) row = 0;
        if (TIGHT || args.dsum.data) /* two would need more registers */
            write<true>(row, there ? cols : 0, mean_gn, mean_g, x_skew, dy_skew);
        else
            write<false>(row, there ? cols : 0, mean_gn, mean_g, x_skew, dy_skew);
    }

    template<bool DSUM>
    __device__ __forceinline__ void write(int64_t row, int count, float mean_gn, float mean_g,
                                          unsigned x_skew, unsigned dy_skew)
    {
        T *dx = (T *)args.dx.data + row * args.dx.stride;
        const unsigned sum_skew = SKEWED && args.dsum.data ? skew_of(row_of(args.dsum, row)) : 0;
        uint4 out[SKEWED ? VECS : 1];
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            vectors v = take(k, x_skew, dy_skew);
#pragma unroll
            for (int i = 0; i < N; i++)
                v.dy[i] = rstd * fmaf(-v.n[i], mean_gn, __fmul_rn(v.dy[i], v.gamma[i]) - mean_g);
            if (DSUM && (!TIGHT || args.dsum.data)) {
                unpack(ring.take(2, k, sum_skew), v.n);
#pragma unroll
                for (int i = 0; i < N; i++) v.dy[i] = __fadd_rn(v.dy[i], v.n[i]);
            }
            if constexpr (SKEWED)
                out[k] = pack<T>(v.dy);
            else if (ring.place.template column<T>(k) < count)
                store_pack(dx + ring.place.template column<T>(k), v.dy);
        }
        if constexpr (SKEWED) store_row(dx, out, ring.place, count);
    }
};

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

/* A block or a cluster a row. */
template<class T, int ELEMENTS, bool CENTERED, bool SKEWED, int THREADS, bool CLUSTER>
__global__ void __launch_bounds__(THREADS, block_blocks(ELEMENTS, sizeof(T) == 2 || !SKEWED))
    norm_backward_block_kernel(tutti__norm_args args, norm_backward_even even,
                               backward_scratch<float> scratch, int cluster, int depth)
{
    extern __shared__ __align__(128) uint4 shared[];
    constexpr int N = vector16<T>::N, VECS = ELEMENTS / N, VALUES = CENTERED ? 2 : 1;
    __shared__ block_team_slots<float, VALUES> slots;
    start_next();
    if (!CLUSTER) cluster = 1; /* which spares the branches */
    block_team<float, VALUES> team(slots, cluster);
    const int threads = blockDim.x, cols = (int)args.cols;
    const int64_t partial_row = blockIdx.x / cluster, stride = gridDim.x / cluster;
    backward_rows<T, ELEMENTS, CENTERED, SKEWED, SKEWED || THREADS == MOST_THREADS> rows(
        args, shared + gamma_words(threads, ELEMENTS),
        row_place{team.rank * threads * VECS + (int)threadIdx.x, threads, 32}, depth);
    rows.ring.clear_beyond(cols);
    int64_t row = partial_row;
    for (int d = 0; d < depth - 1; d++) rows.request(row + d * stride);
    rows.load_statistics(row);
    rows.store_gamma((float4 *)shared, true, even.gamma);
    team.begin();
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

/* Up to 512 columns a group of lanes has a row; otherwise a block or a cluster.  1024 threads have
 * too few registers for LayerNorm's sums, and of f32 they would leave no room for a second row. */
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
    const int most = narrow && !args->centered ? MOST_THREADS : MORE_THREADS;
    while (cols > (int64_t)plan->elements * most * plan->cluster) plan->cluster *= 2;
    const int64_t each = plan->elements * plan->cluster;
    plan->threads = row_round_up((int)divide_up(cols, each), 32);
    const int threads = (plan->elements == 8            ? FEW_THREADS
                         : plan->threads > MORE_THREADS ? MOST_THREADS
                                                        : MORE_THREADS) *
                        block_blocks(plan->elements, narrow || whole);
    plan->resident = threads / plan->threads;
}

static backward_plan plan_backward(const tutti_context *ctx, const tutti__norm_args *args)
{
    int64_t rows = args->rows, cols = args->cols, sms = tutti__cuda_sm_count(ctx->device);
    backward_plan plan = {};
    plan.wide = tutti__accumulate_dtype(args->x.dtype, args->param_dtype) == TUTTI_F64;
    plan.pitch = divide_up(cols, 16) * 16;
    plan.lanes = 32;
    plan.cluster = 1;
    const bool own = !plan.wide && args->dy.dtype == args->x.dtype;
    if (own) plan_own(&plan, args);
    if (own && (plan.cluster == 1 ||
                (plan.cluster <= ROW_CLUSTER_MAX && tutti__cuda_has_clusters(ctx->device)))) {
        /* a partial row costs as much as a few rows of x */
        const int64_t at_a_time = plan.kind == backward_plan::WARP ? WARP_THREADS / plan.lanes : 1;
        plan.partials = at_most(divide_up(rows, at_a_time * 4),
                                plan.cluster == 1 ? sms * plan.resident : sms / plan.cluster * 4);
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
    return plan;
}

/* Stages of the ring and bytes of shared memory. */
struct ring_size {
    int depth, bytes;
};

static ring_size size_ring(const tutti_context *ctx, const tutti__norm_args *args,
                           const backward_plan &plan, bool skewed)
{
    const bool warp = plan.kind == backward_plan::WARP;
    const int element = (int)tutti_dtype_size(args->x.dtype), lanes = warp ? plan.lanes : 32;
    const int stage = ring_words(plan.threads, lanes, skewed) * plan.elements * element *
                      (args->dsum.data ? 3 : 2);
    const int gamma = gamma_words(warp ? lanes : plan.threads, plan.elements) * 16;
    const int limit = tutti__cuda_shared_limit(ctx->device) / plan.resident - RING_SPARE;
    ring_size size = {plan.elements == 8 ? 4 : 3, 0};
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
    const ring_size ring = size_ring(ctx, args, plan, SKEWED);
    auto launch = [&](auto kernel, int team) {
        if (ring.bytes > 40 << 10) /* always the same value: contexts of other threads launch it */
            TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            tutti__cuda_shared_limit(ctx->device) - RING_SPARE),
                       "norm_backward");
        return row_launch("norm_backward", kernel, (unsigned)(plan.partials * plan.cluster),
                          plan.threads, plan.cluster, (size_t)ring.bytes, stream, *args, even,
                          scratch, team, ring.depth);
    };
    if constexpr (ELEMENTS <= 16)
        if (plan.kind == backward_plan::WARP)
            return launch(norm_backward_warp_kernel<T, ELEMENTS, CENTERED, SKEWED>, plan.lanes);
    auto block = [&](auto most) {
        constexpr int THREADS = decltype(most)::value;
        if constexpr (ELEMENTS == 16)
            if (plan.cluster > 1)
                return launch(
                    norm_backward_block_kernel<T, ELEMENTS, CENTERED, SKEWED, THREADS, true>,
                    plan.cluster);
        return launch(norm_backward_block_kernel<T, ELEMENTS, CENTERED, SKEWED, THREADS, false>, 1);
    };
    if constexpr (ELEMENTS == 16 && sizeof(T) == 2 && !CENTERED)
        if (plan.threads > MORE_THREADS) return block(std::integral_constant<int, MOST_THREADS>{});
    return block(std::integral_constant < int, ELEMENTS == 8 ? FEW_THREADS : MORE_THREADS > {});
}

template<class T, int ELEMENTS>
static tutti_status launch_elements(tutti_context *ctx, const tutti__norm_args *args,
                                    const backward_plan &plan,
                                    const backward_scratch<float> &scratch)
{
    const norm_backward_even even = find_even(args, vector16<T>::N);
    const bool whole =
        even.x && even.dy && even.dsum && even.dx && args->cols % vector16<T>::N == 0;
    auto kernels = args->centered ? whole ? launch_own<T, ELEMENTS, true, false>
                                          : launch_own<T, ELEMENTS, true, true>
                   : whole ? launch_own<T, ELEMENTS, false, false>
                                  : launch_own<T, ELEMENTS, false, true>;
    return kernels(ctx, args, plan, scratch, even);
}

template<class T>
static tutti_status backward_own(tutti_context *ctx, const tutti__norm_args *args,
                                 const backward_plan &plan, const backward_scratch<float> &scratch)
{
    if (plan.elements == 8) return launch_elements<T, 8>(ctx, args, plan, scratch);
    return launch_elements<T, 16>(ctx, args, plan, scratch);
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
            switch (args->x.dtype) {
            case TUTTI_F16:
                TUTTI_TRY(backward_own<__half>(ctx, args, plan, scratch));
                break;
            case TUTTI_BF16:
                TUTTI_TRY(backward_own<__nv_bfloat16>(ctx, args, plan, scratch));
                break;
            default:
                TUTTI_TRY(backward_own<float>(ctx, args, plan, scratch));
                break;
            }
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
    *chosen = plan_backward(ctx, args);
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
