/* Rows of doubles held in registers, for softmax and cross-entropy.
 *
 * An access is of one element, and neighbouring threads have neighbouring columns: so it does not
 * matter where a row begins.  A row has 1 to 32 lanes, a block, or a cluster of blocks, which end
 * with it, and a thread up to DOUBLES columns of it.  A double takes two registers and its
 * exponential some twenty instructions, so a row is read once and its exponentials are kept.
 *
 * Rows, of one layer and direction, is the rest:
 *   call      the kernel's parameter, with args.rows
 *   TENSORS   of which a thread has its columns in shared memory besides
 *   of_row    what a team of threads does for a row */
#ifndef TUTTI_KERNELS_CUDA_DOUBLE_ROWS_CUH
#define TUTTI_KERNELS_CUDA_DOUBLE_ROWS_CUH

#include "kernels/cuda/parked.cuh"

enum {
    DOUBLES = 16,              /* of a row, that a thread has at most */
    DOUBLES_TOGETHER = 4,      /* exponentials that are computed side by side */
    DOUBLE_LANES_THREADS = 128 /* of a block, where lanes of a warp have a row */
};

/* Host side */

struct double_plan {
    int count; /* columns a thread; 0: the row does not fit */
    int lanes; /* 1 to 32 a row; 0: a block or more */
    int threads, cluster;
};

/* Measured on an H200: a block, as far as it goes, before clusters; these of blocks of 256 threads,
 * as far as 8 of them go, of which more rows are under way. */
static inline double_plan double_plan_for(int64_t cols, int device)
{
    double_plan plan = {DOUBLES, 1, DOUBLE_LANES_THREADS, 1};
    if (cols <= 256) {
        plan.count = cols <= 32 ? 4 : 8;
        while (plan.lanes * plan.count < cols) plan.lanes *= 2;
        return plan;
    }
    plan.lanes = 0;
    int64_t threads = (cols + DOUBLES - 1) / DOUBLES;
    if (threads > PARKED_THREADS && tutti__cuda_has_clusters(device)) {
        while (plan.cluster < ROW_CLUSTER_MAX && threads > plan.cluster * 256) plan.cluster *= 2;
        threads = (threads + plan.cluster - 1) / plan.cluster;
    }
    if (threads > PARKED_THREADS) plan.count = 0;
    plan.threads = (int)((threads + 31) / 32 * 32);
    return plan;
}

/* Device side */

/* The columns of a thread: first + k * step.  lanes: of its warp, that have the row. */
struct double_place {
    int first, step, lanes;
    /* How many of a thread's are among the row's first `cols`. */
    __device__ __forceinline__ int held(int cols) const
    {
        return (int)((unsigned)max(cols - first + step - 1, 0) / (unsigned)step);
    }
};

__device__ __forceinline__ void fetch8(double *to, const double *from)
{
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], 8;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
        "l"(from)
        : "memory");
}

template<int COUNT>
__device__ __forceinline__ void load_doubles(double (&values)[COUNT], const double *row,
                                             double_place place, int held)
{
    const double *at = row + place.first;
#pragma unroll
    for (int k = 0; k < COUNT; k++, at += place.step) values[k] = k < held ? *at : 0.0;
}

/* exp(x), within an ulp, without branches: the compiler computes those of an array side by side.
 * x = n log 2 + r; the polynomial is Chebyshev's interpolation of (exp(r) - 1 - r) / r^2.  [Cody &
 * Waite 1980, Software Manual for the Elementary Functions] */
template<int N>
__device__ __forceinline__ void exponentials(double (&x)[N])
{
    constexpr double terms[] = {0x1.af389ed28db09p-26,
                                0x1.28917c8be7ad6p-22,
                                0x1.71de0db2f585ep-19,
                                0x1.a019b914985a9p-16,
                                0x1.a01a01a7c2f03p-13,
                                0x1.6c16c17889ef9p-10,
                                0x1.11111111109b5p-7,
                                0x1.5555555553d68p-5,
                                0x1.5555555555556p-3,
                                0x1.0000000000001p-1,
                                1,
                                1};
    constexpr double round = 0x1.8p52; /* added to a number: an integer, in the low word */
    double power[N];
    int n[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        const double most = 746; /* beyond which results are 0 or infinite */
        if (fabs(x[i]) > most) x[i] = copysign(most, x[i]);
        const double shifted = fma(x[i], 0x1.71547652b82fep+0, round), whole = shifted - round;
        n[i] = __double2loint(shifted);
        x[i] = fma(whole, -0x1.62e42fefa39efp-1, x[i]);
        x[i] = fma(whole, -0x1.abc9e3b39803fp-56, x[i]);
        power[i] = terms[0];
    }
#pragma unroll
    for (int t = 1; t < (int)(sizeof terms / sizeof *terms); t++) {
#pragma unroll
        for (int i = 0; i < N; i++) power[i] = fma(power[i], x[i], terms[t]);
    }
    /* times 2^n, by two factors, as the result may be subnormal */
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int half = n[i] >> 1;
        x[i] = power[i] * __hiloint2double((half + 1023) << 20, 0) *
               __hiloint2double((n[i] - half + 1023) << 20, 0);
    }
}

/* take(k, exp(exponent(k))) of a thread's columns, some together: of those up to its last one. */
template<int COUNT, class Exponent, class Take>
__device__ __forceinline__ void each_exponential(int held, Exponent &&exponent, Take &&take)
{
    constexpr int E = DOUBLES_TOGETHER;
#pragma unroll
    for (int k = 0; k < COUNT; k += E) {
        if (k >= held) continue;
        double e[E];
#pragma unroll
        for (int i = 0; i < E; i++) e[i] = exponent(k + i);
        exponentials(e);
#pragma unroll
        for (int i = 0; i < E; i++) take(k + i, e[i]);
    }
}

/* A row's sums of exponentials from its maximum, from those of each warp from its own: values are a
 * maximum, the sum that belongs to it, and other sums, the same in all lanes that have the row. */
template<int N>
__device__ __forceinline__ void merge_exponentials(lane_team &, double, double (&)[N])
{
}
template<int N>
__device__ __forceinline__ void merge_exponentials(block_team<double, N> &team, double size,
                                                   double (&values)[N])
{
    team.spread(values);
    const auto &parts = team.slots.partial[team.turn];
    double top[1], sums[N - 1];
    team.template collect<row_max>(top, [&](int, int i) { return parts[0][i]; });
    team.template collect<row_add>(sums, [&](int n, int i) {
        double part[1] = {(parts[0][i] - top[0]) * size};
        exponentials(part);
        /* a sum of 0 stays 0, if size is 0, too */
        return n > 0 || parts[1][i] == 0 ? parts[n + 1][i] : parts[1][i] * part[0];
    });
    values[0] = top[0];
#pragma unroll
    for (int n = 1; n < N; n++) values[n] = sums[n - 1];
}

/* width: lanes a row, or blocks of a cluster. */
template<class Rows, int COUNT, bool LANES>
__global__ void __launch_bounds__(LANES ? DOUBLE_LANES_THREADS : PARKED_THREADS,
                                  bound_blocks(LANES ? 8 : 2))
    double_rows_kernel(typename Rows::call call, int width)
{
    extern __shared__ double doubles[];
    double *mine = doubles + threadIdx.x;
    if constexpr (LANES) {
        const int64_t row = (int64_t)blockIdx.x * (blockDim.x / width) + threadIdx.x / width;
        lane_team team = {width};
        const bool exists = row < call.args.rows; /* if not, it takes part in the shuffles */
        Rows::template of_row<COUNT>(call, team, exists ? row : 0, exists,
                                     double_place{(int)threadIdx.x % width, width, width}, mine);
    } else {
        __shared__ block_team_slots<double, Rows::VALUES> slots;
        block_team<double, Rows::VALUES> team(slots, width);
        const int threads = blockDim.x;
        Rows::template of_row<COUNT>(
            call, team, blockIdx.x / width, true,
            double_place{team.rank * threads * COUNT + (int)threadIdx.x, threads, 32}, mine);
    }
}

template<class Rows>
static tutti_status launch_double_rows(const char *what, tutti_context *ctx,
                                       const typename Rows::call &call, const double_plan &plan)
{
    auto launch = [&](auto kernel, int64_t grid, int width) {
        constexpr int each = Rows::TENSORS * (int)sizeof(double);
        const int bytes = each * plan.threads * plan.count;
        if (bytes > 40 << 10) /* always the same value, as in parked_launch */
            TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            each * PARKED_THREADS * DOUBLES),
                       what);
        return row_launch(what, kernel, (unsigned)grid, plan.threads, plan.cluster, (size_t)bytes,
                          tutti__cuda_stream(ctx), call, width);
    };
    const int64_t rows = call.args.rows;
    if (!plan.lanes)
        return launch(double_rows_kernel<Rows, DOUBLES, false>, rows * plan.cluster, plan.cluster);
    const int each = plan.threads / plan.lanes;
    const int64_t blocks = (rows + each - 1) / each;
    if (plan.count == 4) return launch(double_rows_kernel<Rows, 4, true>, blocks, plan.lanes);
    return launch(double_rows_kernel<Rows, 8, true>, blocks, plan.lanes);
}

#endif
