/* Tests of Embedding. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

/* Which tokens the rows have. */
typedef enum pattern { RANDOM, ONE, FEW, SORTED, RUNS } pattern;

typedef struct emb_case {
    tutti_dtype dtype;
    int64_t rows, vocab, cols;
    pattern tokens;
    layout place;
    uint64_t seed;
} emb_case;

static emb_case usual(tutti_dtype dtype, int64_t rows, int64_t vocab, int64_t cols)
{
    return (emb_case){.dtype = dtype,
                      .rows = rows,
                      .vocab = vocab,
                      .cols = cols,
                      .seed = (uint64_t)(rows * 1000003 + vocab * 1009 + cols)};
}

typedef struct setting {
    emb_case c;
    tutti_layer *layer;
    operand tokens, weight, dweight, y, dy;
    int32_t *ids;
} setting;

static void put_tokens(tutti_context *ctx, setting *s)
{
    for (int64_t i = 0; i < s->c.rows; i++) s->tokens.values[i] = s->ids[i];
    operand_put(ctx, &s->tokens);
}

static int32_t token_of(const emb_case *c, int64_t row, harness_rng *rng)
{
    int64_t token = 0;
    switch (c->tokens) {
    case RANDOM:
        token = (int64_t)(harness_random(rng) % (uint64_t)c->vocab);
        break;
    case ONE:
        token = c->vocab - 1;
        break;
    case FEW: /* most rows one token, as in text */
        token = harness_random(rng) % 8 ? c->vocab / 2 : (int64_t)(harness_random(rng) % 3);
        break;
    case SORTED:
        token = row * c->vocab / c->rows;
        break;
    case RUNS: /* of lengths about a power of two, backwards */
        token = c->vocab - 1 - row / (61 + row / 64 % 5);
        break;
    }
    return (int32_t)(token < 0 ? 0 : token % c->vocab);
}

static setting set_up(tutti_context *ctx, const emb_case *c)
{
    harness_where("embedding %s [%lld] of [%lld, %lld] tokens %d pad %d misaligned %d",
                  tutti_dtype_name(c->dtype), (long long)c->rows, (long long)c->vocab,
                  (long long)c->cols, c->tokens, c->place.pad, c->place.misaligned);
    tutti_embedding_desc desc = TUTTI_EMBEDDING_DESC_INIT;
    desc.vocab = c->vocab;
    desc.cols = c->cols;
    desc.dtype = c->dtype;
    setting s = {.c = *c};
    CHECK_OK(tutti_embedding_create(ctx, &desc, &s.layer));
    harness_rng rng = {c->seed};
    tutti_dtype sums = c->dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    layout flat = {0, c->place.misaligned};
    s.tokens = operand_make(ctx, &rng, TUTTI_I32, 1, c->rows, flat, OUTPUT);
    s.tokens.tensor = tutti_tensor_1d(s.tokens.buffer.data, TUTTI_I32, c->rows);
    s.weight = operand_make(ctx, &rng, c->dtype, c->vocab, c->cols, flat, 0, 1);
    s.dweight = operand_make(ctx, &rng, sums, c->vocab, c->cols, flat, 0, 3);
    s.y = operand_make(ctx, &rng, c->dtype, c->rows, c->cols, c->place, 0, 1);
    s.dy = operand_make(ctx, &rng, c->dtype, c->rows, c->cols, c->place, 0.25, 1);
    s.ids = harness_calloc((size_t)c->rows, sizeof *s.ids);
    for (int64_t i = 0; i < c->rows; i++) s.ids[i] = token_of(c, i, &rng);
    put_tokens(ctx, &s);
    bind_param(s.layer, 0, &s.weight, &s.dweight);
    return s;
}

static void tear_down(tutti_context *ctx, setting *s)
{
    CHECK_OK(tutti_context_synchronize(ctx));
    tutti_layer_destroy(&s->layer);
    operand *all[] = {&s->tokens, &s->weight, &s->dweight, &s->y, &s->dy};
    for (int i = 0; i < HARNESS_COUNT(all); i++) operand_free(ctx, all[i]);
    free(s->ids);
}

static tutti_status forward(tutti_context *ctx, setting *s)
{
    return tutti_embedding_forward(
        s->layer, ctx, &(tutti_embedding_call){.tokens = &s->tokens.tensor, .y = &s->y.tensor});
}
static tutti_status backward(tutti_context *ctx, setting *s, unsigned flags)
{
    return tutti_embedding_backward(
        s->layer, ctx,
        &(tutti_embedding_call){.tokens = &s->tokens.tensor, .dy = &s->dy.tensor, .flags = flags});
}

static oracle_embedding oracle_of(const setting *s)
{
    return (oracle_embedding){s->c.rows, s->c.vocab, s->c.cols, s->c.dtype};
}

/* Rows of y bear the bits of the table's rows; y held other numbers before. */
static void check_forward(tutti_context *ctx, setting *s)
{
    if (!CHECK_OK(forward(ctx, s))) return;
    operand_get(ctx, &s->y, "y");
    operand_check_unchanged(ctx, &s->tokens, "tokens");
    operand_check_unchanged(ctx, &s->weight, "weight");
    oracle_embedding o = oracle_of(s);
    expected y = expected_make(s->y.count);
    oracle_embedding_forward(&o, s->ids, s->weight.values, y.want);
    check_expected("y", &s->y, &y, false);
    expected_free(&y);

    size_t row_bytes = (size_t)s->c.cols * tutti_dtype_size(s->c.dtype);
    char *table = harness_calloc((size_t)s->c.vocab, row_bytes);
    char *rows = harness_calloc((size_t)s->c.rows, row_bytes);
    harness_buffer_get_raw(ctx, &s->weight.buffer, table);
    harness_buffer_get_raw(ctx, &s->y.buffer, rows);
    for (int64_t i = 0; i < s->c.rows; i++) {
        if (s->ids[i] < 0 || s->ids[i] >= s->c.vocab) continue;
        const char *row = table + (size_t)s->ids[i] * row_bytes;
        if (!CHECK(memcmp(rows + (size_t)i * row_bytes, row, row_bytes) == 0,
                   "row %lld of y has other bits than row %d of the table", (long long)i,
                   (int)s->ids[i]))
            break;
    }
    free(table);
    free(rows);
}

static void check_backward(tutti_context *ctx, setting *s, bool accumulate)
{
    double *old = harness_calloc((size_t)s->dweight.count, sizeof *old);
    operand_get(ctx, &s->dweight, "old dweight");
    memcpy(old, s->dweight.values, (size_t)s->dweight.count * sizeof *old);
    if (CHECK_OK(backward(ctx, s, accumulate ? TUTTI_GRAD_ACCUMULATE : 0))) {
        operand_get(ctx, &s->dweight, accumulate ? "dweight +=" : "dweight");
        operand_check_unchanged(ctx, &s->tokens, "tokens");
        operand_check_unchanged(ctx, &s->dy, "dy");
        operand_check_unchanged(ctx, &s->weight, "weight");
        oracle_embedding o = oracle_of(s);
        expected dweight = expected_make(s->dweight.count);
        oracle_embedding_backward(&o, s->ids, s->dy.values, accumulate ? old : NULL, dweight.want,
                                  dweight.bound);
        bool sharp =
            s->c.tokens == RANDOM && s->c.rows <= 2 * s->c.vocab && s->c.dtype != TUTTI_F64;
        check_expected(accumulate ? "dweight +=" : "dweight", &s->dweight, &dweight, sharp);
        expected_free(&dweight);
    }
    free(old);
}

static void check_case(const emb_case *c)
{
    tutti_context *ctx = harness_context();
    setting s = set_up(ctx, c);
    check_forward(ctx, &s);
    check_backward(ctx, &s, false);
    check_backward(ctx, &s, true);
    CHECK_OK(tutti_context_check(ctx));
    tear_down(ctx, &s);
}

static void test_shapes(void)
{
    static const int64_t cols[] = {1, 2, 3, 7, 8, 16, 31, 64, 100, 257, 513, 1024, 1025, 4104};
    static const int64_t rows[] = {1, 2, 63, 64, 65, 200};
    static const int64_t vocabs[] = {1, 2, 100, 300};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(cols); i++)
            for (int j = 0; j < HARNESS_COUNT(rows); j++) {
                if (harness_quick() && (i + j) % 5) continue;
                if (rows[j] * cols[i] > 300000 && type > 0) continue;
                emb_case c = usual(float_dtypes[type], rows[j], vocabs[(i + j) % 4], cols[i]);
                check_case(&c);
            }
}

/* Tokens that are all one, few, in order, in runs that end about the borders of a kernel's pieces.
 */
static void test_patterns(void)
{
    static const int64_t rows[] = {31, 64, 127, 128, 129, 1000, 5000};
    static const int64_t cols[] = {1, 24, 130};
    for (int type = 0; type < 4; type++)
        for (int p = ONE; p <= RUNS; p++)
            for (int i = 0; i < HARNESS_COUNT(rows); i++)
                for (int j = 0; j < HARNESS_COUNT(cols); j++) {
                    if (harness_quick() && (i + j + p) % 4) continue;
                    if (rows[i] * cols[j] > 200000 && type % 2) continue;
                    emb_case c = usual(float_dtypes[type], rows[i], 260, cols[j]);
                    c.tokens = (pattern)p;
                    check_case(&c);
                }
}

static void test_many(void)
{
    static const int64_t shapes[][3] = {
        {70000, 256, 8}, {20000, 3, 40}, {9000, 50257, 10}, {300, 70001, 3}, {40000, 65537, 1},
    };
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(shapes); i++) {
            if (harness_quick() && type != i % 4) continue;
            emb_case c = usual(float_dtypes[type], shapes[i][0], shapes[i][1], shapes[i][2]);
            check_case(&c);
        }
}

/* A long run of equal rows, whose roundings are all alike, is as accurate as any. */
static void test_one_token(void)
{
    tutti_context *ctx = harness_context();
    static const int64_t cols[] = {3, 3, 1, 2};
    for (int type = 0; type < 4; type++) {
        emb_case c = usual(float_dtypes[type], 200000, 2, cols[type]);
        c.tokens = ONE;
        setting s = set_up(ctx, &c);
        for (int64_t i = 0; i < s.dy.count; i++) s.dy.values[i] = harness_round(c.dtype, 0.1);
        operand_put(ctx, &s.dy);
        check_backward(ctx, &s, false);
        check_backward(ctx, &s, true);
        tear_down(ctx, &s);
    }
}

/* The sum of count values, every stride-th, as the header says: blocks of 64 one after the
 * other, the blocks pairwise. */
static double sum_of_rows(tutti_dtype sums, const double *values, int64_t count, int64_t stride)
{
    int64_t blocks = (count + 63) / 64;
    double *sum = harness_calloc((size_t)blocks + 1, sizeof *sum);
    for (int64_t i = 0; i < count; i++)
        sum[i / 64] = harness_round(sums, sum[i / 64] + values[i * stride]);
    for (; blocks > 1; blocks = (blocks + 1) / 2)
        for (int64_t i = 0; i < blocks; i += 2)
            sum[i / 2] = i + 1 < blocks ? harness_round(sums, sum[i] + sum[i + 1]) : sum[i];
    double total = sum[0];
    free(sum);
    return total;
}

/* A row of dE has the bits that its own rows of dy give, in the order that the header states, wherever they stand among
 * others. */
static void check_order(tutti_context *ctx, setting *s, bool accumulate)
{
    const int64_t rows = s->c.rows, vocab = s->c.vocab, cols = s->c.cols;
    const tutti_dtype sums = s->dweight.buffer.dtype;
    double *mine = harness_calloc((size_t)(rows * cols), sizeof *mine);
    double *old = harness_calloc((size_t)s->dweight.count, sizeof *old);
    operand_get(ctx, &s->dweight, "old dweight");
    memcpy(old, s->dweight.values, (size_t)s->dweight.count * sizeof *old);
    CHECK_OK(backward(ctx, s, accumulate ? TUTTI_GRAD_ACCUMULATE : 0));
    operand_get(ctx, &s->dweight, "dweight");
    for (int64_t token = 0; token < vocab; token++) {
        int64_t count = 0;
        for (int64_t i = 0; i < rows; i++)
            if (s->ids[i] == token)
                memcpy(mine + count++ * cols, s->dy.values + i * cols, (size_t)cols * sizeof *mine);
        for (int64_t j = 0; j < cols; j += 1 + cols / 27) {
            double want = sum_of_rows(sums, mine + j, count, cols), got;
            if (accumulate) want = harness_round(sums, old[token * cols + j] + want);
            got = s->dweight.values[token * cols + j];
            if (!CHECK(got == want, "dE[%lld, %lld] of %lld rows is %.17g, want %.17g",
                       (long long)token, (long long)j, (long long)count, got, want))
                break;
        }
    }
    free(mine);
    free(old);
}

/* Runs about the borders of blocks and of pairs of them, shuffled; behind each other in the sorted list they begin
 * anywhere in a kernel's pieces. */
static void test_order(void)
{
    static const int64_t lengths[] = {1,   2,   63,  64,   65,   127, 128,  129,  3,   191,
                                      192, 193, 255, 1000, 1029, 7,   2048, 2049, 4100};
    static const int64_t cols[] = {1, 40, 130, 515, 1024};
    tutti_context *ctx = harness_context();
    int64_t rows = 0;
    for (int i = 0; i < HARNESS_COUNT(lengths); i++) rows += lengths[i];
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(cols); i++) {
            if (harness_quick() && (i + type) % 4) continue;
            emb_case c = usual(float_dtypes[type], rows, HARNESS_COUNT(lengths), cols[i]);
            c.place = (layout){type == i ? 3 : 0, type == i ? 1 : 0};
            setting s = set_up(ctx, &c);
            harness_rng rng = {c.seed};
            int64_t at = 0;
            for (int32_t token = 0; token < c.vocab; token++)
                for (int64_t k = 0; k < lengths[token]; k++) s.ids[at++] = token;
            for (int64_t k = rows - 1; k > 0; k--) {
                int64_t other = (int64_t)(harness_random(&rng) % (uint64_t)(k + 1));
                int32_t id = s.ids[k];
                s.ids[k] = s.ids[other];
                s.ids[other] = id;
            }
            put_tokens(ctx, &s);
            check_order(ctx, &s, false);
            check_order(ctx, &s, true);
            tear_down(ctx, &s);
        }
}

static void test_long_rows(void)
{
    static const int64_t cols[] = {16384, 50257, 70000, (1 << 20) - 1, 1 << 20};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(cols); i++) {
            if (harness_quick() && i != type) continue;
            if (cols[i] > 100000 && type != (i % 2 ? 3 : 1)) continue;
            emb_case c = usual(float_dtypes[type], 5, 3, cols[i]);
            check_case(&c);
        }
}

static void test_strides_and_alignment(void)
{
    static const layout places[] = {{3, 0}, {8, 0}, {0, 1}, {5, 1}, {1, 3}, {8, 4}, {64, 7}};
    static const int64_t cols[] = {5, 64, 257, 1024};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(places); i++)
            for (int j = 0; j < HARNESS_COUNT(cols); j++) {
                if (harness_quick() && (i + j) % 4) continue;
                emb_case c = usual(float_dtypes[type], 150, 7, cols[j]);
                c.place = places[i];
                check_case(&c);
            }
}

/* Tokens [2, 3] and rows [2, 3, cols], with a gap between the rows. */
static void test_dimensions(void)
{
    tutti_context *ctx = harness_context();
    emb_case c = usual(TUTTI_F32, 6, 9, 10);
    c.place.pad = 2;
    setting s = set_up(ctx, &c);
    s.tokens.tensor = tutti_tensor_2d(s.tokens.buffer.data, TUTTI_I32, 2, 3);
    operand *both[] = {&s.y, &s.dy};
    for (int i = 0; i < 2; i++) {
        both[i]->tensor.ndim = 3;
        memcpy(both[i]->tensor.dims, (int64_t[]){2, 3, 10}, 3 * sizeof(int64_t));
        memcpy(both[i]->tensor.strides, (int64_t[]){36, 12, 1}, 3 * sizeof(int64_t));
    }
    check_forward(ctx, &s);
    check_backward(ctx, &s, false);
    tear_down(ctx, &s);
}

static void test_no_rows(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < 4; type++) {
        emb_case c = usual(float_dtypes[type], 0, 5, 9);
        check_case(&c);
        setting s = set_up(ctx, &c);
        tutti_tensor tokens = tutti_tensor_1d(NULL, TUTTI_I32, 0);
        tutti_tensor rows = tutti_tensor_2d(NULL, c.dtype, 0, 9);
        tutti_embedding_call call = {
            .tokens = &tokens, .y = &rows, .dy = &rows, .flags = TUTTI_GRAD_ACCUMULATE};
        CHECK_OK(tutti_embedding_forward(s.layer, ctx, &call));
        CHECK_OK(tutti_embedding_backward(s.layer, ctx, &call));
        operand_check_unchanged(ctx, &s.dweight, "dweight");
        call.flags = 0;
        CHECK_OK(tutti_embedding_backward(s.layer, ctx, &call));
        operand_get(ctx, &s.dweight, "dweight");
        for (int64_t i = 0; i < s.dweight.count; i++)
            CHECK(s.dweight.values[i] == 0, "no rows leave %g", s.dweight.values[i]);
        tear_down(ctx, &s);
    }
}

/* A token out of range: its row of y is NaN, dE does without it, and it is reported, once, by
 * forward and by backward. */
static void test_tokens_out_of_range(void)
{
    tutti_context *ctx = harness_context();
    static const int32_t bad[] = {300, 301, 512, -1, -300, 1 << 16, INT32_MIN, INT32_MAX};
    static const int64_t cols[] = {1, 33, 64};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(bad); i++) {
            emb_case c = usual(float_dtypes[type], 70, 300, cols[i % 3]);
            c.tokens = i % 2 ? RANDOM : ONE;
            setting s = set_up(ctx, &c);
            s.ids[17] = bad[i];
            put_tokens(ctx, &s);
            char text[80];
            snprintf(text, sizeof text, "embedding: token %d of row 17 is not in [0, 300)",
                     (int)bad[i]);
            check_forward(ctx, &s);
            CHECK(isnan(s.y.values[17 * c.cols]), "the row of a bad token is %g",
                  s.y.values[17 * c.cols]);
            CHECK_FAILS(TUTTI_ERR_DATA, text, tutti_context_check(ctx));
            CHECK_OK(tutti_context_check(ctx));
            check_backward(ctx, &s, i % 2);
            CHECK_FAILS(TUTTI_ERR_DATA, text, tutti_context_check(ctx));
            tear_down(ctx, &s);
        }
}

static void test_all_tokens_out_of_range(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < 4; type++) {
        emb_case c = usual(float_dtypes[type], 200, 4, 12);
        setting s = set_up(ctx, &c);
        for (int64_t i = 0; i < c.rows; i++) s.ids[i] = i % 2 ? 4 : INT32_MIN + (int32_t)i;
        put_tokens(ctx, &s);
        check_forward(ctx, &s);
        check_backward(ctx, &s, true);
        check_backward(ctx, &s, false);
        CHECK_FAILS(TUTTI_ERR_DATA, "embedding: token", tutti_context_check(ctx));
        tear_down(ctx, &s);
    }
}

static void test_nonfinite(void)
{
    tutti_context *ctx = harness_context();
    static const double odd[] = {NAN, INFINITY, -INFINITY};
    static const int64_t cols[] = {6, 9, 1024};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(odd); i++) {
            emb_case c = usual(float_dtypes[type], 90, 5, cols[i]);
            setting s = set_up(ctx, &c);
            s.weight.values[2 * c.cols + 3] = odd[i];
            operand_put(ctx, &s.weight);
            s.dy.values[44 * c.cols + c.cols - 1] = odd[i];
            s.dy.values[45 * c.cols] = -odd[i];
            operand_put(ctx, &s.dy);
            check_forward(ctx, &s);
            check_backward(ctx, &s, false);
            check_backward(ctx, &s, true);
            tear_down(ctx, &s);
        }
}

/* The bits of dE do not depend on addresses, strides, or the call. */
static void test_same_bits(void)
{
    tutti_context *ctx = harness_context();
    static const int64_t shapes[][3] = {{1000, 11, 64}, {300, 300, 96}, {700, 2, 7}};
    static const layout places[] = {{0, 0}, {5, 0}, {0, 1}, {3, 5}, {16, 8}};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(shapes); i++) {
            emb_case c = usual(float_dtypes[type], shapes[i][0], shapes[i][1], shapes[i][2]);
            setting s = set_up(ctx, &c);
            for (int add = 0; add < 2; add++) {
                CHECK_OK(backward(ctx, &s, add ? TUTTI_GRAD_ACCUMULATE : 0));
                for (int place = 0; place < HARNESS_COUNT(places); place++) {
                    emb_case moved = c;
                    moved.place = places[place];
                    setting t = set_up(ctx, &moved);
                    CHECK_OK(backward(ctx, &t, 0));
                    if (add) CHECK_OK(backward(ctx, &t, TUTTI_GRAD_ACCUMULATE));
                    check_same_bits(ctx, "dweight", &s.dweight, &t.dweight);
                    tear_down(ctx, &t);
                }
            }
            tear_down(ctx, &s);
        }
}

static void test_threads(void)
{
    if (harness_backend() != TUTTI_BACKEND_HOST) {
        harness_skip("only the host backend has threads");
        return;
    }
    static const int64_t shapes[][3] = {{900, 50, 700}, {9000, 256, 24}, {40, 2000, 33}};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(shapes); i++) {
            emb_case c = usual(float_dtypes[type], shapes[i][0], shapes[i][1], shapes[i][2]);
            tutti_context *one = harness_new_context(0, 1);
            setting s = set_up(one, &c);
            CHECK_OK(forward(one, &s));
            CHECK_OK(backward(one, &s, 0));
            for (int threads = 2; threads <= 7; threads += 5) {
                tutti_context *several = harness_new_context(0, threads);
                setting t = set_up(several, &c);
                CHECK_OK(forward(several, &t));
                CHECK_OK(backward(several, &t, 0));
                check_same_bits(one, "y", &s.y, &t.y);
                check_same_bits(one, "dweight", &s.dweight, &t.dweight);
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
    operand_put(ctx, &s->weight);
    CHECK_OK(forward(ctx, s));
    operand_get(ctx, &s->y, "y");
    double total = 0;
    for (int64_t i = 0; i < s->y.count; i++) total += s->y.values[i] * s->dy.values[i];
    return total;
}

static void test_finite_differences(void)
{
    tutti_context *ctx = harness_context();
    emb_case c = usual(TUTTI_F64, 12, 5, 3);
    setting s = set_up(ctx, &c);
    CHECK_OK(backward(ctx, &s, 0));
    operand_get(ctx, &s.dweight, "dweight");
    check_gradient("dweight", loss_of, &s, s.weight.values, s.weight.count, s.dweight.values);
    tear_down(ctx, &s);
}

static void test_untrained(void)
{
    tutti_context *ctx = harness_context();
    emb_case c = usual(TUTTI_BF16, 20, 6, 8);
    setting s = set_up(ctx, &c);
    bind_param(s.layer, 0, &s.weight, NULL);
    check_forward(ctx, &s);
    CHECK_OK(backward(ctx, &s, 0));
    operand_check_unchanged(ctx, &s.dweight, "dweight");
    CHECK(tutti_layer_saved_bytes(s.layer, 7) == 0, "embedding wants memory for saved");
    tear_down(ctx, &s);
}

/* Planned for any number of rows, in any order. */
static void test_plan(void)
{
    tutti_context *ctx = harness_new_context(0, 2);
    static const int64_t rows[] = {0, 1, 1000, 3, 100000, 0};
    emb_case c = usual(TUTTI_BF16, 130, 6, 8);
    setting s = set_up(ctx, &c);
    for (int i = 0; i < HARNESS_COUNT(rows); i++) {
        tutti_tensor tokens = tutti_tensor_1d(NULL, TUTTI_I32, rows[i]);
        tutti_tensor matrix = tutti_tensor_2d(NULL, c.dtype, rows[i], c.cols);
        CHECK_OK(tutti_embedding_plan(
            s.layer, ctx, &(tutti_embedding_call){.tokens = &tokens, .y = &matrix, .dy = &matrix}));
        check_backward(ctx, &s, i % 2);
    }
    tear_down(ctx, &s);
    tutti_context_destroy(&ctx);
}

/* Memory of a store, copied to where the checks look. */
static void fetch(tutti_context *ctx, operand *o, const tutti_tensor *from, const char *name)
{
    CHECK_OK(tutti_copy(ctx, o->buffer.data, from->data,
                        (size_t)o->count * tutti_dtype_size(from->dtype)));
    operand_get(ctx, o, name);
}

/* The layer's table and the head's weight in one store, as one parameter. */
static tutti_params *tie(tutti_context *ctx, tutti_layer *layer, tutti_layer *head)
{
    tutti_param *table = tutti_layer_param(layer, 0), *weight = tutti_layer_param(head, 0);
    CHECK(fabs(table->init_bound - sqrt(3)) < 1e-12 && table->weight_decay == 1,
          "the table begins in ±%g and decays by %g", table->init_bound, table->weight_decay);
    tutti_params *params = NULL;
    tutti_params_desc store = TUTTI_PARAMS_DESC_INIT;
    if (table->value.dtype == TUTTI_F64) store.master_dtype = TUTTI_F64;
    CHECK_OK(tutti_params_create(ctx, &store, &params));
    CHECK_OK(tutti_params_add(params, layer, "table"));
    CHECK_OK(tutti_params_add(params, head, "head"));
    CHECK_OK(tutti_params_tie(params, table, weight));
    CHECK_OK(tutti_params_build(params, ctx));
    CHECK_OK(tutti_params_init(params, ctx, 5));
    CHECK(tutti_params_count(params) == 1 && table->value.data == weight->value.data &&
              table->grad.data == weight->grad.data,
          "tied parameters have memories of their own");
    return params;
}

/* The table is the weight of a linear layer, too: one value, one gradient, to which the embedding
 * adds after the linear layer has written it. */
static void test_tied(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < 4; type++) {
        emb_case c = usual(float_dtypes[type], 40, 30, 16);
        setting s = set_up(ctx, &c);
        tutti_linear_desc desc = TUTTI_LINEAR_DESC_INIT;
        desc.in = c.cols;
        desc.out = c.vocab;
        desc.dtype = c.dtype;
        desc.no_bias = 1;
        tutti_layer *head = NULL;
        CHECK_OK(tutti_linear_create(ctx, &desc, &head));
        tutti_params *params = tie(ctx, s.layer, head);
        const tutti_param *table = tutti_layer_param(s.layer, 0);

        CHECK_OK(forward(ctx, &s));
        operand_get(ctx, &s.y, "y");
        fetch(ctx, &s.weight, &table->value, "the head's weight");
        for (int64_t i = 0; i < s.y.count; i++) {
            double want = s.weight.values[s.ids[i / c.cols] * c.cols + i % c.cols];
            CHECK(s.y.values[i] == want && fabs(want) <= 0.25, /* 1 / sqrt(in) */
                  "y[%lld] is %g, want %g, within ±1/4", (long long)i, s.y.values[i], want);
        }

        harness_rng rng = {17};
        operand dlogits = operand_make(ctx, &rng, c.dtype, c.rows, c.vocab, (layout){0, 0}, 0, 1);
        CHECK_OK(tutti_linear_backward(
            head, ctx, &(tutti_linear_call){.x = &s.y.tensor, .dy = &dlogits.tensor}));
        fetch(ctx, &s.dweight, &table->grad, "the head's gradient");
        oracle_embedding o = oracle_of(&s);
        expected sum = expected_make(s.dweight.count);
        oracle_embedding_backward(&o, s.ids, s.dy.values, s.dweight.values, sum.want, sum.bound);
        CHECK_OK(backward(ctx, &s, TUTTI_GRAD_ACCUMULATE));
        fetch(ctx, &s.dweight, &table->grad, "the tied gradient");
        check_expected("the tied gradient", &s.dweight, &sum, false);
        expected_free(&sum);
        operand_free(ctx, &dlogits);
        CHECK_OK(tutti_context_synchronize(ctx));
        tutti_params_destroy(&params);
        tutti_layer_destroy(&head);
        tear_down(ctx, &s);
    }
}

/* Device memory, or skipped where there is not so much. */
static void *room(tutti_context *ctx, int64_t count, tutti_dtype dtype)
{
    void *data = NULL;
    size_t bytes = (size_t)count * tutti_dtype_size(dtype);
    tutti_status status = tutti_alloc(ctx, bytes, &data);
    if (status == TUTTI_ERR_MEMORY)
        harness_skip("no memory for %zu bytes", bytes);
    else if (CHECK_OK(status))
        CHECK_OK(tutti_zero(ctx, data, bytes));
    return data;
}

/* Whole numbers, so that sums of them are exact in any order. */
static double whole(int64_t token, int64_t col)
{
    return (double)((token * 31 + col) % 15 - 7);
}

/* One row of the memory at data; put as bf16, got as bf16 or f32. */
static void put_row(tutti_context *ctx, void *data, int64_t row, int64_t cols, int64_t token)
{
    uint16_t *values = harness_calloc((size_t)cols, sizeof *values);
    for (int64_t j = 0; j < cols; j++)
        values[j] = (uint16_t)harness_encode(TUTTI_BF16, whole(token, j));
    CHECK_OK(tutti_copy(ctx, (uint16_t *)data + row * cols, values, (size_t)cols * sizeof *values));
    CHECK_OK(tutti_context_synchronize(ctx));
    free(values);
}
static void check_row(tutti_context *ctx, const char *what, const void *data, tutti_dtype dtype,
                      int64_t row, int64_t cols, int64_t token, double factor)
{
    size_t size = tutti_dtype_size(dtype);
    char *values = harness_calloc((size_t)cols, size);
    CHECK_OK(tutti_copy(ctx, values, (const char *)data + (size_t)(row * cols) * size,
                        (size_t)cols * size));
    CHECK_OK(tutti_context_synchronize(ctx));
    for (int64_t j = 0; j < cols; j++) {
        uint64_t bits = 0;
        memcpy(&bits, values + (size_t)j * size, size);
        double got = harness_decode(dtype, bits), want = whole(token, j) * factor;
        if (!CHECK(got == want, "%s[%lld, %lld] is %g, want %g", what, (long long)row, (long long)j,
                   got, want))
            break;
    }
    free(values);
}

static tutti_layer *large_layer(tutti_context *ctx, int64_t vocab, int64_t cols, void *weight,
                                void *dweight)
{
    tutti_embedding_desc desc = TUTTI_EMBEDDING_DESC_INIT;
    desc.vocab = vocab;
    desc.cols = cols;
    desc.dtype = TUTTI_BF16;
    tutti_layer *layer = NULL;
    CHECK_OK(tutti_embedding_create(ctx, &desc, &layer));
    tutti_tensor value = tutti_tensor_2d(weight, TUTTI_BF16, vocab, cols);
    tutti_tensor grad = tutti_tensor_2d(dweight, TUTTI_F32, vocab, cols);
    CHECK_OK(tutti_param_bind(tutti_layer_param(layer, 0), &value, &grad));
    return layer;
}

/* Row i has token `every` * i mod vocab.  y serves as dy, so that a token's gradient is its row
 * times the number of its rows. */
static void check_large(int64_t rows, int64_t vocab, int64_t cols, int64_t every)
{
    harness_where("embedding [%lld] of [%lld, %lld]", (long long)rows, (long long)vocab,
                  (long long)cols);
    tutti_context *ctx = harness_new_context(0, 0);
    void *memory[] = {room(ctx, vocab * cols, TUTTI_BF16), room(ctx, vocab * cols, TUTTI_F32),
                      room(ctx, rows * cols, TUTTI_BF16), room(ctx, rows, TUTTI_I32)};
    void *weight = memory[0], *dweight = memory[1], *y = memory[2], *tokens = memory[3];
    if (weight && dweight && y && tokens) {
        int32_t *ids = harness_calloc((size_t)rows, sizeof *ids);
        for (int64_t i = 0; i < rows; i++) ids[i] = (int32_t)(i * every % vocab);
        CHECK_OK(tutti_copy(ctx, tokens, ids, (size_t)rows * sizeof *ids));
        int64_t used = rows < vocab ? rows : vocab; /* different tokens */
        for (int64_t i = 0; i < used; i++) put_row(ctx, weight, ids[i], cols, ids[i]);
        /* what nobody names must become zero: bits in half a row of floats */
        int64_t unused = vocab > rows ? ids[rows - 1] + 1 : -1;
        if (unused >= 0) put_row(ctx, dweight, 2 * unused, cols, 1);

        tutti_layer *layer = large_layer(ctx, vocab, cols, weight, dweight);
        tutti_tensor list = tutti_tensor_1d(tokens, TUTTI_I32, rows);
        tutti_tensor matrix = tutti_tensor_2d(y, TUTTI_BF16, rows, cols);
        const tutti_embedding_call call = {.tokens = &list, .y = &matrix, .dy = &matrix};
        CHECK_OK(tutti_embedding_forward(layer, ctx, &call));
        CHECK_OK(tutti_embedding_backward(layer, ctx, &call));
        CHECK_OK(tutti_context_check(ctx));
        for (int64_t i = 0; i < rows; i += i + 1000 < rows ? rows / 100 + 1 : 1)
            check_row(ctx, "y", y, TUTTI_BF16, i, cols, ids[i], 1);
        for (int64_t i = 0; i < used; i++) {
            double count = (double)((rows - i + used - 1) / used);
            check_row(ctx, "dweight", dweight, TUTTI_F32, ids[i], cols, ids[i], count);
        }
        if (unused >= 0) check_row(ctx, "dweight", dweight, TUTTI_F32, unused, cols, 0, 0);
        CHECK_OK(tutti_context_synchronize(ctx));
        tutti_layer_destroy(&layer);
        free(ids);
    }
    for (int i = 0; i < HARNESS_COUNT(memory); i++) CHECK_OK(tutti_free(ctx, &memory[i]));
    tutti_context_destroy(&ctx);
}

/* More than 2^31 elements in y and dy, or in the table. */
static void test_large(void)
{
    if (harness_backend() == TUTTI_BACKEND_HOST) {
        harness_skip("asks for 20 GB: on a GPU only");
        return;
    }
    if (harness_quick()) {
        harness_skip("minutes under a sanitizer");
        return;
    }
    const int64_t cols = 1024, many = (INT64_C(3) << 20) + 5;
    check_large(many, 8, cols, 1);
    check_large(300, many, cols, many / 300);
}

int main(int argc, char **argv)
{
    static const harness_test tests[] = {
        {"shapes", test_shapes},
        {"patterns of tokens", test_patterns},
        {"many rows, many tokens", test_many},
        {"many rows of one token", test_one_token},
        {"order of the sum", test_order},
        {"long rows", test_long_rows},
        {"strides and misaligned pointers", test_strides_and_alignment},
        {"several dimensions", test_dimensions},
        {"no rows", test_no_rows},
        {"a token out of range", test_tokens_out_of_range},
        {"all tokens out of range", test_all_tokens_out_of_range},
        {"NaN and infinities", test_nonfinite},
        {"same bits", test_same_bits},
        {"same bits with several threads", test_threads},
        {"finite differences", test_finite_differences},
        {"not trained", test_untrained},
        {"plan", test_plan},
        {"tied to a linear layer", test_tied},
        {"past 2^31 elements", test_large},
    };
    return harness_main(argc, argv, "embedding", tests, HARNESS_COUNT(tests));
}
