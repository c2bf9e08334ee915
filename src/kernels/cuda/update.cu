/* Optimizers over flat buffers: squares of the gradients, decision, update.
 * include/tutti/adamw.h and sgd.h have the mathematics.
 *
 * Fewest bytes: the gradients once for their norm; then master, state and gradient read, master,
 * state and working values written once.  Three kernels: a sum of squares for every run of
 * elements, in f64; one block that adds these in order, decides, and computes what does not depend
 * on the element; the update, a warp for every TUTTI_PARAM_ALIGN elements, which belong to one
 * parameter.  The first and the last one are launched for each slice, which is sent to other ranks
 * while the next one is updated. */
#include "kernels/cuda/update.cuh"

/* A slice: its first elements. */
struct update_slice {
    int64_t count;
    const int32_t *block_param;
    const void *grad;
    update_memory to;
};

template<class T>
__global__ void __launch_bounds__(SQUARES_THREADS)
    squares_kernel(const T *grad, int64_t count, double *partial)
{
    constexpr int N = 16 / (int)sizeof(T), STEP = SQUARES_THREADS * N;
    __shared__ block_team_slots<double, 1> slots;
    block_team<double, 1> team(slots, 1);
    int64_t base = (int64_t)blockIdx.x * TUTTI__NORM_RUN + threadIdx.x * N;
    double sum[1] = {0};
#pragma unroll 4
    for (int k = 0; k < TUTTI__NORM_RUN / STEP; k++) {
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
    update_decide_kernel(tutti__update_args args, update_decision *decision)
{
    const double sum = sum_squares(args.of.squares, tutti__norm_runs(args.of.count));
    if (threadIdx.x != 0) return;
    tutti__update_state *state = args.progress;
    const double scale = args.step->loss_scale;
    const tutti_grad_norm_values values =
        tutti__norm_of(sum, scale, args.options.clip_norm, args.options.skip_nonfinite);
    state->grad_norm = values.norm;
    state->clip = values.clip / scale;
    const bool dead = args.dead && *(const volatile uint32_t *)args.dead != 0;
    decision->skip = values.skip != 0 || dead;
    state->skipped = decision->skip;
    if (decision->skip) return;
    state->updates += 1;
    decide_update(decision, values.clip / scale, args.step->learning_rate, args.options,
                  state->updates);
}

template<class T, template<class> class Rule>
__global__ void __launch_bounds__(UPDATE_THREADS)
    update_kernel(tutti__update_args args, update_slice slice, const update_decision *decision)
{
    constexpr int N = TUTTI_PARAM_ALIGN / 32;
    if (decision->skip) return;
    const Rule<T> rule(args.options, *decision);
    const T factor = (T)decision->factor;
    const double learning_rate = decision->learning_rate;

    int64_t runs = slice.count / TUTTI_PARAM_ALIGN;
    int64_t warps = (int64_t)gridDim.x * UPDATE_THREADS / 32;
    int64_t run = ((int64_t)blockIdx.x * UPDATE_THREADS + threadIdx.x) / 32;
    for (; run < runs; run += warps) {
        const tutti__param_factors *own = &args.factors[slice.block_param[run]];
        T rate = (T)(learning_rate * own->lr_scale);
        T decay = (T)(args.options.weight_decay * own->weight_decay);
        int64_t i = run * TUTTI_PARAM_ALIGN + threadIdx.x % 32 * N;
        T g[N];
        load_elements(g, (const T *)slice.grad + i, N, true);
        update_elements<T, Rule>(rule, slice.to, i, N, true, g, factor, rate, decay, own->working);
    }
}

/* Host side */

static void *element(void *data, tutti_dtype dtype, int64_t at)
{
    return data ? (char *)data + (size_t)at * tutti_dtype_size(dtype) : NULL;
}

static tutti_status squares_run(const tutti__job *job, const void *untyped)
{
    const tutti__squares_args *args = (const tutti__squares_args *)untyped;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, "squares"));
    for (int i = 0; i < args->own_count; i++) {
        const tutti__span &span = args->own[i].span;
        auto launch = [&](auto kernel, const auto *grad) {
            return row_launch("squares", kernel, (unsigned)tutti__norm_runs(span.count),
                              SQUARES_THREADS, 1, 0, tutti__cuda_stream(job->ctx),
                              grad + span.first, span.count,
                              args->squares + span.first / TUTTI__NORM_RUN);
        };
        TUTTI_TRY(args->dtype == TUTTI_F64
                      ? launch(squares_kernel<double>, (const double *)args->grad)
                      : launch(squares_kernel<float>, (const float *)args->grad));
    }
    return TUTTI_OK;
}

static tutti_status update_plan(tutti_context *ctx, const void *args, bool backward,
                                tutti__plan *plan)
{
    (void)ctx, (void)args, (void)backward;
    plan->scratch = sizeof(update_decision);
    return TUTTI_OK;
}

static update_slice slice_of(const tutti__update_args *args, const tutti__slice &own)
{
    const int64_t first = own.span.first;
    const tutti_dtype dtype = args->of.dtype;
    return {own.span.count,
            args->block_param + first / TUTTI_PARAM_ALIGN,
            element((void *)args->of.grad, dtype, first),
            {own.master,
             {element(args->state[0], dtype, own.local), element(args->state[1], dtype, own.local)},
             element(args->working, args->working_dtype, first),
             args->working_dtype}};
}

template<class T>
static tutti_status update_of(const tutti__job *job, const tutti__update_args *args)
{
    update_decision *decision = (update_decision *)job->scratch;
    cudaStream_t stream = tutti__cuda_stream(job->ctx);
    TUTTI_TRY(row_launch("update", update_decide_kernel, 1, DECIDE_THREADS, 1, 0, stream, *args,
                         decision));
    constexpr int64_t BLOCK_COUNT = (int64_t)UPDATE_THREADS / 32 * TUTTI_PARAM_ALIGN;
    auto kernel = args->options.rule == TUTTI__ADAMW ? update_kernel<T, adamw_rule>
                                                     : update_kernel<T, sgd_rule>;
    for (int i = 0; i < args->of.own_count; i++) {
        const tutti__slice &own = args->of.own[i];
        TUTTI_TRY(row_launch("update", kernel, row_grid(own.span.count, BLOCK_COUNT, 1),
                             UPDATE_THREADS, 1, 0, stream, *args, slice_of(args, own), decision));
        TUTTI_TRY(tutti__update_send(args, job->ctx, i));
    }
    return TUTTI_OK;
}

static tutti_status update_run(const tutti__job *job, const void *untyped)
{
    const tutti__update_args *args = (const tutti__update_args *)untyped;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, "update"));
    return args->of.dtype == TUTTI_F64 ? update_of<double>(job, args) : update_of<float>(job, args);
}

extern "C" const tutti__op tutti__cuda_squares = {NULL, squares_run, NULL};
extern "C" const tutti__op tutti__cuda_update = {update_plan, update_run, NULL};
