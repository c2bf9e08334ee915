/* Bad input for param.h: a parameter by itself. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bad_input.h"

tutti_layer *small_norm(tutti_dtype dtype, tutti_dtype param)
{
    tutti_layernorm_desc desc = TUTTI_LAYERNORM_DESC_INIT;
    desc.cols = 6;
    desc.x_dtype = desc.y_dtype = dtype;
    desc.param_dtype = param;
    tutti_layer *layer = NULL;
    CHECK_OK(tutti_layernorm_create(harness_context(), &desc, &layer));
    return layer;
}

tutti_param own_param(const char *name, tutti_dtype dtype, int64_t count)
{
    tutti_param param = {.weight_decay = 1, .lr_scale = 1};
    strncpy(param.name, name, TUTTI_NAME_MAX - 1);
    param.value = tutti_tensor_1d(NULL, dtype, count);
    return param;
}

void check_has_no_memory(const tutti_param *param)
{
    CHECK(!param->value.data && !param->grad.data && !param->master.data,
          "a refused parameter was bound");
}

static const char in_a_store[] = "has the memory of its store, which is built; want";

/* A parameter of a built store is not bound to other memory; a layer that has it nevertheless does
 * not run. */
static void check_stored(void)
{
    tutti_context *ctx = harness_context();
    tutti_params *params = bare_store();
    tutti_layer *layer = small_norm(TUTTI_F32, TUTTI_F32);
    tutti_param *gamma = tutti_layer_param(layer, 0);
    float *memory = NULL;
    CHECK_OK(tutti_alloc(ctx, 64 * sizeof *memory, (void **)&memory));
    CHECK_OK(tutti_zero(ctx, memory, 64 * sizeof *memory));
    tutti_tensor x = tutti_tensor_2d(memory, TUTTI_F32, 1, 6), y = x, own = gamma->value, grad;
    y.data = memory + 8, own.data = memory + 16;
    const tutti_layernorm_call call = {.x = &x, .y = &y};
    CHECK_OK(tutti_params_add(params, layer, "norm"));
    CHECK_OK(tutti_param_bind(gamma, &own, NULL)); /* the store takes its place */
    CHECK_OK(tutti_params_build(params, ctx));
    const tutti_param stored = *gamma;
    for (int way = 0; way < 3; way++) {
        CHECK_OK(tutti_layernorm_forward(layer, ctx, &call));
        grad = way == 1 ? own : stored.grad;
        CHECK_FAILS(TUTTI_ERR_STATE, in_a_store,
                    tutti_param_bind(gamma, way ? &stored.value : &own, way == 2 ? NULL : &grad));
        CHECK(memcmp(gamma, &stored, sizeof stored) == 0, "a refused parameter was bound");
        if (way == 0) gamma->value = own;
        if (way == 1) gamma->grad = own;
        if (way == 2) gamma->grad.data = NULL;
        CHECK_FAILS(TUTTI_ERR_STATE, "parameter norm/gamma has other memory than its store gave it",
                    tutti_layernorm_forward(layer, ctx, &call));
        *gamma = stored;
    }
    CHECK_OK(tutti_layernorm_forward(layer, ctx, &call));
    tutti_params_destroy(&params);
    CHECK_OK(tutti_param_bind(gamma, &own, NULL)); /* it is the caller's again */
    CHECK_OK(tutti_free(ctx, (void **)&memory));
    tutti_layer_destroy(&layer);
}

static void bad_param_bind(void)
{
    static float memory[64];
    tutti_layer *layer = small_norm(TUTTI_F32, TUTTI_F32);
    tutti_param *gamma = tutti_layer_param(layer, 0);
    tutti_tensor good = tutti_tensor_1d(memory, TUTTI_F32, 6), bad = good;
    tutti_tensor grad = tutti_tensor_1d(memory + 8, TUTTI_F32, 6);
    CHECK_FAILS(TUTTI_ERR_ARG, "param", tutti_param_bind(NULL, &good, &grad));
    CHECK_FAILS(TUTTI_ERR_ARG, "value", tutti_param_bind(gamma, NULL, &grad));
    static const char *const words[] = {
        ".data is NULL",        " is bf16, want f32", " is i32, want f32",
        " is [5], want [6]",    " is [-6], want [6]", "",
        " is [2, 3], want [6]", " is not contiguous", " is of dtype 0 (not set), want f32"};
    for (int as_grad = 0; as_grad < 2; as_grad++)
        for (int wrong = 0; wrong < HARNESS_COUNT(words); wrong++) {
            const char *what = as_grad ? "grad" : "value", *word = words[wrong];
            char message[64];
            bad = as_grad ? grad : good;
            switch (wrong) {
            case 0:
                bad.data = NULL;
                break;
            case 1:
                bad.dtype = TUTTI_BF16;
                break;
            case 2:
                bad.dtype = TUTTI_I32;
                break;
            case 3:
                bad.dims[0] = 5;
                break;
            case 4:
                bad.dims[0] = -6;
                break;
            case 5:
                bad.ndim = 0;
                word = as_grad ? " is of 0 dimensions, want [6]" : ".ndim is 0, want 1 to 4";
                break;
            case 6:
                bad = tutti_tensor_2d(bad.data, TUTTI_F32, 2, 3);
                break;
            case 7:
                bad.strides[0] = 2;
                break;
            case 8:
                bad.dtype = (tutti_dtype)0;
                break;
            }
            harness_where("%s, wrong in way %d", what, wrong);
            snprintf(message, sizeof message, "param_bind: gamma: %s%s", what, word);
            CHECK_FAILS(TUTTI_ERR_ARG, message,
                        tutti_param_bind(gamma, as_grad ? &good : &bad, as_grad ? &bad : &grad));
            check_has_no_memory(gamma);
        }
    harness_where(NULL);
    CHECK_FAILS(TUTTI_ERR_ARG, "gamma", tutti_param_bind(gamma, NULL, NULL));
    tutti_param odd = own_param("odd", TUTTI_F32, 6); /* of an invalid shape */
    bad = good, bad.ndim = odd.value.ndim = TUTTI_MAX_DIMS + 1;
    CHECK_FAILS(TUTTI_ERR_ARG, "ndim", tutti_param_bind(&odd, &bad, NULL));
    CHECK_OK(tutti_param_bind(gamma, &good, NULL));
    tutti_layer_destroy(&layer);

    layer = small_norm(TUTTI_F64, TUTTI_F64); /* f64 wants f64 gradients */
    static double wide[6];
    tutti_tensor value = tutti_tensor_1d(wide, TUTTI_F64, 6);
    CHECK_FAILS(TUTTI_ERR_ARG, "grad",
                tutti_param_bind(tutti_layer_param(layer, 0), &value, &grad));
    tutti_layer_destroy(&layer);
    check_stored();
}

static void bad_param_bind_master(void)
{
    static float memory[32];
    static double wide[6];
    tutti_tensor value = tutti_tensor_2d(memory, TUTTI_BF16, 2, 3), bad;
    const tutti_tensor good = tutti_tensor_2d(memory + 4, TUTTI_F32, 2, 3);
    tutti_param param = own_param("p", TUTTI_BF16, 6);
    param.value = value, param.value.data = NULL;
    CHECK_FAILS(TUTTI_ERR_STATE, "p is not bound", tutti_param_bind_master(&param, &good));
    CHECK_OK(tutti_param_bind(&param, &value, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "param is", tutti_param_bind_master(NULL, &good));
    CHECK_FAILS(TUTTI_ERR_ARG, "master is", tutti_param_bind_master(&param, NULL));
    static const char *const words[] = {
        ".data is NULL",           " is f64, want f32",    " is bf16, want f32",
        " is [2, 4], want [2, 3]", " is [2], want [2, 3]", " is of 99 dimensions, want [2, 3]",
        " is not contiguous",      " overlaps the value",  " overlaps the value"};
    for (int wrong = 0; wrong < HARNESS_COUNT(words); wrong++) {
        char message[64];
        bad = good;
        if (wrong == 0) bad.data = NULL;
        if (wrong == 1) bad.dtype = TUTTI_F64;
        if (wrong == 2) bad.dtype = TUTTI_BF16;
        if (wrong == 3) bad.dims[1] = 4;
        if (wrong == 4) bad.ndim = 1;
        if (wrong == 5) bad.ndim = 99;
        if (wrong == 6) bad.strides[0] = 4;
        if (wrong == 7) bad.data = memory + 2; /* the value's last elements */
        if (wrong == 8) bad.data = memory;
        harness_where("wrong in way %d", wrong);
        snprintf(message, sizeof message, "param_bind_master: p: master%s", words[wrong]);
        CHECK_FAILS(TUTTI_ERR_ARG, message, tutti_param_bind_master(&param, &bad));
        CHECK(param.master.data == value.data, "a refused master was bound");
    }
    harness_where(NULL);
    CHECK_OK(tutti_param_bind_master(&param, &good));
    CHECK(param.master.data == good.data && param.value.data == value.data, "it was not bound");
    CHECK_OK(tutti_param_bind(&param, &value, NULL));
    CHECK(param.master.data == value.data, "a master outlives the value's binding");
    /* a store's parameters have its masters, also beside another store's and the caller's own */
    tutti_param in_store[2], *first = &in_store[0];
    tutti_params *params[2];
    for (int i = 0; i < 2; i++) params[i] = built_store(&in_store[i]);
    CHECK_FAILS(TUTTI_ERR_STATE, in_a_store, tutti_param_bind_master(first, &good));
    CHECK_FAILS(TUTTI_ERR_STATE, in_a_store, tutti_param_bind(first, &first->value, NULL));
    CHECK_OK(tutti_param_bind(&param, &value, NULL));
    tutti_params_destroy(&params[1]);
    CHECK_FAILS(TUTTI_ERR_STATE, in_a_store, tutti_param_bind(first, &first->value, NULL));
    tutti_params_destroy(&params[0]);
    CHECK_OK(tutti_param_bind(first, &first->value, NULL));
    /* with the same type master and value are the same tensor */
    for (int i = 0; i < 2; i++) {
        tutti_dtype dtype = i ? TUTTI_F64 : TUTTI_F32;
        param = own_param("p", dtype, 6);
        value = tutti_tensor_1d(i ? (void *)wide : memory, dtype, 6);
        bad = tutti_tensor_1d(memory + 8, TUTTI_F32, 6);
        CHECK_OK(tutti_param_bind(&param, &value, NULL));
        CHECK_FAILS(TUTTI_ERR_ARG, "separate master", tutti_param_bind_master(&param, &bad));
    }
}

static void bad_param_init(void)
{
    tutti_context *ctx = harness_context();
    static float memory[8];
    char long_name[TUTTI_NAME_MAX + 1];
    memset(long_name, 'n', TUTTI_NAME_MAX);
    long_name[TUTTI_NAME_MAX] = 0;
    const tutti_tensor value = tutti_tensor_1d(memory, TUTTI_F32, 5);
    tutti_param good = own_param("p", TUTTI_F32, 5), bad = good;
    CHECK_FAILS(TUTTI_ERR_STATE, "p is not bound", tutti_param_init(&bad, ctx, NULL, 1));
    CHECK_OK(tutti_param_bind(&good, &value, NULL));
    good.init = TUTTI_INIT_ONE;
    CHECK_FAILS(TUTTI_ERR_ARG, "param is", tutti_param_init(NULL, ctx, "p", 1));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_param_init(&good, NULL, "p", 1));
    const char *const names[] = {"",     "a b", "/p",      "p/",
                                 "a//b", "..",  long_name, "a/a/a/a/a/a/a/a/a/a/a/a/a/a/p"};
    for (int i = 0; i < HARNESS_COUNT(names); i++)
        CHECK_FAILS(TUTTI_ERR_ARG, "name", tutti_param_init(&good, ctx, names[i], 1));
    for (int wrong = 0; wrong < 8; wrong++) {
        const char *word = "value";
        bad = good;
        if (wrong == 0) bad.init = (tutti_init)99, word = "init";
        if (wrong == 1) bad.init_bound = NAN, word = "init_bound";
        if (wrong == 2) bad.name[0] = 0, word = "name";
        if (wrong == 3) memset(bad.name, 'n', sizeof bad.name), word = "name";
        if (wrong == 4) bad.value.dtype = TUTTI_I32;
        if (wrong == 5) bad.value.ndim = 5;
        if (wrong == 6) bad.value.dims[0] = -5;
        if (wrong == 7) bad.value.strides[0] = 2;
        harness_where("wrong in way %d", wrong);
        CHECK_FAILS(TUTTI_ERR_ARG, word, tutti_param_init(&bad, ctx, NULL, 1));
    }
    harness_where(NULL);
    CHECK(memory[0] == 0, "a refused call has written");
}

const harness_test bad_param[] = {
    {"tutti_param_bind", bad_param_bind},
    {"tutti_param_bind_master", bad_param_bind_master},
    {"tutti_param_init", bad_param_init},
    {NULL, NULL},
};
