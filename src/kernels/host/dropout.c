/* BiasDropoutActivation, by blocks of rows whose sums for dbias are merged in the order of the
 * blocks. include/tutti/dropout.h has the mathematics. */
#include <string.h>

#include "kernels/host/activation.h"
#include "ops/dropout.h"

enum { ROWS = 3 };

typedef struct dropout_task {
    const tutti__dropout_args *args;
    bool backward;
    char *rows;     /* of each thread: ROWS rows of REALs */
    char *partials; /* of dbias: a row of doubles a block */
    size_t row_bytes, partial_bytes;
    tutti__row_blocks blocks;
} dropout_task;

#define BODY "kernels/host/dropout_rows.h"
#include "kernels/host/each_real.h"

static dropout_task task_of(const tutti__dropout_args *args, bool backward)
{
    return (dropout_task){.args = args,
                          .backward = backward,
                          .row_bytes = tutti__room(args->cols, args->dtype == TUTTI_F64 ? 8 : 4),
                          .partial_bytes = tutti__room(args->cols, sizeof(double)),
                          .blocks = tutti__split_rows(args->rows, args->cols)};
}

static tutti_status plan(tutti_context *ctx, const void *args, bool backward, tutti__plan *plan)
{
    const dropout_task task = task_of(args, backward);
    plan->scratch = (size_t)ctx->threads * ROWS * task.row_bytes;
    if (backward) plan->scratch += (size_t)task.blocks.count * task.partial_bytes;
    return TUTTI_OK;
}

static tutti_status run(const tutti__job *job, const tutti__dropout_args *args, bool backward)
{
    const bool wide = args->dtype == TUTTI_F64;
    dropout_task task = task_of(args, backward);
    task.rows = job->scratch;
    task.partials = task.rows + (size_t)job->ctx->threads * ROWS * task.row_bytes;
    tutti__parallel(job->ctx, task.blocks.count, 5 * (double)task.blocks.rows * (double)args->cols,
                    wide ? dropout_blocks_f64 : dropout_blocks_f32, &task);
    if (backward && args->dbias)
        tutti__merge_blocks(job->ctx, args->dbias, wide ? TUTTI_F64 : TUTTI_F32, args->accumulate,
                            task.partials, TUTTI_F64, task.blocks.count,
                            (int64_t)(task.partial_bytes / sizeof(double)), args->cols);
    return TUTTI_OK;
}

static tutti_status forward(const tutti__job *job, const void *args)
{
    return run(job, args, false);
}

static tutti_status backward(const tutti__job *job, const void *args)
{
    return run(job, args, true);
}

const tutti__op tutti__host_dropout = {plan, forward, backward};
