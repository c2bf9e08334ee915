/* See common.h. */
#include "common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const tutti_dtype float_dtypes[4] = {TUTTI_F32, TUTTI_F64, TUTTI_F16, TUTTI_BF16};

operand operand_make(tutti_context *ctx, harness_rng *rng, tutti_dtype dtype, int64_t rows,
                     int64_t cols, layout place, double mean, double deviation)
{
    operand o = {.count = rows * cols};
    o.buffer = harness_buffer_make(ctx, dtype, rows, cols, cols + place.pad, place.misaligned);
    o.tensor = harness_buffer_tensor(&o.buffer);
    o.values = harness_calloc((size_t)o.count, sizeof *o.values);
    if (deviation >= 0) {
        harness_fill(rng, o.values, o.count, dtype, mean, deviation);
        operand_put(ctx, &o);
    }
    return o;
}

void operand_split(operand *o, int64_t lines)
{
    const int64_t stride = o->buffer.stride, items = o->buffer.rows / lines;
    o->tensor.ndim = 3;
    memcpy(o->tensor.dims, (int64_t[]){items, lines, o->buffer.cols}, 3 * sizeof(int64_t));
    memcpy(o->tensor.strides, (int64_t[]){lines * stride, stride, 1}, 3 * sizeof(int64_t));
}

void operand_free(tutti_context *ctx, operand *o)
{
    if (o->buffer.mirror) harness_buffer_free(ctx, &o->buffer);
    free(o->values);
    *o = (operand){0};
}

void operand_put(tutti_context *ctx, operand *o)
{
    harness_buffer_put(ctx, &o->buffer, o->values);
}

void operand_get(tutti_context *ctx, operand *o, const char *name)
{
    harness_buffer_get(ctx, &o->buffer, o->values);
    CHECK(harness_buffer_intact(ctx, &o->buffer), "%s: written outside its rows", name);
}

void operand_check_unchanged(tutti_context *ctx, const operand *o, const char *name)
{
    CHECK(harness_buffer_unchanged(ctx, &o->buffer), "%s: an input was written", name);
}

void check_same_bits(tutti_context *ctx, const char *what, const operand *a, const operand *b)
{
    size_t bytes = (size_t)a->count * tutti_dtype_size(a->buffer.dtype);
    unsigned char *bits = harness_calloc(2, bytes);
    harness_buffer_get_raw(ctx, &a->buffer, bits);
    harness_buffer_get_raw(ctx, &b->buffer, bits + bytes);
    size_t at = 0;
    while (at < bytes && bits[at] == bits[bytes + at]) at++;
    CHECK(at == bytes, "%s: other bits from element %zu on", what,
          at / tutti_dtype_size(a->buffer.dtype));
    free(bits);
}

void check_same_row(tutti_context *ctx, const char *what, const operand *a, int64_t row,
                    const operand *b)
{
    size_t row_bytes = (size_t)b->count * tutti_dtype_size(b->buffer.dtype);
    unsigned char *all = harness_calloc((size_t)a->count, tutti_dtype_size(a->buffer.dtype));
    unsigned char *one = harness_calloc(1, row_bytes);
    harness_buffer_get_raw(ctx, &a->buffer, all);
    harness_buffer_get_raw(ctx, &b->buffer, one);
    CHECK(memcmp(all + (size_t)row * row_bytes, one, row_bytes) == 0,
          "%s: row %lld has other bits in a call of its own", what, (long long)row);
    free(all);
    free(one);
}

harness_buffer saved_make(tutti_context *ctx, const tutti_layer *layer, int64_t rows)
{
    size_t bytes = tutti_layer_saved_bytes(layer, rows);
    harness_buffer saved =
        harness_buffer_make(ctx, TUTTI_U8, 1, (int64_t)bytes, 0, 16 /* what the header promises */);
    if (bytes == 0) saved.data = NULL;
    return saved;
}

void bind_param(tutti_layer *layer, int index, const operand *value, const operand *grad)
{
    tutti_param *param = tutti_layer_param(layer, index);
    if (!CHECK(param, "the layer has no parameter %d", index)) return;
    tutti_tensor shape = param->value;
    tutti_tensor bound =
        tutti_tensor_make(value->buffer.data, value->buffer.dtype, shape.ndim, shape.dims);
    tutti_tensor gradient = {0};
    if (grad)
        gradient = tutti_tensor_make(grad->buffer.data, grad->buffer.dtype, shape.ndim, shape.dims);
    CHECK_OK(tutti_param_bind(param, &bound, grad ? &gradient : NULL));
}

expected expected_make(int64_t count)
{
    double *memory = harness_calloc((size_t)count * 2, sizeof *memory);
    return (expected){memory, memory + count, count};
}

void expected_free(expected *e)
{
    free(e->want);
    *e = (expected){0};
}

void check_expected(const char *what, const operand *got, const expected *e, bool sharp)
{
    for (int64_t i = 0; i < e->count; i++) /* beyond the type's range there is infinity */
        if (isinf(harness_round(got->buffer.dtype, e->want[i])))
            e->want[i] = harness_round(got->buffer.dtype, e->want[i]);
    CHECK_CLOSE(what, got->values, e->want, e->bound, e->count);
    if (sharp)
        CHECK(harness_is_sharp(e->want, e->bound, e->count, got->buffer.dtype),
              "%s: the bound lets 16 ulp pass", what);
}

void check_gradient(const char *what, double (*loss)(void *self), void *self, double *values,
                    int64_t count, const double *analytic)
{
    /* Two central differences, extrapolated: the error is of order h^4 times the fifth derivative,
     * 1e-12, and f64's roundoff over h, 1e-13, times the size of the loss.  1e-9 leaves room for
     * derivatives of a hundred. */
    const double h = 0x1p-10;
    double scale = 1;
    for (int64_t i = 0; i < count; i++) scale = fmax(scale, fabs(analytic[i]));
    double *want = harness_calloc((size_t)count, sizeof *want);
    double *bound = harness_calloc((size_t)count, sizeof *bound);
    const bool quick = harness_quick(); /* each element is four calls forward */
    for (int64_t i = 0; i < count; i++) want[i] = analytic[i];
    for (int64_t i = quick ? count * 3 / 5 : 0; i < count; i += quick ? count : 1) {
        double kept = values[i], at[4];
        static const double offset[4] = {1, -1, 2, -2};
        for (int k = 0; k < 4; k++) {
            values[i] = kept + offset[k] * h;
            at[k] = loss(self);
        }
        values[i] = kept;
        want[i] = (4 * (at[0] - at[1]) / (2 * h) - (at[2] - at[3]) / (4 * h)) / 3;
        bound[i] = 1e-9 * scale;
    }
    CHECK_CLOSE(what, analytic, want, bound, count);
    free(want);
    free(bound);
}
