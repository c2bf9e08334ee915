/* The run's optimizer.  Both skip updates by gradients that are not finite, so that the weights
 * stay finite in any case. */
#include "optimizer.h"

#include <stdio.h>

#include "common/exit_code.h"
#include "common/report.h"

int optimizer_create(optimizer *own, const train_options *options, tutti_context *ctx,
                     tutti_params *params)
{
    if (options->optimizer == TRAIN_SGD) {
        tutti_sgd_desc desc = TUTTI_SGD_DESC_INIT;
        desc.momentum = options->momentum;
        desc.weight_decay = options->weight_decay;
        desc.clip_norm = options->clip;
        desc.skip_nonfinite = 1;
        return app_check(tutti_sgd_create(ctx, params, &desc, &own->sgd));
    }
    tutti_adamw_desc desc = TUTTI_ADAMW_DESC_INIT;
    desc.weight_decay = options->weight_decay;
    desc.clip_norm = options->clip;
    desc.skip_nonfinite = 1;
    return app_check(tutti_adamw_create(ctx, params, &desc, &own->adamw));
}

void optimizer_destroy(optimizer *own)
{
    tutti_adamw_destroy(&own->adamw);
    tutti_sgd_destroy(&own->sgd);
}

int optimizer_update(optimizer *own, tutti_context *ctx, const tutti_step_block *step)
{
    return app_check(own->sgd ? tutti_sgd_update(own->sgd, ctx, step)
                              : tutti_adamw_update(own->adamw, ctx, step));
}

int optimizer_norm(optimizer *own, tutti_context *ctx, double *norm)
{
    tutti_adamw_stats adamw = {0};
    tutti_sgd_stats sgd = {0};
    APP_CHECK(own->sgd ? tutti_sgd_get_stats(own->sgd, ctx, &sgd)
                       : tutti_adamw_get_stats(own->adamw, ctx, &adamw));
    *norm = own->sgd ? sgd.grad_norm : adamw.grad_norm;
    return APP_OK;
}

int optimizer_states(const optimizer *own, tutti_state_tensor *states, int *count)
{
    *count = own->sgd ? tutti_sgd_state_count(own->sgd) : tutti_adamw_state_count(own->adamw);
    if (*count > OPTIMIZER_STATES_MAX)
        return app_fail(APP_FAILED, "the optimizer has %d state tensors", *count);
    for (int i = 0; i < *count; i++)
        APP_CHECK(own->sgd ? tutti_sgd_state_get(own->sgd, i, &states[i])
                           : tutti_adamw_state_get(own->adamw, i, &states[i]));
    return APP_OK;
}

void optimizer_describe(const train_options *options)
{
    char name[64] = "AdamW", clip[64] = "no clipping";
    if (options->optimizer == TRAIN_SGD)
        snprintf(name, sizeof name, "SGD, momentum %g", options->momentum);
    if (options->clip > 0.0)
        snprintf(clip, sizeof clip, "gradients clipped to norm %g", options->clip);
    app_say("  optimizer     %s, weight decay %g, %s", name, options->weight_decay, clip);
}
