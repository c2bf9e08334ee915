/* LayerNorm and RMSNorm, forward.  include/tutti/layernorm.h has the mathematics.
 *
 * Fewest bytes: x read, y written (with a residual: x and r read, sum and y written), the
 * parameters from the caches, a few bytes a row of saved.  The variance is that of the centred
 * values.
 *
 *   warp    up to 128 vectors: a group of lanes has a few rows in registers
 *   block   a block or a cluster a row, in registers or in shared memory
 *   any     all other pairings, and rows that fit on no cluster (norm_forward_any.cu)
 *
 * The first two have no loop over rows: a block fetches its rows first of all, computes and writes
 * once, and many blocks on a multiprocessor keep its memory busy.  So what counts is how many rows
 * are on their way, hence few registers, and how long the chain of operations is between the
 * arrival of a row and its departure. */
#include "kernels/cuda/norm_forward_rows.cuh"

/* ROWS rows at once in registers, each divided over a team.  WHOLE: all tensors have whole aligned
 * vectors. */
template<class T, int VECS, int ROWS, bool CENTERED, bool WHOLE>
struct held_rows {
    static constexpr int N = vector16<T>::N;
    const tutti__norm_args &args;
    const norm_forward_even &even;
    int64_t first_row;
    int rows, cols;
    row_place place;
    uint4 raw[ROWS][VECS];
    float mean[ROWS], rstd[ROWS];

    __device__ __forceinline__ bool there(int r) const { return r < rows; }
    __device__ __forceinline__ T *row_of(const tutti__matrix &matrix, int r) const
    {
        return (T *)matrix.data + (there(r) ? first_row + r : 0) * matrix.stride;
    }

    __device__ __forceinline__ void load(uint4 (&to)[VECS], const tutti__matrix &matrix, int r)
    {
        const T *row = row_of(matrix, r);
        const int count = there(r) ? cols : 0;
        if constexpr (!WHOLE)
            load_row<T>(to, row, place, count);
        else
#pragma unroll
            for (int k = 0; k < VECS; k++) {
                const int col = place.column<T>(k);
                to[k] = make_uint4(0, 0, 0, 0);
                if (col < count) to[k] = *(const uint4 *)(row + col);
            }
    }
    __device__ __forceinline__ void store(const tutti__matrix &matrix, int r)
    {
        store_row(row_of(matrix, r), raw[r], place, there(r) ? cols : 0);
    }

    __device__ __forceinline__ void load_all()
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) load(raw[r], args.x, r);
        if (!args.residual.data) return;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            uint4 other[VECS];
            load(other, args.residual, r);
#pragma unroll
            for (int k = 0; k < VECS; k++) raw[r][k] = sum_of_both<T>(raw[r][k], other[k]);
            if (args.sum.data) store(args.sum, r);
        }
    }

    template<class Team>
    __device__ __forceinline__ void find_statistics(Team &team)
    {
        auto sums = [&](int r, float about, float *moved) {
            float sum = 0;
#pragma unroll
            for (int k = 0; k < VECS; k++) {
                hold_packed<T>(raw[r][k]);
                sum += squares_of<T, WHOLE>(raw[r][k], cols - place.column<T>(k), about, moved);
            }
            return sum;
        };
        float squares[ROWS];
        if constexpr (!CENTERED) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) squares[r] = sums(r, mean[r] = 0, nullptr);
            team.template reduce<row_add>(squares);
        } else {
            float pivot[ROWS], both[2 * ROWS];
            bool far[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const float first = sum_of<T>(raw[r][0]);
                pivot[r] = __shfl_sync(0xffffffffu, first, 0, place.lanes) * (1.0f / N);
                both[2 * r + 1] = 0;
                both[2 * r] = sums(r, pivot[r], &both[2 * r + 1]);
            }
            team.template reduce<row_add>(both);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                squares[r] = both[2 * r];
                far[r] =
                    move_to_mean(pivot[r], both[2 * r + 1], even.inverse_cols, mean[r], squares[r]);
            }
            correct_delicate<ROWS>(team, even.inverse_cols, far, mean, squares, sums);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) rstd[r] = rstd_of(squares[r], even);
    }

    template<class Scale>
    __device__ __forceinline__ void write(Scale)
    {
        bool whole[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            whole[r] = WHOLE || stores_whole(row_of(args.y, r), there(r) ? cols : 0);
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            const int col = place.column<T>(k);
            float gamma[N], beta[N];
            Scale::load(args, even, col, cols - col, gamma, beta);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                hold_packed<T>(raw[r][k]);
                raw[r][k] = scaled<T>(raw[r][k], mean[r], rstd[r], gamma, beta);
                if (whole[r]) store_whole(row_of(args.y, r), col, raw[r][k], there(r) ? cols : 0);
            }
        }
        if constexpr (!WHOLE)
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                if (!whole[r]) store(args.y, r);
    }

    template<class Team>
    __device__ __forceinline__ void run(Team &team, bool leads)
    {
        load_all();
        forget(place, cols);
        team.begin();
        find_statistics(team);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (leads && there(r)) save<CENTERED>(args, first_row + r, mean[r], rstd[r]);
        forget(place, cols);
        with_scale<T, CENTERED, WHOLE>(args, [&](auto scale) { write(scale); });
    }
};

template<class T, int VECS, bool CENTERED, bool WHOLE>
__global__ void __launch_bounds__(ROW_WARP_THREADS, !WHOLE || VECS == 1 ? 4 : 6)
    norm_forward_warp_kernel(tutti__norm_args args, norm_forward_even even, int lanes)
{
    constexpr int ROWS = ROW_WARP_VECS / VECS;
    lane_team team = {lanes};
    /* a power of two */
    const int log_lanes = __popc(lanes - 1), groups = ROW_WARP_THREADS >> log_lanes;
    const int lane = threadIdx.x & (lanes - 1), group = threadIdx.x >> log_lanes;
    const int64_t first_row = ((int64_t)blockIdx.x * groups + group) * ROWS;
    const int64_t left = args.rows - first_row;
    /* a group past the end has no rows but takes part in the shuffles */
    const int rows = left <= 0 ? 0 : left < ROWS ? (int)left : ROWS;
    held_rows<T, VECS, ROWS, CENTERED, WHOLE> held = {
        args, even, first_row, rows, (int)args.cols, row_place{lane, lanes, lanes}};
    held.run(team, lane == 0);
}

/* A block or a cluster a row, 4 vectors a thread. */
enum { BLOCK_VECS = 4 };

/* In registers (HELD), for whole vectors without a residual, or parked in shared memory and read
 * back for each of the sums, so that more rows are on their way at a time.  Each warp takes the
 * squares about its own mean; the pairs are merged after a single barrier. */
template<class T, bool CENTERED, bool SKEWED, bool RESIDUAL, bool HELD>
struct block_row {
    static constexpr int N = vector16<T>::N, VECS = BLOCK_VECS;
    static constexpr int UNROLL = HELD ? VECS : SKEWED || RESIDUAL ? 1 : 2;
    using team_type = block_team<float, 2>;
    const tutti__norm_args &args;
    const norm_forward_even &even;
    row_ring<T, VECS, SKEWED> ring;
    int64_t row;
    int cols;
    unsigned x_skew, residual_skew;
    uint4 raw[HELD ? VECS : 1];

    __device__ __forceinline__ const T *row_of(const tutti__matrix &matrix) const
    {
        return (const T *)matrix.data + row * matrix.stride;
    }
    __device__ __forceinline__ int left(int k) const
    {
        return cols - ring.place.template column<T>(k);
    }

    __device__ __forceinline__ void fetch(int64_t which)
    {
        row = which;
        if constexpr (HELD) {
#pragma unroll
            for (int k = 0; k < VECS; k++) {
                raw[k] = make_uint4(0, 0, 0, 0);
                if (left(k) > 0)
                    raw[k] = *(const uint4 *)(row_of(args.x) + ring.place.template column<T>(k));
            }
            return;
        }
        x_skew = SKEWED ? skew_of(row_of(args.x)) : 0;
        residual_skew = SKEWED && RESIDUAL ? skew_of(row_of(args.residual)) : 0;
        ring.request(0, row_of(args.x), cols);
        if (RESIDUAL) ring.request(1, row_of(args.residual), cols);
        ring.send();
    }
    __device__ __forceinline__ uint4 take(int k) const
    {
        if constexpr (HELD) {
            uint4 own = raw[k];
            hold_packed<T>(own);
            return own;
        }
        const uint4 x = ring.take(0, k, x_skew);
        return RESIDUAL ? sum_of_both<T>(x, ring.take(1, k, residual_skew)) : x;
    }
    template<int EACH = HELD ? VECS : 1>
    __device__ __forceinline__ float squares(float about, float *moved) const
    {
        float sum = 0;
#pragma unroll(EACH)
        for (int k = 0; k < VECS; k++)
            sum += squares_of<T, !SKEWED>(take(k), left(k), about, moved);
        return sum;
    }

    /* Columns of warp i of the row. */
    __device__ __forceinline__ float columns_of(const team_type &team, int i) const
    {
        const int threads = blockDim.x, warps = threads / 32;
        const int before = team.cluster == 1 ? 0 : i / warps;
        const int first = before * threads * VECS + (i - before * warps) * 32;
        int sum = 0;
#pragma unroll
        for (int k = 0; k < VECS; k++) sum += min(max(cols - (first + k * threads) * N, 0), 32 * N);
        return (float)sum;
    }

    __device__ __forceinline__ void find_statistics(team_type &team, float (&mean)[1],
                                                    float (&squared)[1])
    {
        mean[0] = 0;
        if constexpr (!CENTERED) {
            squared[0] = squares<UNROLL>(0, nullptr);
            team.template reduce<row_add>(squared);
        } else {
            const int warp = team.rank * (int)(blockDim.x / 32) + (int)threadIdx.x / 32;
            const float count = columns_of(team, warp),
                        share = count > 0 ? __fdividef(1, count) : 0;
            const float pivot = __shfl_sync(0xffffffffu, sum_of<T>(take(0)), 0) * (1.0f / N);
            float own[2]; /* the warp's mean, and squares about it */
            float both[2] = {0, 0};
            both[0] = squares<UNROLL>(pivot, &both[1]);
            reduce_lanes<row_add>(both, 32);
            own[1] = both[0];
            if (move_to_mean(pivot, both[1], share, own[0], own[1])) {
                both[0] = squares(own[0], &both[1]);
                reduce_lanes<row_add>(both, 32);
                own[1] = both[0];
            }
            team.spread(own);
            const auto &partial = team.slots.partial[team.turn];
            bool far[1];
            float about = partial[0][0];
#pragma unroll 1
            for (int pass = 0; pass < 2; pass++) {
                team.template collect<row_add>(both, [&](int n, int i) {
                    const float apart = partial[0][i] - about;
                    const float moved = columns_of(team, i) * apart;
                    return n == 0 ? fmaf(moved, apart, partial[1][i]) : moved;
                });
                squared[0] = both[0];
                far[0] = move_to_mean(about, both[1], even.inverse_cols, mean[0], squared[0]);
                if (!far[0]) break;
                about = mean[0];
            }
            team.turn ^= 1;
            correct_delicate<1>(
                team, even.inverse_cols, far, mean, squared,
                [&](int, float from, float *moved) { return squares(from, moved); });
        }
    }

    /* Vector k of an output. */
    __device__ __forceinline__ void store(const tutti__matrix &matrix, int k,
                                          const uint4 &raw) const
    {
        T *to = (T *)row_of(matrix);
        if constexpr (SKEWED) {
            const uint4 one[1] = {raw};
            row_place at = ring.place;
            at.first += k * at.step;
            store_row(to, one, at, cols);
        } else
            store_whole(to, ring.place.template column<T>(k), raw, cols);
    }

    template<class Scale>
    __device__ __forceinline__ void write(Scale, float mean, float rstd) const
    {
#pragma unroll(UNROLL)
        for (int k = 0; k < VECS; k++) {
            float gamma[N], beta[N];
            Scale::load(args, even, ring.place.template column<T>(k), left(k), gamma, beta);
            const uint4 raw = take(k);
            if (RESIDUAL && args.sum.data) store(args.sum, k, raw);
            store(args.y, k, scaled<T>(raw, mean, rstd, gamma, beta));
        }
    }
};

/* Few registers: many rows are to be on their way at a time. */
__host__ __device__ constexpr int block_registers(bool skewed, bool residual, bool cluster,
                                                  bool held)
{
    if (held) return 80;
    if (residual && !cluster) return 80;
    return cluster || skewed ? 64 : 40;
}

template<class T, bool CENTERED, bool SKEWED, bool RESIDUAL, bool CLUSTER, bool HELD>
__global__ void __maxnreg__(block_registers(SKEWED, RESIDUAL, CLUSTER, HELD))
    norm_forward_block_kernel(tutti__norm_args args, norm_forward_even even, int cluster)
{
    if (!CLUSTER) cluster = 1; /* which spares the branches */
    extern __shared__ __align__(128) uint4 shared[];
    __shared__ block_team_slots<float, 2> slots;
    block_team<float, 2> team(slots, cluster);
    const int threads = blockDim.x;
    const row_place place = {team.rank * threads * BLOCK_VECS + (int)threadIdx.x, threads, 32};
    block_row<T, CENTERED, SKEWED, RESIDUAL, HELD> own = {
        args, even, row_ring<T, BLOCK_VECS, SKEWED>(shared, place, RESIDUAL ? 2 : 1, 1)};
    own.cols = (int)args.cols;
    const int64_t row = blockIdx.x / cluster;
    own.fetch(row);
    if (!HELD) {
        own.ring.clear_beyond(own.cols);
        own.ring.wait(0);
    }
    team.begin();
    float mean[1], squares[1];
    own.find_statistics(team, mean, squares);
    const float rstd = rstd_of(squares[0], even);
    if (team.rank == 0 && threadIdx.x == 0) save<CENTERED>(args, row, mean[0], rstd);
    with_scale<T, CENTERED, !SKEWED>(args, [&](auto scale) { own.write(scale, mean[0], rstd); });
}

template<class T, bool CENTERED, bool SKEWED, bool RESIDUAL>
static tutti_status launch_parked(tutti_context *ctx, const tutti__norm_args *args,
                                  const norm_forward_even &even, const row_plan &plan)
{
    const int words = ring_words(plan.threads, 32, SKEWED) * BLOCK_VECS * (RESIDUAL ? 2 : 1);
    auto kernel = plan.cluster > 1
                      ? norm_forward_block_kernel<T, CENTERED, SKEWED, RESIDUAL, true, false>
                      : norm_forward_block_kernel<T, CENTERED, SKEWED, RESIDUAL, false, false>;
    if (words * 16 > 40 << 10) /* always the same value: contexts of other threads launch it too */
        TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        tutti__cuda_shared_limit(ctx->device) - RING_SPARE),
                   "norm_forward");
    return row_launch("norm_forward", kernel, (unsigned)(args->rows * plan.cluster), plan.threads,
                      plan.cluster, (size_t)words * 16, tutti__cuda_stream(ctx), *args, even,
                      plan.cluster);
}

template<class T, bool CENTERED>
static tutti_status launch_block(tutti_context *ctx, const tutti__norm_args *args,
                                 const norm_forward_even &even, const row_plan &plan, bool whole)
{
    const bool residual = args->residual.data;
    /* with one sum only, registers are faster */
    if constexpr (!CENTERED)
        if (whole && !residual && plan.cluster == 1)
            return row_launch(
                "norm_forward", norm_forward_block_kernel<T, CENTERED, false, false, false, true>,
                (unsigned)args->rows, plan.threads, 1, 0, tutti__cuda_stream(ctx), *args, even, 1);
    auto launch = whole      ? residual ? launch_parked<T, CENTERED, false, true>
                                        : launch_parked<T, CENTERED, false, false>
                       : residual ? launch_parked<T, CENTERED, true, true>
                             : launch_parked<T, CENTERED, true, false>;
    return launch(ctx, args, even, plan);
}

template<class T, bool CENTERED, bool WHOLE>
static tutti_status launch_warp(tutti_context *ctx, const tutti__norm_args *args,
                                const norm_forward_even &even, const row_plan &plan)
{
    return row_with_vecs(plan, [&](auto vecs) {
        constexpr int VECS = decltype(vecs)::value;
        const int64_t each = ROW_WARP_THREADS / plan.lanes * (ROW_WARP_VECS / VECS);
        return row_launch("norm_forward", norm_forward_warp_kernel<T, VECS, CENTERED, WHOLE>,
                          (unsigned)((args->rows + each - 1) / each), plan.threads, 1, 0,
                          tutti__cuda_stream(ctx), *args, even, plan.lanes);
    });
}

template<class T>
static tutti_status forward_of(tutti_context *ctx, const tutti__norm_args *args,
                               const row_plan &plan)
{
    constexpr int N = vector16<T>::N;
    const norm_forward_even even = find_even(args, N);
    const bool whole = args->cols % N == 0 && even.x && even.residual && even.sum && even.y &&
                       even.gamma && even.beta &&
                       (args->param_dtype == args->x.dtype || args->param_dtype == TUTTI_F32);
    if (plan.kind == ROW_WARP) {
        auto launch = args->centered
                          ? whole ? launch_warp<T, true, true> : launch_warp<T, true, false>
                      : whole ? launch_warp<T, false, true>
                              : launch_warp<T, false, false>;
        return launch(ctx, args, even, plan);
    }
    return args->centered ? launch_block<T, true>(ctx, args, even, plan, whole)
                          : launch_block<T, false>(ctx, args, even, plan, whole);
}

/* Kernels by run-time type, in f64 or f32; otherwise those of a type, by the plan's row_plan. */
enum { FORWARD_ANY_F64, FORWARD_ANY, FORWARD_OWN };

void tutti__cuda_norm_forward_plan(const tutti_context *ctx, const tutti__norm_args *args,
                                   tutti__plan *plan)
{
    row_plan rows = row_plan_for(args->cols, 16 / (int)tutti_dtype_size(args->x.dtype), 1,
                                 tutti__cuda_has_clusters(ctx->device));
    plan->kernel = FORWARD_OWN;
    if (args->y.dtype != args->x.dtype || rows.kind == ROW_LONG) plan->kernel = FORWARD_ANY;
    if (tutti__accumulate_dtype(args->x.dtype, args->param_dtype) == TUTTI_F64)
        plan->kernel = FORWARD_ANY_F64;
    *tutti__cuda_parameters<row_plan>(plan) = rows;
}

tutti_status tutti__cuda_norm_forward(const tutti__job *job, const void *untyped)
{
    const tutti__norm_args *args = (const tutti__norm_args *)untyped;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, "norm_forward"));
    if (args->rows == 0) return TUTTI_OK;
    if (job->plan->kernel == FORWARD_ANY_F64)
        return tutti__cuda_norm_forward_any(job->ctx, args, true);
    if (job->plan->kernel == FORWARD_ANY)
        return tutti__cuda_norm_forward_any(job->ctx, args, false);
    const row_plan &plan = *tutti__cuda_parameters<row_plan>(job->plan);
    switch (args->x.dtype) {
    case TUTTI_F16:
        return forward_of<__half>(job->ctx, args, plan);
    case TUTTI_BF16:
        return forward_of<__nv_bfloat16>(job->ctx, args, plan);
    default:
        return forward_of<float>(job->ctx, args, plan);
    }
}
