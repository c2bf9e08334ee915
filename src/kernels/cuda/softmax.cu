/* Softmax and log-softmax, forward and backward.  include/tutti/softmax.h has the mathematics.
 *
 * Fewest bytes: forward reads x and writes y, backward reads y and dy and writes dx; behind a
 * mask only the visible columns are read.  Calls without lengths and bias have kernels of their
 * own (softmax_plain.cuh), f64 has others (softmax_double.cuh).  In the kernels here a row stays in
 * registers from its only read to the write of its result (rows.cuh); with a bias, forward holds
 * two rows, as backward does.  Rows that fit on no cluster are read twice, the first time with a
 * running maximum and sum merged as one pair. */
#include "kernels/cuda/softmax_double.cuh"

template<class T, int VECS, int ROWS, softmax_kind KIND, class Team>
__device__ __forceinline__ void softmax_forward_rows(const softmax_call &call, Team &team,
                                                     int64_t first_row, int rows, row_place place)
{
    using vector = vector16<T>;
    constexpr int N = vector::N;
    /* if a register holds one element, the exponentials are kept as well as x */
    constexpr bool HOLDS = sizeof(T) == 4, BIAS = KIND == SOFTMAX_BIAS;
    const tutti__softmax_args &args = call.args;
    int cols = (int)args.cols;
    float lead = BIAS ? 1.0f : (float)args.lead, size = BIAS ? 1.0f : (float)args.size;

    uint4 raw[ROWS][VECS], bias[BIAS ? ROWS : 1][BIAS ? VECS : 1];
    int visible[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int64_t row = r < rows ? first_row + r : 0;
        visible[r] = r < rows ? visible_columns<KIND>(call, row, place.first == 0) : 0;
        /* reading whole vectors past the visible columns is harmless: their values are not used */
        load_row<T>(raw[r], (const T *)args.x.data + row * args.x.stride, place, visible[r]);
        if constexpr (BIAS) load_row<T>(bias[r], bias_row<T>(args, row), place, visible[r]);
    }
    team.begin();

    /* a vector of x, or of scale x + bias */
    auto unpack = [&](float(&v)[N], int r, int k) {
        vector::unpack(raw[r][k], v);
        if constexpr (BIAS && !HOLDS) {
            float b[N];
            hold_packed<T>(bias[r][k]);
            vector::unpack(bias[r][k], b);
#pragma unroll
            for (int i = 0; i < N; i++) v[i] = fmaf(v[i], (float)args.scale, b[i]);
        }
    };
    if constexpr (BIAS && HOLDS) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#pragma unroll
            for (int k = 0; k < VECS; k++) {
                float v[N], b[N];
                vector::unpack(raw[r][k], v);
                vector::unpack(bias[r][k], b);
#pragma unroll
                for (int i = 0; i < N; i++) v[i] = fmaf(v[i], (float)args.scale, b[i]);
                raw[r][k] = vector::pack(v);
            }
        }
    }

    float top[ROWS], sum[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        top[r] = -CUDART_INF_F;
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            float v[N];
            unpack(v, r, k);
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
            unpack(v, r, k);
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
            unpack(v, r, k);
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
                    if (i >= left) v[i] = hidden_value<KIND>(visible[r], masked);
            }
            raw[r][k] = vector::pack(v);
        }
        store_row((T *)args.y.data + (r < rows ? first_row + r : 0) * args.y.stride, raw[r], place,
                  r < rows ? cols : 0);
    }
}

template<class T, int VECS, int ROWS, softmax_kind KIND, class Team>
__device__ __forceinline__ void softmax_backward_rows(const softmax_call &call, Team &team,
                                                      int64_t first_row, int rows, row_place place)
{
    using vector = vector16<T>;
    constexpr int N = vector::N;
    constexpr bool BIAS = KIND == SOFTMAX_BIAS;
    const tutti__softmax_args &args = call.args;
    int cols = (int)args.cols;
    float scale = (float)args.scale;

    uint4 y[ROWS][VECS], dy[ROWS][VECS];
    int visible[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int64_t row = r < rows ? first_row + r : 0;
        visible[r] = r < rows ? visible_columns<KIND>(call, row, place.first == 0) : 0;
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
                if constexpr (BIAS) {
                    a[i] = args.log ? b[i] - exp_for<T>(a[i]) * sum[r] : a[i] * (b[i] - sum[r]);
                    b[i] = scale * a[i];
                } else {
                    b[i] = args.log ? scale * (b[i] - exp_for<T>(a[i]) * sum[r])
                                    : scale * a[i] * (b[i] - sum[r]);
                }
            });
            if (left < N) {
#pragma unroll
                for (int i = 0; i < N; i++)
                    if (i >= left) a[i] = b[i] = hidden_value<KIND>(visible[r], 0.0f);
            }
            if constexpr (BIAS) y[r][k] = vector::pack(a);
            dy[r][k] = vector::pack(b);
        }
        if constexpr (BIAS) {
            int64_t row = r < rows ? first_row + r : 0;
            if (args.dbias.data)
                store_row((T *)args.dbias.data + row * args.dbias.stride, y[r], place,
                          r < rows ? cols : 0);
        }
        store_row((T *)args.dx.data + (r < rows ? first_row + r : 0) * args.dx.stride, dy[r], place,
                  r < rows ? cols : 0);
    }
}

/* Whether a thread holds two vectors for each of plain forward's, x and bias or y and dy; how many
 * rows it then has at once in a warp kernel. */
constexpr bool softmax_two(bool backward, softmax_kind kind)
{
    return backward || kind == SOFTMAX_BIAS;
}
constexpr int softmax_warp_rows(int vecs, bool two)
{
    return two && vecs < 4 ? ROW_WARP_VECS / vecs / 2 : ROW_WARP_VECS / vecs;
}

template<class T, int VECS, bool BACKWARD, softmax_kind KIND>
__global__ void __launch_bounds__(ROW_WARP_THREADS, bound_blocks(softmax_two(BACKWARD, KIND) ? 5
                                                                 : VECS == 4                 ? 7
                                                                                             : 6))
    softmax_warp_kernel(softmax_call call, int lanes)
{
    constexpr int ROWS = softmax_warp_rows(VECS, softmax_two(BACKWARD, KIND));
    const tutti__softmax_args &args = call.args;
    lane_team team = {lanes};
    int lane = threadIdx.x % lanes, group = threadIdx.x / lanes, groups = ROW_WARP_THREADS / lanes;
    int64_t stride = (int64_t)gridDim.x * groups * ROWS;
    /* whole warps go round together: a group past the end has no rows but takes part in the
     * shuffles */
    for (int64_t base = (int64_t)blockIdx.x * groups * ROWS; base < args.rows; base += stride) {
        int64_t first_row = base + (int64_t)group * ROWS, left = args.rows - first_row;
        int rows = left <= 0 ? 0 : left < ROWS ? (int)left : ROWS;
        if constexpr (BACKWARD)
            softmax_backward_rows<T, VECS, ROWS, KIND>(call, team, first_row, rows,
                                                       row_place{lane, lanes, lanes});
        else
            softmax_forward_rows<T, VECS, ROWS, KIND>(call, team, first_row, rows,
                                                      row_place{lane, lanes, lanes});
    }
}

template<class T, int VECS, bool BACKWARD, softmax_kind KIND>
__global__ void __launch_bounds__(softmax_two(BACKWARD, KIND) ? 512 : 1024)
    softmax_block_kernel(softmax_call call, int cluster)
{
    __shared__ block_team_slots<float, 1> slots;
    block_team<float, 1> team(slots, cluster);
    int threads = blockDim.x;
    row_place place = {team.rank * threads * VECS + (int)threadIdx.x, threads, 32};
    for (int64_t row = blockIdx.x / cluster; row < call.args.rows; row += gridDim.x / cluster) {
        if constexpr (BACKWARD)
            softmax_backward_rows<T, VECS, 1, KIND>(call, team, row, 1, place);
        else
            softmax_forward_rows<T, VECS, 1, KIND>(call, team, row, 1, place);
    }
}

/* Rows of any length: first the sums, then the row again. */

template<class T, softmax_kind KIND>
__global__ void __launch_bounds__(1024) softmax_forward_long_kernel(softmax_call call)
{
    using A = typename wide_row<T>::A;
    constexpr int N = wide_row<T>::N;
    constexpr bool BIAS = KIND == SOFTMAX_BIAS;
    const tutti__softmax_args &args = call.args;
    __shared__ block_team_slots<A, 1> slots;
    block_team<A, 1> team(slots, 1);
    int cols = (int)args.cols, step = blockDim.x * N, first = threadIdx.x * N;
    A lead = BIAS ? (A)1 : (A)args.lead, size = BIAS ? (A)1 : (A)args.size;

    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        const T *x = (const T *)args.x.data + row * args.x.stride;
        T *y = (T *)args.y.data + row * args.y.stride;
        const T *bias = BIAS ? bias_row<T>(args, row) : NULL;
        int visible = visible_columns<KIND>(call, row, threadIdx.x == 0);
        /* of x, or of scale x + bias */
        auto load = [&](A(&v)[N], int col) {
            load_elements(v, x + col, cols - col, call.x_even);
            if constexpr (BIAS) {
                A b[N];
                load_elements(b, bias + col, cols - col, call.bias_even);
#pragma unroll
                for (int i = 0; i < N; i++) v[i] = fma(v[i], (A)args.scale, b[i]);
            }
        };
        A v[N];
        running_sum<T> sum = running_sum_of<T>(load, visible, lead, size, first, step);
        sum.merge(team, size);
        A factor = args.log ? logarithm(sum.sum) : (A)1 / sum.sum;
        A hidden = hidden_value<KIND>(visible, args.log ? (A)-CUDART_INF : (A)0);
        for (int col = first; col < cols; col += step) {
            if (col < visible) load(v, col);
#pragma unroll
            for (int i = 0; i < N; i++) {
                if (col + i < visible) {
                    A d = v[i] * lead - sum.top;
                    v[i] = args.log ? d * size - factor : exponential<T>::of(d, size) * factor;
                } else {
                    v[i] = hidden;
                }
            }
            store_elements(y + col, v, cols - col, call.y_even);
        }
    }
}

template<class T, softmax_kind KIND>
__global__ void __launch_bounds__(1024, 1) softmax_backward_long_kernel(softmax_call call)
{
    using A = typename wide_row<T>::A;
    constexpr int N = wide_row<T>::N;
    const tutti__softmax_args &args = call.args;
    __shared__ block_team_slots<A, 1> slots;
    block_team<A, 1> team(slots, 1);
    int cols = (int)args.cols, step = blockDim.x * N, first = threadIdx.x * N;
    A scale = (A)args.scale;

    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        const T *y = (const T *)args.y.data + row * args.y.stride;
        const T *dy = (const T *)args.dy.data + row * args.dy.stride;
        T *dx = (T *)args.dx.data + row * args.dx.stride;
        int visible = visible_columns<KIND>(call, row, threadIdx.x == 0);
        A a[N], b[N];
        row_total<A> total;
#pragma unroll 2
        for (int col = first; col < visible; col += step) {
            load_elements(b, dy + col, cols - col, call.dy_even);
            if (!args.log) load_elements(a, y + col, cols - col, call.y_even);
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
                load_elements(b, dy + col, cols - col, call.dy_even);
                load_elements(a, y + col, cols - col, call.y_even);
            }
#pragma unroll
            for (int i = 0; i < N; i++) {
                if (col + i >= visible)
                    a[i] = b[i] = hidden_value<KIND>(visible, (A)0);
                else if constexpr (KIND == SOFTMAX_BIAS) {
                    a[i] = args.log ? b[i] - exponential<T>::of(a[i]) * sum[0]
                                    : a[i] * (b[i] - sum[0]);
                    b[i] = scale * a[i];
                } else {
                    b[i] = args.log ? scale * (b[i] - exponential<T>::of(a[i]) * sum[0])
                                    : scale * a[i] * (b[i] - sum[0]);
                }
            }
            if (KIND == SOFTMAX_BIAS && args.dbias.data)
                store_elements((T *)args.dbias.data + row * args.dbias.stride + col, a, cols - col,
                               call.dbias_even);
            store_elements(dx + col, b, cols - col, call.dx_even);
        }
    }
}

template<class T, bool BACKWARD, softmax_kind KIND>
static tutti_status softmax_of(tutti_context *ctx, const tutti__softmax_args *args,
                               const row_plan &plan, const double_plan &doubles)
{
    constexpr int N = 16 / (int)sizeof(T);
    const char *what = BACKWARD ? "softmax_backward" : "softmax_forward";
    int64_t rows = args->rows, cols = args->cols;
    softmax_call call = {*args,
                         row_even(args->x, rows, N),
                         row_even(args->bias, rows, N),
                         row_even(args->y, rows, N),
                         row_even(args->dy, rows, N),
                         row_even(args->dx, rows, N),
                         row_even(args->dbias, rows, N),
                         ctx->finding};
    cudaStream_t stream = tutti__cuda_stream(ctx);
    if constexpr (sizeof(T) == 8)
        if (doubles.count)
            return launch_double_rows<softmax_doubles<BACKWARD, KIND>>(what, ctx, call, doubles);
    if (sizeof(T) == 8 || KIND == SOFTMAX_PLAIN || plan.kind == ROW_LONG) {
        auto kernel = softmax_forward_long_kernel < T, BACKWARD ? SOFTMAX_PLAIN : KIND > ;
        if constexpr (BACKWARD) kernel = softmax_backward_long_kernel<T, KIND>;
        return row_launch(what, kernel, row_grid(rows, 1, 1), row_long_threads(cols, N), 1, 0,
                          stream, call);
    }
    if constexpr (sizeof(T) < 8 && KIND != SOFTMAX_PLAIN)
        return row_with_vecs(plan, [&](auto vecs) {
            constexpr int VECS = decltype(vecs)::value;
            if (plan.kind == ROW_WARP) {
                constexpr int ROWS = softmax_warp_rows(VECS, softmax_two(BACKWARD, KIND));
                return row_launch(what, softmax_warp_kernel<T, VECS, BACKWARD, KIND>,
                                  row_grid(rows, ROW_WARP_THREADS / plan.lanes * ROWS, 1),
                                  plan.threads, 1, 0, stream, call, plan.lanes);
            }
            if constexpr (VECS == 4)
                return row_launch(what, softmax_block_kernel<T, VECS, BACKWARD, KIND>,
                                  row_grid(rows, 1, plan.cluster), plan.threads, plan.cluster, 0,
                                  stream, call, plan.cluster);
            else
                return TUTTI_OK;
        });
    return TUTTI_OK;
}

struct softmax_plans {
    row_plan rows[2]; /* for threads that hold one vector, or two */
    plain_softmax_plan plain;
    double_plan doubles;
};

static tutti_status softmax_plan(tutti_context *ctx, const void *untyped, bool backward,
                                 tutti__plan *plan)
{
    const tutti__softmax_args *args = (const tutti__softmax_args *)untyped;
    softmax_plans *plans = tutti__cuda_parameters<softmax_plans>(plan);
    const int width = 16 / (int)tutti_dtype_size(args->dtype);
    for (int two = 0; two < 2; two++)
        plans->rows[two] =
            row_plan_for(args->cols, width, 1 + two, tutti__cuda_has_clusters(ctx->device));
    plans->doubles = double_plan_for(args->cols, ctx->device);
    plans->plain = plan_plain_softmax(args->cols, width, 1 + backward, ctx->device);
    return TUTTI_OK;
}

template<bool BACKWARD>
static tutti_status softmax_run(const tutti__job *job, const void *untyped)
{
    const tutti__softmax_args *args = (const tutti__softmax_args *)untyped;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, BACKWARD ? "softmax_backward" : "softmax_forward"));
    if (args->rows == 0) return TUTTI_OK;
    const softmax_plans &both = *tutti__cuda_parameters<softmax_plans>(job->plan);
    const row_plan *plans = both.rows;
    return tutti__cuda_dispatch(args->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        if (BACKWARD ? args->lengths || args->dbias.data : args->bias.data != NULL)
            return softmax_of<T, BACKWARD, SOFTMAX_BIAS>(job->ctx, args, plans[1], both.doubles);
        if constexpr (!BACKWARD)
            if (args->lengths || (float)args->size == 0)
                return softmax_of<T, BACKWARD, SOFTMAX_LENGTHS>(job->ctx, args, plans[0],
                                                                both.doubles);
        if constexpr (sizeof(T) < 8)
            if (plain_softmax_fits(both.plain))
                return run_plain_softmax<T, BACKWARD>(job->ctx, *args, both.plain);
        return softmax_of<T, BACKWARD, SOFTMAX_PLAIN>(job->ctx, args, plans[BACKWARD],
                                                      both.doubles);
    });
}

extern "C" const tutti__op tutti__cuda_softmax = {softmax_plan, softmax_run<false>,
                                                  softmax_run<true>};
