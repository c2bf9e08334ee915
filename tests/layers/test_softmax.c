/* Tests of softmax and log-softmax. */
#include <math.h>
#include <string.h>

#include "common.h"

typedef struct softmax_case {
    tutti_dtype dtype;
    int64_t rows, cols, period, first_row;
    bool log;
    double scale, deviation;
    layout place;
    uint64_t seed;
} softmax_case;

static softmax_case usual(tutti_dtype dtype, int64_t rows, int64_t cols, bool log)
{
    return (softmax_case){.dtype = dtype,
                          .rows = rows,
                          .cols = cols,
                          .log = log,
                          .scale = 1,
                          .deviation = 2,
                          .seed = (uint64_t)(rows * 1000003 + cols)};
}

typedef struct setting {
    tutti_layer *layer;
    operand x, y, dy, dx;
} setting;

static setting set_up(tutti_context *ctx, const softmax_case *c)
{
    harness_where("%s %s [%lld, %lld] scale %g period %lld from %lld pad %d misaligned %d",
                  c->log ? "log-softmax" : "softmax", tutti_dtype_name(c->dtype),
                  (long long)c->rows, (long long)c->cols, c->scale, (long long)c->period,
                  (long long)c->first_row, c->place.pad, c->place.misaligned);
    tutti_softmax_desc desc = TUTTI_SOFTMAX_DESC_INIT;
    desc.cols = c->cols;
    desc.dtype = c->dtype;
    desc.log = c->log;
    desc.scale = c->scale != 0 ? c->scale : TUTTI_ZERO;
    desc.causal_period = c->period;
    setting s = {0};
    CHECK_OK(tutti_softmax_create(ctx, &desc, &s.layer));
    harness_rng rng = {c->seed};
    s.x = operand_make(ctx, &rng, c->dtype, c->rows, c->cols, c->place, 0, c->deviation);
    s.y = operand_make(ctx, &rng, c->dtype, c->rows, c->cols, c->place, OUTPUT);
    s.dy = operand_make(ctx, &rng, c->dtype, c->rows, c->cols, c->place, 0.1, 1);
    s.dx = operand_make(ctx, &rng, c->dtype, c->rows, c->cols, c->place, OUTPUT);
    return s;
}

static void tear_down(tutti_context *ctx, setting *s)
{
    CHECK_OK(tutti_context_synchronize(ctx));
    tutti_layer_destroy(&s->layer);
    operand_free(ctx, &s->x);
    operand_free(ctx, &s->y);
    operand_free(ctx, &s->dy);
    operand_free(ctx, &s->dx);
}

static oracle_softmax oracle_of(const softmax_case *c)
{
    return (oracle_softmax){.rows = c->rows,
                            .cols = c->cols,
                            .causal_period = c->period,
                            .first_row = c->first_row,
                            .log = c->log,
                            .scale = c->scale,
                            .dtype = c->dtype};
}

static tutti_status run_forward(tutti_context *ctx, const softmax_case *c, setting *s)
{
    return tutti_softmax_forward(
        s->layer, ctx,
        &(tutti_softmax_call){.x = &s->x.tensor, .y = &s->y.tensor, .first_row = &c->first_row});
}

static tutti_status run_backward(tutti_context *ctx, const softmax_case *c, setting *s)
{
    return tutti_softmax_backward(s->layer, ctx,
                                  &(tutti_softmax_call){.y = &s->y.tensor,
                                                        .dy = &s->dy.tensor,
                                                        .dx = &s->dx.tensor,
                                                        .first_row = &c->first_row});
}

static void check_forward(tutti_context *ctx, const softmax_case *c, setting *s)
{
    if (!CHECK_OK(run_forward(ctx, c, s))) return;
    operand_get(ctx, &s->y, "y");
    operand_check_unchanged(ctx, &s->x, "x");
    oracle_softmax oracle = oracle_of(c);
    expected y = expected_make(s->y.count);
    oracle_softmax_forward(&oracle, s->x.values, y.want, y.bound);
    bool sharp = c->cols <= 512 && c->scale == 1 && c->dtype != TUTTI_F64;
    check_expected("y", &s->y, &y, sharp);
    expected_free(&y);
}

/* From the y that forward stored. */
static void check_backward(tutti_context *ctx, const softmax_case *c, setting *s)
{
    if (!CHECK_OK(run_backward(ctx, c, s))) return;
    operand_get(ctx, &s->dx, "dx");
    operand_check_unchanged(ctx, &s->dy, "dy");
    oracle_softmax oracle = oracle_of(c);
    expected dx = expected_make(s->dx.count);
    oracle_softmax_backward(&oracle, s->y.values, s->dy.values, dx.want, dx.bound);
    check_expected("dx", &s->dx, &dx, false);
    expected_free(&dx);
}

static void check_case(const softmax_case *c)
{
    tutti_context *ctx = harness_context();
    setting s = set_up(ctx, c);
    int failures = harness_failures();
    check_forward(ctx, c, &s);
    if (harness_failures() == failures) check_backward(ctx, c, &s);
    tear_down(ctx, &s);
}

static void test_shapes(void)
{
    static const int64_t cols[] = {1, 2, 3, 7, 8, 15, 31, 100, 256, 513, 1024, 1025, 4097, 10000};
    static const int64_t rows[] = {1, 2, 33};
    for (int type = 0; type < 4; type++)
        for (int log = 0; log < 2; log++)
            for (int i = 0; i < HARNESS_COUNT(cols); i++)
                for (int j = 0; j < HARNESS_COUNT(rows); j++) {
                    if (harness_quick() && (j != 1 || i % 3)) continue;
                    softmax_case c = usual(float_dtypes[type], rows[j], cols[i], log);
                    check_case(&c);
                }
}

static void test_long_rows(void)
{
    static const int64_t cols[] = {16383, 16392, 32768, 65537, 131072, 262144, 1 << 20};
    for (int type = 0; type < 4; type++)
        for (int log = 0; log < 2; log++)
            for (int i = 0; i < HARNESS_COUNT(cols); i++) {
                bool very = cols[i] > 70000;
                if (very && (float_dtypes[type] == TUTTI_F64 || float_dtypes[type] == TUTTI_F16))
                    continue;
                if (harness_quick() && (type > 0 || log || (i != 1 && i != 3))) continue;
                softmax_case c = usual(float_dtypes[type], 2, cols[i], log);
                check_case(&c);
            }
}

static void test_scale(void)
{
    static const double scales[] = {0.125, 3.0, -1.5, 0.0};
    for (int type = 0; type < 4; type++)
        for (int log = 0; log < 2; log++)
            for (int i = 0; i < HARNESS_COUNT(scales); i++) {
                softmax_case c = usual(float_dtypes[type], 5, 77, log);
                c.scale = scales[i];
                check_case(&c);
                c.cols = 2048;
                if (!harness_quick()) check_case(&c);
            }
}

/* A row that sees one column gives it everything: y is 1, or 0 for log-softmax, and dx 0, whatever x and scale are. */
static void test_one_column(void)
{
    tutti_context *ctx = harness_context();
    static const double scales[] = {1, 3, 0.3, -0.7, 1e-3, -7.7, 0};
    static const int64_t cols[] = {1, 130, 5000, 40000};
    for (int type = 0; type < 4; type++)
        for (int log = 0; log < 2; log++)
            for (int i = 0; i < HARNESS_COUNT(scales) * HARNESS_COUNT(cols); i++) {
                softmax_case c = usual(float_dtypes[type], 3, cols[i % HARNESS_COUNT(cols)], log);
                if (harness_quick() && c.cols > 130) continue;
                c.scale = scales[i / HARNESS_COUNT(cols)];
                c.period = 1;
                c.deviation = 200;
                setting s = set_up(ctx, &c);
                CHECK_OK(run_forward(ctx, &c, &s));
                CHECK_OK(run_backward(ctx, &c, &s));
                operand_get(ctx, &s.y, "y");
                operand_get(ctx, &s.dx, "dx");
                for (int64_t j = 0; j < s.y.count; j++) {
                    double want = j % c.cols == 0 ? !log : log ? -INFINITY : 0;
                    if (!CHECK(s.y.values[j] == want && s.dx.values[j] == 0,
                               "element %lld: y is %.17g, want %g; dx is %g, want 0", (long long)j,
                               s.y.values[j], want, s.dx.values[j]))
                        break;
                }
                tear_down(ctx, &s);
            }
}

/* What all elements have in common costs no accuracy. */
static void test_far_from_zero(void)
{
    tutti_context *ctx = harness_context();
    static const double scales[] = {0.3, -0.7, 5};
    static const int64_t cols[] = {20, 1000, 40000};
    for (int type = 0; type < 4; type++)
        for (int log = 0; log < 2; log++)
            for (int i = 0; i < HARNESS_COUNT(scales); i++) {
                softmax_case c = usual(float_dtypes[type], 3, cols[i], log);
                if (harness_quick() && i > 0) continue;
                c.scale = scales[i];
                setting s = set_up(ctx, &c);
                for (int64_t j = 0; j < s.x.count; j++)
                    s.x.values[j] = harness_round(c.dtype, s.x.values[j] + 3000);
                operand_put(ctx, &s.x);
                check_forward(ctx, &c, &s);
                check_backward(ctx, &c, &s);
                tear_down(ctx, &s);
            }
}

/* Neither x's differences nor its products with scale have to be numbers of the type. */
static void test_range(void)
{
    tutti_context *ctx = harness_context();
    static const double largest[] = {3e38, 1.5e308, 6e4, 3e38},
                        scales[] = {1e-38, 1e-308, 1e-4, 1e-38};
    static const int64_t cols[] = {3, 1000, 40000};
    for (int type = 0; type < 4; type++)
        for (int log = 0; log < 2; log++)
            for (int i = 0; i < 4 * HARNESS_COUNT(cols); i++) {
                softmax_case c = usual(float_dtypes[type], 2, cols[i / 4], log);
                if (harness_quick() && i / 4 > 0) continue;
                bool over = i & 2; /* otherwise all exponents are moderate */
                c.scale = (over ? 1e30 : scales[type]) * (i & 1 ? -1 : 1);
                setting s = set_up(ctx, &c);
                for (int64_t j = 0; j < s.x.count; j++)
                    s.x.values[j] =
                        harness_round(c.dtype, largest[type] * ((double)(j % 5) / 2 - 1));
                operand_put(ctx, &s.x);
                check_forward(ctx, &c, &s);
                tear_down(ctx, &s);
            }
}

/* Row i of the global batch sees columns 0 to i mod period. */
static void test_causal_mask(void)
{
    static const int64_t shapes[][4] = {
        /* rows, cols, period, first_row */
        {12, 12, 12, 0}, {12, 12, 12, 5},  {20, 9, 7, 3},         {7, 5, 16, 0},
        {40, 33, 33, 4}, {64, 130, 64, 9}, {3, 4100, 5000, 4500}, {5, 40, 40, INT64_C(1) << 40},
    };
    for (int type = 0; type < 4; type++)
        for (int log = 0; log < 2; log++)
            for (int i = 0; i < HARNESS_COUNT(shapes); i++) {
                if (harness_quick() && i != 2 && i != 6) continue;
                softmax_case c = usual(float_dtypes[type], shapes[i][0], shapes[i][1], log);
                c.period = shapes[i][2];
                c.first_row = shapes[i][3];
                c.scale = i & 1 ? 0.25 : 1;
                check_case(&c);
            }
}

/* What the mask hides is not read as a number. */
static void test_hidden_values(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < 4; type++)
        for (int log = 0; log < 2; log++) {
            softmax_case c = usual(float_dtypes[type], 10, 10, log);
            c.period = 10;
            setting s = set_up(ctx, &c);
            for (int64_t i = 0; i < 10; i++)
                for (int64_t j = i + 1; j < 10; j++) {
                    s.x.values[i * 10 + j] = j & 1 ? NAN : INFINITY;
                    s.dy.values[i * 10 + j] = j & 1 ? NAN : -INFINITY;
                }
            operand_put(ctx, &s.x);
            operand_put(ctx, &s.dy);
            check_forward(ctx, &c, &s);
            check_backward(ctx, &c, &s);
            tear_down(ctx, &s);
        }
}

static void test_strides_and_alignment(void)
{
    static const layout places[] = {{3, 0}, {8, 0}, {0, 1}, {5, 1}, {1, 3}, {8, 4}, {64, 7}};
    static const int64_t cols[] = {5, 64, 257, 1024, 5000};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(places); i++)
            for (int j = 0; j < HARNESS_COUNT(cols); j++) {
                if (harness_quick() && (i + j) % 4) continue;
                softmax_case c = usual(float_dtypes[type], 4, cols[j], (i + j) & 1);
                c.place = places[i];
                check_case(&c);
            }
}

static void test_dimensions(void)
{
    tutti_context *ctx = harness_context();
    softmax_case c = usual(TUTTI_F32, 24, 6, false);
    c.place.pad = 2;
    c.period = 6;
    setting s = set_up(ctx, &c);
    operand *all[] = {&s.x, &s.y, &s.dy, &s.dx};
    for (int i = 0; i < HARNESS_COUNT(all); i++) {
        all[i]->tensor.ndim = 4;
        memcpy(all[i]->tensor.dims, (int64_t[]){2, 1, 12, 6}, sizeof all[i]->tensor.dims);
        memcpy(all[i]->tensor.strides, (int64_t[]){96, -5, 8, 1}, sizeof all[i]->tensor.strides);
    }
    check_forward(ctx, &c, &s);
    check_backward(ctx, &c, &s);
    tear_down(ctx, &s);
}

/* Rows of y may lie in the gaps of x's, but reach into none of them. */
static void test_slices(void)
{
    enum { ROWS = 3, COLS = 4, STRIDE = 10 };
    tutti_context *ctx = harness_context();
    tutti_softmax_desc desc = TUTTI_SOFTMAX_DESC_INIT;
    desc.cols = COLS;
    tutti_layer *layer = NULL;
    void *data = NULL;
    CHECK_OK(tutti_softmax_create(ctx, &desc, &layer));
    CHECK_OK(tutti_alloc(ctx, 2 * ROWS * STRIDE * sizeof(float), &data));
    CHECK_OK(tutti_zero(ctx, data, 2 * ROWS * STRIDE * sizeof(float)));
    for (int shift = 1; shift < STRIDE; shift++)
        for (int swapped = 0; swapped < 2; swapped++) {
            harness_where("shift %d swapped %d", shift, swapped);
            tutti_tensor low = tutti_tensor_2d(data, TUTTI_F32, ROWS, COLS);
            tutti_tensor high = tutti_tensor_2d((float *)data + shift, TUTTI_F32, ROWS, COLS);
            low.strides[0] = high.strides[0] = STRIDE;
            tutti_call call = {.in = {swapped ? &high : &low}, .out = {swapped ? &low : &high}};
            if (shift >= COLS && shift + COLS <= STRIDE)
                CHECK_OK(tutti_layer_forward(layer, ctx, &call));
            else
                CHECK_FAILS(TUTTI_ERR_ARG, "share memory", tutti_layer_forward(layer, ctx, &call));
        }
    harness_where(NULL);
    CHECK_OK(tutti_free(ctx, &data));
    tutti_layer_destroy(&layer);
}

static void test_in_place(void)
{
    tutti_context *ctx = harness_context();
    static const int64_t cols[] = {130, 5001, 40000};
    for (int type = 0; type < 4; type++)
        for (int log = 0; log < 2; log++)
            for (int i = 0; i < (harness_quick() ? 1 : HARNESS_COUNT(cols)); i++) {
                softmax_case c = usual(float_dtypes[type], 3, cols[i], log);
                c.place.pad = 2;
                setting s = set_up(ctx, &c);
                CHECK_OK(run_forward(ctx, &c, &s));
                CHECK_OK(run_backward(ctx, &c, &s));
                CHECK_OK(tutti_softmax_forward(
                    s.layer, ctx, &(tutti_softmax_call){.x = &s.x.tensor, .y = &s.x.tensor}));
                check_same_bits(ctx, "y in place of x", &s.y, &s.x);
                CHECK_OK(tutti_softmax_backward(s.layer, ctx,
                                                &(tutti_softmax_call){.y = &s.y.tensor,
                                                                      .dy = &s.dy.tensor,
                                                                      .dx = &s.dy.tensor}));
                check_same_bits(ctx, "dx in place of dy", &s.dx, &s.dy);
                tear_down(ctx, &s);
            }
}

static void test_no_rows(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < 4; type++) {
        softmax_case c = usual(float_dtypes[type], 0, 9, false);
        check_case(&c);
        setting s = set_up(ctx, &c);
        tutti_tensor nowhere = tutti_tensor_2d(NULL, c.dtype, 0, 9);
        const tutti_softmax_call call = {
            .x = &nowhere, .y = &nowhere, .dy = &nowhere, .dx = &nowhere};
        CHECK_OK(tutti_softmax_forward(s.layer, ctx, &call));
        CHECK_OK(tutti_softmax_backward(s.layer, ctx, &call));
        tear_down(ctx, &s);
    }
}

/* A row is NaN if scale x is NaN or +inf in it, or -inf in all of it; a single -inf counts for nothing. */
static void check_nonfinite(tutti_context *ctx, const softmax_case *c)
{
    const int64_t n = c->cols;
    const bool log = c->log;
    setting s = set_up(ctx, c);
    s.x.values[0 * n + n / 2] = NAN;
    s.x.values[1 * n + n - 1] = INFINITY;
    s.x.values[2 * n] = -INFINITY;
    for (int64_t j = 0; j < n; j++) s.x.values[3 * n + j] = -INFINITY;
    for (int64_t j = 0; j < n / 2; j++) s.x.values[4 * n + j] = -INFINITY;
    operand_put(ctx, &s.x);
    check_forward(ctx, c, &s);
    if (n > 1) {
        const double none = log ? -INFINITY : 0, *y = s.y.values;
        CHECK(isnan(y[0]) && isnan(y[3 * n]), "the rows with NaN and -inf alone are not NaN");
        if (c->scale < 0)
            CHECK(y[2 * n - 1] == none && !isnan(y[n]), "y of +inf is %g", y[2 * n - 1]);
        else
            CHECK(isnan(y[n]), "the row with +inf is not NaN");
        if (c->scale > 0)
            CHECK(y[2 * n] == none && !isnan(y[3 * n - 1]), "y of -inf is %g", y[2 * n]);
        else
            CHECK(isnan(y[2 * n]) && isnan(y[3 * n - 1]), "the row with -inf is not NaN");
    }
    s.dy.values[5 * n + n / 3] = NAN;
    operand_put(ctx, &s.dy);
    if (!log) /* exp(-inf) * sum is 0, but y itself is -inf there */
        check_backward(ctx, c, &s);
    tear_down(ctx, &s);
}

static void test_nonfinite(void)
{
    static const int64_t cols[] = {1, 9, 300, 5000, 40000};
    static const double scales[] = {1, 0.3, -2, 0};
    for (int type = 0; type < 4; type++)
        for (int log = 0; log < 2; log++)
            for (int i = 0; i < HARNESS_COUNT(cols) * HARNESS_COUNT(scales); i++) {
                softmax_case c = usual(float_dtypes[type], 6, cols[i % HARNESS_COUNT(cols)], log);
                if (harness_quick() && c.cols > 5000) continue;
                c.scale = scales[i / HARNESS_COUNT(cols)];
                check_nonfinite(harness_context(), &c);
            }
}

/* Values whose exponentials overflow or underflow by themselves. */
static void test_extreme_values(void)
{
    for (int type = 0; type < 4; type++)
        for (int log = 0; log < 2; log++) {
            softmax_case c = usual(float_dtypes[type], 4, 301, log);
            c.deviation = 200;
            check_case(&c);
            c.deviation = 15000;
            check_case(&c);
        }
}

static void copy_row(tutti_context *ctx, operand *to, const operand *from, int64_t row)
{
    memcpy(to->values, from->values + row * to->count, (size_t)to->count * sizeof(double));
    operand_put(ctx, to);
}

static void test_row_bits(void)
{
    tutti_context *ctx = harness_context();
    static const int64_t shapes[][2] = {{37, 64}, {9, 1027}, {5, 20000}};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < (harness_quick() ? 1 : HARNESS_COUNT(shapes)); i++) {
            softmax_case c = usual(float_dtypes[type], shapes[i][0], shapes[i][1], i & 1);
            c.scale = 0.3;
            setting s = set_up(ctx, &c);
            CHECK_OK(run_forward(ctx, &c, &s));
            CHECK_OK(run_backward(ctx, &c, &s));
            operand_get(ctx, &s.y, "y");
            for (int place = 0; place < 3; place++) {
                softmax_case moved = c;
                moved.place = (layout[]){{5, 0}, {0, 1}, {3, 5}}[place];
                setting t = set_up(ctx, &moved);
                CHECK_OK(run_forward(ctx, &moved, &t));
                CHECK_OK(run_backward(ctx, &moved, &t));
                check_same_bits(ctx, "y", &s.y, &t.y);
                check_same_bits(ctx, "dx", &s.dx, &t.dx);
                tear_down(ctx, &t);
            }
            softmax_case alone = c;
            alone.rows = 1;
            setting t = set_up(ctx, &alone);
            for (int64_t row = 0; row < c.rows; row += 4) {
                copy_row(ctx, &t.x, &s.x, row);
                copy_row(ctx, &t.dy, &s.dy, row);
                CHECK_OK(run_forward(ctx, &alone, &t));
                CHECK_OK(run_backward(ctx, &alone, &t));
                check_same_row(ctx, "y", &s.y, row, &t.y);
                check_same_row(ctx, "dx", &s.dx, row, &t.dx);
            }
            tear_down(ctx, &t);
            tear_down(ctx, &s);
        }
}

static void test_threads(void)
{
    if (harness_backend() != TUTTI_BACKEND_HOST) {
        harness_skip("only the host backend has threads");
        return;
    }
    static const int64_t shapes[][2] = {{1, 70000}, {2, 64}, {67, 131}};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(shapes); i++) {
            softmax_case c = usual(float_dtypes[type], shapes[i][0], shapes[i][1], type & 1);
            tutti_context *one = harness_new_context(0, 1);
            setting s = set_up(one, &c);
            CHECK_OK(run_forward(one, &c, &s));
            CHECK_OK(run_backward(one, &c, &s));
            for (int threads = 2; threads <= 3; threads++) {
                tutti_context *several = harness_new_context(0, threads);
                setting t = set_up(several, &c);
                CHECK_OK(run_forward(several, &c, &t));
                CHECK_OK(run_backward(several, &c, &t));
                check_same_bits(one, "y", &s.y, &t.y);
                check_same_bits(one, "dx", &s.dx, &t.dx);
                tear_down(several, &t);
                tutti_context_destroy(&several);
            }
            tear_down(one, &s);
            tutti_context_destroy(&one);
        }
}

typedef struct difference {
    const softmax_case *c;
    setting *s;
} difference;

static double loss(void *self)
{
    difference *d = self;
    setting *s = d->s;
    tutti_context *ctx = harness_context();
    operand_put(ctx, &s->x);
    CHECK_OK(run_forward(ctx, d->c, s));
    operand_get(ctx, &s->y, "y");
    double total = 0;
    for (int64_t i = 0; i < s->y.count; i++)
        if (isfinite(s->y.values[i])) total += s->dy.values[i] * s->y.values[i];
    return total;
}

static void test_finite_differences(void)
{
    tutti_context *ctx = harness_context();
    for (int log = 0; log < 2; log++) {
        softmax_case c = usual(TUTTI_F64, 5, 9, log);
        c.scale = 0.7;
        c.period = 9;
        c.first_row = 4;
        c.deviation = 1;
        setting s = set_up(ctx, &c);
        CHECK_OK(run_forward(ctx, &c, &s));
        CHECK_OK(run_backward(ctx, &c, &s));
        operand_get(ctx, &s.dx, "dx");
        difference d = {&c, &s};
        check_gradient("dx", loss, &d, s.x.values, s.x.count, s.dx.values);
        tear_down(ctx, &s);
    }
}

int main(int argc, char **argv)
{
    static const harness_test tests[] = {
        {"shapes", test_shapes},
        {"long rows", test_long_rows},
        {"scale", test_scale},
        {"one column", test_one_column},
        {"far from zero", test_far_from_zero},
        {"range of x and scale", test_range},
        {"causal mask", test_causal_mask},
        {"hidden values", test_hidden_values},
        {"strides and misaligned pointers", test_strides_and_alignment},
        {"several dimensions", test_dimensions},
        {"slices of one tensor", test_slices},
        {"in place", test_in_place},
        {"no rows", test_no_rows},
        {"NaN and infinities", test_nonfinite},
        {"extreme values", test_extreme_values},
        {"bits of a row", test_row_bits},
        {"bits and threads", test_threads},
        {"finite differences", test_finite_differences},
    };
    return harness_main(argc, argv, "softmax", tests, HARNESS_COUNT(tests));
}
