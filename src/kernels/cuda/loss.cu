/* Losses that are means over a row's elements: MSE and BCE of logits.  include/tutti/mse.h and
 * bce_with_logits.h have the mathematics.
 *
 * Fewest bytes: x and the target read once, dx written once, 3 rows cols elements.  An element's
 * loss and gradient need no other element, but a bad target makes all of its row's gradient NaN.
 * Short rows stay in a warp's registers; others, and f64, are written as they are read, and those
 * with a bad target once more.  The losses are kept in scratch, in f64, for a second kernel that
 * sums them.  BCE of 16-bit numbers is near the limit of instructions: 30 an element take almost as
 * long as its bytes. */
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/row_losses.cuh"
#include "kernels/cuda/row_ring.cuh"
#include "ops/loss.h"

/* Of rows that are too long for a warp: the threads of a block at most, the vectors that each
 * should have, for the loads of the first take as long as many, and those on their way. */
enum { LOSS_THREADS = 256, LOSS_VECTORS = 8, LOSS_DEPTH = 4 };

struct loss_call {
    tutti__loss_args args;
    bool even, dx_even; /* x and the target, dx: rows that begin on 16 bytes */
    double *row_losses; /* [rows], or NULL */
    tutti__finding *finding;
};

/* log(1 + e) for 0 <= e <= 1.  e + e^2 q(e): q's largest relative error, 0.6 2^-24, is the least
 * for its degree (Remez), and of every float e the result is right to 2.7 2^-24. */
static __device__ __forceinline__ float log_one_and(float e)
{
    float q = 0.00536482919f;
    q = fmaf(q, e, -0.030065811f);
    q = fmaf(q, e, 0.0792045647f);
    q = fmaf(q, e, -0.137538047f);
    q = fmaf(q, e, 0.19153656f);
    q = fmaf(q, e, -0.248571639f);
    q = fmaf(q, e, 0.333213226f);
    q = fmaf(q, e, -0.49999648f);
    return fmaf(q * e, e, e);
}
static __device__ __forceinline__ double log_one_and(double e)
{
    return log1p(e);
}
/* 1 / x for 1 <= x <= 2: for 16-bit results the hardware's, right to an ulp. */
template<class T, class A>
__device__ __forceinline__ A reciprocal(A x)
{
    if constexpr (sizeof(T) == 2) {
        float result;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
        return result;
    } else
        return 1 / x;
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
    static __device__ __forceinline__ bool may_be_bad(uint32_t) { return false; }
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
    /* Of the largest bits of targets, as integers: those from 0 to 1 are the smallest, -0 is not
     * bad. */
    static __device__ __forceinline__ bool may_be_bad(uint32_t most)
    {
        if (sizeof(T) == 8) return true;
        const uint32_t one = sizeof(T) == 4              ? 0x3f800000
                             : std::is_same_v<T, __half> ? 0x3c00
                                                         : 0x3f80;
        return (sizeof(T) == 4 ? most : max(most & 0xffff, most >> 16)) > one;
    }
    /* With n = |x|: the loss is (off + on) log(1 + exp(-n)) and n times the weight of the wrong
     * side; the gradient is, but for its sign, that weight times sigmoid(n) less the other's times
     * sigmoid(-n). */
    __device__ __forceinline__ A of(A &x, A target) const
    {
        const bool negative = x < 0;
        const A n = negative ? -x : x, e = exponential<T>::of(-n);
        const A off = 1 - target, on = pos_weight * target;
        const A wrong = negative ? on : off, right = negative ? off : on;
        const A slope = (wrong - right * e) * reciprocal<T>(1 + e);
        x = slope * (negative ? -factor : factor);
        return wrong * n + (off + on) * log_one_and(e);
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

/* A column with a bad target among those of vectors, whose first columns are col(k), or -1.  Those
 * beyond the row are 0. */
template<class Loss, class T, int VECS, class F>
__device__ __forceinline__ int bad_target(const uint4 (&target)[VECS], F &&col)
{
    constexpr int N = wide_row<T>::N;
    uint32_t most = 0;
#pragma unroll
    for (int k = 0; k < VECS; k++)
        for (uint32_t word : {target[k].x, target[k].y, target[k].z, target[k].w})
            most = sizeof(T) == 2 ? __vmaxu2(most, word) : max(most, word);
    int found = -1;
    if (Loss::may_be_bad(most)) {
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            typename wide_row<T>::A t[N];
            unpack<T>(target[k], t);
#pragma unroll
            for (int i = 0; i < N; i++)
                if (Loss::is_bad(t[i])) found = col(k) + i;
        }
    }
    return found;
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
        if constexpr (Loss<T>::CHECKS) {
            const int bad_col =
                bad_target<Loss<T>, T>(target[r], [&](int k) { return place.column<T>(k); });
            sum[ROWS + r] = bad_col < 0 ? 0.0f : 1.0f;
            if (bad_col >= 0) report_target(call, first_row + r, bad_col);
        }
        sum[r] = 0;
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            float x[N], t[N];
            vector::unpack(raw[r][k], x);
            vector::unpack(target[r][k], t);
            for_elements<N>(r < rows ? cols - place.column<T>(k) : 0,
                            [&](int i) { sum[r] += loss.of(x[i], t[i]); });
            raw[r][k] = vector::pack(x);
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

using loss_ring = word_ring<2, LOSS_DEPTH>;

/* A thread's vectors of one row, each in turn.  Those of aligned rows come by way of a ring. */
template<class T>
struct vector_stream {
    static constexpr int N = wide_row<T>::N;
    loss_ring &ring;
    const T *x, *target;
    int cols;
    bool even;

    /* Asks for the vectors at a column, if there are any. */
    __device__ __forceinline__ void ask(int col)
    {
        if (even && col < cols) {
            const int bytes = min(cols - col, N) * (int)sizeof(T);
            ring.fetch(0, x + col, bytes);
            ring.fetch(1, target + col, bytes);
        }
        ring.send();
    }
    /* Those asked for first: they are at `col`. */
    __device__ __forceinline__ void take(uint4 (&raw)[1], uint4 (&aim)[1], int col)
    {
        if (even) {
            ring.wait();
            raw[0] = ring.read(0), aim[0] = ring.read(1);
        } else if constexpr (sizeof(T) < 8) {
            const row_place place = {col / N, 0, 32};
            load_row<T>(raw, x, place, cols);
            load_row<T>(aim, target, place, cols);
        } else {
            raw[0] = gather(x + col, cols - col), aim[0] = gather(target + col, cols - col);
        }
        ring.release();
    }
};

template<template<class> class Loss, class T>
__global__ void __launch_bounds__(LOSS_THREADS) loss_long_kernel(loss_call call)
{
    using A = typename wide_row<T>::A;
    constexpr int N = wide_row<T>::N;
    const tutti__loss_args &args = call.args;
    extern __shared__ __align__(128) uint4 words[];
    __shared__ block_team_slots<A, 2> slots;
    block_team<A, 2> team(slots, 1);
    const Loss<T> loss(args);
    const int cols = (int)args.cols, step = blockDim.x * N, first = threadIdx.x * N;

    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        loss_ring ring(words, (int)blockDim.x);
        vector_stream<T> stream = {ring, (const T *)args.x.data + row * args.x.stride,
                                   (const T *)args.target.data + row * args.target.stride, cols,
                                   call.even};
        T *to = args.dx.data ? (T *)args.dx.data + row * args.dx.stride : NULL;
        /* called by whole warps */
        auto write = [&](int col, const A(&values)[N]) {
            if constexpr (sizeof(T) < 8) {
                if (!call.dx_even) {
                    const uint4 raw[1] = {pack<T>(values)};
                    store_row(to, raw, row_place{col / N, 0, 32}, cols);
                    return;
                }
            }
            store_elements(to + col, values, cols - col, call.dx_even);
        };
        row_total<A> total;
        int bad_col = -1;
#pragma unroll
        for (int d = 0; d < LOSS_DEPTH - 1; d++) stream.ask(first + d * step);
        for (int col = first; col - first < cols; col += step) {
            uint4 raw[1], target[1];
            stream.ask(col + (LOSS_DEPTH - 1) * step);
            stream.take(raw, target, col);
            A x[N], t[N], part = 0;
            unpack<T>(raw[0], x);
            unpack<T>(target[0], t);
            if (Loss<T>::CHECKS && col < cols) { /* beyond, nothing has been read */
                const int bad = bad_target<Loss<T>, T>(target, [&](int) { return col; });
                if (bad >= 0) bad_col = bad;
            }
            for_elements<N>(cols - col, [&](int i) { part += loss.of(x[i], t[i]); });
            total.add(part);
            if (to) write(col, x);
        }
        if (bad_col >= 0) report_target(call, row, bad_col);
        A sums[2] = {total.value(), bad_col < 0 ? (A)0 : (A)1};
        team.template reduce<row_add>(sums);
        if (threadIdx.x == 0) finish_row(call, row, sums[0], sums[1] > 0);
        if (!(sums[1] > 0) || !to) continue;
        A nan[N];
#pragma unroll
        for (int i = 0; i < N; i++) nan[i] = (A)CUDART_NAN;
        for (int col = first; col - first < cols; col += step) write(col, nan);
    }
}

template<template<class> class Loss, class T>
struct element_losses {
    using call = loss_call;
    static constexpr int VALUES = 2, WARP_BLOCKS = 0;
    static auto lengthy() { return loss_long_kernel<Loss, T>; }
    static int lengthy_threads(int64_t cols)
    {
        const int64_t most = LOSS_THREADS, each = LOSS_VECTORS * wide_row<T>::N;
        return row_round_up((int)(cols < most * each ? (cols + each - 1) / each : most), 32);
    }
    static size_t lengthy_shared(int threads) { return loss_ring::words(threads) * sizeof(uint4); }

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
    (void)ctx, (void)backward;
    const tutti__loss_args *args = (const tutti__loss_args *)untyped;
    plan_losses(args->x, args->rows, args->cols, plan);
    return TUTTI_OK;
}

static tutti_status loss_run(const tutti__job *job, const void *untyped)
{
    const char *what = "loss";
    loss_call call = {};
    const auto &args = call.args = *(const tutti__loss_args *)untyped;
    return run_losses(what, job, args.x, call, [&](auto type) {
        using T = typename decltype(type)::type;
        constexpr int N = 16 / (int)sizeof(T);
        call.even = row_even(args.x, args.rows, N) && row_even(args.target, args.rows, N);
        call.dx_even = row_even(args.dx, args.rows, N);
        return args.kind == TUTTI__LOSS_MSE
                   ? launch_losses<element_losses<squared_error, T>, T>(what, job, call)
                   : launch_losses<element_losses<binary_cross_entropy, T>, T>(what, job, call);
    });
}

extern "C" const tutti__op tutti__cuda_loss = {loss_plan, loss_run, NULL};
