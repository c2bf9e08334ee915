/* Bad input for sgd.h. */
#include <math.h>
#include <string.h>

#include "bad_input.h"

static tutti_sgd *good_sgd(tutti_context *ctx, tutti_params *params)
{
    tutti_sgd_desc desc = TUTTI_SGD_DESC_INIT;
    tutti_sgd *sgd = NULL;
    desc.momentum = 0.9;
    CHECK_OK(tutti_sgd_create(ctx, params, &desc, &sgd));
    return sgd;
}

static void bad_sgd_create(void)
{
    tutti_context *ctx = harness_context();
    tutti_param param;
    tutti_params *params = built_store(&param), *unbuilt = bare_store();
    tutti_sgd *sgd = UNTOUCHED(tutti_sgd);
    CHECK_FAILS_KEEPING(sgd, TUTTI_ERR_ARG, "ctx", tutti_sgd_create(NULL, params, NULL, &sgd));
    CHECK_FAILS_KEEPING(sgd, TUTTI_ERR_ARG, "params", tutti_sgd_create(ctx, NULL, NULL, &sgd));
    CHECK_FAILS(TUTTI_ERR_ARG, "sgd", tutti_sgd_create(ctx, params, NULL, NULL));
    CHECK_FAILS_KEEPING(sgd, TUTTI_ERR_STATE, "built", tutti_sgd_create(ctx, unbuilt, NULL, &sgd));
    if (foreign_context())
        CHECK_FAILS_KEEPING(sgd, TUTTI_ERR_ARG, "context",
                            tutti_sgd_create(foreign_context(), params, NULL, &sgd));
    static const double momenta[] = {NAN, -0.1, 1.0, 1.5, INFINITY};
    static const double counts[] = {NAN, INFINITY, -1};
    tutti_sgd_desc good = TUTTI_SGD_DESC_INIT, bad;
    for (int i = 0; i < HARNESS_COUNT(momenta); i++) {
        bad = good, bad.momentum = momenta[i];
        CHECK_FAILS_KEEPING(sgd, TUTTI_ERR_ARG, "momentum",
                            tutti_sgd_create(ctx, params, &bad, &sgd));
    }
    bad = good, bad.nesterov = 1;
    CHECK_FAILS_KEEPING(sgd, TUTTI_ERR_ARG, "nesterov", tutti_sgd_create(ctx, params, &bad, &sgd));
    for (int i = 0; i < HARNESS_COUNT(counts); i++) {
        bad = good, bad.weight_decay = counts[i];
        CHECK_FAILS_KEEPING(sgd, TUTTI_ERR_ARG, "weight_decay",
                            tutti_sgd_create(ctx, params, &bad, &sgd));
        bad = good, bad.clip_norm = counts[i];
        CHECK_FAILS_KEEPING(sgd, TUTTI_ERR_ARG, "clip_norm",
                            tutti_sgd_create(ctx, params, &bad, &sgd));
    }
    tutti_params_destroy(&params);
    tutti_params_destroy(&unbuilt);
}

static void bad_sgd_destroy(void)
{
    tutti_sgd_destroy(NULL);
    tutti_sgd *sgd = NULL;
    tutti_sgd_destroy(&sgd);
}

static void bad_sgd_update(void)
{
    tutti_context *ctx = harness_context();
    tutti_param param;
    tutti_params *params = built_store(&param);
    tutti_sgd *sgd = good_sgd(ctx, params);
    tutti_step_block *step = NULL;
    CHECK_OK(tutti_step_block_create(ctx, &step));
    CHECK_FAILS(TUTTI_ERR_STATE, "never set", tutti_sgd_update(sgd, ctx, step));
    CHECK_FAILS(TUTTI_ERR_ARG, "sgd", tutti_sgd_update(NULL, ctx, step));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_sgd_update(sgd, NULL, step));
    CHECK_FAILS(TUTTI_ERR_ARG, "step", tutti_sgd_update(sgd, ctx, NULL));
    tutti_sgd_stats stats;
    CHECK_OK(tutti_sgd_get_stats(sgd, ctx, &stats));
    CHECK(stats.updates == 0, "a refused update counted");
    tutti_step_block_destroy(&step);
    tutti_sgd_destroy(&sgd);
    tutti_params_destroy(&params);
}

static void bad_sgd_get_stats(void)
{
    tutti_context *ctx = harness_context();
    tutti_param param;
    tutti_params *params = built_store(&param);
    tutti_sgd *sgd = good_sgd(ctx, params);
    tutti_sgd_stats stats = {.grad_norm = 7, .updates = 7, .skipped = 7};
    CHECK_FAILS(TUTTI_ERR_ARG, "sgd", tutti_sgd_get_stats(NULL, ctx, &stats));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_sgd_get_stats(sgd, NULL, &stats));
    CHECK_FAILS(TUTTI_ERR_ARG, "stats", tutti_sgd_get_stats(sgd, ctx, NULL));
    CHECK(stats.grad_norm == 7 && stats.updates == 7 && stats.skipped == 7, "stats were written");
    tutti_sgd_destroy(&sgd);
    tutti_params_destroy(&params);
}

static void bad_sgd_state_get(void)
{
    tutti_context *ctx = harness_context();
    tutti_param param;
    tutti_params *params = built_store(&param);
    tutti_sgd *sgd = good_sgd(ctx, params);
    tutti_state_tensor state = {.name = UNTOUCHED(char)};
    CHECK_FAILS(TUTTI_ERR_ARG, "sgd", tutti_sgd_state_get(NULL, 0, &state));
    CHECK_FAILS(TUTTI_ERR_ARG, "state", tutti_sgd_state_get(sgd, 0, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "index", tutti_sgd_state_get(sgd, -1, &state));
    CHECK_FAILS_KEEPING(state.name, TUTTI_ERR_ARG, "index",
                        tutti_sgd_state_get(sgd, tutti_sgd_state_count(sgd), &state));
    tutti_sgd_destroy(&sgd);
    tutti_params_destroy(&params);
}

/* Nothing but its size: 0 is every default. */
static void bad_sgd_desc_default(void)
{
    tutti_sgd_desc desc = tutti_sgd_desc_default(), zero = {.size = sizeof zero};
    CHECK(memcmp(&desc, &zero, sizeof desc) == 0, "the default is not all 0");
}

static void bad_sgd_state_count(void)
{
    CHECK(tutti_sgd_state_count(NULL) == 0, "NULL has state");
}

const harness_test bad_sgd[] = {
    {"tutti_sgd_state_count", bad_sgd_state_count},
    {"tutti_sgd_desc_default", bad_sgd_desc_default},
    {"tutti_sgd_create", bad_sgd_create},
    {"tutti_sgd_destroy", bad_sgd_destroy},
    {"tutti_sgd_update", bad_sgd_update},
    {"tutti_sgd_get_stats", bad_sgd_get_stats},
    {"tutti_sgd_state_get", bad_sgd_state_get},
    {NULL, NULL},
};
