/* Tests of Embedding. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"

/* Few rows of each token. */
static bool sharp(const trial *t, const trial_tensor *result)
{
    return result->gradient && t->shapes[1].cols > 1 && t->c.rows <= 2 * t->shapes[0].below &&
           result->at->buffer.dtype != TUTTI_F64;
}

static const matrix_shape shapes[] = {{5, "vocab=3,cols=16384"},   {2, "vocab=2,cols=50257"},
                                      {1, "vocab=3,cols=70000"},   {2, "vocab=3,cols=1048575"},
                                      {2, "vocab=3,cols=1048576"}, {0, NULL}};
static const matrix_shape some[] = {{4, "vocab=3,cols=5"},
                                    {90, "vocab=5,cols=9"},
                                    {40, "vocab=300,cols=33"},
                                    {150, "vocab=7,cols=64"},
                                    {70, "vocab=7,cols=257"},
                                    {12, "vocab=7,cols=1024"},
                                    {700, "vocab=2,cols=7"},
                                    {1000, "vocab=11,cols=64"},
                                    {300, "vocab=300,cols=96"},
                                    {900, "vocab=50,cols=700"},
                                    {3000, "vocab=256,cols=24"},
                                    {40, "vocab=2000,cols=33"},
                                    {0, NULL}};

static const matrix_kind embedding = {
    .trial = {.name = "embedding", .sharp = sharp},
    .flags = MATRIX_OUTPUTS_ALONE,
    .variants = {""},
    .shapes = shapes,
    .some = some,
    .small = "vocab=7,cols=10",
};

static trial_desc usual(int type, int64_t rows, int64_t vocab, int64_t cols)
{
    return trial_usual(&embedding.trial, rows, "vocab=%lld,cols=%lld,dtype=%s", (long long)vocab,
                       (long long)cols, tutti_dtype_name(float_dtypes[type]));
}

static void test_sizes(void)
{
    static const int64_t cols[] = {1, 2, 3, 7, 8, 16, 31, 64, 100, 257, 513, 1024, 1025, 4104};
    static const int64_t rows[] = {1, 2, 63, 64, 65, 200}, vocabs[] = {1, 2, 100, 300};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(cols); i++)
            for (int j = 0; j < HARNESS_COUNT(rows); j++) {
                if (harness_quick() && (i + j + type) % 9) continue;
                if (rows[j] * cols[i] > 300000 && type > 0) continue;
                trial_desc c = usual(type, rows[j], vocabs[(i + j) % 4], cols[i]);
                c.accumulate = (type + j) & 1;
                trial_case(&c);
            }
}

/* With all tokens in order, y is the table. */
static void test_copies(void)
{
    static const int64_t cols[] = {1, 33, 1024, 4104};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(cols); i++) {
            const trial_desc c = usual(type, 60, 60, cols[i]);
            trial t;
            if (!trial_open(&t, harness_context(), &c)) return;
            operand *weight = trial_find(&t, "weight");
            for (int64_t token = 0; token < 60; token++) t.slots[0][0].values[token] = token;
            weight->values[7] = -0.0;
            weight->values[9] = NAN;
            trial_put(&t);
            trial_forward(&t);
            check_same_bits(t.ctx, "y", weight, trial_find(&t, "y"));
            trial_close(&t);
        }
}

/* The token of a row. */
typedef int64_t pattern(int64_t row, int64_t rows, int64_t vocab);

static int64_t one(int64_t row, int64_t rows, int64_t vocab)
{
    (void)row, (void)rows;
    return vocab - 1;
}

/* Most rows have one token, as in text. */
static int64_t few(int64_t row, int64_t rows, int64_t vocab)
{
    harness_rng rng = {(uint64_t)(row + rows)};
    return harness_random(&rng) % 8 ? vocab / 2 : (int64_t)(harness_random(&rng) % 3);
}

static int64_t sorted(int64_t row, int64_t rows, int64_t vocab)
{
    return row * vocab / rows;
}

/* Runs with lengths near a power of two, backwards: they end near the boundaries of a kernel's
 * pieces. */
static int64_t runs(int64_t row, int64_t rows, int64_t vocab)
{
    (void)rows;
    return llabs(vocab - 1 - row / (61 + row / 64 % 5)) % vocab;
}

/* equal: all rows of dy are alike. */
static void check_pattern(const trial_desc *c, pattern *token_of, bool equal)
{
    trial_kind blunt = embedding.trial;
    trial t;
    blunt.sharp = NULL;
    if (!trial_open(&t, harness_context(), c)) return;
    t.c.kind = &blunt;
    operand *dy = trial_find(&t, "dy");
    for (int64_t i = 0; i < c->rows; i++)
        t.slots[0][0].values[i] = (double)token_of(i, c->rows, t.shapes[0].below);
    for (int64_t i = 0; i < dy->count && equal; i++)
        dy->values[i] = harness_round(dy->buffer.dtype, 0.1);
    trial_put(&t);
    if (trial_run(&t)) trial_check(&t);
    trial_close(&t);
}

static void test_patterns(void)
{
    static pattern *const patterns[] = {one, few, sorted, runs};
    static const int64_t rows[] = {31, 64, 127, 128, 129, 1000, 5000}, cols[] = {1, 24, 130};
    for (int type = 0; type < 4; type++)
        for (int p = 0; p < HARNESS_COUNT(patterns); p++)
            for (int i = 0; i < HARNESS_COUNT(rows); i++)
                for (int j = 0; j < HARNESS_COUNT(cols); j++) {
                    if (harness_quick() && (i + j + p) % 4) continue;
                    if (rows[i] * cols[j] > 200000 && type % 2) continue;
                    trial_desc c = usual(type, rows[i], 260, cols[j]);
                    c.accumulate = (p + i + j) & 1;
                    check_pattern(&c, patterns[p], false);
                }
}

static void test_many(void)
{
    static const int64_t many[][3] = {{70000, 256, 8},    {20000, 3, 40},    {9000, 50257, 10},
                                      {300, 70001, 3},    {40000, 65537, 1}, {65536, 300001, 1},
                                      {140000, 50257, 1}, {700, 1200000, 1}};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(many); i++) {
            if (harness_quick() && type != i % 4) continue;
            trial_desc c = usual(type, many[i][0], many[i][1], many[i][2]);
            c.accumulate = (type + i) & 1;
            trial_case(&c);
        }
}

/* The sum of many equal rows, whose rounding errors are equal, is as accurate as any. */
static void test_one_token(void)
{
    static const int64_t cols[] = {3, 3, 1, 2};
    for (int type = 0; type < 4; type++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            if (harness_quick() && type != 3 * accumulate) continue;
            trial_desc c = usual(type, 200000, 2, cols[type]);
            c.accumulate = accumulate;
            check_pattern(&c, one, true);
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

/* A row of dE has the bits that its own rows of dy give, in the order that the header states,
 * wherever they stand among others, and is added to what was there. */
static void check_order(trial *t, const double *old)
{
    const int64_t rows = t->c.rows, cols = t->shapes[1].cols;
    const operand *dweight = trial_find(t, "dweight");
    const double *dy = trial_find(t, "dy")->values;
    const tutti_dtype sums = dweight->buffer.dtype;
    double *mine = harness_calloc((size_t)(rows * cols), sizeof *mine);
    t->call.flags = old ? TUTTI_GRAD_ACCUMULATE : 0;
    trial_backward(t);
    trial_get(t, true);
    for (int64_t token = 0; token < t->shapes[0].below; token++) {
        int64_t count = 0;
        for (int64_t i = 0; i < rows; i++)
            if (t->slots[0][0].values[i] == (double)token)
                memcpy(mine + count++ * cols, dy + i * cols, (size_t)cols * sizeof *mine);
        for (int64_t j = 0; j < cols; j += 1 + cols / 27) {
            double want = sum_of_rows(sums, mine + j, count, cols);
            const double got = dweight->values[token * cols + j];
            if (old) want = harness_round(sums, old[token * cols + j] + want);
            if (!CHECK(got == want, "dE[%lld, %lld] of %lld rows is %.17g, want %.17g",
                       (long long)token, (long long)j, (long long)count, got, want))
                break;
        }
    }
    free(mine);
}

/* Runs that end near the boundaries of blocks and of pairs of blocks, shuffled; one after another
 * in the sorted list they begin anywhere in a kernel's pieces. */
static void put_runs(trial *t, const int64_t *lengths)
{
    double *tokens = t->slots[0][0].values;
    harness_rng rng = {(uint64_t)t->shapes[1].cols};
    int64_t at = 0;
    for (int token = 0; token < t->shapes[0].below; token++)
        for (int64_t k = 0; k < lengths[token]; k++) tokens[at++] = token;
    for (int64_t k = at - 1; k > 0; k--) {
        const int64_t other = (int64_t)(harness_random(&rng) % (uint64_t)(k + 1));
        const double token = tokens[k];
        tokens[k] = tokens[other];
        tokens[other] = token;
    }
    trial_put(t);
}

static void test_order(void)
{
    static const int64_t lengths[] = {1,   2,   63,  64,   65,   127, 128,  129,  3,   191,
                                      192, 193, 255, 1000, 1029, 7,   2048, 2049, 4100};
    static const int64_t cols[] = {1, 40, 130, 515, 1024};
    int64_t rows = 0;
    for (int i = 0; i < HARNESS_COUNT(lengths); i++) rows += lengths[i];
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(cols); i++) {
            if (harness_quick() && (type != i || i == 3)) continue;
            trial_desc c = usual(type, rows, HARNESS_COUNT(lengths), cols[i]);
            c.place = (layout){type == i ? 3 : 0, type == i ? 1 : 0, 0};
            trial t;
            if (!trial_open(&t, harness_context(), &c)) return;
            operand *dweight = trial_find(&t, "dweight");
            double *old = harness_calloc((size_t)dweight->count, sizeof *old);
            put_runs(&t, lengths);
            check_order(&t, NULL);
            memcpy(old, dweight->values, (size_t)dweight->count * sizeof *old);
            check_order(&t, old);
            free(old);
            trial_close(&t);
        }
}

static void test_all_tokens_out_of_range(void)
{
    for (int type = 0; type < 4; type++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            trial_desc c = usual(type, 200, 4, 12);
            c.accumulate = accumulate;
            trial t;
            if (!trial_open(&t, harness_context(), &c)) return;
            for (int i = 0; i < 200; i++)
                t.slots[0][0].values[i] = i % 2 ? 4 : (double)INT32_MIN + i;
            trial_put(&t);
            if (trial_run(&t)) trial_check(&t);
            CHECK_FAILS(TUTTI_ERR_DATA, "embedding: token", tutti_context_check(t.ctx));
            trial_close(&t);
        }
}

/* Planned for any number of rows, in any order. */
static void test_plan(void)
{
    tutti_context *ctx = harness_new_context(0, 2);
    static const int64_t rows[] = {0, 1, 1000, 3, 100000, 0};
    for (int i = 0; i < HARNESS_COUNT(rows); i++) {
        tutti_tensor tokens = tutti_tensor_1d(NULL, TUTTI_I32, rows[i]);
        tutti_tensor matrix = tutti_tensor_2d(NULL, TUTTI_BF16, rows[i], 8);
        const tutti_embedding_call call = {.tokens = &tokens, .y = &matrix, .dy = &matrix};
        trial_desc c = usual(3, 130, 6, 8);
        c.accumulate = i & 1;
        trial t;
        if (!trial_open(&t, ctx, &c)) break;
        CHECK_OK(tutti_embedding_plan(t.layer, ctx, &call));
        if (trial_run(&t)) trial_check(&t);
        trial_close(&t);
    }
    tutti_context_destroy(&ctx);
}

/* The table and the head's weight in one store, as one parameter. */
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

/* Memory of a store, copied to where the checks look. */
static void fetch(trial *t, operand *o, const tutti_tensor *from)
{
    CHECK_OK(tutti_copy(t->ctx, o->buffer.data, from->data,
                        (size_t)o->count * tutti_dtype_size(from->dtype)));
    operand_get(t->ctx, o, "a tied tensor");
    operand_put(t->ctx, o);
}

static void check_tied(trial *t, tutti_layer *head)
{
    operand *weight = &t->params[0][0], *dweight = &t->params[0][1];
    tutti_params *params = tie(t->ctx, t->layer, head);
    const tutti_param *table = tutti_layer_param(t->layer, 0);
    harness_rng rng = {17};
    operand dlogits = operand_make(t->ctx, &rng, t->shapes[1].dtype, t->c.rows, t->shapes[0].below,
                                   (layout){0, 0, 0}, 0, 1);
    trial_forward(t);
    fetch(t, weight, &table->value);
    for (int64_t i = 0; i < weight->count; i++)
        CHECK(fabs(weight->values[i]) <= 0.25, "the head's initial weight is %g, want ±1/4",
              weight->values[i]); /* 1 / sqrt(in) */
    CHECK_OK(tutti_linear_backward(
        head, t->ctx, &(tutti_linear_call){.x = &t->slots[1][0].tensor, .dy = &dlogits.tensor}));
    fetch(t, dweight, &table->grad);
    memcpy(t->old[0], dweight->values, (size_t)dweight->count * sizeof(double));
    trial_backward(t);
    fetch(t, dweight, &table->grad);
    trial_check(t);
    operand_free(t->ctx, &dlogits);
    CHECK_OK(tutti_context_synchronize(t->ctx));
    tutti_params_destroy(&params);
}

/* The table is the weight of a linear layer, too: one value, one gradient, to which the embedding
 * adds after the linear layer has written it. */
static void test_tied(void)
{
    for (int type = 0; type < 4; type++) {
        trial_desc c = usual(type, 40, 30, 16);
        tutti_linear_desc desc = {sizeof desc, .in = 16, .out = 30, .no_bias = 1};
        tutti_layer *head = NULL;
        trial t;
        c.accumulate = true;
        desc.dtype = float_dtypes[type];
        CHECK_OK(tutti_linear_create(harness_context(), &desc, &head));
        if (trial_open(&t, harness_context(), &c)) check_tied(&t, head);
        trial_close(&t);
        tutti_layer_destroy(&head);
    }
}

/* Device memory; skips the test if there is not enough. */
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
    const tutti_tensor to = tutti_tensor_1d((uint16_t *)data + row * cols, TUTTI_BF16, cols);
    double *values = harness_calloc((size_t)cols, sizeof *values);
    for (int64_t j = 0; j < cols; j++) values[j] = whole(token, j);
    harness_put(ctx, &to, values);
    free(values);
}
static void check_row(tutti_context *ctx, const char *what, void *data, tutti_dtype dtype,
                      int64_t row, int64_t cols, int64_t token, double factor)
{
    const int64_t offset = row * cols * (int64_t)tutti_dtype_size(dtype);
    const tutti_tensor from = tutti_tensor_1d((char *)data + offset, dtype, cols);
    double *got = harness_get(ctx, &from, NULL);
    for (int64_t j = 0; j < cols; j++) {
        const double want = whole(token, j) * factor;
        if (!CHECK(got[j] == want, "%s[%lld, %lld] is %g, want %g", what, (long long)row,
                   (long long)j, got[j], want))
            break;
    }
    free(got);
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
        /* rows without a token must become zero: bits in half a row of floats */
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
    static const harness_test own[] = {
        {"sizes", test_sizes},
        {"rows are copies", test_copies},
        {"patterns of tokens", test_patterns},
        {"many rows, many tokens", test_many},
        {"many rows of one token", test_one_token},
        {"order of the sum", test_order},
        {"all tokens out of range", test_all_tokens_out_of_range},
        {"plan", test_plan},
        {"tied to a linear layer", test_tied},
        {"past 2^31 elements", test_large},
    };
    return matrix_main(argc, argv, &embedding, own, HARNESS_COUNT(own));
}
