/* CrossEntropy: a row's loss and its gradient in one visit; include/tutti/cross_entropy.h has the
 * mathematics. */
#include <stdatomic.h>

#include "kernels/host/host.h"

typedef struct entropy_task {
    const tutti__cross_entropy_args *args;
    double weight;           /* of each row's gradient */
    double *losses;          /* [rows], for their sum, or NULL */
    _Atomic int64_t bad_row; /* the first with a label out of range; rows if none */
    char *rows;              /* of each thread: a row of REALs */
    size_t thread_bytes;
} entropy_task;

static void note_bad_row(entropy_task *task, int64_t row)
{
    int64_t first = task->bad_row;
    while (row < first && !atomic_compare_exchange_weak(&task->bad_row, &first, row)) continue;
}

#define REAL float
#define OF(name) name##_f32
#include "kernels/host/cross_entropy_rows.h"
#define REAL double
#define OF(name) name##_f64
#include "kernels/host/cross_entropy_rows.h"

/* A row of REALs a thread, then the losses. */
static tutti_status entropy_scratch(tutti_context *ctx, const tutti__cross_entropy_args *args,
                                    bool wants_sum, entropy_task *task)
{
    const bool wide = args->logits.dtype == TUTTI_F64;
    task->thread_bytes = tutti__room(args->cols, wide ? sizeof(double) : sizeof(float));
    const size_t rows_bytes = (size_t)ctx->threads * task->thread_bytes;
    const size_t losses_bytes = wants_sum ? tutti__room(args->rows, sizeof(double)) : 0;
    TUTTI_TRY(tutti__scratch(ctx, rows_bytes + losses_bytes, (void **)&task->rows));
    task->losses = wants_sum ? (double *)(task->rows + rows_bytes) : NULL;
    return TUTTI_OK;
}

tutti_status tutti__host_cross_entropy_plan(tutti_context *ctx,
                                            const tutti__cross_entropy_args *args)
{
    entropy_task task;
    return entropy_scratch(ctx, args, true, &task);
}

tutti_status tutti__host_cross_entropy(tutti_context *ctx, const tutti__cross_entropy_args *args)
{
    const bool wide = args->logits.dtype == TUTTI_F64;
    entropy_task task = {.args = args, .weight = 1, .bad_row = args->rows};
    if (args->step) task.weight = args->step->loss_weight * args->step->loss_scale;
    TUTTI_TRY(entropy_scratch(ctx, args, args->loss_sum != NULL, &task));
    tutti__parallel(ctx, args->rows, 40 + (wide ? 6.0 : 1.5) * (double)args->cols,
                    wide ? cross_entropy_rows_f64 : cross_entropy_rows_f32, &task);
    if (args->loss_sum) *args->loss_sum = row_sum_f64(task.losses, args->rows);
    if (task.bad_row < args->rows && ctx->finding->code == TUTTI__FINDING_NONE)
        *ctx->finding = (tutti__finding){
            .code = TUTTI__FINDING_LABEL,
            .value = args->labels[task.bad_row],
            .row = task.bad_row,
            .limit = args->cols,
        };
    return TUTTI_OK;
}
