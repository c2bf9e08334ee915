/* The fixture of the bad-input tests of the layers; see layer_fixture.h. */
#include "layer_fixture.h"

#include <stdio.h>
#include <string.h>

layer_fixture fix;

/* Opening and closing */

static const tutti_tensor *operand(tutti_dtype dtype, int64_t rows, int64_t cols)
{
    harness_buffer *buffer = &fix.buffers[fix.count];
    *buffer = harness_buffer_make(fix.ctx, dtype, rows, cols, 0, 0);
    fix.tensors[fix.count] = harness_buffer_tensor(buffer);
    return &fix.tensors[fix.count++];
}

static const tutti_tensor *matrix(int64_t cols)
{
    return operand(TUTTI_F32, ROWS, cols);
}

static const tutti_tensor *vector(tutti_dtype dtype, int64_t count)
{
    const tutti_tensor *tensor = operand(dtype, 1, count);
    fix.tensors[fix.count - 1] = tutti_tensor_1d(tensor->data, dtype, count);
    return tensor;
}

static void begin(const char *name)
{
    fix.ctx = harness_context();
    fix.name = name;
    fix.call = (tutti_call)TUTTI_CALL_INIT;
}

static void bind_all(void)
{
    for (int i = 0; i < tutti_layer_param_count(fix.layer); i++) {
        tutti_param *param = tutti_layer_param(fix.layer, i);
        int64_t count = tutti_tensor_count(&param->value);
        fix.params[i] = harness_buffer_make(fix.ctx, TUTTI_F32, 1, count, 0, 0);
        fix.grads[i] = harness_buffer_make(fix.ctx, TUTTI_F32, 1, count, 0, 0);
        tutti_tensor value = param->value, grad = param->value;
        value.data = fix.params[i].data;
        grad.data = fix.grads[i].data;
        CHECK_OK(tutti_param_bind(param, &value, &grad));
    }
    size_t bytes = tutti_layer_saved_bytes(fix.layer, ROWS);
    fix.saved = harness_buffer_make(fix.ctx, TUTTI_U8, 1, (int64_t)bytes, 0, 0);
    fix.call.saved = bytes ? fix.saved.data : NULL;
}

void open_norm(bool centered, bool bound)
{
    begin(centered ? "layernorm" : "rmsnorm");
    if (centered) {
        tutti_layernorm_desc desc = TUTTI_LAYERNORM_DESC_INIT;
        desc.cols = COLS;
        CHECK_OK(tutti_layernorm_create(fix.ctx, &desc, &fix.layer));
    } else {
        tutti_rmsnorm_desc desc = TUTTI_RMSNORM_DESC_INIT;
        desc.cols = COLS;
        CHECK_OK(tutti_rmsnorm_create(fix.ctx, &desc, &fix.layer));
    }
    if (bound) bind_all();
    for (int i = 0; i < 2; i++) {
        fix.call.in[i] = matrix(COLS);
        fix.call.out[i] = matrix(COLS);
        fix.call.upstream[i] = matrix(COLS);
    }
    fix.call.din[0] = matrix(COLS);
}

void open_softmax(void)
{
    begin("softmax");
    tutti_softmax_desc desc = TUTTI_SOFTMAX_DESC_INIT;
    desc.cols = COLS;
    CHECK_OK(tutti_softmax_create(fix.ctx, &desc, &fix.layer));
    fix.call.in[0] = matrix(COLS);
    fix.call.out[0] = matrix(COLS);
    fix.call.upstream[0] = matrix(COLS);
    fix.call.din[0] = matrix(COLS);
}

void open_linear(tutti_activation activation, bool bound)
{
    begin("linear");
    tutti_linear_desc desc = TUTTI_LINEAR_DESC_INIT;
    desc.in = COLS;
    desc.out = OUT;
    desc.activation = activation;
    CHECK_OK(tutti_linear_create(fix.ctx, &desc, &fix.layer));
    if (bound) bind_all();
    fix.call.in[0] = matrix(COLS);
    fix.call.out[0] = matrix(OUT);
    fix.call.upstream[0] = matrix(OUT);
    fix.call.din[0] = matrix(COLS);
}

void open_cross_entropy(void)
{
    begin("cross_entropy");
    tutti_cross_entropy_desc desc = TUTTI_CROSS_ENTROPY_DESC_INIT;
    desc.cols = COLS;
    CHECK_OK(tutti_cross_entropy_create(fix.ctx, &desc, &fix.layer));
    fix.call.in[0] = matrix(COLS);
    fix.call.in[1] = vector(TUTTI_I32, ROWS);
    fix.call.out[0] = vector(TUTTI_F32, ROWS);
    fix.call.out[1] = vector(TUTTI_F64, 1);
    fix.call.out[2] = matrix(COLS);
}

void open_embedding(bool bound)
{
    begin("embedding");
    tutti_embedding_desc desc = TUTTI_EMBEDDING_DESC_INIT;
    desc.vocab = OUT;
    desc.cols = COLS;
    CHECK_OK(tutti_embedding_create(fix.ctx, &desc, &fix.layer));
    if (bound) bind_all();
    fix.call.in[0] = vector(TUTTI_I32, ROWS);
    fix.call.out[0] = matrix(COLS);
    fix.call.upstream[0] = matrix(COLS);
}

void check_untouched(void)
{
    for (int i = 0; i < fix.count; i++)
        CHECK(harness_buffer_unchanged(fix.ctx, &fix.buffers[i]),
              "%s: a refused call wrote to tensor %d", fix.name, i);
    for (int i = 0; i < 2; i++)
        if (fix.grads[i].mirror)
            CHECK(harness_buffer_unchanged(fix.ctx, &fix.grads[i]),
                  "%s: a refused call wrote to gradient %d", fix.name, i);
    if (fix.saved.mirror)
        CHECK(harness_buffer_unchanged(fix.ctx, &fix.saved), "%s: a refused call wrote to saved",
              fix.name);
}

void close_layer(void)
{
    check_untouched();
    tutti_layer_destroy(&fix.layer);
    for (int i = 0; i < fix.count; i++) harness_buffer_free(fix.ctx, &fix.buffers[i]);
    for (int i = 0; i < 2; i++) {
        if (fix.params[i].mirror) harness_buffer_free(fix.ctx, &fix.params[i]);
        if (fix.grads[i].mirror) harness_buffer_free(fix.ctx, &fix.grads[i]);
    }
    if (fix.saved.mirror) harness_buffer_free(fix.ctx, &fix.saved);
    fix.count = 0;
}

tutti_status forward(void)
{
    return tutti_layer_forward(fix.layer, fix.ctx, &fix.call);
}
tutti_status backward(void)
{
    return tutti_layer_backward(fix.layer, fix.ctx, &fix.call);
}

/* Tensors */

/* "softmax: y" */
static const char *word_of(const char *slot)
{
    static char word[64];
    snprintf(word, sizeof word, "%s: %s", fix.name, slot);
    return word;
}

/* Leading dimensions that no single stride reaches. */
static void split_rows(tutti_tensor *t)
{
    int64_t cols = t->dims[1];
    t->ndim = 3;
    memcpy(t->dims, (int64_t[]){ROWS, 2, cols}, 3 * sizeof(int64_t));
    memcpy(t->strides, (int64_t[]){5 * cols, cols, 1}, 3 * sizeof(int64_t));
}

/* One change of the tensor `bad`, which stands in its slot. */
#define CHECK_TENSOR(change, word)                   \
    do {                                             \
        bad = *good;                                 \
        change;                                      \
        harness_where("%s with %s", slot, #change);  \
        CHECK_FAILS(TUTTI_ERR_ARG, word, attempt()); \
        harness_where(NULL);                         \
    } while (0)

void check_slot(const char *slot, const tutti_tensor **place, int kind, attempt_fn *attempt)
{
    const char *word = word_of(slot);
    const tutti_tensor *good = *place;
    tutti_tensor bad;
    *place = &bad;
    CHECK_TENSOR(bad.dtype = bad.dtype == TUTTI_BF16 ? TUTTI_F16 : TUTTI_BF16, word);
    CHECK_TENSOR(bad.dtype = TUTTI_U8, word);
    CHECK_TENSOR(bad.dtype = (tutti_dtype)99, word);
    CHECK_TENSOR(bad.ndim = 0, word);
    CHECK_TENSOR(bad.ndim = TUTTI_MAX_DIMS + 1, word);
    CHECK_TENSOR(bad.ndim = -1, word);
    CHECK_TENSOR(bad.dims[0] = -1, word);
    CHECK_TENSOR(bad.data = NULL, word);
    CHECK_TENSOR(bad.data = (char *)bad.data + 1, word); /* not aligned to its elements */
    if (!(kind & VECTOR)) {
        CHECK_TENSOR(bad.dims[1] += 1, word);
        CHECK_TENSOR(bad.dims[1] -= 1, word);
        CHECK_TENSOR(bad.dims[1] = 0, word);
        CHECK_TENSOR(bad.dims[1] = -bad.dims[1], word);
        CHECK_TENSOR(bad.strides[1] = 2, word);
        CHECK_TENSOR(bad.strides[1] = -1, word);
        CHECK_TENSOR(bad.strides[0] = bad.dims[1] - 1, word); /* rows overlap */
        CHECK_TENSOR(bad.strides[0] = 0, word);
        CHECK_TENSOR(bad.strides[0] = -bad.dims[1], word);
        CHECK_TENSOR(bad.dims[0] = INT64_MAX, word);
        CHECK_TENSOR(bad.strides[0] = INT64_MAX, word);
        CHECK_TENSOR(split_rows(&bad), word);
    }
    CHECK_TENSOR(bad.dims[0] += 1, kind & SETS_ROWS ? "rows" : word);
    if (!(kind & OPTIONAL)) CHECK_TENSOR(*place = NULL, word);
    *place = good;
    check_untouched();
}

void check_overlap(const char *slot, const tutti_tensor **place, const tutti_tensor *other,
                   int kind, attempt_fn *attempt)
{
    const char *word = word_of(slot);
    const tutti_tensor *good = *place;
    tutti_tensor bad;
    *place = &bad;
    CHECK_TENSOR(bad.data = (char *)other->data + tutti_dtype_size(bad.dtype), word);
    if (!(kind & IN_PLACE)) CHECK_TENSOR(bad.data = other->data, word);
    CHECK_TENSOR((bad.data = other->data, bad.strides[0] += 1), word); /* with other rows */
    *place = good;
}

/* Calls */

void check_owners(attempt_fn *attempt)
{
    CHECK_WITH(fix.layer = NULL, "layer", attempt);
    CHECK_WITH(fix.ctx = NULL, "ctx", attempt);
}

void check_foreign_step(attempt_fn *attempt)
{
    if (!foreign_context()) return;
    tutti_step_block *step = NULL;
    CHECK_OK(tutti_step_block_create(foreign_context(), &step));
    CHECK_WITH(fix.call.step = step, "step", attempt);
    tutti_step_block_destroy(&step);
}

void check_call(attempt_fn *attempt)
{
    CHECK_WITH(fix.call.flags = 2, "flags", attempt);
    CHECK_WITH(fix.call.flags = ~0u, "flags", attempt);
    CHECK_WITH(fix.call.first_row = -1, "first_row", attempt);
    CHECK_WITH(fix.call.first_row = INT64_MAX, "first_row", attempt);
    CHECK_WITH(fix.call.saved = (char *)fix.call.in[0]->data + 4, "saved", attempt);
    check_foreign_step(attempt);
    if (foreign_context()) CHECK_WITH(fix.ctx = foreign_context(), "ctx", attempt);
    check_owners(attempt);
    check_untouched();
}

void check_gradient_type(void)
{
    tutti_param *param = tutti_layer_param(fix.layer, 0);
    int64_t count = tutti_tensor_count(&param->value);
    harness_buffer memory = harness_buffer_make(fix.ctx, TUTTI_F64, 1, count, 0, 0);
    tutti_tensor value = param->value, grad = param->value;
    grad.dtype = TUTTI_F64;
    grad.data = memory.data;
    CHECK_OK(tutti_param_bind(param, &value, &grad));
    CHECK_FAILS(TUTTI_ERR_ARG, param->name, backward());
    CHECK(harness_buffer_unchanged(fix.ctx, &memory), "the gradient was written");
    harness_buffer_free(fix.ctx, &memory);
}
