/* Tests of SGD: every update is compared with the formula's, from the state before it. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

enum { PARAMS = 5 };
static const int64_t counts[PARAMS] = {1, 129, 128, 1000, 20000};

/* A store of the caller's own parameters. */
typedef struct model {
    tutti_params *store;
    tutti_sgd *sgd;
    tutti_step_block *step;
    tutti_param params[PARAMS];
    tutti_sgd_desc desc;
    tutti_dtype dtype, working;
} model;

static void set_up(tutti_context *ctx, model *m, tutti_dtype dtype, tutti_dtype working,
                   const tutti_sgd_desc *desc)
{
    tutti_params_desc store = TUTTI_PARAMS_DESC_INIT;
    store.master_dtype = dtype;
    *m = (model){.desc = *desc, .dtype = dtype, .working = working};
    CHECK_OK(tutti_params_create(ctx, &store, &m->store));
    for (int p = 0; p < PARAMS; p++) {
        tutti_param *param = &m->params[p];
        snprintf(param->name, sizeof param->name, "p%d", p);
        param->value = tutti_tensor_1d(NULL, p % 3 == 2 ? dtype : working, counts[p]);
        param->weight_decay = p % 2 ? 1 : 0.25 * p;
        param->lr_scale = p % 2 ? 1 : 0.5;
        param->init = TUTTI_INIT_UNIFORM;
        param->init_bound = 0.5;
        CHECK_OK(tutti_params_add_param(m->store, param));
    }
    CHECK_OK(tutti_params_build(m->store, ctx));
    CHECK_OK(tutti_params_init(m->store, ctx, 5));
    CHECK_OK(tutti_sgd_create(ctx, m->store, desc, &m->sgd));
    CHECK_OK(tutti_step_block_create(ctx, &m->step));
}

static void tear_down(model *m)
{
    tutti_sgd_destroy(&m->sgd);
    tutti_step_block_destroy(&m->step);
    tutti_params_destroy(&m->store);
}

/* Gradients of magnitudes over five decades; returns the sum of their squares. */
static long double put_gradients(tutti_context *ctx, model *m, harness_rng *rng)
{
    long double squares = 0;
    for (int p = 0; p < PARAMS; p++) {
        double *grad = harness_calloc((size_t)counts[p], sizeof *grad);
        for (int64_t i = 0; i < counts[p]; i++) {
            const double scale = pow(10, harness_uniform(rng, -4, 1));
            grad[i] = harness_round(m->dtype, scale * harness_normal(rng));
            squares += (long double)grad[i] * grad[i];
        }
        harness_put(ctx, &m->params[p].grad, grad);
        free(grad);
    }
    return squares;
}

/* The part of a flat buffer that belongs to a parameter; a buffer without data: zeros. */
static double *part_of(tutti_context *ctx, const model *m, const tutti_tensor *flat, int p)
{
    tutti_tensor grad;
    if (!flat->data) return harness_calloc((size_t)counts[p], sizeof(double));
    CHECK_OK(tutti_params_flat(m->store, TUTTI_PARAMS_GRAD, &grad));
    const ptrdiff_t at = (char *)m->params[p].grad.data - (char *)grad.data;
    const tutti_tensor part = tutti_tensor_1d((char *)flat->data + at, flat->dtype, counts[p]);
    return harness_get(ctx, &part, NULL);
}

static tutti_tensor velocity_of(const model *m)
{
    tutti_state_tensor state = {.name = "", .tensor = {.data = NULL}};
    if (m->desc.momentum > 0) CHECK_OK(tutti_sgd_state_get(m->sgd, 0, &state));
    return state.tensor;
}

typedef struct before {
    double *master[PARAMS], *velocity[PARAMS], *grad[PARAMS];
} before;

/* One parameter after an update.  factor: on gradients, right to `relative`.  Each of at most six
 * operations rounds once. */
static void check_param(tutti_context *ctx, const model *m, const before *b, int p, double rate,
                        double factor, double relative)
{
    const tutti_tensor flat = velocity_of(m);
    const double u = m->dtype == TUTTI_F64 ? DBL_EPSILON / 2 : (double)(FLT_EPSILON / 2);
    const double decay = m->desc.weight_decay * m->params[p].weight_decay;
    const double mu = m->desc.momentum, lr = rate * m->params[p].lr_scale;
    double *master = harness_get(ctx, &m->params[p].master, NULL),
           *velocity = part_of(ctx, m, &flat, p);
    double *value = harness_get(ctx, &m->params[p].value, NULL);
    for (int64_t i = 0; i < counts[p]; i++) {
        const long double old = b->master[p][i], g = (long double)b->grad[p][i] * factor;
        const long double was = mu * b->velocity[p][i], now = was + g + decay * old;
        const long double all = fabsl(g) + fabsl(decay * old);
        const long double step = m->desc.nesterov ? g + decay * old + mu * now : now;
        const long double want = old - lr * step;
        const double in_velocity = (6 * u + relative) * (double)(fabsl(was) + all);
        const double in_step = (10 * u + relative) * (double)(fabsl(was) + 2 * all);
        const double bound = u * (double)fabsl(want) + lr * in_step + DBL_MIN;
        if (!CHECK(fabsl(master[i] - want) <= bound, "p%d[%lld] is %.17g, want %.17Lg", p,
                   (long long)i, master[i], want))
            break;
        if (mu > 0 && !CHECK(fabsl(velocity[i] - now) <= in_velocity + DBL_MIN,
                             "the velocity of p%d[%lld] is %.17g, want %.17Lg", p, (long long)i,
                             velocity[i], now))
            break;
        if (!CHECK(value[i] == harness_round(m->params[p].value.dtype, master[i]),
                   "the value of p%d[%lld] is %.17g, its master %.17g", p, (long long)i, value[i],
                   master[i]))
            break;
    }
    free(master);
    free(velocity);
    free(value);
}

static void check_update(tutti_context *ctx, model *m, harness_rng *rng, int t, double rate,
                         double loss_scale)
{
    harness_where("%s masters, %s values, momentum %g, update %d", tutti_dtype_name(m->dtype),
                  tutti_dtype_name(m->working), m->desc.momentum, t);
    const double norm = (double)sqrtl(put_gradients(ctx, m, rng)) / loss_scale;
    const tutti_tensor flat = velocity_of(m);
    before b;
    for (int p = 0; p < PARAMS; p++) {
        b.master[p] = harness_get(ctx, &m->params[p].master, NULL);
        b.grad[p] = harness_get(ctx, &m->params[p].grad, NULL);
        b.velocity[p] = part_of(ctx, m, &flat, p);
    }
    CHECK_OK(tutti_step_block_set(
        m->step, ctx,
        &(tutti_step_values){
            .step = t, .loss_weight = 1, .learning_rate = rate, .loss_scale = loss_scale}));
    CHECK_OK(tutti_sgd_update(m->sgd, ctx, m->step));
    tutti_sgd_stats stats;
    CHECK_OK(tutti_sgd_get_stats(m->sgd, ctx, &stats));
    CHECK(fabs(stats.grad_norm - norm) <= 1e-13 * norm && stats.updates == t && !stats.skipped,
          "the norm is %.17g, want %.17g, after %lld updates", stats.grad_norm, norm,
          (long long)stats.updates);
    const double clip = m->desc.clip_norm;
    const double factor = (clip > 0 ? fmin(1, clip / (norm + 1e-6)) : 1) / loss_scale;
    for (int p = 0; p < PARAMS; p++) {
        check_param(ctx, m, &b, p, rate, factor, clip > 0 ? 1e-13 : 0);
        free(b.master[p]);
        free(b.grad[p]);
        free(b.velocity[p]);
    }
    harness_where(NULL);
}

static const tutti_dtype types[][2] = {{TUTTI_F32, TUTTI_F32},
                                       {TUTTI_F32, TUTTI_BF16},
                                       {TUTTI_F32, TUTTI_F16},
                                       {TUTTI_F64, TUTTI_F64}};

static void run_updates(tutti_sgd_desc desc, double loss_scale)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < HARNESS_COUNT(types); type++) {
        static const double rates[] = {1e-3, 0, 0.1, 3e-4};
        model m;
        harness_rng rng = {7};
        set_up(ctx, &m, types[type][0], types[type][1], &desc);
        for (int t = 1; t <= HARNESS_COUNT(rates); t++)
            check_update(ctx, &m, &rng, t, rates[t - 1], loss_scale);
        tear_down(&m);
    }
}

static void test_plain(void)
{
    run_updates((tutti_sgd_desc)TUTTI_SGD_DESC_INIT, 1);
    tutti_sgd_desc desc = TUTTI_SGD_DESC_INIT;
    desc.weight_decay = 0.1;
    run_updates(desc, 4096);
}

static void test_momentum(void)
{
    tutti_sgd_desc desc = TUTTI_SGD_DESC_INIT;
    desc.momentum = 0.9;
    run_updates(desc, 1);
    desc.weight_decay = 0.1;
    desc.clip_norm = 0.5;
    run_updates(desc, 0.125);
}

static void test_nesterov(void)
{
    tutti_sgd_desc desc = TUTTI_SGD_DESC_INIT;
    desc.momentum = 0.8;
    desc.nesterov = 1;
    desc.weight_decay = 0.02;
    run_updates(desc, 1);
}

static void test_skip_nonfinite(void)
{
    tutti_context *ctx = harness_context();
    for (int skip = 0; skip < 2; skip++) {
        tutti_sgd_desc desc = TUTTI_SGD_DESC_INIT;
        desc.momentum = 0.9;
        desc.skip_nonfinite = skip;
        model m;
        harness_rng rng = {3};
        set_up(ctx, &m, TUTTI_F32, TUTTI_BF16, &desc);
        check_update(ctx, &m, &rng, 1, 0.1, 1);
        double *before = harness_get(ctx, &m.params[0].master, NULL);
        harness_put(ctx, &m.params[0].grad, &(double){NAN});
        CHECK_OK(tutti_sgd_update(m.sgd, ctx, m.step));
        double *after = harness_get(ctx, &m.params[0].master, NULL);
        tutti_sgd_stats stats;
        CHECK_OK(tutti_sgd_get_stats(m.sgd, ctx, &stats));
        CHECK(stats.skipped == skip && stats.updates == 2 - skip && isnan(stats.grad_norm),
              "skipped is %d after %lld updates", stats.skipped, (long long)stats.updates);
        CHECK(skip ? after[0] == before[0] : isnan(after[0]), "%g became %g", before[0], after[0]);
        free(before);
        free(after);
        tear_down(&m);
    }
}

/* Names and layout of the state; a second optimizer that has it continues with the same bits. */
static void test_state(void)
{
    tutti_context *ctx = harness_context();
    tutti_sgd_desc desc = TUTTI_SGD_DESC_INIT;
    model a, b;
    harness_rng rng = {9};
    set_up(ctx, &a, TUTTI_F32, TUTTI_BF16, &desc);
    tutti_state_tensor state[2], other[2];
    CHECK(tutti_sgd_state_count(a.sgd) == 1, "%d states", tutti_sgd_state_count(a.sgd));
    CHECK_OK(tutti_sgd_state_get(a.sgd, 0, &state[0]));
    CHECK(strcmp(state[0].name, "updates") == 0 && !state[0].like_store, "'%s'", state[0].name);
    tear_down(&a);
    desc.momentum = 0.9;
    set_up(ctx, &a, TUTTI_F32, TUTTI_BF16, &desc);
    set_up(ctx, &b, TUTTI_F32, TUTTI_BF16, &desc);
    check_update(ctx, &a, &rng, 1, 0.1, 1);
    check_update(ctx, &a, &rng, 2, 0.1, 1);
    tutti_tensor from, to;
    CHECK(tutti_sgd_state_count(a.sgd) == 2, "%d states", tutti_sgd_state_count(a.sgd));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(tutti_sgd_state_get(a.sgd, i, &state[i]));
        CHECK_OK(tutti_sgd_state_get(b.sgd, i, &other[i]));
        CHECK_OK(tutti_copy(ctx, other[i].tensor.data, state[i].tensor.data,
                            (size_t)tutti_tensor_count(&state[i].tensor) *
                                tutti_dtype_size(state[i].tensor.dtype)));
    }
    CHECK(strcmp(state[0].name, "velocity") == 0 && state[0].like_store, "'%s'", state[0].name);
    static const tutti_params_buffer buffers[] = {TUTTI_PARAMS_MASTER, TUTTI_PARAMS_GRAD};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(tutti_params_flat(a.store, buffers[i], &from));
        CHECK_OK(tutti_params_flat(b.store, buffers[i], &to));
        CHECK_OK(tutti_copy(ctx, to.data, from.data, (size_t)tutti_tensor_count(&from) * 4));
    }
    CHECK_OK(tutti_sgd_update(a.sgd, ctx, a.step));
    CHECK_OK(tutti_sgd_update(b.sgd, ctx, a.step));
    for (int p = 0; p < PARAMS; p++) {
        double *got = harness_get(ctx, &b.params[p].value, NULL),
               *want = harness_get(ctx, &a.params[p].value, NULL);
        CHECK(memcmp(got, want, (size_t)counts[p] * sizeof *got) == 0, "p%d differs", p);
        free(got);
        free(want);
    }
    tear_down(&a);
    tear_down(&b);
}

static const harness_test tests[] = {
    {"plain", test_plain},       {"momentum", test_momentum},
    {"nesterov", test_nesterov}, {"skip_nonfinite", test_skip_nonfinite},
    {"state", test_state},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, "sgd", tests, HARNESS_COUNT(tests));
}
