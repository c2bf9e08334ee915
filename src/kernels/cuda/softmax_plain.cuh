/* Softmax and log-softmax without lengths and bias: the kernels of the usual calls.
 *
 * Forward reads x once, backward y and dy.  Rows of up to 64 vectors are held in registers, longer
 * ones parked in shared memory (parked.cuh), of one block or of a cluster.  Each thread takes
 * exponentials from its own maximum so far, so that the maximum and the sum come from one pass and
 * are reduced together, as one pair.  [Milakov & Gimelshein 2018, arXiv:1805.02867]
 *
 * A kernel for rows with EDGES (misaligned, without whole vectors, or behind a causal mask) does
 * the same arithmetic in the same order as the other: alignment does not change bits.  So what the
 * compiler may contract is explicit here. */
#ifndef TUTTI_KERNELS_CUDA_SOFTMAX_PLAIN_CUH
#define TUTTI_KERNELS_CUDA_SOFTMAX_PLAIN_CUH

#include "kernels/cuda/parked.cuh"
#include "kernels/cuda/softmax_parts.cuh"
#include "ops/softmax.h"

enum {
    HELD_VECS = 2,      /* vectors of a tensor in a thread's registers */
    HELD_THREADS = 128, /* a block, at most */
    HALF_VECS = 8       /* of y, in the registers of a thread that has dy in shared memory */
};

/* Arguments in the arithmetic's type. */
struct plain_softmax {
    tutti__matrix x, y, dy, dx; /* forward: x, y; backward: y, dy, dx */
    int64_t rows, causal_period, first_row;
    int cols;
    float lead, size, scale;
};

static __device__ __forceinline__ int causal_columns(int cols, int64_t period, int64_t row)
{
    if (period == 0) return cols;
    int64_t last = row % period;
    return (int)(last < cols ? last + 1 : cols);
}

template<bool EDGES>
__device__ __forceinline__ int plain_columns(const plain_softmax &call, int64_t row)
{
    return EDGES ? causal_columns(call.cols, call.causal_period, call.first_row + row) : call.cols;
}

template<class T>
__device__ __forceinline__ T *row_of(const tutti__matrix &matrix, int64_t row)
{
    return (T *)matrix.data + row * matrix.stride;
}

/* What a column that is not visible has in place of x: it adds nothing to maximum and sum. */
template<class T>
__device__ __forceinline__ T unseen(float lead)
{
    return narrow<T>::of(lead < 0 ? CUDART_INF_F : -CUDART_INF_F);
}

template<class T, bool LOG>
__device__ __forceinline__ uint4 softmax_vector(const uint4 &raw, float lead, float size, float top,
                                                float factor)
{
    constexpr int N = vector16<T>::N;
    float v[N];
    vector16<T>::unpack(raw, v);
#pragma unroll
    for (int i = 0; i < N; i++) {
        float d = v[i] * lead - top; /* lead times v is exact */
        v[i] = LOG ? fmaf(d, size, -factor) : exp_for<T>(d, size) * factor;
    }
    return vector16<T>::pack(v);
}

/* A vector's part of the sum that backward subtracts. */
template<class T, bool LOG>
__device__ __forceinline__ float softmax_dot(const uint4 &y, const uint4 &dy)
{
    constexpr int N = vector16<T>::N;
    float a[N], b[N];
    vector16<T>::unpack(y, a);
    vector16<T>::unpack(dy, b);
#pragma unroll
    for (int i = 0; i < N; i++)
        if (!LOG) b[i] = __fmul_rn(a[i], b[i]);
    return tree_sum(b);
}

template<class T, bool LOG>
__device__ __forceinline__ uint4 softmax_gradient(const uint4 &y, const uint4 &dy, float sum,
                                                  float scale)
{
    constexpr int N = vector16<T>::N;
    float a[N], b[N];
    vector16<T>::unpack(y, a);
    vector16<T>::unpack(dy, b);
#pragma unroll
    for (int i = 0; i < N; i++)
        b[i] = LOG ? scale * fmaf(-exp_for<T>(a[i]), sum, b[i]) : scale * a[i] * (b[i] - sum);
    return vector16<T>::pack(b);
}

/* Rows in registers. */

template<class T, bool EDGES>
__device__ __forceinline__ void load_held(uint4 (&raw)[HELD_VECS], const T *row, row_place place,
                                          int cols, T blank)
{
    if constexpr (EDGES) {
        load_row<T>(raw, row, place, cols);
#pragma unroll
        for (int k = 0; k < HELD_VECS; k++) blank_from(raw[k], cols - place.column<T>(k), blank);
    } else {
#pragma unroll
        for (int k = 0; k < HELD_VECS; k++) {
            raw[k] = make_uint4(0, 0, 0, 0);
            if (place.column<T>(k) < cols)
                raw[k] = ((const uint4 *)row)[place.first + k * place.step];
        }
    }
}

/* Columns from `visible` on become `hidden`. */
template<class T, bool EDGES>
__device__ __forceinline__ void store_held(T *row, uint4 (&raw)[HELD_VECS], row_place place,
                                           int visible, int cols, T hidden)
{
    if constexpr (EDGES) {
#pragma unroll
        for (int k = 0; k < HELD_VECS; k++)
            blank_from(raw[k], visible - place.column<T>(k), hidden);
        store_row(row, raw, place, cols);
    } else {
#pragma unroll
        for (int k = 0; k < HELD_VECS; k++) store_whole(row, place.column<T>(k), raw[k], cols);
    }
}

/* exists: whether the thread has a row; if not, it takes part in the shuffles. */
template<class T, bool LOG, bool EDGES>
__device__ __forceinline__ void held_forward(const plain_softmax &call, int lanes, int64_t row,
                                             bool exists, row_place place)
{
    constexpr int N = vector16<T>::N;
    int visible = exists ? plain_columns<EDGES>(call, row) : 0;
    uint4 raw[HELD_VECS];
    load_held<T, EDGES>(raw, row_of<const T>(call.x, row), place, visible, unseen<T>(call.lead));

    highest<T> most;
#pragma unroll
    for (int k = 0; k < HELD_VECS; k++)
        if (place.column<T>(k) < visible) most.add(raw[k], call.lead);
    const float own = most.value(call.lead);
    float pair[2] = {own, 0}, e[LOG ? 1 : HELD_VECS][N];
#pragma unroll
    for (int k = 0; k < HELD_VECS; k++) {
        float v[N];
        hold_packed<T>(raw[k]);
        exponentials_of<T>(v, raw[k], call.lead, call.size, own);
        if constexpr (!LOG) memcpy(e[k], v, sizeof v);
        if (place.column<T>(k) < visible) pair[1] += tree_sum(v);
    }
    softmax_pair<T>{call.size}.lanes(pair, lanes);

    const float top = pair[0];
    const float factor = LOG ? logf(pair[1]) : exp_for<T>(own - top, call.size) / pair[1];
#pragma unroll
    for (int k = 0; k < HELD_VECS; k++) {
        if constexpr (LOG) {
            hold_packed<T>(raw[k]);
            raw[k] = softmax_vector<T, true>(raw[k], call.lead, call.size, top, factor);
        } else {
#pragma unroll
            for (int i = 0; i < N; i++) e[k][i] *= factor;
            raw[k] = vector16<T>::pack(e[k]);
        }
    }
    store_held<T, EDGES>(row_of<T>(call.y, row), raw, place, visible, exists ? call.cols : 0,
                         narrow<T>::of(LOG ? -CUDART_INF_F : 0.0f));
}

template<class T, bool LOG, bool EDGES>
__device__ __forceinline__ void held_backward(const plain_softmax &call, int lanes, int64_t row,
                                              bool exists, row_place place)
{
    int visible = exists ? plain_columns<EDGES>(call, row) : 0;
    uint4 y[HELD_VECS], dy[HELD_VECS];
    load_held<T, EDGES>(y, row_of<const T>(call.y, row), place, visible, T(0.0f));
    load_held<T, EDGES>(dy, row_of<const T>(call.dy, row), place, visible, T(0.0f));
    float sum[1] = {0};
#pragma unroll
    for (int k = 0; k < HELD_VECS; k++)
        if (place.column<T>(k) < visible) sum[0] += softmax_dot<T, LOG>(y[k], dy[k]);
    plain_sum::lanes(sum, lanes);
#pragma unroll
    for (int k = 0; k < HELD_VECS; k++) {
        hold_packed<T>(y[k]);
        hold_packed<T>(dy[k]);
        dy[k] = softmax_gradient<T, LOG>(y[k], dy[k], sum[0], call.scale);
    }
    store_held<T, EDGES>(row_of<T>(call.dx, row), dy, place, visible, exists ? call.cols : 0,
                         T(0.0f));
}

/* 1 to 32 lanes a row. */
template<class T, bool BACKWARD, bool LOG, bool EDGES>
__global__ void __launch_bounds__(HELD_THREADS, EDGES ? 7 : 10)
    softmax_lanes_kernel(plain_softmax call, int lanes)
{
    const int64_t row = (int64_t)blockIdx.x * (HELD_THREADS / lanes) + threadIdx.x / lanes;
    const row_place place = {(int)threadIdx.x % lanes, lanes, lanes};
    const bool exists = row < call.rows;
    if constexpr (BACKWARD)
        held_backward<T, LOG, EDGES>(call, lanes, exists ? row : 0, exists, place);
    else
        held_forward<T, LOG, EDGES>(call, lanes, exists ? row : 0, exists, place);
}

/* Rows in shared memory, a block or a cluster each. */

template<class T, bool LOG, bool EDGES, parked_span SPAN>
__global__ void __launch_bounds__(parked_threads(SPAN), parked_blocks(SPAN))
    softmax_forward_parked_kernel(plain_softmax call, int vecs, int cluster)
{
    constexpr bool CLUSTER = SPAN == PARKED_CLUSTER;
    using parked = parked_row<T, EDGES>;
    extern __shared__ __align__(PARKED_ALIGNMENT) uint4 shared[];
    __shared__ parked_exchange<2> space;
    parked_team<softmax_pair<T>, 2, CLUSTER> team(space, cluster);
    const int64_t row = CLUSTER ? blockIdx.x / cluster : blockIdx.x;
    const int visible = plain_columns<EDGES>(call, row);
    const T *x = row_of<const T>(call.x, row);
    T *y = row_of<T>(call.y, row);
    const parked park(shared, 0, team.rank, vecs);
    const bool apart = are_apart(x, y);
    const unsigned skew =
        SPAN == PARKED_WARP ? parked::skew_inside(x, apart) : parked::skew_beside(x, apart);
    const float lead = call.lead, size = call.size;
    park.fetch(x, visible, skew);
    await_fetches();

    thread_sum<T> sum;
    park.for_vectors(visible, skew, true, [&](auto quarter, auto pair, int k) {
        constexpr int QUARTER = decltype(quarter)::value, COUNT = decltype(pair)::value ? 2 : 1;
        uint4 raw[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++) raw[i] = park.template take<QUARTER>(k + i, skew);
        sum.add(raw, lead, size);
    });
    const int tail = park.tail_of(visible);
    if (tail >= 0) sum.add_element(park.column(tail, skew), lead, size);
    float pair[2] = {sum.top, sum.sum};
    team.reduce(softmax_pair<T>{size}, pair);

    const float top = pair[0], factor = LOG ? logf(pair[1]) : 1.0f / pair[1];
    if constexpr (SPAN == PARKED_WARP) {
        park.write(y, call.cols, skew, apart, [&](const auto &raw) {
            return softmax_vector<T, LOG>(raw, lead, size, top, factor);
        });
    } else {
        const unsigned ahead = apart ? skew_of(y) : skew;
        const T hidden = narrow<T>::of(LOG ? -CUDART_INF_F : 0.0f);
        park.write_words(y, call.cols, visible, ahead, true, skew - ahead, hidden, team.ends(),
                         [&](auto quarter, int k) {
                             constexpr int QUARTER = decltype(quarter)::value;
                             return softmax_vector<T, LOG>(
                                 park.template take<QUARTER>(k, skew - ahead), lead, size, top,
                                 factor);
                         });
    }
}

template<class T, bool LOG, bool EDGES, bool CLUSTER>
__global__ void __launch_bounds__(PARKED_THREADS, EDGES ? 2 : PARKED_BLOCKS)
    softmax_backward_parked_kernel(plain_softmax call, int vecs, int cluster)
{
    extern __shared__ __align__(PARKED_ALIGNMENT) uint4 shared[];
    __shared__ parked_exchange<1> space;
    parked_team<plain_sum, 1, CLUSTER> team(space, cluster);
    const int64_t row = CLUSTER ? blockIdx.x / cluster : blockIdx.x;
    const int visible = plain_columns<EDGES>(call, row);
    const T *y = row_of<const T>(call.y, row), *dy = row_of<const T>(call.dy, row);
    T *dx = row_of<T>(call.dx, row);
    const parked_row<T, EDGES> park(shared, 0, team.rank, vecs), other(shared, 1, team.rank, vecs);
    const bool apart = are_apart(y, dx) || are_apart(dy, dx);
    const unsigned skew = park.skew_beside(y, apart), skew_other = park.skew_beside(dy, apart);
    const unsigned ahead = apart ? skew_of(dx) : min(skew, skew_other);
    park.fetch(y, visible, skew);
    other.fetch(dy, visible, skew_other);
    await_fetches();

    const bool alike = !are_apart(y, dy);
    float sum[1] = {0};
    park.for_vectors(visible, skew, alike, [&](auto quarter, auto pair, int k) {
        constexpr int QUARTER = decltype(quarter)::value, COUNT = decltype(pair)::value ? 2 : 1;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            sum[0] += softmax_dot<T, LOG>(park.template take<QUARTER>(k + i, skew),
                                          other.template take<QUARTER>(k + i, skew_other));
    });
    const int tail = park.tail_of(visible);
    if (tail >= 0) {
        const float b = other.column(tail, skew_other);
        sum[0] = LOG ? sum[0] + b : fmaf(park.column(tail, skew), b, sum[0]);
    }
    team.reduce(plain_sum{}, sum);

    park.write_words(dx, call.cols, visible, ahead, alike, skew - ahead, T(0.0f), team.ends(),
                     [&](auto quarter, int k) {
                         constexpr int QUARTER = decltype(quarter)::value;
                         return softmax_gradient<T, LOG>(
                             park.template take<QUARTER>(k, skew - ahead),
                             other.template take<QUARTER>(k, skew_other - ahead), sum[0],
                             call.scale);
                     });
}

/* Rows of which two would leave room for one block on a multiprocessor only: y in registers.  The
 * order of the sum is that of the kernel with both in shared memory. */
template<class T, bool LOG>
__global__ void __launch_bounds__(PARKED_THREADS, 2)
    softmax_backward_half_kernel(plain_softmax call, int vecs, int cluster)
{
    extern __shared__ __align__(PARKED_ALIGNMENT) uint4 shared[];
    __shared__ parked_exchange<1> space;
    parked_team<plain_sum, 1, true> team(space, cluster);
    const int64_t row = blockIdx.x / cluster;
    const parked_row<T, false> park(shared, 0, team.rank, vecs);
    park.fetch(row_of<const T>(call.dy, row), call.cols);
    const int held = park.held(call.cols);
    const uint4 *from = (const uint4 *)row_of<const T>(call.y, row) + park.first;
    uint4 y[HALF_VECS];
#pragma unroll
    for (int k = 0; k < HALF_VECS; k++) y[k] = k < held ? from[k * 32] : make_uint4(0, 0, 0, 0);
    await_fetches();

    float sum[1] = {0};
#pragma unroll
    for (int k = 0; k < HALF_VECS; k++)
        if (k < held) sum[0] += softmax_dot<T, LOG>(y[k], park.slots[k * 32]);
    team.reduce(plain_sum{}, sum);

    uint4 *to = (uint4 *)row_of<T>(call.dx, row) + park.first;
#pragma unroll
    for (int k = 0; k < HALF_VECS; k++) {
        hold_packed<T>(y[k]);
        if (k < held)
            to[k * 32] = softmax_gradient<T, LOG>(y[k], park.slots[k * 32], sum[0], call.scale);
    }
}

/* Host side */

struct plain_softmax_plan {
    int lanes; /* 1 to 32 lanes a row in registers; 0: a block or more */
    bool half; /* backward: y in registers, where it has no edges */
    parked_plan parked;
};

static inline plain_softmax_plan plan_plain_softmax(int64_t cols, int width, int tensors,
                                                    int device)
{
    plain_softmax_plan plan = {};
    const int vectors = (int)((cols + width - 1) / width);
    if (vectors <= 32 * HELD_VECS) {
        plan.lanes = 1;
        while (plan.lanes * HELD_VECS < vectors) plan.lanes *= 2;
    } else {
        const bool of_warp = tensors == 1 && cols % width != 0 && vectors <= 32 * PARKED_WARP_VECS;
        const int usual = of_warp ? PARKED_WARP_VECS : vectors > 256 && vectors <= 768 ? 6 : 8;
        plan.parked = parked_plan_for(vectors, tensors, usual, device);
        const int each = (vectors + ROW_CLUSTER_MAX - 1) / ROW_CLUSTER_MAX;
        plan.half = tensors == 2 && plan.parked.cluster == ROW_CLUSTER_MAX && each > 1056 &&
                    each <= PARKED_THREADS * HALF_VECS;
        if (plan.half) {
            plan.parked.threads = row_round_up((each + HALF_VECS - 1) / HALF_VECS, 32);
            plan.parked.vecs = HALF_VECS;
            plan.parked.bytes = parked_bytes(plan.parked, tensors);
        }
    }
    return plan;
}

static inline bool plain_softmax_fits(const plain_softmax_plan &plan)
{
    return plan.lanes || plan.parked.cluster;
}

template<class T, bool BACKWARD, bool LOG, bool EDGES>
static tutti_status launch_plain_softmax(tutti_context *ctx, const plain_softmax &call,
                                         const plain_softmax_plan &plan)
{
    const char *what = BACKWARD ? "softmax_backward" : "softmax_forward";
    cudaStream_t stream = tutti__cuda_stream(ctx);
    if (plan.lanes) {
        const int64_t each = HELD_THREADS / plan.lanes;
        return row_launch(what, softmax_lanes_kernel<T, BACKWARD, LOG, EDGES>,
                          (unsigned)((call.rows + each - 1) / each), HELD_THREADS, 1, 0, stream,
                          call, plan.lanes);
    }
    const parked_plan &parked = plan.parked;
    auto launch = [&](auto kernel) {
        return parked_launch(what, kernel, parked, (unsigned)call.rows * parked.cluster,
                             ctx->device, stream, call, parked.vecs, parked.cluster);
    };
    if constexpr (BACKWARD && !EDGES)
        if (plan.half) {
            parked_plan one = parked;
            one.bytes = parked_bytes(one, 1);
            return parked_launch(what, softmax_backward_half_kernel<T, LOG>, one,
                                 (unsigned)call.rows * one.cluster, ctx->device, stream, call,
                                 one.vecs, one.cluster);
        }
    if constexpr (BACKWARD)
        return parked.cluster > 1 ? launch(softmax_backward_parked_kernel<T, LOG, EDGES, true>)
                                  : launch(softmax_backward_parked_kernel<T, LOG, EDGES, false>);
    else {
        if constexpr (EDGES)
            if (parked.threads == 32 && call.causal_period == 0)
                return launch(softmax_forward_parked_kernel<T, LOG, true, PARKED_WARP>);
        return parked.cluster > 1
                   ? launch(softmax_forward_parked_kernel<T, LOG, EDGES, PARKED_CLUSTER>)
                   : launch(softmax_forward_parked_kernel<T, LOG, EDGES, PARKED_BLOCK>);
    }
}

/* Of f32, f16 and bf16, for a plan that fits. */
template<class T, bool BACKWARD>
static tutti_status run_plain_softmax(tutti_context *ctx, const tutti__softmax_args &args,
                                      const plain_softmax_plan &plan)
{
    const plain_softmax call = {args.x,           args.y,           args.dy,
                                args.dx,          args.rows,        args.causal_period,
                                args.first_row,   (int)args.cols,   (float)args.lead,
                                (float)args.size, (float)args.scale};
    const bool whole =
        args.causal_period == 0 && args.cols % vector16<T>::N == 0 &&
        row_aligned(args.y, args.rows, 16) &&
        (BACKWARD ? row_aligned(args.dy, args.rows, 16) && row_aligned(args.dx, args.rows, 16)
                  : row_aligned(args.x, args.rows, 16));
    if (args.log)
        return whole ? launch_plain_softmax<T, BACKWARD, true, false>(ctx, call, plan)
                     : launch_plain_softmax<T, BACKWARD, true, true>(ctx, call, plan);
    return whole ? launch_plain_softmax<T, BACKWARD, false, false>(ctx, call, plan)
                 : launch_plain_softmax<T, BACKWARD, false, true>(ctx, call, plan);
}

#endif
