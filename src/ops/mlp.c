/* An MLP of two calls of FusedLinear.  Backward keeps the gradient of h in scratch, in front of
 * what either of the two needs. */
#include "ops/mlp.h"

#include <stdlib.h>

#include "core/context.h"

typedef struct plans {
    tutti__plan up, down;
} plans;

static void drop_one(tutti__plan *plan)
{
    if (plan->drop) plan->drop(plan->data);
}

static void drop(void *data)
{
    plans *both = data;
    drop_one(&both->up);
    drop_one(&both->down);
    free(both);
}

static size_t up_to(size_t size, size_t step)
{
    return (size + step - 1) / step * step;
}

/* Puts the gradient of h at the beginning of the scratch; its rows begin on 16-byte boundaries. */
static tutti__mlp_args with_gradient(const tutti__mlp_args *args, void *scratch)
{
    const tutti__linear_shape *shape = &args->up.shape;
    const size_t size = tutti_dtype_size(shape->dtype);
    tutti__mlp_args with = *args;
    with.up.dy = (tutti__matrix){scratch, shape->dtype,
                                 (int64_t)(up_to((size_t)shape->out * size, 16) / size)};
    with.down.dx = with.up.dy;
    return with;
}

static size_t gradient_bytes(const tutti__mlp_args *args)
{
    const tutti__linear_shape *shape = &args->up.shape;
    const size_t row = up_to((size_t)shape->out * tutti_dtype_size(shape->dtype), 16);
    return up_to((size_t)shape->rows * row, 256);
}

tutti_status tutti__mlp_plan(tutti_context *ctx, const void *untyped, bool backward,
                             tutti__plan *plan)
{
    const tutti__op *linear = ctx->backend->op.linear;
    plans *both = calloc(1, sizeof *both);
    if (!both) return tutti__fail(TUTTI_ERR_MEMORY, "mlp: no memory for a plan");
    plan->data = both;
    plan->drop = drop;
    /* the address in scratch counts only by its alignment */
    const tutti__mlp_args args = with_gradient(untyped, (void *)(uintptr_t)256);
    TUTTI_TRY(linear->plan(ctx, &args.up, backward, &both->up));
    TUTTI_TRY(linear->plan(ctx, &args.down, backward, &both->down));
    plan->scratch = both->up.scratch > both->down.scratch ? both->up.scratch : both->down.scratch;
    if (backward) plan->scratch += gradient_bytes(&args);
    return TUTTI_OK;
}

static tutti__job part_of(const tutti__job *job, const tutti__plan *plan, size_t at)
{
    return (tutti__job){.ctx = job->ctx, .plan = plan, .scratch = (char *)job->scratch + at};
}

tutti_status tutti__mlp_forward(const tutti__job *job, const void *untyped)
{
    const tutti__op *linear = job->ctx->backend->op.linear;
    const tutti__mlp_args *args = untyped;
    const plans *both = job->plan->data;
    const tutti__job up = part_of(job, &both->up, 0), down = part_of(job, &both->down, 0);
    TUTTI_TRY(linear->forward(&up, &args->up));
    return linear->forward(&down, &args->down);
}

tutti_status tutti__mlp_backward(const tutti__job *job, const void *untyped)
{
    const tutti__op *linear = job->ctx->backend->op.linear;
    const tutti__mlp_args args = with_gradient(untyped, job->scratch);
    const plans *both = job->plan->data;
    const size_t at = gradient_bytes(&args);
    const tutti__job up = part_of(job, &both->up, at), down = part_of(job, &both->down, at);
    TUTTI_TRY(linear->backward(&down, &args.down));
    return linear->backward(&up, &args.up);
}
