/* Tests of measured products: what is refused, what is measured, and that choices are passed on
 * whole or not at all.  That tuned products are right is tested with the gemm itself. */
#include <stdlib.h>
#include <string.h>

#include "harness.h"

enum { ROWS = 192, IN = 256, OUT = 320 };

/* A linear layer with its parameters and the tensors of both directions. */
typedef struct model {
    tutti_context *ctx;
    tutti_layer *layer;
    tutti_params *params;
    harness_buffer x, y, dy, dx;
    tutti_tensor at[4];
    void *saved;
    tutti_linear_call call;
} model;

static model model_make(tutti_context *ctx, int64_t rows)
{
    model m = {.ctx = ctx};
    tutti_linear_desc desc = TUTTI_LINEAR_DESC_INIT;
    desc.in = IN;
    desc.out = OUT;
    desc.dtype = TUTTI_BF16;
    desc.activation = TUTTI_ACT_GELU;
    CHECK_OK(tutti_linear_create(ctx, &desc, &m.layer));
    CHECK_OK(tutti_params_create(ctx, NULL, &m.params));
    CHECK_OK(tutti_params_add(m.params, m.layer, "linear"));
    CHECK_OK(tutti_params_build(m.params, ctx));
    CHECK_OK(tutti_params_init(m.params, ctx, 3));
    harness_buffer *buffers[] = {&m.x, &m.y, &m.dy, &m.dx};
    for (int i = 0; i < 4; i++) {
        const int64_t cols = i == 0 || i == 3 ? IN : OUT;
        harness_rng rng = {(uint64_t)i + 1};
        *buffers[i] = harness_buffer_make(ctx, TUTTI_BF16, rows, cols, 0, 0);
        double *values = harness_calloc((size_t)(rows * cols), sizeof *values);
        harness_fill(&rng, values, rows * cols, TUTTI_BF16, 0, 1);
        harness_buffer_put(ctx, buffers[i], values);
        free(values);
        m.at[i] = harness_buffer_tensor(buffers[i]);
    }
    m.call.saved_bytes = tutti_layer_saved_bytes(m.layer, rows);
    CHECK_OK(tutti_alloc(ctx, m.call.saved_bytes, &m.saved));
    m.call.saved = m.saved;
    return m;
}

static void model_free(model *m)
{
    harness_buffer *buffers[] = {&m->x, &m->y, &m->dy, &m->dx};
    for (int i = 0; i < 4; i++) harness_buffer_free(m->ctx, buffers[i]);
    CHECK_OK(tutti_free(m->ctx, &m->saved));
    tutti_params_destroy(&m->params);
    tutti_layer_destroy(&m->layer);
}

/* The call with the model's tensors: a copy of a model moves them. */
static const tutti_linear_call *call_of(model *m)
{
    m->call.x = &m->at[0];
    m->call.y = &m->at[1];
    m->call.dy = &m->at[2];
    m->call.dx = &m->at[3];
    return &m->call;
}

static int measured; /* products, by the library's lines */

static void count_line(void *user, tutti_log_level level, const char *message)
{
    (void)user, (void)level;
    measured += strstr(message, "measured ") != NULL;
}

/* How many products planning the model's calls measures. */
static int plan(model *m)
{
    measured = 0;
    tutti_set_log(count_line, NULL, TUTTI_LOG_INFO);
    CHECK_OK(tutti_linear_plan(m->layer, m->ctx, call_of(m)));
    tutti_set_log(NULL, NULL, TUTTI_LOG_WARN);
    return measured;
}

typedef struct bytes {
    unsigned char *data;
    size_t count;
} bytes;

static bytes choices_of(tutti_context *ctx)
{
    bytes b = {NULL, 0};
    CHECK_OK(tutti_context_tuning_get(ctx, NULL, 0, &b.count));
    b.data = harness_calloc(b.count + 1, 1);
    CHECK_OK(tutti_context_tuning_get(ctx, b.data, b.count, &b.count));
    return b;
}

static tutti_context *tuning_context(void)
{
    tutti_context *ctx = harness_new_context(0, 1);
    CHECK_OK(tutti_context_tune(ctx, 1));
    return ctx;
}

static bool skips_host(void)
{
    const bool host = harness_backend() == TUTTI_BACKEND_HOST;
    if (host) harness_skip("the host has nothing to measure");
    return host;
}

/* Calls with leaves and tuning exclude each other, in either order. */
static void test_leaves(void)
{
    tutti_context *ctx = harness_new_context(0, 1);
    model m = model_make(ctx, ROWS);
    m.call.leaves = 1;
    CHECK_OK(tutti_linear_forward(m.layer, ctx, call_of(&m))); /* and is a recent call */
    CHECK_OK(tutti_context_tune(ctx, 1));
    CHECK_FAILS(TUTTI_ERR_STATE, "leaves", tutti_linear_plan(m.layer, ctx, call_of(&m)));
    CHECK_FAILS(TUTTI_ERR_STATE, "leaves", tutti_linear_forward(m.layer, ctx, call_of(&m)));
    CHECK_FAILS(TUTTI_ERR_STATE, "leaves", tutti_linear_backward(m.layer, ctx, call_of(&m)));
    m.call.leaves = 0;
    CHECK_OK(tutti_linear_forward(m.layer, ctx, call_of(&m)));
    CHECK_OK(tutti_context_tune(ctx, 0));
    m.call.leaves = 1;
    if (harness_backend() == TUTTI_BACKEND_CUDA) /* what was measured is still in use */
        CHECK_FAILS(TUTTI_ERR_STATE, "leaves", tutti_linear_forward(m.layer, ctx, call_of(&m)));
    CHECK_OK(tutti_context_tuning_set(ctx, NULL, 0));
    CHECK_OK(tutti_linear_forward(m.layer, ctx, call_of(&m)));
    model_free(&m);
    tutti_context_destroy(&ctx);
}

static void test_on_the_host(void)
{
    if (harness_backend() != TUTTI_BACKEND_HOST) {
        harness_skip("a GPU has something to measure");
        return;
    }
    tutti_context *ctx = tuning_context();
    model m = model_make(ctx, ROWS);
    size_t count = 1;
    CHECK(plan(&m) == 0, "something was measured");
    CHECK_OK(tutti_context_tuning_get(ctx, NULL, 0, &count));
    CHECK(count == 0, "there are %zu bytes of choices", count);
    CHECK_OK(tutti_context_tuning_set(ctx, NULL, 0));
    model_free(&m);
    tutti_context_destroy(&ctx);
}

/* Each shape is measured once, for all layers and after a trim. */
static void test_once(void)
{
    if (skips_host()) return;
    tutti_context *ctx = tuning_context();
    model m = model_make(ctx, ROWS), twin = model_make(ctx, ROWS), longer = model_make(ctx, 200);
    const int first = plan(&m);
    CHECK(first == 3, "y, dx and dW are %d products", first);
    CHECK(plan(&m) == 0, "a planned shape is measured again");
    CHECK(plan(&twin) == 0, "another layer's is measured again");
    CHECK_OK(tutti_context_trim(ctx));
    CHECK(plan(&m) == 0, "a dropped plan's is measured again");
    CHECK_OK(tutti_linear_forward(m.layer, ctx, call_of(&m)));
    CHECK_OK(tutti_linear_backward(m.layer, ctx, call_of(&m)));
    CHECK(plan(&longer) == 3, "another number of rows is not measured");
    CHECK_OK(tutti_context_tune(ctx, 0));
    model other = model_make(ctx, 208);
    CHECK(plan(&other) == 0, "a context that does not tune measures");
    CHECK_OK(tutti_context_synchronize(ctx));
    model_free(&m);
    model_free(&twin);
    model_free(&longer);
    model_free(&other);
    tutti_context_destroy(&ctx);
}

static void same_results(model *a, model *b)
{
    const harness_buffer *of_a[] = {&a->y, &a->dx}, *of_b[] = {&b->y, &b->dx};
    for (int i = 0; i < 2; i++) {
        const size_t size = (size_t)(of_a[i]->rows * of_a[i]->cols) * sizeof(uint16_t);
        unsigned char *p = harness_calloc(size, 1), *q = harness_calloc(size, 1);
        harness_buffer_get_raw(a->ctx, of_a[i], p);
        harness_buffer_get_raw(b->ctx, of_b[i], q);
        CHECK(memcmp(p, q, size) == 0, "result %d has other bits", i);
        free(p);
        free(q);
    }
}

/* A context that is given choices measures nothing, and has the same choices and bits. */
static void test_given(void)
{
    if (skips_host()) return;
    tutti_context *ctx = tuning_context();
    model m = model_make(ctx, ROWS);
    plan(&m);
    const bytes given = choices_of(ctx);
    CHECK(given.count > 0, "there are no choices");
    CHECK_OK(tutti_linear_forward(m.layer, ctx, call_of(&m)));
    CHECK_OK(tutti_linear_backward(m.layer, ctx, call_of(&m)));
    for (int tunes = 0; tunes < 2; tunes++) {
        harness_where("tune %d", tunes);
        tutti_context *other = harness_new_context(0, 1);
        model twin = model_make(other, ROWS);
        CHECK_OK(tutti_context_tune(other, tunes));
        CHECK_OK(tutti_context_tuning_set(other, given.data, given.count));
        CHECK(plan(&twin) == 0, "something was measured");
        const bytes got = choices_of(other);
        CHECK(got.count == given.count && memcmp(got.data, given.data, got.count) == 0,
              "other choices came back");
        free(got.data);
        CHECK_OK(tutti_linear_forward(twin.layer, other, call_of(&twin)));
        CHECK_OK(tutti_linear_backward(twin.layer, other, call_of(&twin)));
        same_results(&m, &twin);
        twin.call.leaves = 1;
        CHECK_FAILS(TUTTI_ERR_STATE, "leaves",
                    tutti_linear_forward(twin.layer, other, call_of(&twin)));
        model_free(&twin);
        tutti_context_destroy(&other);
    }
    harness_where(NULL);
    size_t count = 0;
    unsigned char small[1];
    CHECK_FAILS(TUTTI_ERR_ARG, "capacity",
                tutti_context_tuning_get(ctx, small, sizeof small, &count));
    CHECK(count == given.count, "%zu bytes are asked for", count);
    free(given.data);
    model_free(&m);
    tutti_context_destroy(&ctx);
}

/* Of the bytes: 8 and 8 of a name and the sum over what follows; version, count, cuBLASLt's
 * version, 16 of the device and 256 of its name; and entries of 120, 8 and 8: a product, a mark, a
 * way. */
enum { SUM = 8, COVERED = 16, CUBLAS = 32, DEVICE = 56, ENTRIES = 312, MARK = 120, WAY = 128 };

static void put_sum(const bytes *b)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = COVERED; i < b->count; i++)
        hash = (hash ^ b->data[i]) * UINT64_C(0x100000001b3);
    memcpy(b->data + SUM, &hash, sizeof hash);
}

static void test_damaged(void)
{
    if (skips_host()) return;
    tutti_context *ctx = tuning_context(), *other = harness_new_context(0, 1);
    model m = model_make(ctx, ROWS), twin = model_make(other, ROWS);
    plan(&m);
    bytes given = choices_of(ctx);
    CHECK_OK(tutti_context_tuning_set(other, given.data, given.count));
    for (size_t i = 0; i < given.count && harness_failures() == 0; i++) {
        harness_where("byte %zu", i);
        given.data[i] ^= 1;
        CHECK_FAILS(TUTTI_ERR_DATA, "damaged",
                    tutti_context_tuning_set(other, given.data, given.count));
        given.data[i] ^= 1;
    }
    for (size_t i = 1; i <= given.count && harness_failures() == 0; i += 7) {
        harness_where("%zu bytes missing", i);
        if (i < given.count)
            CHECK_FAILS(TUTTI_ERR_DATA, "damaged",
                        tutti_context_tuning_set(other, given.data, given.count - i));
    }
    harness_where("one byte more");
    CHECK_FAILS(TUTTI_ERR_DATA, "damaged",
                tutti_context_tuning_set(other, given.data, given.count + 1));
    harness_where("refused before");
    CHECK(plan(&twin) == 0, "a refused set has changed the choices");

    harness_where("of another library");
    given.data[CUBLAS] ^= 1;
    put_sum(&given);
    CHECK_FAILS(TUTTI_ERR_UNSUPPORTED, "cuBLASLt",
                tutti_context_tuning_set(other, given.data, given.count));
    given.data[CUBLAS] ^= 1;
    harness_where("of another device");
    given.data[DEVICE] ^= 1;
    put_sum(&given);
    CHECK_FAILS(TUTTI_ERR_UNSUPPORTED, "here is",
                tutti_context_tuning_set(other, given.data, given.count));
    given.data[DEVICE] ^= 1;

    /* choices that exist nowhere are accepted, and refused where they would be used */
    static const int places[] = {MARK, WAY + 1, WAY + 7};
    for (int i = 0; i < HARNESS_COUNT(places); i++) {
        harness_where("a choice with a wrong byte %d", places[i]);
        given.data[ENTRIES + places[i]] ^= 0x80;
        put_sum(&given);
        CHECK_OK(tutti_context_tuning_set(other, given.data, given.count));
        CHECK_FAILS(TUTTI_ERR_UNSUPPORTED, "elsewhere",
                    tutti_linear_plan(twin.layer, other, call_of(&twin)));
        given.data[ENTRIES + places[i]] ^= 0x80;
    }
    harness_where("whole again");
    put_sum(&given);
    CHECK_OK(tutti_context_tuning_set(other, given.data, given.count));
    CHECK(plan(&twin) == 0, "something was measured");
    harness_where(NULL);
    free(given.data);
    model_free(&m);
    model_free(&twin);
    tutti_context_destroy(&ctx);
    tutti_context_destroy(&other);
}

static const harness_test tests[] = {{"leaves", test_leaves},
                                     {"nothing on the host", test_on_the_host},
                                     {"once", test_once},
                                     {"given", test_given},
                                     {"damaged", test_damaged}};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, "tuning", tests, HARNESS_COUNT(tests));
}
