/* FusedLinear: forward is a product with an epilogue; backward computes dz = dy * act' once and
 * multiplies twice.  include/tutti/linear.h has the mathematics. */
#include <string.h>

#include "kernels/host/activation.h"
#include "kernels/host/gemm.h"
#include "ops/linear.h"

/* Rows of db that are added in the type of the arithmetic. */
#define RUN 64

typedef struct backward_task {
    const tutti__linear_args *args;
    const void *z; /* NULL: act' is computed from y */
    void *dz;      /* [rows, out] REALs; NULL: dy is dz */
    char *rows;    /* per thread: three rows of REALs */
    size_t row_bytes, thread_bytes, partial_bytes;
    int64_t leaf_rows;
    tutti__row_blocks blocks; /* of a leaf */
    char *partials;           /* of db: a row of doubles per block */
} backward_task;

#define BODY "kernels/host/linear_rows.h"
#include "kernels/host/each_real.h"

/* Where things lie in backward's scratch: dz, partial rows of db, z if it is computed again, then
 * memory that the passes share. */
typedef struct layout {
    size_t partials, z, work;
} layout;

static layout lay_out(tutti_dtype real, backward_task *task)
{
    const tutti__linear_shape *shape = &task->args->shape;
    const int leaves = task->args->leaves;
    const size_t size = tutti_dtype_size(real);
    task->row_bytes = tutti__room(shape->out, size);
    task->thread_bytes = 3 * task->row_bytes;
    task->partial_bytes = tutti__room(shape->out, sizeof(double));
    task->leaf_rows = shape->rows / leaves;
    task->blocks = tutti__split_rows(task->leaf_rows, shape->out);
    const int64_t elements = shape->rows * shape->out;
    layout to = {shape->activation.kind == TUTTI_ACT_NONE ? 0 : tutti__room(elements, size), 0, 0};
    to.work = to.z = to.partials + (size_t)(leaves * task->blocks.count) * task->partial_bytes;
    if (tutti__linear_recomputes(shape))
        to.work += tutti__room(elements, tutti_dtype_size(shape->dtype));
    return to;
}

static tutti_status plan(tutti_context *ctx, const void *untyped, bool backward, tutti__plan *plan)
{
    const tutti__linear_args *args = untyped;
    const tutti__linear_shape *shape = &args->shape;
    const tutti_dtype real = tutti__accumulate_dtype(shape->dtype, shape->dtype);
    const tutti__matrix dz = {NULL, real, shape->out};
    const tutti__gemm gemms[] = {tutti__linear_y(args), tutti__linear_dx(args, &dz),
                                 tutti__linear_dweight(args, &dz)};
    const bool with_y = !backward || tutti__linear_recomputes(shape);
    backward_task task = {.args = args};
    size_t most = 0;
    if (backward) {
        plan->scratch = lay_out(real, &task).work;
        most = (size_t)ctx->threads * task.thread_bytes;
    }
    for (int i = !with_y; i < (backward ? 3 : 1); i++) {
        const size_t bytes = tutti__host_gemm_scratch(ctx, &gemms[i]);
        most = bytes > most ? bytes : most;
    }
    plan->scratch += most;
    return TUTTI_OK;
}

static tutti_status forward(const tutti__job *job, const void *args)
{
    const tutti__gemm y = tutti__linear_y(args);
    tutti__host_gemm(job->ctx, &y, job->scratch);
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
    const layout at = lay_out(real, &task);
    char *scratch = job->scratch;
    const bool begins = job->stage != TUTTI__STAGE_REST, ends = job->stage != TUTTI__STAGE_FIRST;
    task.partials = scratch + at.partials;
    task.rows = scratch + at.work;
    task.z = args->saved;
    if (begins && tutti__linear_recomputes(shape)) {
        const tutti__linear_args again = tutti__linear_again(args, scratch + at.z);
        const tutti__gemm z = tutti__linear_y(&again);
        tutti__host_gemm(ctx, &z, task.rows);
        task.z = scratch + at.z;
    }
    tutti__matrix dz = args->dy;
    if (shape->activation.kind != TUTTI_ACT_NONE) {
        task.dz = scratch;
        dz = (tutti__matrix){task.dz, real, shape->out};
    }
    if (begins && (task.dz || args->dbias))
        tutti__parallel(ctx, args->leaves * task.blocks.count,
                        (wide ? 6.0 : 1.5) * (double)task.blocks.rows * (double)shape->out,
                        wide ? backward_blocks_f64 : backward_blocks_f32, &task);
    for (int leaf = 0; begins && args->dbias && leaf < args->leaves; leaf++)
        tutti__merge_blocks(
            ctx, tutti__at(args->dbias, real, leaf * args->dbias_apart), real, args->accumulate,
            task.partials + (size_t)(leaf * task.blocks.count) * task.partial_bytes, TUTTI_F64,
            task.blocks.count, (int64_t)(task.partial_bytes / sizeof(double)), shape->out);
    if (begins && args->dweight) {
        const tutti__gemm dweight = tutti__linear_dweight(args, &dz);
        tutti__host_gemm(ctx, &dweight, task.rows);
    }
    if (ends && args->dx.data) {
        const tutti__gemm dx = tutti__linear_dx(args, &dz);
        tutti__host_gemm(ctx, &dx, task.rows);
    }
    return TUTTI_OK;
}

const tutti__op tutti__host_linear = {plan, forward, backward};
