/* Tests of rotary positions. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "matrix.h"

static bool sharp(const trial *t, const trial_tensor *result)
{
    return result->at->buffer.dtype != TUTTI_F64 && t->c.rows >= 4 && t->shapes[0].cols >= 8;
}

static const matrix_shape shapes[] = {{1, "cols=4,head_size=4"},
                                      {33, "cols=4,head_size=4"},
                                      {2, "cols=12,head_size=4"},
                                      {33, "cols=10,head_size=10"},
                                      {33, "cols=30,head_size=6"},
                                      {9, "cols=112,head_size=14"},
                                      {7, "cols=96,head_size=32"},
                                      {33, "cols=64,head_size=64"},
                                      {33, "cols=256,head_size=64"},
                                      {5, "cols=240,head_size=80"},
                                      {17, "cols=1024,head_size=128"},
                                      {3, "cols=4608,head_size=128"},
                                      {2, "cols=5120,head_size=256"},
                                      {3, "cols=600,head_size=300"},
                                      {2, "cols=1200,head_size=600"},
                                      {2, "cols=12288,head_size=96"},
                                      {1, "cols=131072,head_size=65536"},
                                      {2, "cols=1048576,head_size=128"},
                                      {3001, "cols=8,head_size=4"},
                                      {517, "cols=128,head_size=16"},
                                      {0, NULL}};
static const matrix_shape some[] = {{4, "cols=6,head_size=6"},      {37, "cols=64,head_size=16"},
                                    {5, "cols=258,head_size=86"},   {9, "cols=1024,head_size=128"},
                                    {67, "cols=160,head_size=80"},  {3, "cols=5200,head_size=520"},
                                    {2, "cols=40960,head_size=64"}, {0, NULL}};

static const matrix_kind rope = {
    .trial = {.name = "rope", .first_row = 5, .sharp = sharp},
    .variants = {"max_positions=4096,period=7", "max_positions=8192,pairing=interleaved",
                 "rotated=4,period=3,base=500000", "pairing=interleaved,rotated=4,base=100", "",
                 "pairing=interleaved,base=1,period=11"},
    .common = 2,
    .shapes = shapes,
    .some = some,
    .small = "cols=18,head_size=6",
};

static trial_desc usual(int type, const char *options, int64_t rows, int64_t cols, int64_t head)
{
    return trial_usual(&rope.trial, rows, "cols=%lld,head_size=%lld,dtype=%s%s%s", (long long)cols,
                       (long long)head, tutti_dtype_name(float_dtypes[type]), *options ? "," : "",
                       options);
}
enum { POSITIONS = 1 << 1 }; /* the slot */

/* Heads of a single pair, and parts of heads in whole vectors and in pieces of them. */
static void test_parts_of_heads(void)
{
    static const int64_t sizes[][4] = {
        /* rows, cols, head_size, rotated */
        {9, 2, 2, 2},     {9, 14, 2, 2},       {37, 320, 80, 32},  {5, 4096, 128, 64},
        {6, 192, 96, 24}, {4, 1200, 400, 272}, {3, 600, 300, 290}, {700, 256, 64, 16},
    };
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(sizes); i++)
            for (int v = 0; v < 2; v++) {
                char options[80];
                snprintf(options, sizeof options, "rotated=%lld,period=5,pairing=%s",
                         (long long)sizes[i][3], v ? "interleaved" : "halves");
                trial_desc c = usual(type, options, sizes[i][0], sizes[i][1], sizes[i][2]);
                c.absent = i & 1 ? POSITIONS : 0;
                trial_case(&c);
            }
}

/* Rows far into a sequence: the bounds hardly grow. */
static void test_far_positions(void)
{
    static const int64_t firsts[] = {(1 << 24) - 3, (INT64_C(1) << 31) - 4, INT64_C(1) << 40,
                                     INT64_C(1) << 59};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(firsts); i++)
            for (int v = 0; v < 2; v++) {
                trial_desc c = usual(type, v ? "pairing=interleaved,base=500000" : "", 9, 256, 64);
                c.first_row = firsts[i];
                c.absent = POSITIONS;
                trial_case(&c);
            }
}

/* x is (1, 0), so y is the angle's cosine and sine.  Those of the first pair, whose angle is the
 * position in radians, are known: of 2^24 and 2^31 - 1, from tables of many digits. */
static void test_known_angles(void)
{
    static const struct {
        double position, cosine, sine;
    } known[] = {{0, 1, 0},
                 {1, 0.54030230586813971740, 0.84147098480789650665},
                 {16777216, 0.62632298329153290872, -0.77956367321777775281},
                 {2147483647, -0.68883669187794382971, -0.72491655514455644038}};
    for (int type = 0; type < 2; type++) {
        const trial_desc c = usual(type, "", HARNESS_COUNT(known), 4, 4);
        trial t;
        if (!trial_open(&t, harness_context(), &c)) return;
        operand *x = trial_find(&t, "x"), *positions = trial_find(&t, "positions");
        for (int64_t i = 0; i < c.rows; i++) {
            positions->values[i] = known[i].position;
            for (int j = 0; j < 4; j++) x->values[4 * i + j] = j == 0;
        }
        trial_put(&t);
        if (trial_run(&t)) trial_check(&t);
        const double *y = trial_find(&t, "y")->values, most = type ? 0x1p-51 : 0x1p-22;
        for (int64_t i = 0; i < c.rows; i++)
            CHECK(fabs(y[4 * i] - known[i].cosine) <= most &&
                      fabs(y[4 * i + 2] - known[i].sine) <= most,
                  "position %.0f: %.17g, %.17g", known[i].position, y[4 * i], y[4 * i + 2]);
        trial_close(&t);
    }
}

/* The bits of a row depend on its position, however the call gives it. */
static void test_same_positions(void)
{
    enum { ROWS = 23, PERIOD = 7 };
    for (int type = 0; type < 4; type++)
        for (int v = 0; v < 2; v++) {
            trial_desc c =
                usual(type, v ? "period=7,pairing=interleaved" : "period=7", ROWS, 96, 32);
            trial given, counted;
            if (!trial_open(&given, harness_context(), &c)) return;
            operand *positions = trial_find(&given, "positions");
            for (int64_t i = 0; i < ROWS; i++)
                positions->values[i] = (double)((c.first_row + i) % PERIOD);
            given.call.first_row = NULL;
            trial_put(&given);
            trial_run(&given);
            c.absent = POSITIONS;
            if (!trial_open(&counted, harness_context(), &c)) return;
            trial_run(&counted);
            trial_same_bits(&given, &counted);
            counted.call.first_row = NULL;
            CHECK_FAILS(TUTTI_ERR_ARG, "first_row",
                        tutti_layer_forward(counted.layer, counted.ctx, &counted.call));
            trial_close(&counted);
            trial_close(&given);
        }
}

/* At position 0 nothing is rotated, and what is not rotated is copied, infinities too. */
static void test_copies(void)
{
    for (int type = 0; type < 4; type++)
        for (int v = 0; v < 2; v++) {
            const trial_desc c =
                usual(type, v ? "pairing=interleaved,rotated=6" : "rotated=6", 5, 50, 10);
            trial t;
            if (!trial_open(&t, harness_context(), &c)) return;
            operand *x = trial_find(&t, "x"), *positions = trial_find(&t, "positions");
            positions->values[0] = 0;
            x->values[9] = INFINITY;
            x->values[56] = -INFINITY;
            trial_put(&t);
            if (trial_run(&t)) trial_check(&t);
            const double *y = trial_find(&t, "y")->values;
            for (int64_t i = 0; i < x->count; i++)
                CHECK((i >= 50 && i % 10 < 6) || y[i] == x->values[i],
                      "element %lld is %g, want %g", (long long)i, y[i], x->values[i]);
            trial_close(&t);
        }
}

/* dx is y's inverse: rotated there and back, x differs by roundings alone. */
static void test_there_and_back(void)
{
    for (int v = 0; v < 2; v++) {
        const trial_desc c = usual(1, v ? "pairing=interleaved" : "", 31, 192, 48);
        trial t;
        if (!trial_open(&t, harness_context(), &c)) return;
        const operand *x = trial_find(&t, "x"), *y = trial_find(&t, "y");
        trial_forward(&t);
        trial_get(&t, false);
        memcpy(trial_find(&t, "dy")->values, y->values, (size_t)y->count * sizeof *y->values);
        trial_put(&t);
        trial_backward(&t);
        trial_get(&t, true);
        const double *dx = trial_find(&t, "dx")->values;
        for (int64_t i = 0; i < x->count; i++)
            if (!CHECK(fabs(dx[i] - x->values[i]) <= 0x1p-48, "element %lld is %.17g, want %.17g",
                       (long long)i, dx[i], x->values[i]))
                break;
        trial_close(&t);
    }
}

int main(int argc, char **argv)
{
    static const harness_test own[] = {
        {"parts of heads", test_parts_of_heads},
        {"far positions", test_far_positions},
        {"known angles", test_known_angles},
        {"positions given and counted", test_same_positions},
        {"what is copied", test_copies},
        {"there and back", test_there_and_back},
    };
    return matrix_main(argc, argv, &rope, own, HARNESS_COUNT(own));
}
