/* Tests of BiasDropoutActivation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"
#include "reference/philox.h"

/* No pre-activation within reach of the kinks at 0. */
static void draw(trial *t)
{
    operand *x = trial_find(t, "x");
    const double *bias = t->param_count > 0 ? trial_find(t, "bias")->values : NULL;
    for (int64_t i = 0; i < x->count && t->c.smooth; i++) {
        const double b = bias ? bias[i % t->shapes[0].cols] : 0;
        if (fabs(x->values[i] + b) < 0.125) x->values[i] = 0.25 - b;
    }
}

static bool sharp(const trial *t, const trial_tensor *result)
{
    return !result->param && result->at->buffer.dtype != TUTTI_F64 &&
           !strstr(t->c.options, "p=1") && !strstr(t->c.options, "activation");
}

static const matrix_kind dropout = {
    .trial = {.name = "dropout",
              .first_row = 5,
              .step = {.step = 3, .loss_weight = 1, .seed = UINT64_C(0x123456789abcdef)},
              .draw = draw,
              .sharp = sharp},
    .variants = {"p=0.3", "p=0.1,activation=gelu,layer_number=7", "", "p=0.5,activation=relu",
                 "p=0.9,activation=leaky_relu,slope=0.125", "p=0.3,activation=gelu_erf",
                 "p=0.01,activation=squared_relu,layer_number=32767",
                 "p=0.6,activation=silu,no_bias=1", "p=1,activation=gelu", "p=0.5,no_bias=1",
                 "p=0.2,activation=smelu,smelu_beta=0.7",
                 "p=0.4,activation=star_relu,star_scale=1.3,star_bias=0.2"},
    .common = 2,
};

/* The paper's own, of the reference that the masks are compared with. */
static void test_known_answers(void)
{
    uint32_t zeros[4] = {0};
    uint32_t pi[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
    reference_philox(zeros, 0, 0);
    reference_philox(pi, 0xa4093822, 0x299f31d0);
    static const uint32_t wanted[2][4] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                          {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
    CHECK(!memcmp(zeros, wanted[0], sizeof zeros), "of 0: %08x …", zeros[0]);
    CHECK(!memcmp(pi, wanted[1], sizeof pi), "of pi: %08x …", pi[0]);
}

enum { ROWS = 256, COLS = 520 };

/* Dropout of ones, upstream too, and nothing else. */
static trial_desc ones(double p, int64_t rows)
{
    enum { RESIDUAL = 1 }; /* its slot */
    trial_desc c =
        trial_usual(&dropout.trial, rows, "cols=%d,no_bias=1,layer_number=3,p=%.17g", COLS, p);
    c.absent = 1u << RESIDUAL;
    return c;
}

static bool open_ones(trial *t, const trial_desc *c)
{
    if (!trial_open(t, harness_context(), c)) return false;
    operand *x = trial_find(t, "x"), *dy = trial_find(t, "dy");
    for (int64_t j = 0; j < x->count; j++) x->values[j] = dy->values[j] = 1;
    trial_put(t);
    return trial_run(t);
}

/* y is then the mask, and so is dx. */
static void fetch_mask(const trial_desc *c, bool *mask)
{
    trial t;
    if (open_ones(&t, c)) {
        trial_get(&t, false);
        for (int64_t i = 0; i < c->rows * COLS; i++) mask[i] = trial_find(&t, "y")->values[i] != 0;
        check_same_bits(t.ctx, "y and dx", trial_find(&t, "y"), trial_find(&t, "dx"));
    }
    trial_close(&t);
}

/* As many are kept as if the elements, or pairs of them, did not know of each other: within 5
 * deviations. */
static void check_rate(const char *what, const bool *a, const bool *b, int64_t count, double p)
{
    double kept = 0;
    for (int64_t i = 0; i < count; i++) kept += a[i] && b[i];
    const double want = (double)count * p;
    CHECK(fabs(kept - want) <= 5 * sqrt(want * (1 - p)), "%s: %g are kept, want %g", what, kept,
          want);
}

/* Pearson's statistic of counts against what is expected of them: within 5 deviations of its mean
 * for that many degrees of freedom. */
static void check_fit(const char *what, const double *counts, const double *expected, int cells,
                      int freedom)
{
    double fit = 0;
    for (int i = 0; i < cells; i++)
        fit += (counts[i] - expected[i]) * (counts[i] - expected[i]) / expected[i];
    CHECK(fabs(fit - freedom) <= 5 * sqrt(2.0 * freedom), "%s: %g, want about %d", what, fit,
          freedom);
}

/* The 16 patterns of a tile of two rows and two columns. */
static void check_tiles(const bool *mask, double keep)
{
    double counts[16] = {0}, expected[16];
    for (int64_t i = 0; i < ROWS; i += 2)
        for (int64_t j = 0; j < COLS; j += 2) {
            const bool *at = mask + i * COLS + j;
            counts[at[0] + 2 * at[1] + 4 * at[COLS] + 8 * at[COLS + 1]]++;
        }
    for (int i = 0; i < 16; i++) {
        const int kept = __builtin_popcount((unsigned)i);
        expected[i] = ROWS * COLS / 4.0 * pow(keep, kept) * pow(1 - keep, 4 - kept);
    }
    check_fit("tiles", counts, expected, 16, 15);
}

/* What is kept of each of `lines` rows (step COLS, apart 1) or columns, and what is not. */
static void check_lines(const char *what, const bool *mask, int lines, int step, int apart,
                        double keep)
{
    double counts[2 * COLS] = {0}, expected[2 * COLS];
    const int of = ROWS * COLS / lines;
    for (int i = 0; i < lines; i++) {
        for (int k = 0; k < of; k++) counts[2 * i + mask[i * step + k * apart]]++;
        expected[2 * i] = of * (1 - keep);
        expected[2 * i + 1] = of * keep;
    }
    check_fit(what, counts, expected, 2 * lines, lines);
}

static void test_statistics(void)
{
    static const double ps[] = {0.1, 0.5, 0.9};
    static const int64_t shifts[] = {1, 2, 8, COLS, 8 * COLS}, n = ROWS * COLS;
    static const char *const what[] = {"layers", "steps", "seeds", "seeds", "rows"};
    bool *mask = harness_calloc(n, 1), *other = harness_calloc(n, 1);
    for (int i = 0; i < 3; i++) {
        const double keep = 1 - ps[i];
        const trial_desc c = ones(ps[i], ROWS);
        fetch_mask(&c, mask);
        check_rate("elements", mask, mask, n, keep);
        for (int k = 0; k < HARNESS_COUNT(shifts); k++)
            check_rate("neighbours", mask, mask + shifts[k], n - shifts[k], keep * keep);
        check_tiles(mask, keep);
        check_lines("rows", mask, ROWS, COLS, 1, keep);
        check_lines("columns", mask, COLS, 1, COLS, keep);
        for (int k = 0; k < HARNESS_COUNT(what); k++) {
            trial_desc d = c;
            if (k == 0) strstr(d.options, "number=3")[7] = '4';
            d.step.step += k == 1;
            d.step.seed += k == 2 ? 1 : k == 3 ? UINT64_C(1) << 32 : 0;
            d.first_row += k == 4 ? INT64_C(1) << 32 : 0;
            fetch_mask(&d, other);
            check_rate(what[k], mask, other, n, keep * keep);
        }
    }
    free(mask);
    free(other);
}

/* A batch in pieces, across a row number of 32 bits, has the mask of the whole. */
static void test_pieces(void)
{
    static const int64_t begin[] = {0, 1, 7, 20};
    bool whole[20 * COLS] = {0}, pieces[20 * COLS] = {0};
    trial_desc c = ones(0.4, 20);
    c.first_row = (INT64_C(1) << 32) - 5;
    fetch_mask(&c, whole);
    for (int i = 0; i < 3; i++) {
        trial_desc piece = ones(0.4, begin[i + 1] - begin[i]);
        piece.first_row = c.first_row + begin[i];
        fetch_mask(&piece, pieces + begin[i] * COLS);
    }
    CHECK(!memcmp(whole, pieces, sizeof whole), "a batch in pieces has another mask");
}

/* What is dropped leaves the residual, what is kept at p = 0 their sum; a NaN that is dropped does
 * not show. */
static void test_residual(void)
{
    static const char *const ps[] = {"0", "1"};
    for (int i = 0; i < 2; i++) {
        trial t;
        const trial_desc c =
            trial_usual(&dropout.trial, 9, "cols=37,dtype=bf16,no_bias=1,p=%s", ps[i]);
        if (trial_open(&t, harness_context(), &c)) {
            operand *x = trial_find(&t, "x"), *residual = trial_find(&t, "residual");
            for (int64_t j = 0; j < x->count; j++) {
                x->values[j] = i ? NAN : (double)(j % 64);
                residual->values[j] = (double)(j % 128) - 64;
            }
            trial_put(&t);
            if (trial_run(&t)) {
                trial_get(&t, false);
                const double *y = trial_find(&t, "y")->values;
                for (int64_t j = 0; j < x->count; j++) {
                    const double want = residual->values[j] + (i ? 0 : x->values[j]);
                    CHECK(y[j] == want, "p %s: y is %g, want %g", ps[i], y[j], want);
                }
            }
        }
        trial_close(&t);
    }
}

/* p = 0 wants neither step nor first row, p > 0 both; p is rounded to 16 bits, and p = 1 drops NaN
 * too. */
static void test_limits_of_p(void)
{
    static const double ps[] = {0, 1, 0x1p-18, 1 - 0x1p-18, 1.25 * 0x1p-16, 1 - 1.25 * 0x1p-16};
    for (int i = 0; i < HARNESS_COUNT(ps); i++) {
        trial_desc c = ones(ps[i], 150);
        trial t;
        if (!open_ones(&t, &c)) return;
        if (ps[i] == 1) trial_find(&t, "x")->values[0] = trial_find(&t, "dy")->values[0] = NAN;
        trial_put(&t);
        const tutti_call whole = t.call;
        t.call.step = NULL;
        if (ps[i] > 0)
            CHECK_FAILS(TUTTI_ERR_ARG, "step", tutti_layer_forward(t.layer, t.ctx, &t.call));
        t.call.first_row = NULL;
        if (ps[i] > 0) {
            t.call.step = whole.step;
            CHECK_FAILS(TUTTI_ERR_ARG, "first_row", tutti_layer_forward(t.layer, t.ctx, &t.call));
            t.call = whole;
        }
        if (trial_run(&t)) trial_check(&t);
        trial_close(&t);
    }
}

int main(int argc, char **argv)
{
    static const harness_test own[] = {
        {"known answers", test_known_answers}, {"statistics of masks", test_statistics},
        {"pieces of a batch", test_pieces},    {"residual", test_residual},
        {"limits of p", test_limits_of_p},
    };
    return matrix_main(argc, argv, &dropout, own, HARNESS_COUNT(own));
}
