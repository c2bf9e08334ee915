/* Bad input for param.h: stores. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bad_input.h"

tutti_params *bare_store(void)
{
    tutti_params *params = NULL;
    CHECK_OK(tutti_params_create(harness_context(), NULL, &params));
    return params;
}

tutti_params *built_store(tutti_param *param)
{
    tutti_params *params = bare_store();
    *param = own_param("p", TUTTI_F32, 5);
    CHECK_OK(tutti_params_add_param(params, param));
    CHECK_OK(tutti_params_build(params, harness_context()));
    return params;
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
    tutti_layer *layer = small_norm(TUTTI_F32, TUTTI_F32);
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
    tutti_layer *layer = small_norm(TUTTI_F32, TUTTI_F32),
                *half = small_norm(TUTTI_BF16, TUTTI_BF16);
    tutti_layer *other_half = small_norm(TUTTI_F16, TUTTI_F16),
                *wide = small_norm(TUTTI_F64, TUTTI_F64);
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
    tutti_param good = own_param("good", TUTTI_F32, 3), bad;
    CHECK_FAILS(TUTTI_ERR_ARG, "params", tutti_params_add_param(NULL, &good));
    CHECK_FAILS(TUTTI_ERR_ARG, "param", tutti_params_add_param(params, NULL));
    for (int i = 0; i < HARNESS_COUNT(no_names); i++) {
        bad = own_param(no_names[i], TUTTI_F32, 3);
        CHECK_FAILS(TUTTI_ERR_ARG, "name", tutti_params_add_param(params, &bad));
    }
    bad = own_param("a/a/a/a/a/a/a/a/a/a/a/a/a/a/p", TUTTI_F32, 3);
    CHECK_FAILS(TUTTI_ERR_ARG, "want at most 14", tutti_params_add_param(params, &bad));
    for (int wrong = 0;; wrong++) {
        const char *word = "bad";
        bad = own_param("bad", TUTTI_F32, 3);
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
            bad.value.dtype = (tutti_dtype)99, word = "value is unknown, want a float";
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
        case 17:
            bad.value.dtype = (tutti_dtype)0, word = "value is of dtype 0 (not set), want a float";
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
    bad = own_param("good", TUTTI_F32, 3);
    CHECK_FAILS(TUTTI_ERR_ARG, "good", tutti_params_add_param(params, &bad));
    bad = own_param("good/gamma", TUTTI_F32, 3); /* below it */
    CHECK_FAILS(TUTTI_ERR_ARG, "taken", tutti_params_add_param(params, &bad));
    CHECK_OK(tutti_params_build(params, ctx));
    bad = own_param("late", TUTTI_F32, 3);
    CHECK_FAILS(TUTTI_ERR_STATE, "built", tutti_params_add_param(params, &bad));
    check_has_no_memory(&bad);
    CHECK(tutti_params_count(params) == 1, "the store has %d parameters",
          tutti_params_count(params));
    tutti_params_destroy(&params);
}

static void bad_params_tie(void)
{
    tutti_params *params = bare_store();
    tutti_param a = own_param("a", TUTTI_F32, 3), b = own_param("b", TUTTI_F32, 3),
                c = own_param("c", TUTTI_F32, 4);
    tutti_param d = own_param("d", TUTTI_BF16, 3), out = own_param("out", TUTTI_F32, 3);
    tutti_param *all[] = {&a, &b, &c, &d};
    for (int i = 0; i < 4; i++) CHECK_OK(tutti_params_add_param(params, all[i]));
    CHECK_FAILS(TUTTI_ERR_ARG, "params is NULL", tutti_params_tie(NULL, &a, &b));
    CHECK_FAILS(TUTTI_ERR_ARG, "param is NULL", tutti_params_tie(params, NULL, &b));
    CHECK_FAILS(TUTTI_ERR_ARG, "other is NULL", tutti_params_tie(params, &a, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "out is not in the store", tutti_params_tie(params, &out, &a));
    CHECK_FAILS(TUTTI_ERR_ARG, "out is not in the store", tutti_params_tie(params, &a, &out));
    CHECK_FAILS(TUTTI_ERR_ARG, "a is f32 [3], c is f32 [4], want one shape and type",
                tutti_params_tie(params, &a, &c));
    CHECK_FAILS(TUTTI_ERR_ARG, "a is f32 [3], d is bf16 [3]", tutti_params_tie(params, &a, &d));
    CHECK_FAILS(TUTTI_ERR_ARG, "a and a are tied already", tutti_params_tie(params, &a, &a));
    CHECK_OK(tutti_params_tie(params, &b, &a));
    CHECK_FAILS(TUTTI_ERR_ARG, "b is tied already", tutti_params_tie(params, &b, &a));
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
        huge[i] = own_param(name, TUTTI_F32, INT64_C(1) << 57);
        CHECK_OK(tutti_params_add_param(params, &huge[i]));
    }
    CHECK_FAILS(TUTTI_ERR_MEMORY, "2^59", tutti_params_build(params, ctx));
    check_has_no_memory(&huge[0]);
    tutti_params_destroy(&params);

    /* an allocator that fails: its status, and nothing bound */
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    desc.gradient_memory = (tutti_allocator){.alloc = no_memory, .free = no_free};
    CHECK_OK(tutti_params_create(ctx, &desc, &params));
    tutti_param param = own_param("p", TUTTI_F32, 3);
    CHECK_OK(tutti_params_add_param(params, &param));
    CHECK_FAILS(TUTTI_ERR_MEMORY, "nothing to give", tutti_params_build(params, ctx));
    check_has_no_memory(&param);
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
