/* Tests of MLP. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"

static bool sharp(const trial *t, const trial_tensor *result)
{
    return !result->gradient && t->shapes[0].cols <= 64 && t->shapes[2].cols <= 64 &&
           result->at->count >= 64 && tutti_dtype_size(result->at->buffer.dtype) == 2;
}

/* For finite differences, keeps z away from a kink at 0: all terms of a column have one sign. */
static void draw(trial *t)
{
    if (!t->c.smooth || !strstr(t->c.options, "relu")) return;
    const int64_t in = t->shapes[0].cols;
    operand *x = &t->slots[0][0], *weight = trial_find(t, "weight1");
    for (int64_t i = 0; i < x->count; i++) x->values[i] = 0.3 + fabs(x->values[i]);
    for (int64_t i = 0; i < weight->count; i++)
        weight->values[i] = copysign(weight->values[i], i / in & 1 ? -1 : 1);
    if (strstr(t->c.options, "no_bias")) return;
    operand *bias = trial_find(t, "bias1");
    for (int64_t i = 0; i < bias->count; i++)
        bias->values[i] = copysign(bias->values[i], i & 1 ? -1 : 1);
}

static const matrix_shape shapes[] = {
    {1, "in=1,hidden=1,out=1"},      {1, "in=7,hidden=3,out=2"},
    {3, "in=1,hidden=5,out=9"},      {5, "in=3,hidden=1,out=4"},
    {2, "in=8,hidden=8,out=8"},      {64, "in=8,hidden=32,out=8"},
    {43, "in=65,hidden=129,out=3"},  {33, "in=16,hidden=64,out=31"},
    {129, "in=64,hidden=31,out=17"}, {9, "in=5,hidden=1025,out=5"},
    {257, "in=3,hidden=2,out=1"},    {1, "in=1031,hidden=6,out=2"},
    {4, "in=2,hidden=3,out=2051"},   {0, NULL}};
static const matrix_shape some[] = {{5, "in=16,hidden=10,out=12"},   {12, "in=13,hidden=9,out=7"},
                                    {3, "in=130,hidden=20,out=40"},  {300, "in=3,hidden=5,out=2"},
                                    {67, "in=31,hidden=100,out=24"}, {0, NULL}};

#define ACT "slope=0.125,smelu_beta=0.7,star_scale=1.3,star_bias=-0.3,activation="
#define WITH_BIAS(name, text, from) ACT text,
static const matrix_kind mlp = {
    .trial = {.name = "mlp", .draw = draw, .sharp = sharp},
    .variants = {TUTTI_ACTIVATION_LIST(WITH_BIAS) "no_bias=1", "activation=relu,no_bias=1",
                 "activation=star_relu", "allow_tf32=1", "recompute=1",
                 "activation=relu,recompute=1", "activation=smelu,no_bias=1,recompute=1"},
    .shapes = shapes,
    .some = some,
    .small = "in=10,hidden=14,out=6",
};

/* Two FusedLinear with the same memory have the same bits, for any number of leaves, whether either
 * keeps h and z or recomputes them; except dz's, and what comes of it, where a GPU has a kernel
 * that forms it with dh. */
enum { LEAVES = 4 };
typedef struct part_sizes {
    int64_t rows, in, hidden, out;
    bool exact;
} part_sizes;
typedef struct parts {
    tutti_context *ctx;
    part_sizes of;
    tutti_dtype dtype, real;
    int64_t counts[4]; /* of the parameters */
    void *x, *y, *h, *dy, *dx, *dh, *saved, *value[4], *grad[4];
} parts;

static void *drawn(const parts *p, int64_t count, uint64_t seed)
{
    const size_t bytes = (size_t)count * tutti_dtype_size(p->dtype);
    void *data = NULL, *rounded = harness_calloc(bytes, 1);
    double *values = harness_calloc((size_t)count, sizeof *values);
    harness_rng rng = {seed};
    for (int64_t i = 0; i < count; i++) values[i] = harness_uniform(&rng, -1, 1);
    CHECK_OK(tutti_convert(rounded, p->dtype, values, TUTTI_F64, count));
    CHECK_OK(tutti_alloc(p->ctx, bytes, &data));
    CHECK_OK(tutti_copy(p->ctx, data, rounded, bytes));
    CHECK_OK(tutti_context_synchronize(p->ctx));
    free(values);
    free(rounded);
    return data;
}

static parts parts_open(const part_sizes *of, int type)
{
    parts p = {.ctx = harness_context(), .of = *of, .dtype = float_dtypes[type]};
    const int64_t counts[4] = {of->hidden * of->in, of->out * of->hidden, of->hidden, of->out};
    p.real = p.dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    p.x = drawn(&p, of->rows * of->in, 1);
    p.y = drawn(&p, of->rows * of->out, 3);
    p.dy = drawn(&p, of->rows * of->out, 2);
    p.h = drawn(&p, of->rows * of->hidden, 4);
    p.dx = drawn(&p, of->rows * of->in, 5);
    p.dh = drawn(&p, of->rows * of->hidden, 6);
    p.saved = drawn(&p, of->rows * of->hidden, 7);
    for (int i = 0; i < 4; i++) {
        p.counts[i] = counts[i];
        p.value[i] = drawn(&p, counts[i], 8 + (uint64_t)i);
        /* initcheck does not see what the GPU's copy engine writes for a kernel */
        p.grad[i] =
            drawn(&p, counts[i] * (int64_t)(sizeof(double) / tutti_dtype_size(p.dtype)), 12);
    }
    return p;
}

static void parts_close(parts *p)
{
    void **const all[] = {&p->x, &p->y, &p->h, &p->dy, &p->dx, &p->dh, &p->saved};
    for (int i = 0; i < HARNESS_COUNT(all); i++) CHECK_OK(tutti_free(p->ctx, all[i]));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(tutti_free(p->ctx, &p->value[i]));
        CHECK_OK(tutti_free(p->ctx, &p->grad[i]));
    }
}

static tutti_layer *parts_layer(const parts *p, const char *kind, const char *options,
                                bool recompute, const int *params)
{
    char text[160];
    tutti_layer *layer = NULL;
    snprintf(text, sizeof text, "%s,dtype=%s,recompute=%d", options, tutti_dtype_name(p->dtype),
             recompute);
    CHECK_OK(tutti_layer_create_by_name(p->ctx, kind, text, &layer));
    for (int i = 0; i < tutti_layer_param_count(layer); i++) {
        tutti_param *param = tutti_layer_param(layer, i);
        tutti_tensor value = param->value, grad = param->value;
        value.data = p->value[params[i]];
        grad.data = p->grad[params[i]];
        grad.dtype = p->real;
        CHECK_OK(tutti_param_bind(param, &value, &grad));
    }
    return layer;
}

/* y, h, dx and the gradients, one after another, in the host's memory. */
enum { RESULTS = 7, WIDE = 3 }; /* those from number 3 on are gradients of parameters */
static char *fetch(const parts *p, size_t each[RESULTS], size_t *bytes)
{
    const size_t size = tutti_dtype_size(p->dtype), wide = tutti_dtype_size(p->real);
    const void *from[RESULTS] = {p->y, p->h, p->dx, p->grad[0], p->grad[1], p->grad[2], p->grad[3]};
    each[0] = (size_t)(p->of.rows * p->of.out) * size;
    each[1] = (size_t)(p->of.rows * p->of.hidden) * size;
    each[2] = (size_t)(p->of.rows * p->of.in) * size;
    for (int i = 0; i < 4; i++) each[WIDE + i] = (size_t)p->counts[i] * wide;
    *bytes = 0;
    for (int i = 0; i < RESULTS; i++) *bytes += each[i];
    char *all = harness_calloc(*bytes, 1);
    size_t at = 0;
    for (int i = 0; i < RESULTS; at += each[i++])
        CHECK_OK(tutti_copy(p->ctx, all + at, from[i], each[i]));
    CHECK_OK(tutti_context_synchronize(p->ctx));
    return all;
}

/* Results that come of dz may differ by what its rounding may, the others not at all. */
static void compare(const parts *p, const char *together, const char *apart, const size_t *each)
{
    static const char *const names[RESULTS] = {"y", "h", "dx", "dW1", "dW2", "db1", "db2"};
    size_t at = 0;
    for (int i = 0; i < RESULTS; at += each[i++]) {
        const tutti_dtype dtype = i < WIDE ? p->dtype : p->real;
        const bool of_dz = i == 2 || i == 3 || i == 5;
        if (p->of.exact || !of_dz) {
            CHECK(memcmp(together + at, apart + at, each[i]) == 0,
                  "%s has not the bits of two FusedLinear", names[i]);
            continue;
        }
        const int64_t count = (int64_t)(each[i] / tutti_dtype_size(dtype));
        double *a = harness_calloc((size_t)count, sizeof *a), largest = 0;
        double *b = harness_calloc((size_t)count, sizeof *b), worst = 0;
        CHECK_OK(tutti_convert(a, TUTTI_F64, together + at, dtype, count));
        CHECK_OK(tutti_convert(b, TUTTI_F64, apart + at, dtype, count));
        for (int64_t j = 0; j < count; j++) {
            largest = fmax(largest, fabs(b[j]));
            worst = isnan(a[j]) ? INFINITY : fmax(worst, fabs(a[j] - b[j]));
        }
        CHECK(worst <= 0x1p-7 * largest, "%s is off by %g of %g", names[i], worst, largest);
        free(a);
        free(b);
    }
}

static void check_parts(const part_sizes *of, int type, const char *activation, int leaves,
                        bool whole_again, bool part_again)
{
    parts p = parts_open(of, type);
    char sizes[3][120];
    harness_where("%s, %s, %lld rows, %d leaves, recompute=%d beside %d", tutti_dtype_name(p.dtype),
                  activation, (long long)of->rows, leaves, whole_again, part_again);
    const long long in = of->in, hidden = of->hidden, out = of->out;
    snprintf(sizes[0], sizeof sizes[0], "in=%lld,hidden=%lld,out=%lld,activation=%s", in, hidden,
             out, activation);
    snprintf(sizes[1], sizeof sizes[1], "in=%lld,out=%lld,activation=%s", in, hidden, activation);
    snprintf(sizes[2], sizeof sizes[2], "in=%lld,out=%lld", hidden, out);
    int64_t leaf_rows[LEAVES];
    for (int i = 0; i < LEAVES; i++) leaf_rows[i] = i * of->rows / LEAVES;
    tutti_tensor x = tutti_tensor_2d(p.x, p.dtype, of->rows, in), dx = x, y, dy, h, dh;
    y = dy = tutti_tensor_2d(p.y, p.dtype, of->rows, out);
    h = dh = tutti_tensor_2d(p.h, p.dtype, of->rows, hidden);
    dx.data = p.dx, dy.data = p.dy, dh.data = p.dh;
    tutti_layer *mlp = parts_layer(&p, "mlp", sizes[0], whole_again, (int[]){0, 1, 2, 3});
    tutti_layer *up = parts_layer(&p, "linear", sizes[1], part_again, (int[]){0, 2});
    tutti_layer *down = parts_layer(&p, "linear", sizes[2], part_again, (int[]){1, 3});
    const size_t whole_saved = tutti_layer_saved_bytes(mlp, of->rows);
    const size_t part_saved = tutti_layer_saved_bytes(up, of->rows);
    const bool keeps = strcmp(activation, "gelu") == 0;
    CHECK((whole_saved == 0) == (whole_again || !keeps), "the MLP keeps %zu bytes", whole_saved);
    CHECK((part_saved == 0) == (part_again || !keeps), "FusedLinear keeps %zu bytes", part_saved);
    tutti_mlp_call whole = {.x = &x, .y = &y, .h = &h, .dy = &dy, .dx = &dx};
    tutti_linear_call first = {.x = &x, .y = &h, .dy = &dh, .dx = &dx};
    tutti_linear_call second = {.x = &h, .y = &y, .dy = &dy, .dx = &dh};
    whole.saved = whole_saved ? p.saved : NULL;
    first.saved = part_saved ? p.saved : NULL;
    whole.saved_bytes = whole_saved;
    first.saved_bytes = part_saved;
    whole.leaves = first.leaves = second.leaves = leaves;
    whole.leaf_rows = first.leaf_rows = second.leaf_rows = leaf_rows;
    size_t each[RESULTS], bytes;
    CHECK_OK(tutti_mlp_forward(mlp, p.ctx, &whole));
    if (whole_again) { /* h is not read */
        CHECK_OK(
            tutti_copy(p.ctx, p.h, p.dh, (size_t)(of->rows * hidden) * tutti_dtype_size(p.dtype)));
        whole.h = NULL;
    }
    CHECK_OK(tutti_mlp_backward(mlp, p.ctx, &whole));
    whole.h = &h;
    CHECK_OK(tutti_mlp_forward(mlp, p.ctx, &whole));
    char *together = fetch(&p, each, &bytes);
    CHECK_OK(tutti_linear_forward(up, p.ctx, &first));
    CHECK_OK(tutti_linear_forward(down, p.ctx, &second));
    CHECK_OK(tutti_linear_backward(down, p.ctx, &second));
    CHECK_OK(tutti_linear_backward(up, p.ctx, &first));
    char *apart = fetch(&p, each, &bytes);
    compare(&p, together, apart, each);
    free(together);
    free(apart);
    tutti_layer_destroy(&mlp);
    tutti_layer_destroy(&up);
    tutti_layer_destroy(&down);
    parts_close(&p);
    harness_where(NULL);
}

static void test_parts(void)
{
    static const part_sizes small = {24, 40, 72, 56, true};
    for (int type = 0; type < 4; type++) {
        for (int leaves = 0; leaves <= LEAVES; leaves = leaves ? leaves * LEAVES : 1) {
            check_parts(&small, type, "gelu", leaves, false, false);
            check_parts(&small, type, "gelu", leaves, true, false);
            check_parts(&small, type, "gelu", leaves, false, true);
        }
    }
}

/* So large that a GPU may have kernels of its own, rows and columns being no multiples of tiles;
 * the leaves of the last but one are no multiples of what a partial sum has. */
static void test_large_parts(void)
{
    static const part_sizes odd = {4591, 16, 1560, 1032, false},
                            even = {4608, 16, 1560, 1032, false},
                            uneven = {4640, 24, 1560, 1032, true};
    if (harness_backend() != TUTTI_BACKEND_CUDA) {
        harness_skip("takes long, and tests no more than small ones");
        return;
    }
    for (int type = 0; type < 4; type++) {
        if (tutti_dtype_size(float_dtypes[type]) > 2) continue; /* no such kernels */
        if (harness_quick() && float_dtypes[type] != TUTTI_BF16) continue;
        check_parts(&odd, type, "gelu", 0, false, false);
        if (harness_quick()) break;
        check_parts(&even, type, "squared_relu", 0, false, false);
        check_parts(&even, type, "gelu", 1, true, false);
        check_parts(&even, type, "gelu", LEAVES, false, false);
        check_parts(&uneven, type, "gelu", LEAVES, false, false);
    }
}

static void test_initial_values(void)
{
    static const double in[] = {16, 25, 16, 25}; /* of weight1, weight2, bias1, bias2 */
    tutti_layer *layer = NULL;
    CHECK_OK(tutti_layer_create_by_name(harness_context(), "mlp", "in=16,hidden=25,out=3", &layer));
    for (int i = 0; i < 4; i++) {
        const tutti_param *param = tutti_layer_param(layer, i);
        CHECK(param->init == TUTTI_INIT_UNIFORM && param->init_bound == 1 / sqrt(in[i]),
              "%s is drawn within %g", param->name, param->init_bound);
    }
    tutti_layer_destroy(&layer);
}

int main(int argc, char **argv)
{
    static const harness_test own[] = {
        {"two FusedLinear", test_parts},
        {"large ones", test_large_parts},
        {"initial values", test_initial_values},
    };
    return matrix_main(argc, argv, &mlp, own, HARNESS_COUNT(own));
}
