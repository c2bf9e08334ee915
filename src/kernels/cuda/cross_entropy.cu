/* CrossEntropy: loss of each row, their sum, and the gradient of the logits.
 * include/tutti/cross_entropy.h has the mathematics.
 *
 * Fewest bytes: the logits read once, dlogits written once.  A row stays in registers from its only
 * read to the write of its gradient (rows.cuh); rows that fit on no cluster, and f64, are read
 * twice.  Label smoothing and z-loss have kernels of their own (WHOLE), and cost one more sum.  The
 * losses are kept in scratch, in f64, for a second kernel that sums them in an order that depends
 * only on the number of rows. */
#include "kernels/cuda/exp.cuh"
#include "kernels/cuda/row_losses.cuh"
#include "ops/cross_entropy.h"

struct entropy_call {
    tutti__cross_entropy_args args;
    bool x_even, dx_even;
    double *row_losses; /* [rows], or NULL */
    tutti__finding *finding;
};

enum entropy_row { ENTROPY_COUNTS, ENTROPY_IGNORED, ENTROPY_BAD };

static __device__ __forceinline__ entropy_row classify(const entropy_call &call, int32_t label)
{
    if (label == call.args.ignore_label) return ENTROPY_IGNORED;
    return label < 0 || label >= call.args.cols ? ENTROPY_BAD : ENTROPY_COUNTS;
}

/* Called by one thread per row. */
template<class A>
static __device__ __forceinline__ void finish_row(const entropy_call &call, int64_t row,
                                                  int32_t label, entropy_row kind, A loss)
{
    if (kind != ENTROPY_COUNTS) loss = kind == ENTROPY_BAD ? (A)CUDART_NAN : (A)0;
    if (call.args.loss) ((A *)call.args.loss)[row] = loss;
    if (call.row_losses) call.row_losses[row] = (double)loss;
    if (kind == ENTROPY_BAD && atomicCAS(&call.finding->code, 0, call.args.finding) == 0) {
        call.finding->value = label;
        call.finding->row = row;
        call.finding->limit = call.args.cols;
    }
}

template<class A>
static __device__ __forceinline__ A gradient_weight(const entropy_call &call)
{
    const tutti_step_values *step = call.args.step;
    return step ? (A)(step->loss_weight * step->loss_scale) : (A)1;
}

/* A row's loss from log(sum) and x_label - top, with the sum of x - top; sets the factor of softmax
 * in the gradient. */
template<class A>
static __device__ __forceinline__ A whole_loss(const tutti__cross_entropy_args &args, A log_sum,
                                               A own, A top, A gaps, A &factor)
{
    A loss = log_sum - (A)args.keep * own, z = (A)args.z_loss, log_z = top + log_sum;
    factor = 1;
    if (args.share > 0) loss -= (A)args.share * gaps;
    if (z > 0) {
        loss += z * log_z * log_z;
        factor += 2 * z * log_z;
    }
    return loss;
}

template<class T, int VECS, int ROWS, bool WHOLE, class Team>
__device__ __forceinline__ void entropy_rows(const entropy_call &call, Team &team,
                                             int64_t first_row, int rows, row_place place,
                                             bool leads)
{
    using vector = vector16<T>;
    constexpr int N = vector::N;
    const tutti__cross_entropy_args &args = call.args;
    int cols = (int)args.cols;

    uint4 raw[ROWS][VECS];
    int32_t label[ROWS];
    entropy_row kind[ROWS];
    int count[ROWS]; /* columns to read */
    float own[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        label[r] = args.ignore_label;
        if (r < rows) label[r] = args.labels[first_row + r];
        kind[r] = classify(call, label[r]);
        count[r] = kind[r] == ENTROPY_COUNTS ? cols : 0;
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const T *x =
            (const T *)args.logits.data + (r < rows ? first_row + r : 0) * args.logits.stride;
        load_row<T>(raw[r], x, place, count[r]);
        own[r] = count[r] > 0 ? widen<float>(x[label[r]]) : 0.0f;
    }
    /* dlogits may be the logits: no thread writes before all have read the label's logit */
    team.begin();

    /* of exponentials; WHOLE: then of x - top */
    float top[ROWS], sum[WHOLE ? 2 * ROWS : ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        top[r] = -CUDART_INF_F;
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            float v[N];
            vector::unpack(raw[r][k], v);
            for_elements<N>(count[r] - place.column<T>(k),
                            [&](int i) { top[r] = fmaxf(top[r], v[i]); });
        }
    }
    team.template reduce<row_max>(top);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        sum[r] = 0;
        if constexpr (WHOLE) sum[ROWS + r] = 0;
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            float v[N];
            hold_packed<T>(raw[r][k]);
            vector::unpack(raw[r][k], v);
            for_elements<N>(count[r] - place.column<T>(k), [&](int i) {
                if constexpr (WHOLE) sum[ROWS + r] += v[i] - top[r];
                sum[r] += exp_for<T>(v[i] - top[r]);
            });
        }
    }
    team.template reduce<row_add>(sum);
    float weight = gradient_weight<float>(call);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float inverse = 1.0f / sum[r];
        if constexpr (WHOLE) {
            float factor, loss = whole_loss(args, logf(sum[r]), own[r] - top[r], top[r],
                                            sum[ROWS + r], factor);
            if (leads && r < rows) finish_row(call, first_row + r, label[r], kind[r], loss);
            inverse *= factor;
        } else {
            if (leads && r < rows)
                finish_row(call, first_row + r, label[r], kind[r],
                           logf(sum[r]) - (own[r] - top[r]));
        }
        if (!args.dlogits.data) continue;
        float other = kind[r] == ENTROPY_BAD ? CUDART_NAN_F : 0.0f;
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            int col = place.column<T>(k);
            float v[N];
            hold_packed<T>(raw[r][k]);
            vector::unpack(raw[r][k], v);
            if (kind[r] == ENTROPY_COUNTS) {
#pragma unroll
                for (int i = 0; i < N; i++) {
                    v[i] = exp_for<T>(v[i] - top[r]) * inverse;
                    if constexpr (WHOLE) v[i] -= (float)args.share;
                }
                int at_label = label[r] - col;
                if (at_label >= 0 && at_label < N) {
#pragma unroll
                    for (int i = 0; i < N; i++)
                        if (i == at_label) v[i] -= WHOLE ? (float)args.keep : 1.0f;
                }
#pragma unroll
                for (int i = 0; i < N; i++) v[i] *= weight;
            } else {
#pragma unroll
                for (int i = 0; i < N; i++) v[i] = other;
            }
            raw[r][k] = vector::pack(v);
        }
        store_row((T *)args.dlogits.data + (r < rows ? first_row + r : 0) * args.dlogits.stride,
                  raw[r], place, r < rows ? cols : 0);
    }
}

template<class T, bool WHOLE>
__global__ void __launch_bounds__(1024) cross_entropy_long_kernel(entropy_call call)
{
    using A = typename wide_row<T>::A;
    constexpr int N = wide_row<T>::N;
    const tutti__cross_entropy_args &args = call.args;
    __shared__ block_team_slots<A, 1> slots;
    block_team<A, 1> team(slots, 1);
    int cols = (int)args.cols, step = blockDim.x * N, first = threadIdx.x * N;
    A weight = gradient_weight<A>(call);

    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        const T *x = (const T *)args.logits.data + row * args.logits.stride;
        int32_t label = args.labels[row];
        entropy_row kind = classify(call, label);
        int count = kind == ENTROPY_COUNTS ? cols : 0;
        A own = count > 0 ? widen<A>(x[label]) : (A)0;
        /* gaps are from the label's logit, since the top is not known yet */
        A pivot = isfinite(own) ? own : (A)0, factor = 1;
        row_total<A> gaps;
        running_sum<T> sum = running_sum_of<T>(
            [&](A(&v)[N], int col) {
                load_elements(v, x + col, cols - col, call.x_even);
                if constexpr (WHOLE) {
                    A part = 0;
#pragma unroll
                    for (int i = 0; i < N; i++)
                        if (col + i < count) part += v[i] - pivot;
                    gaps.add(part);
                }
            },
            count, (A)1, (A)1, first, step);
        sum.merge(team, (A)1);
        A loss = logarithm(sum.sum) - (own - sum.top);
        if constexpr (WHOLE) {
            A gap[1] = {gaps.value()};
            team.template reduce<row_add>(gap);
            loss = whole_loss(args, logarithm(sum.sum), own - sum.top, sum.top,
                              gap[0] + (A)cols * (pivot - sum.top), factor);
        }
        if (threadIdx.x == 0) finish_row(call, row, label, kind, loss);
        if (!args.dlogits.data) continue;
        A other = kind == ENTROPY_BAD ? (A)CUDART_NAN : (A)0;
        T *dx = (T *)args.dlogits.data + row * args.dlogits.stride;
        for (int col = first; col < cols; col += step) {
            A v[N];
            load_elements(v, x + col, count - col, call.x_even);
#pragma unroll
            for (int i = 0; i < N; i++) {
                A share = exponential<T>::of(v[i] - sum.top) / sum.sum;
                A hit = (A)(col + i == label);
                if constexpr (WHOLE) {
                    share = share * factor - (A)args.share;
                    hit *= (A)args.keep;
                }
                v[i] = kind != ENTROPY_COUNTS ? other : (share - hit) * weight;
            }
            store_elements(dx + col, v, cols - col, call.dx_even);
        }
    }
}

template<class T, bool WHOLE>
struct entropy_losses {
    using call = entropy_call;
    static constexpr int VALUES = WHOLE ? 2 : 1, WARP_BLOCKS = 5, BLOCK_THREADS = 1024;
    static auto lengthy() { return cross_entropy_long_kernel<T, WHOLE>; }

    template<int VECS, int ROWS, class Team>
    static __device__ __forceinline__ void of_rows(const call &c, Team &team, int64_t first_row,
                                                   int rows, row_place place, bool leads)
    {
        entropy_rows<T, VECS, ROWS, WHOLE>(c, team, first_row, rows, place, leads);
    }
};

static tutti_status entropy_plan(tutti_context *ctx, const void *untyped, bool backward,
                                 tutti__plan *plan)
{
    (void)backward;
    const tutti__cross_entropy_args *args = (const tutti__cross_entropy_args *)untyped;
    return plan_losses(ctx, args->logits, args->rows, args->cols, 1, plan);
}

static tutti_status entropy_run(const tutti__job *job, const void *untyped)
{
    const char *what = "cross_entropy";
    entropy_call call = {};
    const auto &args = call.args = *(const tutti__cross_entropy_args *)untyped;
    return run_losses(what, job, args.logits, call, [&](auto type) {
        using T = typename decltype(type)::type;
        constexpr int N = 16 / (int)sizeof(T);
        call.x_even = row_even(args.logits, args.rows, N);
        call.dx_even = row_even(args.dlogits, args.rows, N);
        return args.plain ? launch_losses<entropy_losses<T, false>, T>(what, job, call)
                          : launch_losses<entropy_losses<T, true>, T>(what, job, call);
    });
}

extern "C" const tutti__op tutti__cuda_cross_entropy = {entropy_plan, entropy_run, NULL};
