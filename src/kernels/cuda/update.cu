/* Optimizers over flat buffers: squares of the gradients, decision, update.
 * include/tutti/adamw.h and sgd.h have the mathematics.
 *
 * Fewest bytes: the gradients once for their norm; then master, state and gradient read, master,
 * state and working values written once.  Three kernels: a sum of squares for every run of
 * elements, in f64; one block that adds these in order, decides, and computes what does not depend
 * on the element; the update, a warp for every TUTTI_PARAM_ALIGN elements, which belong to one
 * parameter.  It writes new values to other ranks' memory, too, where it can: copies that follow
 * would read them again, and end later. */
#include "kernels/cuda/update.cuh"

#include "kernels/cuda/squares.cuh"

/* Slices of a store at equal distances: most of a sharded one's, or all there is. */
struct alike_slices {
    int64_t first, count; /* of the first one */
    int64_t apart, masters_apart;
    unsigned slices;
    int64_t local; /* of the first one; the others' places in the state follow */
    void *master;
};

/* What is updated of them: the first one's first elements. */
struct update_slices {
    int64_t count, apart, masters_apart;
    unsigned slices;
    const int32_t *block_param;
    const void *grad;
    update_memory to;
    int working_bytes;     /* of an element */
    void *const *replicas; /* by rank, or NULL */
    int64_t in_replicas;   /* the place of the first element there */
    int rank, ranks;
};

template<class T>
__global__ void __launch_bounds__(SQUARES_THREADS)
    squares_kernel(const T *grad, alike_slices alike, double *partial)
{
    constexpr int N = 16 / (int)sizeof(T), STEP = SQUARES_THREADS * N;
    __shared__ block_team_slots<double, 1> slots;
    run_squares squares(slots);
    const unsigned runs = (unsigned)tutti__norm_runs(alike.count), run = blockIdx.x % runs;
    const int64_t first = alike.first + blockIdx.x / runs * alike.apart;
    int64_t base = (int64_t)run * TUTTI__NORM_RUN + threadIdx.x * N;
#pragma unroll 4
    for (int k = 0; k < TUTTI__NORM_RUN / STEP; k++) {
        int64_t i = base + k * STEP;
        double g[N];
        /* the count is a multiple of a vector */
        load_elements(g, grad + first + i, i < alike.count ? N : 0, true);
#pragma unroll
        for (int e = 0; e < N; e++) squares.add(g[e]);
    }
    squares.write(&partial[first / TUTTI__NORM_RUN + run]);
}

__global__ void __launch_bounds__(DECIDE_THREADS)
    update_decide_kernel(tutti__update_args args, const volatile uint32_t *dead,
                         update_decision *decision)
{
    const double sum = sum_squares(args.of.squares, tutti__norm_runs(args.of.count));
    if (threadIdx.x != 0) return;
    tutti__update_state *state = args.progress;
    const double scale = args.step->loss_scale;
    const tutti_grad_norm_values values =
        tutti__norm_of(sum, scale, args.options.clip_norm, args.options.skip_nonfinite);
    state->grad_norm = values.norm;
    state->clip = values.clip / scale;
    decision->skip = values.skip != 0 || (dead && *dead != 0);
    state->skipped = decision->skip;
    if (decision->skip) return;
    state->updates += 1;
    decide_update(decision, values.clip / scale, args.step->learning_rate, args.options,
                  state->updates);
}

template<class T, template<class> class Rule>
__global__ void __launch_bounds__(UPDATE_THREADS)
    update_kernel(tutti__update_args args, update_slices of, const update_decision *decision)
{
    constexpr int N = TUTTI_PARAM_ALIGN / 32;
    start_next();
    if (decision->skip) return wait_for_previous();
    const Rule<T> rule(args.options, *decision);
    const T factor = (T)decision->factor;
    const double learning_rate = decision->learning_rate;

    const int64_t runs = of.count / TUTTI_PARAM_ALIGN; /* of a slice */
    int64_t warps = (int64_t)gridDim.x * UPDATE_THREADS / 32;
    int64_t run = ((int64_t)blockIdx.x * UPDATE_THREADS + threadIdx.x) / 32;
    for (; run < runs * of.slices; run += warps) {
        const int64_t slice = of.slices > 1 ? (uint32_t)run / (uint32_t)runs : 0;
        const int64_t skip = slice * (of.apart - of.count); /* what lies between slices */
        const tutti__param_factors *own =
            &args.factors[of.block_param[run + skip / TUTTI_PARAM_ALIGN]];
        T rate = (T)(learning_rate * own->lr_scale);
        T decay = (T)(args.options.weight_decay * own->weight_decay);
        int64_t i = run * TUTTI_PARAM_ALIGN + threadIdx.x % 32 * N;
        update_memory to = of.to;
        to.master = (T *)to.master + slice * (of.masters_apart - of.count);
        if (to.working) to.working = (char *)to.working + skip * of.working_bytes;
        T g[N], p[N];
        load_elements(g, (const T *)of.grad + skip + i, N, true);
        update_elements<T, Rule>(rule, to, i, N, true, g, factor, rate, decay, own->working, p);
        for (int r = 0; of.replicas && r < of.ranks; r++)
            if (r != of.rank)
                store_any(of.replicas[r], own->working ? to.working_dtype : args.of.dtype,
                          of.in_replicas + skip + i, p, N, true);
    }
    wait_for_previous(); /* the slices before: what follows this kernel follows that one, too */
}

/* Host side */

static void *element(void *data, tutti_dtype dtype, int64_t at)
{
    return data ? (char *)data + (size_t)at * tutti_dtype_size(dtype) : NULL;
}

/* From slice number `index` on, up to `end`. */
static alike_slices find_alike(const tutti__squares_args *of, int64_t rounded, int index, int end)
{
    const tutti__slice *own = &of->own[index];
    const int64_t first = own->span.first, size = (int64_t)tutti_dtype_size(of->dtype);
    alike_slices alike = {first, own->span.count, 0, 0, 1, own->local, own->master};
    for (; index + (int)alike.slices < end; alike.slices++) {
        const tutti__slice *next = &own[alike.slices], *before = next - 1;
        const int64_t apart = next->span.first - before->span.first;
        const int64_t masters = ((char *)next->master - (char *)before->master) / size;
        if (alike.slices == 1) {
            alike.apart = apart;
            alike.masters_apart = masters;
        }
        if (next->span.count != alike.count || apart != alike.apart ||
            masters != alike.masters_apart || (next->span.first < rounded) != (first < rounded))
            break;
    }
    return alike;
}

static tutti_status squares_run(const tutti__job *job, const void *untyped)
{
    const tutti__squares_args *args = (const tutti__squares_args *)untyped;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, "squares"));
    for (int i = 0; i < args->own_count;) {
        const alike_slices alike = find_alike(args, 0, i, args->own_count);
        auto launch = [&](auto kernel, const auto *grad) {
            return row_launch(
                "squares", kernel, (unsigned)tutti__norm_runs(alike.count) * alike.slices,
                SQUARES_THREADS, 1, 0, tutti__cuda_stream(job->ctx), grad, alike, args->squares);
        };
        TUTTI_TRY(args->dtype == TUTTI_F64
                      ? launch(squares_kernel<double>, (const double *)args->grad)
                      : launch(squares_kernel<float>, (const float *)args->grad));
        i += (int)alike.slices;
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

static update_slices slices_of(const tutti__update_args *args, const alike_slices &alike)
{
    const tutti_dtype dtype = args->of.dtype;
    const tutti__shard_replicas *replicas = args->replicas;
    const bool rounded = alike.first < args->rounded;
    update_slices of = {};
    of.count = alike.count;
    of.apart = alike.apart;
    of.masters_apart = alike.masters_apart;
    of.slices = alike.slices;
    of.block_param = args->block_param + alike.first / TUTTI_PARAM_ALIGN;
    of.grad = element((void *)args->of.grad, dtype, alike.first);
    of.to = {
        alike.master,
        {element(args->state[0], dtype, alike.local), element(args->state[1], dtype, alike.local)},
        element(args->working, args->working_dtype, alike.first),
        args->working_dtype};
    of.working_bytes = (int)tutti__size_of(args->working_dtype);
    if (replicas && alike.count <= replicas->most) {
        of.replicas = rounded ? replicas->rounded : replicas->masters;
        of.in_replicas = alike.first - (rounded ? 0 : args->rounded);
        of.rank = replicas->rank;
        of.ranks = replicas->world;
    }
    return of;
}

template<class T>
static tutti_status update_of(const tutti__job *job, const tutti__update_args *args)
{
    update_decision *decision = (update_decision *)job->scratch;
    cudaStream_t stream = tutti__cuda_stream(job->ctx);
    TUTTI_TRY(row_launch("update", update_decide_kernel, 1, DECIDE_THREADS, 1, 0, stream, *args,
                         args->replicas ? args->replicas->dead : NULL, decision));
    constexpr int64_t BLOCK_COUNT = (int64_t)UPDATE_THREADS / 32 * TUTTI_PARAM_ALIGN;
    auto kernel = args->options.rule == TUTTI__ADAMW ? update_kernel<T, adamw_rule>
                                                     : update_kernel<T, sgd_rule>;
    /* the first one follows the decision, the others begin while it runs */
    auto update = [&](int first, int end) {
        for (int i = first; i < end;) {
            const alike_slices alike = find_alike(&args->of, args->rounded, i, end);
            const dim3 grid = row_grid(alike.count * alike.slices, BLOCK_COUNT, 1);
            const update_slices of = slices_of(args, alike);
            TUTTI_TRY(i == first ? row_launch("update", kernel, grid, UPDATE_THREADS, 1, 0, stream,
                                              *args, of, decision)
                                 : launch_early("update", job->ctx->device, kernel, grid,
                                                dim3(UPDATE_THREADS), stream, *args, of, decision));
            i += (int)alike.slices;
        }
        return TUTTI_OK;
    };
    const int count = args->of.own_count;
    tutti__event early = args->replicas ? args->replicas->early : NULL;
    const int rest = early ? count - args->replicas->early_slices : 0;
    TUTTI_TRY(update(rest, count));
    if (early) TUTTI_TRY(tutti__cuda_event_record(job->ctx->device, early, stream));
    return update(0, rest);
}

static tutti_status update_run(const tutti__job *job, const void *untyped)
{
    const tutti__update_args *args = (const tutti__update_args *)untyped;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, "update"));
    return args->of.dtype == TUTTI_F64 ? update_of<double>(job, args) : update_of<float>(job, args);
}

extern "C" const tutti__op tutti__cuda_squares = {NULL, squares_run, NULL};
extern "C" const tutti__op tutti__cuda_update = {update_plan, update_run, NULL};
