/* CrossEntropy: loss of each row, their sum, and the gradient of the logits.
 * include/tutti/cross_entropy.h has the mathematics.
 *
 * Fewest bytes: the logits read once, dlogits written once.  A row of up to 128 vectors stays in
 * registers (rows.cuh), a longer one in shared memory (parked.cuh), of doubles in registers
 * (double_rows.cuh), from its only read to the write of its gradient; rows that fit on no cluster
 * are read twice.  Label smoothing and z-loss have kernels of their own (WHOLE), and cost one more
 * sum.  The losses are kept in scratch, in f64, for a second kernel that sums them
 * (row_losses.cuh). */
#include "kernels/cuda/double_rows.cuh"
#include "kernels/cuda/parked.cuh"
#include "kernels/cuda/row_losses.cuh"
#include "kernels/cuda/softmax_parts.cuh"
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

/* Rows of doubles in registers */

template<bool WHOLE>
struct entropy_doubles {
    using call = entropy_call;
    static constexpr int TENSORS = 0, VALUES = WHOLE ? 3 : 2;

    template<int COUNT, class Team>
    static __device__ __forceinline__ void of_row(const call &c, Team &team, int64_t row,
                                                  bool exists, double_place place, double *)
    {
        const tutti__cross_entropy_args &args = c.args;
        const double *x = (const double *)args.logits.data + row * args.logits.stride;
        const int32_t label = exists ? args.labels[row] : args.ignore_label;
        const entropy_row kind = classify(c, label);
        const int cols = exists ? (int)args.cols : 0, count = kind == ENTROPY_COUNTS ? cols : 0;
        const int held = place.held(count), all = exists ? place.held(cols) : 0;
        double v[COUNT], top[1] = {-DBL_MAX}, sums[VALUES - 1] = {};
        load_doubles(v, x, place, held);
        const double own = count > 0 ? x[label] : 0.0, pivot = isfinite(own) ? own : 0.0;
        const double weight = gradient_weight<double>(c);
        /* dlogits may be the logits: no thread writes before all have read the label's logit */
        team.begin();

#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            if (k >= held) v[k] = -CUDART_INF;
            if (v[k] > top[0]) top[0] = v[k];
        }
        reduce_lanes<row_max>(top, place.lanes);
        each_exponential<COUNT>(
            held,
            [&](int k) {
                if (WHOLE && k < held) sums[VALUES - 2] += v[k] - pivot;
                return v[k] - top[0];
            },
            [&](int k, double e) {
                if (k < held) sums[0] += e;
                v[k] = e;
            });
        reduce_lanes<row_add>(sums, place.lanes);
        double both[VALUES] = {top[0], sums[0]};
        if constexpr (WHOLE) both[2] = sums[1];
        merge_exponentials(team, 1, both);

        const double log_sum = log(both[1]);
        double loss = log_sum - (own - both[0]), part[1] = {top[0] - both[0]}, factor = 1;
        if constexpr (WHOLE)
            loss = whole_loss(args, log_sum, own - both[0], both[0],
                              both[2] + (double)count * (pivot - both[0]), factor);
        if (exists && place.first == 0) finish_row(c, row, label, kind, loss);
        if (!args.dlogits.data) return;
        exponentials(part);
        factor *= part[0] / both[1];
        const double other = kind == ENTROPY_BAD ? CUDART_NAN : 0.0;
        const int from = (int)((unsigned)label - (unsigned)place.first); /* columns to the label */
        double *dx = (double *)args.dlogits.data + row * args.dlogits.stride + place.first;
#pragma unroll
        for (int k = 0; k < COUNT; k++, dx += place.step) {
            double share = v[k] * factor;
            if constexpr (WHOLE) share -= args.share;
            if (from == k * place.step) share -= WHOLE ? args.keep : 1.0;
            if (k < all) *dx = kind == ENTROPY_COUNTS ? share * weight : other;
        }
    }
};

/* Rows in shared memory */

/* A softmax_pair, the sum of x - maximum, and the number of columns of both sums. */
template<class T>
struct entropy_sums {
    static __device__ __forceinline__ void identity(float (&values)[4])
    {
        values[0] = row_max::identity();
        values[1] = values[2] = values[3] = 0;
    }
    static __device__ __forceinline__ void lanes(float (&values)[4], int count)
    {
        float pair[2] = {values[0], values[1]};
        softmax_pair<T>{1}.lanes(pair, count);
        const float moved = values[3] == 0 ? 0.0f : values[0] - pair[0];
        float sums[2] = {fmaf(values[3], moved, values[2]), values[3]};
        reduce_lanes<row_add>(sums, count);
        values[0] = pair[0];
        values[1] = pair[1];
        values[2] = sums[0];
        values[3] = sums[1];
    }
};

template<class T, bool WHOLE>
struct entropy_reduces {
    using op = typename std::conditional<WHOLE, entropy_sums<T>, softmax_pair<T>>::type;
    static constexpr int VALUES = WHOLE ? 4 : 2;
    static __device__ __forceinline__ op of()
    {
        if constexpr (WHOLE)
            return {};
        else
            return {1};
    }
};

/* A thread's sums, as they are reduced; gaps are from its first maximum until the end. */
template<class T, bool WHOLE>
struct entropy_thread {
    static constexpr int N = vector16<T>::N;
    thread_sum<T> sum;
    float first = 0, gaps = 0;

    /* begins: before all else. */
    template<int COUNT>
    __device__ __forceinline__ void add(const uint4 (&raw)[COUNT], bool begins)
    {
        sum.add(raw, 1, 1);
        if constexpr (WHOLE) {
            if (begins) first = sum.top;
#pragma unroll
            for (int n = 0; n < COUNT; n++) {
                float gap[N];
                vector16<T>::unpack(raw[n], gap);
#pragma unroll
                for (int i = 0; i < N; i++) gap[i] -= first;
                gaps = __fadd_rn(gaps, tree_sum(gap));
            }
        }
    }
    __device__ __forceinline__ void add_element(float x, bool begins)
    {
        sum.add_element(x, 1, 1);
        if constexpr (WHOLE) {
            if (begins) first = sum.top;
            gaps += x - first;
        }
    }
    /* columns: how many were added. */
    template<int VALUES>
    __device__ __forceinline__ void get(float (&values)[VALUES], int columns) const
    {
        values[0] = sum.top;
        values[1] = sum.sum;
        if constexpr (WHOLE) {
            values[2] = fmaf((float)columns, first - sum.top, gaps);
            values[3] = (float)columns;
        }
    }
};

constexpr int entropy_blocks(bool whole, parked_span span)
{
    return bound_blocks(whole && span == PARKED_CLUSTER ? 4 : parked_blocks(span));
}

template<class T, bool WHOLE, bool EDGES, parked_span SPAN>
__global__ void __launch_bounds__(parked_threads(SPAN, WHOLE ? PARKED_PLANNED : PARKED_THREADS),
                                  entropy_blocks(WHOLE, SPAN))
    cross_entropy_parked_kernel(entropy_call call, int vecs, int cluster)
{
    using reduces = entropy_reduces<T, WHOLE>;
    using parked = parked_row<T, EDGES>;
    constexpr int N = vector16<T>::N;
    constexpr bool CLUSTER = SPAN == PARKED_CLUSTER;
    const tutti__cross_entropy_args &args = call.args;
    extern __shared__ __align__(PARKED_ALIGNMENT) uint4 shared[];
    __shared__ parked_exchange<reduces::VALUES> space;
    parked_team<typename reduces::op, reduces::VALUES, CLUSTER> team(space, cluster);
    const int64_t row = CLUSTER ? blockIdx.x / cluster : blockIdx.x;
    const int cols = (int)args.cols;
    const T *x = (const T *)args.logits.data + row * args.logits.stride;
    T *dx = (T *)args.dlogits.data + row * args.dlogits.stride;
    const parked park(shared, 0, team.rank, vecs);
    const bool apart = are_apart(x, dx) && args.dlogits.data;
    const unsigned skew =
        SPAN == PARKED_WARP ? parked::skew_inside(x, apart) : parked::skew_beside(x, apart);
    park.prefetch(x, cols);
    const int32_t label = args.labels[row];
    const entropy_row kind = classify(call, label);
    const int count = kind == ENTROPY_COUNTS ? cols : 0;
    park.fetch(x, count, skew);
    /* early, except where 40 registers, for 4 blocks and more, leave none for it */
    constexpr bool EARLY = !WHOLE || SPAN != PARKED_CLUSTER;
    float weight = EARLY ? gradient_weight<float>(call) : 0;
    /* loss and label are the business of the thread that has the label's vector */
    const int vector = park.index_of(label / N);
    const bool has_label = vector >= 0 && vector < park.held(count);
    const bool leads = count > 0 ? has_label : team.rank == 0 && threadIdx.x == 0;
    await_fetches();

    entropy_thread<T, WHOLE> mine;
    park.for_vectors(count, skew, true, [&](auto quarter, auto pair, int k) {
        constexpr int QUARTER = decltype(quarter)::value, COUNT = decltype(pair)::value ? 2 : 1;
        uint4 raw[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++) raw[i] = park.template take<QUARTER>(k + i, skew);
        mine.add(raw, k == 0);
    });
    const int vectors = park.held(parked::whole_of(count)), tail = park.tail_of(count);
    if (tail >= 0) mine.add_element(park.column(tail, skew), vectors == 0);
    float own = 0;
    if (has_label) own = park.element(vector, label % N, skew);
    float values[reduces::VALUES];
    mine.get(values, vectors * N + (tail >= 0));
    team.reduce(reduces::of(), values);

    const float top = values[0], log_sum = logf(values[1]);
    float loss = log_sum - (own - top), inverse = 1.0f / values[1];
    if constexpr (WHOLE) {
        float factor;
        loss = whole_loss(args, log_sum, own - top, top, values[2], factor);
        inverse *= factor;
    }
    if (leads) finish_row(call, row, label, kind, loss);
    if (!args.dlogits.data) return;
    if (!EARLY) weight = gradient_weight<float>(call);
    inverse *= weight;
    const float share = WHOLE ? -(float)args.share * weight : 0;
    auto gradient = [&](float logit) {
        const float e = exp_for<T>(logit - top);
        return WHOLE ? fmaf(e, inverse, share) : __fmul_rn(e, inverse);
    };
    auto gradients = [&](const uint4 &logits) {
        float v[N];
        vector16<T>::unpack(logits, v);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = gradient(v[i]);
        return vector16<T>::pack(v);
    };
    auto of_label = [&](float logit) {
        return narrow<T>::of(fmaf(WHOLE ? -(float)args.keep : -1.0f, weight, gradient(logit)));
    };
    /* the label's, once more, behind its word */
    const T other = narrow<T>::of(kind == ENTROPY_BAD ? CUDART_NAN_F : 0.0f);
    if constexpr (SPAN == PARKED_WARP) {
        if (count == 0) {
            for (int col = threadIdx.x; col < cols; col += 32) dx[col] = other;
            return;
        }
        park.write(dx, cols, skew, apart, gradients);
        __syncwarp();
        if (leads) dx[label] = of_label(own);
    } else {
        const unsigned ahead = apart ? skew_of(dx) : skew;
        park.write_words(dx, cols, count, ahead, true, skew - ahead, other, team.ends(),
                         [&](auto quarter, int k) {
                             return gradients(
                                 park.template take<decltype(quarter)::value>(k, skew - ahead));
                         });
        if (count == 0) return;
        const int at = label + (int)(ahead / sizeof(T)), word = park.index_of(at / N);
        if (park.has_word(word, team.ends()))
            dx[label] = of_label(park.element(word, at % N, skew - ahead));
    }
}

template<class T, bool WHOLE>
static tutti_status launch_entropy_parked(const char *what, tutti_context *ctx,
                                          const entropy_call &call, const parked_plan &plan)
{
    const tutti__cross_entropy_args &args = call.args;
    auto launch = [&](auto kernel) {
        return parked_launch(what, kernel, plan, (unsigned)args.rows * plan.cluster, ctx->device,
                             tutti__cuda_stream(ctx), call, plan.vecs, plan.cluster);
    };
    const bool whole = args.cols % vector16<T>::N == 0 && row_aligned(args.logits, args.rows, 16) &&
                       (!args.dlogits.data || row_aligned(args.dlogits, args.rows, 16));
    if (plan.cluster > 1)
        return whole ? launch(cross_entropy_parked_kernel<T, WHOLE, false, PARKED_CLUSTER>)
                     : launch(cross_entropy_parked_kernel<T, WHOLE, true, PARKED_CLUSTER>);
    if (whole) return launch(cross_entropy_parked_kernel<T, WHOLE, false, PARKED_BLOCK>);
    return plan.threads == 32 ? launch(cross_entropy_parked_kernel<T, WHOLE, true, PARKED_WARP>)
                              : launch(cross_entropy_parked_kernel<T, WHOLE, true, PARKED_BLOCK>);
}

template<class T, bool WHOLE>
struct entropy_losses {
    using call = entropy_call;
    static constexpr int VALUES = WHOLE ? 2 : 1, WARP_BLOCKS = 5;
    static auto lengthy() { return cross_entropy_long_kernel<T, WHOLE>; }
    static int lengthy_threads(int64_t cols) { return row_long_threads(cols, 16 / sizeof(T)); }
    static size_t lengthy_shared(int) { return 0; }

    template<int VECS, int ROWS, class Team>
    static __device__ __forceinline__ void of_rows(const call &c, Team &team, int64_t first_row,
                                                   int rows, row_place place, bool leads)
    {
        entropy_rows<T, VECS, ROWS, WHOLE>(c, team, first_row, rows, place, leads);
    }
};

struct entropy_plans {
    row_plan rows; /* as launch_losses reads it */
    parked_plan parked;
    double_plan doubles;
};

template<class T, bool WHOLE>
static tutti_status launch_entropy(const char *what, const tutti__job *job,
                                   const entropy_call &call)
{
    const entropy_plans &plans = *tutti__cuda_parameters<entropy_plans>(job->plan);
    if constexpr (sizeof(T) < 8) {
        if (plans.parked.cluster)
            return launch_entropy_parked<T, WHOLE>(what, job->ctx, call, plans.parked);
    } else if (plans.doubles.count)
        return launch_double_rows<entropy_doubles<WHOLE>>(what, job->ctx, call, plans.doubles);
    return launch_losses<entropy_losses<T, WHOLE>, T>(what, job, call);
}

static tutti_status entropy_plan(tutti_context *ctx, const void *untyped, bool backward,
                                 tutti__plan *plan)
{
    (void)backward;
    const tutti__cross_entropy_args *args = (const tutti__cross_entropy_args *)untyped;
    plan_losses(args->logits, args->rows, args->cols, plan);
    entropy_plans *plans = tutti__cuda_parameters<entropy_plans>(plan);
    const int width = 16 / (int)tutti_dtype_size(args->logits.dtype);
    const int vectors = (int)((args->cols + width - 1) / width);
    const int usual = args->cols % width != 0 && vectors <= 1024 ? PARKED_WARP_VECS : 8;
    plans->doubles = double_plan_for(args->cols, ctx->device);
    if (plans->rows.kind != ROW_WARP)
        plans->parked = parked_plan_for(vectors, 1, usual, ctx->device);
    return TUTTI_OK;
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
        return args.plain ? launch_entropy<T, false>(what, job, call)
                          : launch_entropy<T, true>(what, job, call);
    });
}

extern "C" const tutti__op tutti__cuda_cross_entropy = {entropy_plan, entropy_run, NULL};
