/* Tests of FusedLinear. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"

/* Where sums do not cancel too much. */
static bool sharp(const trial *t, const trial_tensor *result)
{
    return !result->gradient && t->shapes[0].cols <= 64 && result->at->count >= 64 &&
           tutti_dtype_size(result->at->buffer.dtype) == 2;
}

/* For finite differences, keeps z away from a kink at 0: all terms of a column have one sign. */
static void draw(trial *t)
{
    if (!t->c.smooth || !strstr(t->c.options, "relu")) return;
    const int64_t in = t->shapes[0].cols;
    operand *x = &t->slots[0][0], *weight = &t->params[0][0], *bias = &t->params[1][0];
    for (int64_t i = 0; i < x->count; i++) x->values[i] = 0.3 + fabs(x->values[i]);
    for (int64_t i = 0; i < weight->count; i++)
        weight->values[i] = copysign(weight->values[i], i / in & 1 ? -1 : 1);
    for (int64_t i = 0; i < bias->count; i++)
        bias->values[i] = copysign(bias->values[i], i & 1 ? -1 : 1);
}

static const matrix_shape shapes[] = {
    {1, "in=1,out=1"},     {1, "in=7,out=3"},     {3, "in=1,out=5"},
    {5, "in=3,out=1"},     {2, "in=8,out=8"},     {1, "in=256,out=10"},
    {64, "in=8,out=16"},   {43, "in=65,out=129"}, {129, "in=64,out=31"},
    {100, "in=10,out=7"},  {17, "in=1024,out=9"}, {9, "in=5,out=1025"},
    {300, "in=20,out=30"}, {257, "in=3,out=2"},   {128, "in=64,out=32"},
    {1, "in=8195,out=2"},  {4, "in=2,out=4099"},  {0, NULL}};
static const matrix_shape some[] = {
    {5, "in=16,out=10"},   {12, "in=24,out=40"},   {12, "in=13,out=9"},
    {3, "in=130,out=20"},  {1, "in=300,out=40"},   {700, "in=3,out=2"},
    {400, "in=32,out=20"}, {67, "in=131,out=200"}, {0, NULL}};

#define ACT "slope=0.125,smelu_beta=0.7,star_scale=1.3,star_bias=-0.3,activation="
#define TEXT(name, text, from) text,
#define WITH_BIAS(name, text, from) ACT text,
#define WITHOUT_BIAS(name, text, from) ACT text ",no_bias=1",
static const char *const activations[] = {TUTTI_ACTIVATION_LIST(TEXT)};
static const matrix_kind linear = {
    .trial = {.name = "linear", .draw = draw, .sharp = sharp},
    .variants = {TUTTI_ACTIVATION_LIST(WITH_BIAS)
                     TUTTI_ACTIVATION_LIST(WITHOUT_BIAS) "activation=smelu",
                 "activation=star_relu", "allow_tf32=1", "activation=gelu,recompute=1",
                 "activation=smelu,no_bias=1,recompute=1", "activation=relu,recompute=1"},
    .shapes = shapes,
    .some = some,
    .small = "in=10,out=6",
};

#define EACH(type, act)                  \
    for (int type = 0; type < 4; type++) \
        for (int act = 0; act < HARNESS_COUNT(activations); act++)

/* Does not require that 16 ulp show. */
static trial_desc usual(int type, int act, int64_t rows, int64_t in, int64_t out)
{
    static const trial_kind blunt = {.name = "linear"};
    return trial_usual(&blunt, rows, "in=%lld,out=%lld,dtype=%s," ACT "%s", (long long)in,
                       (long long)out, tutti_dtype_name(float_dtypes[type]), activations[act]);
}

static void fill(trial *t, const char *name, double value)
{
    operand *o = trial_find(t, name);
    for (int64_t i = 0; i < o->count; i++) o->values[i] = harness_round(o->buffer.dtype, value);
}

/* A case with changed inputs: with x = 1 and no bias, z is W. */
static void check_changed(const trial_desc *c, void (*change)(trial *t))
{
    trial t;
    if (!trial_open(&t, harness_context(), c)) return;
    fill(&t, "bias", 0);
    fill(&t, "x", 1);
    change(&t);
    trial_put(&t);
    if (trial_run(&t)) trial_check(&t);
    trial_close(&t);
}

/* Pre-activations far from 0, where exp overflows and tanh is 1. */
static void make_large(trial *t)
{
    operand *weight = trial_find(t, "weight");
    for (int64_t j = 0; j < weight->count; j++)
        weight->values[j] =
            harness_round(weight->buffer.dtype, (j & 1 ? -1 : 1) * pow(1.18, (double)j - 24));
}

static void test_large_values(void)
{
    EACH(type, act)
    {
        const trial_desc c = usual(type, act, 1, 1, 64);
        check_changed(&c, make_large);
    }
}

static void make_zero(trial *t)
{
    fill(t, "x", 0);
}

/* act'(0) as the header says */
static void test_slope_at_zero(void)
{
    EACH(type, act)
    {
        const trial_desc c = usual(type, act, 2, 4, 8);
        check_changed(&c, make_zero);
    }
}

/* Many equal rows, whose rounding errors are equal: db is as accurate as any sum. */
static void test_many_rows(void)
{
    for (int type = 0; type < 4; type++) {
        trial_desc c = usual(type, TUTTI_ACT_RELU, 300000, 1, 2);
        c.absent_grads = c.untrained = 1; /* dx, dweight */
        trial t;
        if (!trial_open(&t, harness_context(), &c)) return;
        operand *dy = trial_find(&t, "dy");
        for (int64_t i = 0; i < dy->count; i++)
            dy->values[i] = harness_round(dy->buffer.dtype, i % 2 ? 0.1 : 0.7);
        fill(&t, "y", 1);
        operand_put(t.ctx, trial_find(&t, "y"));
        trial_put(&t);
        trial_backward(&t);
        trial_get(&t, true);
        /* blocks of up to 64 rows, and some merging */
        const double *got = trial_find(&t, "dbias")->values;
        const double u = harness_roundoff(type == 1 ? TUTTI_F64 : TUTTI_F32);
        for (int64_t j = 0; j < 2; j++) {
            const double want = dy->values[j] * (double)c.rows;
            CHECK(fabs(got[j] - want) <= 150 * u * want,
                  "dbias[%lld] is %.17g, want %.17g: off by %.0f roundoffs", (long long)j, got[j],
                  want, fabs(got[j] - want) / want / u);
        }
        trial_close(&t);
    }
}

static bool always(const trial *t, const trial_tensor *result)
{
    (void)t, (void)result;
    return true;
}

static void make_positive(trial *t)
{
    for (int i = 0; i < t->input_count; i++) {
        operand *o = t->inputs[i].at;
        for (int64_t k = 0; k < o->count; k++)
            o->values[k] = harness_round(o->buffer.dtype, 0.5 + fabs(o->values[k]));
    }
}

/* All terms positive: nothing cancels, so 16 ulp of any result must show. */
static void test_well_conditioned(void)
{
    static const int64_t sizes[][3] = {{64, 64, 64}, {48, 120, 40}, {31, 65, 17}};
    static const trial_kind positive = {.name = "linear", .draw = make_positive, .sharp = always};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < (harness_quick() ? 1 : HARNESS_COUNT(sizes)); i++) {
            trial_desc c = usual(type, 0, sizes[i][0], sizes[i][1], sizes[i][2]);
            c.kind = &positive;
            trial_case(&c);
        }
}

/* The smooth activations in their tail, from the definitions: y, its derivative, and the size of
 * the exponent whose rounding errors they have. */
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

/* For large negative z results keep their accuracy, down to the type's smallest normal number.  x
 * is 1 and W is z, so that z is exact; dy is 1, so that db is the derivative. */
static void check_fading(int type, int act, double farthest)
{
    enum { OUT = 600 };
    static const double largest[] = {0x1.fffffep127, 0x1.fffffffffffffp1023, 65504, 0x1.fep127};
    const trial_desc c = usual(type, act, 1, 1, OUT);
    trial t;
    if (!trial_open(&t, harness_context(), &c)) return;
    operand *z = trial_find(&t, "weight"), *got = trial_find(&t, "y");
    const tutti_dtype dtype = got->buffer.dtype;
    fill(&t, "x", 1);
    fill(&t, "bias", 0);
    fill(&t, "dy", 1);
    for (int64_t j = 0; j < OUT; j++)
        z->values[j] =
            harness_round(dtype, j < OUT - 4 ? -farthest * (double)(j + 100) / (OUT + 100)
                                             : -pow(largest[type], (double)(OUT - j) / 4));
    trial_put(&t);
    trial_run(&t);
    trial_get(&t, false);
    trial_get(&t, true);
    const tutti_dtype real = dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    const double u = harness_roundoff(real), U = dtype == real ? 0 : harness_roundoff(dtype);
    expected y = expected_make(OUT), slope = expected_make(OUT);
    for (int64_t j = 0; j < OUT; j++) {
        const faded at = faded_at((tutti_activation)act, z->values[j]);
        /* the hardware's functions, used for 16-bit types, are accurate to 2^-16 */
        double relative = u * (10 + (U > 0 ? 256 : 0));
        if (at.y != 0) relative += 6 * u * fabs((double)at.exponent);
        /* only gelu_erf has an intermediate value smaller than the result */
        const bool erf = act == TUTTI_ACT_GELU_ERF;
        double lost = harness_tiny(real) * (2 + (erf ? 2 * farthest : 0));
        y.want[j] = (double)at.y;
        y.bound[j] = (relative + U) * fabs(y.want[j]) + lost + harness_tiny(dtype) / 2;
        slope.want[j] = (double)at.slope;
        slope.bound[j] = relative * fabs(slope.want[j]) + lost;
        CHECK(signbit(got->values[j]), "y of %g is %g", z->values[j], got->values[j]);
    }
    check_expected("y", got, &y, false);
    check_expected("dbias", trial_find(&t, "dbias"), &slope, false);
    expected_free(&y);
    expected_free(&slope);
    trial_close(&t);
}

static void test_fading(void)
{
    for (int type = 0; type < 4; type++) {
        const bool wide = float_dtypes[type] == TUTTI_F64;
        check_fading(type, TUTTI_ACT_SILU, wide ? 780 : 112);
        check_fading(type, TUTTI_ACT_GELU, wide ? 24 : 13);
        check_fading(type, TUTTI_ACT_GELU_ERF, wide ? 40 : 15);
    }
}

/* Rows of leaves.  A layer with room for some rows, whose parameters are bound to memory of its
 * own; weight, bias and their gradients come first. */
enum { ROWS = 700, MANY_ROWS = 8192 };
typedef struct leafy {
    tutti_context *ctx;
    tutti_layer *layer;
    int64_t in, out;
    tutti_dtype dtype;
    void *params[4], *x, *dy, *y, *dx, *saved;
} leafy;

/* Values between -scale and scale, on the device. */
static void *drawn(leafy *l, int64_t count, uint64_t seed, double scale)
{
    void *data = NULL, *values = harness_calloc((size_t)count, tutti_dtype_size(l->dtype));
    double *drawn = harness_calloc((size_t)count, sizeof *drawn);
    harness_rng rng = {seed};
    for (int64_t i = 0; i < count; i++) drawn[i] = harness_uniform(&rng, -scale, scale);
    CHECK_OK(tutti_convert(values, l->dtype, drawn, TUTTI_F64, count));
    CHECK_OK(tutti_alloc(l->ctx, (size_t)count * tutti_dtype_size(l->dtype), &data));
    CHECK_OK(tutti_copy(l->ctx, data, values, (size_t)count * tutti_dtype_size(l->dtype)));
    CHECK_OK(tutti_context_synchronize(l->ctx));
    free(drawn);
    free(values);
    return data;
}

static void leafy_open(leafy *l, int64_t rows, int64_t in, int64_t out, int type,
                       const char *activation, double scale)
{
    char options[160];
    const tutti_dtype real = float_dtypes[type] == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    *l = (leafy){.ctx = harness_context(), .in = in, .out = out, .dtype = float_dtypes[type]};
    snprintf(options, sizeof options, "in=%lld,out=%lld,dtype=%s,activation=%s", (long long)in,
             (long long)out, tutti_dtype_name(l->dtype), activation);
    harness_where("%s", options);
    CHECK_OK(tutti_layer_create_by_name(l->ctx, "linear", options, &l->layer));
    for (int i = 0; i < 2; i++) {
        tutti_param *param = tutti_layer_param(l->layer, i);
        const int64_t count = tutti_tensor_count(&param->value);
        tutti_tensor value = param->value, grad = param->value;
        value.data = l->params[i] = drawn(l, count, 5 + (uint64_t)i, scale);
        /* initcheck does not see what the GPU's copy engine writes for a kernel */
        l->params[2 + i] =
            drawn(l, count * (int64_t)(sizeof(double) / tutti_dtype_size(l->dtype)), 7, 1);
        grad.data = l->params[2 + i];
        grad.dtype = real;
        CHECK_OK(tutti_param_bind(param, &value, &grad));
    }
    l->x = drawn(l, rows * in, 1, 1);
    l->dy = drawn(l, rows * out, 2, 1);
    l->y = drawn(l, rows * out, 3, 1);
    l->dx = drawn(l, rows * in, 4, 1);
    /* nor what a product stores by TMA */
    const size_t size = tutti_dtype_size(l->dtype);
    l->saved = drawn(l, (int64_t)(tutti_layer_saved_bytes(l->layer, rows) / size) + 16, 6, 1);
}

static void leafy_close(leafy *l)
{
    for (int i = 0; i < 4; i++) CHECK_OK(tutti_free(l->ctx, &l->params[i]));
    void **rest[] = {&l->x, &l->dy, &l->y, &l->dx, &l->saved};
    for (int i = 0; i < HARNESS_COUNT(rest); i++) CHECK_OK(tutti_free(l->ctx, rest[i]));
    tutti_layer_destroy(&l->layer);
    harness_where(NULL);
}

/* y and dx of rows [first, first + rows), as one leaf, in the host's memory. */
static void leafy_run(leafy *l, int64_t first, int64_t rows, char *y, char *dx)
{
    const int64_t size = (int64_t)tutti_dtype_size(l->dtype);
    const int64_t in = first * l->in * size, out = first * l->out * size;
    tutti_tensor x = tutti_tensor_2d((char *)l->x + in, l->dtype, rows, l->in);
    tutti_tensor dx_rows = tutti_tensor_2d((char *)l->dx + in, l->dtype, rows, l->in);
    tutti_tensor y_rows = tutti_tensor_2d((char *)l->y + out, l->dtype, rows, l->out);
    tutti_tensor dy = tutti_tensor_2d((char *)l->dy + out, l->dtype, rows, l->out);
    const size_t saved = tutti_layer_saved_bytes(l->layer, rows);
    tutti_linear_call call = {
        .x = &x, .y = &y_rows, .saved = l->saved, .saved_bytes = saved, .leaves = 1};
    CHECK_OK(tutti_linear_forward(l->layer, l->ctx, &call));
    CHECK_OK(tutti_copy(l->ctx, y, y_rows.data, (size_t)(rows * l->out * size)));
    call.dy = &dy;
    call.dx = &dx_rows;
    CHECK_OK(tutti_linear_backward(l->layer, l->ctx, &call));
    CHECK_OK(tutti_copy(l->ctx, dx, dx_rows.data, (size_t)(rows * l->in * size)));
    CHECK_OK(tutti_context_synchronize(l->ctx));
}

/* Of every `step`-th number of rows, beside all of them. */
static void check_rows_of_leaves(int64_t all, int64_t in, int64_t out, int type,
                                 const char *activation, double scale, int step)
{
    leafy l;
    leafy_open(&l, all, in, out, type, activation, scale);
    const size_t x_row = (size_t)in * tutti_dtype_size(l.dtype);
    const size_t y_row = (size_t)out * tutti_dtype_size(l.dtype);
    char *y = harness_calloc((size_t)all, y_row), *dx = harness_calloc((size_t)all, x_row);
    char *some_y = harness_calloc(ROWS, y_row), *some_dx = harness_calloc(ROWS, x_row);
    leafy_run(&l, 0, all, y, dx);
    for (int64_t rows = 1; rows <= 300; rows += step) {
        const int64_t first = (rows * 7 + 1) % (all - rows);
        leafy_run(&l, first, rows, some_y, some_dx);
        if (!CHECK(memcmp(some_y, y + (size_t)first * y_row, (size_t)rows * y_row) == 0,
                   "%lld rows of y from %lld have other bits", (long long)rows, (long long)first) ||
            !CHECK(memcmp(some_dx, dx + (size_t)first * x_row, (size_t)rows * x_row) == 0,
                   "%lld rows of dx from %lld have other bits", (long long)rows, (long long)first))
            break;
    }
    free(y);
    free(dx);
    free(some_y);
    free(some_dx);
    leafy_close(&l);
}

/* A row of a leaf has the same bits whatever rows are beside it, wherever they lie. */
static void test_rows_of_leaves(void)
{
    static const struct {
        int64_t in, out;
    } sizes[] = {{64, 128}, {1024, 384}, {129, 10}, {10, 67}};
    if (harness_backend() == TUTTI_BACKEND_HOST) {
        harness_skip("a row's bits may depend on the number of its leaf's rows");
        return;
    }
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(sizes); i++) {
            const bool all = float_dtypes[type] == TUTTI_BF16 && i < 2;
            check_rows_of_leaves(ROWS, sizes[i].in, sizes[i].out, type, i % 2 ? "none" : "gelu", 1,
                                 harness_quick() ? 37
                                 : all           ? 1
                                                 : 11);
        }
    /* so many that the product is chosen for them, and of 16-bit types of 1024 is our own */
    for (int type = 0; type < 4; type++) {
        if (harness_quick()) {
            if (float_dtypes[type] == TUTTI_BF16)
                check_rows_of_leaves(MANY_ROWS, 1024, 2048, type, "gelu", 1, 1213);
            continue;
        }
        check_rows_of_leaves(MANY_ROWS, 129, 10, type, "relu", 1, 37);
        check_rows_of_leaves(MANY_ROWS, 1024, 2048, type, "none", 1, 23);
        check_rows_of_leaves(MANY_ROWS, 1024, 2048, type, "gelu", 1, 23);
        /* of f16 many z round to -0, before or behind relu */
        check_rows_of_leaves(MANY_ROWS, 1024, 2048, type, "relu", 0x1p-20, 23);
    }
}

/* dW of LEAF_COUNT leaves of one row each, x's rows being `stride` apart, in the host's memory. */
enum { LEAF_COUNT = 8 };
static void one_row_leaves(leafy *l, int64_t stride, char *dweight)
{
    const size_t size = tutti_dtype_size(l->dtype), row = (size_t)l->in * size;
    const size_t real = l->dtype == TUTTI_F64 ? sizeof(double) : sizeof(float);
    int64_t leaf_rows[LEAF_COUNT];
    char *values = harness_calloc(LEAF_COUNT, row);
    void *apart = drawn(l, LEAF_COUNT * stride, 6, 1);
    CHECK_OK(tutti_copy(l->ctx, values, l->x, LEAF_COUNT * row));
    CHECK_OK(tutti_context_synchronize(l->ctx));
    for (int i = 0; i < LEAF_COUNT; i++) {
        leaf_rows[i] = i;
        CHECK_OK(tutti_copy(l->ctx, (char *)apart + (size_t)(i * stride) * size,
                            values + (size_t)i * row, row));
    }
    tutti_tensor x = tutti_tensor_2d(apart, l->dtype, LEAF_COUNT, l->in);
    tutti_tensor dx = tutti_tensor_2d(l->dx, l->dtype, LEAF_COUNT, l->in);
    tutti_tensor y = tutti_tensor_2d(l->y, l->dtype, LEAF_COUNT, l->out);
    tutti_tensor dy = tutti_tensor_2d(l->dy, l->dtype, LEAF_COUNT, l->out);
    x.strides[0] = stride;
    tutti_linear_call call = {.x = &x,
                              .y = &y,
                              .dy = &dy,
                              .dx = &dx,
                              .saved = l->saved,
                              .saved_bytes = tutti_layer_saved_bytes(l->layer, LEAF_COUNT),
                              .leaves = LEAF_COUNT,
                              .leaf_rows = leaf_rows};
    CHECK_OK(tutti_linear_backward(l->layer, l->ctx, &call));
    CHECK_OK(tutti_copy(l->ctx, dweight, l->params[2], (size_t)(l->in * l->out) * real));
    CHECK_OK(tutti_context_synchronize(l->ctx));
    CHECK_OK(tutti_free(l->ctx, &apart));
    free(values);
}

/* A leaf of one row may begin where no other row of a tensor would: x's rows are an odd number of
 * elements apart.  Its dW is one product an element, the same bits in any algorithm. */
static void test_leaves_of_one_row(void)
{
    for (int type = 0; type < 4; type++) {
        leafy l;
        leafy_open(&l, ROWS, 64, 128, type, "none", 1);
        const size_t bytes = 64 * 128 * (l.dtype == TUTTI_F64 ? sizeof(double) : sizeof(float));
        char *want = harness_calloc(bytes, 1), *got = harness_calloc(bytes, 1);
        one_row_leaves(&l, 64, want);
        one_row_leaves(&l, 65, got);
        CHECK(memcmp(want, got, bytes) == 0, "dW has other bits if x's rows are apart");
        free(want);
        free(got);
        leafy_close(&l);
    }
}

/* db of so many rows that a GPU may sum it in dx's product, or beside it: the same bits whether
 * there is one, and wherever dy lies, and of leaves those of each one by itself. */
enum { MANY = 4096, MANY_IN = 2040, MANY_OUT = 1032 };

/* Of rows from `first`, as so many leaves, with what dy points to; in the host's memory. */
static void many_rows_bias(const leafy *l, void *dy_data, int64_t first, int64_t rows, int leaves,
                           bool wants_dx, float *dbias)
{
    const size_t size = tutti_dtype_size(l->dtype);
    int64_t leaf_rows[4];
    for (int i = 0; i < leaves; i++) leaf_rows[i] = i * (rows / leaves);
    tutti_tensor x = tutti_tensor_2d(l->x, l->dtype, rows, MANY_IN), dx = x;
    tutti_tensor dy = tutti_tensor_2d((char *)dy_data + (size_t)first * MANY_OUT * size, l->dtype,
                                      rows, MANY_OUT);
    tutti_tensor y =
        tutti_tensor_2d((char *)l->y + (size_t)first * MANY_OUT * size, l->dtype, rows, MANY_OUT);
    dx.data = l->dx;
    tutti_linear_call call = {
        .x = &x, .y = &y, .dy = &dy, .leaves = leaves, .leaf_rows = leaf_rows};
    if (wants_dx) call.dx = &dx;
    CHECK_OK(tutti_linear_backward(l->layer, l->ctx, &call));
    CHECK_OK(tutti_copy(l->ctx, dbias, l->params[3], MANY_OUT * sizeof *dbias));
    CHECK_OK(tutti_context_synchronize(l->ctx));
}

static void check_leaves_bias(const leafy *l, int64_t rows)
{
    float each[4][MANY_OUT], got[MANY_OUT];
    many_rows_bias(l, l->dy, 0, rows, 4, true, got);
    for (int i = 0; i < 4; i++)
        many_rows_bias(l, l->dy, i * (rows / 4), rows / 4, 1, true, each[i]);
    for (int j = 0; j < MANY_OUT; j++) {
        const float want = (each[0][j] + each[1][j]) + (each[2][j] + each[3][j]);
        CHECK(got[j] == want, "db[%d] of leaves of %lld rows is %.9g, but %.9g of each by itself",
              j, (long long)(rows / 4), got[j], want);
    }
}

static void check_bias_of_many_rows(int type, bool relu)
{
    const int64_t odd = MANY - 21;
    leafy l;
    leafy_open(&l, MANY, MANY_IN, MANY_OUT, type, relu ? "relu" : "none", 1);
    if (getenv("TUTTI_TEST_INITCHECK")) { /* it sees no store of dW's products, of two million */
        tutti_param *weight = tutti_layer_param(l.layer, 0);
        const tutti_tensor value = weight->value;
        CHECK_OK(tutti_param_bind(weight, &value, NULL));
    }
    const size_t size = tutti_dtype_size(l.dtype), bytes = MANY * MANY_OUT * size;
    void *further = drawn(&l, MANY * MANY_OUT + 1, 8, 1), *const from[] = {l.dy, l.y};
    double *dy = harness_calloc(MANY * MANY_OUT, sizeof *dy);
    double *y = harness_calloc(MANY * MANY_OUT, sizeof *y);
    void *raw = harness_calloc(bytes, 1);
    CHECK_OK(tutti_copy(l.ctx, (char *)further + size, l.dy, bytes));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(tutti_copy(l.ctx, raw, from[i], bytes));
        CHECK_OK(tutti_context_synchronize(l.ctx));
        CHECK_OK(tutti_convert(i ? y : dy, TUTTI_F64, raw, l.dtype, MANY * MANY_OUT));
    }
    float got[MANY_OUT], other[MANY_OUT];
    many_rows_bias(&l, l.dy, 0, odd, 0, true, got);
    for (int j = 0; j < MANY_OUT; j++) {
        double want = 0, of = 0;
        for (int64_t i = j; i < odd * MANY_OUT; i += MANY_OUT) {
            if (relu && !(y[i] > 0)) continue;
            want += dy[i];
            of += fabs(dy[i]);
        }
        CHECK(fabs(got[j] - want) <= 0x1p-20 * of, "db[%d] is %.9g, want %.9g", j, got[j], want);
    }
    many_rows_bias(&l, l.dy, 0, odd, 0, false, other);
    CHECK(memcmp(got, other, sizeof got) == 0, "db has other bits without dx");
    many_rows_bias(&l, (char *)further + size, 0, odd, 0, true, other);
    CHECK(memcmp(got, other, sizeof got) == 0, "db has other bits if dy lies elsewhere");
    check_leaves_bias(&l, MANY);
    check_leaves_bias(&l, MANY - 96); /* leaves are no multiples of what a partial sum has */
    CHECK_OK(tutti_free(l.ctx, &further));
    free(dy);
    free(y);
    free(raw);
    leafy_close(&l);
}

static void test_bias_of_many_rows(void)
{
    if (harness_backend() != TUTTI_BACKEND_CUDA) {
        harness_skip("takes long, and tests no more than few rows");
        return;
    }
    for (int type = 0; type < 4; type++) {
        if (tutti_dtype_size(float_dtypes[type]) > 2) continue; /* no such kernels */
        if (harness_quick() && float_dtypes[type] != TUTTI_BF16) continue;
        for (int relu = 0; relu < 2; relu++) check_bias_of_many_rows(type, relu);
    }
}

int main(int argc, char **argv)
{
    static const harness_test own[] = {
        {"large values", test_large_values},
        {"slope at zero", test_slope_at_zero},
        {"many rows", test_many_rows},
        {"well-conditioned", test_well_conditioned},
        {"far left", test_fading},
        {"rows of leaves", test_rows_of_leaves},
        {"leaves of one row", test_leaves_of_one_row},
        {"bias of many rows", test_bias_of_many_rows},
    };
    return matrix_main(argc, argv, &linear, own, HARNESS_COUNT(own));
}
