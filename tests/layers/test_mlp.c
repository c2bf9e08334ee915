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
 * keeps h and z or recomputes them. */
enum { ROWS = 24, IN = 40, HIDDEN = 72, OUT = 56, LEAVES = 4 };
typedef struct parts {
    tutti_context *ctx;
    tutti_dtype dtype, real;
    void *x, *y, *h, *dy, *dx, *dh, *saved, *value[4], *grad[4];
} parts;

static const int64_t counts[4] = {HIDDEN * IN, OUT *HIDDEN, HIDDEN, OUT};

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

static parts parts_open(int type)
{
    parts p = {.ctx = harness_context(), .dtype = float_dtypes[type]};
    p.real = p.dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    p.x = drawn(&p, ROWS * IN, 1);
    p.dy = drawn(&p, ROWS * OUT, 2);
    p.y = drawn(&p, ROWS * OUT, 3);
    p.h = drawn(&p, ROWS * HIDDEN, 4);
    p.dx = drawn(&p, ROWS * IN, 5);
    p.dh = drawn(&p, ROWS * HIDDEN, 6);
    p.saved = drawn(&p, ROWS * HIDDEN, 7);
    for (int i = 0; i < 4; i++) {
        p.value[i] = drawn(&p, counts[i], 8 + (uint64_t)i);
        CHECK_OK(tutti_alloc(p.ctx, (size_t)counts[i] * sizeof(double), &p.grad[i]));
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
static char *fetch(const parts *p, size_t *bytes)
{
    const size_t size = tutti_dtype_size(p->dtype), wide = tutti_dtype_size(p->real);
    const void *from[7] = {p->y, p->h, p->dx, p->grad[0], p->grad[1], p->grad[2], p->grad[3]};
    size_t each[7] = {ROWS * OUT * size, ROWS * HIDDEN * size, ROWS * IN * size};
    *bytes = each[0] + each[1] + each[2];
    for (int i = 0; i < 4; i++) *bytes += each[3 + i] = (size_t)counts[i] * wide;
    char *all = harness_calloc(*bytes, 1);
    size_t at = 0;
    for (int i = 0; i < 7; at += each[i++])
        CHECK_OK(tutti_copy(p->ctx, all + at, from[i], each[i]));
    CHECK_OK(tutti_context_synchronize(p->ctx));
    return all;
}

static void check_parts(int type, int leaves, bool whole_again, bool part_again)
{
    parts p = parts_open(type);
    harness_where("%s, %d leaves, recompute=%d beside %d", tutti_dtype_name(p.dtype), leaves,
                  whole_again, part_again);
    int64_t leaf_rows[LEAVES];
    for (int i = 0; i < LEAVES; i++) leaf_rows[i] = i * ROWS / LEAVES;
    tutti_tensor x = tutti_tensor_2d(p.x, p.dtype, ROWS, IN), dx = x, y, dy, h, dh;
    y = dy = tutti_tensor_2d(p.y, p.dtype, ROWS, OUT);
    h = dh = tutti_tensor_2d(p.h, p.dtype, ROWS, HIDDEN);
    dx.data = p.dx, dy.data = p.dy, dh.data = p.dh;
    tutti_layer *mlp =
        parts_layer(&p, "mlp", "in=40,hidden=72,out=56", whole_again, (int[]){0, 1, 2, 3});
    tutti_layer *up =
        parts_layer(&p, "linear", "in=40,out=72,activation=gelu", part_again, (int[]){0, 2});
    tutti_layer *down = parts_layer(&p, "linear", "in=72,out=56", part_again, (int[]){1, 3});
    const size_t whole_saved = tutti_layer_saved_bytes(mlp, ROWS);
    const size_t part_saved = tutti_layer_saved_bytes(up, ROWS);
    CHECK((whole_saved == 0) == whole_again, "the MLP keeps %zu bytes", whole_saved);
    CHECK((part_saved == 0) == part_again, "FusedLinear keeps %zu bytes", part_saved);
    tutti_mlp_call whole = {.x = &x, .y = &y, .h = &h, .dy = &dy, .dx = &dx};
    tutti_linear_call first = {.x = &x, .y = &h, .dy = &dh, .dx = &dx};
    tutti_linear_call second = {.x = &h, .y = &y, .dy = &dy, .dx = &dh};
    whole.saved = whole_again ? NULL : p.saved;
    first.saved = part_again ? NULL : p.saved;
    whole.saved_bytes = whole_saved;
    first.saved_bytes = part_saved;
    whole.leaves = first.leaves = second.leaves = leaves;
    whole.leaf_rows = first.leaf_rows = second.leaf_rows = leaf_rows;
    size_t bytes, bytes_apart;
    CHECK_OK(tutti_mlp_forward(mlp, p.ctx, &whole));
    if (whole_again) { /* h is not read */
        CHECK_OK(tutti_copy(p.ctx, p.h, p.dh, ROWS * HIDDEN * tutti_dtype_size(p.dtype)));
        whole.h = NULL;
    }
    CHECK_OK(tutti_mlp_backward(mlp, p.ctx, &whole));
    whole.h = &h;
    CHECK_OK(tutti_mlp_forward(mlp, p.ctx, &whole));
    char *together = fetch(&p, &bytes);
    CHECK_OK(tutti_linear_forward(up, p.ctx, &first));
    CHECK_OK(tutti_linear_forward(down, p.ctx, &second));
    CHECK_OK(tutti_linear_backward(down, p.ctx, &second));
    CHECK_OK(tutti_linear_backward(up, p.ctx, &first));
    char *apart = fetch(&p, &bytes_apart);
    CHECK(bytes == bytes_apart && memcmp(together, apart, bytes) == 0,
          "not the bits of two FusedLinear");
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
    for (int type = 0; type < 4; type++) {
        for (int leaves = 0; leaves <= LEAVES; leaves = leaves ? leaves * LEAVES : 1) {
            check_parts(type, leaves, false, false);
            check_parts(type, leaves, true, false);
            check_parts(type, leaves, false, true);
        }
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

static void test_tf32(void)
{
    const trial_desc c = trial_usual(&(trial_kind){.name = "mlp"}, 40, "in=96,hidden=72,out=48");
    trial_tf32(&c);
}

int main(int argc, char **argv)
{
    static const harness_test own[] = {
        {"two FusedLinear", test_parts},
        {"initial values", test_initial_values},
        {"TF32", test_tf32},
    };
    return matrix_main(argc, argv, &mlp, own, HARNESS_COUNT(own));
}
