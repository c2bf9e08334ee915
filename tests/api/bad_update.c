/* Bad input for update.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bad_input.h"

enum { COUNT = 6, PARAMS = 2 };

/* A good call of an update of two parameters, f32 and bf16 with a master. */
typedef struct fixture {
    float master[PARAMS][COUNT], grad[PARAMS][COUNT], state[2][PARAMS][COUNT];
    uint16_t value[COUNT];
    double updates, norm[4];
    tutti_param params[PARAMS];
    const tutti_param *list[PARAMS];
    tutti_tensor states[2][PARAMS], updates_tensor, norm_tensor;
    tutti_step_block *step;
    tutti_update_call call;
} fixture;

/* What is refused here does not reach a device, so the memory is the host's on both backends. */
static fixture *make_fixture(void)
{
    tutti_context *ctx = harness_context();
    fixture *f = harness_calloc(1, sizeof *f);
    for (int p = 0; p < PARAMS; p++) {
        tutti_param *param = &f->params[p];
        param->value = param->master = tutti_tensor_1d(f->master[p], TUTTI_F32, COUNT);
        param->grad = tutti_tensor_1d(f->grad[p], TUTTI_F32, COUNT);
        f->list[p] = param;
        for (int s = 0; s < 2; s++)
            f->states[s][p] = tutti_tensor_1d(f->state[s][p], TUTTI_F32, COUNT);
    }
    f->params[1].value = tutti_tensor_1d(f->value, TUTTI_BF16, COUNT);
    f->updates_tensor = tutti_tensor_1d(&f->updates, TUTTI_F64, 1);
    f->norm_tensor = tutti_tensor_1d(f->norm, TUTTI_F64, 4);
    CHECK_OK(tutti_step_block_create(ctx, &f->step));
    CHECK_OK(tutti_step_block_set(
        f->step, ctx, &(tutti_step_values){.step = 1, .loss_weight = 1, .learning_rate = 1}));
    f->call = (tutti_update_call){.params = f->list,
                                  .count = PARAMS,
                                  .state = {f->states[0], f->states[1]},
                                  .step = f->step,
                                  .updates = &f->updates_tensor,
                                  .norm = &f->norm_tensor};
    return f;
}

static void free_fixture(fixture *f)
{
    for (int i = 0; i < PARAMS * COUNT; i++)
        CHECK(f->master[i / COUNT][i % COUNT] == 0 && f->state[0][i / COUNT][i % COUNT] == 0,
              "a refused call wrote element %d", i);
    CHECK(f->updates == 0 && f->norm[0] == 0, "a refused call wrote numbers");
    tutti_step_block_destroy(&f->step);
    free(f);
}

/* For what both updates take. */
typedef tutti_status (*apply_function)(const tutti_update_call *call);

static tutti_status adamw_of(const tutti_update_call *call)
{
    return tutti_adamw_apply(harness_context(), NULL, call);
}

static tutti_status sgd_of(const tutti_update_call *call)
{
    tutti_sgd_desc desc = TUTTI_SGD_DESC_INIT;
    desc.momentum = 0.9;
    if (!call) return tutti_sgd_apply(harness_context(), &desc, NULL);
    tutti_update_call own = *call;
    own.state[1] = NULL; /* AdamW's */
    return tutti_sgd_apply(harness_context(), &desc, &own);
}

static void check_tensor(apply_function apply, fixture *f, tutti_tensor *tensor, const char *name)
{
    const tutti_tensor good = *tensor;
    const tutti_update_call *call = &f->call;
    tensor->dtype = TUTTI_I32;
    CHECK_FAILS(TUTTI_ERR_ARG, name, apply(call));
    *tensor = good, tensor->dtype = (tutti_dtype)99;
    CHECK_FAILS(TUTTI_ERR_ARG, name, apply(call));
    *tensor = good, tensor->dims[0] = COUNT - 1;
    CHECK_FAILS(TUTTI_ERR_ARG, " as the parameter's value", apply(call));
    *tensor = good, tensor->dims[0] = -1;
    CHECK_FAILS(TUTTI_ERR_ARG, "dims", apply(call));
    *tensor = good, tensor->ndim = 0;
    CHECK_FAILS(TUTTI_ERR_ARG, name, apply(call));
    *tensor = good, tensor->strides[0] = 2;
    CHECK_FAILS(TUTTI_ERR_ARG, name, apply(call));
    *tensor = good, tensor->data = (char *)tensor->data + 1;
    CHECK_FAILS(TUTTI_ERR_ARG, name, apply(call));
    *tensor = good;
}

static void check_params(apply_function apply, fixture *f)
{
    static const double wrong[] = {NAN, INFINITY, -1};
    tutti_param *param = &f->params[1];
    const tutti_param good = *param;
    const tutti_update_call *call = &f->call;
    f->list[1] = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "params[1] is NULL", apply(call));
    f->list[1] = param;
    check_tensor(apply, f, &param->value, "params[1].value");
    check_tensor(apply, f, &param->master, "params[1].master");
    check_tensor(apply, f, &param->grad, "params[1].grad");
    param->value.data = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "params[1].value has data NULL", apply(call));
    *param = good, param->master.data = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "params[1].value is bf16, want a separate master", apply(call));
    *param = good, param->master = param->value;
    CHECK_FAILS(TUTTI_ERR_ARG, "params[1].value is bf16, want a separate master", apply(call));
    *param = good, param->grad.data = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "params[1].grad has data NULL", apply(call));
    *param = good, param->grad.dtype = TUTTI_BF16;
    CHECK_FAILS(TUTTI_ERR_ARG, "params[1].grad is bf16, want f32", apply(call));
    *param = good, param->grad.dims[0] = COUNT - 1;
    CHECK_FAILS(TUTTI_ERR_ARG, "params[1].grad is [5], want [6] as the parameter's", apply(call));
    *param = good, param->grad.dtype = (tutti_dtype)0;
    CHECK_FAILS(TUTTI_ERR_ARG, "params[1].grad is of dtype 0 (not set), want f32", apply(call));
    *param = good, param->value.dtype = TUTTI_F64, param->value.data = f->norm;
    CHECK_FAILS(TUTTI_ERR_ARG, "params[1].master is f32, want f64", apply(call));
    param->master = param->value;
    CHECK_FAILS(TUTTI_ERR_ARG, "params[1].grad is f32, want f64", apply(call));
    *param = good, param->grad.data = f->master[1] + COUNT / 2;
    CHECK_FAILS(TUTTI_ERR_ARG, "master overlaps grad", apply(call));
    *param = good, param->master.data = f->grad[1] + 1;
    CHECK_FAILS(TUTTI_ERR_ARG, "master overlaps grad", apply(call));
    *param = good, f->states[0][1].data = f->grad[1];
    CHECK_FAILS(TUTTI_ERR_ARG, "grad overlaps state[0]", apply(call));
    f->states[0][1].data = f->state[0][1];
    for (int i = 0; i < HARNESS_COUNT(wrong); i++) {
        *param = good, param->weight_decay = wrong[i];
        CHECK_FAILS(TUTTI_ERR_ARG, "params[1].weight_decay", apply(call));
        *param = good, param->lr_scale = wrong[i];
        CHECK_FAILS(TUTTI_ERR_ARG, "params[1].lr_scale", apply(call));
    }
    *param = good;
}

static void check_numbers(apply_function apply, const tutti_update_call *call, tutti_tensor *tensor,
                          const char *name)
{
    const tutti_tensor good = *tensor;
    tensor->dtype = TUTTI_F32;
    CHECK_FAILS(TUTTI_ERR_ARG, name, apply(call));
    *tensor = good, tensor->data = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, name, apply(call));
    *tensor = good, tensor->dims[0]++;
    CHECK_FAILS(TUTTI_ERR_ARG, name, apply(call));
    *tensor = good, tensor->dims[0]--;
    CHECK_FAILS(TUTTI_ERR_ARG, name, apply(call));
    *tensor = good;
}

static void check_calls(apply_function apply)
{
    fixture *f = make_fixture();
    tutti_update_call *call = &f->call;
    const tutti_update_call good = *call;
    CHECK_FAILS(TUTTI_ERR_ARG, "call is NULL", apply(NULL));
    call->params = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "params is NULL", apply(call));
    *call = good, call->count = -1;
    CHECK_FAILS(TUTTI_ERR_ARG, "count is -1", apply(call));
    *call = good, call->state[0] = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "state[0] is NULL", apply(call));
    *call = good, call->step = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "step is NULL", apply(call));
    *call = good;
    tutti_step_block *unset = NULL;
    CHECK_OK(tutti_step_block_create(harness_context(), &unset));
    call->step = unset;
    CHECK_FAILS(TUTTI_ERR_STATE, "never set", apply(call));
    *call = good;
    tutti_step_block_destroy(&unset);
    if (foreign_context()) {
        CHECK_OK(tutti_step_block_create(foreign_context(), &unset));
        call->step = unset;
        CHECK_FAILS(TUTTI_ERR_ARG, "another device", apply(call));
        *call = good;
        tutti_step_block_destroy(&unset);
    }
    check_numbers(apply, call, &f->updates_tensor, "updates");
    check_numbers(apply, call, &f->norm_tensor, "norm");
    check_params(apply, f);
    check_tensor(apply, f, &f->states[0][1], "state[0][1]");
    if (apply == adamw_of) check_tensor(apply, f, &f->states[1][1], "state[1][1]");
    free_fixture(f);
}

static void bad_adamw_apply(void)
{
    tutti_context *ctx = harness_context();
    fixture *f = make_fixture();
    tutti_adamw_desc good = TUTTI_ADAMW_DESC_INIT, bad = good;
    check_calls(adamw_of);
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_adamw_apply(NULL, NULL, &f->call));
    bad.beta1 = 1;
    CHECK_FAILS(TUTTI_ERR_ARG, "beta1", tutti_adamw_apply(ctx, &bad, &f->call));
    bad = good, bad.beta2 = NAN;
    CHECK_FAILS(TUTTI_ERR_ARG, "beta2", tutti_adamw_apply(ctx, &bad, &f->call));
    bad = good, bad.eps = -1;
    CHECK_FAILS(TUTTI_ERR_ARG, "eps", tutti_adamw_apply(ctx, &bad, &f->call));
    bad = good, bad.weight_decay = -1;
    CHECK_FAILS(TUTTI_ERR_ARG, "weight_decay", tutti_adamw_apply(ctx, &bad, &f->call));
    bad = good, bad.clip_norm = 1;
    CHECK_FAILS(TUTTI_ERR_ARG, "clip_norm", tutti_adamw_apply(ctx, &bad, &f->call));
    bad = good, bad.skip_nonfinite = 1;
    CHECK_FAILS(TUTTI_ERR_ARG, "skip_nonfinite", tutti_adamw_apply(ctx, &bad, &f->call));
    f->call.state[1] = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "state[1] is NULL", tutti_adamw_apply(ctx, NULL, &f->call));
    free_fixture(f);
}

static void bad_sgd_apply(void)
{
    tutti_context *ctx = harness_context();
    fixture *f = make_fixture();
    tutti_sgd_desc good = TUTTI_SGD_DESC_INIT, bad = good;
    check_calls(sgd_of);
    CHECK_FAILS(TUTTI_ERR_ARG, "state[0] is not NULL", tutti_sgd_apply(ctx, NULL, &f->call));
    bad.momentum = 0.5;
    CHECK_FAILS(TUTTI_ERR_ARG, "state[1] is not NULL", tutti_sgd_apply(ctx, &bad, &f->call));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_sgd_apply(NULL, NULL, &f->call));
    bad.momentum = 1;
    CHECK_FAILS(TUTTI_ERR_ARG, "momentum", tutti_sgd_apply(ctx, &bad, &f->call));
    bad = good, bad.nesterov = 1;
    CHECK_FAILS(TUTTI_ERR_ARG, "nesterov", tutti_sgd_apply(ctx, &bad, &f->call));
    bad = good, bad.weight_decay = INFINITY;
    CHECK_FAILS(TUTTI_ERR_ARG, "weight_decay", tutti_sgd_apply(ctx, &bad, &f->call));
    bad = good, bad.clip_norm = 1;
    CHECK_FAILS(TUTTI_ERR_ARG, "clip_norm", tutti_sgd_apply(ctx, &bad, &f->call));
    bad = good, bad.skip_nonfinite = 1;
    CHECK_FAILS(TUTTI_ERR_ARG, "skip_nonfinite", tutti_sgd_apply(ctx, &bad, &f->call));
    free_fixture(f);
}

static void bad_grad_norm(void)
{
    static const double wrong[] = {NAN, INFINITY, -1};
    tutti_context *ctx = harness_context();
    fixture *f = make_fixture();
    tutti_tensor grads[2] = {f->params[0].grad, f->params[1].grad}, *bad = &grads[1];
    const tutti_tensor good = *bad, *norm = &f->norm_tensor;
    tutti_grad_norm_desc desc = TUTTI_GRAD_NORM_DESC_INIT;
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_grad_norm(NULL, grads, 2, f->step, NULL, norm));
    CHECK_FAILS(TUTTI_ERR_ARG, "grads is NULL", tutti_grad_norm(ctx, NULL, 2, f->step, NULL, norm));
    CHECK_FAILS(TUTTI_ERR_ARG, "count is -2", tutti_grad_norm(ctx, grads, -2, f->step, NULL, norm));
    CHECK_FAILS(TUTTI_ERR_ARG, "norm is NULL", tutti_grad_norm(ctx, grads, 2, f->step, NULL, NULL));
    for (int i = 0; i < HARNESS_COUNT(wrong); i++) {
        desc.clip_norm = wrong[i];
        CHECK_FAILS(TUTTI_ERR_ARG, "clip_norm",
                    tutti_grad_norm(ctx, grads, 2, f->step, &desc, norm));
    }
    tutti_tensor numbers[] = {*norm, *norm, *norm};
    numbers[0].dtype = TUTTI_F32, numbers[1].dims[0] = 3, numbers[2].data = NULL;
    for (int i = 0; i < HARNESS_COUNT(numbers); i++)
        CHECK_FAILS(TUTTI_ERR_ARG, "norm",
                    tutti_grad_norm(ctx, grads, 2, f->step, NULL, &numbers[i]));
    for (int i = 0; i < 7; i++) {
        *bad = good;
        if (i == 0) bad->data = NULL;
        if (i == 1) bad->dtype = TUTTI_BF16;
        if (i == 2) bad->dims[0] = -1;
        if (i == 3) bad->strides[0] = 3;
        if (i == 4) bad->data = (char *)bad->data + 2;
        if (i == 5) bad->ndim = TUTTI_MAX_DIMS + 1;
        if (i == 6) bad->data = (char *)f->norm + 8; /* overlaps norm */
        CHECK_FAILS(TUTTI_ERR_ARG, "grads[1]", tutti_grad_norm(ctx, grads, 2, NULL, NULL, norm));
    }
    tutti_tensor huge[20]; /* each count is valid, their sum is not */
    for (int i = 0; i < HARNESS_COUNT(huge); i++)
        huge[i] = tutti_tensor_1d(f + 1, TUTTI_F32, INT64_C(1) << 56);
    CHECK_FAILS(TUTTI_ERR_ARG, "2^59", tutti_grad_norm(ctx, huge, 20, NULL, NULL, norm));
    tutti_step_block *unset = NULL;
    *bad = good;
    CHECK_OK(tutti_step_block_create(ctx, &unset));
    CHECK_FAILS(TUTTI_ERR_STATE, "never set", tutti_grad_norm(ctx, grads, 2, unset, NULL, norm));
    tutti_step_block_destroy(&unset);
    free_fixture(f);
}

/* Nothing but its size: 0 is every default. */
static void bad_grad_norm_desc_default(void)
{
    tutti_grad_norm_desc desc = tutti_grad_norm_desc_default(), zero = {.size = sizeof zero};
    CHECK(memcmp(&desc, &zero, sizeof desc) == 0, "the default is not all 0");
}

const harness_test bad_update[] = {
    {"tutti_grad_norm", bad_grad_norm},
    {"tutti_grad_norm_desc_default", bad_grad_norm_desc_default},
    {"tutti_adamw_apply", bad_adamw_apply},
    {"tutti_sgd_apply", bad_sgd_apply},
    {NULL, NULL},
};
