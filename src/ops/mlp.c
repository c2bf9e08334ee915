/* An MLP of two calls of FusedLinear.  Backward keeps the gradient of h in scratch, with recompute
 * also h and z, in front of what each call needs. */
#include "ops/mlp.h"

#include <stdlib.h>

#include "core/context.h"

static void drop(void *data)
{
    tutti__mlp_plans *p = data;
    for (int i = 0; i < TUTTI__MLP_CALLS; i++)
        if (p->of[i].drop) p->of[i].drop(p->of[i].data);
    free(p);
}

static size_t up_to(size_t size, size_t step)
{
    return (size + step - 1) / step * step;
}

/* A matrix of h's shape at *at in the scratch, which moves on; its rows begin on 16 bytes, or are
 * contiguous. */
static tutti__matrix place(const tutti__linear_shape *shape, void *scratch, size_t *at,
                           bool contiguous)
{
    const size_t size = tutti_dtype_size(shape->dtype);
    const size_t row = up_to((size_t)shape->out * size, contiguous ? size : 16);
    const tutti__matrix placed = {(char *)scratch + *at, shape->dtype, (int64_t)(row / size)};
    *at += up_to((size_t)shape->rows * row, 256);
    return placed;
}

/* Backward's args with what lies in the scratch, which leaves the rest of it, from *at on. */
static tutti__mlp_args with_scratch(const tutti__mlp_args *args, void *scratch, size_t *at)
{
    tutti__mlp_args with = *args;
    const tutti__linear_shape *shape = &args->up.shape;
    *at = 0;
    with.up.dy = with.down.dx = place(shape, scratch, at, false);
    if (!args->recompute) return with;
    with.up.y = with.down.x = place(shape, scratch, at, false);
    if (tutti__activation_wants_z(shape->activation.kind))
        with.up.saved = place(shape, scratch, at, true).data;
    return with;
}

static tutti_status plan_call(tutti_context *ctx, const tutti__linear_args *args, bool backward,
                              tutti__plan *plan, size_t *most)
{
    TUTTI_TRY(ctx->backend->op.linear->plan(ctx, args, backward, plan));
    if (plan->scratch > *most) *most = plan->scratch;
    return TUTTI_OK;
}

tutti_status tutti__mlp_plan(tutti_context *ctx, const void *untyped, bool backward,
                             tutti__plan *plan)
{
    tutti__mlp_plans *p = calloc(1, sizeof *p);
    if (!p) return tutti__fail(TUTTI_ERR_MEMORY, "mlp: no memory for a plan");
    plan->data = p;
    plan->drop = drop;
    tutti__mlp_args args = *(const tutti__mlp_args *)untyped;
    size_t at = 0, most = 0;
    /* addresses in scratch count only by their alignment */
    if (backward) args = with_scratch(&args, (void *)(uintptr_t)256, &at);
    if (backward && args.recompute)
        TUTTI_TRY(plan_call(ctx, &args.up, false, &p->of[TUTTI__MLP_AGAIN], &most));
    TUTTI_TRY(plan_call(ctx, &args.up, backward, &p->of[TUTTI__MLP_UP], &most));
    TUTTI_TRY(plan_call(ctx, &args.down, backward, &p->of[TUTTI__MLP_DOWN], &most));
    plan->scratch = at + most;
    return TUTTI_OK;
}

/* The part of a job that is one of its calls. */
static tutti__job part_of(const tutti__job *job, int call, size_t at)
{
    const tutti__mlp_plans *p = job->plan->data;
    return (tutti__job){
        .ctx = job->ctx, .plan = &p->of[call], .scratch = (char *)job->scratch + at};
}

tutti_status tutti__mlp_forward(const tutti__job *job, const void *untyped)
{
    const tutti__op *linear = job->ctx->backend->op.linear;
    const tutti__mlp_args *args = untyped;
    const tutti__job up = part_of(job, TUTTI__MLP_UP, 0), down = part_of(job, TUTTI__MLP_DOWN, 0);
    TUTTI_TRY(linear->forward(&up, &args->up));
    return linear->forward(&down, &args->down);
}

tutti_status tutti__mlp_backward(const tutti__job *job, const void *untyped)
{
    const tutti__op *linear = job->ctx->backend->op.linear;
    size_t at;
    tutti__mlp_args args = with_scratch(untyped, job->scratch, &at);
    const tutti__job again = part_of(job, TUTTI__MLP_AGAIN, at);
    const tutti__job down = part_of(job, TUTTI__MLP_DOWN, at);
    tutti__job up = part_of(job, TUTTI__MLP_UP, at);
    up.stage = job->stage;
    const tutti__mlp_plans *p = job->plan->data;
    const bool begins = job->stage != TUTTI__STAGE_REST;
    const bool forms = p->forms_dz && p->forms_dz(&args);
    if (begins && args.recompute) TUTTI_TRY(linear->forward(&again, &args.up));
    tutti__mlp_args whole;
    if (forms) { /* beside which down's other gradients come; up has no more than products left */
        args.up.dbias_partial = (float *)((char *)job->scratch + p->partial);
        whole = args;
        args.down.form_dx = p->form_dz;
        args.down.form_dx_args = &whole;
        args.down.dx.data = NULL;
        args.up.shape.activation.kind = TUTTI_ACT_NONE;
    }
    if (begins) TUTTI_TRY(linear->backward(&down, &args.down));
    return linear->backward(&up, &args.up);
}
