/* Bad input for adamw.h. */
#include <math.h>
#include <string.h>

#include "bad_input.h"

static void bad_adamw_create(void)
{
    tutti_context *ctx = harness_context();
    tutti_param param;
    tutti_params *params = built_store(&param), *unbuilt = bare_store();
    tutti_adamw *adamw = UNTOUCHED(tutti_adamw);
    CHECK_FAILS_KEEPING(adamw, TUTTI_ERR_ARG, "ctx",
                        tutti_adamw_create(NULL, params, NULL, &adamw));
    CHECK_FAILS_KEEPING(adamw, TUTTI_ERR_ARG, "params",
                        tutti_adamw_create(ctx, NULL, NULL, &adamw));
    CHECK_FAILS(TUTTI_ERR_ARG, "adamw", tutti_adamw_create(ctx, params, NULL, NULL));
    CHECK_FAILS_KEEPING(adamw, TUTTI_ERR_STATE, "built",
                        tutti_adamw_create(ctx, unbuilt, NULL, &adamw));
    if (foreign_context())
        CHECK_FAILS_KEEPING(adamw, TUTTI_ERR_ARG, "context",
                            tutti_adamw_create(foreign_context(), params, NULL, &adamw));
    static const double betas[] = {NAN, -0.1, 1.0, 1.5, INFINITY};
    static const double positives[] = {NAN, INFINITY, TUTTI_ZERO, -1};
    static const double counts[] = {NAN, INFINITY, -1};
    tutti_adamw_desc good = TUTTI_ADAMW_DESC_INIT, bad;
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
    for (int i = 0; i < HARNESS_COUNT(counts); i++) {
        bad = good, bad.weight_decay = counts[i];
        CHECK_FAILS_KEEPING(adamw, TUTTI_ERR_ARG, "weight_decay",
                            tutti_adamw_create(ctx, params, &bad, &adamw));
        bad = good, bad.clip_norm = counts[i];
        CHECK_FAILS_KEEPING(adamw, TUTTI_ERR_ARG, "clip_norm",
                            tutti_adamw_create(ctx, params, &bad, &adamw));
    }
    tutti_params_destroy(&params);
    tutti_params_destroy(&unbuilt);
}

static void bad_adamw_destroy(void)
{
    tutti_adamw_destroy(NULL);
    tutti_adamw *adamw = NULL;
    tutti_adamw_destroy(&adamw);
}

static void bad_adamw_update(void)
{
    tutti_context *ctx = harness_context();
    tutti_param param;
    tutti_params *params = built_store(&param);
    tutti_adamw *adamw = NULL;
    tutti_step_block *step = NULL;
    CHECK_OK(tutti_adamw_create(ctx, params, NULL, &adamw));
    CHECK_OK(tutti_step_block_create(ctx, &step));
    CHECK_FAILS(TUTTI_ERR_STATE, "never set", tutti_adamw_update(adamw, ctx, step));
    CHECK_OK(tutti_step_block_set(step, ctx, &(tutti_step_values){.step = 1, .loss_weight = 1}));
    CHECK_FAILS(TUTTI_ERR_ARG, "adamw", tutti_adamw_update(NULL, ctx, step));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_adamw_update(adamw, NULL, step));
    CHECK_FAILS(TUTTI_ERR_ARG, "step", tutti_adamw_update(adamw, ctx, NULL));
    if (foreign_context()) {
        tutti_step_block *foreign = NULL;
        CHECK_OK(tutti_step_block_create(foreign_context(), &foreign));
        CHECK_FAILS(TUTTI_ERR_ARG, "context", tutti_adamw_update(adamw, foreign_context(), step));
        CHECK_FAILS(TUTTI_ERR_ARG, "step", tutti_adamw_update(adamw, ctx, foreign));
        tutti_step_block_destroy(&foreign);
    }
    tutti_adamw_stats stats;
    CHECK_OK(tutti_adamw_get_stats(adamw, ctx, &stats));
    CHECK(stats.updates == 0, "a refused update counted");
    tutti_step_block_destroy(&step);
    tutti_adamw_destroy(&adamw);
    tutti_params_destroy(&params);
}

static void bad_adamw_get_stats(void)
{
    tutti_context *ctx = harness_context();
    tutti_param param;
    tutti_params *params = built_store(&param);
    tutti_adamw *adamw = NULL;
    CHECK_OK(tutti_adamw_create(ctx, params, NULL, &adamw));
    tutti_adamw_stats stats = {.grad_norm = 7, .updates = 7, .skipped = 7};
    CHECK_FAILS(TUTTI_ERR_ARG, "adamw", tutti_adamw_get_stats(NULL, ctx, &stats));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_adamw_get_stats(adamw, NULL, &stats));
    CHECK_FAILS(TUTTI_ERR_ARG, "stats", tutti_adamw_get_stats(adamw, ctx, NULL));
    CHECK(stats.grad_norm == 7 && stats.updates == 7 && stats.skipped == 7, "stats were written");
    tutti_adamw_destroy(&adamw);
    tutti_params_destroy(&params);
}

static void bad_adamw_state_get(void)
{
    tutti_context *ctx = harness_context();
    tutti_param param;
    tutti_params *params = built_store(&param);
    tutti_adamw *adamw = NULL;
    CHECK_OK(tutti_adamw_create(ctx, params, NULL, &adamw));
    tutti_state_tensor state = {.name = UNTOUCHED(char)};
    CHECK_FAILS(TUTTI_ERR_ARG, "adamw", tutti_adamw_state_get(NULL, 0, &state));
    CHECK_FAILS(TUTTI_ERR_ARG, "state", tutti_adamw_state_get(adamw, 0, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "index", tutti_adamw_state_get(adamw, -1, &state));
    CHECK_FAILS_KEEPING(state.name, TUTTI_ERR_ARG, "index",
                        tutti_adamw_state_get(adamw, tutti_adamw_state_count(adamw), &state));
    tutti_adamw_destroy(&adamw);
    tutti_params_destroy(&params);
}

/* Nothing but its size: 0 is every default. */
static void bad_adamw_desc_default(void)
{
    tutti_adamw_desc desc = tutti_adamw_desc_default(), zero = {.size = sizeof zero};
    CHECK(memcmp(&desc, &zero, sizeof desc) == 0, "the default is not all 0");
}

static void bad_adamw_state_count(void)
{
    CHECK(tutti_adamw_state_count(NULL) == 0, "NULL has state");
}

const harness_test bad_adamw[] = {
    {"tutti_adamw_state_count", bad_adamw_state_count},
    {"tutti_adamw_desc_default", bad_adamw_desc_default},
    {"tutti_adamw_create", bad_adamw_create},
    {"tutti_adamw_destroy", bad_adamw_destroy},
    {"tutti_adamw_update", bad_adamw_update},
    {"tutti_adamw_get_stats", bad_adamw_get_stats},
    {"tutti_adamw_state_get", bad_adamw_state_get},
    {NULL, NULL},
};
