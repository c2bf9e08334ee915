/* Losses that are means over a row's elements: loss and gradient in one pass.  include/tutti/mse.h
 * and bce_with_logits.h have the mathematics. */
#include "ops/loss.h"

#include "kernels/host/host.h"

typedef struct loss_task {
    const tutti__loss_args *args;
    double factor;           /* of each element's gradient */
    double *losses;          /* [rows], for their sum, or NULL */
    _Atomic int64_t bad_row; /* the first with a target out of range; rows if none */
    char *rows;              /* per thread: two rows of REALs */
    size_t row_bytes;
} loss_task;

/* log(1 + e) for 0 <= e <= 1, as 2 artanh(e / (2 + e)), whose series has no term that cancels
 * another. */
TUTTI__INLINE float log1p_f32(float e)
{
    const float s = e / (2 + e), z = s * s;
    float p = 2.0f / 15;
    p = p * z + 2.0f / 13;
    p = p * z + 2.0f / 11;
    p = p * z + 2.0f / 9;
    p = p * z + 2.0f / 7;
    p = p * z + 2.0f / 5;
    p = p * z + 2.0f / 3;
    return s * (p * z + 2.0f);
}
TUTTI__INLINE double log1p_f64(double e)
{
    return log1p(e);
}

#define BODY "kernels/host/loss_rows.h"
#include "kernels/host/each_real.h"

static size_t row_bytes(const tutti__loss_args *args)
{
    return tutti__room(args->cols, args->x.dtype == TUTTI_F64 ? sizeof(double) : sizeof(float));
}

/* Two rows of REALs per thread, then the losses. */
static tutti_status plan(tutti_context *ctx, const void *untyped, bool backward, tutti__plan *plan)
{
    (void)backward;
    const tutti__loss_args *args = untyped;
    plan->scratch =
        (size_t)ctx->threads * 2 * row_bytes(args) + tutti__room(args->rows, sizeof(double));
    return TUTTI_OK;
}

/* Finds the column, too. */
static void report_bad_row(tutti_context *ctx, const tutti__loss_args *args, int64_t row)
{
    int32_t column = 0;
    for (double target = NAN;; column++) {
        tutti__load_f64(&target,
                        tutti__at(tutti__row(&args->target, row), args->target.dtype, column),
                        args->target.dtype, 1);
        if (!(target >= 0 && target <= 1)) break;
    }
    tutti__host_find(ctx, args->finding, column, row, args->cols);
}

static tutti_status forward(const tutti__job *job, const void *untyped)
{
    const tutti__loss_args *args = untyped;
    const bool wide = args->x.dtype == TUTTI_F64;
    loss_task task = {.args = args,
                      .factor = tutti__loss_factor(args),
                      .bad_row = args->rows,
                      .rows = job->scratch,
                      .row_bytes = row_bytes(args)};
    if (args->loss_sum)
        task.losses = (double *)(task.rows + (size_t)job->ctx->threads * 2 * task.row_bytes);
    const double each = args->kind == TUTTI__LOSS_MSE ? 1 : wide ? 25 : 4;
    tutti__parallel(job->ctx, args->rows, 20 + each * (double)args->cols,
                    wide ? loss_rows_f64 : loss_rows_f32, &task);
    if (task.losses) *args->loss_sum = row_sum_f64(task.losses, task.args->rows);
    if (task.bad_row < args->rows) report_bad_row(job->ctx, args, task.bad_row);
    return TUTTI_OK;
}

const tutti__op tutti__host_loss = {plan, forward, NULL};
