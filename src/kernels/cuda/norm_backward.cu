/* LayerNorm and RMSNorm, backward: dx, dgamma and dbeta.  include/tutti/layernorm.h has the
 * mathematics.
 *
 * Fewest bytes: x and dy read, dx written, once each.  Few persistent blocks (no more than the
 * device holds at a time) loop over the rows, so that each thread always has the same columns and
 * keeps their gamma and its part of dgamma and dbeta in registers; the next row's x and dy are
 * loaded while a row is reduced.  At the end each block writes one partial row per parameter to
 * scratch, and a second kernel adds these in order.
 *
 *   warp    up to 512 columns: a group of lanes a row
 *   block   up to 8192: a block a row; up to 65536: a cluster of blocks a row
 *   sliced  all others, and pairings that nobody trains with: the two means of each row first, then
 *           blocks that own a slice of the columns read x and dy again */
#include "kernels/cuda/norm.cuh"

enum {
    WARP_THREADS = 256,
    ANY_WIDTH = 8,
    ANY_THREADS = 256,
    SUMS_THREADS = 512,
    FINISH_THREADS = 1024
};

/* How a call is run, which depends on shape, types and device, never on pointers or on which
 * gradients are wanted. */
struct backward_plan {
    enum { WARP, BLOCK, SLICED } kind;
    int elements; /* a thread has of a row */
    int lanes, threads, cluster;
    int slices;       /* sliced: blocks side by side */
    int64_t partials; /* rows of partial sums: blocks, or clusters, or chunks of rows */
    bool wide;        /* f64 */
    int64_t pitch;    /* of a partial row */
    size_t sums_bytes, bytes;
};

/* Partial row p of dgamma is row 2p, that of dbeta row 2p + 1. */
template<class A>
struct backward_scratch {
    A *partial, *sums;
    int64_t pitch;
    __device__ __forceinline__ A *row(int64_t partial_row, int which) const
    {
        return partial + (partial_row * 2 + which) * pitch;
    }
};

struct norm_backward_even {
    bool x, dy, dsum, dx, gamma;
    float inverse_cols;
};

/* A thread's share of a parameter and of its gradients. */
template<class T, int VECS>
struct param_share {
    static constexpr int N = vector16<T>::N;
    float gamma[VECS][N], dgamma[VECS][N], dbeta[VECS][N];

    __device__ __forceinline__ void begin(const tutti__norm_args &args, row_place place, bool even)
    {
        int cols = (int)args.cols;
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            int col = place.column<T>(k);
#pragma unroll
            for (int i = 0; i < N; i++) gamma[k][i] = 1, dgamma[k][i] = 0, dbeta[k][i] = 0;
            if (!args.gamma || col >= cols) continue;
            load_param(gamma[k], args.gamma, args.param_dtype, col, cols - col, even);
            if (args.zero_centered) {
#pragma unroll
                for (int i = 0; i < N; i++) gamma[k][i] += 1;
            }
        }
    }
};

/* A row of x and dy in flight. */
template<class T, int VECS>
struct row_pair {
    uint4 x[VECS], dy[VECS];
    float mean, rstd;

    __device__ __forceinline__ void load(const tutti__norm_args &args, int64_t row, row_place place)
    {
        bool there = row < args.rows;
        int cols = there ? (int)args.cols : 0;
        if (!there) row = 0;
        load_row<T>(x, (const T *)args.x.data + row * args.x.stride, place, cols);
        load_row<T>(dy, (const T *)args.dy.data + row * args.dy.stride, place, cols);
        mean = there && args.centered ? ((const float *)args.mean)[row] : 0.0f;
        rstd = there ? ((const float *)args.rstd)[row] : 0.0f;
    }
};

/* f32 has as many bytes in flight without the next row, and no registers left for it. */
template<class T>
constexpr bool PREFETCH = sizeof(T) == 2;

template<class T, int VECS, bool CENTERED, class Team>
__device__ __forceinline__ void
norm_backward_row(const tutti__norm_args &args, const norm_backward_even &even, Team &team,
                  int64_t row, row_place place, row_pair<T, VECS> &pair,
                  param_share<T, VECS> &share)
{
    using vector = vector16<T>;
    constexpr int N = vector::N;
    int cols = (int)args.cols;
    float mean = CENTERED ? pair.mean : 0.0f, rstd = pair.rstd;

    /* sum of g * n, and of g */
    float sums[CENTERED ? 2 : 1] = {};
#pragma unroll
    for (int k = 0; k < VECS; k++) {
        float x[N], dy[N];
        vector::unpack(pair.x[k], x);
        vector::unpack(pair.dy[k], dy);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float n = (x[i] - mean) * rstd, g = dy[i] * share.gamma[k][i];
            sums[0] += g * n;
            share.dgamma[k][i] += dy[i] * n;
            if (CENTERED) {
                sums[CENTERED ? 1 : 0] += g;
                share.dbeta[k][i] += dy[i];
            }
        }
    }
    if (!args.dx.data) return;
    team.template reduce<row_add>(sums);
    int there = row < args.rows ? cols : 0;
    if (!there) row = 0;
    float mean_gn = sums[0] * even.inverse_cols;
    float mean_g = CENTERED ? sums[CENTERED ? 1 : 0] * even.inverse_cols : 0.0f;
    uint4 dsum[VECS];
    if (args.dsum.data)
        load_row<T>(dsum, (const T *)args.dsum.data + row * args.dsum.stride, place, there);
#pragma unroll
    for (int k = 0; k < VECS; k++) {
        float x[N], dy[N];
        hold_packed<T>(pair.x[k]);
        hold_packed<T>(pair.dy[k]);
        vector::unpack(pair.x[k], x);
        vector::unpack(pair.dy[k], dy);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float n = (x[i] - mean) * rstd, g = dy[i] * share.gamma[k][i];
            dy[i] = rstd * (g - mean_g - n * mean_gn);
        }
        if (args.dsum.data) {
            vector::unpack(dsum[k], x);
#pragma unroll
            for (int i = 0; i < N; i++) dy[i] += x[i];
        }
        pair.dy[k] = vector::pack(dy);
    }
    store_row((T *)args.dx.data + row * args.dx.stride, pair.dy, place, there);
}

/* Elements per thread and row: 8 or 16. */
template<class T, int ELEMENTS, bool CENTERED>
__global__ void __launch_bounds__(WARP_THREADS, ELEMENTS == 8 ? 3 : 2)
    norm_backward_warp_kernel(tutti__norm_args args, norm_backward_even even,
                              backward_scratch<float> scratch, int lanes)
{
    constexpr int N = vector16<T>::N, VECS = ELEMENTS / N, WARPS = WARP_THREADS / 32;
    __shared__ float merged[WARPS][32 * ELEMENTS];
    lane_team team = {lanes};
    int lane = threadIdx.x % lanes, group = threadIdx.x / lanes, groups = WARP_THREADS / lanes;
    row_place place = {lane, lanes, lanes};
    int cols = (int)args.cols;

    param_share<T, VECS> share;
    share.begin(args, place, even.gamma);
    int64_t stride = (int64_t)gridDim.x * groups;
    int64_t base = (int64_t)blockIdx.x * groups;
    row_pair<T, VECS> pair, next;
    if (PREFETCH<T>) next.load(args, base + group, place);
    /* whole warps go round together: a group past the end has zeros but takes part in the
     * shuffles */
    for (; base < args.rows; base += stride) {
        if (PREFETCH<T>) {
            pair = next;
            next.load(args, base + stride + group, place);
        } else {
            pair.load(args, base + group, place);
        }
        norm_backward_row<T, VECS, CENTERED>(args, even, team, base + group, place, pair, share);
    }

    /* groups of a warp, then warps of the block */
    int warp = threadIdx.x / 32;
    auto merge = [&](float(&values)[VECS][N], int which) {
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
                for (int i = 0; i < N; i++) merged[warp][place.column<T>(k) + i] = values[k][i];
        }
        __syncthreads();
        float *to = scratch.row(blockIdx.x, which);
        for (int col = threadIdx.x; col < cols; col += WARP_THREADS) {
            float sum = 0;
            for (int w = 0; w < WARPS; w++) sum += merged[w][col];
            to[col] = sum;
        }
        __syncthreads();
    };
    if (args.dgamma) merge(share.dgamma, 0);
    if (CENTERED && args.dbeta) merge(share.dbeta, 1);
}

template<class T, int ELEMENTS, bool CENTERED>
__global__ void __launch_bounds__(512, ELEMENTS == 8 ? 2 : 1)
    norm_backward_block_kernel(tutti__norm_args args, norm_backward_even even,
                               backward_scratch<float> scratch, int cluster)
{
    constexpr int N = vector16<T>::N, VECS = ELEMENTS / N, VALUES = CENTERED ? 2 : 1;
    __shared__ block_team_slots<float, VALUES> slots;
    block_team<float, VALUES> team(slots, cluster);
    int threads = blockDim.x, cols = (int)args.cols;
    row_place place = {team.rank * threads * VECS + (int)threadIdx.x, threads, 32};

    param_share<T, VECS> share;
    share.begin(args, place, even.gamma);
    int64_t partial_row = blockIdx.x / cluster, stride = gridDim.x / cluster;
    int64_t row = partial_row;
    row_pair<T, VECS> pair, next;
    if (PREFETCH<T>) next.load(args, row, place);
    team.begin();
    for (; row < args.rows; row += stride) {
        if (PREFETCH<T>) {
            pair = next;
            next.load(args, row + stride, place);
        } else {
            pair.load(args, row, place);
        }
        norm_backward_row<T, VECS, CENTERED>(args, even, team, row, place, pair, share);
    }
#pragma unroll
    for (int k = 0; k < VECS; k++) {
        int col = place.column<T>(k);
        /* the pitch has room for the last vector */
        int count = col < cols ? N : 0;
        if (args.dgamma)
            store_elements(scratch.row(partial_row, 0) + col, share.dgamma[k], count, true);
        if (CENTERED && args.dbeta)
            store_elements(scratch.row(partial_row, 1) + col, share.dbeta[k], count, true);
    }
}

/* Sliced, first: for each row the means of g * n and of g. */
template<class A>
struct any_row {
    A x[ANY_WIDTH], dy[ANY_WIDTH], gamma[ANY_WIDTH];

    __device__ __forceinline__ void load_gamma(const tutti__norm_args &args, bool even, int col)
    {
#pragma unroll
        for (int i = 0; i < ANY_WIDTH; i++) gamma[i] = 1;
        if (!args.gamma) return;
        load_any(gamma, args.gamma, args.param_dtype, col, (int)args.cols - col, even);
#pragma unroll
        for (int i = 0; i < ANY_WIDTH; i++)
            if (args.zero_centered) gamma[i] += 1;
    }

    __device__ __forceinline__ void load(const tutti__norm_args &args,
                                         const norm_backward_even &even, int64_t row, int col)
    {
        int count = (int)args.cols - col;
        load_any(x, args.x.data, args.x.dtype, row * args.x.stride + col, count, even.x);
        load_any(dy, args.dy.data, args.dy.dtype, row * args.dy.stride + col, count, even.dy);
    }
};

template<class A>
__global__ void __launch_bounds__(SUMS_THREADS)
    norm_backward_sums_kernel(tutti__norm_args args, norm_backward_even even,
                              backward_scratch<A> scratch)
{
    __shared__ block_team_slots<A, 2> slots;
    block_team<A, 2> team(slots, 1);
    int cols = (int)args.cols, step = blockDim.x * ANY_WIDTH, first = threadIdx.x * ANY_WIDTH;
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        A mean = args.centered ? ((const A *)args.mean)[row] : (A)0;
        A rstd = ((const A *)args.rstd)[row];
        row_total<A> total_gn, total_g;
        for (int col = first; col < cols; col += step) {
            any_row<A> part;
            part.load(args, even, row, col);
            part.load_gamma(args, even.gamma, col);
            A gn = 0, all = 0;
#pragma unroll
            for (int i = 0; i < ANY_WIDTH; i++) {
                A g = part.dy[i] * part.gamma[i];
                gn += g * ((part.x[i] - mean) * rstd);
                all += g;
            }
            total_gn.add(gn);
            total_g.add(all);
        }
        A sums[2] = {total_gn.value(), total_g.value()};
        team.template reduce<row_add>(sums);
        if (threadIdx.x < 2)
            scratch.sums[row * 2 + threadIdx.x] = sums[threadIdx.x == 0 ? 0 : 1] / (A)cols;
    }
}

/* Sliced, second: a block has ANY_WIDTH columns per thread and every partials-th row. */
template<class A>
__global__ void __launch_bounds__(ANY_THREADS)
    norm_backward_slices_kernel(tutti__norm_args args, norm_backward_even even,
                                backward_scratch<A> scratch, int slices)
{
    int slice = blockIdx.x % slices, cols = (int)args.cols;
    int64_t chunk = blockIdx.x / slices, chunks = gridDim.x / slices;
    int col = (slice * blockDim.x + threadIdx.x) * ANY_WIDTH, count = cols - col;
    if (count <= 0) return;
    any_row<A> part;
    part.load_gamma(args, even.gamma, col);
    A dgamma[ANY_WIDTH] = {}, dbeta[ANY_WIDTH] = {};
    for (int64_t row = chunk; row < args.rows; row += chunks) {
        A mean = args.centered ? ((const A *)args.mean)[row] : (A)0;
        A rstd = ((const A *)args.rstd)[row];
        A mean_gn = scratch.sums[row * 2];
        A mean_g = args.centered ? scratch.sums[row * 2 + 1] : (A)0;
        part.load(args, even, row, col);
        A dx[ANY_WIDTH];
#pragma unroll
        for (int i = 0; i < ANY_WIDTH; i++) {
            A n = (part.x[i] - mean) * rstd;
            dgamma[i] += part.dy[i] * n;
            dbeta[i] += part.dy[i];
            dx[i] = rstd * (part.dy[i] * part.gamma[i] - mean_g - n * mean_gn);
        }
        if (!args.dx.data) continue;
        if (args.dsum.data) {
            A dsum[ANY_WIDTH];
            load_any(dsum, args.dsum.data, args.dsum.dtype, row * args.dsum.stride + col, count,
                     even.dsum);
#pragma unroll
            for (int i = 0; i < ANY_WIDTH; i++) dx[i] += dsum[i];
        }
        store_any(args.dx.data, args.dx.dtype, row * args.dx.stride + col, dx, count, even.dx);
    }
    /* the pitch has room for the last vector */
    if (args.dgamma) store_elements(scratch.row(chunk, 0) + col, dgamma, ANY_WIDTH, true);
    if (args.dbeta) store_elements(scratch.row(chunk, 1) + col, dbeta, ANY_WIDTH, true);
}

/* Adds the partial rows, 32 columns per block: each of 32 warps every 32nd row, then the warps in
 * order. */
template<class A, class G>
__global__ void __launch_bounds__(FINISH_THREADS)
    norm_backward_finish_kernel(backward_scratch<A> scratch, int64_t partials, int cols, G *dgamma,
                                G *dbeta, bool accumulate)
{
    constexpr int WARPS = FINISH_THREADS / 32;
    __shared__ A sums[WARPS][33];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int slices = (cols + 31) / 32;
    /* if only one gradient is wanted there are blocks for one only */
    int which = dgamma ? (int)blockIdx.x / slices : 1;
    int col = (int)blockIdx.x % slices * 32 + lane;
    A sum = 0;
    if (col < cols) {
#pragma unroll 8
        for (int64_t p = warp; p < partials; p += WARPS) sum += scratch.row(p, which)[col];
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || col >= cols) return;
    sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += sums[w][lane];
    G *to = (which ? dbeta : dgamma) + col;
    *to = accumulate ? *to + (G)sum : (G)sum;
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

static backward_plan plan_backward(const tutti_context *ctx, const tutti__norm_args *args)
{
    int64_t rows = args->rows, cols = args->cols, sms = tutti__cuda_sm_count(ctx->device);
    backward_plan plan = {};
    plan.wide = tutti__accumulate_dtype(args->x.dtype, args->param_dtype) == TUTTI_F64;
    plan.pitch = divide_up(cols, 16) * 16;
    plan.lanes = 32;
    plan.cluster = 1;
    plan.elements = 16;
    /* a partial row costs as much as a few rows of x: each has at least 8 rows behind it */
    int64_t most = divide_up(rows, 8);
    bool own_kernel = !plan.wide && args->dy.dtype == args->x.dtype;
    if (own_kernel && cols <= 512) {
        plan.kind = backward_plan::WARP;
        plan.elements = cols <= 256 ? 8 : 16;
        plan.threads = WARP_THREADS;
        while (plan.lanes > 1 && plan.lanes / 2 * plan.elements >= cols) plan.lanes /= 2;
        int64_t groups = WARP_THREADS / plan.lanes;
        plan.partials = at_most(divide_up(rows, groups * 4), sms * (plan.elements == 8 ? 3 : 2));
    } else if (own_kernel && (cols <= 8192 || (cols <= 8192 * ROW_CLUSTER_MAX &&
                                               tutti__cuda_has_clusters(ctx->device)))) {
        plan.kind = backward_plan::BLOCK;
        plan.elements = cols <= 4096 ? 8 : 16;
        plan.threads = row_round_up((int)at_most(divide_up(cols, plan.elements), 512), 32);
        while (plan.cluster * plan.threads * plan.elements < cols) plan.cluster *= 2;
        int64_t resident = (plan.elements == 8 ? 1024 : 512) / plan.threads;
        /* the number of clusters that fit differs between devices of one model; many short ones
         * leave no tail */
        plan.partials = at_most(most, plan.cluster == 1 ? sms * resident : sms / plan.cluster * 4);
    } else {
        plan.kind = backward_plan::SLICED;
        plan.threads = 32;
        while (plan.threads < ANY_THREADS && plan.threads * ANY_WIDTH < cols) plan.threads *= 2;
        plan.slices = (int)divide_up(cols, plan.threads * ANY_WIDTH);
        int64_t resident = sms * 1024 / plan.threads;
        plan.partials = at_most(most, divide_up(resident, plan.slices));
        plan.sums_bytes = (size_t)divide_up(rows * 2 * (plan.wide ? 8 : 4), 256) * 256;
    }
    plan.bytes = plan.sums_bytes + (size_t)(plan.partials * 2 * plan.pitch) *
                                       (plan.wide ? sizeof(double) : sizeof(float));
    return plan;
}

static norm_backward_even find_even(const tutti__norm_args *args, int width)
{
    int64_t rows = args->rows;
    return {row_even(args->x, rows, width),
            row_even(args->dy, rows, width),
            row_even(args->dsum, rows, width),
            row_even(args->dx, rows, width),
            row_param_even(args->gamma, args->param_dtype, width),
            (float)(1.0 / (double)args->cols)};
}

template<class T, int ELEMENTS, bool CENTERED>
static tutti_status launch_own(tutti_context *ctx, const tutti__norm_args *args,
                               const backward_plan &plan, const backward_scratch<float> &scratch)
{
    norm_backward_even even = find_even(args, vector16<T>::N);
    cudaStream_t stream = tutti__cuda_stream(ctx);
    if (plan.kind == backward_plan::WARP)
        return row_launch("norm_backward", norm_backward_warp_kernel<T, ELEMENTS, CENTERED>,
                          (unsigned)plan.partials, plan.threads, 1, 0, stream, *args, even, scratch,
                          plan.lanes);
    return row_launch("norm_backward", norm_backward_block_kernel<T, ELEMENTS, CENTERED>,
                      (unsigned)(plan.partials * plan.cluster), plan.threads, plan.cluster, 0,
                      stream, *args, even, scratch, plan.cluster);
}

template<class T>
static tutti_status backward_own(tutti_context *ctx, const tutti__norm_args *args,
                                 const backward_plan &plan, const backward_scratch<float> &scratch)
{
    if (plan.elements == 8)
        return args->centered ? launch_own<T, 8, true>(ctx, args, plan, scratch)
                              : launch_own<T, 8, false>(ctx, args, plan, scratch);
    return args->centered ? launch_own<T, 16, true>(ctx, args, plan, scratch)
                          : launch_own<T, 16, false>(ctx, args, plan, scratch);
}

template<class A>
static tutti_status backward_sliced(tutti_context *ctx, const tutti__norm_args *args,
                                    const backward_plan &plan, const backward_scratch<A> &scratch)
{
    norm_backward_even even = find_even(args, ANY_WIDTH);
    cudaStream_t stream = tutti__cuda_stream(ctx);
    int threads = 32;
    while (threads < SUMS_THREADS && threads * ANY_WIDTH < args->cols) threads *= 2;
    if (args->dx.data)
        TUTTI_TRY(row_launch("norm_backward", norm_backward_sums_kernel<A>,
                             row_grid(args->rows, 1, 1), threads, 1, 0, stream, *args, even,
                             scratch));
    return row_launch("norm_backward", norm_backward_slices_kernel<A>,
                      (unsigned)(plan.partials * plan.slices), plan.threads, 1, 0, stream, *args,
                      even, scratch, plan.slices);
}

template<class A>
static tutti_status finish(tutti_context *ctx, const tutti__norm_args *args,
                           const backward_plan &plan, const backward_scratch<A> &scratch)
{
    if (!args->dgamma && !args->dbeta) return TUTTI_OK;
    if (args->rows == 0 && args->accumulate) return TUTTI_OK;
    int wanted = (args->dgamma ? 1 : 0) + (args->dbeta ? 1 : 0);
    unsigned grid = (unsigned)(divide_up(args->cols, 32) * wanted);
    cudaStream_t stream = tutti__cuda_stream(ctx);
    if (args->grad_dtype == TUTTI_F64)
        return row_launch("norm_backward", norm_backward_finish_kernel<A, double>, grid,
                          FINISH_THREADS, 1, 0, stream, scratch, plan.partials, args->cols,
                          (double *)args->dgamma, (double *)args->dbeta, args->accumulate);
    return row_launch("norm_backward", norm_backward_finish_kernel<A, float>, grid, FINISH_THREADS,
                      1, 0, stream, scratch, plan.partials, args->cols, (float *)args->dgamma,
                      (float *)args->dbeta, args->accumulate);
}

template<class A>
static tutti_status backward(tutti_context *ctx, const tutti__norm_args *args,
                             const backward_plan &plan, void *memory)
{
    backward_scratch<A> scratch = {(A *)((char *)memory + plan.sums_bytes), (A *)memory,
                                   plan.pitch};
    if (args->rows > 0) {
        if (plan.kind == backward_plan::SLICED)
            TUTTI_TRY(backward_sliced<A>(ctx, args, plan, scratch));
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
