/* The norm of gradients that lie apart, and the update of parameters that do.
 * include/tutti/update.h has the mathematics.
 *
 * The arithmetic and the order of sums are those of update.cu, so that the bits are.  The lists are
 * on the host, and kernels get them as arguments, a part at a time: so nothing is copied, and a
 * capture keeps them.  A launch for the norm takes whole runs of the flat buffer in which the
 * gradients might lie, and the up to TUTTI__NORM_RUN / TUTTI_PARAM_ALIGN tensors in each. */
#include "kernels/cuda/squares.cuh"
#include "kernels/cuda/update.cuh"

enum { NORM_PARTS = TUTTI__NORM_RUN / TUTTI_PARAM_ALIGN, APPLY_PARTS = 32 };

/* A tensor from the launch's first run on. */
struct norm_part {
    const void *data; /* element 0 */
    int64_t first;    /* its place; negative: in an earlier run */
    int64_t count;
};
struct norm_parts {
    norm_part part[NORM_PARTS];
    int count;
};

/* A block a run. */
template<class T>
__global__ void __launch_bounds__(SQUARES_THREADS)
    list_squares_kernel(const __grid_constant__ norm_parts parts, double *partial)
{
    constexpr int N = 16 / (int)sizeof(T), STEP = SQUARES_THREADS * N;
    __shared__ block_team_slots<double, 1> slots;
    run_squares squares(slots);
    int64_t base = (int64_t)blockIdx.x * TUTTI__NORM_RUN + threadIdx.x * N;
    int at = 0;
    for (int k = 0; k < TUTTI__NORM_RUN / STEP; k++) {
        const int64_t i = base + k * STEP;
        while (at + 1 < parts.count && i >= parts.part[at + 1].first) at++;
        const norm_part &part = parts.part[at];
        const int64_t inside = i - part.first, rest = part.count - inside;
        double g[N];
        load_elements(g, (const T *)part.data + inside, rest < N ? (int)max(rest, (int64_t)0) : N,
                      (uintptr_t)part.data % 16 == 0);
#pragma unroll
        for (int e = 0; e < N; e++) squares.add(g[e]);
    }
    squares.write(&partial[blockIdx.x]);
}

__global__ void __launch_bounds__(DECIDE_THREADS)
    norm_kernel(tutti__grad_norm_args args, const double *squares, int64_t runs)
{
    const double sum = sum_squares(squares, runs);
    if (threadIdx.x != 0) return;
    *args.norm = tutti__norm_of(sum, args.step ? args.step->loss_scale : 1, args.clip_norm,
                                args.skip_nonfinite);
}

__global__ void apply_decide_kernel(tutti__apply_args args, update_decision *decision)
{
    decision->skip = args.norm && args.norm->skip != 0;
    if (decision->skip) return;
    const double t = args.updates ? *args.updates + 1 : (double)args.step->step;
    if (args.updates) *args.updates = t;
    decide_update(decision, (args.norm ? args.norm->clip : 1) / args.step->loss_scale,
                  args.step->learning_rate, args.options, t);
}

/* A parameter, from the launch's block number `first` on. */
struct apply_part {
    int64_t first, count; /* blocks; elements */
    const void *grad;
    update_memory to;
    tutti_dtype grad_dtype;
    bool even; /* all of it is aligned */
    double lr_scale, weight_decay;
};
struct apply_parts {
    apply_part part[APPLY_PARTS];
    int count;
    int64_t blocks;
};

/* A warp a block of TUTTI_PARAM_ALIGN elements. */
template<class T, template<class> class Rule>
__global__ void __launch_bounds__(UPDATE_THREADS)
    apply_kernel(const __grid_constant__ apply_parts parts, tutti__update_options options,
                 const update_decision *decision)
{
    constexpr int N = TUTTI_PARAM_ALIGN / 32;
    if (decision->skip) return;
    const Rule<T> rule(options, *decision);
    const T factor = (T)decision->factor;
    const double learning_rate = decision->learning_rate;

    int64_t warps = (int64_t)gridDim.x * UPDATE_THREADS / 32;
    int64_t block = ((int64_t)blockIdx.x * UPDATE_THREADS + threadIdx.x) / 32;
    for (int at = 0; block < parts.blocks; block += warps) {
        while (at + 1 < parts.count && block >= parts.part[at + 1].first) at++;
        const apply_part &part = parts.part[at];
        const int64_t i = (block - part.first) * TUTTI_PARAM_ALIGN + threadIdx.x % 32 * N;
        const int64_t rest = part.count - i;
        if (rest <= 0) continue;
        const int count = rest < N ? (int)rest : N;
        T g[N], p[N];
        load_any(g, part.grad, part.grad_dtype, i, count, part.even);
        update_elements<T, Rule>(rule, part.to, i, count, part.even, g, factor,
                                 (T)(learning_rate * part.lr_scale), (T)part.weight_decay, true, p);
    }
}

/* Host side: the norm */

static tutti_status grad_norm_plan(tutti_context *ctx, const void *untyped, bool backward,
                                   tutti__plan *plan)
{
    (void)ctx, (void)backward;
    const tutti__grad_norm_args *args = (const tutti__grad_norm_args *)untyped;
    plan->scratch = (size_t)tutti__list_runs(args) * sizeof(double);
    return TUTTI_OK;
}

/* Sums the first `runs` runs of parts, and keeps what reaches beyond them. */
template<class T>
static tutti_status flush_norm(const tutti__job *job, norm_parts *parts, int64_t runs,
                               double **squares)
{
    if (runs == 0) return TUTTI_OK;
    TUTTI_TRY(row_launch("grad_norm", list_squares_kernel<T>, (unsigned)runs, SQUARES_THREADS, 1, 0,
                         tutti__cuda_stream(job->ctx), *parts, *squares));
    *squares += runs;
    int kept = 0;
    for (int i = 0; i < parts->count; i++) {
        norm_part part = parts->part[i];
        part.first -= runs * TUTTI__NORM_RUN;
        if (part.first + tutti__padded(part.count) > 0) parts->part[kept++] = part;
    }
    parts->count = kept;
    return TUTTI_OK;
}

/* The gradients of one type. */
template<class T>
static tutti_status list_squares(const tutti__job *job, const tutti__grad_norm_args *args,
                                 tutti_dtype dtype, double **squares)
{
    norm_parts parts = {};
    int64_t next = 0; /* place of the next tensor */
    for (int i = 0; i < args->count; i++) {
        const tutti_tensor *grad = &args->grads[i];
        const int64_t count = tutti_tensor_count(grad);
        if (grad->dtype != dtype || count == 0) continue;
        if (parts.count == NORM_PARTS) { /* they fill at least one run */
            TUTTI_TRY(flush_norm<T>(job, &parts, next / TUTTI__NORM_RUN, squares));
            next %= TUTTI__NORM_RUN;
        }
        parts.part[parts.count++] = {grad->data, next, count};
        next += tutti__padded(count);
    }
    return flush_norm<T>(job, &parts, tutti__norm_runs(next), squares);
}

static tutti_status grad_norm_run(const tutti__job *job, const void *untyped)
{
    const tutti__grad_norm_args *args = (const tutti__grad_norm_args *)untyped;
    double *squares = (double *)job->scratch;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, "grad_norm"));
    TUTTI_TRY(list_squares<float>(job, args, TUTTI_F32, &squares));
    TUTTI_TRY(list_squares<double>(job, args, TUTTI_F64, &squares));
    return row_launch("grad_norm", norm_kernel, 1, DECIDE_THREADS, 1, 0,
                      tutti__cuda_stream(job->ctx), *args, (const double *)job->scratch,
                      tutti__list_runs(args));
}

/* Host side: the update */

static tutti_status apply_plan(tutti_context *ctx, const void *args, bool backward,
                               tutti__plan *plan)
{
    (void)ctx, (void)args, (void)backward;
    plan->scratch = sizeof(update_decision);
    return TUTTI_OK;
}

static apply_part part_of(const tutti__apply_args *args, int index, int64_t first)
{
    const tutti_param *param = args->params[index];
    const tutti_tensor *master = tutti__master_of(param);
    apply_part part = {};
    part.first = first;
    part.count = tutti_tensor_count(master);
    part.grad = param->grad.data;
    part.grad_dtype = param->grad.dtype;
    part.to.master = master->data;
    for (int s = 0; s < 2; s++)
        part.to.state[s] = args->state[s] ? args->state[s][index].data : NULL;
    part.to.working = param->value.data != master->data ? param->value.data : NULL;
    part.to.working_dtype = param->value.dtype;
    part.even = ((uintptr_t)part.grad | (uintptr_t)part.to.master | (uintptr_t)part.to.state[0] |
                 (uintptr_t)part.to.state[1] | (uintptr_t)part.to.working) %
                    16 ==
                0;
    part.lr_scale = param->lr_scale;
    part.weight_decay = args->options.weight_decay * param->weight_decay;
    return part;
}

template<class T>
static tutti_status flush_apply(const tutti__job *job, const tutti__apply_args *args,
                                apply_parts *parts)
{
    if (parts->blocks == 0) return TUTTI_OK;
    auto kernel = args->options.rule == TUTTI__ADAMW ? apply_kernel<T, adamw_rule>
                                                     : apply_kernel<T, sgd_rule>;
    TUTTI_TRY(row_launch("apply", kernel, row_grid(parts->blocks, UPDATE_THREADS / 32, 1),
                         UPDATE_THREADS, 1, 0, tutti__cuda_stream(job->ctx), *parts, args->options,
                         (const update_decision *)job->scratch));
    parts->count = 0;
    parts->blocks = 0;
    return TUTTI_OK;
}

/* The parameters whose masters have one type. */
template<class T>
static tutti_status apply_of(const tutti__job *job, const tutti__apply_args *args,
                             tutti_dtype dtype)
{
    apply_parts parts = {};
    for (int i = 0; i < args->count; i++) {
        const tutti_tensor *master = tutti__master_of(args->params[i]);
        if (master->dtype != dtype || tutti_tensor_count(master) == 0) continue;
        if (parts.count == APPLY_PARTS) TUTTI_TRY(flush_apply<T>(job, args, &parts));
        parts.part[parts.count++] = part_of(args, i, parts.blocks);
        parts.blocks += tutti__padded(tutti_tensor_count(master)) / TUTTI_PARAM_ALIGN;
    }
    return flush_apply<T>(job, args, &parts);
}

static tutti_status apply_run(const tutti__job *job, const void *untyped)
{
    const tutti__apply_args *args = (const tutti__apply_args *)untyped;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, "apply"));
    TUTTI_TRY(row_launch("apply", apply_decide_kernel, 1, 1, 1, 0, tutti__cuda_stream(job->ctx),
                         *args, (update_decision *)job->scratch));
    TUTTI_TRY(apply_of<float>(job, args, TUTTI_F32));
    return apply_of<double>(job, args, TUTTI_F64);
}

extern "C" const tutti__op tutti__cuda_grad_norm = {grad_norm_plan, grad_norm_run, NULL};
extern "C" const tutti__op tutti__cuda_apply = {apply_plan, apply_run, NULL};
