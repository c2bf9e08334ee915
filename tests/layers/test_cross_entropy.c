/* Tests of CrossEntropy. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"

static double ignored(const trial *t)
{
    const char *option = strstr(t->c.options, "ignore_label=");
    return option ? atof(strchr(option, '=') + 1) : -1;
}

static void draw(trial *t)
{
    operand *labels = &t->slots[1][0];
    for (int64_t i = 3; i < labels->count; i += 5) labels->values[i] = ignored(t);
}

static const matrix_shape some[] = {
    {4, "cols=5"},     {37, "cols=64"},  {4, "cols=257"},   {9, "cols=1027"},  {67, "cols=131"},
    {11, "cols=1024"}, {3, "cols=5001"}, {9001, "cols=14"}, {2, "cols=40000"}, {0, NULL}};

static const matrix_kind entropy = {
    .trial = {.name = "cross_entropy",
              .deviation = 2,
              .step = {.step = 1, .loss_weight = 0.375, .loss_scale = 2},
              .draw = draw,
              .sharp = matrix_loss_is_sharp},
    .flags = MATRIX_OUTPUTS_ALONE,
    /* the first ignores no index that the matrix uses as a bad one */
    .variants = {"ignore_label=-100", "", "ignore_label=0", "ignore_label=3",
                 "ignore_label=2147483647", "ignore_label=-2147483647", "label_smoothing=0.1",
                 "z_loss=1e-3", "label_smoothing=0.3,z_loss=0.01,ignore_label=1"},
    .common = 1,
    .some = some,
};

static trial_desc usual(int type, int64_t rows, int64_t cols)
{
    return trial_usual(&entropy.trial, rows, "cols=%lld,dtype=%s", (long long)cols,
                       tutti_dtype_name(float_dtypes[type]));
}

/* No output changes another, in rows of any length. */
static void test_outputs(void)
{
    enum { OUTPUTS = 1 << 2 | 1 << 3 | 1 << 4 };
    static const int64_t cols[] = {3001, 40000};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < (harness_quick() ? 1 : HARNESS_COUNT(cols)); i++) {
            const trial_desc c = usual(type, 2, cols[i]);
            trial whole, t;
            if (!trial_open(&whole, harness_context(), &c)) return;
            trial_run(&whole);
            for (unsigned absent = OUTPUTS; absent > 0; absent = (absent - 1) & OUTPUTS) {
                trial_desc some = c;
                some.absent = absent;
                if (!trial_open(&t, harness_context(), &some)) return;
                trial_run(&t);
                for (int k = 2; k < 5; k++)
                    if (!(absent >> k & 1))
                        check_same_bits(t.ctx, t.type->slots[k].name, &whole.slots[k][0],
                                        &t.slots[k][0]);
                trial_close(&t);
            }
            trial_close(&whole);
        }
}

/* The sum of many equal losses, whose rounding errors are equal, is as accurate as any. */
static void test_sum_of_equal_losses(void)
{
    for (int64_t rows = 300; rows <= 500000; rows = rows * 11 + 7) {
        const trial_desc c = usual(1, rows, 2);
        trial t;
        if (!trial_open(&t, harness_context(), &c)) return;
        operand *logits = trial_find(&t, "logits"), *labels = trial_find(&t, "labels");
        for (int64_t i = 0; i < rows; i++) labels->values[i] = 0;
        for (int64_t i = 0; i < logits->count; i++) logits->values[i] = i % 2 ? 2.3 : 0;
        trial_put(&t);
        trial_run(&t);
        trial_get(&t, false);
        const double *loss = trial_find(&t, "loss")->values;
        const double got = trial_find(&t, "loss_sum")->values[0];
        long double want = 0;
        for (int64_t i = 0; i < rows; i++) want += loss[i];
        const double error = (double)(fabsl(got - want) / want) / 0x1p-53;
        CHECK(error <= 40, "the sum of %lld losses is %.17g, want %.17Lg: off by %.0f roundoffs",
              (long long)rows, got, want, error);
        trial_close(&t);
    }
}

/* All rows are ignored, whatever their values. */
static void test_all_ignored(void)
{
    for (int type = 0; type < 4; type++)
        for (int i = 0; entropy.variants[i]; i++) {
            trial_desc c = usual(type, 11, 6);
            strcat(strcat(c.options, *entropy.variants[i] ? "," : ""), entropy.variants[i]);
            trial t;
            if (!trial_open(&t, harness_context(), &c)) return;
            for (int64_t row = 0; row < c.rows; row++) t.slots[1][0].values[row] = ignored(&t);
            t.slots[0][0].values[8] = NAN;
            trial_put(&t);
            if (trial_run(&t)) trial_check(&t);
            CHECK(trial_find(&t, "loss_sum")->values[0] == 0, "loss_sum of ignored rows is %g",
                  trial_find(&t, "loss_sum")->values[0]);
            trial_close(&t);
        }
}

/* Includes special values at the label, and rows of -inf. */
static void test_special_rows(void)
{
    static const int64_t cols[] = {9, 300, 1027, 5000, 5001};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(cols); i++) {
            const int64_t n = cols[i];
            const trial_desc c = usual(type, 7, n);
            trial t;
            if (!trial_open(&t, harness_context(), &c)) return;
            double *x = trial_find(&t, "logits")->values;
            for (int64_t row = 0; row < 7; row++) trial_find(&t, "labels")->values[row] = 1;
            x[0 * n + n - 2] = NAN;
            x[1 * n + 2] = INFINITY;
            x[2 * n + 3] = -INFINITY;
            x[3 * n + 1] = -INFINITY;
            for (int64_t j = 0; j < n; j++) x[4 * n + j] = -INFINITY;
            x[5 * n + n - 1] = NAN;
            x[6 * n + n - 1] = -INFINITY;
            trial_put(&t);
            if (trial_run(&t)) trial_check(&t);
            const double loss = trial_find(&t, "loss")->values[3];
            CHECK(loss == INFINITY, "the loss of a logit of -inf is %g", loss);
            trial_close(&t);
        }
}

/* Values whose exponentials alone would overflow or underflow. */
static void test_extreme_values(void)
{
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < 2; i++) {
            trial_kind wide = entropy.trial;
            wide.deviation = i ? 15000 : 200;
            trial_desc c = usual(type, 6, 301);
            c.kind = &wide;
            trial_case(&c);
        }
}

/* As many classes as the largest vocabularies have, and as the layer takes, in every kind of loss;
 * the last one is a label. */
static void test_many_classes(void)
{
    static const char *const kinds[] = {"", ",label_smoothing=0.1,z_loss=1e-4"};
    static const int64_t cols[] = {262144, 262139, 1 << 20};
    const bool host = harness_backend() == TUTTI_BACKEND_HOST && !harness_quick();
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < (harness_quick() ? 2 : 2 * HARNESS_COUNT(cols)); i++) {
            /* the host runs the same loops whatever the number of classes */
            if (host && (type + i % 2 + i / 2) % 3) continue;
            trial_desc c = usual(type, 3, cols[i / 2]);
            strcat(c.options, kinds[i % 2]);
            trial t;
            if (!trial_open(&t, harness_context(), &c)) return;
            trial_find(&t, "labels")->values[1] = (double)cols[i / 2] - 1;
            trial_put(&t);
            if (trial_run(&t)) trial_check(&t);
            trial_close(&t);
        }
}

/* Rows of doubles: as many classes as a GPU gives to lanes, to blocks and to clusters, and more. */
static void test_rows_of_doubles(void)
{
    static const char *const kinds[] = {"", ",label_smoothing=0.1,z_loss=1e-4"};
    static const int64_t cols[] = {32, 33, 256, 257, 8192, 8195, 16383, 16385, 65536, 65537};
    for (int i = 0; i < 2 * HARNESS_COUNT(cols); i++) {
        trial_desc c = usual(1 /* f64 */, 5, cols[i / 2]);
        strcat(c.options, kinds[i % 2]);
        if (!harness_quick() || i / 2 % 4 == 0) trial_case(&c);
    }
}

/* A class that a logit of -inf excludes makes the mean over classes infinite, not the gradient. */
static void test_smoothing_of_excluded_classes(void)
{
    static const int64_t cols[] = {9, 300, 1027, 5000, 5001, 300000};
    const bool host = harness_backend() == TUTTI_BACKEND_HOST;
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < (harness_quick() ? 3 : HARNESS_COUNT(cols)); i++) {
            if (host && cols[i] > 5000 && type % 3) continue; /* as above */
            trial_desc c = usual(type, 4, cols[i]);
            strcat(c.options, ",label_smoothing=0.2,z_loss=0.01");
            trial t;
            if (!trial_open(&t, harness_context(), &c)) return;
            for (int row = 0; row < 4; row++) trial_find(&t, "labels")->values[row] = row;
            trial_find(&t, "logits")->values[3] = -INFINITY;
            trial_find(&t, "logits")->values[cols[i] + 1] = -INFINITY; /* the label's */
            trial_find(&t, "logits")->values[4 * cols[i] - 1] = -INFINITY;
            trial_put(&t);
            if (trial_run(&t)) trial_check(&t);
            const double *loss = trial_find(&t, "loss")->values;
            for (int row = 0; row < 4; row++)
                CHECK(row == 2 ? isfinite(loss[row]) : loss[row] == INFINITY,
                      "the loss of row %d is %g", row, loss[row]);
            trial_close(&t);
        }
}

int main(int argc, char **argv)
{
    static const harness_test own[] = {
        {"optional outputs", test_outputs},
        {"sum of equal losses", test_sum_of_equal_losses},
        {"ignored rows", test_all_ignored},
        {"NaN and infinities in rows", test_special_rows},
        {"extreme values", test_extreme_values},
        {"many classes", test_many_classes},
        {"rows of doubles", test_rows_of_doubles},
        {"smoothing of excluded classes", test_smoothing_of_excluded_classes},
    };
    return matrix_main(argc, argv, &entropy, own, HARNESS_COUNT(own));
}
