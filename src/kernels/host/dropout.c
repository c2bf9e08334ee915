/* BiasDropoutActivation by blocks of rows, whose sums for the bias are merged in the order of the blocks;
 * include/tutti/dropout.h has the mathematics. */
#include "ops/dropout.h"

#include <string.h>

#include "kernels/host/activation.h"

typedef struct dropout_task {
    const tutti__dropout_args *args;
    const void *bias; /* [cols] REALs, or NULL */
    char *rows;       /* of each thread: two rows of REALs */
    size_t row_bytes;
    tutti__row_blocks blocks; /* of backward */
    char *partials;           /* of dbias: a row of doubles a block */
    size_t partial_bytes;
} dropout_task;

#define REAL float
#define OF(name) name##_f32
#include "kernels/host/dropout_rows.h"
#define REAL double
#define OF(name) name##_f64
#include "kernels/host/dropout_rows.h"

/* A row for the bias, two a thread, then the partial rows of dbias. */
static size_t lay_out(const tutti_context *ctx, const tutti__dropout_args *args, bool backward,
                      char *scratch, dropout_task *task)
{
    const bool wide = args->dtype == TUTTI_F64;
    const size_t row = tutti__room(args->cols, wide ? sizeof(double) : sizeof(float));
    const size_t partials_at = (1 + 2 * (size_t)ctx->threads) * row;
    *task = (dropout_task){.args = args, .rows = scratch + row, .row_bytes = row};
    task->partials = scratch + partials_at;
    task->partial_bytes = tutti__room(args->cols, sizeof(double));
    task->blocks = tutti__split_rows(args->rows, args->cols);
    return partials_at + (backward ? (size_t)task->blocks.count * task->partial_bytes : 0);
}

static tutti_status plan(tutti_context *ctx, const void *args, bool backward, tutti__plan *plan)
{
    dropout_task task;
    plan->scratch = lay_out(ctx, args, backward, NULL, &task);
    return TUTTI_OK;
}

static void prepare(const tutti__job *job, const tutti__dropout_args *args, bool backward,
                    dropout_task *task)
{
    lay_out(job->ctx, args, backward, job->scratch, task);
    if (!args->bias) return;
    task->bias = job->scratch;
    if (args->dtype == TUTTI_F64)
        tutti__load_f64(job->scratch, args->bias, args->dtype, args->cols);
    else
        tutti__load_f32(job->scratch, args->bias, args->dtype, args->cols);
}

static tutti_status forward(const tutti__job *job, const void *untyped)
{
    const tutti__dropout_args *args = untyped;
    dropout_task task;
    prepare(job, args, false, &task);
    tutti__parallel(job->ctx, args->rows, 20 + 6.0 * (double)args->cols,
                    args->dtype == TUTTI_F64 ? dropout_rows_f64 : dropout_rows_f32, &task);
    return TUTTI_OK;
}

static tutti_status backward(const tutti__job *job, const void *untyped)
{
    const tutti__dropout_args *args = untyped;
    const bool wide = args->dtype == TUTTI_F64;
    dropout_task task;
    prepare(job, args, true, &task);
    tutti__parallel(job->ctx, task.blocks.count,
                    8.0 * (double)task.blocks.rows * (double)args->cols,
                    wide ? dropout_backward_blocks_f64 : dropout_backward_blocks_f32, &task);
    if (args->dbias)
        tutti__merge_blocks(job->ctx, args->dbias, wide ? TUTTI_F64 : TUTTI_F32, args->accumulate,
                            task.partials, TUTTI_F64, task.blocks.count,
                            (int64_t)(task.partial_bytes / sizeof(double)), args->cols);
    return TUTTI_OK;
}

const tutti__op tutti__host_dropout = {plan, forward, backward};
