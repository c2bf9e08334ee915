/* Tests of AdamW: every update is compared with the reference's from the state before it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "reference/adamw.h"
#include "reference/spread.h"

enum { PARAMS = 6 };
static const int64_t counts[PARAMS] = {1, 7, 128, 129, 1000, 40000};
/* with explicit defaults for the reference */
static const tutti_adamw_desc usual = {
    .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01};

/* A store of the caller's own parameters. */
typedef struct model {
    tutti_params *store;
    tutti_adamw *adamw;
    tutti_step_block *step;
    tutti_param params[PARAMS];
    tutti_tensor master, grad, working, m, v, updates; /* flat */
    int64_t count;
    tutti_dtype dtype, working_dtype;
    tutti_adamw_desc desc;
    double *factor_decay, *factor_lr; /* of each element; padding: -1 */
} model;

static double *room(const model *model)
{
    return harness_calloc((size_t)model->count, sizeof(double));
}

static void set_up(tutti_context *ctx, model *model, tutti_dtype dtype, tutti_dtype working,
                   const tutti_adamw_desc *desc, uint64_t seed)
{
    tutti_params_desc store = TUTTI_PARAMS_DESC_INIT;
    store.master_dtype = dtype;
    *model = (struct model){.dtype = dtype, .working_dtype = working, .desc = *desc};
    CHECK_OK(tutti_params_create(ctx, &store, &model->store));
    for (int i = 0; i < PARAMS; i++) {
        tutti_param *param = &model->params[i];
        snprintf(param->name, sizeof param->name, "p%d", i);
        /* one in three has the masters' type */
        param->value = tutti_tensor_1d(NULL, i % 3 == 2 ? dtype : working, counts[i]);
        param->weight_decay = i & 1 ? 1 : 0.25 * i;
        param->lr_scale = i & 2 ? 1 : 0.5;
        CHECK_OK(tutti_params_add_param(model->store, param));
    }
    CHECK_OK(tutti_params_build(model->store, ctx));
    CHECK_OK(tutti_params_flat(model->store, TUTTI_PARAMS_MASTER, &model->master));
    CHECK_OK(tutti_params_flat(model->store, TUTTI_PARAMS_GRAD, &model->grad));
    CHECK_OK(tutti_params_flat(model->store, TUTTI_PARAMS_WORKING, &model->working));
    CHECK_OK(tutti_adamw_create(ctx, model->store, desc, &model->adamw));
    tutti_tensor *state[] = {&model->m, &model->v, &model->updates};
    static const char *const names[] = {"m", "v", "updates"};
    for (int i = 0; i < 3; i++) {
        tutti_state_tensor got = {.name = ""};
        CHECK_OK(tutti_adamw_state_get(model->adamw, i, &got));
        CHECK(strcmp(got.name, names[i]) == 0 && got.like_store == (i < 2),
              "state %d is called '%s'", i, got.name);
        *state[i] = got.tensor;
    }
    CHECK_OK(tutti_step_block_create(ctx, &model->step));
    model->count = tutti_tensor_count(&model->master);
    CHECK(tutti_tensor_count(&model->m) == model->count, "m has another size than the masters");

    /* factors of each element's parameter */
    model->factor_decay = room(model);
    model->factor_lr = room(model);
    for (int64_t i = 0; i < model->count; i++) model->factor_decay[i] = model->factor_lr[i] = -1;
    harness_rng rng = {seed};
    double *values = room(model);
    for (int i = 0; i < PARAMS; i++) {
        int64_t offset =
            (int64_t)((char *)model->params[i].master.data - (char *)model->master.data) /
            (int64_t)tutti_dtype_size(dtype);
        harness_fill(&rng, values + offset, counts[i], dtype, 0, 0.5);
        for (int64_t j = offset; j < offset + counts[i]; j++) {
            model->factor_decay[j] = model->params[i].weight_decay;
            model->factor_lr[j] = model->params[i].lr_scale;
        }
    }
    harness_put(ctx, &model->master, values);
    CHECK_OK(tutti_params_refresh(model->store, ctx));
    free(values);
}

static void tear_down(tutti_context *ctx, model *model)
{
    CHECK_OK(tutti_context_synchronize(ctx));
    tutti_adamw_destroy(&model->adamw);
    tutti_step_block_destroy(&model->step);
    tutti_params_destroy(&model->store);
    free(model->factor_decay);
    free(model->factor_lr);
}

static void random_gradients(tutti_context *ctx, model *model, harness_rng *rng, double size,
                             double *grad)
{
    for (int64_t i = 0; i < model->count; i++) {
        /* magnitudes over five decades */
        double scale = size * pow(10, harness_uniform(rng, -4, 1));
        grad[i] =
            model->factor_lr[i] < 0 ? 0 : harness_round(model->dtype, scale * harness_normal(rng));
    }
    harness_put(ctx, &model->grad, grad);
}

static void check_working(tutti_context *ctx, model *model, const double *master)
{
    for (int i = 0; i < PARAMS; i++) {
        const tutti_param *param = &model->params[i];
        if (param->value.dtype == model->dtype) continue;
        int64_t offset = (int64_t)((char *)param->master.data - (char *)model->master.data) /
                         (int64_t)tutti_dtype_size(model->dtype);
        double *working = harness_get(ctx, &param->value, NULL);
        for (int64_t j = 0; j < counts[i]; j++)
            if (!CHECK(working[j] == harness_round(param->value.dtype, master[offset + j]),
                       "%s: the working value of %.17g is %.17g", param->name, master[offset + j],
                       working[j]))
                break;
        free(working);
    }
}

/* One update, checked. */
static void check_update(tutti_context *ctx, model *model, harness_rng *rng, int64_t t, double size,
                         double learning_rate, double loss_scale)
{
    harness_where("%s masters, %s values, update %lld, lr %g, clip %g, scale %g",
                  tutti_dtype_name(model->dtype), tutti_dtype_name(model->working_dtype),
                  (long long)t, learning_rate, model->desc.clip_norm, loss_scale);
    double *grad = room(model), *after = room(model), *want[6];
    for (int i = 0; i < 6; i++) want[i] = room(model);
    random_gradients(ctx, model, rng, size * loss_scale, grad);
    double *master = harness_get(ctx, &model->master, NULL);
    double *m = harness_get(ctx, &model->m, NULL), *v = harness_get(ctx, &model->v, NULL);
    tutti_step_values values = {.step = 1, .loss_weight = 1};
    values.step = 1000 + t; /* t counts updates, not steps */
    values.learning_rate = learning_rate;
    values.loss_scale = loss_scale;
    CHECK_OK(tutti_step_block_set(model->step, ctx, &values));
    CHECK_OK(tutti_adamw_update(model->adamw, ctx, model->step));

    tutti_adamw_stats stats;
    CHECK_OK(tutti_adamw_get_stats(model->adamw, ctx, &stats));
    long double squares = 0;
    for (int64_t i = 0; i < model->count; i++) squares += (long double)grad[i] * grad[i];
    double norm = (double)sqrtl(squares) / loss_scale;
    /* the root halves the error of the squares and their sum */
    double relative = ((double)spread_depth(model->count) / 2 + 3) * harness_roundoff(TUTTI_F64);
    double allowed = relative * norm;
    CHECK(fabs(stats.grad_norm - norm) <= allowed, "grad_norm is %.17g, want %.17g",
          stats.grad_norm, norm);
    CHECK(stats.updates == t && !stats.skipped, "updates is %lld, skipped %d",
          (long long)stats.updates, stats.skipped);

    const tutti_adamw_desc *desc = &model->desc;
    double clip = desc->clip_norm > 0 ? fmin(1, desc->clip_norm / (norm + 1e-6)) : 1;
    for (int64_t i = 0; i < model->count; i++) {
        if (model->factor_lr[i] < 0) continue; /* padding: wanted 0 */
        const reference_adamw adamw = {.beta1 = desc->beta1,
                                       .beta2 = desc->beta2,
                                       .eps = desc->eps,
                                       .weight_decay = desc->weight_decay * model->factor_decay[i],
                                       .learning_rate = learning_rate * model->factor_lr[i],
                                       .factor = clip / loss_scale,
                                       .factor_error = clip < 1 ? relative : 0,
                                       .t = t,
                                       .dtype = model->dtype};
        reference_adamw_state bound;
        const reference_adamw_state state = reference_adamw_update(
            &adamw, &(reference_adamw_state){master[i], m[i], v[i]}, grad[i], &bound);
        want[0][i] = state.master, want[1][i] = state.m, want[2][i] = state.v;
        want[3][i] = bound.master, want[4][i] = bound.m, want[5][i] = bound.v;
    }
    harness_get(ctx, &model->m, after);
    CHECK_CLOSE("m", after, want[1], want[4], model->count);
    harness_get(ctx, &model->v, after);
    CHECK_CLOSE("v", after, want[2], want[5], model->count);
    harness_get(ctx, &model->master, after);
    CHECK_CLOSE("master", after, want[0], want[3], model->count);
    CHECK(harness_is_sharp(want[0], want[3], model->count, model->dtype),
          "the bound of the masters lets 16 ulp pass");
    CHECK(harness_is_sharp(want[1], want[4], model->count, model->dtype),
          "the bound of m lets 16 ulp pass");
    check_working(ctx, model, after);
    harness_get(ctx, &model->grad, after);
    CHECK(memcmp(after, grad, (size_t)model->count * sizeof *grad) == 0, "gradients were written");
    free(grad);
    free(after);
    free(master);
    free(m);
    free(v);
    for (int i = 0; i < 6; i++) free(want[i]);
}

static const tutti_dtype types[][2] = {{TUTTI_F32, TUTTI_F32},
                                       {TUTTI_F32, TUTTI_BF16},
                                       {TUTTI_F32, TUTTI_F16},
                                       {TUTTI_F64, TUTTI_F64}};

static void run_updates(const tutti_adamw_desc *desc, double size, double loss_scale)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < HARNESS_COUNT(types); type++) {
        model model;
        harness_rng rng = {7};
        set_up(ctx, &model, types[type][0], types[type][1], desc, 3);
        static const double rates[] = {1e-3, 0, 0.1, 3e-4};
        for (int t = 1; t <= HARNESS_COUNT(rates); t++)
            check_update(ctx, &model, &rng, t, size, rates[t - 1], loss_scale);
        tear_down(ctx, &model);
    }
}

static void test_updates(void)
{
    tutti_adamw_desc desc = usual;
    run_updates(&desc, 1, 1);
}

static void test_small_gradients(void)
{
    tutti_adamw_desc desc = usual;
    run_updates(&desc, 1e-7, 1);
}

static void test_clipping(void)
{
    tutti_adamw_desc desc = usual;
    desc.clip_norm = 0.5; /* far below the norm */
    run_updates(&desc, 1, 1);
    desc.clip_norm = 1e6; /* far above */
    run_updates(&desc, 1, 1);
}

static void test_loss_scale(void)
{
    tutti_adamw_desc desc = usual;
    run_updates(&desc, 1e-2, 4096);
    desc.clip_norm = 0.25;
    run_updates(&desc, 1e-2, 0.125);
}

static void test_options(void)
{
    tutti_adamw_desc desc = {.beta1 = TUTTI_ZERO, .beta2 = TUTTI_ZERO, .eps = 1e-3};
    run_updates(&desc, 1, 1);
    desc = (tutti_adamw_desc){
        .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.3, .skip_nonfinite = 1};
    run_updates(&desc, 1, 1);
}

/* The flat buffers as bits, one after the other. */
static unsigned char *bits_of(tutti_context *ctx, const model *model, size_t *bytes)
{
    size_t size = (size_t)model->count * tutti_dtype_size(model->dtype);
    size_t working =
        model->working.data ? (size_t)model->count * tutti_dtype_size(model->working.dtype) : 0;
    *bytes = 3 * size + working + sizeof(double);
    unsigned char *bits = harness_calloc(1, *bytes);
    CHECK_OK(tutti_copy(ctx, bits, model->master.data, size));
    CHECK_OK(tutti_copy(ctx, bits + size, model->m.data, size));
    CHECK_OK(tutti_copy(ctx, bits + 2 * size, model->v.data, size));
    CHECK_OK(tutti_copy(ctx, bits + 3 * size, model->working.data, working));
    CHECK_OK(tutti_copy(ctx, bits + 3 * size + working, model->updates.data, sizeof(double)));
    CHECK_OK(tutti_context_synchronize(ctx));
    return bits;
}

static void test_skip_nonfinite(void)
{
    tutti_context *ctx = harness_context();
    static const double specials[] = {NAN, INFINITY, -INFINITY};
    for (int type = 0; type < HARNESS_COUNT(types); type++)
        for (int i = 0; i < HARNESS_COUNT(specials); i++) {
            tutti_adamw_desc desc = usual;
            desc.skip_nonfinite = 1;
            desc.clip_norm = i & 1;
            model model;
            harness_rng rng = {5};
            set_up(ctx, &model, types[type][0], types[type][1], &desc, 3);
            check_update(ctx, &model, &rng, 1, 1, 1e-3, 1);
            double *grad = room(&model);
            random_gradients(ctx, &model, &rng, 1, grad);
            for (int64_t j = model.count - 1;; j--) /* the last that is not padding */
                if (model.factor_lr[j] >= 0) {
                    grad[j] = specials[i];
                    break;
                }
            harness_put(ctx, &model.grad, grad);
            size_t bytes;
            unsigned char *before = bits_of(ctx, &model, &bytes);
            CHECK_OK(tutti_adamw_update(model.adamw, ctx, model.step));
            unsigned char *after = bits_of(ctx, &model, &bytes);
            CHECK(memcmp(before, after, bytes) == 0, "a skipped update changed something");
            tutti_adamw_stats stats;
            CHECK_OK(tutti_adamw_get_stats(model.adamw, ctx, &stats));
            CHECK(stats.skipped && stats.updates == 1 && !isfinite(stats.grad_norm),
                  "skipped %d, updates %lld, norm %g", stats.skipped, (long long)stats.updates,
                  stats.grad_norm);
            check_update(ctx, &model, &rng, 2, 1, 1e-3, 1); /* and training continues */
            free(grad);
            free(before);
            free(after);
            tear_down(ctx, &model);
        }
}

static void get_stats(tutti_context *ctx, void *data)
{
    tutti_adamw_stats stats;
    CHECK_OK(tutti_adamw_get_stats(data, ctx, &stats));
    CHECK(stats.updates == 2, "updates is %lld", (long long)stats.updates);
}

/* Once they have been asked for, statistics wait for the last update, not for what was enqueued
 * behind it. */
static void test_statistics_alone(void)
{
    tutti_context *ctx = harness_context();
    model model;
    harness_rng rng = {7};
    if (harness_backend() != TUTTI_BACKEND_CUDA || harness_quick()) {
        harness_skip("on the host all has happened when a call returns; a sanitizer may wait");
        return;
    }
    set_up(ctx, &model, types[0][0], types[0][1], &usual, 3);
    for (int t = 1; t <= 2; t++) check_update(ctx, &model, &rng, t, 1, 1e-3, 1);
    CHECK(!harness_waits(ctx, get_stats, model.adamw), "the statistics waited for the stream");
    tear_down(ctx, &model);
}

/* Without skip_nonfinite a NaN gradient makes its master NaN. */
static void test_nan(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < HARNESS_COUNT(types); type++)
        for (int clip = 0; clip < 2; clip++) {
            tutti_adamw_desc desc = usual;
            desc.clip_norm = clip;
            model model;
            harness_rng rng = {5};
            set_up(ctx, &model, types[type][0], types[type][1], &desc, 3);
            double *grad = room(&model);
            random_gradients(ctx, &model, &rng, 1, grad);
            grad[0] = NAN;
            harness_put(ctx, &model.grad, grad);
            tutti_step_values values = {.step = 1, .loss_weight = 1};
            values.learning_rate = 1e-3;
            CHECK_OK(tutti_step_block_set(model.step, ctx, &values));
            CHECK_OK(tutti_adamw_update(model.adamw, ctx, model.step));
            double *master = harness_get(ctx, &model.master, NULL);
            CHECK(isnan(master[0]), "the master of a NaN gradient is %g", master[0]);
            CHECK((isnan(master[1]) != 0) == (clip != 0), "its neighbour is %g", master[1]);
            free(grad);
            free(master);
            tear_down(ctx, &model);
        }
}

/* A second optimizer with the first one's state continues with the same bits. */
static void test_state(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < HARNESS_COUNT(types); type++) {
        tutti_adamw_desc desc = usual;
        desc.clip_norm = 1;
        model a, b;
        harness_rng rng = {9};
        set_up(ctx, &a, types[type][0], types[type][1], &desc, 3);
        set_up(ctx, &b, types[type][0], types[type][1], &desc, 4);
        check_update(ctx, &a, &rng, 1, 1, 1e-3, 1);
        check_update(ctx, &a, &rng, 2, 1, 1e-3, 1);
        size_t bytes = (size_t)a.count * tutti_dtype_size(a.dtype);
        CHECK_OK(tutti_copy(ctx, b.master.data, a.master.data, bytes));
        CHECK_OK(tutti_copy(ctx, b.m.data, a.m.data, bytes));
        CHECK_OK(tutti_copy(ctx, b.v.data, a.v.data, bytes));
        CHECK_OK(tutti_copy(ctx, b.updates.data, a.updates.data, sizeof(double)));
        CHECK_OK(tutti_copy(ctx, b.grad.data, a.grad.data, bytes));
        CHECK_OK(tutti_params_refresh(b.store, ctx));
        CHECK_OK(tutti_adamw_update(a.adamw, ctx, a.step));
        CHECK_OK(tutti_adamw_update(b.adamw, ctx, a.step));
        /* working values of parameters of the masters' type are unused: only a refresh writes
         * them */
        CHECK_OK(tutti_params_refresh(a.store, ctx));
        CHECK_OK(tutti_params_refresh(b.store, ctx));
        unsigned char *bits_a = bits_of(ctx, &a, &bytes), *bits_b = bits_of(ctx, &b, &bytes);
        CHECK(memcmp(bits_a, bits_b, bytes) == 0, "the second optimizer has other bits");
        free(bits_a);
        free(bits_b);
        tear_down(ctx, &a);
        tear_down(ctx, &b);
    }
}

static void test_threads(void)
{
    if (harness_backend() != TUTTI_BACKEND_HOST) {
        harness_skip("only the host backend has threads");
        return;
    }
    for (int type = 0; type < HARNESS_COUNT(types); type++) {
        unsigned char *first = NULL;
        size_t bytes = 0;
        for (int threads = 1; threads <= 3; threads++) {
            tutti_context *ctx = harness_new_context(0, threads);
            tutti_adamw_desc desc = usual;
            desc.clip_norm = 1;
            model model;
            harness_rng rng = {9};
            set_up(ctx, &model, types[type][0], types[type][1], &desc, 3);
            check_update(ctx, &model, &rng, 1, 1, 1e-3, 1);
            check_update(ctx, &model, &rng, 2, 1, 1e-3, 1);
            unsigned char *bits = bits_of(ctx, &model, &bytes);
            if (first) {
                CHECK(memcmp(first, bits, bytes) == 0, "%d threads give other bits", threads);
                free(bits);
            } else
                first = bits;
            tear_down(ctx, &model);
            tutti_context_destroy(&ctx);
        }
        free(first);
    }
}

int main(int argc, char **argv)
{
    static const harness_test tests[] = {
        {"updates", test_updates},
        {"small gradients", test_small_gradients},
        {"clipping", test_clipping},
        {"loss scale", test_loss_scale},
        {"options", test_options},
        {"skipped updates", test_skip_nonfinite},
        {"statistics alone", test_statistics_alone},
        {"NaN", test_nan},
        {"state", test_state},
        {"bits and threads", test_threads},
    };
    return harness_main(argc, argv, "adamw", tests, HARNESS_COUNT(tests));
}
