/* AdamW over flat buffers: norm of the gradients, decision, update; include/tutti/adamw.h has the
 * mathematics. */
#include "ops/adamw.h"
#include "kernels/host/host.h"
#include "tutti/param.h"

/* Gradients per partial sum of squares. */
#define NORM_BLOCK 16384

typedef struct adamw_task {
    const tutti__adamw_args *args;
    double *squares; /* one per block */
    double learning_rate;
    double factor;       /* on gradients */
    double bias1, bias2; /* 1 - beta^t */
} adamw_task;

#define root_f32 sqrtf
#define root_f64 sqrt
#define REAL float
#define OF(name) name##_f32
#include "kernels/host/adamw_rows.h"
#define REAL double
#define OF(name) name##_f64
#include "kernels/host/adamw_rows.h"

static int64_t norm_blocks(const tutti__adamw_args *args)
{
    return (args->count + NORM_BLOCK - 1) / NORM_BLOCK;
}

static tutti_status plan(tutti_context *ctx, const void *args, bool backward, tutti__plan *plan)
{
    (void)ctx, (void)backward;
    plan->scratch = (size_t)norm_blocks(args) * sizeof(double);
    return TUTTI_OK;
}

static tutti_status forward(const tutti__job *job, const void *untyped)
{
    tutti_context *ctx = job->ctx;
    const tutti__adamw_args *args = untyped;
    const bool wide = args->dtype == TUTTI_F64;
    adamw_task task = {
        .args = args, .squares = job->scratch, .learning_rate = args->step->learning_rate};
    const int64_t blocks = norm_blocks(args);
    tutti__parallel(ctx, blocks, 0.3 * NORM_BLOCK, wide ? square_blocks_f64 : square_blocks_f32,
                    &task);
    double square = 0;
    for (int64_t block = 0; block < blocks; block++) square += task.squares[block];

    tutti__adamw_state *state = args->state;
    const double scale = args->step->loss_scale;
    state->grad_norm = sqrt(square) / scale;
    task.factor = 1 / scale;
    if (args->clip_norm > 0) {
        const double clip = args->clip_norm / (state->grad_norm + 1e-6);
        task.factor *= clip > 1 ? 1 : clip; /* keeps NaN */
    }
    state->clip = task.factor;
    state->skipped = args->skip_nonfinite && !isfinite(state->grad_norm);
    if (state->skipped != 0) return TUTTI_OK;
    state->updates += 1;
    task.bias1 = 1 - pow(args->beta1, state->updates);
    task.bias2 = 1 - pow(args->beta2, state->updates);
    tutti__parallel(ctx, args->count / TUTTI_PARAM_ALIGN, 0.8 * TUTTI_PARAM_ALIGN,
                    wide ? update_runs_f64 : update_runs_f32, &task);
    return TUTTI_OK;
}

const tutti__op tutti__host_adamw = {plan, forward, NULL};
