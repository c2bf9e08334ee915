/* Tests of the batched matrix product. */
#include <stdlib.h>
#include <string.h>

#include "matrix.h"

/* Where sums do not cancel too much. */
static bool sharp(const trial *t, const trial_tensor *result)
{
    return !result->gradient && t->shapes[0].cols / t->shapes[0].lines <= 64 &&
           t->shapes[0].lines <= 64 && result->at->count >= 64 &&
           tutti_dtype_size(result->at->buffer.dtype) == 2;
}

/* The last ones are those of Triton's early tests of its product. */
static const matrix_shape shapes[] = {{1, "m=1,n=1,k=1"},       {4, "m=1,n=1,k=1"},
                                      {3, "m=1,n=7,k=3"},       {2, "m=7,n=1,k=3"},
                                      {2, "m=5,n=3,k=1"},       {1, "m=8,n=8,k=8"},
                                      {2, "m=1,n=129,k=65"},    {2, "m=129,n=1,k=65"},
                                      {2, "m=33,n=65,k=1"},     {3, "m=31,n=17,k=33"},
                                      {2, "m=64,n=32,k=48"},    {1, "m=65,n=129,k=31"},
                                      {5, "m=16,n=16,k=257"},   {70, "m=3,n=2,k=4"},
                                      {1, "m=4,n=3,k=2051"},    {300, "m=1,n=1,k=2"},
                                      {2, "m=257,n=130,k=9"},   {1, "m=128,n=256,k=32"},
                                      {1, "m=107,n=233,k=256"}, {0, NULL}};
static const matrix_shape some[] = {
    {5, "m=16,n=8,k=24"},  {3, "m=13,n=9,k=7"},  {1, "m=24,n=40,k=32"},  {6, "m=1,n=5,k=9"},
    {4, "m=17,n=1,k=130"}, {40, "m=6,n=4,k=10"}, {2, "m=130,n=70,k=20"}, {0, NULL}};

#define TA "transpose_a=1"
#define TB "transpose_b=1"
static const char *const transposes[] = {"transpose_a=0", TA, TB, TA "," TB};
static const matrix_kind matmul = {
    .trial = {.name = "matmul", .sharp = sharp},
    .flags = MATRIX_OUTPUTS_ALONE,
    .variants = {"", TA, TB, TA "," TB, "allow_tf32=1", TA "," TB ",allow_tf32=1"},
    .common = 4,
    .shapes = shapes,
    .some = some,
    .small = "m=6,n=4,k=10",
};

#define EACH(type, op)                   \
    for (int type = 0; type < 4; type++) \
        for (int op = 0; op < HARNESS_COUNT(transposes); op++)

static trial_desc usual(int type, int op, int64_t batch, int64_t m, int64_t n, int64_t k)
{
    static const trial_kind blunt = {.name = "matmul"};
    return trial_usual(&blunt, batch, "m=%lld,n=%lld,k=%lld,dtype=%s,%s", (long long)m,
                       (long long)n, (long long)k, tutti_dtype_name(float_dtypes[type]),
                       transposes[op]);
}

/* Parts of wider tensors */

enum { WHOLES = 3, PLACES = 3, MIDDLE = 1 };
/* The orders of a tensor that has `PLACES` square matrices of each item: all items' first ones side
 * by side, as heads; each item's ones side by side; items one below another. */
enum { HEADS, TRIPLES, BELOW, ORDERS };

/* A call whose a and b are the outer places of one tensor, da and db those of another, c and dc the
 * first two of a third: nobody writes the other places. */
typedef struct wider {
    trial t;
    harness_buffer whole[WHOLES];
    double *values[WHOLES];
    tutti_tensor views[3][2];
} wider;
static const struct {
    int whole, place;
} homes[3][2] = {{{0, 0}, {1, 0}}, {{0, 2}, {1, 2}}, {{2, 0}, {2, MIDDLE}}};

static bool is_result(int slot, int gradient)
{
    return gradient == (slot < 2);
}

static tutti_tensor view_of(const harness_buffer *whole, int place, int order, int64_t items,
                            int64_t size)
{
    const int64_t triple = PLACES * size;
    const int64_t line = order == BELOW ? triple : items * triple;
    const int64_t item = order == HEADS ? size : order == TRIPLES ? triple : size * triple;
    const int64_t first = place * (order == HEADS ? items * size : size);
    return (tutti_tensor){
        .data = (char *)whole->data + first * (int64_t)tutti_dtype_size(whole->dtype),
        .dtype = whole->dtype,
        .ndim = 3,
        .dims = {items, size, size},
        .strides = {item, line, 1},
    };
}

/* Copies dense values to where a view has them in its buffer's values, or from there. */
static void copy(const harness_buffer *whole, double *values, const tutti_tensor *view,
                 double *dense, bool from)
{
    const int64_t first =
        ((char *)view->data - (char *)whole->data) / (int64_t)tutti_dtype_size(whole->dtype);
    for (int64_t i = 0, at = 0; i < view->dims[0]; i++)
        for (int64_t j = 0; j < view->dims[1]; j++)
            for (int64_t l = 0; l < view->dims[2]; l++, at++) {
                double *there = &values[first + i * view->strides[0] + j * view->strides[1] + l];
                *(from ? &dense[at] : there) = *(from ? there : &dense[at]);
            }
}

static void put_in_wider(wider *w, int order, int64_t size)
{
    trial *t = &w->t;
    const int64_t count = t->c.rows * size * size * PLACES;
    for (int b = 0; b < WHOLES; b++) {
        w->whole[b] = harness_buffer_make(t->ctx, t->shapes[0].dtype, 1, count, 0, 0);
        w->values[b] = harness_calloc((size_t)count, sizeof(double));
        for (int64_t i = 0; i < count; i++) w->values[b][i] = 3;
    }
    for (int s = 0; s < 3; s++)
        for (int g = 0; g < 2; g++) {
            const int b = homes[s][g].whole;
            tutti_tensor *view = &w->views[s][g];
            *view = view_of(&w->whole[b], homes[s][g].place, order, t->c.rows, size);
            if (!is_result(s, g))
                copy(&w->whole[b], w->values[b], view, t->slots[s][g].values, false);
        }
    for (int b = 0; b < WHOLES; b++) harness_buffer_put(t->ctx, &w->whole[b], w->values[b]);
    t->call.in[0] = &w->views[0][0], t->call.din[0] = &w->views[0][1];
    t->call.in[1] = &w->views[1][0], t->call.din[1] = &w->views[1][1];
    t->call.out[0] = &w->views[2][0], t->call.upstream[0] = &w->views[2][1];
}

/* Moves the results to where the trial looks for them; nothing else has changed. */
static void get_from_wider(wider *w)
{
    trial *t = &w->t;
    for (int b = 0; b < WHOLES; b++) {
        const int64_t count = w->whole[b].cols;
        double *now = harness_calloc((size_t)count, sizeof *now);
        harness_buffer_get(t->ctx, &w->whole[b], now);
        CHECK(harness_buffer_intact(t->ctx, &w->whole[b]), "buffer %d: written outside", b);
        for (int s = 0; s < 3; s++)
            for (int g = 0; g < 2; g++) {
                if (homes[s][g].whole != b || !is_result(s, g)) continue;
                operand *o = &t->slots[s][g];
                copy(&w->whole[b], now, &w->views[s][g], o->values, true);
                copy(&w->whole[b], w->values[b], &w->views[s][g], o->values, false);
                operand_put(t->ctx, o);
            }
        for (int64_t i = 0; i < count; i++)
            CHECK(now[i] == w->values[b][i], "buffer %d: element %lld is %g, was %g", b,
                  (long long)i, now[i], w->values[b][i]);
        free(now);
    }
}

static void check_wider(const trial_desc *c, int order, int64_t size)
{
    wider w;
    if (!trial_open(&w.t, harness_context(), c)) return;
    put_in_wider(&w, order, size);
    if (CHECK_OK(tutti_layer_plan(w.t.layer, w.t.ctx, &w.t.call)) && trial_run(&w.t)) {
        get_from_wider(&w);
        trial_check(&w.t);
    }
    for (int b = 0; b < WHOLES; b++) {
        harness_buffer_free(w.t.ctx, &w.whole[b]);
        free(w.values[b]);
    }
    trial_close(&w.t);
}

static void test_wider(void)
{
    static const int64_t sizes[] = {2, 5, 16, 33};
    EACH(type, op)
    for (int order = 0; order < ORDERS; order++)
        for (int i = 0; i < HARNESS_COUNT(sizes); i++) {
            if (harness_quick() && (i + op + order) % 4) continue;
            const trial_desc c = usual(type, op, 1 + 2 * i, sizes[i], sizes[i], sizes[i]);
            check_wider(&c, order, sizes[i]);
        }
}

/* Bits and numbers of items */

static void check_item_bits(int type, int op, int64_t m, int64_t n, int64_t k)
{
    enum { BATCH = 7 };
    const trial_desc many = usual(type, op, BATCH, m, n, k), one = usual(type, op, 1, m, n, k);
    trial t, alone;
    if (!trial_open(&t, harness_context(), &many) || !trial_open(&alone, harness_context(), &one))
        return;
    trial_run(&t);
    for (int64_t item = 0; item < BATCH; item += 3) {
        for (int i = 0; i < t.input_count; i++) {
            const operand *from = t.inputs[i].at, *to = alone.inputs[i].at;
            memcpy(to->values, from->values + item * to->count,
                   (size_t)to->count * sizeof *to->values);
        }
        trial_put(&alone);
        trial_run(&alone);
        for (int i = 0; i < t.result_count; i++)
            check_same_row(t.ctx, t.results[i].name, t.results[i].at, item, alone.results[i].at);
    }
    trial_close(&t);
    trial_close(&alone);
}

/* On the host an item's bits do not depend on the others. */
static void test_item_bits(void)
{
    if (harness_backend() != TUTTI_BACKEND_HOST) {
        harness_skip("cuBLASLt's algorithm depends on the number of items");
        return;
    }
    EACH(type, op)
    {
        check_item_bits(type, op, 5, 3, 7);
        check_item_bits(type, op, 130, 70, 33);
    }
}

/* More items than one launch has. */
static void test_many_items(void)
{
    static const int64_t batches[] = {65535, 65536, 131075};
    for (int i = 0; i < HARNESS_COUNT(batches); i++) {
        if (harness_quick() && i != 1) continue;
        const trial_desc c = usual(i, i + 1, batches[i], 2, 3, 1 + i);
        trial_case(&c);
    }
}

/* Refused calls */

static void refused(trial *t, const char *word)
{
    CHECK_FAILS(TUTTI_ERR_ARG, word, tutti_layer_forward(t->layer, t->ctx, &t->call));
}

/* Messages name both shapes, and the stride. */
static void test_refused(void)
{
    const trial_desc c = usual(0, 0, 3, 4, 5, 6), transposed = usual(0, 3, 3, 4, 5, 6);
    trial t;
    if (!trial_open(&t, harness_context(), &c)) return;
    tutti_tensor a =
        tutti_tensor_make(t.slots[0][0].buffer.data, TUTTI_F32, 3, (const int64_t[]){3, 6, 4});
    t.call.in[0] = &a;
    refused(&t, "a is [3, 6, 4], want last dims [4, 6]");
    a = tutti_tensor_2d(a.data, TUTTI_F32, 3, 24);
    refused(&t, "a is [3, 24], want last dims [4, 6]");
    a = tutti_tensor_make(a.data, TUTTI_F32, 3, (const int64_t[]){2, 4, 6});
    refused(&t, "b has 3 rows, want 2");
    a = tutti_tensor_make(a.data, TUTTI_F32, 3, (const int64_t[]){3, 4, 6});
    a.strides[0] = 0; /* one for all items */
    refused(&t, "a has a row stride of 0, want >= 6");
    a.strides[0] = 6, a.strides[1] = 17; /* three items side by side need 18 */
    refused(&t, "a has 3 rows, 6 apart, of lines that are 17 apart");
    a.strides[0] = 23, a.strides[1] = 6;
    refused(&t, "a has 3 rows, 23 apart, of lines that are 6 apart");
    trial_close(&t);

    if (!trial_open(&t, harness_context(), &transposed)) return;
    tutti_tensor b =
        tutti_tensor_make(t.slots[1][0].buffer.data, TUTTI_F32, 3, (const int64_t[]){3, 6, 5});
    t.call.in[1] = &b;
    refused(&t, "b is [3, 6, 5], want last dims [5, 6]");
    trial_close(&t);
}

/* Of no items the strides do not count: those of parts of a batch without sequences may be 0. */
static void test_no_items(void)
{
    const trial_desc c = usual(0, 0, 3, 4, 5, 6);
    trial t;
    if (!trial_open(&t, harness_context(), &c)) return;
    tutti_tensor none[3];
    for (int i = 0; i < 3; i++) {
        const tutti_tensor *given = i < 2 ? t.call.in[i] : t.call.out[0];
        none[i] = *given;
        none[i].dims[0] = none[i].strides[1] = 0;
    }
    t.call.in[0] = &none[0], t.call.in[1] = &none[1], t.call.out[0] = &none[2];
    CHECK_OK(tutti_layer_forward(t.layer, t.ctx, &t.call));
    CHECK_OK(tutti_context_synchronize(t.ctx));
    trial_close(&t);
}

/* da and db in one tensor must be in different parts of it. */
static void test_shared(void)
{
    enum { SIZE = 4, ITEMS = 3 };
    for (int order = 0; order < ORDERS; order++) {
        const trial_desc c = usual(0, 0, ITEMS, SIZE, SIZE, SIZE);
        wider w;
        if (!trial_open(&w.t, harness_context(), &c)) return;
        put_in_wider(&w, order, SIZE);
        CHECK_OK(tutti_layer_backward(w.t.layer, w.t.ctx, &w.t.call));
        w.views[1][1].data = (char *)w.views[1][1].data - sizeof(float); /* still between da's */
        CHECK_OK(tutti_layer_backward(w.t.layer, w.t.ctx, &w.t.call));
        const int64_t *strides = w.views[0][1].strides;
        const int64_t shared[] = {1, SIZE - 1, strides[0], strides[1], strides[0] + strides[1]};
        for (int i = 0; i < HARNESS_COUNT(shared); i++) { /* elements from da's first one */
            w.views[1][1].data = (float *)w.views[0][1].data + shared[i];
            CHECK_FAILS(TUTTI_ERR_ARG, "da and db share memory",
                        tutti_layer_backward(w.t.layer, w.t.ctx, &w.t.call));
        }
        for (int b = 0; b < WHOLES; b++) {
            harness_buffer_free(w.t.ctx, &w.whole[b]);
            free(w.values[b]);
        }
        trial_close(&w.t);
    }
}

int main(int argc, char **argv)
{
    static const harness_test own[] = {
        {"parts of wider tensors", test_wider},
        {"bits of an item", test_item_bits},
        {"many items", test_many_items},
        {"shapes and strides that do not fit", test_refused},
        {"no items", test_no_items},
        {"gradients in one tensor", test_shared},
    };
    return matrix_main(argc, argv, &matmul, own, HARNESS_COUNT(own));
}
