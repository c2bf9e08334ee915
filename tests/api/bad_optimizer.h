/* Bad input for what the optimizers share: the body of bad_adamw.c and bad_sgd.c, for OPTIMIZER. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bad_input.h"

#define PASTE(a, b, c) a##b##c
#define PASTED(a, b, c) PASTE(a, b, c)
#define TEXT(name) #name
#define TEXT_OF(name) TEXT(name)
#define OF(name) PASTED(tutti_, OPTIMIZER, name)

typedef OF() optimizer;

/* The including file's: with it an optimizer has a state. */
static const OF(_desc) good;
/* Its checks of what only this descriptor has. */
static void bad_own(tutti_context *ctx, tutti_params *params);

static optimizer *make(tutti_context *ctx, tutti_params *params)
{
    optimizer *made = NULL;
    CHECK_OK(OF(_create)(ctx, params, &good, &made));
    return made;
}

static void test_create(void)
{
    static const double counts[] = {NAN, INFINITY, -1};
    tutti_context *ctx = harness_context();
    tutti_param param;
    tutti_params *params = built_store(&param), *unbuilt = bare_store();
    optimizer *made = UNTOUCHED(optimizer);
    CHECK_FAILS_KEEPING(made, TUTTI_ERR_ARG, "ctx", OF(_create)(NULL, params, NULL, &made));
    CHECK_FAILS_KEEPING(made, TUTTI_ERR_ARG, "params", OF(_create)(ctx, NULL, NULL, &made));
    CHECK_FAILS(TUTTI_ERR_ARG, TEXT_OF(OPTIMIZER), OF(_create)(ctx, params, NULL, NULL));
    CHECK_FAILS_KEEPING(made, TUTTI_ERR_STATE, "built", OF(_create)(ctx, unbuilt, NULL, &made));
    if (foreign_context())
        CHECK_FAILS_KEEPING(made, TUTTI_ERR_ARG, "context",
                            OF(_create)(foreign_context(), params, NULL, &made));
    bad_own(ctx, params);
    for (int i = 0; i < HARNESS_COUNT(counts); i++) {
        OF(_desc) bad = good;
        bad.weight_decay = counts[i];
        CHECK_FAILS_KEEPING(made, TUTTI_ERR_ARG, "weight_decay",
                            OF(_create)(ctx, params, &bad, &made));
        bad = good, bad.clip_norm = counts[i];
        CHECK_FAILS_KEEPING(made, TUTTI_ERR_ARG, "clip_norm",
                            OF(_create)(ctx, params, &bad, &made));
    }
    for (int i = 0; i < HARNESS_COUNT(counts); i++) {
        const tutti_param before = param;
        param.weight_decay = counts[i];
        CHECK_FAILS_KEEPING(made, TUTTI_ERR_ARG, TEXT_OF(OPTIMIZER) ": p: weight_decay is",
                            OF(_create)(ctx, params, NULL, &made));
        param = before, param.lr_scale = counts[i];
        CHECK_FAILS_KEEPING(made, TUTTI_ERR_ARG, TEXT_OF(OPTIMIZER) ": p: lr_scale is",
                            OF(_create)(ctx, params, NULL, &made));
        param = before;
    }
    tutti_params_destroy(&params);
    tutti_params_destroy(&unbuilt);
}

/* What a parameter's factors become once there is an optimizer does not reach it. */
static void check_later_factors(tutti_context *ctx, optimizer *made, tutti_param *param,
                                const tutti_step_block *step)
{
    const tutti_param before = *param;
    double *was = harness_get(ctx, &param->value, NULL);
    param->weight_decay = -1, param->lr_scale = NAN;
    CHECK_OK(OF(_update)(made, ctx, step));
    double *is = harness_get(ctx, &param->value, NULL);
    CHECK(is[0] == was[0], "the value was %g and is %g", was[0], is[0]);
    *param = before;
    free(was);
    free(is);
}

static void test_destroy(void)
{
    OF(_destroy)(NULL);
    optimizer *made = NULL;
    OF(_destroy)(&made);
}

static void test_update(void)
{
    tutti_context *ctx = harness_context();
    tutti_param param;
    tutti_params *params = built_store(&param);
    optimizer *made = make(ctx, params);
    tutti_step_block *step = NULL;
    CHECK_OK(tutti_step_block_create(ctx, &step));
    CHECK_FAILS(TUTTI_ERR_STATE, "never set", OF(_update)(made, ctx, step));
    CHECK_OK(tutti_step_block_set(step, ctx, &(tutti_step_values){.step = 1, .loss_weight = 1}));
    CHECK_FAILS(TUTTI_ERR_ARG, TEXT_OF(OPTIMIZER), OF(_update)(NULL, ctx, step));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", OF(_update)(made, NULL, step));
    CHECK_FAILS(TUTTI_ERR_ARG, "step", OF(_update)(made, ctx, NULL));
    if (foreign_context()) {
        tutti_step_block *foreign = NULL;
        CHECK_OK(tutti_step_block_create(foreign_context(), &foreign));
        CHECK_FAILS(TUTTI_ERR_ARG, "context", OF(_update)(made, foreign_context(), step));
        CHECK_FAILS(TUTTI_ERR_ARG, "step", OF(_update)(made, ctx, foreign));
        tutti_step_block_destroy(&foreign);
    }
    OF(_stats) stats;
    CHECK_OK(OF(_get_stats)(made, ctx, &stats));
    CHECK(stats.updates == 0, "a refused update counted");
    check_later_factors(ctx, made, &param, step);
    tutti_step_block_destroy(&step);
    OF(_destroy)(&made);
    tutti_params_destroy(&params);
}

static void test_get_stats(void)
{
    tutti_context *ctx = harness_context();
    tutti_param param;
    tutti_params *params = built_store(&param);
    optimizer *made = make(ctx, params);
    OF(_stats) stats = {.grad_norm = 7, .updates = 7, .skipped = 7};
    CHECK_FAILS(TUTTI_ERR_ARG, TEXT_OF(OPTIMIZER), OF(_get_stats)(NULL, ctx, &stats));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", OF(_get_stats)(made, NULL, &stats));
    CHECK_FAILS(TUTTI_ERR_ARG, "stats", OF(_get_stats)(made, ctx, NULL));
    CHECK(stats.grad_norm == 7 && stats.updates == 7 && stats.skipped == 7, "stats were written");
    OF(_destroy)(&made);
    tutti_params_destroy(&params);
}

static void test_state_get(void)
{
    tutti_context *ctx = harness_context();
    tutti_param param;
    tutti_params *params = built_store(&param);
    optimizer *made = make(ctx, params);
    tutti_state_tensor state = {.name = UNTOUCHED(char)};
    CHECK_FAILS(TUTTI_ERR_ARG, TEXT_OF(OPTIMIZER), OF(_state_get)(NULL, 0, &state));
    CHECK_FAILS(TUTTI_ERR_ARG, "state", OF(_state_get)(made, 0, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "index", OF(_state_get)(made, -1, &state));
    CHECK_FAILS_KEEPING(state.name, TUTTI_ERR_ARG, "index",
                        OF(_state_get)(made, OF(_state_count)(made), &state));
    OF(_destroy)(&made);
    tutti_params_destroy(&params);
}

/* Nothing but its size: 0 is every default. */
static void test_desc_default(void)
{
    OF(_desc) desc = OF(_desc_default)(), zero = {.size = sizeof zero};
    CHECK(memcmp(&desc, &zero, sizeof desc) == 0, "the default is not all 0");
}

static void test_state_count(void)
{
    CHECK(OF(_state_count)(NULL) == 0, "NULL has state");
}

const harness_test PASTED(bad_, OPTIMIZER, )[] = {
    {TEXT_OF(OF(_state_count)), test_state_count}, {TEXT_OF(OF(_desc_default)), test_desc_default},
    {TEXT_OF(OF(_create)), test_create},           {TEXT_OF(OF(_destroy)), test_destroy},
    {TEXT_OF(OF(_update)), test_update},           {TEXT_OF(OF(_get_stats)), test_get_stats},
    {TEXT_OF(OF(_state_get)), test_state_get},     {NULL, NULL},
};
