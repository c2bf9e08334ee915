/* AdamW over flat buffers: norm of the gradients, decision, update.  include/tutti/adamw.h has the
 * mathematics.
 *
 * Fewest bytes: the gradients once for their norm; then master, m, v and gradient read, master, m,
 * v and working values written once.  Three kernels: a sum of squares for every fixed run of
 * elements, in f64; one block that adds these in order, decides, and computes what does not depend
 * on the element; the update, a warp for every TUTTI_PARAM_ALIGN elements, which belong to one
 * parameter. */
#include "kernels/cuda/rows.cuh"
#include "ops/adamw.h"
#include "tutti/param.h"

enum { SQUARES_THREADS = 256, SQUARES_RUN = 16384, DECIDE_THREADS = 1024, UPDATE_THREADS = 256 };

/* The update's input besides the buffers: in scratch, before the partial sums. */
struct adamw_decision {
    double factor, learning_rate; /* factor: on gradients */
    double unbias1, unbias2;      /* 1 / (1 - beta^t) */
    int32_t skip;
};

template<class T>
__global__ void __launch_bounds__(SQUARES_THREADS)
    squares_kernel(const T *grad, int64_t count, double *partial)
{
    constexpr int N = 16 / (int)sizeof(T), STEP = SQUARES_THREADS * N;
    __shared__ block_team_slots<double, 1> slots;
    block_team<double, 1> team(slots, 1);
    int64_t base = (int64_t)blockIdx.x * SQUARES_RUN + threadIdx.x * N;
    double sum[1] = {0};
#pragma unroll 4
    for (int k = 0; k < SQUARES_RUN / STEP; k++) {
        int64_t i = base + k * STEP;
        double g[N];
        /* the count is a multiple of a vector */
        load_elements(g, grad + i, i < count ? N : 0, true);
#pragma unroll
        for (int e = 0; e < N; e++) sum[0] += g[e] * g[e];
    }
    team.reduce<row_add>(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum[0];
}

__global__ void __launch_bounds__(DECIDE_THREADS)
    adamw_decide_kernel(tutti__adamw_args args, const double *partial, int64_t partials,
                        adamw_decision *decision)
{
    __shared__ block_team_slots<double, 1> slots;
    block_team<double, 1> team(slots, 1);
    double sum[1] = {0};
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < partials; i += DECIDE_THREADS) sum[0] += partial[i];
    team.reduce<row_add>(sum);
    if (threadIdx.x != 0) return;

    tutti__adamw_state *state = args.state;
    double scale = args.step->loss_scale, norm = sqrt(sum[0]) / scale, factor = 1 / scale;
    if (args.clip_norm > 0) {
        double clip = args.clip_norm / (norm + 1e-6);
        factor *= clip > 1 ? 1 : clip; /* keeps NaN */
    }
    bool skip = args.skip_nonfinite && !isfinite(norm);
    state->grad_norm = norm;
    state->clip = factor;
    state->skipped = skip;
    decision->skip = skip;
    if (skip) return;
    double updates = state->updates + 1;
    state->updates = updates;
    decision->factor = factor;
    decision->learning_rate = args.step->learning_rate;
    decision->unbias1 = 1 / (1 - pow(args.beta1, updates));
    decision->unbias2 = 1 / (1 - pow(args.beta2, updates));
}

template<class T>
__global__ void __launch_bounds__(UPDATE_THREADS)
    adamw_update_kernel(tutti__adamw_args args, const adamw_decision *decision)
{
    constexpr int N = TUTTI_PARAM_ALIGN / 32;
    if (decision->skip) return;
    T factor = (T)decision->factor;
    T unbias1 = (T)decision->unbias1, unbias2 = (T)decision->unbias2;
    T beta1 = (T)args.beta1, rest1 = (T)(1 - args.beta1);
    T beta2 = (T)args.beta2, rest2 = (T)(1 - args.beta2);
    T eps = (T)args.eps;
    double learning_rate = decision->learning_rate;

    int64_t runs = args.count / TUTTI_PARAM_ALIGN, warps = (int64_t)gridDim.x * UPDATE_THREADS / 32;
    int64_t run = ((int64_t)blockIdx.x * UPDATE_THREADS + threadIdx.x) / 32;
    for (; run < runs; run += warps) {
        const tutti__param_factors *own = &args.factors[args.block_param[run]];
        T rate = (T)(learning_rate * own->lr_scale);
        T decay = (T)(args.weight_decay * own->weight_decay);
        int64_t i = run * TUTTI_PARAM_ALIGN + threadIdx.x % 32 * N;
        T p[N], m[N], v[N], g[N];
        load_elements(g, (const T *)args.grad + i, N, true);
        load_elements(p, (const T *)args.master + i, N, true);
        load_elements(m, (const T *)args.m + i, N, true);
        load_elements(v, (const T *)args.v + i, N, true);
#pragma unroll
        for (int e = 0; e < N; e++) {
            g[e] *= factor;
            m[e] = beta1 * m[e] + rest1 * g[e];
            v[e] = beta2 * v[e] + rest2 * (g[e] * g[e]);
            T step = m[e] * unbias1 / (sqrt(v[e] * unbias2) + eps);
            p[e] -= rate * (step + decay * p[e]);
        }
        store_elements((T *)args.master + i, p, N, true);
        store_elements((T *)args.m + i, m, N, true);
        store_elements((T *)args.v + i, v, N, true);
        if (args.working && own->working)
            store_any(args.working, args.working_dtype, i, p, N, true);
    }
}

/* Scratch: the decision, then the partial sums. */
enum { ADAMW_HEAD = 256 };
static_assert(sizeof(adamw_decision) <= ADAMW_HEAD, "the partial sums begin after the decision");

static int64_t partials_of(const tutti__adamw_args *args)
{
    return (args->count + SQUARES_RUN - 1) / SQUARES_RUN;
}

static tutti_status adamw_plan(tutti_context *ctx, const void *args, bool backward,
                               tutti__plan *plan)
{
    (void)ctx, (void)backward;
    plan->scratch =
        ADAMW_HEAD + (size_t)partials_of((const tutti__adamw_args *)args) * sizeof(double);
    return TUTTI_OK;
}

template<class T>
static tutti_status adamw_of(const tutti__job *job, const tutti__adamw_args *args)
{
    adamw_decision *decision = (adamw_decision *)job->scratch;
    double *partial = (double *)((char *)job->scratch + ADAMW_HEAD);
    int64_t partials = partials_of(args);
    cudaStream_t stream = tutti__cuda_stream(job->ctx);
    if (partials > 0)
        TUTTI_TRY(row_launch("adamw", squares_kernel<T>, (unsigned)partials, SQUARES_THREADS, 1, 0,
                             stream, (const T *)args->grad, args->count, partial));
    TUTTI_TRY(row_launch("adamw", adamw_decide_kernel, 1, DECIDE_THREADS, 1, 0, stream, *args,
                         partial, partials, decision));
    if (partials == 0) return TUTTI_OK;
    constexpr int64_t BLOCK_COUNT = (int64_t)UPDATE_THREADS / 32 * TUTTI_PARAM_ALIGN;
    return row_launch("adamw", adamw_update_kernel<T>, row_grid(args->count, BLOCK_COUNT, 1),
                      UPDATE_THREADS, 1, 0, stream, *args, decision);
}

static tutti_status adamw_run(const tutti__job *job, const void *untyped)
{
    const tutti__adamw_args *args = (const tutti__adamw_args *)untyped;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, "adamw"));
    return args->dtype == TUTTI_F64 ? adamw_of<double>(job, args) : adamw_of<float>(job, args);
}

extern "C" const tutti__op tutti__cuda_adamw = {adamw_plan, adamw_run, NULL};
