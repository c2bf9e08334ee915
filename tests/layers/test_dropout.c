/* Tests of BiasDropoutActivation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

enum { ACTIVATIONS = TUTTI_ACT_SILU + 1 };

typedef struct dropout_case {
    tutti_dtype dtype;
    tutti_activation activation;
    int64_t rows, cols, first_row, number, step;
    uint64_t seed;
    double p;
    bool no_bias;
    layout place;
} dropout_case;

static dropout_case usual(tutti_dtype dtype, tutti_activation activation, int64_t rows,
                          int64_t cols)
{
    return (dropout_case){.dtype = dtype,
                          .activation = activation,
                          .rows = rows,
                          .cols = cols,
                          .first_row = (INT64_C(5) << 32) + 7,
                          .number = 77,
                          .step = (INT64_C(1) << 32) + 3,
                          .seed = UINT64_C(0x0123456789abcdef),
                          .p = 0.3};
}

/* The oracle: the mask from the paper's definition of Philox, act and act' from FusedLinear's oracle, one element a call. */

static void philox(uint32_t word[4], uint32_t key0, uint32_t key1)
{
    for (int round = 0; round < 10; round++) {
        const uint64_t left = (uint64_t)word[0] * 0xD2511F53u;
        const uint64_t right = (uint64_t)word[2] * 0xCD9E8D57u;
        word[0] = (uint32_t)(right >> 32) ^ word[1] ^ (key0 + (uint32_t)round * 0x9E3779B9u);
        word[2] = (uint32_t)(left >> 32) ^ word[3] ^ (key1 + (uint32_t)round * 0xBB67AE85u);
        word[1] = (uint32_t)right;
        word[3] = (uint32_t)left;
    }
}

/* The 16 bits of an element. */
static uint32_t bits_of(const dropout_case *c, int64_t row, int64_t col)
{
    const uint64_t place = (uint64_t)(c->first_row + row);
    uint32_t word[4] = {(uint32_t)(c->number * 131072 + col / 8), (uint32_t)(c->step & 0xffffffff),
                        (uint32_t)(place & 0xffffffff), (uint32_t)(place >> 32)};
    philox(word, (uint32_t)(c->seed & 0xffffffff), (uint32_t)(c->seed >> 32));
    const uint32_t pair = word[col % 8 / 2];
    return col % 2 ? pair / 65536 : pair % 65536;
}

static bool keeps(const dropout_case *c, int64_t row, int64_t col)
{
    return bits_of(c, row, col) >= nearbyint(c->p * 65536);
}

static double part_kept(const dropout_case *c)
{
    return 1 - nearbyint(c->p * 65536) / 65536;
}

/* The quotient by the part that is kept, its rounding and that of storing it. */
static double quotient(const dropout_case *c, double value, double *bound)
{
    const tutti_dtype real = c->dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    const double result = value / part_kept(c);
    *bound = *bound / part_kept(c) + harness_roundoff(real) * fabs(result);
    return result;
}

static double stored(const dropout_case *c, double value, double bound)
{
    return bound + harness_roundoff(c->dtype) * (fabs(value) + bound) + harness_tiny(c->dtype) / 2;
}

/* What backward makes of one element, before dx is rounded. */
static void element(const dropout_case *c, double x, double bias, double dy, double results[2],
                    double bounds[2])
{
    const double one = 1;
    const oracle_linear linear = {.rows = 1,
                                  .in = 1,
                                  .out = 1,
                                  .activation = c->activation,
                                  .slope = 0.25,
                                  .dtype = c->dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32,
                                  .weight = &one,
                                  .bias = c->no_bias ? NULL : &bias};
    const oracle_linear_grads grads = {.dbias = &results[1], .dbias_bound = &bounds[1]};
    oracle_linear_forward(&linear, &x, &results[0], &bounds[0]);
    oracle_linear_backward(&linear, &x, &results[0], &dy, &grads);
    for (int i = 0; i < 2; i++) results[i] = quotient(c, results[i], &bounds[i]);
}

/* The layer */

typedef struct setting {
    tutti_layer *layer;
    tutti_step_block *step;
    operand x, y, dy, dx, bias, dbias;
} setting;

static void set_step(tutti_context *ctx, const dropout_case *c, setting *s)
{
    CHECK_OK(tutti_step_block_set(
        s->step, ctx, &(tutti_step_values){.step = c->step, .seed = c->seed, .loss_weight = 1}));
}

static setting set_up(tutti_context *ctx, const dropout_case *c)
{
    harness_where("%s act %d [%lld, %lld] p %g pad %d misaligned %d", tutti_dtype_name(c->dtype),
                  (int)c->activation, (long long)c->rows, (long long)c->cols, c->p, c->place.pad,
                  c->place.misaligned);
    tutti_dropout_desc desc = TUTTI_DROPOUT_DESC_INIT;
    desc.cols = c->cols;
    desc.dtype = c->dtype;
    desc.activation = c->activation;
    desc.slope = 0.25;
    desc.p = c->p;
    desc.layer_number = c->number;
    desc.no_bias = c->no_bias;
    setting s = {0};
    CHECK_OK(tutti_dropout_create(ctx, &desc, &s.layer));
    CHECK_OK(tutti_step_block_create(ctx, &s.step));
    set_step(ctx, c, &s);
    harness_rng rng = {(uint64_t)(c->rows * 1000003 + c->cols)};
    const layout packed = {0, c->place.misaligned};
    s.x = operand_make(ctx, &rng, c->dtype, c->rows, c->cols, c->place, 0, 2);
    s.y = operand_make(ctx, &rng, c->dtype, c->rows, c->cols, c->place, OUTPUT);
    s.dy = operand_make(ctx, &rng, c->dtype, c->rows, c->cols, c->place, 0.1, 1);
    s.dx = operand_make(ctx, &rng, c->dtype, c->rows, c->cols, c->place, OUTPUT);
    s.bias = operand_make(ctx, &rng, c->dtype, 1, c->cols, packed, 0, 1);
    s.dbias = operand_make(ctx, &rng, c->dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32, 1, c->cols,
                           packed, 0, 1);
    if (!c->no_bias) bind_param(s.layer, 0, &s.bias, &s.dbias);
    return s;
}

static void tear_down(tutti_context *ctx, setting *s)
{
    CHECK_OK(tutti_context_synchronize(ctx));
    tutti_layer_destroy(&s->layer);
    tutti_step_block_destroy(&s->step);
    operand *all[] = {&s->x, &s->y, &s->dy, &s->dx, &s->bias, &s->dbias};
    for (int i = 0; i < HARNESS_COUNT(all); i++) operand_free(ctx, all[i]);
}

static tutti_dropout_call call_of(const dropout_case *c, setting *s)
{
    return (tutti_dropout_call){.x = &s->x.tensor,
                                .y = &s->y.tensor,
                                .dy = &s->dy.tensor,
                                .dx = &s->dx.tensor,
                                .first_row = c->p > 0 ? &c->first_row : NULL,
                                .step = c->p > 0 ? s->step : NULL};
}

static bool run(tutti_context *ctx, const dropout_case *c, setting *s, unsigned flags)
{
    tutti_dropout_call call = call_of(c, s);
    call.flags = flags;
    return CHECK_OK(tutti_dropout_forward(s->layer, ctx, &call)) &&
           CHECK_OK(tutti_dropout_backward(s->layer, ctx, &call));
}

static void check_results(tutti_context *ctx, const dropout_case *c, setting *s, bool sharp)
{
    operand_check_unchanged(ctx, &s->x, "x");
    operand_check_unchanged(ctx, &s->dy, "dy");
    double *old = s->dbias.values, *sizes = harness_calloc((size_t)c->cols, sizeof *sizes);
    expected y = expected_make(s->y.count), dx = expected_make(s->dx.count),
             dbias = expected_make(c->cols);
    const double u = harness_roundoff(s->dbias.buffer.dtype);
    for (int64_t i = 0; i < s->x.count; i++) {
        const int64_t j = i % c->cols;
        if (!keeps(c, i / c->cols, j)) continue; /* 0, to the bit */
        double results[2], bounds[2];
        element(c, s->x.values[i], s->bias.values[j], s->dy.values[i], results, bounds);
        y.want[i] = results[0];
        y.bound[i] = stored(c, results[0], bounds[0]);
        dx.want[i] = results[1];
        dx.bound[i] = stored(c, results[1], bounds[1]);
        dbias.want[j] += results[1];
        dbias.bound[j] += bounds[1];
        sizes[j] += fabs(results[1]);
    }
    for (int64_t j = 0; j < c->cols; j++) {
        dbias.bound[j] += oracle_depth(c->rows) * u * sizes[j] + u * fabs(dbias.want[j]);
        dbias.want[j] += old[j];
        dbias.bound[j] += u * fabs(dbias.want[j]) + harness_tiny(s->dbias.buffer.dtype);
    }
    operand_get(ctx, &s->y, "y");
    operand_get(ctx, &s->dx, "dx");
    check_expected("y", &s->y, &y, sharp);
    check_expected("dx", &s->dx, &dx, false);
    if (!c->no_bias) operand_get(ctx, &s->dbias, "dbias");
    if (!c->no_bias) check_expected("dbias", &s->dbias, &dbias, false);
    expected_free(&y);
    expected_free(&dx);
    expected_free(&dbias);
    free(sizes);
}

/* accumulate: dbias is added to what is there, otherwise it overwrites it. */
static void check_case(const dropout_case *c, bool accumulate)
{
    tutti_context *ctx = harness_context();
    setting s = set_up(ctx, c);
    if (run(ctx, c, &s, accumulate ? TUTTI_GRAD_ACCUMULATE : 0)) {
        if (!accumulate) memset(s.dbias.values, 0, (size_t)c->cols * sizeof(double));
        check_results(ctx, c, &s, c->rows > 0 && c->activation == TUTTI_ACT_RELU);
    }
    tear_down(ctx, &s);
}

/* The tests */

static void test_known_answers(void)
{
    uint32_t zero[4] = {0}, pi[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
    static const uint32_t of_zero[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    static const uint32_t of_pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    philox(zero, 0, 0);
    philox(pi, 0xa4093822, 0x299f31d0);
    CHECK(memcmp(zero, of_zero, sizeof zero) == 0, "Philox of 0 is %08x …", zero[0]);
    CHECK(memcmp(pi, of_pi, sizeof pi) == 0, "Philox of pi is %08x …", pi[0]);
}

static void test_shapes(void)
{
    static const int64_t shapes[][2] = {{0, 9},  {1, 1},   {1, 257},  {3, 7},  {2, 8},
                                        {33, 9}, {5, 130}, {2, 2049}, {700, 3}};
    for (int type = 0; type < 4; type++)
        for (int act = 0; act < ACTIVATIONS; act++)
            for (int i = 0; i < HARNESS_COUNT(shapes); i++) {
                if (harness_quick() && (i + act) % 4) continue;
                dropout_case c =
                    usual(float_dtypes[type], (tutti_activation)act, shapes[i][0], shapes[i][1]);
                c.no_bias = (i + act) % 3 == 0;
                check_case(&c, i % 2);
            }
    dropout_case longest = usual(TUTTI_BF16, TUTTI_ACT_GELU, 2, 1 << 20);
    longest.number = 32767;
    longest.first_row = (INT64_C(1) << 59) - 1;
    if (!harness_quick()) check_case(&longest, false);
}

static void test_strides_and_alignment(void)
{
    static const layout places[] = {{3, 0}, {8, 0}, {0, 1}, {5, 1}, {1, 3}, {8, 4}, {64, 7}};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(places); i++) {
            dropout_case c = usual(float_dtypes[type], TUTTI_ACT_SILU, 9, i % 2 ? 264 : 75);
            c.place = places[i];
            check_case(&c, false);
        }
}

/* Also those that 16 bits make 0 or 1, 0 without a step block and a first row, and the least that drops an element. */
static void test_probabilities(void)
{
    dropout_case any = usual(TUTTI_F32, TUTTI_ACT_NONE, 8, 40);
    const double edge = bits_of(&any, 5, 21) / 65536.0;
    const double p[] = {0,   0x1p-18,     0x1p-16,     0.1, edge, edge + 0x1p-16,
                        0.5, 1 - 0x1p-16, 1 - 0x1p-18, 1};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(p); i++) {
            dropout_case c = usual(float_dtypes[type], TUTTI_ACT_LEAKY_RELU, 8, 40);
            c.p = p[i];
            check_case(&c, false);
        }
}

static void test_nonfinite(void)
{
    tutti_context *ctx = harness_context();
    static const double values[] = {NAN, INFINITY, -INFINITY, 0};
    for (int type = 0; type < 4; type++)
        for (int act = 0; act < ACTIVATIONS; act++)
            for (int i = 0; i < 6; i++) {
                dropout_case c = usual(float_dtypes[type], (tutti_activation)act, 4, 20);
                if (i >= 4) c.p = i == 4 ? 0 : 1;
                setting s = set_up(ctx, &c);
                for (int64_t j = 0; j < s.x.count; j++)
                    s.x.values[j] = i < 4 ? values[(j / 3 + i) % 4] : values[i - 4];
                for (int64_t j = 0; j < s.dy.count; j += 7) s.dy.values[j] = NAN;
                operand_put(ctx, &s.x);
                operand_put(ctx, &s.dy);
                run(ctx, &c, &s, 0);
                memset(s.dbias.values, 0, (size_t)c.cols * sizeof(double));
                check_results(ctx, &c, &s, false);
                tear_down(ctx, &s);
            }
}

/* Masks of n elements as bytes, 1 for one that was dropped. */
enum { MASK_ROWS = 256, MASK_COLS = 1000, MASK = MASK_ROWS * MASK_COLS };

static void fetch_mask(const dropout_case *c, unsigned char *mask)
{
    tutti_context *ctx = harness_context();
    setting s = set_up(ctx, c);
    for (int64_t i = 0; i < MASK; i++) s.x.values[i] = 1;
    operand_put(ctx, &s.x);
    run(ctx, c, &s, 0);
    operand_get(ctx, &s.y, "y");
    for (int64_t i = 0; i < MASK; i++) mask[i] = s.y.values[i] == 0;
    tear_down(ctx, &s);
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
    dropout_case c = usual(TUTTI_F32, TUTTI_ACT_NONE, MASK_ROWS, MASK_COLS);
    c.no_bias = true;
    dropout_case others[] = {c, c, c, c, c, c};
    others[0].number++;
    others[1].step++;
    others[2].seed++;
    others[3].seed ^= UINT64_C(1) << 63;
    others[4].first_row += MASK_ROWS;
    others[5].first_row += INT64_C(1) << 32;
    static const char *const names[] = {
        "number", "step", "seed", "high word of the seed", "first_row", "high word of first_row"};
    static const int64_t shifts[] = {1, 2, 3, 4, 7, 8, MASK_COLS, 8 * MASK_COLS};
    unsigned char *mask = harness_calloc(2, MASK), *other = mask + MASK;
    fetch_mask(&c, mask);
    int64_t dropped = 0;
    for (int64_t i = 0; i < MASK; i++) dropped += mask[i];
    check_count("dropped", dropped, MASK, c.p);
    for (int i = 0; i < HARNESS_COUNT(shifts); i++)
        check_independent("neighbours", mask, mask, shifts[i], c.p);
    for (int i = 0; i < HARNESS_COUNT(others); i++) {
        fetch_mask(&others[i], other);
        check_independent(names[i], mask, other, 0, c.p);
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

/* A batch in pieces, whose backward comes after another step's forward: the bits of the whole. */
static void test_pieces_and_replay(void)
{
    tutti_context *ctx = harness_context();
    static const int64_t cuts[] = {0, 10, 11, 37};
    for (int type = 0; type < 4; type++) {
        dropout_case c = usual(float_dtypes[type], TUTTI_ACT_GELU, 37, 75), later = c;
        later.step++;
        setting s = set_up(ctx, &c), t = set_up(ctx, &c);
        run(ctx, &c, &s, 0);
        for (int backward = 0; backward < 2; backward++) {
            for (int i = 0; i < 3; i++) {
                const int64_t begin = cuts[i], count = cuts[i + 1] - begin,
                              first_row = c.first_row + begin;
                tutti_tensor x = rows_of(&t.x, begin, count), y = rows_of(&t.y, begin, count);
                tutti_tensor dy = rows_of(&t.dy, begin, count), dx = rows_of(&t.dx, begin, count);
                tutti_dropout_call call = {&x, &y, &dy, &dx, .first_row = &first_row};
                call.step = t.step;
                CHECK_OK((backward ? tutti_dropout_backward : tutti_dropout_forward)(t.layer, ctx,
                                                                                     &call));
            }
            if (backward) break;
            check_same_bits(ctx, "y", &s.y, &t.y);
            set_step(ctx, &later, &t);
            tutti_dropout_call call = call_of(&c, &t);
            CHECK_OK(tutti_dropout_forward(t.layer, ctx, &call));
            set_step(ctx, &c, &t);
        }
        check_same_bits(ctx, "dx", &s.dx, &t.dx);
        tear_down(ctx, &s);
        tear_down(ctx, &t);
    }
}

static void test_in_place(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < 4; type++) {
        dropout_case c = usual(float_dtypes[type], TUTTI_ACT_GELU_ERF, 9, 77);
        c.place.pad = 2;
        setting s = set_up(ctx, &c);
        run(ctx, &c, &s, 0);
        tutti_dropout_call call = call_of(&c, &s);
        call.dx = &s.dy.tensor;
        CHECK_OK(tutti_dropout_backward(s.layer, ctx, &call));
        check_same_bits(ctx, "dx in place of dy", &s.dx, &s.dy);
        tear_down(ctx, &s);
    }
}

static void test_threads(void)
{
    if (harness_backend() != TUTTI_BACKEND_HOST) {
        harness_skip("only the host backend has threads");
        return;
    }
    for (int type = 0; type < 4; type++) {
        dropout_case c = usual(float_dtypes[type], TUTTI_ACT_SQUARED_RELU, 301, 131);
        tutti_context *one = harness_new_context(0, 1), *several = harness_new_context(0, 3);
        setting s = set_up(one, &c), t = set_up(several, &c);
        run(one, &c, &s, 0);
        run(several, &c, &t, 0);
        check_same_bits(one, "y", &s.y, &t.y);
        check_same_bits(one, "dx", &s.dx, &t.dx);
        check_same_bits(one, "dbias", &s.dbias, &t.dbias);
        tear_down(one, &s);
        tear_down(several, &t);
        tutti_context_destroy(&one);
        tutti_context_destroy(&several);
    }
}

typedef struct difference {
    const dropout_case *c;
    setting *s;
} difference;

static double loss(void *self)
{
    const difference *d = self;
    operand_put(harness_context(), &d->s->x);
    operand_put(harness_context(), &d->s->bias);
    run(harness_context(), d->c, d->s, 0);
    operand_get(harness_context(), &d->s->y, "y");
    double total = 0;
    for (int64_t i = 0; i < d->s->y.count; i++) total += d->s->dy.values[i] * d->s->y.values[i];
    return total;
}

/* Of what is smooth, the mask being what it is. */
static void test_finite_differences(void)
{
    tutti_context *ctx = harness_context();
    static const tutti_activation smooth[] = {TUTTI_ACT_NONE, TUTTI_ACT_GELU, TUTTI_ACT_GELU_ERF,
                                              TUTTI_ACT_SILU};
    for (int i = 0; i < HARNESS_COUNT(smooth); i++) {
        dropout_case c = usual(TUTTI_F64, smooth[i], 5, 9);
        setting s = set_up(ctx, &c);
        run(ctx, &c, &s, 0);
        operand_get(ctx, &s.dx, "dx");
        operand_get(ctx, &s.dbias, "dbias");
        difference d = {&c, &s};
        check_gradient("dx", loss, &d, s.x.values, s.x.count, s.dx.values);
        check_gradient("dbias", loss, &d, s.bias.values, s.bias.count, s.dbias.values);
        tear_down(ctx, &s);
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
    dropout_case c = usual(TUTTI_F32, TUTTI_ACT_RELU, 3, 8);
    setting s = set_up(ctx, &c);
    const tutti_dropout_call good = call_of(&c, &s);
    tutti_dropout_call no_step = good, no_row = good, in_place = good, no_x = good;
    no_step.step = NULL;
    no_row.first_row = NULL;
    in_place.y = &s.x.tensor;
    no_x.x = NULL;
    CHECK_OK(tutti_dropout_plan(s.layer, ctx, &no_step));
    CHECK_FAILS(TUTTI_ERR_ARG, "step", tutti_dropout_forward(s.layer, ctx, &no_step));
    CHECK_FAILS(TUTTI_ERR_ARG, "step", tutti_dropout_backward(s.layer, ctx, &no_step));
    CHECK_FAILS(TUTTI_ERR_ARG, "first_row", tutti_dropout_forward(s.layer, ctx, &no_row));
    CHECK_FAILS(TUTTI_ERR_ARG, "first_row", tutti_dropout_backward(s.layer, ctx, &no_row));
    CHECK_FAILS(TUTTI_ERR_ARG, "share memory", tutti_dropout_forward(s.layer, ctx, &in_place));
    CHECK_FAILS(TUTTI_ERR_ARG, "x is NULL", tutti_dropout_backward(s.layer, ctx, &no_x));
    tear_down(ctx, &s);
}

int main(int argc, char **argv)
{
    static const harness_test tests[] = {
        {"known answers of Philox", test_known_answers},
        {"shapes", test_shapes},
        {"strides and misaligned pointers", test_strides_and_alignment},
        {"probabilities", test_probabilities},
        {"NaN and infinities", test_nonfinite},
        {"mask statistics", test_mask_statistics},
        {"pieces and replay", test_pieces_and_replay},
        {"in place", test_in_place},
        {"bits and threads", test_threads},
        {"finite differences", test_finite_differences},
        {"bad input", test_bad_input},
    };
    return harness_main(argc, argv, "dropout", tests, HARNESS_COUNT(tests));
}
