/* Tests of the binary cross-entropy of logits. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "matrix.h"

static const matrix_kind bce = {
    .trial = {.name = "bce_with_logits",
              .deviation = 2,
              .step = {.step = 1, .loss_weight = 0.375, .loss_scale = 2},
              .sharp = matrix_loss_is_sharp},
    .flags = MATRIX_OUTPUTS_ALONE,
    .variants = {"", "pos_weight=0.3", "pos_weight=12", "pos_weight=0"},
    .common = 2,
};

static trial_desc usual(int type, int64_t rows, int64_t cols, double pos_weight)
{
    return trial_usual(&bce.trial, rows, "cols=%lld,dtype=%s,pos_weight=%.17g", (long long)cols,
                       tutti_dtype_name(float_dtypes[type]), pos_weight);
}

/* Logits whose exponentials would overflow, or be lost beside 1, of both targets. */
static void test_sure_logits(void)
{
    static const double logits[] = {0,  1e-6, -1e-6, 17,   -17, 60,  -60,
                                    87, -87,  100,   -100, 800, -800};
    enum { COLS = HARNESS_COUNT(logits) };
    for (int type = 0; type < 4; type++)
        for (int64_t cols = 1; cols <= COLS; cols += COLS - 1) {
            const int64_t rows = 3 * COLS / cols;
            const trial_desc c = usual(type, rows, cols, 1.5);
            trial t;
            if (!trial_open(&t, harness_context(), &c)) return;
            operand *x = trial_find(&t, "logits"), *target = trial_find(&t, "target");
            for (int64_t i = 0; i < x->count; i++) {
                x->values[i] = harness_round(x->buffer.dtype, logits[i % COLS]);
                target->values[i] = (double)(i / COLS) / 2;
            }
            trial_put(&t);
            if (trial_run(&t)) trial_check(&t);
            trial_close(&t);
        }
}

/* Relative errors stay small where the loss and the gradient vanish: targets 0 and 1. */
static void test_small_losses(void)
{
    const trial_desc c = usual(0, 60, 1, 1);
    trial t;
    if (!trial_open(&t, harness_context(), &c)) return;
    operand *x = trial_find(&t, "logits"), *target = trial_find(&t, "target");
    for (int64_t i = 0; i < c.rows; i++) {
        target->values[i] = (double)(i & 1);
        x->values[i] = (double)(i & 1 ? i + 1 : -i);
    }
    trial_put(&t);
    if (trial_run(&t)) trial_check(&t);
    const double *loss = trial_find(&t, "loss")->values, *dx = trial_find(&t, "dlogits")->values;
    for (int64_t i = 0; i < c.rows; i++) {
        const double e = exp(-fabs(x->values[i])), slope = e / (1 + e) * 0.375 * 2;
        CHECK(fabs(loss[i] / log1p(e) - 1) < 0x1p-18, "the loss of %g is %g, want %g", x->values[i],
              loss[i], log1p(e));
        CHECK(fabs(fabs(dx[i]) / slope - 1) < 0x1p-18, "the gradient of %g is %g, want %g",
              x->values[i], dx[i], slope);
    }
    trial_close(&t);
}

/* A target out of range is found, by its row and column, and makes its row NaN and no other. */
static void check_bad_target(int type, int64_t cols, double bad, bool in_place)
{
    const trial_desc c = usual(type, 6, cols, 1);
    trial t;
    char words[2][64];
    if (!trial_open(&t, harness_context(), &c)) return;
    operand *target = trial_find(&t, "target"), *dx = trial_find(&t, "dlogits");
    target->values[2 * cols + cols / 2] = harness_round(target->buffer.dtype, bad);
    trial_put(&t);
    if (in_place) {
        operand *x = trial_find(&t, "logits");
        t.call.out[2] = &x->tensor;
        trial_forward(&t);
        operand_get(t.ctx, x, "logits");
        dx = x;
    } else if (trial_run(&t))
        trial_check(&t);
    for (int64_t i = 0; i < dx->count; i++)
        if (!CHECK(isnan(dx->values[i]) == (i / cols == 2), "gradient %lld is %g", (long long)i,
                   dx->values[i]))
            break;
    snprintf(words[0], sizeof words[0], "row 2,");
    snprintf(words[1], sizeof words[1], "column %lld ", (long long)(cols / 2));
    CHECK_FAILS(TUTTI_ERR_DATA, words[0], tutti_context_check(t.ctx));
    CHECK(strstr(tutti_last_error(), words[1]), "'%s' does not name %s", tutti_last_error(),
          words[1]);
    trial_close(&t);
}

static void test_bad_targets(void)
{
    static const int64_t cols[] = {1, 9, 300, 5000, 40000, 300001};
    static const double bad[] = {1.0078125, -0.0078125, NAN, INFINITY, -INFINITY, 3};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < (harness_quick() ? 3 : HARNESS_COUNT(cols)); i++)
            for (int b = 0; b < HARNESS_COUNT(bad); b++)
                if (i < 3 || b == (i + type) % HARNESS_COUNT(bad))
                    check_bad_target(type, cols[i], bad[b], (i + b) & 1);
}

int main(int argc, char **argv)
{
    static const harness_test own[] = {
        {"sure logits", test_sure_logits},
        {"small losses", test_small_losses},
        {"targets out of range", test_bad_targets},
    };
    return matrix_main(argc, argv, &bce, own, HARNESS_COUNT(own));
}
