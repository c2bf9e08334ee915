/* Optimizers over flat buffers: squares of the gradients, decision, update; include/tutti/adamw.h
 * and sgd.h have the mathematics. */
#include "ops/update.h"
#include "kernels/host/host.h"
#include "tutti/param.h"

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

#define root_f32 sqrtf
#define root_f64 sqrt
#define REAL float
#define OF(name) name##_f32
#include "kernels/host/update_rows.h"
#define REAL double
#define OF(name) name##_f64
#include "kernels/host/update_rows.h"

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

/* The factor on gradients and the numbers of the state; false: the step is skipped. */
static bool decide(const tutti__update_args *args, double *factor)
{
    tutti__update_state *progress = args->progress;
    const double scale = args->step->loss_scale;
    double square = 0;
    for (int64_t run = 0; run < tutti__norm_runs(args->of.count); run++)
        square += args->of.squares[run];
    progress->grad_norm = sqrt(square) / scale;
    *factor = 1 / scale;
    if (args->clip_norm > 0) {
        const double clip = args->clip_norm / (progress->grad_norm + 1e-6);
        *factor *= clip > 1 ? 1 : clip; /* keeps NaN */
    }
    progress->clip = *factor;
    progress->skipped = args->skip_nonfinite && !isfinite(progress->grad_norm);
    if (progress->skipped != 0) return false;
    progress->updates += 1;
    return true;
}

static tutti_status update(const tutti__job *job, const void *untyped)
{
    const tutti__update_args *args = untyped;
    const bool wide = args->of.dtype == TUTTI_F64;
    update_task task = {.args = args, .learning_rate = args->step->learning_rate};
    if (!decide(args, &task.factor)) return TUTTI_OK;
    task.bias1 = 1 - pow(args->beta1, args->progress->updates);
    task.bias2 = 1 - pow(args->beta2, args->progress->updates);
    const bool adamw = args->rule == TUTTI__ADAMW;
    for (int i = 0; i < args->of.own_count; i++) {
        task.own = &args->of.own[i];
        tutti__parallel(job->ctx, task.own->span.count / TUTTI_PARAM_ALIGN, 0.8 * TUTTI_PARAM_ALIGN,
                        wide    ? adamw ? adamw_runs_f64 : sgd_runs_f64
                        : adamw ? adamw_runs_f32
                                : sgd_runs_f32,
                        &task);
    }
    return TUTTI_OK;
}

const tutti__op tutti__host_squares = {NULL, squares, NULL};
const tutti__op tutti__host_update = {NULL, update, NULL};
