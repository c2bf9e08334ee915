/* Tests of the parts of an optimizer's step: a list of the caller's tensors is updated beside a
 * store that has the same values, and every bit must be the store's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

enum { PARAMS = 40, STATES = 2, VALUES = 4 };
static const int64_t counts[] = {1, 129, 128, 1000, 20000, 127, 5, 16384, 3};

static int64_t count_of(int p)
{
    return p < HARNESS_COUNT(counts) ? counts[p] : 1 + 37 * p % 300;
}

/* How the store and the list are made. */
typedef struct options {
    bool sgd;
    double momentum, clip_norm;
    int nesterov, skip_nonfinite;
    tutti_dtype master, value, other; /* other: of every third value */
    tutti_dtype grad;                 /* of the list; 0: the masters' type */
    bool counts_steps;                /* the list has no `updates` */
} options;

typedef struct twins {
    tutti_context *ctx;
    options made;
    tutti_params *store;
    tutti_adamw *adamw;
    tutti_sgd *sgd;
    tutti_step_block *step;
    tutti_param stored[PARAMS];
    /* the list, in the store's layout order */
    harness_buffer value[PARAMS], master[PARAMS], grad[PARAMS], state[STATES][PARAMS];
    harness_buffer updates, norm;
    tutti_param params[PARAMS];
    const tutti_param *list[PARAMS];
    tutti_tensor grads[PARAMS], states[STATES][PARAMS], updates_tensor, norm_tensor;
    int state_count;
} twins;

static tutti_tensor line(const harness_buffer *buffer)
{
    return tutti_tensor_1d(buffer->data, buffer->dtype, buffer->cols);
}

/* Elements of this type, as far off 256 bytes as told, with the bits of `from` or 0. */
static harness_buffer copy_of(tutti_context *ctx, tutti_dtype dtype, int64_t count, int misaligned,
                              const tutti_tensor *from)
{
    harness_buffer made = harness_buffer_make(ctx, dtype, 1, count, 0, misaligned);
    const size_t bytes = (size_t)count * tutti_dtype_size(dtype);
    double *zeros = harness_calloc((size_t)count + 1, sizeof *zeros);
    harness_buffer_put(ctx, &made, zeros);
    free(zeros);
    if (from) CHECK_OK(tutti_copy(ctx, made.data, from->data, bytes));
    return made;
}

static void make_store(twins *t)
{
    const options *o = &t->made;
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    desc.master_dtype = o->master;
    CHECK_OK(tutti_params_create(t->ctx, &desc, &t->store));
    for (int p = 0; p < PARAMS; p++) {
        tutti_param *param = &t->stored[p];
        snprintf(param->name, sizeof param->name, "p%d", p);
        param->value = tutti_tensor_1d(NULL, p % 3 == 2 ? o->other : o->value, count_of(p));
        param->weight_decay = p % 2 ? 1 : 0.25 * p;
        param->lr_scale = p % 4 ? 1 : 0.5;
        param->init = TUTTI_INIT_UNIFORM;
        param->init_bound = 0.5;
        CHECK_OK(tutti_params_add_param(t->store, param));
    }
    CHECK_OK(tutti_params_build(t->store, t->ctx));
    CHECK_OK(tutti_params_init(t->store, t->ctx, 5));
    CHECK_OK(tutti_step_block_create(t->ctx, &t->step));
}

static tutti_adamw_desc adamw_desc(const options *o, bool whole)
{
    tutti_adamw_desc desc = TUTTI_ADAMW_DESC_INIT;
    desc.weight_decay = 0.1;
    desc.clip_norm = whole ? o->clip_norm : 0;
    desc.skip_nonfinite = whole && o->skip_nonfinite;
    return desc;
}

static tutti_sgd_desc sgd_desc(const options *o, bool whole)
{
    tutti_sgd_desc desc = TUTTI_SGD_DESC_INIT;
    desc.momentum = o->momentum;
    desc.nesterov = o->nesterov;
    desc.weight_decay = 0.1;
    desc.clip_norm = whole ? o->clip_norm : 0;
    desc.skip_nonfinite = whole && o->skip_nonfinite;
    return desc;
}

static void make_list(twins *t)
{
    tutti_context *ctx = t->ctx;
    const options *o = &t->made;
    for (int i = 0; i < PARAMS; i++) {
        const tutti_param *from = tutti_params_get(t->store, i);
        const int64_t count = tutti_tensor_count(&from->value);
        const int off = i % 3; /* some tensors lie on no boundary but their elements' */
        tutti_param *param = &t->params[i];
        *param = *from;
        t->value[i] = copy_of(ctx, from->value.dtype, count, off, &from->value);
        param->value = line(&t->value[i]);
        param->master = (tutti_tensor){.data = NULL}; /* the value itself */
        if (from->value.dtype != o->master) {
            t->master[i] = copy_of(ctx, o->master, count, off, &from->master);
            param->master = line(&t->master[i]);
        }
        t->grad[i] = copy_of(ctx, o->grad ? o->grad : o->master, count, off, NULL);
        t->grads[i] = param->grad = line(&t->grad[i]);
        for (int s = 0; s < STATES; s++) {
            t->state[s][i] = copy_of(ctx, o->master, count, off, NULL);
            t->states[s][i] = line(&t->state[s][i]);
        }
        t->list[i] = param;
    }
    t->updates = copy_of(ctx, TUTTI_F64, 1, 0, NULL);
    t->updates_tensor = line(&t->updates);
    t->norm = copy_of(ctx, TUTTI_F64, VALUES, 0, NULL);
    t->norm_tensor = line(&t->norm);
}

static twins *set_up(tutti_context *ctx, const options *o)
{
    twins *t = harness_calloc(1, sizeof *t);
    t->ctx = ctx;
    t->made = *o;
    t->state_count = o->sgd ? o->momentum > 0 : 2;
    make_store(t);
    const tutti_adamw_desc adamw = adamw_desc(o, true);
    const tutti_sgd_desc sgd = sgd_desc(o, true);
    if (o->sgd)
        CHECK_OK(tutti_sgd_create(ctx, t->store, &sgd, &t->sgd));
    else
        CHECK_OK(tutti_adamw_create(ctx, t->store, &adamw, &t->adamw));
    make_list(t);
    return t;
}

static void tear_down(twins *t)
{
    for (int i = 0; i < PARAMS; i++) {
        harness_buffer *const buffers[] = {&t->value[i], &t->master[i], &t->grad[i],
                                           &t->state[0][i], &t->state[1][i]};
        for (int b = 0; b < HARNESS_COUNT(buffers); b++) {
            if (!buffers[b]->data) continue;
            CHECK(harness_buffer_intact(t->ctx, buffers[b]), "p%d: written beyond buffer %d", i, b);
            harness_buffer_free(t->ctx, buffers[b]);
        }
    }
    harness_buffer_free(t->ctx, &t->updates);
    harness_buffer_free(t->ctx, &t->norm);
    tutti_adamw_destroy(&t->adamw);
    tutti_sgd_destroy(&t->sgd);
    tutti_step_block_destroy(&t->step);
    tutti_params_destroy(&t->store);
    free(t);
}

/* The same gradients for both; bad: one of them is this. */
static void put_gradients(twins *t, harness_rng *rng, double bad)
{
    for (int i = 0; i < PARAMS; i++) {
        const tutti_tensor *grad = &tutti_params_get(t->store, i)->grad;
        const int64_t count = tutti_tensor_count(grad);
        double *values = harness_calloc((size_t)count, sizeof *values);
        for (int64_t e = 0; e < count; e++)
            values[e] = harness_round(t->made.master,
                                      harness_normal(rng) * pow(10, harness_uniform(rng, -4, 1)));
        if (i == PARAMS / 2 && bad != 0) values[count - 1] = bad;
        harness_buffer_put(t->ctx, &t->grad[i], values);
        harness_put(t->ctx, grad, values);
        free(values);
    }
}

/* The values that a norm left. */
static tutti_grad_norm_values norm_of(twins *t)
{
    double v[VALUES];
    harness_buffer_get(t->ctx, &t->norm, v);
    return (tutti_grad_norm_values){v[0], v[1], v[2], v[3]};
}

static bool same_bits(tutti_context *ctx, const void *a, const tutti_tensor *b)
{
    const size_t bytes = (size_t)tutti_tensor_count(b) * tutti_dtype_size(b->dtype);
    char *got = harness_calloc(bytes, 1), *want = harness_calloc(bytes, 1);
    CHECK_OK(tutti_copy(ctx, got, a, bytes));
    CHECK_OK(tutti_copy(ctx, want, b->data, bytes));
    CHECK_OK(tutti_context_synchronize(ctx));
    const bool same = memcmp(got, want, bytes) == 0;
    free(got);
    free(want);
    return same;
}

/* A parameter's part of a store's state. */
static tutti_tensor stored_state(const twins *t, int s, int i)
{
    tutti_state_tensor state;
    tutti_tensor flat;
    const tutti_tensor *grad = &tutti_params_get(t->store, i)->grad;
    CHECK_OK(t->sgd ? tutti_sgd_state_get(t->sgd, s, &state)
                    : tutti_adamw_state_get(t->adamw, s, &state));
    CHECK_OK(tutti_params_flat(t->store, TUTTI_PARAMS_GRAD, &flat));
    const ptrdiff_t at = (char *)grad->data - (char *)flat.data;
    return tutti_tensor_1d((char *)state.tensor.data + at, grad->dtype, tutti_tensor_count(grad));
}

static void compare(twins *t)
{
    for (int i = 0; i < PARAMS; i++) {
        const tutti_param *want = tutti_params_get(t->store, i), *got = t->list[i];
        const tutti_tensor *master = got->master.data ? &got->master : &got->value;
        CHECK(same_bits(t->ctx, master->data, &want->master), "the master of %s", want->name);
        CHECK(same_bits(t->ctx, got->value.data, &want->value), "the value of %s", want->name);
        for (int s = 0; s < t->state_count; s++) {
            const tutti_tensor state = stored_state(t, s, i);
            CHECK(same_bits(t->ctx, t->state[s][i].data, &state), "state %d of %s", s, want->name);
        }
    }
}

static void apply(twins *t, bool normed)
{
    const options *o = &t->made;
    const tutti_adamw_desc adamw = adamw_desc(o, false);
    const tutti_sgd_desc sgd = sgd_desc(o, false);
    const tutti_update_call call = {.params = t->list,
                                    .count = PARAMS,
                                    .state = {t->state_count > 0 ? t->states[0] : NULL,
                                              t->state_count > 1 ? t->states[1] : NULL},
                                    .step = t->step,
                                    .updates = o->counts_steps ? NULL : &t->updates_tensor,
                                    .norm = normed ? &t->norm_tensor : NULL};
    CHECK_OK(o->sgd ? tutti_sgd_apply(t->ctx, &sgd, &call)
                    : tutti_adamw_apply(t->ctx, &adamw, &call));
}

/* Of the list where its runs are the store's, otherwise of the store's flat gradients. */
static void find_norm(twins *t)
{
    const options *o = &t->made;
    tutti_grad_norm_desc desc = TUTTI_GRAD_NORM_DESC_INIT;
    tutti_tensor flat;
    desc.clip_norm = o->clip_norm;
    desc.skip_nonfinite = o->skip_nonfinite;
    CHECK_OK(tutti_params_flat(t->store, TUTTI_PARAMS_GRAD, &flat));
    if (o->value == o->other && !o->grad)
        CHECK_OK(tutti_grad_norm(t->ctx, t->grads, PARAMS, t->step, &desc, &t->norm_tensor));
    else
        CHECK_OK(tutti_grad_norm(t->ctx, &flat, 1, t->step, &desc, &t->norm_tensor));
}

static void check_step(twins *t, harness_rng *rng, int number, double loss_scale, double bad)
{
    const options *o = &t->made;
    harness_where("%s masters, %s and %s values, %s, step %d", tutti_dtype_name(o->master),
                  tutti_dtype_name(o->value), tutti_dtype_name(o->other), o->sgd ? "sgd" : "adamw",
                  number);
    put_gradients(t, rng, bad);
    CHECK_OK(tutti_step_block_set(t->step, t->ctx,
                                  &(tutti_step_values){.step = number,
                                                       .loss_weight = 1,
                                                       .learning_rate = 0.01 / number,
                                                       .loss_scale = loss_scale}));
    tutti_adamw_stats stats = {0};
    if (o->sgd) {
        tutti_sgd_stats read;
        CHECK_OK(tutti_sgd_update(t->sgd, t->ctx, t->step));
        CHECK_OK(tutti_sgd_get_stats(t->sgd, t->ctx, &read));
        stats = (tutti_adamw_stats){read.grad_norm, read.updates, read.skipped};
    } else {
        CHECK_OK(tutti_adamw_update(t->adamw, t->ctx, t->step));
        CHECK_OK(tutti_adamw_get_stats(t->adamw, t->ctx, &stats));
    }
    find_norm(t);
    apply(t, o->clip_norm > 0 || o->skip_nonfinite);
    const tutti_grad_norm_values norm = norm_of(t);
    double updates;
    harness_buffer_get(t->ctx, &t->updates, &updates);
    CHECK(memcmp(&norm.norm, &stats.grad_norm, sizeof norm.norm) == 0,
          "the norm is %.17g, the store's %.17g", norm.norm, stats.grad_norm);
    CHECK(norm.skip == stats.skipped && norm.nonfinite == !isfinite(norm.norm),
          "skip is %g, nonfinite %g", norm.skip, norm.nonfinite);
    CHECK(updates == (o->counts_steps ? 0 : (double)stats.updates), "%g updates", updates);
    compare(t);
    harness_where(NULL);
}

static const tutti_dtype types[][3] = {{TUTTI_F32, TUTTI_F32, TUTTI_F32},
                                       {TUTTI_F32, TUTTI_BF16, TUTTI_BF16},
                                       {TUTTI_F32, TUTTI_F16, TUTTI_F16},
                                       {TUTTI_F32, TUTTI_BF16, TUTTI_F32},
                                       {TUTTI_F64, TUTTI_F64, TUTTI_F64}};

/* bad: a gradient of the second of four steps, if it is not 0 */
static void run_twins(options o, int threads, double loss_scale, double bad)
{
    tutti_context *own = threads ? harness_new_context(0, threads) : NULL;
    for (int type = 0; type < HARNESS_COUNT(types); type++) {
        o.master = types[type][0];
        o.value = types[type][1];
        o.other = types[type][2];
        harness_rng rng = {7};
        twins *t = set_up(own ? own : harness_context(), &o);
        for (int step = 1; step <= 4; step++)
            check_step(t, &rng, step, loss_scale, step == 2 ? bad : 0);
        tear_down(t);
    }
    tutti_context_destroy(&own);
}

static void test_adamw(void)
{
    run_twins((options){.clip_norm = 0}, 0, 1, 0);
    run_twins((options){.counts_steps = true}, 3, 0.25, 0);
}

static void test_sgd(void)
{
    run_twins((options){.sgd = true}, 0, 1, 0);
    run_twins((options){.sgd = true, .momentum = 0.9}, 3, 64, 0);
    run_twins((options){.sgd = true, .momentum = 0.8, .nesterov = 1}, 0, 1, 0);
}

static void test_clip(void)
{
    run_twins((options){.clip_norm = 0.5}, 0, 4096, 0);
    run_twins((options){.clip_norm = 1e9}, 3, 1, 0);
    run_twins((options){.sgd = true, .momentum = 0.9, .clip_norm = 0.5}, 0, 1, 0);
}

/* A step with a NaN or an infinity is skipped like the store's, which then counts it not. */
static void test_skip(void)
{
    run_twins((options){.skip_nonfinite = 1}, 0, 1, NAN);
    run_twins((options){.sgd = true, .momentum = 0.9, .skip_nonfinite = 1, .clip_norm = 1}, 0, 2,
              INFINITY);
    run_twins((options){.clip_norm = 1}, 0, 1, NAN); /* not skipped */
}

/* Without a norm, and with a skipped step, which writes nothing. */
static void test_nothing_is_written(void)
{
    const options o = {
        .master = TUTTI_F32, .value = TUTTI_BF16, .other = TUTTI_F32, .skip_nonfinite = 1};
    twins *t = set_up(harness_context(), &o);
    harness_rng rng = {1};
    const tutti_step_values values = {.step = 1, .loss_weight = 1, .learning_rate = 1};
    CHECK_OK(tutti_step_block_set(t->step, t->ctx, &values));
    put_gradients(t, &rng, -INFINITY);
    find_norm(t);
    apply(t, true);
    compare(t); /* with the store, which made no step */
    double updates;
    harness_buffer_get(t->ctx, &t->updates, &updates);
    CHECK(updates == 0 && norm_of(t).skip == 1, "%g updates, skip is %g", updates, norm_of(t).skip);
    tear_down(t);
}

/* Gradients of f64 for f32 parameters: those values rounded. */
static void test_wide_gradients(void)
{
    for (int sgd = 0; sgd < 2; sgd++) {
        const options o = {.sgd = sgd,
                           .momentum = 0.9,
                           .master = TUTTI_F32,
                           .value = TUTTI_F32,
                           .other = TUTTI_F16,
                           .grad = TUTTI_F64};
        harness_rng rng = {3};
        twins *t = set_up(harness_context(), &o);
        for (int step = 1; step <= 2; step++) check_step(t, &rng, step, 1, 0);
        tear_down(t);
    }
}

/* The norm alone */

enum { GRADS = 300 };
static const tutti_dtype grad_types[2] = {TUTTI_F32, TUTTI_F64};

/* Sizes from 0 on; every seventh is f64 if mixed. */
static void make_grads(tutti_context *ctx, harness_buffer *buffers, tutti_tensor *grads, bool mixed,
                       int off, long double *square)
{
    harness_rng rng = {11};
    *square = 0;
    for (int i = 0; i < GRADS; i++) {
        const int64_t count = i % 50 == 49 ? 40000 + i : i % 8 * 57 + i % 3;
        const tutti_dtype dtype = grad_types[mixed && i % 7 == 0];
        double *values = harness_calloc((size_t)count + 1, sizeof *values);
        harness_fill(&rng, values, count, dtype, 0, 1);
        for (int64_t e = 0; e < count; e++) *square += (long double)values[e] * values[e];
        buffers[i] = harness_buffer_make(ctx, dtype, 1, count, 0, off ? i % 4 : 0);
        harness_buffer_put(ctx, &buffers[i], values);
        grads[i] = line(&buffers[i]);
        free(values);
    }
}

static double norm_with(tutti_context *ctx, const tutti_tensor *grads, int count,
                        const harness_buffer *norm)
{
    double values[VALUES];
    const tutti_tensor tensor = line(norm);
    CHECK_OK(tutti_grad_norm(ctx, grads, count, NULL, NULL, &tensor));
    harness_buffer_get(ctx, norm, values);
    CHECK(values[1] == 1 && values[2] == 0 && values[3] == 0, "clip is %g, nonfinite %g, skip %g",
          values[1], values[2], values[3]);
    return values[0];
}

static void test_norm(void)
{
    tutti_context *ctx = harness_context(), *other = harness_new_context(0, 3);
    harness_buffer norm = harness_buffer_make(ctx, TUTTI_F64, 1, VALUES, 0, 0);
    for (int mixed = 0; mixed < 2; mixed++) {
        double aligned = 0;
        for (int off = 0; off < 2; off++) {
            harness_buffer buffers[GRADS];
            tutti_tensor grads[GRADS];
            long double square;
            make_grads(ctx, buffers, grads, mixed, off, &square);
            const double got = norm_with(ctx, grads, GRADS, &norm), want = (double)sqrtl(square);
            CHECK(fabs(got - want) <= 1e-14 * want, "the norm is %.17g, want %.17g", got, want);
            CHECK(off == 0 || got == aligned, "%.17g, and %.17g off boundaries", aligned, got);
            aligned = got;
            const double again = norm_with(other, grads, GRADS, &norm);
            CHECK(got == again, "%.17g, and %.17g by three threads", got, again);
            const double one = norm_with(ctx, &grads[49], 1, &norm);
            CHECK(one > 0 && one < got, "the norm of one is %g", one);
            for (int i = 0; i < GRADS; i++) harness_buffer_free(ctx, &buffers[i]);
        }
    }
    CHECK(norm_with(ctx, NULL, 0, &norm) == 0, "the norm of nothing");
    CHECK(harness_buffer_intact(ctx, &norm), "written beyond the norm");
    harness_buffer_free(ctx, &norm);
    tutti_context_destroy(&other);
}

/* The values beside the norm, for one gradient of 3 and 4. */
static void test_norm_values(void)
{
    static const struct {
        double bad, clip_norm;
        int skip;
        tutti_grad_norm_values want;
    } cases[] = {
        {0, 0, 1, {5, 1, 0, 0}},
        {0, 10, 1, {5, 1, 0, 0}},
        {0, 2, 0, {5, 2 / 5.000001, 0, 0}},
        {NAN, 2, 0, {NAN, NAN, 1, 0}},
        {NAN, 0, 1, {NAN, 1, 1, 1}},
        {-INFINITY, 2, 1, {INFINITY, 0, 1, 1}},
    };
    tutti_context *ctx = harness_context();
    harness_buffer grad = harness_buffer_make(ctx, TUTTI_F32, 1, 3, 0, 1);
    harness_buffer norm = harness_buffer_make(ctx, TUTTI_F64, 1, VALUES, 0, 0);
    const tutti_tensor grads = line(&grad), tensor = line(&norm);
    for (int c = 0; c < HARNESS_COUNT(cases); c++) {
        tutti_grad_norm_desc desc = TUTTI_GRAD_NORM_DESC_INIT;
        double got[VALUES], want[VALUES], exact[VALUES] = {0};
        memcpy(want, &cases[c].want, sizeof want);
        desc.clip_norm = cases[c].clip_norm;
        desc.skip_nonfinite = cases[c].skip;
        harness_buffer_put(ctx, &grad, (double[]){3, cases[c].bad, 4});
        CHECK_OK(tutti_grad_norm(ctx, &grads, 1, NULL, &desc, &tensor));
        harness_buffer_get(ctx, &norm, got);
        harness_where("case %d", c);
        CHECK_CLOSE("norm, clip, nonfinite, skip", got, want, exact, VALUES);
        harness_where(NULL);
    }
    harness_buffer_free(ctx, &grad);
    harness_buffer_free(ctx, &norm);
}

static const harness_test tests[] = {
    {"adamw", test_adamw},
    {"sgd", test_sgd},
    {"clip", test_clip},
    {"skip", test_skip},
    {"nothing is written", test_nothing_is_written},
    {"wide gradients", test_wide_gradients},
    {"norm", test_norm},
    {"norm's values", test_norm_values},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, "update", tests, HARNESS_COUNT(tests));
}
