/* Tests of BiasDropoutActivation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"
#include "reference/philox.h"

/* relu's results are exact but for the bias and the division. */
static bool sharp(const trial *t, const trial_tensor *result)
{
    return !result->gradient && t->c.rows > 0 && strstr(t->c.options, "activation=relu");
}

/* For finite differences the kinks at 0 are far. */
static void draw(trial *t)
{
    if (!t->c.smooth) return;
    operand *x = &t->slots[0][0], *bias = &t->params[0][0];
    for (int64_t i = 0; i < x->count; i++) x->values[i] += x->values[i] < 0 ? -3 : 3;
    for (int64_t i = 0; i < bias->count; i++) bias->values[i] /= 4;
}

static const matrix_shape shapes[] = {{1, "cols=1"},    {1, "cols=257"}, {3, "cols=7"},
                                      {2, "cols=8"},    {33, "cols=9"},  {5, "cols=130"},
                                      {2, "cols=2049"}, {700, "cols=3"}, {0, NULL}};
static const matrix_shape some[] = {{4, "cols=5"},   {9, "cols=75"},    {9, "cols=264"},
                                    {37, "cols=64"}, {301, "cols=131"}, {0, NULL}};

#define USUAL "p=0.3,slope=0.25,layer_number=77,activation="
static const matrix_kind dropout = {
    .trial = {.name = "dropout",
              .deviation = 2,
              .first_row = (INT64_C(5) << 32) + 7,
              .step = {.step = (INT64_C(1) << 32) + 3,
                       .seed = UINT64_C(0x0123456789abcdef),
                       .loss_weight = 1},
              .draw = draw,
              .sharp = sharp},
    .variants = {USUAL "none", USUAL "relu", USUAL "leaky_relu", USUAL "gelu", USUAL "gelu_erf",
                 USUAL "squared_relu", USUAL "silu", USUAL "none,no_bias=1", USUAL "relu,no_bias=1",
                 USUAL "gelu,no_bias=1", USUAL "silu,no_bias=1", "activation=gelu"},
    .shapes = shapes,
    .some = some,
};

static trial_desc usual(int type, int64_t rows, int64_t cols, const char *activation, double p)
{
    return trial_usual(&dropout.trial, rows,
                       "cols=%lld,dtype=%s,activation=%s,slope=0.25,layer_number=77,p=%.17g",
                       (long long)cols, tutti_dtype_name(float_dtypes[type]), activation, p);
}

static void test_known_answers(void)
{
    uint32_t zero[4] = {0}, pi[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
    static const uint32_t of_zero[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    static const uint32_t of_pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    reference_philox(zero, 0, 0);
    reference_philox(pi, 0xa4093822, 0x299f31d0);
    CHECK(memcmp(zero, of_zero, sizeof zero) == 0, "Philox of 0 is %08x …", zero[0]);
    CHECK(memcmp(pi, of_pi, sizeof pi) == 0, "Philox of pi is %08x …", pi[0]);
}

/* The greatest layer number, row and column. */
static void test_limits(void)
{
    trial_desc c = trial_usual(&dropout.trial, 1,
                               "cols=1048576,dtype=bf16,activation=relu,p=0.3,layer_number=32767");
    c.first_row = INT64_C(1) << 59;
    if (!harness_quick()) trial_case(&c);
}

/* Also those that 16 bits make 0 or 1, 0 without a step block and a first row, and the least that drops an element. */
static void test_probabilities(void)
{
    const trial_kind *k = &dropout.trial;
    const double edge =
        reference_mask_bits(k->step.seed, k->step.step, 77, k->first_row + 5, 21) / 65536.0;
    const double p[] = {0,   0x1p-18,     0x1p-16,     0.1, edge, edge + 0x1p-16,
                        0.5, 1 - 0x1p-16, 1 - 0x1p-18, 1};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(p); i++) {
            const trial_desc c = usual(type, 8, 40, "leaky_relu", p[i]);
            trial t;
            if (!trial_open(&t, harness_context(), &c)) return;
            if (p[i] == 0) t.call.first_row = NULL;
            if (p[i] == 0) t.call.step = NULL;
            if (trial_run(&t)) trial_check(&t);
            trial_close(&t);
        }
}

/* Many in one call: what is dropped is 0, whatever it was, and no NaN becomes a number. */
static void test_special_values(void)
{
    static const double values[] = {NAN, INFINITY, -INFINITY, 0};
    static const char *const activations[] = {"none",     "relu",         "leaky_relu", "gelu",
                                              "gelu_erf", "squared_relu", "silu"};
    for (int type = 0; type < 4; type++)
        for (int act = 0; act < HARNESS_COUNT(activations); act++)
            for (int i = 0; i < 6; i++) {
                const double p = i < 4 ? 0.3 : i - 4;
                const trial_desc c = usual(type, 4, 20, activations[act], p);
                trial t;
                if (!trial_open(&t, harness_context(), &c)) return;
                operand *x = trial_find(&t, "x"), *dy = trial_find(&t, "dy");
                for (int64_t j = 0; j < x->count; j++)
                    x->values[j] = i < 4 ? values[(j / 3 + i) % 4] : values[i - 4];
                for (int64_t j = 0; j < dy->count; j += 7) dy->values[j] = NAN;
                trial_put(&t);
                if (trial_run(&t)) trial_check(&t);
                trial_close(&t);
            }
}

/* Masks of n elements as bytes, 1 for one that was dropped. */
enum { MASK_ROWS = 256, MASK_COLS = 1000, MASK = MASK_ROWS * MASK_COLS };

static void fetch_mask(const trial_desc *c, unsigned char *mask)
{
    trial t;
    if (!trial_open(&t, harness_context(), c)) return;
    operand *x = trial_find(&t, "x"), *y = trial_find(&t, "y");
    for (int64_t i = 0; i < MASK; i++) x->values[i] = 1;
    trial_put(&t);
    trial_forward(&t);
    trial_get(&t, false);
    for (int64_t i = 0; i < MASK; i++) mask[i] = y->values[i] == 0;
    trial_close(&t);
}

/* `count` events of probability p each: within 5 standard deviations. */
static void check_count(const char *what, int64_t seen, int64_t count, double p)
{
    CHECK(fabs((double)seen - (double)count * p) < 5 * sqrt((double)count * p * (1 - p)),
          "%s: %lld of %lld, want about %g", what, (long long)seen, (long long)count,
          (double)count * p);
}

/* Elements that were dropped in both: `shift` elements apart in one mask, or at one place of two. */
static void check_independent(const char *what, const unsigned char *a, const unsigned char *b,
                              int64_t shift, double p)
{
    int64_t both = 0;
    for (int64_t i = 0; i < MASK - shift; i++) both += a[i] & b[i + shift];
    check_count(what, both, MASK - shift, p * p);
}

static void test_mask_statistics(void)
{
    const double p = 0.3;
    const trial_desc c =
        trial_usual(&dropout.trial, MASK_ROWS, "cols=%d,p=%g,no_bias=1", MASK_COLS, p);
    trial_desc others[] = {c, c, c, c, c, c};
    strcat(others[0].options, ",layer_number=1");
    others[1].step.step++;
    others[2].step.seed++;
    others[3].step.seed ^= UINT64_C(1) << 63;
    others[4].first_row += MASK_ROWS;
    others[5].first_row += INT64_C(1) << 32;
    static const char *const names[] = {
        "number", "step", "seed", "high word of the seed", "first_row", "high word of first_row"};
    static const int64_t shifts[] = {1, 2, 3, 4, 7, 8, MASK_COLS, 8 * MASK_COLS};
    unsigned char *mask = harness_calloc(2, MASK), *other = mask + MASK;
    fetch_mask(&c, mask);
    int64_t dropped = 0;
    for (int64_t i = 0; i < MASK; i++) dropped += mask[i];
    check_count("dropped", dropped, MASK, p);
    for (int i = 0; i < HARNESS_COUNT(shifts); i++)
        check_independent("neighbours", mask, mask, shifts[i], p);
    for (int i = 0; i < HARNESS_COUNT(others); i++) {
        fetch_mask(&others[i], other);
        check_independent(names[i], mask, other, 0, p);
    }
    free(mask);
}

static tutti_tensor rows_of(const operand *o, int64_t begin, int64_t count)
{
    tutti_tensor part = o->tensor;
    part.data =
        (char *)part.data + (size_t)(begin * o->buffer.stride) * tutti_dtype_size(o->buffer.dtype);
    part.dims[0] = count;
    return part;
}

static void run_pieces(trial *t, bool backward)
{
    static const int64_t cuts[] = {0, 10, 11, 37};
    for (int i = 0; i < 3; i++) {
        const int64_t begin = cuts[i], count = cuts[i + 1] - begin;
        const int64_t first_row = t->c.first_row + begin;
        tutti_tensor x = rows_of(&t->slots[0][0], begin, count);
        tutti_tensor dx = rows_of(&t->slots[0][1], begin, count);
        tutti_tensor y = rows_of(&t->slots[1][0], begin, count);
        tutti_tensor dy = rows_of(&t->slots[1][1], begin, count);
        const tutti_call call = {{&x},           {&y}, {&dy}, {&dx}, .first_row = &first_row,
                                 .step = t->step};
        CHECK_OK((backward ? tutti_layer_backward : tutti_layer_forward)(t->layer, t->ctx, &call));
    }
}

/* A batch in pieces, whose backward comes after another step's forward: the bits of the whole. */
static void test_pieces_and_replay(void)
{
    for (int type = 0; type < 4; type++) {
        const trial_desc c = usual(type, 37, 75, "gelu", 0.3);
        tutti_step_values later = c.step;
        later.step++;
        trial whole, t;
        if (!trial_open(&whole, harness_context(), &c) || !trial_open(&t, harness_context(), &c))
            return;
        trial_run(&whole);
        run_pieces(&t, false);
        check_same_bits(t.ctx, "y", trial_find(&whole, "y"), trial_find(&t, "y"));
        CHECK_OK(tutti_step_block_set(t.step, t.ctx, &later));
        trial_forward(&t);
        CHECK_OK(tutti_step_block_set(t.step, t.ctx, &c.step));
        run_pieces(&t, true);
        check_same_bits(t.ctx, "dx", trial_find(&whole, "dx"), trial_find(&t, "dx"));
        trial_close(&whole);
        trial_close(&t);
    }
}

/* What the tables do not say. */
static void test_bad_input(void)
{
    tutti_context *ctx = harness_context();
    tutti_layer *layer = NULL;
    static const char *const bad[][2] = {{"p", "cols=8,p=-0.1"},
                                         {"p", "cols=8,p=1.01"},
                                         {"p", "cols=8,p=nan"},
                                         {"slope", "cols=8,activation=leaky_relu,slope=0"},
                                         {"layer_number", "cols=8,layer_number=32768"},
                                         {"layer_number", "cols=8,layer_number=-1"}};
    for (int i = 0; i < HARNESS_COUNT(bad); i++)
        CHECK_FAILS(TUTTI_ERR_ARG, bad[i][0],
                    tutti_layer_create_by_name(ctx, "dropout", bad[i][1], &layer));
    const trial_desc c = usual(0, 3, 8, "relu", 0.3);
    trial t;
    if (!trial_open(&t, ctx, &c)) return;
    tutti_call no_step = t.call, no_row = t.call, in_place = t.call, no_x = t.call;
    no_step.step = NULL;
    no_row.first_row = NULL;
    in_place.out[0] = &t.slots[0][0].tensor;
    no_x.in[0] = NULL;
    CHECK_OK(tutti_layer_plan(t.layer, ctx, &no_step));
    CHECK_FAILS(TUTTI_ERR_ARG, "step", tutti_layer_forward(t.layer, ctx, &no_step));
    CHECK_FAILS(TUTTI_ERR_ARG, "step", tutti_layer_backward(t.layer, ctx, &no_step));
    CHECK_FAILS(TUTTI_ERR_ARG, "first_row", tutti_layer_forward(t.layer, ctx, &no_row));
    CHECK_FAILS(TUTTI_ERR_ARG, "first_row", tutti_layer_backward(t.layer, ctx, &no_row));
    CHECK_FAILS(TUTTI_ERR_ARG, "share memory", tutti_layer_forward(t.layer, ctx, &in_place));
    CHECK_FAILS(TUTTI_ERR_ARG, "x is NULL", tutti_layer_backward(t.layer, ctx, &no_x));
    trial_close(&t);
}

int main(int argc, char **argv)
{
    static const harness_test own[] = {
        {"known answers of Philox", test_known_answers},
        {"limits", test_limits},
        {"probabilities", test_probabilities},
        {"special values", test_special_values},
        {"mask statistics", test_mask_statistics},
        {"pieces and replay", test_pieces_and_replay},
        {"bad input", test_bad_input},
    };
    return matrix_main(argc, argv, &dropout, own, HARNESS_COUNT(own));
}
