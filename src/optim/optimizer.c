/* A step of an optimizer: sums of squares, over the ranks of a sharded store, then the update of
 * this rank's slices, which all ranks get. */
#include "optim/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

tutti_status tutti__optimizer_check(double weight_decay, double clip_norm, const char *who)
{
    TUTTI_REQUIRE(isfinite(weight_decay) && weight_decay >= 0,
                  "%s: weight_decay is %g, want finite and >= 0", who, weight_decay);
    TUTTI_REQUIRE(isfinite(clip_norm) && clip_norm >= 0,
                  "%s: clip_norm is %g, want finite and >= 0", who, clip_norm);
    return TUTTI_OK;
}

/* Life */

static tutti_status alloc_zero(tutti_context *ctx, size_t bytes, void **data)
{
    TUTTI_TRY(tutti_alloc(ctx, bytes, data));
    return tutti_zero(ctx, *data, bytes);
}

/* Makes the tables by which a kernel finds an element's parameter. */
static tutti_status make_tables(tutti__optimizer *own, tutti_context *ctx, const char *who)
{
    const tutti_params *params = own->params;
    size_t blocks = (size_t)(params->trained / TUTTI_PARAM_ALIGN);
    size_t slots = (size_t)params->trained_slots;
    int32_t *block_param = malloc((blocks + 1) * sizeof *block_param);
    tutti__param_factors *factors = malloc((slots + 1) * sizeof *factors);
    tutti_status status = TUTTI_OK;
    if (!block_param || !factors) status = tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    for (size_t s = 0; status == TUTTI_OK && s < slots; s++) {
        const tutti__slot *slot = &params->slots[s];
        factors[s] = (tutti__param_factors){
            .weight_decay = slot->param->weight_decay,
            .lr_scale = slot->param->lr_scale,
            .working = slot->param->value.dtype != params->desc.master_dtype,
        };
        int64_t end = s + 1 < slots ? params->slots[s + 1].offset : params->trained;
        for (int64_t b = slot->offset / TUTTI_PARAM_ALIGN; b < end / TUTTI_PARAM_ALIGN; b++)
            block_param[b] = (int32_t)s;
    }
    if (status == TUTTI_OK)
        status =
            tutti_alloc(ctx, (blocks + 1) * sizeof *block_param, (void **)&own->args.block_param);
    if (status == TUTTI_OK)
        status = tutti_alloc(ctx, (slots + 1) * sizeof *factors, (void **)&own->args.factors);
    if (status == TUTTI_OK)
        status = tutti_copy(ctx, (void *)own->args.block_param, block_param,
                            blocks * sizeof *block_param);
    if (status == TUTTI_OK)
        status = tutti_copy(ctx, (void *)own->args.factors, factors, slots * sizeof *factors);
    if (status == TUTTI_OK) status = tutti_context_synchronize(ctx);
    free(block_param);
    free(factors);
    return status;
}

static tutti_status fill(tutti__optimizer *own, tutti_context *ctx, const char *who)
{
    const tutti_params *params = own->params;
    tutti__update_args *args = &own->args;
    args->of = (tutti__squares_args){.count = params->trained,
                                     .own = params->own,
                                     .own_count = params->own_count,
                                     .dtype = params->desc.master_dtype,
                                     .grad = params->grad};
    args->working = params->working;
    args->working_dtype = params->working_dtype;
    args->rounded = params->rounded;
    const size_t bytes =
        ((size_t)params->kept + TUTTI_PARAM_ALIGN) * tutti_dtype_size(args->of.dtype);
    for (int i = 0; i < own->state_count; i++) TUTTI_TRY(alloc_zero(ctx, bytes, &args->state[i]));
    TUTTI_TRY(alloc_zero(ctx, sizeof *args->progress, (void **)&args->progress));
    TUTTI_TRY(alloc_zero(ctx, (size_t)(tutti__norm_runs(args->of.count) + 1) * sizeof(double),
                         (void **)&args->of.squares));
    TUTTI_TRY(make_tables(own, ctx, who));
    return tutti__op_plan(
        ctx, &(tutti__plan_key){.op = own->backend->op.update, .rows = args->of.count}, args);
}

/* They may have changed since the parameters were added. */
static tutti_status check_factors(const tutti_params *params, const char *who)
{
    char place[TUTTI_NAME_MAX + 16];
    for (int s = 0; s < params->trained_slots; s++) {
        const tutti_param *param = params->slots[s].param;
        snprintf(place, sizeof place, "%s: %s: ", who, param->name);
        TUTTI_TRY(tutti__factors_check(param, place));
    }
    return TUTTI_OK;
}

tutti_status tutti__optimizer_open(tutti__optimizer *own, tutti_context *ctx, tutti_params *params,
                                   const char *who)
{
    if (!ctx->backend->op.update->forward)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "%s is not supported by the %s backend", who,
                           ctx->backend->name);
    TUTTI_TRY(check_factors(params, who));
    TUTTI_TRY(
        tutti_context_synchronize(ctx)); /* fails during capture, before anything is enqueued */
    own->params = params;
    tutti__hold(&params->holders);
    own->backend = ctx->backend;
    own->device = ctx->device;
    return fill(own, ctx, who);
}

void tutti__optimizer_close(tutti__optimizer *own)
{
    const tutti__update_args *args = &own->args;
    void *buffers[] = {args->state[0], args->state[1],        (void *)args->block_param,
                       args->progress, (void *)args->factors, args->of.squares};
    if (!own->params) return;
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        if (buffers[i]) own->backend->run.free(own->device, buffers[i]);
    /* after those, which wait for the device */
    if (own->result) own->backend->run.host_free(own->device, own->result);
    if (own->sent) own->backend->run.event_destroy(own->device, own->sent);
    tutti__params_release(own->params);
}

/* A step */

/* With partly summed gradients the replicas would diverge silently.  Where the communicator is
 * dead, no finish could mend that: then the reason is told. */
static tutti_status check_summed(const tutti_params *params, const char *who)
{
    if (!params->exchanges || params->summed) return TUTTI_OK;
    for (const tutti__store_exchange *e = params->exchanges; e; e = e->next) {
        const char *why = e->dead(e);
        if (why)
            return tutti__fail(TUTTI_ERR_COMM,
                               "%s: the gradients are not summed over the ranks, and the "
                               "exchange's communicator is dead: %s",
                               who, why);
    }
    return tutti__fail(TUTTI_ERR_STATE,
                       "%s: the gradients are not summed over the ranks: call "
                       "tutti_grad_sync_finish after the last ready",
                       who);
}

static tutti_status find_squares(tutti__optimizer *own, tutti_context *ctx, tutti__shard_link *link)
{
    const tutti__squares_args *args = &own->args.of;
    const int64_t runs = tutti__norm_runs(args->count);
    const tutti__plan_key key = {.op = own->backend->op.squares, .rows = args->count};
    const double *found = link && link->squares ? link->squares(link) : NULL;
    const size_t bytes = (size_t)runs * sizeof *args->squares;
    if (link && !found) TUTTI_TRY(tutti_zero(ctx, args->squares, bytes));
    if (!found) TUTTI_TRY(tutti__op_run(ctx, &key, args));
    return link ? link->sum(link, ctx, found ? found : args->squares, args->squares, runs)
                : TUTTI_OK;
}

/* After an update. */
static tutti_status send_result(tutti__optimizer *own, tutti_context *ctx)
{
    const tutti__runtime *run = &own->backend->run;
    bool capturing;
    if (own->captured || !run->is_pageable) return TUTTI_OK;
    TUTTI_TRY(run->stream_capturing(ctx->device, ctx->stream, &capturing));
    own->captured = capturing;
    if (capturing || own->asked != ctx) return TUTTI_OK;
    TUTTI_TRY(
        run->copy(ctx->device, ctx->stream, own->result, own->args.progress, sizeof *own->result));
    TUTTI_TRY(run->event_record(ctx->device, own->sent, ctx->stream));
    own->is_sent = true;
    return TUTTI_OK;
}

tutti_status tutti__optimizer_update(tutti__optimizer *own, tutti_context *ctx,
                                     const tutti_step_block *step, const char *who)
{
    tutti_params *params = own->params;
    tutti__shard_link *link;
    TUTTI_TRY(tutti__params_ready(params, ctx, who));
    TUTTI_REQUIRE(step, "%s: step is NULL", who);
    TUTTI_REQUIRE(step->backend == own->backend && step->device == own->device,
                  "%s: step is on another device than the store", who);
    TUTTI_TRY(tutti__step_block_check(step, ctx, who));
    TUTTI_TRY(tutti__params_link(params, &link, who));
    TUTTI_TRY(check_summed(params, who));
    TUTTI_TRY(tutti__context_advance(ctx));
    own->is_sent = false;
    /* before the sum, behind which other ranks write the next ones */
    TUTTI_TRY(tutti__values_await(params, ctx, TUTTI__VALUES_ALL));
    TUTTI_TRY(find_squares(own, ctx, link));
    tutti__update_args args = own->args;
    args.step = step->values;
    args.replicas = link ? link->replicas : NULL;
    if (link) TUTTI_TRY(link->begin(link, ctx, true));
    const tutti__plan_key key = {.op = own->backend->op.update, .rows = args.of.count};
    TUTTI_TRY(tutti__op_run(ctx, &key, &args));
    if (link) TUTTI_TRY(link->gather(link, ctx, true));
    params->summed = false;
    return send_result(own, ctx);
}

/* Has later updates on this context send their results, if there is memory for that. */
static void ask(tutti__optimizer *own, const tutti_context *ctx)
{
    const tutti__runtime *run = &own->backend->run;
    if (own->captured || !run->is_pageable) return;
    if (!own->result &&
        run->host_alloc(own->device, sizeof *own->result, (void **)&own->result) != TUTTI_OK)
        return;
    if (!own->sent && run->event_create(own->device, false, &own->sent) != TUTTI_OK) return;
    own->asked = ctx;
}

tutti_status tutti__optimizer_read(tutti__optimizer *own, tutti_context *ctx,
                                   tutti__optimizer_stats *stats, const char *who)
{
    TUTTI_TRY(tutti__params_ready(own->params, ctx, who));
    tutti__update_state progress;
    if (own->is_sent && own->asked == ctx) {
        TUTTI_TRY(tutti__context_wait(ctx, own->sent));
        progress = *own->result;
    } else {
        TUTTI_TRY(tutti_context_synchronize(ctx)); /* with a deadline, unlike the copy */
        TUTTI_TRY(tutti_copy(ctx, &progress, own->args.progress, sizeof progress));
        TUTTI_TRY(tutti_context_synchronize(ctx));
        ask(own, ctx);
    }
    *stats = (tutti__optimizer_stats){
        .grad_norm = progress.grad_norm,
        .updates = (int64_t)progress.updates,
        .skipped = progress.skipped != 0,
    };
    return TUTTI_OK;
}

int tutti__optimizer_state_count(const tutti__optimizer *own)
{
    return own->state_count + 1;
}

tutti_status tutti__optimizer_state(const tutti__optimizer *own, int index,
                                    tutti_state_tensor *state, const char *who)
{
    const tutti__update_args *args = &own->args;
    TUTTI_REQUIRE(state, "%s: state is NULL", who);
    TUTTI_REQUIRE(index >= 0 && index <= own->state_count, "%s: index is %d, want 0 to %d", who,
                  index, own->state_count);
    if (index < own->state_count)
        *state = (tutti_state_tensor){
            own->states[index],
            tutti_tensor_1d(args->state[index], args->of.dtype, own->params->kept), 1};
    else
        *state = (tutti_state_tensor){"updates",
                                      tutti_tensor_1d(&args->progress->updates, TUTTI_F64, 1), 0};
    return TUTTI_OK;
}
