/* AdamW: tables of the store's parameters, state on the device, one call of the backend per
 * update. */
#include "tutti/adamw.h"

#include <math.h>
#include <stdlib.h>

#include "core/context.h"
#include "core/params.h"
#include "ops/adamw.h"

struct tutti_adamw {
    tutti_params *params;
    tutti_adamw_desc desc;
    const tutti__backend *backend;
    int device;
    void *m, *v;
    int32_t *block_param;
    tutti__param_factors *factors;
    tutti__adamw_state *state;
};

tutti_adamw_desc tutti_adamw_desc_default(void)
{
    return (tutti_adamw_desc)TUTTI_ADAMW_DESC_INIT;
}

static tutti_status check_desc(const tutti_adamw_desc *desc)
{
    TUTTI_REQUIRE(desc->beta1 >= 0 && desc->beta1 < 1, "adamw: beta1 is %g, want 0 <= beta1 < 1",
                  desc->beta1);
    TUTTI_REQUIRE(desc->beta2 >= 0 && desc->beta2 < 1, "adamw: beta2 is %g, want 0 <= beta2 < 1",
                  desc->beta2);
    TUTTI_REQUIRE(isfinite(desc->eps) && desc->eps > 0, "adamw: eps is %g, want finite and > 0",
                  desc->eps);
    TUTTI_REQUIRE(isfinite(desc->weight_decay) && desc->weight_decay >= 0,
                  "adamw: weight_decay is %g, want finite and >= 0", desc->weight_decay);
    TUTTI_REQUIRE(isfinite(desc->clip_norm) && desc->clip_norm >= 0,
                  "adamw: clip_norm is %g, want finite and >= 0", desc->clip_norm);
    return TUTTI_OK;
}

/* With partly summed gradients the replicas would diverge silently. */
static tutti_status check_summed(const tutti_params *params)
{
    if (params->exchanges == 0 || params->summed) return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_STATE,
                       "adamw_update: the gradients are not summed over the ranks: call "
                       "tutti_grad_sync_finish after the last ready");
}

static tutti__adamw_args args_of(const tutti_adamw *adamw, const tutti_step_values *step)
{
    const tutti_params *params = adamw->params;
    return (tutti__adamw_args){
        .count = params->trained,
        .dtype = params->desc.master_dtype,
        .master = params->master,
        .m = adamw->m,
        .v = adamw->v,
        .grad = params->grad,
        .working = params->working,
        .working_dtype = params->working_dtype,
        .block_param = adamw->block_param,
        .factors = adamw->factors,
        .state = adamw->state,
        .step = step,
        .beta1 = adamw->desc.beta1,
        .beta2 = adamw->desc.beta2,
        .eps = adamw->desc.eps,
        .weight_decay = adamw->desc.weight_decay,
        .clip_norm = adamw->desc.clip_norm,
        .skip_nonfinite = adamw->desc.skip_nonfinite,
    };
}

static tutti_status alloc_zero(tutti_context *ctx, size_t bytes, void **data)
{
    TUTTI_TRY(tutti_alloc(ctx, bytes, data));
    return tutti_zero(ctx, *data, bytes);
}

/* Makes the tables by which a kernel finds an element's parameter. */
static tutti_status make_tables(tutti_adamw *adamw, tutti_context *ctx)
{
    const tutti_params *params = adamw->params;
    size_t blocks = (size_t)(params->trained / TUTTI_PARAM_ALIGN);
    size_t slots = (size_t)params->trained_slots;
    int32_t *block_param = malloc((blocks + 1) * sizeof *block_param);
    tutti__param_factors *factors = malloc((slots + 1) * sizeof *factors);
    tutti_status status = TUTTI_OK;
    if (!block_param || !factors) status = tutti__fail(TUTTI_ERR_MEMORY, "adamw: no memory");
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
        status = tutti_alloc(ctx, (blocks + 1) * sizeof *block_param, (void **)&adamw->block_param);
    if (status == TUTTI_OK)
        status = tutti_alloc(ctx, (slots + 1) * sizeof *factors, (void **)&adamw->factors);
    if (status == TUTTI_OK)
        status = tutti_copy(ctx, adamw->block_param, block_param, blocks * sizeof *block_param);
    if (status == TUTTI_OK)
        status = tutti_copy(ctx, adamw->factors, factors, slots * sizeof *factors);
    if (status == TUTTI_OK) status = tutti_context_synchronize(ctx);
    free(block_param);
    free(factors);
    return status;
}

static tutti_status fill(tutti_adamw *adamw, tutti_context *ctx)
{
    const tutti_params *params = adamw->params;
    size_t bytes =
        ((size_t)params->trained + TUTTI_PARAM_ALIGN) * tutti_dtype_size(params->desc.master_dtype);
    TUTTI_TRY(alloc_zero(ctx, bytes, &adamw->m));
    TUTTI_TRY(alloc_zero(ctx, bytes, &adamw->v));
    TUTTI_TRY(alloc_zero(ctx, sizeof *adamw->state, (void **)&adamw->state));
    TUTTI_TRY(make_tables(adamw, ctx));
    tutti__adamw_args args = args_of(adamw, NULL);
    return tutti__op_plan(
        ctx, &(tutti__plan_key){.op = adamw->backend->op.adamw, .rows = args.count}, &args);
}

tutti_status tutti_adamw_create(tutti_context *ctx, tutti_params *params,
                                const tutti_adamw_desc *desc, tutti_adamw **adamw)
{
    TUTTI_TRY(tutti__params_ready(params, ctx, "adamw_create"));
    TUTTI_REQUIRE(adamw, "adamw_create: adamw is NULL");
    tutti_adamw_desc wanted;
    TUTTI_TRY(tutti__desc_read(&wanted, sizeof wanted, desc, "adamw_create"));
    wanted.beta1 = tutti__field(wanted.beta1, 0.9);
    wanted.beta2 = tutti__field(wanted.beta2, 0.999);
    wanted.eps = tutti__field(wanted.eps, 1e-8);
    TUTTI_TRY(check_desc(&wanted));
    if (!ctx->backend->op.adamw->forward)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "adamw is not supported by the %s backend",
                           ctx->backend->name);
    TUTTI_TRY(
        tutti_context_synchronize(ctx)); /* fails during capture, before anything is enqueued */
    tutti_adamw *made = calloc(1, sizeof *made);
    if (!made) return tutti__fail(TUTTI_ERR_MEMORY, "adamw_create: no memory");
    made->params = params;
    tutti__hold(&params->holders);
    made->desc = wanted;
    made->backend = ctx->backend;
    made->device = ctx->device;
    tutti_status status = fill(made, ctx);
    if (status != TUTTI_OK)
        tutti_adamw_destroy(&made);
    else
        *adamw = made;
    return status;
}

void tutti_adamw_destroy(tutti_adamw **adamw)
{
    if (!adamw || !*adamw) return;
    tutti_adamw *a = *adamw;
    void *buffers[] = {a->m, a->v, a->block_param, a->factors, a->state};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        if (buffers[i]) a->backend->run.free(a->device, buffers[i]);
    tutti__params_release(a->params);
    free(a);
    *adamw = NULL;
}

tutti_status tutti_adamw_update(tutti_adamw *adamw, tutti_context *ctx,
                                const tutti_step_block *step)
{
    TUTTI_REQUIRE(adamw, "adamw_update: adamw is NULL");
    TUTTI_TRY(tutti__params_ready(adamw->params, ctx, "adamw_update"));
    TUTTI_REQUIRE(step, "adamw_update: step is NULL");
    TUTTI_REQUIRE(step->backend == adamw->backend && step->device == adamw->device,
                  "adamw_update: step is on another device than the store");
    TUTTI_TRY(tutti__step_block_check(step, ctx, "adamw_update"));
    TUTTI_TRY(check_summed(adamw->params));
    TUTTI_TRY(tutti__context_advance(ctx));
    tutti__adamw_args args = args_of(adamw, step->values);
    const tutti__plan_key key = {.op = adamw->backend->op.adamw, .rows = args.count};
    TUTTI_TRY(tutti__op_run(ctx, &key, &args));
    adamw->params->summed = false;
    return TUTTI_OK;
}

tutti_status tutti_adamw_get_stats(tutti_adamw *adamw, tutti_context *ctx, tutti_adamw_stats *stats)
{
    TUTTI_REQUIRE(adamw, "adamw_get_stats: adamw is NULL");
    TUTTI_REQUIRE(stats, "adamw_get_stats: stats is NULL");
    TUTTI_TRY(tutti__params_ready(adamw->params, ctx, "adamw_get_stats"));
    tutti__adamw_state state;
    TUTTI_TRY(tutti_context_synchronize(ctx)); /* with a deadline, unlike the copy */
    TUTTI_TRY(tutti_copy(ctx, &state, adamw->state, sizeof state));
    TUTTI_TRY(tutti_context_synchronize(ctx));
    *stats = (tutti_adamw_stats){
        .grad_norm = state.grad_norm,
        .updates = (int64_t)state.updates,
        .skipped = state.skipped != 0,
    };
    return TUTTI_OK;
}

enum { STATES = 3 };

int tutti_adamw_state_count(const tutti_adamw *adamw)
{
    return adamw ? STATES : 0;
}

tutti_status tutti_adamw_state_get(const tutti_adamw *adamw, int index, tutti_state_tensor *state)
{
    TUTTI_REQUIRE(adamw, "adamw_state_get: adamw is NULL");
    TUTTI_REQUIRE(state, "adamw_state_get: state is NULL");
    TUTTI_REQUIRE(index >= 0 && index < STATES, "adamw_state_get: index is %d, want 0 to %d", index,
                  STATES - 1);
    const tutti_dtype dtype = adamw->params->desc.master_dtype;
    const int64_t count = adamw->params->trained;
    const tutti_state_tensor all[STATES] = {
        {"m", tutti_tensor_1d(adamw->m, dtype, count), 1},
        {"v", tutti_tensor_1d(adamw->v, dtype, count), 1},
        {"updates", tutti_tensor_1d(&adamw->state->updates, TUTTI_F64, 1), 0},
    };
    *state = all[index];
    return TUTTI_OK;
}
