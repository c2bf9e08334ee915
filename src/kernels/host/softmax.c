/* Softmax and log-softmax, row by row; include/tutti/softmax.h has the mathematics. */
#include <stdatomic.h>

#include "kernels/host/host.h"
#include "ops/softmax.h"

typedef struct softmax_task {
    const tutti__softmax_args *args;
    char *rows; /* per thread: two rows of REALs */
    size_t row_bytes, thread_bytes;
    _Atomic int64_t bad_row; /* the first with a length out of range; rows if none */
} softmax_task;

/* The number of visible columns of a row; -1 if its length is out of range. */
static inline int64_t visible(softmax_task *task, int64_t row)
{
    const tutti__softmax_args *args = task->args;
    int64_t seen = args->cols;
    if (args->lengths) {
        seen = args->lengths[row];
        if (seen < 0 || seen > args->cols) {
            tutti__note_first(&task->bad_row, row);
            return -1;
        }
    }
    if (args->causal_period <= 0) return seen;
    const int64_t place = (args->first_row + row) % args->causal_period;
    return place + 1 < seen ? place + 1 : seen;
}

#define BODY "kernels/host/softmax_rows.h"
#include "kernels/host/each_real.h"

static size_t row_bytes(const tutti__softmax_args *args)
{
    return tutti__room(args->cols, args->dtype == TUTTI_F64 ? sizeof(double) : sizeof(float));
}

static tutti_status plan(tutti_context *ctx, const void *args, bool backward, tutti__plan *plan)
{
    (void)backward;
    plan->scratch = (size_t)ctx->threads * 2 * row_bytes(args);
    return TUTTI_OK;
}

static tutti_status run(const tutti__job *job, const tutti__softmax_args *args, tutti__work in_f32,
                        tutti__work in_f64)
{
    const bool wide = args->dtype == TUTTI_F64;
    softmax_task task = {
        .args = args, .rows = job->scratch, .row_bytes = row_bytes(args), .bad_row = args->rows};
    task.thread_bytes = 2 * task.row_bytes;
    const double cost = 20 + (wide ? 6.0 : 1.5) * (double)args->cols;
    tutti__parallel(job->ctx, args->rows, cost, wide ? in_f64 : in_f32, &task);
    if (task.bad_row < args->rows)
        tutti__host_find(job->ctx, args->finding, args->lengths[task.bad_row], task.bad_row,
                         args->cols);
    return TUTTI_OK;
}

static tutti_status forward(const tutti__job *job, const void *args)
{
    return run(job, args, softmax_forward_rows_f32, softmax_forward_rows_f64);
}

static tutti_status backward(const tutti__job *job, const void *args)
{
    return run(job, args, softmax_backward_rows_f32, softmax_backward_rows_f64);
}

const tutti__op tutti__host_softmax = {plan, forward, backward};
