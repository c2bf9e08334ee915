/* Optimizers over flat buffers: squares of the gradients, decision, update; and over tensors that
 * lie apart, by the same arithmetic.  include/tutti/adamw.h, sgd.h and update.h have the
 * mathematics. */
#include "ops/update.h"

#include <string.h>

#include "kernels/host/host.h"

typedef struct squares_task {
    const tutti__squares_args *args;
    const tutti__slice *own;
} squares_task;

typedef struct update_task {
    const tutti__update_args *args;
    const tutti__slice *own;
    double learning_rate;
    double factor;       /* on gradients */
    double bias1, bias2; /* AdamW: 1 - beta^t */
} update_task;

/* The gradients of one type in a list. */
typedef struct list_task {
    const tutti__grad_norm_args *args;
    tutti_dtype dtype;
    double *squares;
} list_task;

/* An element of them; index is the list's count behind the last. */
typedef struct list_place {
    int index;
    int64_t first;
} list_place;

/* Goes on to the next tensor where this one has ended, or has the other type. */
static void list_settle(const list_task *t, list_place *place)
{
    const tutti_tensor *grads = t->args->grads;
    for (; place->index < t->args->count; place->index++, place->first = 0)
        if (grads[place->index].dtype == t->dtype &&
            place->first < tutti_tensor_count(&grads[place->index]))
            return;
}

/* The place of an element of the flat buffer, a multiple of TUTTI_PARAM_ALIGN. */
static list_place list_seek(const list_task *t, int64_t element)
{
    list_place place = {0, 0};
    list_settle(t, &place);
    while (place.index < t->args->count) {
        const int64_t room = tutti__padded(tutti_tensor_count(&t->args->grads[place.index]));
        if (element < room) break;
        element -= room;
        place.index++;
        list_settle(t, &place);
    }
    place.first = element;
    return place;
}

/* One parameter of a list, as a flat buffer. */
typedef struct apply_task {
    update_task update;
    tutti__work rule;
    tutti_dtype grad_dtype;
} apply_task;

#define root_f32 sqrtf
#define root_f64 sqrt
#define BODY "kernels/host/update_rows.h"
#include "kernels/host/each_real.h"

static tutti_status squares(const tutti__job *job, const void *untyped)
{
    const tutti__squares_args *args = untyped;
    for (int i = 0; i < args->own_count; i++) {
        squares_task task = {args, &args->own[i]};
        tutti__parallel(job->ctx, tutti__norm_runs(task.own->span.count), 0.3 * TUTTI__NORM_RUN,
                        args->dtype == TUTTI_F64 ? square_runs_f64 : square_runs_f32, &task);
    }
    return TUTTI_OK;
}

static double sum_of(const double *squares, int64_t runs)
{
    double sum = 0;
    for (int64_t run = 0; run < runs; run++) sum += squares[run];
    return sum;
}

/* The factor on gradients and the numbers of the state; false: the step is skipped. */
static bool decide(const tutti__update_args *args, double *factor)
{
    tutti__update_state *progress = args->progress;
    const double scale = args->step->loss_scale;
    const tutti_grad_norm_values values =
        tutti__norm_of(sum_of(args->of.squares, tutti__norm_runs(args->of.count)), scale,
                       args->options.clip_norm, args->options.skip_nonfinite);
    progress->grad_norm = values.norm;
    progress->clip = *factor = values.clip / scale;
    progress->skipped = values.skip;
    if (values.skip != 0) return false;
    progress->updates += 1;
    return true;
}

/* What the t-th update does to all elements. */
static update_task task_of(const tutti__update_options *options, const tutti_step_values *step,
                           double factor, double t)
{
    return (update_task){.learning_rate = step->learning_rate,
                         .factor = factor,
                         .bias1 = 1 - pow(options->beta1, t),
                         .bias2 = 1 - pow(options->beta2, t)};
}

static tutti__work rule_of(tutti__update_rule rule, bool wide)
{
    if (rule == TUTTI__ADAMW) return wide ? adamw_runs_f64 : adamw_runs_f32;
    return wide ? sgd_runs_f64 : sgd_runs_f32;
}

static tutti_status update(const tutti__job *job, const void *untyped)
{
    const tutti__update_args *args = untyped;
    double factor;
    if (!decide(args, &factor)) return TUTTI_OK;
    update_task task = task_of(&args->options, args->step, factor, args->progress->updates);
    task.args = args;
    for (int i = 0; i < args->of.own_count; i++) {
        task.own = &args->of.own[i];
        tutti__parallel(job->ctx, task.own->span.count / TUTTI_PARAM_ALIGN, 0.8 * TUTTI_PARAM_ALIGN,
                        rule_of(args->options.rule, args->of.dtype == TUTTI_F64), &task);
    }
    return TUTTI_OK;
}

/* Tensors that lie apart */

static tutti_status grad_norm_plan(tutti_context *ctx, const void *untyped, bool backward,
                                   tutti__plan *plan)
{
    (void)ctx, (void)backward;
    const tutti__grad_norm_args *args = untyped;
    plan->scratch = (size_t)tutti__list_runs(args) * sizeof(double);
    return TUTTI_OK;
}

static tutti_status grad_norm(const tutti__job *job, const void *untyped)
{
    const tutti__grad_norm_args *args = untyped;
    double *squares = job->scratch;
    for (int wide = 0; wide < 2; wide++) {
        list_task task = {args, wide ? TUTTI_F64 : TUTTI_F32, squares};
        const int64_t runs = tutti__norm_runs(args->elements[wide]);
        tutti__parallel(job->ctx, runs, 0.3 * TUTTI__NORM_RUN, wide ? list_runs_f64 : list_runs_f32,
                        &task);
        squares += runs;
    }
    *args->norm = tutti__norm_of(sum_of(job->scratch, tutti__list_runs(args)),
                                 args->step ? args->step->loss_scale : 1, args->clip_norm,
                                 args->skip_nonfinite);
    return TUTTI_OK;
}

/* As flat buffers of one parameter. */
static void apply_to(const tutti_context *ctx, const tutti__apply_args *all, int index,
                     apply_task *task)
{
    const tutti_param *param = all->params[index];
    const tutti_tensor *master = tutti__master_of(param);
    const bool working = param->value.data != master->data;
    const tutti__param_factors factors = {param->weight_decay, param->lr_scale, working};
    const tutti__slice own = {.span = {.count = tutti_tensor_count(master)},
                              .master = master->data};
    tutti__update_args args = {
        .options = all->options,
        .of = {.dtype = master->dtype, .grad = param->grad.data},
        .working = working ? param->value.data : NULL,
        .working_dtype = param->value.dtype,
        .factors = &factors,
    };
    for (int i = 0; i < 2; i++) args.state[i] = all->state[i] ? all->state[i][index].data : NULL;
    task->update.args = &args;
    task->update.own = &own;
    task->grad_dtype = param->grad.dtype;
    task->rule = rule_of(all->options.rule, master->dtype == TUTTI_F64);
    tutti__parallel(ctx, tutti__padded(own.span.count) / TUTTI_PARAM_ALIGN, 0.8 * TUTTI_PARAM_ALIGN,
                    master->dtype == TUTTI_F64 ? apply_blocks_f64 : apply_blocks_f32, task);
}

static tutti_status apply(const tutti__job *job, const void *untyped)
{
    const tutti__apply_args *args = untyped;
    if (args->norm && args->norm->skip != 0) return TUTTI_OK;
    const double t = args->updates ? *args->updates + 1 : (double)args->step->step;
    const double factor = (args->norm ? args->norm->clip : 1) / args->step->loss_scale;
    apply_task task = {.update = task_of(&args->options, args->step, factor, t)};
    if (args->updates) *args->updates = t;
    for (int i = 0; i < args->count; i++) apply_to(job->ctx, args, i, &task);
    return TUTTI_OK;
}

const tutti__op tutti__host_squares = {NULL, squares, NULL};
const tutti__op tutti__host_update = {NULL, update, NULL};
const tutti__op tutti__host_grad_norm = {grad_norm_plan, grad_norm, NULL};
const tutti__op tutti__host_apply = {NULL, apply, NULL};
