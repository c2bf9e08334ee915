/* Softmax and log-softmax, forward and backward.  include/tutti/softmax.h has the mathematics.
 *
 * Fewest bytes: forward reads x and writes y, backward reads y and dy and writes dx; behind a
 * causal mask only the visible columns are read.  A row stays in registers from its only read to
 * the write of its result (rows.cuh); rows that fit on no cluster are read twice, the first time
 * with a running maximum and sum merged as one pair. */
#include "kernels/cuda/exp.cuh"
#include "ops/softmax.h"

struct softmax_even {
    bool x, y, dy, dx;
};

/* The number of visible columns of a row. */
static __device__ __forceinline__ int visible_columns(const tutti__softmax_args &args, int64_t row)
{
    if (args.causal_period == 0) return (int)args.cols;
    int64_t last = (args.first_row + row) % args.causal_period;
    return (int)(last < args.cols ? last + 1 : args.cols);
}

template<class T, int VECS, int ROWS, class Team>
__device__ __forceinline__ void softmax_forward_rows(const tutti__softmax_args &args,
                                                     const softmax_even &even, Team &team,
                                                     int64_t first_row, int rows, row_place place)
{
    using vector = vector16<T>;
    constexpr int N = vector::N;
    /* if a register holds one element, the exponentials are kept as well as x */
    constexpr bool HOLDS = sizeof(T) == 4;
    int cols = (int)args.cols;
    float lead = (float)args.lead, size = (float)args.size;

    uint4 raw[ROWS][VECS];
    int visible[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        visible[r] = r < rows ? visible_columns(args, first_row + r) : 0;
        /* reading whole vectors past the visible columns is harmless: their values are not used */
        load_row<T>(raw[r], (const T *)args.x.data + (r < rows ? first_row + r : 0) * args.x.stride,
                    place, visible[r]);
    }
    team.begin();

    float top[ROWS], sum[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        top[r] = -CUDART_INF_F;
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            float v[N];
            vector::unpack(raw[r][k], v);
            for_elements<N>(visible[r] - place.column<T>(k),
                            [&](int i) { top[r] = fmaxf(top[r], v[i] * lead); });
        }
    }
    team.template reduce<row_max>(top);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        sum[r] = 0;
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            float v[N];
            hold_packed<T>(raw[r][k]);
            vector::unpack(raw[r][k], v);
            for_elements<N>(visible[r] - place.column<T>(k), [&](int i) {
                float d = v[i] * lead - top[r], e = exp_for<T>(d, size);
                sum[r] += e;
                v[i] = args.log ? d * size : e;
            });
            if constexpr (HOLDS) raw[r][k] = vector::pack(v);
        }
    }
    team.template reduce<row_add>(sum);
    float masked = args.log ? -CUDART_INF_F : 0.0f;
    float times = args.log ? size : exp_factor<T>(size);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float factor = args.log ? logf(sum[r]) : 1.0f / sum[r];
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            int col = place.column<T>(k), left = visible[r] - col;
            float v[N];
            hold_packed<T>(raw[r][k]);
            vector::unpack(raw[r][k], v);
            for_elements<N>(left, [&](int i) {
                if constexpr (!HOLDS) {
                    v[i] = (v[i] * lead - top[r]) * times;
                    if (!args.log) v[i] = exp_of<T>(v[i]);
                }
                v[i] = args.log ? v[i] - factor : v[i] * factor;
            });
            if (left < N) {
#pragma unroll
                for (int i = 0; i < N; i++)
                    if (i >= left) v[i] = masked;
            }
            raw[r][k] = vector::pack(v);
        }
        store_row((T *)args.y.data + (r < rows ? first_row + r : 0) * args.y.stride, raw[r], place,
                  r < rows ? cols : 0);
    }
}

template<class T, int VECS, int ROWS, class Team>
__device__ __forceinline__ void softmax_backward_rows(const tutti__softmax_args &args,
                                                      const softmax_even &even, Team &team,
                                                      int64_t first_row, int rows, row_place place)
{
    using vector = vector16<T>;
    constexpr int N = vector::N;
    int cols = (int)args.cols;
    float scale = (float)args.scale;

    uint4 y[ROWS][VECS], dy[ROWS][VECS];
    int visible[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        visible[r] = r < rows ? visible_columns(args, first_row + r) : 0;
        int64_t row = r < rows ? first_row + r : 0;
        load_row<T>(y[r], (const T *)args.y.data + row * args.y.stride, place, visible[r]);
        load_row<T>(dy[r], (const T *)args.dy.data + row * args.dy.stride, place, visible[r]);
    }
    team.begin();

    float sum[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        sum[r] = 0;
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            float a[N], b[N];
            vector::unpack(y[r][k], a);
            vector::unpack(dy[r][k], b);
            for_elements<N>(visible[r] - place.column<T>(k),
                            [&](int i) { sum[r] += args.log ? b[i] : a[i] * b[i]; });
        }
    }
    team.template reduce<row_add>(sum);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            int col = place.column<T>(k), left = visible[r] - col;
            float a[N], b[N];
            hold_packed<T>(y[r][k]);
            hold_packed<T>(dy[r][k]);
            vector::unpack(y[r][k], a);
            vector::unpack(dy[r][k], b);
            for_elements<N>(left, [&](int i) {
                b[i] = args.log ? scale * (b[i] - exp_for<T>(a[i]) * sum[r])
                                : scale * a[i] * (b[i] - sum[r]);
            });
            if (left < N) {
#pragma unroll
                for (int i = 0; i < N; i++)
                    if (i >= left) b[i] = 0;
            }
            dy[r][k] = vector::pack(b);
        }
        store_row((T *)args.dx.data + (r < rows ? first_row + r : 0) * args.dx.stride, dy[r], place,
                  r < rows ? cols : 0);
    }
}

template<class T, int VECS, bool BACKWARD>
__global__ void __launch_bounds__(ROW_WARP_THREADS, BACKWARD    ? 5
                                                    : VECS == 4 ? 7
                                                                : 6)
    softmax_warp_kernel(tutti__softmax_args args, softmax_even even, int lanes)
{
    /* backward has two vectors in flight for each of forward's */
    constexpr int ROWS = BACKWARD && VECS < 4 ? ROW_WARP_VECS / VECS / 2 : ROW_WARP_VECS / VECS;
    lane_team team = {lanes};
    int lane = threadIdx.x % lanes, group = threadIdx.x / lanes, groups = ROW_WARP_THREADS / lanes;
    int64_t stride = (int64_t)gridDim.x * groups * ROWS;
    /* whole warps go round together: a group past the end has no rows but takes part in the
     * shuffles */
    for (int64_t base = (int64_t)blockIdx.x * groups * ROWS; base < args.rows; base += stride) {
        int64_t first_row = base + (int64_t)group * ROWS, left = args.rows - first_row;
        int rows = left <= 0 ? 0 : left < ROWS ? (int)left : ROWS;
        if constexpr (BACKWARD)
            softmax_backward_rows<T, VECS, ROWS>(args, even, team, first_row, rows,
                                                 row_place{lane, lanes, lanes});
        else
            softmax_forward_rows<T, VECS, ROWS>(args, even, team, first_row, rows,
                                                row_place{lane, lanes, lanes});
    }
}

template<class T, int VECS, bool BACKWARD>
__global__ void __launch_bounds__(BACKWARD ? 512 : 1024)
    softmax_block_kernel(tutti__softmax_args args, softmax_even even, int cluster)
{
    __shared__ block_team_slots<float, 1> slots;
    block_team<float, 1> team(slots, cluster);
    int threads = blockDim.x;
    row_place place = {team.rank * threads * VECS + (int)threadIdx.x, threads, 32};
    for (int64_t row = blockIdx.x / cluster; row < args.rows; row += gridDim.x / cluster) {
        if constexpr (BACKWARD)
            softmax_backward_rows<T, VECS, 1>(args, even, team, row, 1, place);
        else
            softmax_forward_rows<T, VECS, 1>(args, even, team, row, 1, place);
    }
}

/* Rows of any length: first the sums, then the row again. */

template<class T>
__global__ void __launch_bounds__(1024)
    softmax_forward_long_kernel(tutti__softmax_args args, softmax_even even)
{
    using A = typename wide_row<T>::A;
    constexpr int N = wide_row<T>::N;
    __shared__ block_team_slots<A, 1> slots;
    block_team<A, 1> team(slots, 1);
    int cols = (int)args.cols, step = blockDim.x * N, first = threadIdx.x * N;
    A lead = (A)args.lead, size = (A)args.size;

    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        const T *x = (const T *)args.x.data + row * args.x.stride;
        T *y = (T *)args.y.data + row * args.y.stride;
        int visible = visible_columns(args, row);
        A v[N];
        running_sum<T> sum = running_sum_of_row(x, visible, lead, size, even.x, first, step, cols);
        sum.merge(team, size);
        A factor = args.log ? logarithm(sum.sum) : (A)1 / sum.sum;
        for (int col = first; col < cols; col += step) {
            if (col < visible) load_elements(v, x + col, cols - col, even.x);
#pragma unroll
            for (int i = 0; i < N; i++) {
                if (col + i < visible) {
                    A d = v[i] * lead - sum.top;
                    v[i] = args.log ? d * size - factor : exponential<T>::of(d, size) * factor;
                } else {
                    v[i] = args.log ? (A)-CUDART_INF : (A)0;
                }
            }
            store_elements(y + col, v, cols - col, even.y);
        }
    }
}

template<class T>
__global__ void __launch_bounds__(1024)
    softmax_backward_long_kernel(tutti__softmax_args args, softmax_even even)
{
    using A = typename wide_row<T>::A;
    constexpr int N = wide_row<T>::N;
    __shared__ block_team_slots<A, 1> slots;
    block_team<A, 1> team(slots, 1);
    int cols = (int)args.cols, step = blockDim.x * N, first = threadIdx.x * N;
    A scale = (A)args.scale;

    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        const T *y = (const T *)args.y.data + row * args.y.stride;
        const T *dy = (const T *)args.dy.data + row * args.dy.stride;
        T *dx = (T *)args.dx.data + row * args.dx.stride;
        int visible = visible_columns(args, row);
        A a[N], b[N];
        row_total<A> total;
#pragma unroll 2
        for (int col = first; col < visible; col += step) {
            load_elements(b, dy + col, cols - col, even.dy);
            if (!args.log) load_elements(a, y + col, cols - col, even.y);
            A part = 0;
#pragma unroll
            for (int i = 0; i < N; i++)
                if (col + i < visible) part += args.log ? b[i] : a[i] * b[i];
            total.add(part);
        }
        A sum[1] = {total.value()};
        team.template reduce<row_add>(sum);
        for (int col = first; col < cols; col += step) {
            if (col < visible) {
                load_elements(b, dy + col, cols - col, even.dy);
                load_elements(a, y + col, cols - col, even.y);
            }
#pragma unroll
            for (int i = 0; i < N; i++) {
                if (col + i < visible)
                    b[i] = args.log ? scale * (b[i] - exponential<T>::of(a[i]) * sum[0])
                                    : scale * a[i] * (b[i] - sum[0]);
                else
                    b[i] = 0;
            }
            store_elements(dx + col, b, cols - col, even.dx);
        }
    }
}

template<class T, bool BACKWARD>
static tutti_status softmax_of(tutti_context *ctx, const tutti__softmax_args *args,
                               const row_plan &plan)
{
    constexpr int N = 16 / (int)sizeof(T);
    const char *what = BACKWARD ? "softmax_backward" : "softmax_forward";
    int64_t rows = args->rows, cols = args->cols;
    softmax_even even = {row_even(args->x, rows, N), row_even(args->y, rows, N),
                         row_even(args->dy, rows, N), row_even(args->dx, rows, N)};
    cudaStream_t stream = tutti__cuda_stream(ctx);
    if (sizeof(T) == 8 || plan.kind == ROW_LONG) {
        return row_launch(
            what, BACKWARD ? softmax_backward_long_kernel<T> : softmax_forward_long_kernel<T>,
            row_grid(rows, 1, 1), row_long_threads(cols, N), 1, 0, stream, *args, even);
    }
    if constexpr (sizeof(T) < 8)
        return row_with_vecs(plan, [&](auto vecs) {
            constexpr int VECS = decltype(vecs)::value;
            if (plan.kind == ROW_WARP) {
                constexpr int ROWS =
                    BACKWARD && VECS < 4 ? ROW_WARP_VECS / VECS / 2 : ROW_WARP_VECS / VECS;
                return row_launch(what, softmax_warp_kernel<T, VECS, BACKWARD>,
                                  row_grid(rows, ROW_WARP_THREADS / plan.lanes * ROWS, 1),
                                  plan.threads, 1, 0, stream, *args, even, plan.lanes);
            }
            if constexpr (VECS == 4)
                return row_launch(what, softmax_block_kernel<T, VECS, BACKWARD>,
                                  row_grid(rows, 1, plan.cluster), plan.threads, plan.cluster, 0,
                                  stream, *args, even, plan.cluster);
            else
                return TUTTI_OK;
        });
    return TUTTI_OK;
}

static tutti_status softmax_plan(tutti_context *ctx, const void *untyped, bool backward,
                                 tutti__plan *plan)
{
    const tutti__softmax_args *args = (const tutti__softmax_args *)untyped;
    *tutti__cuda_parameters<row_plan>(plan) =
        row_plan_for(args->cols, 16 / (int)tutti_dtype_size(args->dtype), backward ? 2 : 1,
                     tutti__cuda_has_clusters(ctx->device));
    return TUTTI_OK;
}

template<bool BACKWARD>
static tutti_status softmax_run(const tutti__job *job, const void *untyped)
{
    const tutti__softmax_args *args = (const tutti__softmax_args *)untyped;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, BACKWARD ? "softmax_backward" : "softmax_forward"));
    if (args->rows == 0) return TUTTI_OK;
    return tutti__cuda_dispatch(args->dtype, [&](auto type) {
        return softmax_of<typename decltype(type)::type, BACKWARD>(
            job->ctx, args, *tutti__cuda_parameters<row_plan>(job->plan));
    });
}

extern "C" const tutti__op tutti__cuda_softmax = {softmax_plan, softmax_run<false>,
                                                  softmax_run<true>};
