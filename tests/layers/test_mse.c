/* Tests of the mean squared error. */
#include <math.h>

#include "matrix.h"

static const matrix_kind mse = {
    .trial = {.name = "mse",
              .step = {.step = 1, .loss_weight = 0.375, .loss_scale = 2},
              .sharp = matrix_loss_is_sharp},
    .flags = MATRIX_OUTPUTS_ALONE,
    .variants = {""},
};

static trial_desc usual(int type, int64_t rows, int64_t cols)
{
    return trial_usual(&mse.trial, rows, "cols=%lld,dtype=%s", (long long)cols,
                       tutti_dtype_name(float_dtypes[type]));
}

/* The loss is a mean over the columns, the gradient its derivative: of powers of two, exactly. */
static void test_known_values(void)
{
    for (int type = 0; type < 4; type++) {
        trial_desc c = usual(type, 3, 4);
        c.step.loss_weight = c.step.loss_scale = 1;
        trial t;
        if (!trial_open(&t, harness_context(), &c)) return;
        double *x = trial_find(&t, "prediction")->values, *aim = trial_find(&t, "target")->values;
        for (int i = 0; i < 12; i++) {
            aim[i] = i;
            x[i] = i + (i % 4) * (i / 4);
        }
        trial_put(&t);
        trial_run(&t);
        trial_get(&t, false);
        const double *loss = trial_find(&t, "loss")->values;
        const double *dx = trial_find(&t, "dprediction")->values;
        for (int i = 0; i < 12; i++)
            CHECK(dx[i] == (i % 4) * (i / 4) / 2.0, "gradient %d is %g", i, dx[i]);
        CHECK(loss[0] == 0 && loss[1] == 3.5 && loss[2] == 14, "losses %g, %g, %g", loss[0],
              loss[1], loss[2]);
        CHECK(trial_find(&t, "loss_sum")->values[0] == 17.5, "their sum is %g",
              trial_find(&t, "loss_sum")->values[0]);
        trial_close(&t);
    }
}

/* Squares that overflow make the loss infinite, and leave the gradient as it is. */
static void test_overflow(void)
{
    static const int64_t cols[] = {9, 700, 5000, 40000};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(cols); i++) {
            const trial_desc c = usual(type, 3, cols[i]);
            trial t;
            if (!trial_open(&t, harness_context(), &c)) return;
            operand *x = trial_find(&t, "prediction");
            const double large = x->buffer.dtype == TUTTI_F64 ? 1e200 : 1e25;
            for (int64_t j = 0; x->buffer.dtype != TUTTI_F16 && j < 3; j++)
                x->values[cols[i] + j] = harness_round(x->buffer.dtype, large);
            trial_put(&t);
            if (trial_run(&t)) trial_check(&t);
            CHECK(x->buffer.dtype == TUTTI_F16 || isinf(trial_find(&t, "loss")->values[1]),
                  "the loss is %g", trial_find(&t, "loss")->values[1]);
            trial_close(&t);
        }
}

/* Equal tensors have no loss, and equal differences no rounding errors that add up. */
static void test_equal_differences(void)
{
    for (int type = 0; type < 2; type++)
        for (int64_t cols = 7; cols < 1 << 20; cols = 13 * cols + 1) {
            const trial_desc c = usual(type, 2, cols);
            trial t;
            if (!trial_open(&t, harness_context(), &c)) return;
            double *x = trial_find(&t, "prediction")->values;
            double *aim = trial_find(&t, "target")->values;
            for (int64_t j = 0; j < 2 * cols; j++) x[j] = aim[j] = 3;
            for (int64_t j = cols; j < 2 * cols; j++) x[j] = harness_round(TUTTI_F32, 3.3);
            trial_put(&t);
            if (trial_run(&t)) trial_check(&t);
            CHECK(trial_find(&t, "loss")->values[0] == 0, "equal tensors have a loss of %g",
                  trial_find(&t, "loss")->values[0]);
            trial_close(&t);
        }
}

int main(int argc, char **argv)
{
    static const harness_test own[] = {
        {"known values", test_known_values},
        {"overflow", test_overflow},
        {"equal differences", test_equal_differences},
    };
    return matrix_main(argc, argv, &mse, own, HARNESS_COUNT(own));
}
