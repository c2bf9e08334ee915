/* CrossEntropy: a row's loss and gradient in one pass; include/tutti/cross_entropy.h has the
 * mathematics. */
#include "ops/cross_entropy.h"
#include "kernels/host/host.h"

typedef struct entropy_task {
    const tutti__cross_entropy_args *args;
    double weight;           /* of each row's gradient */
    double *losses;          /* [rows], for their sum, or NULL */
    _Atomic int64_t bad_row; /* the first with a label out of range; rows if none */
    char *rows;              /* per thread: a row of REALs */
    size_t thread_bytes;
} entropy_task;

#define BODY "kernels/host/cross_entropy_rows.h"
#include "kernels/host/each_real.h"

/* A row of REALs per thread, then the losses. */
static size_t thread_bytes(const tutti__cross_entropy_args *args)
{
    const bool wide = args->logits.dtype == TUTTI_F64;
    return tutti__room(args->cols, wide ? sizeof(double) : sizeof(float));
}

static tutti_status plan(tutti_context *ctx, const void *untyped, bool backward, tutti__plan *plan)
{
    (void)backward;
    const tutti__cross_entropy_args *args = untyped;
    plan->scratch =
        (size_t)ctx->threads * thread_bytes(args) + tutti__room(args->rows, sizeof(double));
    return TUTTI_OK;
}

static tutti_status forward(const tutti__job *job, const void *untyped)
{
    const tutti__cross_entropy_args *args = untyped;
    const bool wide = args->logits.dtype == TUTTI_F64;
    entropy_task task = {.args = args,
                         .weight = 1,
                         .bad_row = args->rows,
                         .rows = job->scratch,
                         .thread_bytes = thread_bytes(args)};
    if (args->step) task.weight = args->step->loss_weight * args->step->loss_scale;
    if (args->loss_sum)
        task.losses = (double *)(task.rows + (size_t)job->ctx->threads * task.thread_bytes);
    tutti__parallel(job->ctx, args->rows, 40 + (wide ? 6.0 : 1.5) * (double)args->cols,
                    wide ? cross_entropy_rows_f64 : cross_entropy_rows_f32, &task);
    if (args->loss_sum) *args->loss_sum = row_sum_f64(task.losses, args->rows);
    if (task.bad_row < args->rows)
        tutti__host_find(job->ctx, args->finding, args->labels[task.bad_row], task.bad_row,
                         args->cols);
    return TUTTI_OK;
}

const tutti__op tutti__host_cross_entropy = {plan, forward, NULL};
