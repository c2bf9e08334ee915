/* AdamW: its descriptor and its names for what optimizer.c does. */
#include "tutti/adamw.h"

#include <math.h>
#include <stdlib.h>

#include "optim/apply.h"
#include "optim/optimizer.h"

TUTTI__OPTIMIZER(adamw)

static tutti_status check_desc(const tutti_adamw_desc *desc)
{
    TUTTI_REQUIRE(desc->beta1 >= 0 && desc->beta1 < 1, "adamw: beta1 is %g, want 0 <= beta1 < 1",
                  desc->beta1);
    TUTTI_REQUIRE(desc->beta2 >= 0 && desc->beta2 < 1, "adamw: beta2 is %g, want 0 <= beta2 < 1",
                  desc->beta2);
    TUTTI_REQUIRE(isfinite(desc->eps) && desc->eps > 0, "adamw: eps is %g, want finite and > 0",
                  desc->eps);
    return tutti__optimizer_check(desc->weight_decay, desc->clip_norm, "adamw");
}

static tutti_status read_desc(const tutti_adamw_desc *desc, tutti__update_options *options,
                              const char *function)
{
    tutti_adamw_desc wanted;
    TUTTI_TRY(tutti__desc_read(&wanted, sizeof wanted, desc, function));
    wanted.beta1 = tutti__field(wanted.beta1, 0.9);
    wanted.beta2 = tutti__field(wanted.beta2, 0.999);
    wanted.eps = tutti__field(wanted.eps, 1e-8);
    TUTTI_TRY(check_desc(&wanted));
    *options = (tutti__update_options){.rule = TUTTI__ADAMW,
                                       .beta1 = wanted.beta1,
                                       .beta2 = wanted.beta2,
                                       .eps = wanted.eps,
                                       .weight_decay = wanted.weight_decay,
                                       .clip_norm = wanted.clip_norm,
                                       .skip_nonfinite = wanted.skip_nonfinite};
    return TUTTI_OK;
}

tutti_status tutti_adamw_create(tutti_context *ctx, tutti_params *params,
                                const tutti_adamw_desc *desc, tutti_adamw **adamw)
{
    static const char *const states[] = {"m", "v"};
    TUTTI_TRY(tutti__params_ready(params, ctx, "adamw_create"));
    TUTTI_REQUIRE(adamw, "adamw_create: adamw is NULL");
    tutti__update_options options;
    TUTTI_TRY(read_desc(desc, &options, "adamw_create"));
    tutti_adamw *made = calloc(1, sizeof *made);
    if (!made) return tutti__fail(TUTTI_ERR_MEMORY, "adamw_create: no memory");
    made->own = (tutti__optimizer){.states = states, .state_count = 2, .args.options = options};
    const tutti_status status = tutti__optimizer_open(&made->own, ctx, params, "adamw");
    if (status != TUTTI_OK)
        tutti_adamw_destroy(&made);
    else
        *adamw = made;
    return status;
}

tutti_status tutti_adamw_apply(tutti_context *ctx, const tutti_adamw_desc *desc,
                               const tutti_update_call *call)
{
    tutti__update_options options;
    TUTTI_REQUIRE(ctx, "adamw_apply: ctx is NULL");
    TUTTI_TRY(read_desc(desc, &options, "adamw_apply"));
    return tutti__apply(ctx, &options, 2, call, "adamw_apply");
}
