/* Tests of FusedLinear. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

typedef struct linear_case {
    tutti_dtype dtype;
    tutti_activation activation;
    int64_t rows, in, out;
    bool no_bias, accumulate, no_dx, no_dweight, no_dbias, no_y;
    bool tf32;
    bool positive; /* every number but the old gradients */
    double slope;
    layout place;
    uint64_t seed;
} linear_case;

enum { ACTIVATIONS = 7 };
static const char *const names[ACTIVATIONS] = {"none",     "relu",         "leaky_relu", "gelu",
                                               "gelu_erf", "squared_relu", "silu"};

static linear_case usual(tutti_dtype dtype, tutti_activation activation, int64_t rows, int64_t in,
                         int64_t out)
{
    return (linear_case){.dtype = dtype,
                         .activation = activation,
                         .rows = rows,
                         .in = in,
                         .out = out,
                         .slope = 0.125,
                         .seed = (uint64_t)(rows * 1000003 + in * 1009 + out)};
}

static bool reads_y(tutti_activation a)
{
    return a == TUTTI_ACT_RELU || a == TUTTI_ACT_LEAKY_RELU || a == TUTTI_ACT_SQUARED_RELU;
}

typedef struct setting {
    tutti_layer *layer;
    operand x, y, dy, dx, weight, bias, dweight, dbias;
    double *old_dweight, *old_dbias;
    harness_buffer saved;
} setting;

static double *copy_of(const double *values, int64_t count)
{
    double *copy = harness_calloc((size_t)count, sizeof *copy);
    memcpy(copy, values, (size_t)count * sizeof *copy);
    return copy;
}

static void make_positive(tutti_context *ctx, operand *o)
{
    for (int64_t i = 0; i < o->count; i++)
        o->values[i] = harness_round(o->buffer.dtype, 0.5 + fabs(o->values[i]));
    operand_put(ctx, o);
}

static setting set_up(tutti_context *ctx, const linear_case *c)
{
    harness_where("%s %s %lld x %lld -> %lld%s%s%s%s%s pad %d misaligned %d", names[c->activation],
                  tutti_dtype_name(c->dtype), (long long)c->rows, (long long)c->in,
                  (long long)c->out, c->no_bias ? " no bias" : "",
                  c->accumulate ? " accumulate" : "", c->no_dx ? " no dx" : "",
                  c->no_dweight ? " no dweight" : "", c->no_dbias ? " no dbias" : "", c->place.pad,
                  c->place.misaligned);
    tutti_linear_desc desc = TUTTI_LINEAR_DESC_INIT;
    desc.in = c->in;
    desc.out = c->out;
    desc.dtype = c->dtype;
    desc.activation = c->activation;
    desc.slope = c->slope;
    desc.no_bias = c->no_bias;
    desc.allow_tf32 = c->tf32;
    setting s = {0};
    if (!CHECK_OK(tutti_linear_create(ctx, &desc, &s.layer))) return s;
    harness_rng rng = {c->seed};
    tutti_dtype grad = c->dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    layout flat = {0, c->place.misaligned};
    double deviation = c->accumulate ? 1 : -1;
    s.x = operand_make(ctx, &rng, c->dtype, c->rows, c->in, c->place, 0.1, 1);
    s.y = operand_make(ctx, &rng, c->dtype, c->rows, c->out, c->place, OUTPUT);
    s.dy = operand_make(ctx, &rng, c->dtype, c->rows, c->out, c->place, 0.1, 1);
    s.dx = operand_make(ctx, &rng, c->dtype, c->rows, c->in, c->place, OUTPUT);
    s.weight = operand_make(ctx, &rng, c->dtype, c->out, c->in, flat, 0, 1.5 / sqrt((double)c->in));
    s.dweight = operand_make(ctx, &rng, grad, c->out, c->in, flat, 0, deviation);
    s.old_dweight = copy_of(s.dweight.values, s.dweight.count);
    bind_param(s.layer, 0, &s.weight, c->no_dweight ? NULL : &s.dweight);
    if (!c->no_bias) {
        s.bias = operand_make(ctx, &rng, c->dtype, 1, c->out, flat, 0, 0.5);
        s.dbias = operand_make(ctx, &rng, grad, 1, c->out, flat, 0, deviation);
        s.old_dbias = copy_of(s.dbias.values, s.dbias.count);
        bind_param(s.layer, 1, &s.bias, c->no_dbias ? NULL : &s.dbias);
    }
    if (c->positive) {
        operand *all[] = {&s.x, &s.dy, &s.weight, &s.bias};
        for (int i = 0; i < HARNESS_COUNT(all); i++) make_positive(ctx, all[i]);
    }
    s.saved = saved_make(ctx, s.layer, c->rows);
    return s;
}

static void tear_down(tutti_context *ctx, setting *s)
{
    if (!s->layer) return;
    CHECK_OK(tutti_context_synchronize(ctx));
    tutti_layer_destroy(&s->layer);
    operand *all[] = {&s->x, &s->y, &s->dy, &s->dx, &s->weight, &s->bias, &s->dweight, &s->dbias};
    for (int i = 0; i < HARNESS_COUNT(all); i++) operand_free(ctx, all[i]);
    harness_buffer_free(ctx, &s->saved);
    free(s->old_dweight);
    free(s->old_dbias);
}

static oracle_linear oracle_of(const linear_case *c, const setting *s)
{
    return (oracle_linear){.rows = c->rows,
                           .in = c->in,
                           .out = c->out,
                           .activation = c->activation,
                           .slope = c->slope,
                           .dtype = c->dtype,
                           .weight = s->weight.values,
                           .bias = s->bias.values};
}

static tutti_status run_forward(tutti_context *ctx, setting *s)
{
    return tutti_linear_forward(
        s->layer, ctx, &(tutti_linear_call){.x = &s->x.tensor, .y = &s->y.tensor, SAVED(s->saved)});
}

static tutti_status run_backward(tutti_context *ctx, const linear_case *c, setting *s)
{
    const tutti_linear_call call = {
        .x = &s->x.tensor,
        .y = c->no_y ? NULL : &s->y.tensor,
        .dy = &s->dy.tensor,
        .dx = c->no_dx ? NULL : &s->dx.tensor,
        SAVED(s->saved),
        .flags = c->accumulate ? TUTTI_GRAD_ACCUMULATE : 0,
    };
    return tutti_linear_backward(s->layer, ctx, &call);
}

static void check_forward(tutti_context *ctx, const linear_case *c, setting *s)
{
    if (!CHECK_OK(run_forward(ctx, s))) return;
    operand_get(ctx, &s->y, "y");
    operand_check_unchanged(ctx, &s->x, "x");
    operand_check_unchanged(ctx, &s->weight, "weight");
    CHECK(harness_buffer_intact(ctx, &s->saved), "saved: written outside");
    oracle_linear oracle = oracle_of(c, s);
    expected y = expected_make(s->y.count);
    oracle_linear_forward(&oracle, s->x.values, y.want, y.bound);
    bool sharp =
        c->in <= 64 && c->rows * c->out >= 64 && c->dtype != TUTTI_F64 && c->dtype != TUTTI_F32;
    check_expected("y", &s->y, &y, sharp || c->positive);
    expected_free(&y);
}

static void check_backward(tutti_context *ctx, const linear_case *c, setting *s)
{
    if (!CHECK_OK(run_backward(ctx, c, s))) return;
    operand_check_unchanged(ctx, &s->x, "x");
    operand_check_unchanged(ctx, &s->dy, "dy");
    operand_check_unchanged(ctx, &s->weight, "weight");
    oracle_linear oracle = oracle_of(c, s);
    expected dx = expected_make(s->dx.count), dweight = expected_make(s->dweight.count);
    expected dbias = expected_make(c->out);
    oracle_linear_grads wanted = {.old_dweight = c->accumulate ? s->old_dweight : NULL,
                                  .old_dbias = c->accumulate ? s->old_dbias : NULL,
                                  .dx = c->no_dx ? NULL : dx.want,
                                  .dx_bound = dx.bound,
                                  .dweight = c->no_dweight ? NULL : dweight.want,
                                  .dweight_bound = dweight.bound,
                                  .dbias = c->no_bias || c->no_dbias ? NULL : dbias.want,
                                  .dbias_bound = dbias.bound};
    oracle_linear_backward(&oracle, s->x.values, s->y.values, s->dy.values, &wanted);
    if (wanted.dx) {
        operand_get(ctx, &s->dx, "dx");
        check_expected("dx", &s->dx, &dx, c->positive);
    }
    if (wanted.dweight) {
        operand_get(ctx, &s->dweight, "dweight");
        check_expected("dweight", &s->dweight, &dweight, c->positive);
    } else
        operand_check_unchanged(ctx, &s->dweight, "unbound gradient of weight");
    if (wanted.dbias) {
        operand_get(ctx, &s->dbias, "dbias");
        check_expected("dbias", &s->dbias, &dbias, c->positive);
    } else if (!c->no_bias)
        operand_check_unchanged(ctx, &s->dbias, "unbound gradient of bias");
    expected_free(&dx);
    expected_free(&dweight);
    expected_free(&dbias);
}

static void check_case(const linear_case *c)
{
    tutti_context *ctx = harness_context();
    setting s = set_up(ctx, c);
    if (s.layer) {
        int failures = harness_failures();
        check_forward(ctx, c, &s);
        if (harness_failures() == failures) check_backward(ctx, c, &s);
    }
    tear_down(ctx, &s);
}

static void test_activations(void)
{
    static const int64_t shapes[][3] = {{16, 32, 24}, {7, 19, 33}};
    for (int type = 0; type < 4; type++)
        for (int activation = 0; activation < ACTIVATIONS; activation++)
            for (int no_bias = 0; no_bias < 2; no_bias++)
                for (int i = 0; i < (harness_quick() ? 1 : HARNESS_COUNT(shapes)); i++) {
                    linear_case c = usual(float_dtypes[type], (tutti_activation)activation,
                                          shapes[i][0], shapes[i][1], shapes[i][2]);
                    c.no_bias = no_bias;
                    c.accumulate = (i + no_bias) & 1;
                    check_case(&c);
                }
}

static void test_shapes(void)
{
    static const int64_t shapes[][3] = {
        {1, 1, 1},     {1, 7, 3},     {3, 1, 5},       {5, 3, 1},    {2, 8, 8},     {1, 256, 10},
        {64, 8, 16},   {33, 65, 129}, {129, 64, 31},   {100, 10, 7}, {17, 1024, 9}, {9, 5, 1025},
        {300, 40, 50}, {257, 3, 2},   {128, 128, 128}, {1, 4099, 2}, {4, 2, 4099},
    };
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(shapes); i++) {
            /* the longest has its factors in pieces */
            if (harness_quick() && i != 1 && i != 7 && i != 10) continue;
            linear_case c = usual(float_dtypes[type], (tutti_activation)((i + type) % ACTIVATIONS),
                                  shapes[i][0], shapes[i][1], shapes[i][2]);
            c.no_bias = i % 3 == 2;
            c.accumulate = i % 2;
            check_case(&c);
        }
}

static void test_options(void)
{
    static const tutti_activation some[] = {TUTTI_ACT_NONE, TUTTI_ACT_RELU, TUTTI_ACT_SILU};
    for (int type = 0; type < 4; type++)
        for (int activation = 0; activation < HARNESS_COUNT(some); activation++)
            for (int bits = 0; bits < 32; bits++) {
                if (harness_quick() && ((bits & (bits - 1)) || type > 1)) continue;
                linear_case c = usual(float_dtypes[type], some[activation], 6, 10, 14);
                c.no_dx = bits & 1;
                c.no_dweight = bits & 2;
                c.no_dbias = bits & 4;
                c.accumulate = bits & 8;
                c.no_bias = bits & 16;
                c.no_y = !reads_y(c.activation);
                if (c.no_bias && c.no_dbias) continue;
                check_case(&c);
            }
}

static void test_strides_and_alignment(void)
{
    static const layout places[] = {{3, 0}, {8, 0}, {0, 1}, {5, 1}, {1, 3}, {8, 4}};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(places); i++)
            for (int activation = 0; activation < ACTIVATIONS; activation += 3) {
                if (harness_quick() && (i + activation) % 2) continue;
                linear_case c = usual(float_dtypes[type], (tutti_activation)activation, 12, 24, 40);
                c.place = places[i];
                check_case(&c);
                c.in = 13;
                c.out = 9;
                if (!harness_quick()) check_case(&c);
            }
}

static void test_dimensions(void)
{
    tutti_context *ctx = harness_context();
    linear_case c = usual(TUTTI_F32, TUTTI_ACT_GELU, 6, 12, 8);
    c.place.pad = 4;
    setting s = set_up(ctx, &c);
    operand *in[] = {&s.x, &s.dx}, *out[] = {&s.y, &s.dy};
    for (int i = 0; i < 2; i++) {
        in[i]->tensor.ndim = 4; /* in over two dimensions */
        memcpy(in[i]->tensor.dims, (int64_t[]){2, 3, 3, 4}, sizeof in[i]->tensor.dims);
        memcpy(in[i]->tensor.strides, (int64_t[]){48, 16, 4, 1}, sizeof in[i]->tensor.strides);
        out[i]->tensor.ndim = 3;
        memcpy(out[i]->tensor.dims, (int64_t[]){3, 2, 8}, 3 * sizeof(int64_t));
        memcpy(out[i]->tensor.strides, (int64_t[]){24, 12, 1}, 3 * sizeof(int64_t));
    }
    check_forward(ctx, &c, &s);
    check_backward(ctx, &c, &s);
    tear_down(ctx, &s);
}

/* y does not depend on whether z is kept. */
static void test_without_saved(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < 4; type++)
        for (int activation = 0; activation < ACTIVATIONS; activation++) {
            linear_case c = usual(float_dtypes[type], (tutti_activation)activation, 9, 16, 24);
            setting s = set_up(ctx, &c);
            check_forward(ctx, &c, &s);
            harness_buffer_poison(ctx, &s.y.buffer);
            CHECK_OK(tutti_linear_forward(
                s.layer, ctx, &(tutti_linear_call){.x = &s.x.tensor, .y = &s.y.tensor}));
            operand_get(ctx, &s.y, "y without saved");
            oracle_linear oracle = oracle_of(&c, &s);
            expected y = expected_make(s.y.count);
            oracle_linear_forward(&oracle, s.x.values, y.want, y.bound);
            check_expected("y without saved", &s.y, &y, false);
            expected_free(&y);
            size_t wanted = activation == TUTTI_ACT_GELU || activation == TUTTI_ACT_GELU_ERF ||
                                    activation == TUTTI_ACT_SILU
                                ? 9 * 24 * tutti_dtype_size(c.dtype)
                                : 0;
            size_t bytes = tutti_layer_saved_bytes(s.layer, 9);
            CHECK(wanted ? bytes >= wanted : bytes == 0, "saved has %zu bytes, want %zu", bytes,
                  wanted);
            tear_down(ctx, &s);
        }
}

static void test_no_rows(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < 4; type++)
        for (int accumulate = 0; accumulate < 2; accumulate++)
            for (int activation = 0; activation < ACTIVATIONS; activation++) {
                linear_case c = usual(float_dtypes[type], (tutti_activation)activation, 0, 10, 6);
                c.accumulate = accumulate;
                check_case(&c);
                setting s = set_up(ctx, &c);
                tutti_tensor x = tutti_tensor_2d(NULL, c.dtype, 0, 10);
                tutti_tensor y = tutti_tensor_2d(NULL, c.dtype, 0, 6);
                const tutti_linear_call call = {.x = &x,
                                                .y = &y,
                                                .dy = &y,
                                                .dx = &x,
                                                .flags = accumulate ? TUTTI_GRAD_ACCUMULATE : 0};
                CHECK_OK(tutti_linear_forward(s.layer, ctx, &call));
                CHECK_OK(tutti_linear_backward(s.layer, ctx, &call));
                operand_get(ctx, &s.dweight, "dweight");
                operand_get(ctx, &s.dbias, "dbias");
                for (int64_t j = 0; j < s.dweight.count; j++)
                    if (!CHECK(s.dweight.values[j] == (accumulate ? s.old_dweight[j] : 0),
                               "dweight[%lld] is %g after 0 rows", (long long)j,
                               s.dweight.values[j]))
                        break;
                CHECK(s.dbias.values[5] == (accumulate ? s.old_dbias[5] : 0),
                      "dbias[5] is %g after 0 rows", s.dbias.values[5]);
                tear_down(ctx, &s);
            }
}

/* A NaN stays NaN through every activation, relu included, and through every gradient it reaches.
 */
static void test_nan(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < 4; type++)
        for (int activation = 0; activation < ACTIVATIONS; activation++)
            for (int where = 0; where < 3; where++) { /* in x, in dy, in bias */
                linear_case c = usual(float_dtypes[type], (tutti_activation)activation, 8, 16, 24);
                setting s = set_up(ctx, &c);
                operand *hit = where == 0 ? &s.x : where == 1 ? &s.dy : &s.bias;
                hit->values[where == 2 ? 5 : hit->buffer.cols + 3] = NAN;
                operand_put(ctx, hit);
                check_forward(ctx, &c, &s);
                check_backward(ctx, &c, &s);
                tear_down(ctx, &s);
            }
}

/* Infinities among other numbers. */
static void test_infinity(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < 4; type++)
        for (int activation = 0; activation < ACTIVATIONS; activation++) {
            linear_case c = usual(float_dtypes[type], (tutti_activation)activation, 8, 16, 24);
            setting s = set_up(ctx, &c);
            s.x.values[2 * 16 + 4] = INFINITY;
            s.bias.values[3] = -INFINITY;
            operand_put(ctx, &s.x);
            operand_put(ctx, &s.bias);
            check_forward(ctx, &c, &s);
            check_backward(ctx, &c, &s);
            tear_down(ctx, &s);
        }
}

/* Pre-activations far from 0, where exp overflows and tanh is 1. */
static void test_large_values(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < 4; type++)
        for (int activation = 0; activation < ACTIVATIONS; activation++) {
            linear_case c = usual(float_dtypes[type], (tutti_activation)activation, 1, 1, 64);
            setting s = set_up(ctx, &c);
            s.x.values[0] = 1;
            for (int64_t j = 0; j < 64; j++) {
                s.bias.values[j] = 0;
                s.weight.values[j] =
                    harness_round(c.dtype, (j & 1 ? -1 : 1) * pow(1.18, (double)j - 24));
            }
            operand_put(ctx, &s.x);
            operand_put(ctx, &s.bias);
            operand_put(ctx, &s.weight);
            check_forward(ctx, &c, &s);
            check_backward(ctx, &c, &s);
            tear_down(ctx, &s);
        }
}

/* The smooth activations where they fade, from the definitions: y, its slope, and the size of the exponent whose
 * roundings they carry. */
typedef struct faded {
    long double y, slope, exponent;
} faded;

static faded faded_at(tutti_activation activation, long double z)
{
    const long double pi = 3.14159265358979323846264338327950288L, k = sqrtl(2 / pi);
    if (activation == TUTTI_ACT_GELU_ERF) {
        long double cumulative = erfcl(-z * sqrtl(0.5L)) / 2;
        return (faded){z * cumulative, cumulative + z * expl(-z * z / 2) / sqrtl(2 * pi),
                       z * z / 2};
    }
    bool silu = activation == TUTTI_ACT_SILU;
    long double a = silu ? z : 2 * k * (z + 0.044715L * z * z * z), e = expl(a);
    long double da = silu ? 1 : 2 * k * (1 + 3 * 0.044715L * z * z);
    faded at = {z * (e / (1 + e)), 0, silu ? 0 : a};
    if (e > 0) at.slope = e / (1 + e) * (1 + z * da / (1 + e));
    return at;
}

/* Far left the results are as accurate as anywhere, down to the type's last normal number.  x is 1 and W is z, so that
 * z is exact; dy is 1, so that db is the slope. */
static void check_fading(tutti_context *ctx, linear_case *c, double farthest)
{
    setting s = set_up(ctx, c);
    static const double largest[] = {0x1.fffffep127, 0x1.fffffffffffffp1023, 65504, 0x1.fep127};
    int type = 0;
    while (float_dtypes[type] != c->dtype) type++;
    s.x.values[0] = 1;
    for (int64_t j = 0; j < c->out; j++) {
        double z = j < c->out - 4 ? -farthest * (double)(j + 100) / (double)(c->out + 100)
                                  : -pow(largest[type], (double)(c->out - j) / 4);
        s.weight.values[j] = harness_round(c->dtype, z);
        s.bias.values[j] = 0;
        s.dy.values[j] = 1;
    }
    operand *all[] = {&s.x, &s.weight, &s.bias, &s.dy};
    for (int i = 0; i < HARNESS_COUNT(all); i++) operand_put(ctx, all[i]);
    CHECK_OK(run_forward(ctx, &s));
    CHECK_OK(run_backward(ctx, c, &s));
    operand_get(ctx, &s.y, "y");
    operand_get(ctx, &s.dbias, "dbias");
    const tutti_dtype real = c->dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    const double u = harness_roundoff(real), U = c->dtype == real ? 0 : harness_roundoff(c->dtype);
    expected y = expected_make(c->out), slope = expected_make(c->out);
    for (int64_t j = 0; j < c->out; j++) {
        const faded at = faded_at(c->activation, s.weight.values[j]);
        /* where types of 16 bits are computed with the hardware's functions these are good to 2^-16 */
        double relative = u * (10 + (U > 0 ? 256 : 0));
        if (at.y != 0) relative += 6 * u * fabs((double)at.exponent);
        /* what is computed on the way is smaller than the result for gelu_erf only */
        const bool erf = c->activation == TUTTI_ACT_GELU_ERF;
        const double lost = harness_tiny(real) * (2 + (erf ? 2 * farthest : 0));
        y.want[j] = (double)at.y;
        y.bound[j] = (relative + U) * fabs(y.want[j]) + lost + harness_tiny(c->dtype) / 2;
        slope.want[j] = (double)at.slope;
        slope.bound[j] = relative * fabs(slope.want[j]) + lost;
        CHECK(signbit(s.y.values[j]), "y of %g is %g", s.weight.values[j], s.y.values[j]);
    }
    check_expected("y", &s.y, &y, false);
    check_expected("dbias", &s.dbias, &slope, false);
    expected_free(&y);
    expected_free(&slope);
    tear_down(ctx, &s);
}

static void test_fading(void)
{
    for (int type = 0; type < 4; type++) {
        const bool wide = float_dtypes[type] == TUTTI_F64;
        linear_case c = usual(float_dtypes[type], TUTTI_ACT_SILU, 1, 1, 600);
        check_fading(harness_context(), &c, wide ? 780 : 112);
        c.activation = TUTTI_ACT_GELU;
        check_fading(harness_context(), &c, wide ? 24 : 13);
        c.activation = TUTTI_ACT_GELU_ERF;
        check_fading(harness_context(), &c, wide ? 40 : 15);
    }
}

/* At infinite z every activation and its derivative have their limits. */
static void test_limits(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < 4; type++)
        for (int activation = 0; activation < ACTIVATIONS; activation++) {
            linear_case c = usual(float_dtypes[type], (tutti_activation)activation, 3, 4, 6);
            setting s = set_up(ctx, &c);
            for (int64_t j = 0; j < 6; j++) s.bias.values[j] = j & 1 ? -INFINITY : INFINITY;
            for (int64_t i = 0; i < 18; i++) s.dy.values[i] = 1;
            operand_put(ctx, &s.bias);
            operand_put(ctx, &s.dy);
            CHECK_OK(run_forward(ctx, &s));
            CHECK_OK(run_backward(ctx, &c, &s));
            operand_get(ctx, &s.y, "y");
            operand_get(ctx, &s.dbias, "dbias");
            static const double left[] = {-INFINITY, 0, -INFINITY, 0, 0, 0, 0};
            static const double slopes[] = {1, 0, 0.125, 0, 0, 0, 0};
            for (int64_t i = 0; i < 18; i++) {
                double want = i & 1 ? left[activation] : INFINITY, right = 1;
                if (activation == TUTTI_ACT_SQUARED_RELU) right = INFINITY;
                double slope = 3 * (i & 1 ? slopes[activation] : right);
                CHECK(s.y.values[i] == want && s.dbias.values[i % 6] == slope,
                      "z %cinf: y is %g, want %g; the slopes' sum is %g, want %g", "+-"[i & 1],
                      s.y.values[i], want, s.dbias.values[i % 6], slope);
            }
            tear_down(ctx, &s);
        }
}

/* act'(0) as the header says */
static void test_slope_at_zero(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < 4; type++)
        for (int activation = 0; activation < ACTIVATIONS; activation++) {
            linear_case c = usual(float_dtypes[type], (tutti_activation)activation, 2, 4, 8);
            setting s = set_up(ctx, &c);
            for (int64_t i = 0; i < s.x.count; i++) s.x.values[i] = 0;
            for (int64_t i = 0; i < c.out; i++) s.bias.values[i] = 0;
            operand_put(ctx, &s.x);
            operand_put(ctx, &s.bias);
            check_forward(ctx, &c, &s);
            check_backward(ctx, &c, &s);
            tear_down(ctx, &s);
        }
}

/* All terms positive: nothing cancels, so 16 ulp of any result must show. */
static void test_well_conditioned(void)
{
    static const int64_t shapes[][3] = {{64, 64, 64}, {48, 120, 40}, {31, 65, 17}};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < (harness_quick() ? 1 : HARNESS_COUNT(shapes)); i++) {
            linear_case c =
                usual(float_dtypes[type], TUTTI_ACT_NONE, shapes[i][0], shapes[i][1], shapes[i][2]);
            c.positive = true;
            check_case(&c);
        }
}

/* Many equal rows, whose roundings are all alike: db is as accurate as the sum of any. */
static void test_many_rows(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < 4; type++) {
        linear_case c = usual(float_dtypes[type], TUTTI_ACT_RELU, 300000, 1, 2);
        c.no_dx = c.no_dweight = true;
        setting s = set_up(ctx, &c);
        for (int64_t j = 0; j < s.dy.count; j++)
            s.dy.values[j] = harness_round(c.dtype, j % c.out ? 0.1 : 0.7);
        for (int64_t j = 0; j < s.y.count; j++) s.y.values[j] = 1;
        operand_put(ctx, &s.dy);
        operand_put(ctx, &s.y);
        CHECK_OK(run_backward(ctx, &c, &s));
        operand_get(ctx, &s.dbias, "dbias");
        /* blocks of up to 64 rows, and some merging */
        const double u = harness_roundoff(c.dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32);
        for (int64_t j = 0; j < c.out; j++) {
            double want = s.dy.values[j] * (double)c.rows, got = s.dbias.values[j];
            if (!CHECK(fabs(got - want) <= 150 * u * want,
                       "dbias[%lld] is %.17g, want %.17g: off by %.0f roundoffs", (long long)j, got,
                       want, fabs(got - want) / want / u))
                break;
        }
        tear_down(ctx, &s);
    }
}

/* allow_tf32 may round the factors of f32 products to 11 bits, and nothing else; on the host it
 * changes nothing. */
static void test_tf32(void)
{
    tutti_context *ctx = harness_context();
    linear_case c = usual(TUTTI_F32, TUTTI_ACT_NONE, 40, 96, 72), with = c;
    with.tf32 = true;
    setting s = set_up(ctx, &c), t = set_up(ctx, &with);
    CHECK_OK(run_forward(ctx, &s));
    CHECK_OK(run_backward(ctx, &c, &s));
    CHECK_OK(run_forward(ctx, &t));
    CHECK_OK(run_backward(ctx, &with, &t));
    operand *exact[] = {&s.y, &s.dx, &s.dweight}, *got[] = {&t.y, &t.dx, &t.dweight};
    static const char *const what[] = {"y", "dx", "dweight"};
    for (int i = 0; i < 3; i++) {
        operand_get(ctx, exact[i], what[i]);
        operand_get(ctx, got[i], what[i]);
        if (harness_backend() == TUTTI_BACKEND_HOST)
            check_same_bits(ctx, what[i], exact[i], got[i]);
        expected e = expected_make(exact[i]->count);
        for (int64_t j = 0; j < e.count; j++) {
            int64_t row = j / exact[i]->buffer.cols, col = j % exact[i]->buffer.cols;
            double magnitude = 0;
            int64_t terms = i == 0 ? c.in : i == 1 ? c.out : c.rows;
            for (int64_t k = 0; k < terms; k++)
                magnitude +=
                    i == 0   ? fabs(s.x.values[row * c.in + k] * s.weight.values[col * c.in + k])
                    : i == 1 ? fabs(s.dy.values[row * c.out + k] * s.weight.values[k * c.in + col])
                             : fabs(s.dy.values[k * c.out + row] * s.x.values[k * c.in + col]);
            e.want[j] = exact[i]->values[j];
            /* truncated or rounded, two factors; and the f32 arithmetic of both results */
            e.bound[j] = magnitude * (2 * 0x1p-10 + 2 * (oracle_depth(terms) + 2) * 0x1p-24);
        }
        check_expected(what[i], got[i], &e, false);
        expected_free(&e);
    }
    tear_down(ctx, &s);
    tear_down(ctx, &t);
}

/* The same call twice gives the same bits. */
static void test_repeated(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < 4; type++) {
        linear_case c = usual(float_dtypes[type], TUTTI_ACT_GELU, 70, 130, 90);
        setting s = set_up(ctx, &c), t = set_up(ctx, &c);
        setting *both[] = {&s, &t};
        for (int i = 0; i < 2; i++) {
            CHECK_OK(tutti_linear_plan(both[i]->layer, ctx,
                                       &(tutti_linear_call){.x = &both[i]->x.tensor,
                                                            .y = &both[i]->y.tensor,
                                                            .dy = &both[i]->dy.tensor,
                                                            .dx = &both[i]->dx.tensor,
                                                            SAVED(both[i]->saved)}));
            CHECK_OK(run_forward(ctx, both[i]));
            CHECK_OK(run_backward(ctx, &c, both[i]));
        }
        check_same_bits(ctx, "y", &s.y, &t.y);
        check_same_bits(ctx, "dx", &s.dx, &t.dx);
        check_same_bits(ctx, "dweight", &s.dweight, &t.dweight);
        check_same_bits(ctx, "dbias", &s.dbias, &t.dbias);
        tear_down(ctx, &s);
        tear_down(ctx, &t);
    }
}

static void test_threads(void)
{
    if (harness_backend() != TUTTI_BACKEND_HOST) {
        harness_skip("only the host backend has threads");
        return;
    }
    static const int64_t shapes[][3] = {{1, 300, 200}, {67, 131, 45}, {400, 64, 30}, {700, 9, 5}};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(shapes); i++) {
            linear_case c = usual(float_dtypes[type], (tutti_activation)(2 * i % ACTIVATIONS),
                                  shapes[i][0], shapes[i][1], shapes[i][2]);
            tutti_context *one = harness_new_context(0, 1);
            setting s = set_up(one, &c);
            CHECK_OK(run_forward(one, &s));
            CHECK_OK(run_backward(one, &c, &s));
            for (int threads = 2; threads <= 3; threads++) {
                tutti_context *several = harness_new_context(0, threads);
                setting t = set_up(several, &c);
                CHECK_OK(run_forward(several, &t));
                CHECK_OK(run_backward(several, &c, &t));
                check_same_bits(one, "y", &s.y, &t.y);
                check_same_bits(one, "dx", &s.dx, &t.dx);
                check_same_bits(one, "dweight", &s.dweight, &t.dweight);
                check_same_bits(one, "dbias", &s.dbias, &t.dbias);
                tear_down(several, &t);
                tutti_context_destroy(&several);
            }
            tear_down(one, &s);
            tutti_context_destroy(&one);
        }
}

typedef struct difference {
    const linear_case *c;
    setting *s;
} difference;

static double loss(void *self)
{
    difference *d = self;
    setting *s = d->s;
    tutti_context *ctx = harness_context();
    operand_put(ctx, &s->x);
    operand_put(ctx, &s->weight);
    operand_put(ctx, &s->bias);
    CHECK_OK(run_forward(ctx, s));
    operand_get(ctx, &s->y, "y");
    double total = 0;
    for (int64_t i = 0; i < s->y.count; i++) total += s->dy.values[i] * s->y.values[i];
    return total;
}

static void test_finite_differences(void)
{
    tutti_context *ctx = harness_context();
    for (int activation = 0; activation < ACTIVATIONS; activation++) {
        linear_case c = usual(TUTTI_F64, (tutti_activation)activation, 3, 5, 4);
        setting s = set_up(ctx, &c);
        /* no pre-activation within reach of the kinks at 0 */
        for (int64_t i = 0; i < s.bias.count; i++) s.bias.values[i] = i & 1 ? 6 : -6;
        operand_put(ctx, &s.bias);
        if (activation != TUTTI_ACT_NONE && !reads_y(c.activation))
            for (int64_t i = 0; i < s.bias.count; i++) s.bias.values[i] /= 12;
        operand_put(ctx, &s.bias);
        CHECK_OK(run_forward(ctx, &s));
        CHECK_OK(run_backward(ctx, &c, &s));
        operand_get(ctx, &s.dx, "dx");
        operand_get(ctx, &s.dweight, "dweight");
        operand_get(ctx, &s.dbias, "dbias");
        difference d = {&c, &s};
        check_gradient("dx", loss, &d, s.x.values, s.x.count, s.dx.values);
        check_gradient("dweight", loss, &d, s.weight.values, s.weight.count, s.dweight.values);
        check_gradient("dbias", loss, &d, s.bias.values, s.bias.count, s.dbias.values);
        tear_down(ctx, &s);
    }
}

int main(int argc, char **argv)
{
    static const harness_test tests[] = {
        {"activations", test_activations},
        {"shapes", test_shapes},
        {"options", test_options},
        {"strides and misaligned pointers", test_strides_and_alignment},
        {"several dimensions", test_dimensions},
        {"without saved", test_without_saved},
        {"no rows", test_no_rows},
        {"NaN", test_nan},
        {"infinities", test_infinity},
        {"large values", test_large_values},
        {"far left", test_fading},
        {"limits", test_limits},
        {"slope at zero", test_slope_at_zero},
        {"well-conditioned", test_well_conditioned},
        {"many rows", test_many_rows},
        {"TF32", test_tf32},
        {"repeated calls", test_repeated},
        {"bits and threads", test_threads},
        {"finite differences", test_finite_differences},
    };
    return harness_main(argc, argv, "linear", tests, HARNESS_COUNT(tests));
}
