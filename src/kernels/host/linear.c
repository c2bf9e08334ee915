/* FusedLinear: products by tiles, with bias and activation applied to a tile while it is in cache;
 * backward makes dz = dy * act' once and multiplies twice.  include/tutti/linear.h has the
 * mathematics. */
#include <string.h>

#include "kernels/host/activation.h"
#include "kernels/host/gemm.h"
#include "ops/linear.h"

/* Rows of db that are added in the type of the arithmetic. */
#define RUN 64

typedef struct backward_task {
    const tutti__linear_args *args;
    void *dz;   /* [rows, out] REALs; NULL: dy is dz */
    char *rows; /* of each thread: three rows of REALs */
    size_t row_bytes, thread_bytes, partial_bytes;
    tutti__row_blocks blocks;
    char *partials; /* of db: a row of doubles a block */
} backward_task;

#define REAL float
#define OF(name) name##_f32
#include "kernels/host/linear_rows.h"
#define REAL double
#define OF(name) name##_f64
#include "kernels/host/linear_rows.h"

/* Where a backward's scratch begins and ends: dz, partial rows of db, then what the passes use one
 * after another. */
static size_t backward_layout(const tutti_context *ctx, const tutti__linear_shape *shape,
                              backward_task *task, size_t *partials_at, size_t *work_at)
{
    const tutti_dtype real = tutti__accumulate_dtype(shape->dtype, shape->dtype);
    const size_t size = tutti_dtype_size(real);
    const int64_t rows = shape->rows, in = shape->in, out = shape->out;
    task->row_bytes = tutti__room(out, size);
    task->thread_bytes = 3 * task->row_bytes;
    task->partial_bytes = tutti__room(out, sizeof(double));
    task->blocks = tutti__split_rows(rows, out);
    *partials_at = shape->activation.kind == TUTTI_ACT_NONE ? 0 : tutti__room(rows * out, size);
    *work_at = *partials_at + (size_t)task->blocks.count * task->partial_bytes;
    const size_t work[] = {(size_t)ctx->threads * task->thread_bytes,
                           tutti__product_scratch(ctx, rows, in, out, real),
                           tutti__product_scratch(ctx, out, in, rows, real)};
    size_t most = 0;
    for (int i = 0; i < 3; i++) most = work[i] > most ? work[i] : most;
    return *work_at + most;
}

static tutti_status plan(tutti_context *ctx, const void *untyped, bool backward, tutti__plan *plan)
{
    const tutti__linear_shape *shape = &((const tutti__linear_args *)untyped)->shape;
    const tutti_dtype real = tutti__accumulate_dtype(shape->dtype, shape->dtype);
    backward_task task;
    size_t partials_at, work_at;
    plan->scratch = backward
                        ? backward_layout(ctx, shape, &task, &partials_at, &work_at)
                        : tutti__product_scratch(ctx, shape->rows, shape->out, shape->in, real);
    return TUTTI_OK;
}

static tutti__matrix weight_of(const tutti__linear_args *args)
{
    return (tutti__matrix){(void *)args->weight, args->shape.dtype, args->shape.in};
}

static tutti_status forward(const tutti__job *job, const void *untyped)
{
    const tutti__linear_args *args = untyped;
    const tutti__linear_shape *shape = &args->shape;
    const tutti_dtype real = tutti__accumulate_dtype(shape->dtype, shape->dtype);
    const tutti__product product = {
        .m = shape->rows,
        .n = shape->out,
        .k = shape->in,
        .a = {args->x, false},
        .b = {weight_of(args), false},
        .real = real,
        .finish = real == TUTTI_F64 ? finish_forward_f64 : finish_forward_f32,
        .data = (void *)args,
    };
    tutti__product_run(job->ctx, &product, job->scratch);
    return TUTTI_OK;
}

static tutti_status backward(const tutti__job *job, const void *untyped)
{
    tutti_context *ctx = job->ctx;
    const tutti__linear_args *args = untyped;
    const tutti__linear_shape *shape = &args->shape;
    const tutti_dtype real = tutti__accumulate_dtype(shape->dtype, shape->dtype);
    const bool wide = real == TUTTI_F64;
    backward_task task = {.args = args};
    size_t partials_at, work_at;
    backward_layout(ctx, shape, &task, &partials_at, &work_at);
    char *scratch = job->scratch;
    task.partials = scratch + partials_at;
    task.rows = scratch + work_at;
    tutti__matrix dz = args->dy;
    if (shape->activation.kind != TUTTI_ACT_NONE) {
        task.dz = scratch;
        dz = (tutti__matrix){task.dz, real, shape->out};
    }
    if (task.dz || args->dbias)
        tutti__parallel(ctx, task.blocks.count,
                        (wide ? 6.0 : 1.5) * (double)task.blocks.rows * (double)shape->out,
                        wide ? backward_blocks_f64 : backward_blocks_f32, &task);
    if (args->dbias)
        tutti__merge_blocks(ctx, args->dbias, real, args->accumulate, task.partials, TUTTI_F64,
                            task.blocks.count, (int64_t)(task.partial_bytes / sizeof(double)),
                            shape->out);
    if (args->dx.data) {
        const tutti__product product = {
            .m = shape->rows,
            .n = shape->in,
            .k = shape->out,
            .a = {dz, false},
            .b = {weight_of(args), true},
            .real = real,
            .finish = wide ? finish_dx_f64 : finish_dx_f32,
            .data = (void *)args,
        };
        tutti__product_run(ctx, &product, task.rows);
    }
    if (args->dweight) {
        const tutti__product product = {
            .m = shape->out,
            .n = shape->in,
            .k = shape->rows,
            .a = {dz, true},
            .b = {args->x, true},
            .real = real,
            .finish = wide ? finish_dweight_f64 : finish_dweight_f32,
            .data = (void *)args,
        };
        tutti__product_run(ctx, &product, task.rows);
    }
    return TUTTI_OK;
}

const tutti__op tutti__host_linear = {plan, forward, backward};
