/* Bad input for adamw.h. */
#define OPTIMIZER adamw
#include "bad_optimizer.h"

static const tutti_adamw_desc good = {.size = sizeof good};

static void bad_own(tutti_context *ctx, tutti_params *params)
{
    static const double betas[] = {NAN, -0.1, 1.0, 1.5, INFINITY};
    static const double positives[] = {NAN, INFINITY, TUTTI_ZERO, -1};
    tutti_adamw *adamw = UNTOUCHED(tutti_adamw);
    tutti_adamw_desc bad;
    for (int i = 0; i < HARNESS_COUNT(betas); i++) {
        bad = good, bad.beta1 = betas[i];
        CHECK_FAILS_KEEPING(adamw, TUTTI_ERR_ARG, "beta1",
                            tutti_adamw_create(ctx, params, &bad, &adamw));
        bad = good, bad.beta2 = betas[i];
        CHECK_FAILS_KEEPING(adamw, TUTTI_ERR_ARG, "beta2",
                            tutti_adamw_create(ctx, params, &bad, &adamw));
    }
    for (int i = 0; i < HARNESS_COUNT(positives); i++) {
        bad = good, bad.eps = positives[i];
        CHECK_FAILS_KEEPING(adamw, TUTTI_ERR_ARG, "eps",
                            tutti_adamw_create(ctx, params, &bad, &adamw));
    }
}
