/* Tests of CrossEntropy. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

typedef struct ce_case {
    tutti_dtype dtype;
    int64_t rows, cols;
    int32_t ignore_label;
    double loss_weight, loss_scale; /* both 0: no step block */
    double deviation;
    layout place;
    uint64_t seed;
} ce_case;

static ce_case usual(tutti_dtype dtype, int64_t rows, int64_t cols)
{
    return (ce_case){.dtype = dtype,
                     .rows = rows,
                     .cols = cols,
                     .ignore_label = -1,
                     .deviation = 2,
                     .seed = (uint64_t)(rows * 1000003 + cols)};
}

typedef struct setting {
    tutti_layer *layer;
    tutti_step_block *step;
    operand logits, labels, loss, loss_sum, dlogits;
    int32_t *label_values;
} setting;

static void put_labels(tutti_context *ctx, setting *s)
{
    for (int64_t i = 0; i < s->labels.count; i++) s->labels.values[i] = s->label_values[i];
    operand_put(ctx, &s->labels);
}

static setting set_up(tutti_context *ctx, const ce_case *c)
{
    harness_where("cross_entropy %s [%lld, %lld] weight %g scale %g pad %d misaligned %d",
                  tutti_dtype_name(c->dtype), (long long)c->rows, (long long)c->cols,
                  c->loss_weight, c->loss_scale, c->place.pad, c->place.misaligned);
    tutti_cross_entropy_desc desc = TUTTI_CROSS_ENTROPY_DESC_INIT;
    desc.cols = c->cols;
    desc.dtype = c->dtype;
    desc.ignore_label = c->ignore_label ? c->ignore_label : TUTTI_ZERO_INT32;
    setting s = {0};
    CHECK_OK(tutti_cross_entropy_create(ctx, &desc, &s.layer));
    harness_rng rng = {c->seed};
    tutti_dtype loss = c->dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    layout flat = {0, c->place.misaligned};
    s.logits = operand_make(ctx, &rng, c->dtype, c->rows, c->cols, c->place, 0.5, c->deviation);
    s.labels = operand_make(ctx, &rng, TUTTI_I32, 1, c->rows, flat, OUTPUT);
    s.loss = operand_make(ctx, &rng, loss, 1, c->rows, flat, OUTPUT);
    s.loss_sum = operand_make(ctx, &rng, TUTTI_F64, 1, 1, flat, OUTPUT);
    s.dlogits = operand_make(ctx, &rng, c->dtype, c->rows, c->cols, c->place, OUTPUT);
    s.label_values = harness_calloc((size_t)c->rows, sizeof *s.label_values);
    for (int64_t i = 0; i < c->rows; i++)
        s.label_values[i] =
            i % 5 == 3 ? c->ignore_label : (int32_t)(harness_random(&rng) % (uint64_t)c->cols);
    /* vectors are views of one dimension */
    s.labels.tensor = tutti_tensor_1d(s.labels.buffer.data, TUTTI_I32, c->rows);
    s.loss.tensor = tutti_tensor_1d(s.loss.buffer.data, loss, c->rows);
    s.loss_sum.tensor = tutti_tensor_1d(s.loss_sum.buffer.data, TUTTI_F64, 1);
    put_labels(ctx, &s);
    if (c->loss_scale > 0) {
        CHECK_OK(tutti_step_block_create(ctx, &s.step));
        tutti_step_values values = {.step = 1, .loss_weight = 1};
        values.loss_weight = c->loss_weight;
        values.loss_scale = c->loss_scale;
        CHECK_OK(tutti_step_block_set(s.step, ctx, &values));
    }
    return s;
}

static void tear_down(tutti_context *ctx, setting *s)
{
    CHECK_OK(tutti_context_synchronize(ctx));
    tutti_layer_destroy(&s->layer);
    tutti_step_block_destroy(&s->step);
    operand *all[] = {&s->logits, &s->labels, &s->loss, &s->loss_sum, &s->dlogits};
    for (int i = 0; i < HARNESS_COUNT(all); i++) operand_free(ctx, all[i]);
    free(s->label_values);
}

static tutti_status run(tutti_context *ctx, setting *s)
{
    const tutti_cross_entropy_call call = {
        .logits = &s->logits.tensor,
        .labels = &s->labels.tensor,
        .loss = &s->loss.tensor,
        .loss_sum = &s->loss_sum.tensor,
        .dlogits = &s->dlogits.tensor,
        .step = s->step,
    };
    return tutti_cross_entropy_forward(s->layer, ctx, &call);
}

static void check_run(tutti_context *ctx, const ce_case *c, setting *s)
{
    if (!CHECK_OK(run(ctx, s))) return;
    operand_get(ctx, &s->loss, "loss");
    operand_get(ctx, &s->loss_sum, "loss_sum");
    operand_get(ctx, &s->dlogits, "dlogits");
    operand_check_unchanged(ctx, &s->logits, "logits");
    operand_check_unchanged(ctx, &s->labels, "labels");
    oracle_cross_entropy oracle = {.rows = c->rows,
                                   .cols = c->cols,
                                   .ignore_label = c->ignore_label,
                                   .weight = c->loss_scale > 0 ? c->loss_weight * c->loss_scale : 1,
                                   .dtype = c->dtype};
    expected loss = expected_make(c->rows), sum = expected_make(1);
    expected dlogits = expected_make(c->rows * c->cols);
    oracle_cross_entropy_forward(&oracle, s->logits.values, s->label_values, loss.want, loss.bound,
                                 sum.want, sum.bound, dlogits.want, dlogits.bound);
    bool sharp = c->cols <= 256 && c->cols >= 8 && c->rows >= 4 && c->dtype != TUTTI_F64;
    check_expected("loss", &s->loss, &loss, sharp);
    check_expected("loss_sum", &s->loss_sum, &sum, false);
    check_expected("dlogits", &s->dlogits, &dlogits, sharp);
    expected_free(&loss);
    expected_free(&sum);
    expected_free(&dlogits);
}

static void check_case(const ce_case *c)
{
    tutti_context *ctx = harness_context();
    setting s = set_up(ctx, c);
    check_run(ctx, c, &s);
    CHECK_OK(tutti_context_check(ctx));
    tear_down(ctx, &s);
}

static void test_shapes(void)
{
    static const int64_t cols[] = {1, 2, 3, 7, 8, 10, 31, 100, 256, 513, 1024, 1025, 4097, 10000};
    static const int64_t rows[] = {1, 2, 33};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(cols); i++)
            for (int j = 0; j < HARNESS_COUNT(rows); j++) {
                if (harness_quick() && (j != 1 || i % 3)) continue;
                ce_case c = usual(float_dtypes[type], rows[j], cols[i]);
                check_case(&c);
            }
}

static void test_many_rows(void)
{
    for (int type = 0; type < 4; type++) {
        ce_case c = usual(float_dtypes[type], harness_quick() ? 300 : 5000, 10);
        check_case(&c);
    }
}

static void test_long_rows(void)
{
    static const int64_t cols[] = {16383, 16392, 32768, 50257, 65537, 131072, 1 << 20};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(cols); i++) {
            bool very = cols[i] > 70000;
            if (very && (float_dtypes[type] == TUTTI_F64 || float_dtypes[type] == TUTTI_F16))
                continue;
            if (harness_quick() && (type > 0 || (i != 1 && i != 3))) continue;
            ce_case c = usual(float_dtypes[type], 2, cols[i]);
            check_case(&c);
        }
}

static void test_step_factors(void)
{
    static const double factors[][2] = {{1.0 / 256, 1}, {0.01, 1024}, {3.0, 0.5}, {1, 1}};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(factors); i++) {
            ce_case c = usual(float_dtypes[type], 9, 33);
            c.loss_weight = factors[i][0];
            c.loss_scale = factors[i][1];
            check_case(&c);
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
                ce_case c = usual(float_dtypes[type], 4, cols[j]);
                c.place = places[i];
                check_case(&c);
            }
}

static void test_dimensions(void)
{
    tutti_context *ctx = harness_context();
    ce_case c = usual(TUTTI_F32, 6, 10);
    c.place.pad = 2;
    setting s = set_up(ctx, &c);
    operand *both[] = {&s.logits, &s.dlogits};
    for (int i = 0; i < 2; i++) {
        both[i]->tensor.ndim = 3;
        memcpy(both[i]->tensor.dims, (int64_t[]){2, 3, 10}, 3 * sizeof(int64_t));
        memcpy(both[i]->tensor.strides, (int64_t[]){36, 12, 1}, 3 * sizeof(int64_t));
    }
    check_run(ctx, &c, &s);
    tear_down(ctx, &s);
}

/* Every output is optional, and none changes the others; dlogits may be the logits. */
static void test_outputs(void)
{
    tutti_context *ctx = harness_context();
    static const int64_t cols[] = {10, 3001, 40000};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < (harness_quick() ? 1 : HARNESS_COUNT(cols)); i++) {
            ce_case c = usual(float_dtypes[type], 6, cols[i]);
            setting s = set_up(ctx, &c), t = set_up(ctx, &c);
            CHECK_OK(run(ctx, &s));
            for (int bits = 0; bits < 8; bits++) {
                harness_buffer_poison(ctx, &t.loss.buffer);
                harness_buffer_poison(ctx, &t.loss_sum.buffer);
                harness_buffer_poison(ctx, &t.dlogits.buffer);
                const tutti_cross_entropy_call call = {
                    .logits = &t.logits.tensor,
                    .labels = &t.labels.tensor,
                    .loss = bits & 1 ? &t.loss.tensor : NULL,
                    .loss_sum = bits & 2 ? &t.loss_sum.tensor : NULL,
                    .dlogits = bits & 4 ? &t.dlogits.tensor : NULL,
                };
                CHECK_OK(tutti_cross_entropy_forward(t.layer, ctx, &call));
                if (bits & 1)
                    check_same_bits(ctx, "loss", &s.loss, &t.loss);
                else
                    operand_check_unchanged(ctx, &t.loss, "loss");
                if (bits & 2)
                    check_same_bits(ctx, "loss_sum", &s.loss_sum, &t.loss_sum);
                else
                    operand_check_unchanged(ctx, &t.loss_sum, "loss_sum");
                if (bits & 4)
                    check_same_bits(ctx, "dlogits", &s.dlogits, &t.dlogits);
                else
                    operand_check_unchanged(ctx, &t.dlogits, "dlogits");
            }
            const tutti_cross_entropy_call in_place = {
                .logits = &t.logits.tensor,
                .labels = &t.labels.tensor,
                .loss = &t.loss.tensor,
                .loss_sum = &t.loss_sum.tensor,
                .dlogits = &t.logits.tensor,
            };
            CHECK_OK(tutti_cross_entropy_forward(t.layer, ctx, &in_place));
            check_same_bits(ctx, "dlogits in place", &s.dlogits, &t.logits);
            check_same_bits(ctx, "loss in place", &s.loss, &t.loss);
            tear_down(ctx, &s);
            tear_down(ctx, &t);
        }
}

/* Many equal losses, whose roundings are all alike, add up as accurately as any. */
static void test_sum_of_equal_losses(void)
{
    tutti_context *ctx = harness_context();
    for (int64_t rows = 300; rows <= 500000; rows = rows * 11 + 7) {
        ce_case c = usual(TUTTI_F64, rows, 2);
        c.ignore_label = -2;
        setting s = set_up(ctx, &c);
        for (int64_t i = 0; i < rows; i++) s.label_values[i] = 0;
        for (int64_t i = 0; i < s.logits.count; i++) s.logits.values[i] = i % 2 ? 2.3 : 0;
        put_labels(ctx, &s);
        operand_put(ctx, &s.logits);
        CHECK_OK(run(ctx, &s));
        operand_get(ctx, &s.loss, "loss");
        operand_get(ctx, &s.loss_sum, "loss_sum");
        long double want = 0;
        for (int64_t i = 0; i < rows; i++) want += s.loss.values[i];
        double error = (double)fabsl(s.loss_sum.values[0] - want) / (double)want / 0x1p-53;
        CHECK(error <= 40, "the sum of %lld losses is %.17g, want %.17Lg: off by %.0f roundoffs",
              (long long)rows, s.loss_sum.values[0], want, error);
        tear_down(ctx, &s);
    }
}

static void test_no_rows(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < 4; type++) {
        ce_case c = usual(float_dtypes[type], 0, 9);
        check_case(&c);
        setting s = set_up(ctx, &c);
        tutti_tensor nowhere = tutti_tensor_2d(NULL, c.dtype, 0, 9);
        tutti_tensor labels = tutti_tensor_1d(NULL, TUTTI_I32, 0);
        tutti_tensor loss = tutti_tensor_1d(NULL, s.loss.buffer.dtype, 0);
        const tutti_cross_entropy_call call = {
            .logits = &nowhere,
            .labels = &labels,
            .loss = &loss,
            .loss_sum = &s.loss_sum.tensor,
            .dlogits = &nowhere,
        };
        CHECK_OK(tutti_cross_entropy_forward(s.layer, ctx, &call));
        operand_get(ctx, &s.loss_sum, "loss_sum");
        CHECK(s.loss_sum.values[0] == 0, "loss_sum of no rows is %g", s.loss_sum.values[0]);
        tear_down(ctx, &s);
    }
}

static void test_ignored_labels(void)
{
    tutti_context *ctx = harness_context();
    static const int32_t ignores[] = {-1, -100, 0, 3, INT32_MAX, INT32_MIN + 1};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(ignores); i++) {
            ce_case c = usual(float_dtypes[type], 11, 6);
            c.ignore_label = ignores[i];
            check_case(&c);
            setting s = set_up(ctx, &c); /* all ignored, NaN logits included */
            for (int64_t row = 0; row < c.rows; row++) s.label_values[row] = ignores[i];
            put_labels(ctx, &s);
            s.logits.values[8] = NAN;
            operand_put(ctx, &s.logits);
            check_run(ctx, &c, &s);
            CHECK(s.loss_sum.values[0] == 0, "loss_sum of ignored rows is %g",
                  s.loss_sum.values[0]);
            CHECK_OK(tutti_context_check(ctx));
            tear_down(ctx, &s);
        }
}

/* A label out of range makes its row NaN and is reported once, with its row and value. */
static void test_bad_labels(void)
{
    tutti_context *ctx = harness_context();
    static const int32_t bad[] = {6, 7, -2, INT32_MIN, INT32_MAX};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(bad); i++) {
            ce_case c = usual(float_dtypes[type], 8, 6);
            setting s = set_up(ctx, &c);
            s.label_values[4] = bad[i];
            s.label_values[6] = bad[(i + 1) % HARNESS_COUNT(bad)]; /* the first one is named */
            put_labels(ctx, &s);
            check_run(ctx, &c, &s);
            char text[32];
            snprintf(text, sizeof text, "row 4 is %d", (int)bad[i]);
            CHECK_FAILS(TUTTI_ERR_DATA, text, tutti_context_check(ctx));
            CHECK_OK(tutti_context_check(ctx));
            /* found where only the sum, or nothing, is asked for, too */
            const tutti_cross_entropy_call sum = {
                .logits = &s.logits.tensor,
                .labels = &s.labels.tensor,
                .loss_sum = &s.loss_sum.tensor,
            };
            CHECK_OK(tutti_cross_entropy_forward(s.layer, ctx, &sum));
            CHECK_FAILS(TUTTI_ERR_DATA, text, tutti_context_check(ctx));
            tear_down(ctx, &s);
        }
}

static void test_nonfinite(void)
{
    tutti_context *ctx = harness_context();
    static const int64_t cols[] = {9, 300, 5000};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(cols); i++) {
            int64_t n = cols[i];
            ce_case c = usual(float_dtypes[type], 6, n);
            setting s = set_up(ctx, &c);
            for (int64_t row = 0; row < 6; row++) s.label_values[row] = 1;
            put_labels(ctx, &s);
            s.logits.values[0 * n + n - 2] = NAN;
            s.logits.values[1 * n + 2] = INFINITY;
            s.logits.values[2 * n + 3] = -INFINITY;
            s.logits.values[3 * n + 1] = -INFINITY; /* the label's: its loss is infinite */
            for (int64_t j = 0; j < n; j++) s.logits.values[4 * n + j] = -INFINITY;
            operand_put(ctx, &s.logits);
            check_run(ctx, &c, &s);
            CHECK(s.loss.values[3] == INFINITY, "the loss of a logit of -inf is %g",
                  s.loss.values[3]);
            tear_down(ctx, &s);
        }
}

static void test_extreme_values(void)
{
    for (int type = 0; type < 4; type++) {
        ce_case c = usual(float_dtypes[type], 6, 301);
        c.deviation = 200;
        check_case(&c);
        c.deviation = 15000;
        check_case(&c);
    }
}

static void test_row_bits(void)
{
    tutti_context *ctx = harness_context();
    static const int64_t shapes[][2] = {{37, 10}, {9, 1027}, {5, 20000}};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < (harness_quick() ? 1 : HARNESS_COUNT(shapes)); i++) {
            ce_case c = usual(float_dtypes[type], shapes[i][0], shapes[i][1]);
            setting s = set_up(ctx, &c);
            CHECK_OK(run(ctx, &s));
            for (int place = 0; place < 3; place++) {
                ce_case moved = c;
                moved.place = (layout[]){{5, 0}, {0, 1}, {3, 5}}[place];
                setting t = set_up(ctx, &moved);
                CHECK_OK(run(ctx, &t));
                check_same_bits(ctx, "loss", &s.loss, &t.loss);
                check_same_bits(ctx, "loss_sum", &s.loss_sum, &t.loss_sum);
                check_same_bits(ctx, "dlogits", &s.dlogits, &t.dlogits);
                tear_down(ctx, &t);
            }
            ce_case alone = c;
            alone.rows = 1;
            setting t = set_up(ctx, &alone);
            for (int64_t row = 0; row < c.rows; row += 4) {
                memcpy(t.logits.values, s.logits.values + row * c.cols,
                       (size_t)c.cols * sizeof(double));
                operand_put(ctx, &t.logits);
                t.label_values[0] = s.label_values[row];
                put_labels(ctx, &t);
                CHECK_OK(run(ctx, &t));
                check_same_row(ctx, "dlogits", &s.dlogits, row, &t.dlogits);
                operand_get(ctx, &t.loss, "loss");
                operand_get(ctx, &s.loss, "loss");
                CHECK(s.loss.values[row] == t.loss.values[0], "loss of row %lld differs",
                      (long long)row);
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
    static const int64_t shapes[][2] = {{1, 70000}, {2, 64}, {67, 131}, {5000, 10}};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(shapes); i++) {
            ce_case c = usual(float_dtypes[type], shapes[i][0], shapes[i][1]);
            tutti_context *one = harness_new_context(0, 1);
            setting s = set_up(one, &c);
            CHECK_OK(run(one, &s));
            for (int threads = 2; threads <= 3; threads++) {
                tutti_context *several = harness_new_context(0, threads);
                setting t = set_up(several, &c);
                CHECK_OK(run(several, &t));
                check_same_bits(one, "loss", &s.loss, &t.loss);
                check_same_bits(one, "loss_sum", &s.loss_sum, &t.loss_sum);
                check_same_bits(one, "dlogits", &s.dlogits, &t.dlogits);
                tear_down(several, &t);
                tutti_context_destroy(&several);
            }
            tear_down(one, &s);
            tutti_context_destroy(&one);
        }
}

static double loss_of(void *self)
{
    setting *s = self;
    tutti_context *ctx = harness_context();
    operand_put(ctx, &s->logits);
    CHECK_OK(run(ctx, s));
    operand_get(ctx, &s->loss, "loss");
    double total = 0;
    for (int64_t i = 0; i < s->loss.count; i++) total += s->loss.values[i];
    return total * 0.75;
}

static void test_finite_differences(void)
{
    tutti_context *ctx = harness_context();
    ce_case c = usual(TUTTI_F64, 5, 9);
    c.deviation = 1;
    c.loss_weight = 0.375;
    c.loss_scale = 2;
    setting s = set_up(ctx, &c);
    CHECK_OK(run(ctx, &s));
    operand_get(ctx, &s.dlogits, "dlogits");
    double *analytic = harness_calloc((size_t)s.dlogits.count, sizeof *analytic);
    memcpy(analytic, s.dlogits.values, (size_t)s.dlogits.count * sizeof *analytic);
    check_gradient("dlogits", loss_of, &s, s.logits.values, s.logits.count, analytic);
    free(analytic);
    tear_down(ctx, &s);
}

/* There is no backward. */
static void test_no_backward(void)
{
    tutti_context *ctx = harness_context();
    ce_case c = usual(TUTTI_F32, 2, 3);
    setting s = set_up(ctx, &c);
    const tutti_call call = {.in = {&s.logits.tensor, &s.labels.tensor}};
    CHECK_FAILS(TUTTI_ERR_UNSUPPORTED, "cross_entropy", tutti_layer_backward(s.layer, ctx, &call));
    CHECK(tutti_layer_saved_bytes(s.layer, 7) == 0, "cross_entropy wants memory for saved");
    tear_down(ctx, &s);
}

int main(int argc, char **argv)
{
    static const harness_test tests[] = {
        {"shapes", test_shapes},
        {"many rows", test_many_rows},
        {"long rows", test_long_rows},
        {"factors of the step block", test_step_factors},
        {"strides and misaligned pointers", test_strides_and_alignment},
        {"several dimensions", test_dimensions},
        {"optional outputs, in place", test_outputs},
        {"sum of equal losses", test_sum_of_equal_losses},
        {"no rows", test_no_rows},
        {"ignored labels", test_ignored_labels},
        {"labels out of range", test_bad_labels},
        {"NaN and infinities", test_nonfinite},
        {"extreme values", test_extreme_values},
        {"bits of a row", test_row_bits},
        {"bits and threads", test_threads},
        {"finite differences", test_finite_differences},
        {"no backward", test_no_backward},
    };
    return harness_main(argc, argv, "cross_entropy", tests, HARNESS_COUNT(tests));
}
