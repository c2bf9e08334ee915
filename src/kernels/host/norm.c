/* LayerNorm and RMSNorm: forward by rows, backward by blocks of rows whose sums for gamma and beta
 * are merged in the order of the blocks.  include/tutti/layernorm.h has the mathematics. */
#include <float.h>
#include <string.h>

#include "kernels/host/host.h"

typedef struct forward_task {
    const tutti__norm_forward_args *args;
    const void *gamma, *beta; /* [cols] REALs, or NULL */
    char *rows;               /* of each thread: two rows of REALs */
    size_t row_bytes, thread_bytes;
} forward_task;

typedef struct backward_task {
    const tutti__norm_backward_args *args;
    const void *gamma; /* [cols] REALs, or NULL */
    char *rows;        /* of each thread: three rows of REALs */
    size_t row_bytes, thread_bytes;
    tutti__row_blocks blocks;
    char *dgamma, *dbeta; /* a row of REALs a block */
} backward_task;

#define REAL float
#define OF(name) name##_f32
#include "kernels/host/norm_rows.h"
#define REAL double
#define OF(name) name##_f64
#include "kernels/host/norm_rows.h"

tutti_status tutti__host_norm_forward(tutti_context *ctx, const tutti__norm_forward_args *args)
{
    const tutti_dtype real = tutti__accumulate_dtype(args->x.dtype, args->param_dtype);
    forward_task task = {.args = args};
    task.row_bytes = tutti__room(args->cols, tutti_dtype_size(real));
    task.thread_bytes = 2 * task.row_bytes;
    char *scratch;
    TUTTI_TRY(tutti__scratch(ctx, 2 * task.row_bytes + (size_t)ctx->threads * task.thread_bytes,
                             (void **)&scratch));
    task.rows = scratch + 2 * task.row_bytes;
    if (real == TUTTI_F64) {
        if (args->gamma)
            task.gamma = widen_param_f64(scratch, args->gamma, args->param_dtype, args->cols,
                                         args->zero_centered);
        if (args->beta)
            task.beta = widen_param_f64(scratch + task.row_bytes, args->beta, args->param_dtype,
                                        args->cols, 0);
        tutti__parallel(ctx, args->rows, 20 + 2.0 * (double)args->cols, norm_forward_rows_f64,
                        &task);
    } else {
        if (args->gamma)
            task.gamma = widen_param_f32(scratch, args->gamma, args->param_dtype, args->cols,
                                         args->zero_centered);
        if (args->beta)
            task.beta = widen_param_f32(scratch + task.row_bytes, args->beta, args->param_dtype,
                                        args->cols, 0);
        tutti__parallel(ctx, args->rows, 20 + 1.0 * (double)args->cols, norm_forward_rows_f32,
                        &task);
    }
    return TUTTI_OK;
}

/* One row for gamma, three rows a thread, then the partial rows of dgamma and dbeta. */
static tutti_status backward_scratch(tutti_context *ctx, const tutti__norm_backward_args *args,
                                     backward_task *task, char **scratch)
{
    const tutti_dtype real = tutti__accumulate_dtype(args->x.dtype, args->param_dtype);
    task->args = args;
    task->row_bytes = tutti__room(args->cols, tutti_dtype_size(real));
    task->thread_bytes = 3 * task->row_bytes;
    task->blocks = tutti__split_rows(args->rows, args->cols);
    const size_t partials = (size_t)task->blocks.count * task->row_bytes;
    const size_t rows_at = task->row_bytes;
    const size_t partials_at = rows_at + (size_t)ctx->threads * task->thread_bytes;
    TUTTI_TRY(tutti__scratch(ctx, partials_at + 2 * partials, (void **)scratch));
    task->rows = *scratch + rows_at;
    task->dgamma = *scratch + partials_at;
    task->dbeta = *scratch + partials_at + partials;
    return TUTTI_OK;
}

tutti_status tutti__host_norm_plan(tutti_context *ctx, const tutti__norm_backward_args *args)
{
    backward_task task;
    char *scratch;
    return backward_scratch(ctx, args, &task, &scratch);
}

tutti_status tutti__host_norm_backward(tutti_context *ctx, const tutti__norm_backward_args *args)
{
    const tutti_dtype real = tutti__accumulate_dtype(args->x.dtype, args->param_dtype);
    backward_task task = {0};
    char *scratch;
    TUTTI_TRY(backward_scratch(ctx, args, &task, &scratch));
    const double elements = (double)task.blocks.rows * (double)args->cols;
    if (real == TUTTI_F64) {
        if (args->gamma)
            task.gamma = widen_param_f64(scratch, args->gamma, args->param_dtype, args->cols,
                                         args->zero_centered);
        tutti__parallel(ctx, task.blocks.count, 3 * elements, norm_backward_blocks_f64, &task);
    } else {
        if (args->gamma)
            task.gamma = widen_param_f32(scratch, args->gamma, args->param_dtype, args->cols,
                                         args->zero_centered);
        tutti__parallel(ctx, task.blocks.count, 1.5 * elements, norm_backward_blocks_f32, &task);
    }
    const int64_t stride = (int64_t)(task.row_bytes / tutti_dtype_size(real));
    if (args->dgamma)
        tutti__merge_blocks(ctx, args->dgamma, args->grad_dtype, args->accumulate, task.dgamma,
                            real, task.blocks.count, stride, args->cols);
    if (args->dbeta)
        tutti__merge_blocks(ctx, args->dbeta, args->grad_dtype, args->accumulate, task.dbeta, real,
                            task.blocks.count, stride, args->cols);
    return TUTTI_OK;
}
