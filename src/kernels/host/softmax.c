/* Softmax and log-softmax, row by row; include/tutti/softmax.h has the mathematics. */
#include "kernels/host/host.h"

typedef struct softmax_task {
    const tutti__softmax_args *args;
    char *rows; /* of each thread: two rows of REALs */
    size_t row_bytes, thread_bytes;
} softmax_task;

/* Columns that a row sees. */
static inline int64_t visible(const tutti__softmax_args *args, int64_t row)
{
    if (args->causal_period <= 0) return args->cols;
    int64_t place = (args->first_row + row) % args->causal_period;
    return place + 1 < args->cols ? place + 1 : args->cols;
}

#define REAL float
#define OF(name) name##_f32
#include "kernels/host/softmax_rows.h"
#define REAL double
#define OF(name) name##_f64
#include "kernels/host/softmax_rows.h"

static tutti_status run(tutti_context *ctx, const tutti__softmax_args *args, tutti_dtype dtype,
                        tutti__work in_f32, tutti__work in_f64)
{
    const bool wide = dtype == TUTTI_F64;
    softmax_task task = {.args = args};
    task.row_bytes = tutti__room(args->cols, wide ? sizeof(double) : sizeof(float));
    task.thread_bytes = 2 * task.row_bytes;
    TUTTI_TRY(tutti__scratch(ctx, (size_t)ctx->threads * task.thread_bytes, (void **)&task.rows));
    const double cost = 20 + (wide ? 6.0 : 1.5) * (double)args->cols;
    tutti__parallel(ctx, args->rows, cost, wide ? in_f64 : in_f32, &task);
    return TUTTI_OK;
}

tutti_status tutti__host_softmax_forward(tutti_context *ctx, const tutti__softmax_args *args)
{
    return run(ctx, args, args->x.dtype, softmax_forward_rows_f32, softmax_forward_rows_f64);
}

tutti_status tutti__host_softmax_backward(tutti_context *ctx, const tutti__softmax_args *args)
{
    return run(ctx, args, args->y.dtype, softmax_backward_rows_f32, softmax_backward_rows_f64);
}
