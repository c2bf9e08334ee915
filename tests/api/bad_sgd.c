/* Bad input for sgd.h. */
#define OPTIMIZER sgd
#include "bad_optimizer.h"

static const tutti_sgd_desc good = {.size = sizeof good, .momentum = 0.9};

static void bad_own(tutti_context *ctx, tutti_params *params)
{
    static const double momenta[] = {NAN, -0.1, 1.0, 1.5, INFINITY};
    tutti_sgd *sgd = UNTOUCHED(tutti_sgd);
    tutti_sgd_desc bad = good;
    for (int i = 0; i < HARNESS_COUNT(momenta); i++) {
        bad.momentum = momenta[i];
        CHECK_FAILS_KEEPING(sgd, TUTTI_ERR_ARG, "momentum",
                            tutti_sgd_create(ctx, params, &bad, &sgd));
    }
    bad.momentum = 0, bad.nesterov = 1;
    CHECK_FAILS_KEEPING(sgd, TUTTI_ERR_ARG, "nesterov", tutti_sgd_create(ctx, params, &bad, &sgd));
}
