/* Rotary positions, row by row; include/tutti/rope.h has the mathematics.  A row's sines and
 * cosines are computed once for all heads. */
#include "ops/rope.h"
#include "kernels/host/host.h"

typedef struct rope_task {
    const tutti__rope_args *args;
    const tutti__matrix *from, *to;
    bool backward;
    const tutti__rope_frequency *frequencies;
    char *rows; /* per thread: a row, the cosines and the sines of a head, in REALs */
    size_t row_bytes, turn_bytes;
} rope_task;

#define BODY "kernels/host/rope_rows.h"
#include "kernels/host/each_real.h"

static rope_task task_of(const tutti__rope_args *args, bool backward)
{
    const size_t size = args->dtype == TUTTI_F64 ? sizeof(double) : sizeof(float);
    return (rope_task){.args = args,
                       .from = backward ? &args->dy : &args->x,
                       .to = backward ? &args->dx : &args->y,
                       .backward = backward,
                       .row_bytes = tutti__room(args->cols, size),
                       .turn_bytes = tutti__room(args->pairs, size)};
}

static tutti_status plan(tutti_context *ctx, const void *untyped, bool backward, tutti__plan *plan)
{
    const tutti__rope_args *args = untyped;
    const rope_task task = task_of(args, backward);
    plan->scratch = (size_t)ctx->threads * (task.row_bytes + 2 * task.turn_bytes);
    plan->data = tutti__rope_frequencies(args->base, args->pairs);
    plan->drop = tutti__rope_drop;
    return plan->data ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "rope: no memory");
}

static void report_bad_position(tutti_context *ctx, const tutti__rope_args *args)
{
    for (int64_t row = 0; args->positions && row < args->rows; row++)
        if (tutti__rope_position(args, row) < 0) {
            tutti__host_find(ctx, args->finding, args->positions[row], row, args->max_positions);
            return;
        }
}

static tutti_status run(const tutti__job *job, const tutti__rope_args *args, bool backward)
{
    rope_task task = task_of(args, backward);
    task.frequencies = job->plan->data;
    task.rows = job->scratch;
    report_bad_position(job->ctx, args);
    tutti__parallel(job->ctx, args->rows, 20 + 6 * (double)args->pairs + (double)args->cols,
                    args->dtype == TUTTI_F64 ? rope_rows_f64 : rope_rows_f32, &task);
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

const tutti__op tutti__host_rope = {plan, forward, backward};
