/* SGD with momentum: its descriptor and its names for what optimizer.c does. */
#include "tutti/sgd.h"

#include <stdlib.h>

#include "optim/apply.h"
#include "optim/optimizer.h"

TUTTI__OPTIMIZER(sgd)

static tutti_status check_desc(const tutti_sgd_desc *desc)
{
    TUTTI_REQUIRE(desc->momentum >= 0 && desc->momentum < 1,
                  "sgd: momentum is %g, want 0 <= momentum < 1", desc->momentum);
    TUTTI_REQUIRE(!desc->nesterov || desc->momentum > 0,
                  "sgd: nesterov is set, but momentum is 0, want > 0");
    return tutti__optimizer_check(desc->weight_decay, desc->clip_norm, "sgd");
}

static tutti_status read_desc(const tutti_sgd_desc *desc, tutti__update_options *options,
                              const char *function)
{
    tutti_sgd_desc wanted;
    TUTTI_TRY(tutti__desc_read(&wanted, sizeof wanted, desc, function));
    TUTTI_TRY(check_desc(&wanted));
    *options = (tutti__update_options){.rule = TUTTI__SGD,
                                       .beta1 = wanted.momentum,
                                       .nesterov = wanted.nesterov,
                                       .weight_decay = wanted.weight_decay,
                                       .clip_norm = wanted.clip_norm,
                                       .skip_nonfinite = wanted.skip_nonfinite};
    return TUTTI_OK;
}

tutti_status tutti_sgd_create(tutti_context *ctx, tutti_params *params, const tutti_sgd_desc *desc,
                              tutti_sgd **sgd)
{
    static const char *const states[] = {"velocity"};
    TUTTI_TRY(tutti__params_ready(params, ctx, "sgd_create"));
    TUTTI_REQUIRE(sgd, "sgd_create: sgd is NULL");
    tutti__update_options options;
    TUTTI_TRY(read_desc(desc, &options, "sgd_create"));
    tutti_sgd *made = calloc(1, sizeof *made);
    if (!made) return tutti__fail(TUTTI_ERR_MEMORY, "sgd_create: no memory");
    made->own = (tutti__optimizer){
        .states = states, .state_count = options.beta1 > 0, .args.options = options};
    const tutti_status status = tutti__optimizer_open(&made->own, ctx, params, "sgd");
    if (status != TUTTI_OK)
        tutti_sgd_destroy(&made);
    else
        *sgd = made;
    return status;
}

tutti_status tutti_sgd_apply(tutti_context *ctx, const tutti_sgd_desc *desc,
                             const tutti_update_call *call)
{
    tutti__update_options options;
    TUTTI_REQUIRE(ctx, "sgd_apply: ctx is NULL");
    TUTTI_TRY(read_desc(desc, &options, "sgd_apply"));
    return tutti__apply(ctx, &options, options.beta1 > 0, call, "sgd_apply");
}
