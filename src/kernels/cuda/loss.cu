/* Losses that are means over a row's elements: MSE and BCE of logits.  include/tutti/mse.h and
 * bce_with_logits.h have the mathematics.
 *
 * Fewest bytes: x and the target read once, dx written once, 3 rows cols elements.  An element's
 * loss and gradient need no other element; a row stays in registers (rows.cuh) only because a bad
 * target makes all of its gradient NaN.  Rows that fit on no cluster, and f64, are written as they
 * are read, and those with a bad target once more.  The losses are kept in scratch, in f64, for a
 * second kernel that sums them.  BCE of 16-bit numbers is near the limit of instructions, not of
 * memory.  Not tuned. */
#include "kernels/cuda/exp.cuh"
#include "kernels/cuda/row_losses.cuh"
#include "ops/loss.h"

struct loss_call {
    tutti__loss_args args;
    bool x_even, target_even, dx_even;
    double *row_losses; /* [rows], or NULL */
    tutti__finding *finding;
};

static __device__ __forceinline__ float log_one_and(float e)
{
    return log1pf(e);
}
static __device__ __forceinline__ double log_one_and(double e)
{
    return log1p(e);
}

/* of: an element's loss, its gradient in x's place. */
template<class T>
struct squared_error {
    using A = typename wide_row<T>::A;
    static constexpr bool CHECKS = false;
    A factor;

    __device__ __forceinline__ explicit squared_error(const tutti__loss_args &args)
        : factor((A)tutti__loss_factor(&args))
    {
    }
    static __device__ __forceinline__ bool is_bad(A) { return false; }
    __device__ __forceinline__ A of(A &x, A target) const
    {
        const A difference = x - target;
        x = difference * factor;
        return difference * difference;
    }
};

template<class T>
struct binary_cross_entropy {
    using A = typename wide_row<T>::A;
    static constexpr bool CHECKS = true;
    A factor, pos_weight;

    __device__ __forceinline__ explicit binary_cross_entropy(const tutti__loss_args &args)
        : factor((A)tutti__loss_factor(&args)), pos_weight((A)args.pos_weight)
    {
    }
    static __device__ __forceinline__ bool is_bad(A target)
    {
        return !(target >= 0 && target <= 1);
    }
    __device__ __forceinline__ A of(A &x, A target) const
    {
        const bool negative = x < 0;
        const A e = exponential<T>::of(negative ? x : -x), log_sum = log_one_and(e);
        const A large = 1 / (1 + e), small = e * large; /* sigmoid of |x| and of -|x| */
        const A off = 1 - target, on = pos_weight * target;
        const A up = (negative ? (A)0 : x) + log_sum, down = (negative ? -x : (A)0) + log_sum;
        x = (negative ? off * small - on * large : off * large - on * small) * factor;
        return off * up + on * down;
    }
};

/* Any bad column of the row will do.  Inlined, since a reference would move the call to the
 * stack. */
static __device__ __forceinline__ void report_target(const loss_call &call, int64_t row, int col)
{
    if (atomicCAS(&call.finding->code, 0, call.args.finding) != 0) return;
    call.finding->value = col;
    call.finding->row = row;
    call.finding->limit = call.args.cols;
}

/* Called by one thread per row. */
template<class A>
static __device__ __forceinline__ void finish_row(const loss_call &call, int64_t row, A sum,
                                                  bool bad)
{
    const double mean = bad ? CUDART_NAN : (double)sum / (double)call.args.cols;
    if (call.args.loss) ((A *)call.args.loss)[row] = (A)mean;
    if (call.row_losses) call.row_losses[row] = mean;
}

template<template<class> class Loss, class T, int VECS, int ROWS, class Team>
__device__ __forceinline__ void loss_rows(const loss_call &call, Team &team, int64_t first_row,
                                          int rows, row_place place, bool leads)
{
    using vector = vector16<T>;
    constexpr int N = vector::N, VALUES = Loss<T>::CHECKS ? 2 : 1;
    const tutti__loss_args &args = call.args;
    const int cols = (int)args.cols;
    const Loss<T> loss(args);

    uint4 raw[ROWS][VECS], target[ROWS][VECS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int64_t row = r < rows ? first_row + r : 0;
        const int count = r < rows ? cols : 0;
        load_row<T>(raw[r], (const T *)args.x.data + row * args.x.stride, place, count);
        load_row<T>(target[r], (const T *)args.target.data + row * args.target.stride, place,
                    count);
    }
    team.begin();

    float sum[ROWS * VALUES]; /* of losses, then of threads that found bad targets */
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int bad_col = -1;
        sum[r] = 0;
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            const int col = place.column<T>(k);
            float x[N], t[N];
            vector::unpack(raw[r][k], x);
            vector::unpack(target[r][k], t);
            for_elements<N>(r < rows ? cols - col : 0, [&](int i) {
                if (Loss<T>::is_bad(t[i])) bad_col = col + i;
                sum[r] += loss.of(x[i], t[i]);
            });
            raw[r][k] = vector::pack(x);
        }
        if constexpr (Loss<T>::CHECKS) {
            sum[ROWS + r] = bad_col < 0 ? 0.0f : 1.0f;
            if (bad_col >= 0) report_target(call, first_row + r, bad_col);
        }
    }
    team.template reduce<row_add>(sum);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const bool bad = Loss<T>::CHECKS && sum[ROWS * (VALUES - 1) + r] > 0;
        if (leads && r < rows) finish_row(call, first_row + r, sum[r], bad);
        if (!args.dx.data) continue;
        if (bad) {
            float nan[N];
#pragma unroll
            for (int i = 0; i < N; i++) nan[i] = CUDART_NAN_F;
#pragma unroll
            for (int k = 0; k < VECS; k++) raw[r][k] = vector::pack(nan);
        }
        store_row((T *)args.dx.data + (r < rows ? first_row + r : 0) * args.dx.stride, raw[r],
                  place, r < rows ? cols : 0);
    }
}

template<template<class> class Loss, class T>
__global__ void __launch_bounds__(1024) loss_long_kernel(loss_call call)
{
    using A = typename wide_row<T>::A;
    constexpr int N = wide_row<T>::N;
    const tutti__loss_args &args = call.args;
    __shared__ block_team_slots<A, 2> slots;
    block_team<A, 2> team(slots, 1);
    const Loss<T> loss(args);
    int cols = (int)args.cols, step = blockDim.x * N, first = threadIdx.x * N;

    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        const T *from = (const T *)args.x.data + row * args.x.stride;
        const T *aim = (const T *)args.target.data + row * args.target.stride;
        T *to = args.dx.data ? (T *)args.dx.data + row * args.dx.stride : NULL;
        row_total<A> total;
        int bad_col = -1;
        for (int col = first; col < cols; col += step) {
            A x[N], t[N], part = 0;
            load_elements(x, from + col, cols - col, call.x_even);
            load_elements(t, aim + col, cols - col, call.target_even);
            for_elements<N>(cols - col, [&](int i) {
                if (Loss<T>::is_bad(t[i])) bad_col = col + i;
                part += loss.of(x[i], t[i]);
            });
            total.add(part);
            if (to) store_elements(to + col, x, cols - col, call.dx_even);
        }
        if (bad_col >= 0) report_target(call, row, bad_col);
        A sums[2] = {total.value(), bad_col < 0 ? (A)0 : (A)1};
        team.template reduce<row_add>(sums);
        if (threadIdx.x == 0) finish_row(call, row, sums[0], sums[1] > 0);
        if (!(sums[1] > 0) || !to) continue;
        for (int col = first; col < cols; col += step) {
            A nan[N];
#pragma unroll
            for (int i = 0; i < N; i++) nan[i] = (A)CUDART_NAN;
            store_elements(to + col, nan, cols - col, call.dx_even);
        }
    }
}

template<template<class> class Loss, class T>
struct element_losses {
    using call = loss_call;
    static constexpr int VALUES = 2, WARP_BLOCKS = 0, BLOCK_THREADS = 512;
    static auto lengthy() { return loss_long_kernel<Loss, T>; }

    template<int VECS, int ROWS, class Team>
    static __device__ __forceinline__ void of_rows(const call &c, Team &team, int64_t first_row,
                                                   int rows, row_place place, bool leads)
    {
        loss_rows<Loss, T, VECS, ROWS>(c, team, first_row, rows, place, leads);
    }
};

static tutti_status loss_plan(tutti_context *ctx, const void *untyped, bool backward,
                              tutti__plan *plan)
{
    (void)backward;
    const tutti__loss_args *args = (const tutti__loss_args *)untyped;
    return plan_losses(ctx, args->x, args->rows, args->cols, 2, plan);
}

static tutti_status loss_run(const tutti__job *job, const void *untyped)
{
    const char *what = "loss";
    loss_call call = {};
    const auto &args = call.args = *(const tutti__loss_args *)untyped;
    return run_losses(what, job, args.x, call, [&](auto type) {
        using T = typename decltype(type)::type;
        constexpr int N = 16 / (int)sizeof(T);
        call.x_even = row_even(args.x, args.rows, N);
        call.target_even = row_even(args.target, args.rows, N);
        call.dx_even = row_even(args.dx, args.rows, N);
        return args.kind == TUTTI__LOSS_MSE
                   ? launch_losses<element_losses<squared_error, T>, T>(what, job, call)
                   : launch_losses<element_losses<binary_cross_entropy, T>, T>(what, job, call);
    });
}

extern "C" const tutti__op tutti__cuda_loss = {loss_plan, loss_run, NULL};
