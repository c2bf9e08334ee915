/* LayerNorm and RMSNorm: forward by rows, backward by blocks of rows whose sums for gamma and beta
 * are merged in the order of the blocks.  include/tutti/layernorm.h has the mathematics. */
#include <float.h>
#include <string.h>

#include "kernels/host/host.h"
#include "ops/norm.h"

typedef struct forward_task {
    const tutti__norm_args *args;
    const void *gamma, *beta; /* [cols] REALs, or NULL */
    char *rows;               /* per thread: two rows of REALs */
    size_t row_bytes, thread_bytes;
} forward_task;

typedef struct backward_task {
    const tutti__norm_args *args;
    const void *gamma; /* [cols] REALs, 1 without one */
    char *rows;        /* per thread: two rows of REALs for each of a group */
    size_t row_bytes, thread_bytes;
    int group; /* rows at a time */
    tutti__row_blocks blocks;
    char *dgamma, *dbeta; /* a row of REALs per block */
} backward_task;

/* Rows that backward takes at a time, of columns up to these: the second cache keeps them, and
 * those that come next. */
enum { NORM_GROUP = 2, NORM_GROUP_COLS = 32768 };
static int group_of(const tutti__norm_args *args)
{
    return args->cols <= NORM_GROUP_COLS ? NORM_GROUP : 1;
}

#define BODY "kernels/host/norm_rows.h"
#include "kernels/host/each_real.h"

static tutti_dtype real_of(const tutti__norm_args *args)
{
    return tutti__accumulate_dtype(args->x.dtype, args->param_dtype);
}

/* gamma or beta as REALs; add_one: plus 1. */
static const void *widened(const tutti__norm_args *args, void *room, const void *param,
                           bool add_one)
{
    if (real_of(args) == TUTTI_F64)
        return widen_param_f64(room, param, args->param_dtype, args->cols, add_one);
    return widen_param_f32(room, param, args->param_dtype, args->cols, add_one);
}

/* Two rows for gamma and beta and two per thread; or one for gamma, those of each thread's group,
 * then the partial rows of dgamma and dbeta. */
static tutti_status plan(tutti_context *ctx, const void *untyped, bool backward, tutti__plan *plan)
{
    const tutti__norm_args *args = untyped;
    const tutti_dtype real = real_of(args);
    const size_t row = tutti__room(args->cols, tutti_dtype_size(real));
    const size_t partials =
        backward ? 2 * (size_t)tutti__split_rows(args->rows, args->cols).count : 0;
    const size_t params = backward ? 1 : 2, rows = backward ? 2 * (size_t)group_of(args) : 2;
    plan->scratch = (params + (size_t)ctx->threads * rows + partials) * row;
    return TUTTI_OK;
}

static tutti_status forward(const tutti__job *job, const void *untyped)
{
    const tutti__norm_args *args = untyped;
    const tutti_dtype real = real_of(args);
    const bool wide = real == TUTTI_F64;
    forward_task task = {.args = args};
    task.row_bytes = tutti__room(args->cols, tutti_dtype_size(real));
    task.thread_bytes = 2 * task.row_bytes;
    char *gamma = job->scratch, *beta = gamma + task.row_bytes;
    task.rows = beta + task.row_bytes;
    if (args->gamma) task.gamma = widened(args, gamma, args->gamma, args->zero_centered);
    if (args->beta) task.beta = widened(args, beta, args->beta, false);
    tutti__parallel(job->ctx, args->rows, 20 + (wide ? 2.0 : 1.0) * (double)args->cols,
                    wide ? norm_forward_rows_f64 : norm_forward_rows_f32, &task);
    return TUTTI_OK;
}

static tutti_status backward(const tutti__job *job, const void *untyped)
{
    const tutti__norm_args *args = untyped;
    const tutti_dtype real = real_of(args);
    const bool wide = real == TUTTI_F64;
    backward_task task = {.args = args};
    task.row_bytes = tutti__room(args->cols, tutti_dtype_size(real));
    task.group = group_of(args);
    task.thread_bytes = 2 * (size_t)task.group * task.row_bytes;
    task.blocks = tutti__split_rows(args->rows, args->cols);
    task.rows = (char *)job->scratch + task.row_bytes;
    task.dgamma = task.rows + (size_t)job->ctx->threads * task.thread_bytes;
    task.dbeta = task.dgamma + (size_t)task.blocks.count * task.row_bytes;
    task.gamma = widened(args, job->scratch, args->gamma, args->zero_centered);
    tutti__parallel(job->ctx, task.blocks.count,
                    (wide ? 3 : 1.5) * (double)task.blocks.rows * (double)args->cols,
                    wide ? norm_backward_blocks_f64 : norm_backward_blocks_f32, &task);
    const int64_t stride = (int64_t)(task.row_bytes / tutti_dtype_size(real));
    if (args->dgamma)
        tutti__merge_blocks(job->ctx, args->dgamma, args->grad_dtype, args->accumulate, task.dgamma,
                            real, task.blocks.count, stride, args->cols);
    if (args->dbeta)
        tutti__merge_blocks(job->ctx, args->dbeta, args->grad_dtype, args->accumulate, task.dbeta,
                            real, task.blocks.count, stride, args->cols);
    return TUTTI_OK;
}

const tutti__op tutti__host_norm = {plan, forward, backward};
