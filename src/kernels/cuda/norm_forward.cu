/* LayerNorm and RMSNorm, forward.  include/tutti/layernorm.h has the mathematics.
 *
 * Fewest bytes: x read, y written (with a residual: x and r read, sum and y written), the
 * parameters from the caches, a few bytes a row of saved.  The variance is that of the centred
 * values.
 *
 *   lanes   up to 128 vectors (RMSNorm 96; 32 where the last is not whole): some lanes of a warp
 *           have a row in registers
 *   held    up to 1024 whole vectors without a residual: a block has a row in registers
 *   parked  a block or a cluster has a row in shared memory (norm_forward_parked.cu)
 *   any     f64, y of another type than x, and rows that fit on no cluster (norm_forward_any.cu)
 *
 * The first three have no loop over rows: a block fetches its row first of all, computes and writes
 * once, and many blocks on a multiprocessor keep its memory busy.  So what counts is how many rows
 * are on their way, hence few registers, and how long the chain of operations is between the
 * arrival of a row and its departure.  Rows in registers leave the first-level cache to gamma and
 * beta, which parked rows fetch from the second level again and again.  Only the first blocks ask
 * for gamma and beta before their rows (not those held that are not full: they would spill). */
#include "kernels/cuda/norm_forward_held.cuh"

enum {
    LANES_THREADS = 128,
    PARKED_VECS = 20,   /* a thread's, at most */
    HELD_VECTORS = 1024 /* of a row in a block's registers, at most */
};

/* As few as there may be without spills on the way of usual rows: rows on their way are threads. */
constexpr int held_registers(int vecs, bool wide, bool full)
{
    return vecs == 4 ? wide ? 72 : 64 : vecs == 3 ? 56 : full ? 48 : 56;
}

/* Of a multiprocessor. */
constexpr int lanes_blocks(int vecs, bool whole, bool residual)
{
    return !whole ? 4 : residual ? vecs == 2 ? 6 : 5 : vecs == 2 ? 10 : vecs == 3 ? 8 : 7;
}

/* LANES: how many, of full rows, otherwise 0.  A group past the end has no row but takes part in
 * the shuffles. */
template<class T, int VECS, int LANES, bool CENTERED, bool WHOLE, bool RESIDUAL>
__global__ void __launch_bounds__(LANES_THREADS, bound_blocks(lanes_blocks(VECS, WHOLE, RESIDUAL)))
    norm_forward_lanes_kernel(tutti__norm_args args, norm_forward_even even, int some)
{
    constexpr held_fit FIT = LANES ? HELD_FULL : WHOLE ? HELD_WHOLE : HELD_ANY;
    prefetch_params(args, 0, (int)args.cols);
    const int lanes = LANES ? LANES : some, log_lanes = __popc(lanes - 1);
    const int lane = threadIdx.x & (lanes - 1), group = threadIdx.x >> log_lanes;
    const int64_t row = (int64_t)blockIdx.x * (LANES_THREADS >> log_lanes) + group;
    held_lanes team = {lanes};
    held_row<T, VECS, CENTERED, FIT, RESIDUAL> own(args, even, row, row_place{lane, lanes, lanes});
    own.fetch();
    float pivot = 0;
    if (CENTERED)
        pivot = __shfl_sync(0xffffffffu, sum_of<T>(own.raw[0]), 0, lanes) * (1.0f / own.N);
    if (CENTERED && sizeof(T) == 4 && !is_one_sign<T>(own.raw[0], lanes)) pivot = 0;
    const row_statistics found =
        own.statistics(team, pivot, [&](auto &values) { team.reduce(values); });
    own.write(found);
    save_together<CENTERED, LANES_THREADS>(args, found, lane == 0, group,
                                           LANES_THREADS >> log_lanes);
}

template<class T, int VECS, bool CENTERED, bool FULL>
__global__ void __maxnreg__(bound_registers(held_registers(VECS, CENTERED && sizeof(T) == 4, FULL)))
    norm_forward_held_kernel(tutti__norm_args args, norm_forward_even even)
{
    constexpr int VALUES = CENTERED ? 2 : 1;
    if (FULL) prefetch_params(args, 0, (int)args.cols);
    __shared__ parked_exchange<VALUES> space;
    norm_team<VALUES, false> team = {{space, 1}};
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    held_row<T, VECS, CENTERED, FULL ? HELD_FULL : HELD_WHOLE, false> own(
        args, even, blockIdx.x, row_place{warp * VECS * 32 + lane, 32, 32});
    own.fetch();
    const float pivot = CENTERED ? pivot_of<T>(own.row_of(args.x), nullptr, own.cols) : 0;
    const row_statistics found =
        own.statistics(team, pivot, [&](auto &values) { team.blocks.reduce(norm_sums{}, values); });
    if (threadIdx.x == 0) save<CENTERED>(args, own.row, found);
    own.write(found);
}

/* Host side */

struct norm_forward_plan {
    int lanes;           /* 1 to 32 lanes a row; 0: a block or more */
    int vecs;            /* lanes: vectors a thread has */
    bool held;           /* in registers, if whole and without a residual */
    parked_plan x, both; /* of a row of x, and with a residual */
};

template<class T, int VECS, bool CENTERED, bool WHOLE, bool RESIDUAL>
static tutti_status launch_lanes(tutti_context *ctx, const tutti__norm_args *args,
                                 const norm_forward_even &even, const norm_forward_plan &plan)
{
    auto kernel = norm_forward_lanes_kernel<T, VECS, 0, CENTERED, WHOLE, RESIDUAL>;
    if constexpr (WHOLE && !RESIDUAL) {
        const bool full = args->cols == plan.lanes * VECS * vector16<T>::N;
        if constexpr (VECS != 3) {
            if (full && plan.lanes == 8)
                kernel = norm_forward_lanes_kernel<T, VECS, 8, CENTERED, true, false>;
            if (full && plan.lanes == 16)
                kernel = norm_forward_lanes_kernel<T, VECS, 16, CENTERED, true, false>;
        }
        if (full && plan.lanes == 32)
            kernel = norm_forward_lanes_kernel<T, VECS, 32, CENTERED, true, false>;
    }
    const int64_t each = LANES_THREADS / plan.lanes;
    return row_launch("norm_forward", kernel, (unsigned)((args->rows + each - 1) / each),
                      LANES_THREADS, 1, 0, tutti__cuda_stream(ctx), *args, even, plan.lanes);
}

template<class T, int VECS, bool CENTERED>
static tutti_status launch_held(tutti_context *ctx, const tutti__norm_args *args,
                                const norm_forward_even &even, const norm_forward_plan &plan)
{
    const bool full = args->cols == plan.x.threads * VECS * vector16<T>::N;
    auto kernel = full ? norm_forward_held_kernel<T, VECS, CENTERED, true>
                       : norm_forward_held_kernel<T, VECS, CENTERED, false>;
    return row_launch("norm_forward", kernel, (unsigned)args->rows, plan.x.threads, 1, 0,
                      tutti__cuda_stream(ctx), *args, even);
}

template<class T, bool CENTERED, bool WHOLE, bool RESIDUAL>
static tutti_status launch_rows(tutti_context *ctx, const tutti__norm_args *args,
                                const norm_forward_even &even, const norm_forward_plan &plan)
{
    if (plan.lanes && plan.vecs == 2)
        return launch_lanes<T, 2, CENTERED, WHOLE, RESIDUAL>(ctx, args, even, plan);
    if (plan.lanes && plan.vecs == 3)
        return launch_lanes<T, 3, CENTERED, WHOLE, RESIDUAL>(ctx, args, even, plan);
    if constexpr (CENTERED)
        if (plan.lanes) return launch_lanes<T, 4, true, WHOLE, RESIDUAL>(ctx, args, even, plan);
    if constexpr (WHOLE && !RESIDUAL)
        if (plan.held)
            return plan.x.vecs == 2   ? launch_held<T, 2, CENTERED>(ctx, args, even, plan)
                   : plan.x.vecs == 3 ? launch_held<T, 3, CENTERED>(ctx, args, even, plan)
                                      : launch_held<T, 4, CENTERED>(ctx, args, even, plan);
    return tutti__cuda_norm_forward_parked(ctx, args, even, WHOLE, RESIDUAL ? plan.both : plan.x);
}

template<class T>
static tutti_status forward_of(tutti_context *ctx, const tutti__norm_args *args,
                               const norm_forward_plan &plan)
{
    constexpr int N = vector16<T>::N;
    const norm_forward_even even = find_even(args, N);
    const bool whole =
        args->cols % N == 0 && even.x && even.residual && even.sum && even.y && even.params;
    auto launch = [&](auto centered, auto wholly) {
        constexpr bool CENTERED = decltype(centered)::value, WHOLE = decltype(wholly)::value;
        return args->residual.data ? launch_rows<T, CENTERED, WHOLE, true>(ctx, args, even, plan)
                                   : launch_rows<T, CENTERED, WHOLE, false>(ctx, args, even, plan);
    };
    if (args->centered)
        return whole ? launch(std::true_type(), std::true_type())
                     : launch(std::true_type(), std::false_type());
    return whole ? launch(std::false_type(), std::true_type())
                 : launch(std::false_type(), std::false_type());
}

/* Of x alone, beyond 1024 vectors.  Two sums and two parameters want smaller blocks than one of
 * each; over odd columns, fewer threads with more vectors each. */
static parked_plan plan_long(int vectors, bool centered, bool even, int device)
{
    const bool small = centered && even;
    const int block = small ? 2048 : 4096, threads = small ? 256 : 512;
    const int blocks = tutti__cuda_has_clusters(device) ? ROW_CLUSTER_MAX : 1;
    parked_plan plan = {0, 0, 1, 0};
    if (vectors <= 2048) {
        plan.threads = row_round_up((vectors + 3) / 4, 32);
    } else {
        while (plan.cluster < blocks && vectors > plan.cluster * block) plan.cluster *= 2;
        const int each = (vectors + plan.cluster - 1) / plan.cluster;
        const int usual = even || plan.cluster == 1 ? 8 : centered ? 14 : 12;
        plan.threads = row_round_up((each + usual - 1) / usual, 32);
        if (plan.threads > threads) plan.threads = threads;
    }
    const int each = (vectors + plan.cluster - 1) / plan.cluster;
    plan.vecs = (each + plan.threads - 1) / plan.threads;
    plan.bytes = parked_bytes(plan, 1);
    if (plan.vecs > PARKED_VECS || plan.bytes > tutti__cuda_shared_limit(device) - PARKED_SPARE)
        plan.cluster = 0;
    return plan;
}

/* False if a row fits nowhere.  Which thread has a vector must not depend on alignment: rows that
 * may be held are parked in the same way where they are not whole. */
static bool plan_rows(norm_forward_plan *plan, int64_t cols, int width, bool centered, int device)
{
    const int64_t whole = cols / width;
    *plan = {};
    if (whole > INT32_MAX / 32) return false;
    const bool even = cols % width == 0;
    const int vectors = (int)whole;
    const int usual = even ? vectors <= 768 ? 6 : 8 : vectors > 384 && vectors <= 768 ? 5 : 6;
    if (even ? vectors <= (centered ? 128 : 96) : vectors < 32) {
        plan->vecs = vectors <= (centered ? 16 : 64) ? 2 : vectors > 64 && vectors <= 96 ? 3 : 4;
        plan->lanes = 1;
        while (plan->lanes * plan->vecs * width < cols) plan->lanes *= 2;
        return true;
    }
    plan->both = parked_plan_for(vectors, 2, usual, device);
    plan->held = even && vectors <= HELD_VECTORS;
    if (plan->held) {
        const int three = row_round_up((vectors + 2) / 3, 32) * 3;
        const int four = row_round_up((vectors + 3) / 4, 32) * 4;
        const int vecs = vectors <= 128 ? 2 : three < four ? 3 : 4;
        plan->x = {row_round_up((vectors + vecs - 1) / vecs, 32), vecs, 1, 0};
        plan->x.bytes = parked_bytes(plan->x, 1);
    } else
        plan->x = vectors <= HELD_VECTORS ? parked_plan_for(vectors, 1, usual, device)
                                          : plan_long(vectors, centered, even, device);
    return plan->x.cluster && plan->both.cluster;
}

/* Kernels by run-time type, in f64 or f32; otherwise those of a type, by the norm_forward_plan. */
enum { FORWARD_ANY_F64, FORWARD_ANY, FORWARD_OWN };

void tutti__cuda_norm_forward_plan(const tutti_context *ctx, const tutti__norm_args *args,
                                   tutti__plan *plan)
{
    norm_forward_plan *own = tutti__cuda_parameters<norm_forward_plan>(plan);
    const int width = 16 / (int)tutti_dtype_size(args->x.dtype);
    const bool fits = plan_rows(own, args->cols, width, args->centered, ctx->device);
    plan->kernel = fits && args->y.dtype == args->x.dtype ? FORWARD_OWN : FORWARD_ANY;
    if (tutti__accumulate_dtype(args->x.dtype, args->param_dtype) == TUTTI_F64)
        plan->kernel = FORWARD_ANY_F64;
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
    const norm_forward_plan &plan = *tutti__cuda_parameters<norm_forward_plan>(job->plan);
    switch (args->x.dtype) {
    case TUTTI_F16:
        return forward_of<__half>(job->ctx, args, plan);
    case TUTTI_BF16:
        return forward_of<__nv_bfloat16>(job->ctx, args, plan);
    default:
        return forward_of<float>(job->ctx, args, plan);
    }
}
