/* Tests of GLU. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"

/* For finite differences, keeps a away from the kinks at 0. */
static void draw(trial *t)
{
    operand *a = trial_find(t, "a");
    for (int64_t i = 0; i < a->count && t->c.smooth; i++)
        if (fabs(a->values[i]) < 0.125) a->values[i] = 0.25;
}

/* y and db; da of a smooth activation may cancel. */
static bool sharp(const trial *t, const trial_tensor *result)
{
    return tutti_dtype_size(result->at->buffer.dtype) == 2 && strcmp(result->name, "da") != 0 &&
           !strstr(t->c.options, "activation");
}

#define ACT "slope=0.125,smelu_beta=0.7,star_scale=1.3,star_bias=-0.3,activation="
#define VARIANT(name, text, from) ACT text,
static const matrix_kind glu = {
    .trial = {.name = "glu", .draw = draw, .sharp = sharp},
    .variants = {"", TUTTI_ACTIVATION_LIST(VARIANT) "activation=smelu", "activation=star_relu"},
    .common = 3,
};

/* a and b are the halves of one tensor, da and db of another or of the same one. */
typedef struct halves {
    harness_buffer inputs, gradients;
    tutti_tensor a, b, da, db;
} halves;

static tutti_tensor half(const operand *like, const harness_buffer *whole, int which)
{
    const int64_t cols = like->tensor.dims[1];
    tutti_tensor view = like->tensor;
    view.data = (char *)whole->data + (size_t)(which * cols) * tutti_dtype_size(view.dtype);
    view.strides[0] = 2 * cols;
    return view;
}

static void check_half(const char *what, const double *whole, const operand *want, int which)
{
    const int64_t rows = want->tensor.dims[0], cols = want->tensor.dims[1];
    int64_t wrong = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            wrong += whole[(2 * i + which) * cols + j] != want->values[i * cols + j];
    CHECK(wrong == 0, "%s: %lld elements differ from those of separate tensors", what,
          (long long)wrong);
}

/* The bits of separate tensors, whose results the trial has. */
static void check_halves(trial *t, bool in_place)
{
    const operand *a = trial_find(t, "a"), *b = trial_find(t, "b");
    const int64_t rows = t->c.rows, cols = t->shapes[0].cols, count = rows * cols;
    double *whole = harness_calloc(3 * count, sizeof *whole), *y = whole + 2 * count;
    operand *got = trial_find(t, "y");
    halves h;
    h.inputs = harness_buffer_make(t->ctx, a->tensor.dtype, rows, 2 * cols, 0, 0);
    h.gradients = harness_buffer_make(t->ctx, a->tensor.dtype, rows, 2 * cols, 0, 0);
    const harness_buffer *gradients = in_place ? &h.inputs : &h.gradients;
    for (int64_t i = 0; i < count; i++) {
        double *row = whole + i / cols * 2 * cols;
        row[i % cols] = a->values[i];
        row[cols + i % cols] = b->values[i];
    }
    memcpy(y, got->values, (size_t)count * sizeof *y);
    harness_buffer_put(t->ctx, &h.inputs, whole);
    h.a = half(a, &h.inputs, 0), h.b = half(b, &h.inputs, 1);
    h.da = half(a, gradients, 0), h.db = half(b, gradients, 1);
    tutti_call call = t->call;
    call.in[0] = &h.a, call.in[1] = &h.b, call.din[0] = &h.da, call.din[1] = &h.db;
    harness_buffer_poison(t->ctx, &got->buffer);
    CHECK_OK(tutti_layer_forward(t->layer, t->ctx, &call));
    CHECK_OK(tutti_layer_backward(t->layer, t->ctx, &call));
    operand_get(t->ctx, got, "y");
    CHECK(memcmp(y, got->values, (size_t)count * sizeof *y) == 0, "y differs");
    harness_buffer_get(t->ctx, gradients, whole);
    check_half("da", whole, trial_find(t, "da"), 0);
    check_half("db", whole, trial_find(t, "db"), 1);
    CHECK(harness_buffer_intact(t->ctx, gradients), "memory beside the gradients has changed");
    harness_buffer_free(t->ctx, &h.inputs);
    harness_buffer_free(t->ctx, &h.gradients);
    free(whole);
}

static void test_halves(void)
{
    static const int64_t sizes[][2] = {{5, 8}, {3, 13}, {40, 64}, {7, 1027}, {2, 4096}, {300, 1}};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(sizes); i++) {
            const trial_desc c =
                trial_usual(&glu.trial, sizes[i][0], "cols=%lld,dtype=%s", (long long)sizes[i][1],
                            tutti_dtype_name(float_dtypes[type]));
            trial t;
            if (!trial_open(&t, harness_context(), &c)) return;
            if (trial_run(&t)) {
                trial_check(&t);
                check_halves(&t, false);
                check_halves(&t, true);
            }
            trial_close(&t);
        }
}

/* Values of a whose act' the header states, and far from 0, where exponentials overflow. */
static void test_values(void)
{
    static const double values[] = {0, -0.0, 0.7, -0.7, 1, -1, 40, -40, 90, -90, 700, -700};
    for (int type = 0; type < 4; type++)
        for (int v = 0; glu.variants[v]; v++) {
            const trial_desc c =
                trial_usual(&glu.trial, 3, "cols=%d,dtype=%s%s%s", HARNESS_COUNT(values),
                            tutti_dtype_name(float_dtypes[type]), glu.variants[v][0] ? "," : "",
                            glu.variants[v]);
            trial t;
            if (!trial_open(&t, harness_context(), &c)) return;
            operand *a = trial_find(&t, "a");
            for (int64_t i = 0; i < a->count; i++)
                a->values[i] = harness_round(a->buffer.dtype, values[i % HARNESS_COUNT(values)]);
            trial_put(&t);
            if (trial_run(&t)) trial_check(&t);
            trial_close(&t);
        }
}

int main(int argc, char **argv)
{
    static const harness_test own[] = {
        {"halves of one tensor", test_halves},
        {"values of a", test_values},
    };
    return matrix_main(argc, argv, &glu, own, HARNESS_COUNT(own));
}
