/* LayerNorm and RMSNorm, forward.  include/tutti/layernorm.h has the mathematics.
 *
 * Fewest bytes: x read, y written (with a residual: x and r read, sum and y written), the
 * parameters once an SM, a few bytes a row of saved.  A row stays in registers, as the 16-byte
 * vectors that memory holds, from its only read to the write of y; the variance is that of the
 * centred values.  rows.cuh describes how rows are divided among threads.
 *
 * The common pairings (x and y of one type f32, f16 or bf16, parameters of any of these) have
 * kernels of their own; all others, and rows that fit on no cluster, use one kernel that loads and
 * stores by run-time type. */
#include "kernels/cuda/norm.cuh"

struct norm_forward_even {
    bool x, residual, sum, y, gamma, beta;
    float inverse_cols;
};

/* Sums over a thread's vectors of a row, in parts so that there is no single chain of additions.
 * All kernels of this file that hold a row in registers use these, with fused operations explicit,
 * so that a row has the same bits in each. */
template<class T, int VECS>
__device__ __forceinline__ float sum_held(const uint4 (&raw)[VECS])
{
    constexpr int N = vector16<T>::N;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < VECS; k++) {
        float v[N], part = 0;
        vector16<T>::unpack(raw[k], v);
#pragma unroll
        for (int i = 0; i < N; i++) part += v[i];
        sum += part;
    }
    return sum;
}

/* Sum of (x - mean)^2, and if wanted of x - mean.  WHOLE: a vector lies inside of the row or beyond
 * it. */
template<class T, bool WHOLE, int VECS>
__device__ __forceinline__ float squares_held(uint4 (&raw)[VECS], row_place place, int cols,
                                              float mean, float *moved = nullptr)
{
    constexpr int N = vector16<T>::N;
    float sum = 0;
    if (moved) *moved = 0;
#pragma unroll
    for (int k = 0; k < VECS; k++) {
        int left = cols - place.column<T>(k);
        float v[N], part = 0, part_moved = 0;
        hold_packed<T>(raw[k]);
        vector16<T>::unpack(raw[k], v);
        auto add = [&](int i) {
            float centred = v[i] - mean;
            part = fmaf(centred, centred, part);
            if (moved) part_moved += centred;
        };
        if constexpr (WHOLE) {
#pragma unroll
            for (int i = 0; i < N; i++) add(i);
            part = left > 0 ? part : 0;
            part_moved = left > 0 ? part_moved : 0;
        } else
            for_elements<N>(left, add);
        sum += part;
        if (moved) *moved += part_moved;
    }
    return sum;
}

/* A row is delicate if its deviations are so small relative to its mean that the mean's rounding
 * would show in them, or if its sums overflow (it stays NaN then); a row of zeros is not.  The mean
 * is then corrected twice by the mean of x - mean, and the squares by its square [Chan, Golub &
 * LeVeque 1983].  So a row of equal values has that value as its mean, and squares of 0. */
template<class A>
__device__ __forceinline__ bool is_delicate(A mean, A mean_square)
{
    return mean != 0 && !(mean_square > mean * mean * (A)0x1p-6);
}

enum { DELICATE_PASSES = 2 };

/* After a pass: the sums of x - mean and of (x - mean)^2, and the mean of the former. */
template<class A>
__device__ __forceinline__ void correct_mean(A &mean, A &squares, A sum, A moved)
{
    mean += moved;
    squares = fma(-moved, sum, squares);
    squares = squares < 0 ? 0 : squares;
}

/* Makes the compiler recompute what follows from these (columns, and whether they are in the row)
 * instead of keeping it in scarce registers. */
static __device__ __forceinline__ void forget(row_place &place, int &cols)
{
    asm volatile("" : "+r"(cols), "+r"(place.first), "+r"(place.step));
}

template<class T, bool WHOLE, int ROWS, int VECS, class Team>
__device__ __forceinline__ void correct_delicate(uint4 (&raw)[ROWS][VECS], Team &team,
                                                 row_place place, int cols, float inverse_cols,
                                                 float (&mean)[ROWS], float (&squares)[ROWS])
{
    bool delicate[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) delicate[r] = is_delicate(mean[r], squares[r] * inverse_cols);
#pragma unroll 1
    for (int pass = 0; pass < DELICATE_PASSES; pass++) {
        float sums[2 * ROWS];
        if (!WHOLE) forget(place, cols);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            sums[2 * r] = squares_held<T, WHOLE>(raw[r], place, cols, mean[r], &sums[2 * r + 1]);
        team.template reduce<row_add>(sums);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (!delicate[r]) continue;
            squares[r] = sums[2 * r];
            correct_mean(mean[r], squares[r], sums[2 * r + 1],
                         __fmul_rn(sums[2 * r + 1], inverse_cols));
        }
    }
}

/* Mean and rstd of ROWS rows.  A row is not changed by a delicate neighbour. */
template<class T, bool WHOLE, bool CENTERED, int ROWS, int VECS, class Team>
__device__ __forceinline__ void find_statistics(uint4 (&raw)[ROWS][VECS], Team &team,
                                                row_place place, int cols, float inverse_cols,
                                                float eps, float (&mean)[ROWS], float (&rstd)[ROWS])
{
#pragma unroll
    for (int r = 0; r < ROWS; r++) mean[r] = 0;
    if constexpr (CENTERED) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) mean[r] = sum_held<T>(raw[r]);
        team.template reduce<row_add>(mean);
#pragma unroll
        /* not fused with the subtractions: all kernels must have the same mean */
        for (int r = 0; r < ROWS; r++) mean[r] = __fmul_rn(mean[r], inverse_cols);
    }
    float squares[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        squares[r] = squares_held<T, WHOLE>(raw[r], place, cols, mean[r]);
    team.template reduce<row_add>(squares);
    if constexpr (CENTERED) {
        bool delicate = false;
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            delicate = delicate || is_delicate(mean[r], squares[r] * inverse_cols);
        if (team.any(delicate))
            correct_delicate<T, WHOLE>(raw, team, place, cols, inverse_cols, mean, squares);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        rstd[r] = isfinite(squares[r]) ? rsqrtf(fmaf(squares[r], inverse_cols, eps)) : CUDART_NAN_F;
}

template<class T>
__device__ __forceinline__ uint4 scaled(const uint4 &raw, float mean, float rstd,
                                        const float (&gamma)[vector16<T>::N],
                                        const float (&beta)[vector16<T>::N])
{
    float v[vector16<T>::N];
    vector16<T>::unpack(raw, v);
#pragma unroll
    for (int i = 0; i < vector16<T>::N; i++) v[i] = fmaf((v[i] - mean) * rstd, gamma[i], beta[i]);
    return vector16<T>::pack(v);
}

/* ROWS rows at once, each divided over a team. */
template<class T, int VECS, int ROWS, bool CENTERED, class Team>
__device__ __forceinline__ void
norm_forward_rows(const tutti__norm_args &args, const norm_forward_even &even, Team &team,
                  int64_t first_row, int rows, row_place place, bool writes_saved)
{
    using vector = vector16<T>;
    constexpr int N = vector::N;
    int cols = (int)args.cols;

    uint4 raw[ROWS][VECS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        load_row<T>(raw[r], (const T *)args.x.data + (r < rows ? first_row + r : 0) * args.x.stride,
                    place, r < rows ? cols : 0);
    if (args.residual.data) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int64_t row = r < rows ? first_row + r : 0;
            uint4 other[VECS];
            load_row<T>(other, (const T *)args.residual.data + row * args.residual.stride, place,
                        r < rows ? cols : 0);
#pragma unroll
            for (int k = 0; k < VECS; k++) {
                float a[N], b[N];
                vector::unpack(raw[r][k], a);
                vector::unpack(other[k], b);
#pragma unroll
                for (int i = 0; i < N; i++) a[i] += b[i];
                raw[r][k] = vector::pack(a);
            }
            if (args.sum.data)
                store_row((T *)args.sum.data + row * args.sum.stride, raw[r], place,
                          r < rows ? cols : 0);
        }
    }

    forget(place, cols);
    team.begin();
    float mean[ROWS], rstd[ROWS];
    find_statistics<T, false, CENTERED>(raw, team, place, cols, even.inverse_cols, (float)args.eps,
                                        mean, rstd);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (args.rstd && writes_saved && r < rows) {
            ((float *)args.rstd)[first_row + r] = rstd[r];
            if (CENTERED) ((float *)args.mean)[first_row + r] = mean[r];
        }
    }

    forget(place, cols);
    T *y[ROWS];
    bool whole[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        y[r] = (T *)args.y.data + (r < rows ? first_row + r : 0) * args.y.stride;
        whole[r] = stores_whole(y[r], r < rows ? cols : 0);
    }
#pragma unroll
    for (int k = 0; k < VECS; k++) {
        int col = place.column<T>(k);
        float gamma[N], beta[N];
#pragma unroll
        for (int i = 0; i < N; i++) gamma[i] = 1, beta[i] = 0;
        if (args.gamma && col < cols) {
            load_param(gamma, args.gamma, args.param_dtype, col, cols - col, even.gamma);
            if (args.zero_centered) {
#pragma unroll
                for (int i = 0; i < N; i++) gamma[i] += 1;
            }
            if (args.beta)
                load_param(beta, args.beta, args.param_dtype, col, cols - col, even.beta);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            hold_packed<T>(raw[r][k]);
            raw[r][k] = scaled<T>(raw[r][k], mean[r], rstd[r], gamma, beta);
            if (whole[r]) store_whole(y[r], col, raw[r][k], r < rows ? cols : 0);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (!whole[r]) store_row(y[r], raw[r], place, r < rows ? cols : 0);
}

template<class T, int VECS, bool CENTERED>
__global__ void __launch_bounds__(ROW_WARP_THREADS, VECS == 4 ? 4 : 5)
    norm_forward_warp_kernel(tutti__norm_args args, norm_forward_even even, int lanes)
{
    constexpr int ROWS = ROW_WARP_VECS / VECS;
    lane_team team = {lanes};
    int lane = threadIdx.x % lanes, group = threadIdx.x / lanes, groups = ROW_WARP_THREADS / lanes;
    int64_t stride = (int64_t)gridDim.x * groups * ROWS;
    /* whole warps go round together: a group past the end has no rows but takes part in the
     * shuffles */
    for (int64_t base = (int64_t)blockIdx.x * groups * ROWS; base < args.rows; base += stride) {
        int64_t first_row = base + (int64_t)group * ROWS, left = args.rows - first_row;
        int rows = left <= 0 ? 0 : left < ROWS ? (int)left : ROWS;
        norm_forward_rows<T, VECS, ROWS, CENTERED>(args, even, team, first_row, rows,
                                                   row_place{lane, lanes, lanes}, lane == 0);
    }
}

template<class T, int VECS, bool CENTERED>
__global__ void __launch_bounds__(1024)
    norm_forward_block_kernel(tutti__norm_args args, norm_forward_even even, int cluster)
{
    __shared__ block_team_slots<float, 2> slots;
    block_team<float, 2> team(slots, cluster);
    int threads = blockDim.x;
    row_place place = {team.rank * threads * VECS + (int)threadIdx.x, threads, 32};
    for (int64_t row = blockIdx.x / cluster; row < args.rows; row += gridDim.x / cluster)
        norm_forward_rows<T, VECS, 1, CENTERED>(args, even, team, row, 1, place,
                                                team.rank == 0 && threadIdx.x == 0);
}

/* The usual case at full speed: no residual, parameters of x's type, not zero-centred, whole
 * aligned vectors.  A block loops over rows, keeps its columns' parameters in registers and loads
 * the next row while it computes one. */
enum {
    STREAM_VECS = 4,
    STREAM_THREADS = 512,
    STREAM_WARPS_AN_SM = 20,
    STREAM_REGISTERS = 96 /* so that 20 warps fit */
};

template<class T, bool CENTERED>
__global__ void __maxnreg__(STREAM_REGISTERS)
    norm_forward_stream_kernel(tutti__norm_args args, norm_forward_even even)
{
    using vector = vector16<T>;
    constexpr int N = vector::N;
    __shared__ block_team_slots<float, 2> slots;
    block_team<float, 2> team(slots, 1);
    int cols = (int)args.cols;
    row_place place = {(int)threadIdx.x, (int)blockDim.x, 32};
    auto load = [&](uint4(&raw)[STREAM_VECS], const void *data) {
#pragma unroll
        for (int k = 0; k < STREAM_VECS; k++) {
            int col = place.column<T>(k);
            raw[k] = col < cols ? *(const uint4 *)((const T *)data + col) : make_uint4(0, 0, 0, 0);
        }
    };
    uint4 gamma_held[STREAM_VECS], beta_held[STREAM_VECS], next[STREAM_VECS];
    float ones[N];
#pragma unroll
    for (int i = 0; i < N; i++) ones[i] = 1;
#pragma unroll
    for (int k = 0; k < STREAM_VECS; k++) {
        gamma_held[k] = vector::pack(ones);
        beta_held[k] = make_uint4(0, 0, 0, 0);
    }
    if (args.gamma) load(gamma_held, args.gamma);
    if (args.beta) load(beta_held, args.beta);

    int64_t row = blockIdx.x, step = gridDim.x;
    load(next, (const T *)args.x.data + row * args.x.stride);
    for (; row < args.rows; row += step) {
        uint4 raw[1][STREAM_VECS];
#pragma unroll
        for (int k = 0; k < STREAM_VECS; k++) raw[0][k] = next[k];
        if (row + step < args.rows)
            load(next, (const T *)args.x.data + (row + step) * args.x.stride);
        float mean[1], rstd[1];
        find_statistics<T, true, CENTERED>(raw, team, place, cols, even.inverse_cols,
                                           (float)args.eps, mean, rstd);
        if (args.rstd && threadIdx.x == 0) {
            ((float *)args.rstd)[row] = rstd[0];
            if (CENTERED) ((float *)args.mean)[row] = mean[0];
        }
        T *y = (T *)args.y.data + row * args.y.stride;
#pragma unroll
        for (int k = 0; k < STREAM_VECS; k++) {
            float gamma[N], beta[N];
            hold_packed<T>(gamma_held[k]);
            hold_packed<T>(beta_held[k]);
            hold_packed<T>(raw[0][k]);
            vector::unpack(gamma_held[k], gamma);
            vector::unpack(beta_held[k], beta);
            store_whole(y, place.column<T>(k), scaled<T>(raw[0][k], mean[0], rstd[0], gamma, beta),
                        cols);
        }
    }
}

/* Any types, any length.  A block per row; with `staged` the row is kept in shared memory as
 * arithmetic values, otherwise it is read again for each of the sums and for y. */
enum { ANY_WIDTH = 8, ANY_THREADS = 512 };

template<class A>
struct norm_forward_reader {
    const tutti__norm_args &args;
    const norm_forward_even &even;
    int64_t row;

    /* the values to be normalised; `again`: the sum has been written */
    __device__ __forceinline__ void operator()(A (&v)[ANY_WIDTH], int col, bool again) const
    {
        int cols = (int)args.cols, count = cols - col;
        if (again && args.sum.data) {
            load_any(v, args.sum.data, args.sum.dtype, row * args.sum.stride + col, count,
                     even.sum);
            return;
        }
        load_any(v, args.x.data, args.x.dtype, row * args.x.stride + col, count, even.x);
        if (args.residual.data) {
            A r[ANY_WIDTH];
            load_any(r, args.residual.data, args.residual.dtype, row * args.residual.stride + col,
                     count, even.residual);
#pragma unroll
            for (int i = 0; i < ANY_WIDTH; i++) v[i] = round_to(v[i] + r[i]);
        }
    }

    __device__ __forceinline__ A round_to(A value) const
    {
        switch (args.x.dtype) {
        case TUTTI_F32:
            return widen<A>(narrow<float>::of(value));
        case TUTTI_F16:
            return widen<A>(narrow<__half>::of(value));
        case TUTTI_BF16:
            return widen<A>(narrow<__nv_bfloat16>::of(value));
        default:
            return value;
        }
    }
};

template<class A>
__global__ void __launch_bounds__(ANY_THREADS)
    norm_forward_any_kernel(tutti__norm_args args, norm_forward_even even, bool staged)
{
    extern __shared__ __align__(16) unsigned char dynamic_shared[];
    A *stage = (A *)dynamic_shared;
    __shared__ block_team_slots<A, 2> slots;
    block_team<A, 2> team(slots, 1);
    int cols = (int)args.cols, step = blockDim.x * ANY_WIDTH, first = threadIdx.x * ANY_WIDTH;
    A count = (A)cols;

    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        norm_forward_reader<A> read = {args, even, row};
        A v[ANY_WIDTH], mean = 0;
        row_total<A> total;
        for (int col = first; col < cols; col += step) {
            A part = 0;
            read(v, col, false);
            if (args.sum.data)
                store_any(args.sum.data, args.sum.dtype, row * args.sum.stride + col, v, cols - col,
                          even.sum);
#pragma unroll
            for (int i = 0; i < ANY_WIDTH; i++)
                if (col + i < cols) {
                    part += args.centered ? v[i] : v[i] * v[i];
                    if (staged) stage[col + i] = v[i];
                }
            total.add(part);
        }
        A sums[2] = {total.value(), 0};
        /* from here on a thread reads only what it has staged or written itself */
        auto reread = [&](int col) {
            if (!staged)
                read(v, col, true);
            else
#pragma unroll
                for (int i = 0; i < ANY_WIDTH; i++) v[i] = col + i < cols ? stage[col + i] : (A)0;
        };
        /* sums over the row of (x - mean)^2 and of x - mean */
        auto sum_centred = [&]() {
            row_total<A> squares, moved;
            for (int col = first; col < cols; col += step) {
                reread(col);
                A part = 0, part_moved = 0;
#pragma unroll
                for (int i = 0; i < ANY_WIDTH; i++)
                    if (col + i < cols) {
                        A centred = v[i] - mean;
                        part += centred * centred;
                        part_moved += centred;
                    }
                squares.add(part);
                moved.add(part_moved);
            }
            sums[0] = squares.value();
            sums[1] = moved.value();
            team.template reduce<row_add>(sums);
        };
        team.template reduce<row_add>(sums);
        if (args.centered) {
            mean = sums[0] / count;
            int passes = 1; /* and more for a delicate row */
#pragma unroll 1
            for (int pass = 0; pass < passes; pass++) {
                sum_centred();
                if (pass == 0 && is_delicate(mean, sums[0] / count)) passes += DELICATE_PASSES;
                if (pass > 0) correct_mean(mean, sums[0], sums[1], sums[1] / count);
            }
        }
        A rstd = isfinite(sums[0]) ? (A)1 / sqrt(sums[0] / count + (A)args.eps) : (A)CUDART_NAN;
        if (args.rstd && threadIdx.x == 0) {
            ((A *)args.rstd)[row] = rstd;
            if (args.centered) ((A *)args.mean)[row] = mean;
        }
        for (int col = first; col < cols; col += step) {
            reread(col);
#pragma unroll
            for (int i = 0; i < ANY_WIDTH; i++) v[i] = (v[i] - mean) * rstd;
            if (args.gamma) {
                A p[ANY_WIDTH];
                load_any(p, args.gamma, args.param_dtype, col, cols - col, even.gamma);
#pragma unroll
                for (int i = 0; i < ANY_WIDTH; i++) v[i] *= args.zero_centered ? p[i] + (A)1 : p[i];
                if (args.beta) {
                    load_any(p, args.beta, args.param_dtype, col, cols - col, even.beta);
#pragma unroll
                    for (int i = 0; i < ANY_WIDTH; i++) v[i] += p[i];
                }
            }
            store_any(args.y.data, args.y.dtype, row * args.y.stride + col, v, cols - col, even.y);
        }
    }
}

static norm_forward_even find_even(const tutti__norm_args *args, int width)
{
    int64_t rows = args->rows;
    return {row_even(args->x, rows, width),
            row_even(args->residual, rows, width),
            row_even(args->sum, rows, width),
            row_even(args->y, rows, width),
            row_param_even(args->gamma, args->param_dtype, width),
            row_param_even(args->beta, args->param_dtype, width),
            (float)(1.0 / (double)args->cols)};
}

template<class A>
static tutti_status forward_any(tutti_context *ctx, const tutti__norm_args *args)
{
    int threads = 32;
    while (threads < ANY_THREADS && threads * ANY_WIDTH < args->cols) threads *= 2;
    /* at least two blocks per SM, otherwise the row is read again from the cache */
    size_t shared = (size_t)args->cols * sizeof(A);
    size_t most = (size_t)tutti__cuda_shared_limit(ctx->device) / 2;
    bool staged = shared <= most;
    if (!staged) shared = 0;
    if (shared > 40 << 10) /* always the same value: contexts of other threads launch it too */
        TUTTI_CUDA(cudaFuncSetAttribute(norm_forward_any_kernel<A>,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize, (int)most),
                   "norm_forward");
    return row_launch("norm_forward", norm_forward_any_kernel<A>, row_grid(args->rows, 1, 1),
                      threads, 1, shared, tutti__cuda_stream(ctx), *args,
                      find_even(args, ANY_WIDTH), staged);
}

/* What norm_forward_stream_kernel takes. */
static bool streams(const tutti__norm_args *args, const norm_forward_even &even,
                    const row_plan &plan, int width)
{
    return plan.kind == ROW_BLOCK && plan.cluster == 1 && plan.vecs == STREAM_VECS &&
           plan.threads <= STREAM_THREADS && !args->residual.data && !args->zero_centered &&
           args->cols % width == 0 && (!args->gamma || args->param_dtype == args->x.dtype) &&
           even.x && even.y && even.gamma && even.beta;
}

template<class T>
static tutti_status forward_of(tutti_context *ctx, const tutti__norm_args *args,
                               const row_plan &plan)
{
    norm_forward_even even = find_even(args, vector16<T>::N);
    cudaStream_t stream = tutti__cuda_stream(ctx);
    if (streams(args, even, plan, vector16<T>::N)) {
        int64_t warps = plan.threads / 32, most = STREAM_WARPS_AN_SM / warps;
        int64_t blocks = tutti__cuda_sm_count(ctx->device) * (most > 0 ? most : 1);
        return row_launch("norm_forward",
                          args->centered ? norm_forward_stream_kernel<T, true>
                                         : norm_forward_stream_kernel<T, false>,
                          (unsigned)(args->rows < blocks ? args->rows : blocks), plan.threads, 1, 0,
                          stream, *args, even);
    }
    return row_with_vecs(plan, [&](auto vecs) {
        constexpr int VECS = decltype(vecs)::value;
        if (plan.kind == ROW_WARP)
            return row_launch(
                "norm_forward",
                args->centered ? norm_forward_warp_kernel<T, VECS, true>
                               : norm_forward_warp_kernel<T, VECS, false>,
                row_grid(args->rows, ROW_WARP_THREADS / plan.lanes * (ROW_WARP_VECS / VECS), 1),
                plan.threads, 1, 0, stream, *args, even, plan.lanes);
        if constexpr (VECS == 4)
            return row_launch("norm_forward",
                              args->centered ? norm_forward_block_kernel<T, VECS, true>
                                             : norm_forward_block_kernel<T, VECS, false>,
                              row_grid(args->rows, 1, plan.cluster), plan.threads, plan.cluster, 0,
                              stream, *args, even, plan.cluster);
        else
            return TUTTI_OK;
    });
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
    if (job->plan->kernel == FORWARD_ANY_F64) return forward_any<double>(job->ctx, args);
    if (job->plan->kernel == FORWARD_ANY) return forward_any<float>(job->ctx, args);
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
