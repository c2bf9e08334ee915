/* Bad input for param.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bad_input.h"

static tutti_layer *norm(tutti_dtype dtype, tutti_dtype param)
{
    tutti_layernorm_desc desc = TUTTI_LAYERNORM_DESC_INIT;
    desc.cols = 6;
    desc.x_dtype = desc.y_dtype = dtype;
    desc.param_dtype = param;
    tutti_layer *layer = NULL;
    CHECK_OK(tutti_layernorm_create(harness_context(), &desc, &layer));
    return layer;
}

static tutti_param own(const char *name, tutti_dtype dtype, int64_t count)
{
    tutti_param param = {.weight_decay = 1, .lr_scale = 1};
    strncpy(param.name, name, TUTTI_NAME_MAX - 1);
    param.value = tutti_tensor_1d(NULL, dtype, count);
    return param;
}

tutti_params *bare_store(void)
{
    tutti_params *params = NULL;
    CHECK_OK(tutti_params_create(harness_context(), NULL, &params));
    return params;
}

tutti_params *built_store(tutti_param *param)
{
    tutti_params *params = bare_store();
    *param = own("p", TUTTI_F32, 5);
    CHECK_OK(tutti_params_add_param(params, param));
    CHECK_OK(tutti_params_build(params, harness_context()));
    return params;
}

static void check_unbound(const tutti_param *param)
{
    CHECK(!param->value.data && !param->grad.data && !param->master.data,
          "a refused parameter was bound");
}

/* A layer whose store trains other memory than the layer has does not run. */
static void check_stored(void)
{
    tutti_context *ctx = harness_context();
    tutti_params *params = bare_store();
    tutti_layer *layer = norm(TUTTI_F32, TUTTI_F32);
    tutti_param *gamma = tutti_layer_param(layer, 0);
    float *memory = NULL;
    CHECK_OK(tutti_alloc(ctx, 64 * sizeof *memory, (void **)&memory));
    CHECK_OK(tutti_zero(ctx, memory, 64 * sizeof *memory));
    tutti_tensor x = tutti_tensor_2d(memory, TUTTI_F32, 1, 6), y = x, own = gamma->value, grad;
    y.data = memory + 8, own.data = memory + 16;
    const tutti_layernorm_call call = {.x = &x, .y = &y};
    CHECK_OK(tutti_params_add(params, layer, "norm"));
    CHECK_OK(tutti_params_build(params, ctx));
    const tutti_param stored = *gamma;
    for (int way = 0; way < 3; way++) {
        CHECK_OK(tutti_layernorm_forward(layer, ctx, &call));
        grad = way == 1 ? own : stored.grad;
        CHECK_OK(tutti_param_bind(gamma, way ? &stored.value : &own, way == 2 ? NULL : &grad));
        CHECK_FAILS(TUTTI_ERR_STATE,
                    "parameter norm/gamma is bound to other memory than its store's",
                    tutti_layernorm_forward(layer, ctx, &call));
        *gamma = stored;
    }
    CHECK_OK(tutti_layernorm_forward(layer, ctx, &call));
    tutti_params_destroy(&params);
    CHECK_OK(tutti_free(ctx, (void **)&memory));
    tutti_layer_destroy(&layer);
}

static void bad_param_bind(void)
{
    static float memory[64];
    tutti_layer *layer = norm(TUTTI_F32, TUTTI_F32);
    tutti_param *gamma = tutti_layer_param(layer, 0);
    tutti_tensor good = tutti_tensor_1d(memory, TUTTI_F32, 6), bad = good;
    tutti_tensor grad = tutti_tensor_1d(memory + 8, TUTTI_F32, 6);
    CHECK_FAILS(TUTTI_ERR_ARG, "param", tutti_param_bind(NULL, &good, &grad));
    CHECK_FAILS(TUTTI_ERR_ARG, "value", tutti_param_bind(gamma, NULL, &grad));
    const int wrongs = 8;
    for (int as_grad = 0; as_grad < 2; as_grad++)
        for (int wrong = 0; wrong < wrongs; wrong++) {
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
                break;
            case 6:
                bad = tutti_tensor_2d(bad.data, TUTTI_F32, 2, 3);
                break;
            case 7:
                bad.strides[0] = 2;
                break;
            }
            harness_where("%s, wrong in way %d", as_grad ? "grad" : "value", wrong);
            CHECK_FAILS(TUTTI_ERR_ARG, as_grad ? "grad" : "value",
                        tutti_param_bind(gamma, as_grad ? &good : &bad, as_grad ? &bad : &grad));
            check_unbound(gamma);
        }
    harness_where(NULL);
    CHECK_FAILS(TUTTI_ERR_ARG, "gamma", tutti_param_bind(gamma, NULL, NULL));
    tutti_param odd = own("odd", TUTTI_F32, 6); /* of an invalid shape */
    bad = good, bad.ndim = odd.value.ndim = TUTTI_MAX_DIMS + 1;
    CHECK_FAILS(TUTTI_ERR_ARG, "ndim", tutti_param_bind(&odd, &bad, NULL));
    CHECK_OK(tutti_param_bind(gamma, &good, NULL));
    tutti_layer_destroy(&layer);

    layer = norm(TUTTI_F64, TUTTI_F64); /* f64 wants f64 gradients */
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
    tutti_param param = own("p", TUTTI_BF16, 6);
    param.value = value, param.value.data = NULL;
    CHECK_FAILS(TUTTI_ERR_STATE, "p is not bound", tutti_param_bind_master(&param, &good));
    CHECK_OK(tutti_param_bind(&param, &value, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "param is", tutti_param_bind_master(NULL, &good));
    CHECK_FAILS(TUTTI_ERR_ARG, "master is", tutti_param_bind_master(&param, NULL));
    for (int wrong = 0; wrong < 9; wrong++) {
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
        CHECK_FAILS(TUTTI_ERR_ARG, "master", tutti_param_bind_master(&param, &bad));
        CHECK(param.master.data == value.data, "a refused master was bound");
    }
    harness_where(NULL);
    CHECK_OK(tutti_param_bind_master(&param, &good));
    CHECK(param.master.data == good.data && param.value.data == value.data, "it was not bound");
    CHECK_OK(tutti_param_bind(&param, &value, NULL));
    CHECK(param.master.data == value.data, "a master outlives the value's binding");
    /* with the same type master and value are the same tensor */
    for (int i = 0; i < 2; i++) {
        tutti_dtype dtype = i ? TUTTI_F64 : TUTTI_F32;
        param = own("p", dtype, 6);
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
    tutti_param good = own("p", TUTTI_F32, 5), bad = good;
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

static tutti_status some_alloc(void *self, size_t bytes, void **data)
{
    (void)self;
    *data = malloc(bytes);
    return TUTTI_OK;
}

static void bad_params_create(void)
{
    tutti_context *ctx = harness_context();
    tutti_params *params = UNTOUCHED(tutti_params);
    CHECK_FAILS_KEEPING(params, TUTTI_ERR_ARG, "ctx", tutti_params_create(NULL, NULL, &params));
    CHECK_FAILS(TUTTI_ERR_ARG, "params", tutti_params_create(ctx, NULL, NULL));
    static const int dtypes[] = {TUTTI_F16, TUTTI_BF16, TUTTI_I32, TUTTI_U8, 99, -1};
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    for (int i = 0; i < HARNESS_COUNT(dtypes); i++) {
        desc.master_dtype = (tutti_dtype)dtypes[i];
        CHECK_FAILS_KEEPING(params, TUTTI_ERR_ARG, "master_dtype",
                            tutti_params_create(ctx, &desc, &params));
    }
    desc = (tutti_params_desc)TUTTI_PARAMS_DESC_INIT;
    desc.gradient_memory.alloc = some_alloc; /* but no way to free */
    CHECK_FAILS_KEEPING(params, TUTTI_ERR_ARG, "gradient_memory",
                        tutti_params_create(ctx, &desc, &params));
    desc = (tutti_params_desc)TUTTI_PARAMS_DESC_INIT;
    desc.gradient_memory.hold = free; /* but no release */
    CHECK_FAILS_KEEPING(params, TUTTI_ERR_ARG, "gradient_memory",
                        tutti_params_create(ctx, &desc, &params));
}

static void bad_params_destroy(void)
{
    tutti_params_destroy(NULL);
    tutti_params *params = NULL;
    tutti_params_destroy(&params);
    params = bare_store();
    tutti_params_destroy(&params);
    CHECK(!params, "the pointer was not cleared");
    /* its layers can go into another store, built or not, under any name */
    tutti_layer *layer = norm(TUTTI_F32, TUTTI_F32);
    for (int built = 0; built < 3; built++) {
        params = bare_store();
        CHECK_OK(tutti_params_add(params, layer, built == 1 ? "a/b" : "a"));
        if (built) CHECK_OK(tutti_params_build(params, harness_context()));
        const tutti_param *gamma = tutti_layer_param(layer, 0);
        CHECK(tutti_params_find(params, built == 1 ? "a/b/gamma" : "a/gamma") == gamma,
              "in store %d gamma is called '%s'", built, gamma->name);
        tutti_params_destroy(&params);
        CHECK(strcmp(gamma->name, "gamma") == 0, "after store %d gamma is called '%s'", built,
              gamma->name);
    }
    tutti_layer_destroy(&layer);
}

/* Names that a checkpoint cannot hold. */
static const char *const no_names[] = {"/",    "a/",       "/a",  "a//b", "a b", "a/.",
                                       "../a", "\xc3\xa4", "a\n", "a:b",  "."};

static void bad_params_add(void)
{
    tutti_context *ctx = harness_context();
    tutti_params *params = bare_store();
    tutti_layer *layer = norm(TUTTI_F32, TUTTI_F32), *half = norm(TUTTI_BF16, TUTTI_BF16);
    tutti_layer *other_half = norm(TUTTI_F16, TUTTI_F16), *wide = norm(TUTTI_F64, TUTTI_F64);
    char name[TUTTI_NAME_MAX + 1];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    CHECK_FAILS(TUTTI_ERR_ARG, "params", tutti_params_add(NULL, layer, "a"));
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", tutti_params_add(params, NULL, "a"));
    CHECK_FAILS(TUTTI_ERR_ARG, "prefix", tutti_params_add(params, layer, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "prefix", tutti_params_add(params, layer, ""));
    CHECK_FAILS(TUTTI_ERR_ARG, "longer", tutti_params_add(params, layer, name));
    for (int i = 0; i < HARNESS_COUNT(no_names); i++)
        CHECK_FAILS(TUTTI_ERR_ARG, "prefix", tutti_params_add(params, layer, no_names[i]));
    CHECK_FAILS(TUTTI_ERR_ARG, "want at most 13",
                tutti_params_add(params, layer, "a/a/a/a/a/a/a/a/a/a/a/a/a/a"));
    CHECK_FAILS(TUTTI_ERR_ARG, "f64", tutti_params_add(params, wide, "wide"));
    if (foreign_context()) {
        tutti_layernorm_desc desc = TUTTI_LAYERNORM_DESC_INIT;
        desc.cols = 6;
        tutti_layer *foreign = NULL;
        CHECK_OK(tutti_layernorm_create(foreign_context(), &desc, &foreign));
        CHECK_FAILS(TUTTI_ERR_ARG, "foreign", tutti_params_add(params, foreign, "foreign"));
        tutti_layer_destroy(&foreign);
    }
    CHECK(strcmp(tutti_layer_param(layer, 0)->name, "gamma") == 0,
          "a refused parameter is called '%s'", tutti_layer_param(layer, 0)->name);
    CHECK_OK(tutti_params_add(params, half, "half"));
    CHECK_FAILS(TUTTI_ERR_ARG, "half", tutti_params_add(params, layer, "half")); /* taken */
    CHECK_FAILS(TUTTI_ERR_ARG, "taken", tutti_params_add(params, layer, "half/gamma"));
    CHECK_FAILS(TUTTI_ERR_ARG, "bf16", tutti_params_add(params, other_half, "other"));
    CHECK_FAILS(TUTTI_ERR_ARG, "half", tutti_params_add(params, half, "again"));
    CHECK_OK(tutti_params_build(params, ctx));
    CHECK_FAILS(TUTTI_ERR_STATE, "built", tutti_params_add(params, layer, "late"));
    CHECK(tutti_params_count(params) == 2, "the store has %d parameters",
          tutti_params_count(params));
    /* a layer is in one store */
    tutti_params *other = bare_store();
    CHECK_FAILS(TUTTI_ERR_STATE, "other: the layer is in another store, as half/gamma",
                tutti_params_add(other, half, "other"));
    CHECK(tutti_params_find(params, "half/gamma") == tutti_layer_param(half, 0),
          "the parameter in the first store is called '%s'", tutti_layer_param(half, 0)->name);
    CHECK_OK(tutti_params_add(other, layer, "half"));
    tutti_params_destroy(&other);
    tutti_params_destroy(&params);
    tutti_layer_destroy(&layer);
    tutti_layer_destroy(&half);
    tutti_layer_destroy(&other_half);
    tutti_layer_destroy(&wide);
}

static void bad_params_add_param(void)
{
    tutti_context *ctx = harness_context();
    tutti_params *params = bare_store();
    tutti_param good = own("good", TUTTI_F32, 3), bad;
    CHECK_FAILS(TUTTI_ERR_ARG, "params", tutti_params_add_param(NULL, &good));
    CHECK_FAILS(TUTTI_ERR_ARG, "param", tutti_params_add_param(params, NULL));
    for (int i = 0; i < HARNESS_COUNT(no_names); i++) {
        bad = own(no_names[i], TUTTI_F32, 3);
        CHECK_FAILS(TUTTI_ERR_ARG, "name", tutti_params_add_param(params, &bad));
    }
    bad = own("a/a/a/a/a/a/a/a/a/a/a/a/a/a/p", TUTTI_F32, 3);
    CHECK_FAILS(TUTTI_ERR_ARG, "want at most 14", tutti_params_add_param(params, &bad));
    for (int wrong = 0;; wrong++) {
        const char *word = "bad";
        bad = own("bad", TUTTI_F32, 3);
        switch (wrong) {
        case 0:
            bad.name[0] = 0, word = "name";
            break;
        case 1:
            memset(bad.name, 'n', sizeof bad.name), word = "name";
            break;
        case 2:
            bad.value.ndim = 0, word = "ndim";
            break;
        case 3:
            bad.value.ndim = 5, word = "ndim";
            break;
        case 4:
            bad.value.dims[0] = 0, word = "dims[0]";
            break;
        case 5:
            bad.value.dims[0] = -1, word = "dims[0]";
            break;
        case 6:
            bad.value.dims[0] = INT64_MAX, word = "dims[0]";
            break;
        case 7:
            bad.value.dtype = TUTTI_I32, word = "i32";
            break;
        case 8:
            bad.value.dtype = (tutti_dtype)99, word = "type";
            break;
        case 9:
            bad.value.dtype = TUTTI_F64, word = "f64";
            break;
        case 10:
            bad.weight_decay = NAN, word = "weight_decay";
            break;
        case 11:
            bad.weight_decay = -1, word = "weight_decay";
            break;
        case 12:
            bad.lr_scale = INFINITY, word = "lr_scale";
            break;
        case 13:
            bad.lr_scale = -1, word = "lr_scale";
            break;
        case 14:
            bad.init = (tutti_init)99, word = "init";
            break;
        case 15:
            bad.init_bound = NAN, word = "init_bound";
            break;
        case 16:
            bad.init_bound = -1, word = "init_bound";
            break;
        default:
            word = NULL;
        }
        if (!word) break;
        harness_where("wrong in way %d", wrong);
        CHECK_FAILS(TUTTI_ERR_ARG, word, tutti_params_add_param(params, &bad));
    }
    harness_where(NULL);
    CHECK_OK(tutti_params_add_param(params, &good));
    CHECK_FAILS(TUTTI_ERR_ARG, "good", tutti_params_add_param(params, &good));
    bad = own("good", TUTTI_F32, 3);
    CHECK_FAILS(TUTTI_ERR_ARG, "good", tutti_params_add_param(params, &bad));
    bad = own("good/gamma", TUTTI_F32, 3); /* below it */
    CHECK_FAILS(TUTTI_ERR_ARG, "taken", tutti_params_add_param(params, &bad));
    CHECK_OK(tutti_params_build(params, ctx));
    bad = own("late", TUTTI_F32, 3);
    CHECK_FAILS(TUTTI_ERR_STATE, "built", tutti_params_add_param(params, &bad));
    check_unbound(&bad);
    CHECK(tutti_params_count(params) == 1, "the store has %d parameters",
          tutti_params_count(params));
    tutti_params_destroy(&params);
}

static void bad_params_tie(void)
{
    tutti_params *params = bare_store();
    tutti_param a = own("a", TUTTI_F32, 3), b = own("b", TUTTI_F32, 3), c = own("c", TUTTI_F32, 4);
    tutti_param d = own("d", TUTTI_BF16, 3), out = own("out", TUTTI_F32, 3);
    tutti_param *all[] = {&a, &b, &c, &d};
    for (int i = 0; i < 4; i++) CHECK_OK(tutti_params_add_param(params, all[i]));
    CHECK_FAILS(TUTTI_ERR_ARG, "params", tutti_params_tie(NULL, &a, &b));
    CHECK_FAILS(TUTTI_ERR_ARG, "param", tutti_params_tie(params, NULL, &b));
    CHECK_FAILS(TUTTI_ERR_ARG, "other", tutti_params_tie(params, &a, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "out", tutti_params_tie(params, &out, &a));
    CHECK_FAILS(TUTTI_ERR_ARG, "out", tutti_params_tie(params, &a, &out));
    CHECK_FAILS(TUTTI_ERR_ARG, "c", tutti_params_tie(params, &a, &c));
    CHECK_FAILS(TUTTI_ERR_ARG, "d", tutti_params_tie(params, &a, &d));
    CHECK_FAILS(TUTTI_ERR_ARG, "a", tutti_params_tie(params, &a, &a));
    CHECK_OK(tutti_params_tie(params, &b, &a));
    CHECK_FAILS(TUTTI_ERR_ARG, "tied", tutti_params_tie(params, &b, &a));
    CHECK_FAILS(TUTTI_ERR_ARG, "tied", tutti_params_tie(params, &a, &b));
    CHECK_OK(tutti_params_build(params, harness_context()));
    CHECK_FAILS(TUTTI_ERR_STATE, "built", tutti_params_tie(params, &a, &b));
    CHECK(tutti_params_count(params) == 3, "the store has %d parameters",
          tutti_params_count(params));
    tutti_params_destroy(&params);
}

static tutti_status no_memory(void *self, size_t bytes, void **data)
{
    (void)self, (void)bytes, (void)data;
    tutti_dtype dtype;
    (void)tutti_dtype_parse("nothing to give", &dtype);
    return TUTTI_ERR_MEMORY;
}

static tutti_status no_free(void *self, void *data)
{
    (void)self, (void)data;
    return TUTTI_OK;
}

static void bad_params_freeze(void)
{
    tutti_param param, other = {.name = "other"};
    tutti_params *params = built_store(&param), *bare = bare_store();
    CHECK_FAILS(TUTTI_ERR_ARG, "params", tutti_params_freeze(NULL, &param));
    CHECK_FAILS(TUTTI_ERR_ARG, "param is NULL", tutti_params_freeze(bare, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "other is not in the store", tutti_params_freeze(bare, &other));
    CHECK_FAILS(TUTTI_ERR_STATE, "built", tutti_params_freeze(params, &param));
    tutti_params_destroy(&params);
    tutti_params_destroy(&bare);
}

static void bad_params_build(void)
{
    tutti_context *ctx = harness_context();
    tutti_params *params = bare_store();
    CHECK_FAILS(TUTTI_ERR_ARG, "params", tutti_params_build(NULL, ctx));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_params_build(params, NULL));
    if (foreign_context())
        CHECK_FAILS(TUTTI_ERR_ARG, "context", tutti_params_build(params, foreign_context()));
    CHECK_OK(tutti_params_build(params, ctx));
    CHECK_FAILS(TUTTI_ERR_STATE, "built", tutti_params_build(params, ctx));
    tutti_params_destroy(&params);

    /* each count is valid, their sum overflows */
    params = bare_store();
    tutti_param huge[8];
    for (int i = 0; i < HARNESS_COUNT(huge); i++) {
        char name[] = {'h', (char)('0' + i), 0};
        huge[i] = own(name, TUTTI_F32, INT64_C(1) << 57);
        CHECK_OK(tutti_params_add_param(params, &huge[i]));
    }
    CHECK_FAILS(TUTTI_ERR_MEMORY, "2^59", tutti_params_build(params, ctx));
    check_unbound(&huge[0]);
    tutti_params_destroy(&params);

    /* an allocator that fails: its status, and nothing bound */
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    desc.gradient_memory = (tutti_allocator){.alloc = no_memory, .free = no_free};
    CHECK_OK(tutti_params_create(ctx, &desc, &params));
    tutti_param param = own("p", TUTTI_F32, 3);
    CHECK_OK(tutti_params_add_param(params, &param));
    CHECK_FAILS(TUTTI_ERR_MEMORY, "nothing to give", tutti_params_build(params, ctx));
    check_unbound(&param);
    CHECK_FAILS(TUTTI_ERR_STATE, "built", tutti_params_zero_grad(params, ctx));
    tutti_params_destroy(&params);
}

static void bad_params_init(void)
{
    tutti_context *ctx = harness_context();
    tutti_params *params = bare_store();
    CHECK_FAILS(TUTTI_ERR_ARG, "params", tutti_params_init(NULL, ctx, 1));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_params_init(params, NULL, 1));
    CHECK_FAILS(TUTTI_ERR_STATE, "built", tutti_params_init(params, ctx, 1));
    if (foreign_context())
        CHECK_FAILS(TUTTI_ERR_ARG, "context", tutti_params_init(params, foreign_context(), 1));
    tutti_params_destroy(&params);
}

/* What a function of a built store and a context refuses; name: as its messages begin. */
static void bad_store(tutti_status (*function)(tutti_params *params, tutti_context *ctx),
                      const char *name)
{
    tutti_context *ctx = harness_context();
    tutti_params *params = bare_store();
    char params_null[64], ctx_null[64];
    snprintf(params_null, sizeof params_null, "%s: params is NULL", name);
    snprintf(ctx_null, sizeof ctx_null, "%s: ctx is NULL", name);
    CHECK_FAILS(TUTTI_ERR_ARG, params_null, function(NULL, ctx));
    CHECK_FAILS(TUTTI_ERR_ARG, ctx_null, function(params, NULL));
    CHECK_FAILS(TUTTI_ERR_STATE, "built", function(params, ctx));
    if (foreign_context())
        CHECK_FAILS(TUTTI_ERR_ARG, "context", function(params, foreign_context()));
    tutti_params_destroy(&params);
}

static void bad_params_refresh(void)
{
    bad_store(tutti_params_refresh, "params_refresh");
}

static void bad_params_settle(void)
{
    bad_store(tutti_params_settle, "params_settle");
}

static void bad_params_zero_grad(void)
{
    bad_store(tutti_params_zero_grad, "params_zero_grad");
}

static void bad_params_count(void)
{
    CHECK(tutti_params_count(NULL) == 0, "NULL has %d parameters", tutti_params_count(NULL));
}

static void bad_params_get(void)
{
    tutti_param param;
    tutti_params *params = built_store(&param);
    CHECK(!tutti_params_get(NULL, 0), "NULL has a parameter");
    CHECK(!tutti_params_get(params, -1) && !tutti_params_get(params, 1) &&
              tutti_params_get(params, 0) == &param,
          "another parameter");
    tutti_params_destroy(&params);
}

static void bad_params_find(void)
{
    tutti_param param;
    tutti_params *params = built_store(&param);
    CHECK(!tutti_params_find(NULL, param.name) && !tutti_params_find(params, NULL),
          "NULL has a parameter");
    CHECK(!tutti_params_find(params, "") && !tutti_params_find(params, "nobody"),
          "a name that nobody has is found");
    tutti_params_destroy(&params);
}

static void bad_params_flat(void)
{
    tutti_param param;
    tutti_params *params = built_store(&param), *unbuilt = bare_store();
    tutti_tensor flat = {.data = UNTOUCHED(void)};
    CHECK_FAILS_KEEPING(flat.data, TUTTI_ERR_ARG, "params",
                        tutti_params_flat(NULL, TUTTI_PARAMS_MASTER, &flat));
    CHECK_FAILS(TUTTI_ERR_ARG, "flat", tutti_params_flat(params, TUTTI_PARAMS_MASTER, NULL));
    CHECK_FAILS_KEEPING(flat.data, TUTTI_ERR_ARG, "buffer",
                        tutti_params_flat(params, (tutti_params_buffer)99, &flat));
    CHECK_FAILS_KEEPING(flat.data, TUTTI_ERR_STATE, "built",
                        tutti_params_flat(unbuilt, TUTTI_PARAMS_MASTER, &flat));
    tutti_params_destroy(&params);
    tutti_params_destroy(&unbuilt);
}

static void bad_params_slice_count(void)
{
    tutti_params *unbuilt = bare_store();
    CHECK(tutti_params_slice_count(NULL) == 0 && tutti_params_slice_count(unbuilt) == 0,
          "there are slices of no store");
    tutti_params_destroy(&unbuilt);
}

static void bad_params_slice(void)
{
    tutti_param param;
    tutti_params *params = built_store(&param), *unbuilt = bare_store();
    int64_t first = -7, count = -7;
    CHECK_FAILS(TUTTI_ERR_ARG, "params", tutti_params_slice(NULL, 0, &first, &count));
    CHECK_FAILS(TUTTI_ERR_ARG, "first", tutti_params_slice(params, 0, NULL, &count));
    CHECK_FAILS(TUTTI_ERR_ARG, "count", tutti_params_slice(params, 0, &first, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "index", tutti_params_slice(params, -1, &first, &count));
    CHECK_FAILS(TUTTI_ERR_ARG, "index", tutti_params_slice(params, 1, &first, &count));
    CHECK_FAILS(TUTTI_ERR_STATE, "built", tutti_params_slice(unbuilt, 0, &first, &count));
    CHECK(first == -7 && count == -7, "a failed call wrote a slice");
    tutti_params_destroy(&params);
    tutti_params_destroy(&unbuilt);
}

/* Nothing but its size: 0 is every default. */
static void bad_params_desc_default(void)
{
    tutti_params_desc desc = tutti_params_desc_default(), zero = {.size = sizeof zero};
    CHECK(memcmp(&desc, &zero, sizeof desc) == 0, "the default is not all 0");
}

const harness_test bad_params[] = {
    {"tutti_params_desc_default", bad_params_desc_default},
    {"tutti_param_bind", bad_param_bind},
    {"tutti_param_bind_master", bad_param_bind_master},
    {"tutti_param_init", bad_param_init},
    {"tutti_params_create", bad_params_create},
    {"tutti_params_destroy", bad_params_destroy},
    {"tutti_params_add", bad_params_add},
    {"tutti_params_add_param", bad_params_add_param},
    {"tutti_params_tie", bad_params_tie},
    {"tutti_params_freeze", bad_params_freeze},
    {"tutti_params_build", bad_params_build},
    {"tutti_params_init", bad_params_init},
    {"tutti_params_refresh", bad_params_refresh},
    {"tutti_params_settle", bad_params_settle},
    {"tutti_params_zero_grad", bad_params_zero_grad},
    {"tutti_params_count", bad_params_count},
    {"tutti_params_get", bad_params_get},
    {"tutti_params_find", bad_params_find},
    {"tutti_params_flat", bad_params_flat},
    {"tutti_params_slice_count", bad_params_slice_count},
    {"tutti_params_slice", bad_params_slice},
    {NULL, NULL},
};
