/* Tests of the parameter store. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

/* RMSNorm [10] -> linear 10 -> 20 -> LayerNorm [20] -> linear 20 -> 3 */
enum { LAYERS = 4 };
typedef struct model {
    tutti_layer *layers[LAYERS];
    tutti_params *params;
} model;

static const char *const prefixes[LAYERS] = {"first", "up", "second", "head"};

static void create_layers(model *m, tutti_dtype dtype, tutti_dtype norm_params)
{
    tutti_context *ctx = harness_context();
    tutti_rmsnorm_desc rms = TUTTI_RMSNORM_DESC_INIT;
    rms.cols = 10;
    rms.x_dtype = rms.y_dtype = dtype;
    rms.param_dtype = norm_params;
    CHECK_OK(tutti_rmsnorm_create(ctx, &rms, &m->layers[0]));
    tutti_linear_desc linear = TUTTI_LINEAR_DESC_INIT;
    linear.dtype = dtype;
    linear.in = 10;
    linear.out = 20;
    CHECK_OK(tutti_linear_create(ctx, &linear, &m->layers[1]));
    tutti_layernorm_desc norm = TUTTI_LAYERNORM_DESC_INIT;
    norm.cols = 20;
    norm.x_dtype = norm.y_dtype = dtype;
    norm.param_dtype = norm_params;
    CHECK_OK(tutti_layernorm_create(ctx, &norm, &m->layers[2]));
    linear.in = 20;
    linear.out = 3;
    CHECK_OK(tutti_linear_create(ctx, &linear, &m->layers[3]));
}

static model open_model(tutti_dtype dtype, tutti_dtype norm_params, bool backwards)
{
    model m = {0};
    harness_where("%s, norms %s", tutti_dtype_name(dtype), tutti_dtype_name(norm_params));
    create_layers(&m, dtype, norm_params);
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    if (dtype == TUTTI_F64) desc.master_dtype = TUTTI_F64;
    CHECK_OK(tutti_params_create(harness_context(), &desc, &m.params));
    for (int i = 0; i < LAYERS; i++) {
        int at = backwards ? LAYERS - 1 - i : i;
        CHECK_OK(tutti_params_add(m.params, m.layers[at], prefixes[at]));
    }
    CHECK_OK(tutti_params_build(m.params, harness_context()));
    return m;
}

static void close_model(model *m)
{
    CHECK_OK(tutti_context_synchronize(harness_context()));
    tutti_params_destroy(&m->params);
    for (int i = 0; i < LAYERS; i++) tutti_layer_destroy(&m->layers[i]);
}

static double *get(const tutti_tensor *tensor)
{
    return harness_get(harness_context(), tensor, NULL);
}

static int64_t offset_of(const tutti_tensor *flat, const tutti_tensor *part)
{
    return (int64_t)((char *)part->data - (char *)flat->data) /
           (int64_t)tutti_dtype_size(flat->dtype);
}

static const tutti_dtype types[][2] = {{TUTTI_F32, TUTTI_F32},
                                       {TUTTI_BF16, TUTTI_BF16},
                                       {TUTTI_BF16, TUTTI_F32},
                                       {TUTTI_F16, TUTTI_F32},
                                       {TUTTI_F64, TUTTI_F64}};

/* Last added first, those with masters of another type before all others, which begin with a run of
 * the norm; each at a multiple of TUTTI_PARAM_ALIGN, the same place in all buffers. */
static void test_layout(void)
{
    enum { COUNT = 7, RUN = 16384 };
    static const char *const orders[2][COUNT] = {
        {"head/bias", "head/weight", "second/beta", "second/gamma", "up/bias", "up/weight",
         "first/gamma"},
        {"head/bias", "head/weight", "up/bias", "up/weight", "second/beta", "second/gamma",
         "first/gamma"}};
    static const int64_t all_counts[2][COUNT] = {{3, 60, 20, 20, 20, 200, 10},
                                                 {3, 60, 20, 200, 20, 20, 10}};
    for (int type = 0; type < HARNESS_COUNT(types); type++) {
        model m = open_model(types[type][0], types[type][1], false);
        tutti_tensor master, grad, working;
        CHECK_OK(tutti_params_flat(m.params, TUTTI_PARAMS_MASTER, &master));
        CHECK_OK(tutti_params_flat(m.params, TUTTI_PARAMS_GRAD, &grad));
        CHECK_OK(tutti_params_flat(m.params, TUTTI_PARAMS_WORKING, &working));
        const bool mixed = types[type][0] != types[type][1];
        const char *const *order = orders[mixed];
        const int64_t *counts = all_counts[mixed];
        bool wide = types[type][0] == TUTTI_F64;
        bool has_working = types[type][0] == TUTTI_BF16 || types[type][0] == TUTTI_F16;
        CHECK(master.dtype == (wide ? TUTTI_F64 : TUTTI_F32) && grad.dtype == master.dtype,
              "masters are %s, gradients %s", tutti_dtype_name(master.dtype),
              tutti_dtype_name(grad.dtype));
        CHECK((working.data != NULL) == has_working, "there %s a working buffer",
              working.data ? "is" : "is not");
        CHECK((uintptr_t)master.data % 256 == 0 && (uintptr_t)grad.data % 256 == 0,
              "the buffers are not aligned");
        CHECK(tutti_params_count(m.params) == COUNT, "%d parameters", tutti_params_count(m.params));
        int64_t end = 0, first = -1, all = -1;
        CHECK(tutti_params_slice_count(m.params) == 1, "%d slices",
              tutti_params_slice_count(m.params));
        CHECK_OK(tutti_params_slice(m.params, 0, &first, &all));
        CHECK(first == 0 && all == tutti_tensor_count(&grad), "the slice is %lld from %lld on",
              (long long)all, (long long)first);
        for (int i = 0; i < COUNT; i++) {
            const tutti_param *param = tutti_params_get(m.params, i);
            CHECK(strcmp(param->name, order[i]) == 0, "parameter %d is '%s', want '%s'", i,
                  param->name, order[i]);
            int64_t offset = offset_of(&master, &param->master);
            CHECK(tutti_tensor_count(&param->master) == counts[i] &&
                      tutti_tensor_count(&param->grad) == counts[i] &&
                      tutti_tensor_count(&param->value) == counts[i],
                  "'%s' has another size", param->name);
            const int64_t unit = mixed && i == 4 ? RUN : TUTTI_PARAM_ALIGN;
            CHECK(offset % unit == 0 && offset >= end && offset < end + unit,
                  "'%s' is at %lld, the one before ends at %lld", param->name, (long long)offset,
                  (long long)end);
            CHECK(offset_of(&grad, &param->grad) == offset, "the gradient of '%s' is elsewhere",
                  param->name);
            if (param->value.dtype == master.dtype)
                CHECK(param->value.data == param->master.data, "'%s' has two buffers", param->name);
            else
                CHECK(offset_of(&working, &param->value) == offset,
                      "the working value of '%s' is elsewhere", param->name);
            end = offset + counts[i];
        }
        CHECK(tutti_tensor_count(&master) % TUTTI_PARAM_ALIGN == 0 &&
                  tutti_tensor_count(&master) >= end &&
                  tutti_tensor_count(&master) == tutti_tensor_count(&grad),
              "the buffers have %lld elements", (long long)tutti_tensor_count(&master));
        close_model(&m);
    }
}

/* Masters as each init says, working values their rounding, gradients and padding zero. */
static void test_init(void)
{
    for (int type = 0; type < HARNESS_COUNT(types); type++) {
        model m = open_model(types[type][0], types[type][1], false);
        CHECK_OK(tutti_params_init(m.params, harness_context(), 42));
        tutti_tensor master, grad;
        CHECK_OK(tutti_params_flat(m.params, TUTTI_PARAMS_MASTER, &master));
        CHECK_OK(tutti_params_flat(m.params, TUTTI_PARAMS_GRAD, &grad));
        double *masters = get(&master), *grads = get(&grad);
        int64_t end = 0;
        double firsts[8]; /* of uniform ones: no two may be equal */
        int uniform = 0;
        for (int i = 0; i < tutti_params_count(m.params); i++) {
            const tutti_param *param = tutti_params_get(m.params, i);
            int64_t offset = offset_of(&master, &param->master);
            int64_t count = tutti_tensor_count(&param->master);
            for (int64_t j = end; j < offset; j++)
                CHECK(masters[j] == 0, "padding at %lld is %g", (long long)j, masters[j]);
            end = offset + count;
            bool gamma = strstr(param->name, "gamma") != NULL;
            bool beta = strstr(param->name, "beta") != NULL;
            bool up = strncmp(param->name, "up", 2) == 0;
            double bound = 1 / sqrt(up ? 10 : 20), sum = 0, most = 0;
            double *values = get(&param->value);
            if (!gamma && !beta) {
                firsts[uniform] = masters[offset] / bound;
                for (int k = 0; k < uniform; k++)
                    CHECK(fabs(firsts[k] - firsts[uniform]) > 1e-6, "%s begins like another",
                          param->name);
                uniform++;
            }
            for (int64_t j = 0; j < count; j++) {
                double value = masters[offset + j];
                if (gamma || beta)
                    CHECK(value == gamma, "%s[%lld] is %g", param->name, (long long)j, value);
                CHECK(fabs(value) <= 1 && (gamma || beta || fabs(value) <= bound * (1 + 1e-6)),
                      "%s[%lld] is %g, beyond %g", param->name, (long long)j, value, bound);
                CHECK(values[j] == harness_round(param->value.dtype, value),
                      "%s[%lld]: working value %g of %g", param->name, (long long)j, values[j],
                      value);
                sum += value;
                most = fmax(most, fabs(value));
            }
            if (count >= 60) { /* a uniform sample: mean within 5 deviations of 0, and wide */
                CHECK(fabs(sum / (double)count) < 5 * bound / sqrt(3.0 * (double)count),
                      "the mean of %s is %g", param->name, sum / (double)count);
                CHECK(most > 0.8 * bound, "the largest of %s is %g of %g", param->name, most,
                      bound);
            }
            CHECK(param->weight_decay == (strstr(param->name, "weight") != NULL) &&
                      param->lr_scale == 1,
                  "%s: weight_decay %g, lr_scale %g", param->name, param->weight_decay,
                  param->lr_scale);
            free(values);
        }
        for (int64_t j = 0; j < tutti_tensor_count(&grad); j++)
            if (!CHECK(grads[j] == 0, "gradient %lld is %g", (long long)j, grads[j])) break;
        free(masters);
        free(grads);
        close_model(&m);
    }
}

static void check_same_values(const model *a, const model *b, bool want_same)
{
    bool all_same = true;
    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < tutti_layer_param_count(a->layers[l]); i++) {
            const tutti_param *pa = tutti_layer_param(a->layers[l], i);
            const tutti_param *pb = tutti_layer_param(b->layers[l], i);
            double *va = get(&pa->master), *vb = get(&pb->master);
            bool same = memcmp(va, vb, (size_t)tutti_tensor_count(&pa->master) * sizeof *va) == 0;
            if (want_same) CHECK(same, "%s has other numbers", pa->name);
            all_same = all_same && same;
            free(va);
            free(vb);
        }
    if (!want_same) CHECK(!all_same, "another seed gives the same numbers");
}

/* The initial values depend on seed, name and element only. */
static void test_init_is_reproducible(void)
{
    tutti_context *ctx = harness_context();
    model a = open_model(TUTTI_F32, TUTTI_F32, false), b = open_model(TUTTI_F32, TUTTI_F32, true);
    model half = open_model(TUTTI_BF16, TUTTI_BF16, false);
    CHECK_OK(tutti_params_init(a.params, ctx, 42));
    CHECK_OK(tutti_params_init(b.params, ctx, 42));
    CHECK_OK(tutti_params_init(half.params, ctx, 42));
    check_same_values(&a, &b, true);
    check_same_values(&a, &half, true); /* masters are f32 both */
    CHECK_OK(tutti_params_init(b.params, ctx, 43));
    check_same_values(&a, &b, false);
    CHECK_OK(tutti_params_init(b.params, ctx, 42)); /* and back */
    check_same_values(&a, &b, true);
    /* neighbouring elements and layers differ */
    double *up = get(&tutti_layer_param(a.layers[1], 0)->master);
    double *head = get(&tutti_layer_param(a.layers[3], 0)->master);
    CHECK(up[0] != up[1] && up[0] / sqrt(20) != head[0] / sqrt(10), "weights repeat");
    free(up);
    free(head);
    close_model(&a);
    close_model(&b);
    close_model(&half);
}

static void check_same_bits(const char *name, const tutti_tensor *got, const tutti_tensor *want)
{
    double *a = get(got), *b = get(want);
    size_t count = (size_t)tutti_tensor_count(want);
    CHECK(got->dtype == want->dtype && memcmp(a, b, count * sizeof *a) == 0,
          "%s has other numbers than a store gives it", name);
    free(a);
    free(b);
}

/* A parameter like this one in its own memory gets the same master and value. */
static void check_own_init(const tutti_param *param, bool apart)
{
    tutti_context *ctx = harness_context();
    tutti_tensor value = param->value, master = param->master;
    CHECK_OK(tutti_alloc(ctx, (size_t)tutti_tensor_count(&value) * tutti_dtype_size(value.dtype),
                         &value.data));
    CHECK_OK(tutti_alloc(ctx, (size_t)tutti_tensor_count(&master) * tutti_dtype_size(master.dtype),
                         &master.data));
    tutti_param own = *param;
    CHECK_OK(tutti_param_bind(&own, &value, NULL));
    if (apart) CHECK_OK(tutti_param_bind_master(&own, &master));
    for (int named = 0; named < 2; named++) {
        if (named) snprintf(own.name, sizeof own.name, "another");
        CHECK_OK(tutti_param_init(&own, ctx, param->name, 41));
        CHECK_OK(tutti_param_init(&own, ctx, named ? param->name : NULL, 42));
        check_same_bits(param->name, &own.value, &param->value);
        if (apart) check_same_bits(param->name, &own.master, &param->master);
    }
    CHECK_OK(tutti_free(ctx, &value.data));
    CHECK_OK(tutti_free(ctx, &master.data));
}

static void test_init_of_own(void)
{
    for (int type = 0; type < HARNESS_COUNT(types); type++) {
        model m = open_model(types[type][0], types[type][1], false);
        CHECK_OK(tutti_params_init(m.params, harness_context(), 42));
        for (int i = 0; i < tutti_params_count(m.params); i++) {
            const tutti_param *param = tutti_params_get(m.params, i);
            check_own_init(param, false);
            if (param->value.dtype != param->master.dtype) check_own_init(param, true);
        }
        close_model(&m);
    }
}

static void test_refresh(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < HARNESS_COUNT(types); type++) {
        model m = open_model(types[type][0], types[type][1], false);
        tutti_tensor master;
        CHECK_OK(tutti_params_flat(m.params, TUTTI_PARAMS_MASTER, &master));
        int64_t count = tutti_tensor_count(&master);
        double *drawn = harness_calloc((size_t)count, sizeof *drawn);
        harness_rng rng = {5};
        for (int64_t i = 0; i < count; i++)
            drawn[i] = i % 97 == 3 ? NAN : i % 89 == 4 ? 1e30 : harness_normal(&rng) * 1e-3;
        harness_put(ctx, &master, drawn);
        free(drawn);
        CHECK_OK(tutti_params_refresh(m.params, ctx));
        for (int i = 0; i < tutti_params_count(m.params); i++) {
            const tutti_param *param = tutti_params_get(m.params, i);
            double *values = get(&param->value), *masters = get(&param->master);
            for (int64_t j = 0; j < tutti_tensor_count(&param->value); j++) {
                double want = harness_round(param->value.dtype, masters[j]);
                CHECK(values[j] == want || (isnan(values[j]) && isnan(want)),
                      "%s[%lld] is %g, want %g", param->name, (long long)j, values[j], want);
            }
            free(values);
            free(masters);
        }
        close_model(&m);
    }
}

static void test_zero_grad(void)
{
    tutti_context *ctx = harness_context();
    model m = open_model(TUTTI_BF16, TUTTI_F32, false);
    tutti_tensor grad;
    CHECK_OK(tutti_params_flat(m.params, TUTTI_PARAMS_GRAD, &grad));
    size_t bytes = (size_t)tutti_tensor_count(&grad) * sizeof(float);
    unsigned char *noise = harness_calloc(1, bytes);
    memset(noise, 0xff, bytes);
    CHECK_OK(tutti_copy(ctx, grad.data, noise, bytes));
    CHECK_OK(tutti_params_zero_grad(m.params, ctx));
    double *values = get(&grad);
    for (int64_t i = 0; i < tutti_tensor_count(&grad); i++)
        if (!CHECK(values[i] == 0, "gradient %lld is %g", (long long)i, values[i])) break;
    free(values);
    free(noise);
    close_model(&m);
}

static tutti_param own(const char *name, tutti_dtype dtype, int64_t rows, int64_t cols)
{
    tutti_param param = {.weight_decay = 1, .lr_scale = 1};
    snprintf(param.name, sizeof param.name, "%s", name);
    param.value = tutti_tensor_2d(NULL, dtype, rows, cols);
    param.init = TUTTI_INIT_UNIFORM;
    param.init_bound = 1;
    return param;
}

/* A store of these parameters, added in this order; it is not built. */
static tutti_params *store_of(tutti_param *const *list, int count)
{
    tutti_params *params = NULL;
    CHECK_OK(tutti_params_create(harness_context(), NULL, &params));
    for (int i = 0; i < count; i++) CHECK_OK(tutti_params_add_param(params, list[i]));
    return params;
}

/* Tied parameters share one slot, at the position of the one that backward finishes last. */
static void test_tied(void)
{
    tutti_context *ctx = harness_context();
    tutti_param a = own("a", TUTTI_F32, 4, 5), b = own("b", TUTTI_F32, 3, 3);
    tutti_param c = own("c", TUTTI_F32, 4, 5), d = own("d", TUTTI_F32, 4, 5);
    tutti_params *params = store_of((tutti_param *[]){&a, &b, &c, &d}, 4);
    CHECK_OK(tutti_params_tie(params, &c, &a));
    CHECK_OK(tutti_params_tie(params, &d, &c)); /* a chain */
    CHECK(tutti_params_find(params, "b") == &b, "b is not found before build");
    CHECK_OK(tutti_params_build(params, ctx));
    CHECK(tutti_params_find(params, "a") == &a && tutti_params_find(params, "d") == &d,
          "a or d is not found");
    CHECK(tutti_params_count(params) == 2, "%d parameters", tutti_params_count(params));
    CHECK(a.value.data && a.value.data == c.value.data && a.grad.data == c.grad.data &&
              a.master.data == c.master.data && d.value.data == a.value.data,
          "tied parameters have buffers of their own");
    CHECK(strcmp(tutti_params_get(params, 0)->name, "b") == 0 &&
              strcmp(tutti_params_get(params, 1)->name, "a") == 0,
          "the order is '%s', '%s'", tutti_params_get(params, 0)->name,
          tutti_params_get(params, 1)->name);
    CHECK_OK(tutti_params_init(params, ctx, 1));
    tutti_tensor flat;
    CHECK_OK(tutti_params_flat(params, TUTTI_PARAMS_MASTER, &flat));
    CHECK(tutti_tensor_count(&flat) == 2 * TUTTI_PARAM_ALIGN, "%lld elements",
          (long long)tutti_tensor_count(&flat));
    tutti_params_destroy(&params);
}

/* Frozen parameters come last, have no gradients and no state, and an update leaves them alone. */
static void test_frozen(void)
{
    tutti_context *ctx = harness_context();
    static const tutti_dtype kinds[] = {TUTTI_F32, TUTTI_BF16};
    for (int k = 0; k < HARNESS_COUNT(kinds); k++) {
        harness_where("%s", tutti_dtype_name(kinds[k]));
        tutti_param a = own("a", kinds[k], 4, 5), b = own("b", kinds[k], 3, 70);
        tutti_param c = own("c", kinds[k], 4, 5), d = own("d", kinds[k], 3, 3);
        tutti_params *params = store_of((tutti_param *[]){&d, &a, &b, &c}, 4);
        CHECK_OK(tutti_params_tie(params, &c, &a));
        CHECK_OK(tutti_params_freeze(params, &c)); /* and with it a */
        CHECK_OK(tutti_params_build(params, ctx));
        static const char *const order[] = {"b", "d", "a"};
        CHECK(tutti_params_count(params) == 3, "%d parameters", tutti_params_count(params));
        for (int i = 0; i < 3; i++)
            CHECK(strcmp(tutti_params_get(params, i)->name, order[i]) == 0, "%s is number %d",
                  tutti_params_get(params, i)->name, i);
        CHECK(!a.grad.data && !c.grad.data && b.grad.data && d.grad.data && a.value.data &&
                  a.value.data == c.value.data,
              "the gradients of a, c, or the others are wrong");
        tutti_tensor grad, master;
        CHECK_OK(tutti_params_flat(params, TUTTI_PARAMS_GRAD, &grad));
        CHECK_OK(tutti_params_flat(params, TUTTI_PARAMS_MASTER, &master));
        CHECK(tutti_tensor_count(&grad) == 3 * TUTTI_PARAM_ALIGN &&
                  tutti_tensor_count(&master) == 4 * TUTTI_PARAM_ALIGN,
              "%lld gradients, %lld masters", (long long)tutti_tensor_count(&grad),
              (long long)tutti_tensor_count(&master));

        CHECK_OK(tutti_params_init(params, ctx, 1));
        double *before = get(&master), *values_before = get(&a.value);
        float ones[3 * TUTTI_PARAM_ALIGN];
        for (int i = 0; i < HARNESS_COUNT(ones); i++) ones[i] = 1;
        CHECK_OK(tutti_params_zero_grad(params, ctx));
        CHECK_OK(tutti_copy(ctx, b.grad.data, ones, 210 * sizeof *ones));
        CHECK_OK(tutti_copy(ctx, d.grad.data, ones, 9 * sizeof *ones));
        tutti_adamw_desc desc = TUTTI_ADAMW_DESC_INIT;
        desc.weight_decay = 0.1;
        tutti_adamw *adamw = NULL;
        tutti_step_block *step = NULL;
        CHECK_OK(tutti_adamw_create(ctx, params, &desc, &adamw));
        CHECK_OK(tutti_step_block_create(ctx, &step));
        CHECK_OK(tutti_step_block_set(
            step, ctx, &(tutti_step_values){.step = 1, .loss_weight = 1, .learning_rate = 0.1}));
        CHECK_OK(tutti_adamw_update(adamw, ctx, step));
        tutti_adamw_stats stats;
        CHECK_OK(tutti_adamw_get_stats(adamw, ctx, &stats));
        CHECK(fabs(stats.grad_norm - sqrt(219)) < 1e-5, "the norm is %g", stats.grad_norm);
        tutti_state_tensor m;
        CHECK_OK(tutti_adamw_state_get(adamw, 0, &m));
        CHECK(m.like_store && tutti_tensor_count(&m.tensor) == 3 * TUTTI_PARAM_ALIGN,
              "m has %lld elements", (long long)tutti_tensor_count(&m.tensor));
        double *after = get(&master), *values_after = get(&a.value);
        for (int i = 0; i < 4 * TUTTI_PARAM_ALIGN; i++) {
            const bool trained =
                i < 210 || (i >= 2 * TUTTI_PARAM_ALIGN && i < 2 * TUTTI_PARAM_ALIGN + 9);
            if (!CHECK((after[i] != before[i]) == trained, "master %d was %g and is %g", i,
                       before[i], after[i]))
                break;
        }
        CHECK(memcmp(values_before, values_after, 20 * sizeof *values_before) == 0,
              "a frozen value was changed");
        free(before), free(values_before), free(after), free(values_after);
        tutti_adamw_destroy(&adamw);
        tutti_step_block_destroy(&step);
        tutti_params_destroy(&params);
    }
}

static int live;
static void *last_memory;
static size_t last_bytes;

static tutti_status give(void *self, size_t bytes, void **data)
{
    live++;
    last_bytes = bytes;
    tutti_status status = tutti_alloc(self, bytes, data);
    last_memory = *data;
    return status;
}

static tutti_status take(void *self, void *data)
{
    live--;
    return tutti_free(self, &data);
}

/* Gradients in memory of the caller's choice. */
static void test_gradient_memory(void)
{
    tutti_context *ctx = harness_context();
    tutti_params *params = NULL;
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    desc.gradient_memory = (tutti_allocator){.alloc = give, .free = take, .self = ctx};
    CHECK_OK(tutti_params_create(ctx, &desc, &params));
    tutti_param a = own("a", TUTTI_BF16, 4, 50);
    CHECK_OK(tutti_params_add_param(params, &a));
    CHECK(live == 0, "memory was taken before build");
    CHECK_OK(tutti_params_build(params, ctx));
    tutti_tensor grad;
    CHECK_OK(tutti_params_flat(params, TUTTI_PARAMS_GRAD, &grad));
    CHECK(live == 1 && grad.data == last_memory &&
              last_bytes >= (size_t)tutti_tensor_count(&grad) * sizeof(float),
          "the gradients are not where they were wanted");
    double *values = get(&grad);
    CHECK(values[0] == 0 && values[199] == 0, "gradients do not start at zero");
    free(values);
    tutti_params_destroy(&params);
    CHECK(live == 0, "memory was not given back");
}

/* An empty store. */
static void test_empty(void)
{
    tutti_context *ctx = harness_context();
    tutti_params *params = NULL;
    CHECK_OK(tutti_params_create(ctx, NULL, &params));
    tutti_softmax_desc desc = TUTTI_SOFTMAX_DESC_INIT;
    desc.cols = 4;
    tutti_layer *layer = NULL;
    CHECK_OK(tutti_softmax_create(ctx, &desc, &layer));
    CHECK_OK(tutti_params_add(params, layer, "softmax")); /* it has no parameters */
    CHECK_OK(tutti_params_build(params, ctx));
    CHECK_OK(tutti_params_init(params, ctx, 1));
    CHECK_OK(tutti_params_refresh(params, ctx));
    CHECK_OK(tutti_params_zero_grad(params, ctx));
    tutti_tensor flat;
    CHECK_OK(tutti_params_flat(params, TUTTI_PARAMS_GRAD, &flat));
    CHECK(tutti_params_count(params) == 0 && tutti_tensor_count(&flat) == 0, "something is there");
    tutti_adamw *adamw = NULL;
    tutti_step_block *step = NULL;
    CHECK_OK(tutti_adamw_create(ctx, params, NULL, &adamw));
    CHECK_OK(tutti_step_block_create(ctx, &step));
    CHECK_OK(tutti_step_block_set(step, ctx, &(tutti_step_values){.step = 1, .loss_weight = 1}));
    CHECK_OK(tutti_adamw_update(adamw, ctx, step));
    tutti_adamw_stats stats;
    CHECK_OK(tutti_adamw_get_stats(adamw, ctx, &stats));
    CHECK(stats.updates == 1 && stats.grad_norm == 0, "updates %lld, norm %g",
          (long long)stats.updates, stats.grad_norm);
    tutti_adamw_destroy(&adamw);
    tutti_step_block_destroy(&step);
    tutti_params_destroy(&params);
    tutti_layer_destroy(&layer);
}

int main(int argc, char **argv)
{
    static const harness_test tests[] = {
        {"layout", test_layout},
        {"init", test_init},
        {"init is reproducible", test_init_is_reproducible},
        {"init of own parameters", test_init_of_own},
        {"refresh", test_refresh},
        {"zero_grad", test_zero_grad},
        {"tied parameters", test_tied},
        {"frozen", test_frozen},
        {"memory of gradients", test_gradient_memory},
        {"empty store", test_empty},
    };
    return harness_main(argc, argv, "params", tests, HARNESS_COUNT(tests));
}
