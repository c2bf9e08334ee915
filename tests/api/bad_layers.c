/* Bad input for layer.h and the layers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bad_input.h"

enum { ROWS = 3, COLS = 6, OUT = 4, OPERANDS = 8 };

/* A layer with everything a call needs; calls go through tutti_layer_forward and _backward, or the
 * wrappers. */
static struct {
    tutti_context *ctx;
    const char *name;
    tutti_layer *layer;
    harness_buffer buffers[OPERANDS];
    tutti_tensor tensors[OPERANDS];
    int count;
    harness_buffer params[2], grads[2], saved;
    tutti_call call;
} fix;

static const tutti_tensor *operand(tutti_dtype dtype, int64_t rows, int64_t cols)
{
    harness_buffer *buffer = &fix.buffers[fix.count];
    *buffer = harness_buffer_make(fix.ctx, dtype, rows, cols, 0, 0);
    fix.tensors[fix.count] = harness_buffer_tensor(buffer);
    return &fix.tensors[fix.count++];
}

static const tutti_tensor *vector(tutti_dtype dtype, int64_t count)
{
    const tutti_tensor *tensor = operand(dtype, 1, count);
    fix.tensors[fix.count - 1] = tutti_tensor_1d(tensor->data, dtype, count);
    return tensor;
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

static void open_norm(bool centered, bool bound)
{
    fix.ctx = harness_context();
    fix.name = centered ? "layernorm" : "rmsnorm";
    fix.call = (tutti_call)TUTTI_CALL_INIT;
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
    fix.call.in[0] = operand(TUTTI_F32, ROWS, COLS);
    fix.call.in[1] = operand(TUTTI_F32, ROWS, COLS);
    fix.call.out[0] = operand(TUTTI_F32, ROWS, COLS);
    fix.call.out[1] = operand(TUTTI_F32, ROWS, COLS);
    fix.call.upstream[0] = operand(TUTTI_F32, ROWS, COLS);
    fix.call.upstream[1] = operand(TUTTI_F32, ROWS, COLS);
    fix.call.din[0] = operand(TUTTI_F32, ROWS, COLS);
}

static void open_softmax(void)
{
    fix.ctx = harness_context();
    fix.name = "softmax";
    fix.call = (tutti_call)TUTTI_CALL_INIT;
    tutti_softmax_desc desc = TUTTI_SOFTMAX_DESC_INIT;
    desc.cols = COLS;
    CHECK_OK(tutti_softmax_create(fix.ctx, &desc, &fix.layer));
    fix.call.in[0] = operand(TUTTI_F32, ROWS, COLS);
    fix.call.out[0] = operand(TUTTI_F32, ROWS, COLS);
    fix.call.upstream[0] = operand(TUTTI_F32, ROWS, COLS);
    fix.call.din[0] = operand(TUTTI_F32, ROWS, COLS);
}

static void open_linear(tutti_activation activation, bool bound)
{
    fix.ctx = harness_context();
    fix.name = "linear";
    fix.call = (tutti_call)TUTTI_CALL_INIT;
    tutti_linear_desc desc = TUTTI_LINEAR_DESC_INIT;
    desc.in = COLS;
    desc.out = OUT;
    desc.activation = activation;
    CHECK_OK(tutti_linear_create(fix.ctx, &desc, &fix.layer));
    if (bound) bind_all();
    fix.call.in[0] = operand(TUTTI_F32, ROWS, COLS);
    fix.call.out[0] = operand(TUTTI_F32, ROWS, OUT);
    fix.call.upstream[0] = operand(TUTTI_F32, ROWS, OUT);
    fix.call.din[0] = operand(TUTTI_F32, ROWS, COLS);
}

static void open_cross_entropy(void)
{
    fix.ctx = harness_context();
    fix.name = "cross_entropy";
    fix.call = (tutti_call)TUTTI_CALL_INIT;
    tutti_cross_entropy_desc desc = TUTTI_CROSS_ENTROPY_DESC_INIT;
    desc.cols = COLS;
    CHECK_OK(tutti_cross_entropy_create(fix.ctx, &desc, &fix.layer));
    fix.call.in[0] = operand(TUTTI_F32, ROWS, COLS);
    fix.call.in[1] = vector(TUTTI_I32, ROWS);
    fix.call.out[0] = vector(TUTTI_F32, ROWS);
    fix.call.out[1] = vector(TUTTI_F64, 1);
    fix.call.out[2] = operand(TUTTI_F32, ROWS, COLS);
}

static void open_embedding(bool bound)
{
    fix.ctx = harness_context();
    fix.name = "embedding";
    fix.call = (tutti_call)TUTTI_CALL_INIT;
    tutti_embedding_desc desc = TUTTI_EMBEDDING_DESC_INIT;
    desc.vocab = OUT;
    desc.cols = COLS;
    CHECK_OK(tutti_embedding_create(fix.ctx, &desc, &fix.layer));
    if (bound) bind_all();
    fix.call.in[0] = vector(TUTTI_I32, ROWS);
    fix.call.out[0] = operand(TUTTI_F32, ROWS, COLS);
    fix.call.upstream[0] = operand(TUTTI_F32, ROWS, COLS);
}

static void check_untouched(void)
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

static void close_layer(void)
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

static tutti_status forward(void)
{
    return tutti_layer_forward(fix.layer, fix.ctx, &fix.call);
}
static tutti_status backward(void)
{
    return tutti_layer_backward(fix.layer, fix.ctx, &fix.call);
}

/* A tensor wrong in way number `wrong`; false past the last. */
static bool spoil(tutti_tensor *t, int wrong)
{
    switch (wrong) {
    case 0:
        t->dtype = t->dtype == TUTTI_BF16 ? TUTTI_F16 : TUTTI_BF16;
        break;
    case 1:
        t->dtype = TUTTI_U8;
        break;
    case 2:
        t->dtype = (tutti_dtype)99;
        break;
    case 3:
        t->ndim = 0;
        break;
    case 4:
        t->ndim = TUTTI_MAX_DIMS + 1;
        break;
    case 5:
        t->ndim = -1;
        break;
    case 6:
        t->dims[0] = -1;
        break;
    case 7:
        t->data = NULL;
        break;
    case 8:
        t->data = (char *)t->data + 1;
        break; /* not aligned to its elements */
    default:
        return false;
    }
    return true;
}

/* Matrices alone, cols their columns. */
static bool spoil_matrix(tutti_tensor *t, int wrong)
{
    switch (wrong) {
    case 0:
        t->dims[1] += 1;
        break;
    case 1:
        t->dims[1] -= 1;
        break;
    case 2:
        t->dims[1] = 0;
        break;
    case 3:
        t->dims[1] = -t->dims[1];
        break;
    case 4:
        t->strides[1] = 2;
        break;
    case 5:
        t->strides[1] = -1;
        break;
    case 6:
        t->strides[0] = t->dims[1] - 1;
        break; /* rows overlap */
    case 7:
        t->strides[0] = 0;
        break;
    case 8:
        t->strides[0] = -t->dims[1];
        break;
    case 9:
        t->dims[0] = INT64_MAX;
        break;
    case 10:
        t->strides[0] = INT64_MAX;
        break;
    case 11: /* leading dimensions that no single stride reaches */
        t->ndim = 3;
        memcpy(t->dims, (int64_t[]){ROWS, 2, t->dims[1]}, 3 * sizeof(int64_t));
        memcpy(t->strides, (int64_t[]){5 * t->dims[2], t->dims[2], 1}, 3 * sizeof(int64_t));
        break;
    default:
        return false;
    }
    return true;
}

/* Every way in which the tensor of this slot can be wrong. */
static void check_slot(const char *slot, const tutti_tensor **place, bool optional, bool matrix,
                       bool first, tutti_status (*attempt)(void))
{
    char word[64];
    snprintf(word, sizeof word, "%s: %s", fix.name, slot);
    const tutti_tensor *good = *place;
    tutti_tensor bad;
    *place = &bad;
    for (int wrong = 0; bad = *good, spoil(&bad, wrong); wrong++) {
        harness_where("%s wrong in way %d", slot, wrong);
        CHECK_FAILS(TUTTI_ERR_ARG, word, attempt());
    }
    for (int wrong = 0; matrix && (bad = *good, spoil_matrix(&bad, wrong)); wrong++) {
        harness_where("%s a matrix wrong in way %d", slot, wrong);
        CHECK_FAILS(TUTTI_ERR_ARG, word, attempt());
    }
    harness_where("%s with another number of rows", slot);
    bad = *good;
    bad.dims[0] += 1;
    CHECK_FAILS(TUTTI_ERR_ARG, first ? "rows" : word, attempt());
    harness_where(NULL);
    if (!optional) {
        *place = NULL;
        CHECK_FAILS(TUTTI_ERR_ARG, word, attempt());
    }
    *place = good;
    check_untouched();
}

/* Two tensors of a call that may not share memory, or only exactly. */
static void check_overlap(const char *slot, const tutti_tensor **place, const tutti_tensor *other,
                          bool equal_ok, tutti_status (*attempt)(void))
{
    char word[64];
    snprintf(word, sizeof word, "%s: %s", fix.name, slot);
    const tutti_tensor *good = *place;
    tutti_tensor bad = *good;
    *place = &bad;
    bad.data = (char *)other->data + tutti_dtype_size(bad.dtype);
    CHECK_FAILS(TUTTI_ERR_ARG, word, attempt());
    bad.data = other->data;
    if (!equal_ok) CHECK_FAILS(TUTTI_ERR_ARG, word, attempt());
    bad.strides[0] += 1; /* the same place with other rows */
    CHECK_FAILS(TUTTI_ERR_ARG, word, attempt());
    *place = good;
}

/* What is common to all calls. */
static void check_call(tutti_status (*attempt)(void))
{
    tutti_call good = fix.call;
    fix.call.flags = 2;
    CHECK_FAILS(TUTTI_ERR_ARG, "flags", attempt());
    fix.call.flags = ~0u;
    CHECK_FAILS(TUTTI_ERR_ARG, "flags", attempt());
    fix.call = good;
    fix.call.first_row = -1;
    CHECK_FAILS(TUTTI_ERR_ARG, "first_row", attempt());
    fix.call.first_row = INT64_MAX;
    CHECK_FAILS(TUTTI_ERR_ARG, "first_row", attempt());
    fix.call = good;
    fix.call.saved = (void *)((uintptr_t)fix.call.in[0]->data + 4);
    CHECK_FAILS(TUTTI_ERR_ARG, "saved", attempt());
    fix.call = good;
    tutti_context *ctx = fix.ctx;
    if (foreign_context()) {
        tutti_step *step = NULL;
        CHECK_OK(tutti_step_create(foreign_context(), &step));
        fix.call.step = step;
        CHECK_FAILS(TUTTI_ERR_ARG, "step", attempt());
        fix.call = good;
        tutti_step_destroy(&step);
        fix.ctx = foreign_context();
        CHECK_FAILS(TUTTI_ERR_ARG, "ctx", attempt());
    }
    fix.ctx = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", attempt());
    fix.ctx = ctx;
    tutti_layer *layer = fix.layer;
    fix.layer = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", attempt());
    fix.layer = layer;
    check_untouched();
}

/* layer.h */

static void bad_layer_plan(void)
{
    open_softmax();
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", tutti_layer_plan(NULL, fix.ctx, 1));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_layer_plan(fix.layer, NULL, 1));
    CHECK_FAILS(TUTTI_ERR_ARG, "rows", tutti_layer_plan(fix.layer, fix.ctx, -1));
    CHECK_FAILS(TUTTI_ERR_ARG, "rows", tutti_layer_plan(fix.layer, fix.ctx, INT64_MAX));
    if (foreign_context())
        CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_layer_plan(fix.layer, foreign_context(), 1));
    close_layer();
    open_embedding(false);
    CHECK_FAILS(TUTTI_ERR_ARG, "rows", tutti_layer_plan(fix.layer, fix.ctx, INT64_C(1) << 31));
    close_layer();
}

static void bad_layer_forward(void)
{
    open_norm(true, true);
    CHECK_FAILS(TUTTI_ERR_ARG, "call", tutti_layer_forward(fix.layer, fix.ctx, NULL));
    check_call(forward);
    close_layer();
    open_softmax();
    check_call(forward);
    close_layer();
    open_linear(TUTTI_ACT_SILU, true);
    check_call(forward);
    close_layer();
    open_cross_entropy();
    check_call(forward);
    close_layer();
    open_embedding(true);
    check_call(forward);
    close_layer();
}

static void bad_layer_backward(void)
{
    open_norm(false, true);
    CHECK_FAILS(TUTTI_ERR_ARG, "call", tutti_layer_backward(fix.layer, fix.ctx, NULL));
    check_call(backward);
    close_layer();
    open_softmax();
    check_call(backward);
    close_layer();
    open_linear(TUTTI_ACT_SILU, true);
    check_call(backward);
    close_layer();
    open_cross_entropy();
    CHECK_FAILS(TUTTI_ERR_UNSUPPORTED, "backward", backward());
    close_layer();
    open_embedding(true);
    check_call(backward);
    close_layer();
}

static void bad_layer_saved_bytes(void)
{
    open_norm(true, false);
    CHECK(tutti_layer_saved_bytes(NULL, 1) == 0, "NULL wants memory");
    CHECK(tutti_layer_saved_bytes(fix.layer, -1) == 0, "-1 rows want memory");
    CHECK(tutti_layer_saved_bytes(fix.layer, 0) == 0, "0 rows want memory");
    close_layer();
}

static void bad_layer_param_count(void)
{
    CHECK(tutti_layer_param_count(NULL) == 0, "NULL has parameters");
}

static void bad_layer_param(void)
{
    open_norm(true, false);
    CHECK(!tutti_layer_param(NULL, 0), "NULL has a parameter");
    CHECK(!tutti_layer_param(fix.layer, -1) && !tutti_layer_param(fix.layer, 2),
          "a parameter that is not there");
    close_layer();
}

static void bad_layer_destroy(void)
{
    tutti_layer_destroy(NULL);
    tutti_layer *layer = NULL;
    tutti_layer_destroy(&layer);
    open_softmax();
    close_layer();
    CHECK(!fix.layer, "the pointer was not cleared");
}

static void bad_layer_type_get(void)
{
    CHECK(!tutti_layer_type_get(-1) && !tutti_layer_type_get(1000), "a kind that is not there");
}

static void bad_layer_type_of(void)
{
    CHECK(!tutti_layer_type_of(NULL), "NULL is of some kind");
}

static void bad_layer_create_by_name(void)
{
    tutti_context *ctx = harness_context();
    tutti_layer *layer = UNTOUCHED(tutti_layer);
    static const char *const cases[][3] = {
        /* kind, options, a word of the message */
        {"nonsense", "cols=4", "nonsense"},
        {"", "cols=4", "layer"},
        {"rmsnorm", NULL, "cols"},
        {"rmsnorm", "", "cols"},
        {"rmsnorm", "cols", "cols"},
        {"rmsnorm", "cols=", "cols"},
        {"rmsnorm", "=4", "option"},
        {"rmsnorm", "cols=4,", "option"},
        {"rmsnorm", ",cols=4", "option"},
        {"rmsnorm", "cols=4,cols=5", "cols"},
        {"rmsnorm", "cols=4,colour=5", "colour"},
        {"rmsnorm", "cols=4x", "cols"},
        {"rmsnorm", "cols=1e3", "cols"},
        {"rmsnorm", "cols=99999999999999999999", "cols"},
        {"rmsnorm", "cols=0", "cols"},
        {"rmsnorm", "cols=-4", "cols"},
        {"rmsnorm", "cols=4,eps=tiny", "eps"},
        {"rmsnorm", "cols=4,eps=nan", "eps"},
        {"rmsnorm", "cols=4,eps=-1", "eps"},
        {"rmsnorm", "cols=4,x_dtype=f8", "x_dtype"},
        {"rmsnorm", "cols=4,x_dtype=i32", "x_dtype"},
        {"rmsnorm", "cols=4,has_gamma=2", "has_gamma"},
        {"rmsnorm", "cols=4,has_gamma=yes", "has_gamma"},
        {"layernorm", "cols=4,has_gamma=0,has_beta=1", "has_beta"},
        {"softmax", "cols=4,scale=inf", "scale"},
        {"softmax", "cols=4,causal_period=-1", "causal_period"},
        {"linear", "in=4", "out"},
        {"linear", "in=4,out=4,activation=tanh", "activation"},
        {"linear", "in=4,out=4,activation=relu|gelu", "activation"},
        {"linear", "in=4,out=4,activation=rel", "activation"},
        {"linear", "in=4,out=4,activation=leaky_relu,slope=0", "slope"},
        {"cross_entropy", "cols=4,ignore_label=99999999999", "ignore_label"},
        {"cross_entropy", "cols=2000000", "cols"},
        {"embedding", "cols=4", "vocab"},
        {"embedding", "vocab=0,cols=4", "vocab"},
        {"embedding", "vocab=4,cols=2000000", "cols"},
    };
    for (int i = 0; i < HARNESS_COUNT(cases); i++) {
        harness_where("%s %s", cases[i][0], cases[i][1] ? cases[i][1] : "NULL");
        CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, cases[i][2],
                            tutti_layer_create_by_name(ctx, cases[i][0], cases[i][1], &layer));
    }
    harness_where(NULL);
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "ctx",
                        tutti_layer_create_by_name(NULL, "rmsnorm", "cols=4", &layer));
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "name",
                        tutti_layer_create_by_name(ctx, NULL, "cols=4", &layer));
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", tutti_layer_create_by_name(ctx, "rmsnorm", "cols=4", NULL));
}

/* Norms */

static void bad_layernorm_create(void)
{
    tutti_context *ctx = harness_context();
    tutti_layer *layer = UNTOUCHED(tutti_layer);
    tutti_layernorm_desc good = TUTTI_LAYERNORM_DESC_INIT;
    good.cols = COLS;
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "ctx", tutti_layernorm_create(NULL, &good, &layer));
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "desc", tutti_layernorm_create(ctx, NULL, &layer));
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", tutti_layernorm_create(ctx, &good, NULL));
    for (int wrong = 0;; wrong++) {
        tutti_layernorm_desc bad = good;
        const char *word = NULL;
        switch (wrong) {
        case 0:
            bad.cols = 0, word = "cols";
            break;
        case 1:
            bad.cols = -1, word = "cols";
            break;
        case 2:
            bad.cols = (1 << 20) + 1, word = "cols";
            break;
        case 3:
            bad.eps = NAN, word = "eps";
            break;
        case 4:
            bad.eps = -1e-9, word = "eps";
            break;
        case 5:
            bad.eps = INFINITY, word = "eps";
            break;
        case 6:
            bad.x_dtype = bad.y_dtype = TUTTI_I32, word = "x_dtype";
            break;
        case 7:
            bad.x_dtype = (tutti_dtype)99, word = "x_dtype";
            break;
        case 8:
            bad.param_dtype = TUTTI_U8, word = "param_dtype";
            break;
        case 9:
            bad.param_dtype = (tutti_dtype)-1, word = "param_dtype";
            break;
        case 10:
            bad.y_dtype = TUTTI_BF16, word = "y_dtype";
            break; /* neither x's nor the params' */
        case 11:
            bad.y_dtype = TUTTI_U8, word = "y_dtype";
            break;
        case 12:
            bad.has_gamma = 0, word = "has_beta";
            break;
        default:
            break;
        }
        if (!word) break;
        harness_where("wrong in way %d", wrong);
        CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, word, tutti_layernorm_create(ctx, &bad, &layer));
    }
}

static void bad_rmsnorm_create(void)
{
    tutti_context *ctx = harness_context();
    tutti_layer *layer = UNTOUCHED(tutti_layer);
    tutti_rmsnorm_desc good = TUTTI_RMSNORM_DESC_INIT;
    good.cols = COLS;
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "ctx", tutti_rmsnorm_create(NULL, &good, &layer));
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "desc", tutti_rmsnorm_create(ctx, NULL, &layer));
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", tutti_rmsnorm_create(ctx, &good, NULL));
    for (int wrong = 0;; wrong++) {
        tutti_rmsnorm_desc bad = good;
        const char *word = NULL;
        switch (wrong) {
        case 0:
            bad.cols = 0, word = "cols";
            break;
        case 1:
            bad.cols = (1 << 20) + 1, word = "cols";
            break;
        case 2:
            bad.eps = NAN, word = "eps";
            break;
        case 3:
            bad.eps = -1e-9, word = "eps";
            break;
        case 4:
            bad.x_dtype = bad.y_dtype = TUTTI_I32, word = "x_dtype";
            break;
        case 5:
            bad.param_dtype = (tutti_dtype)99, word = "param_dtype";
            break;
        case 6:
            bad.y_dtype = TUTTI_F16, word = "y_dtype";
            break;
        default:
            break;
        }
        if (!word) break;
        harness_where("wrong in way %d", wrong);
        CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, word, tutti_rmsnorm_create(ctx, &bad, &layer));
    }
}

/* The generic call, slot by slot; the wrappers hand over to it. */
static void check_norm_forward(bool centered)
{
    open_norm(centered, true);
    check_slot("x", &fix.call.in[0], false, true, true, forward);
    check_slot("residual", &fix.call.in[1], true, true, false, forward);
    check_slot("y", &fix.call.out[0], false, true, false, forward);
    check_slot("sum", &fix.call.out[1], true, true, false, forward);
    check_overlap("y", &fix.call.out[0], fix.call.in[0], false, forward);
    check_overlap("y", &fix.call.out[0], fix.call.out[1], false, forward);
    check_overlap("sum", &fix.call.out[1], fix.call.in[0], true, forward);
    check_overlap("sum", &fix.call.out[1], fix.call.in[1], true, forward);
    const tutti_tensor *residual = fix.call.in[1];
    fix.call.in[1] = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "sum", forward());
    fix.call.in[1] = residual;
    close_layer();
    open_norm(centered, false);
    CHECK_FAILS(TUTTI_ERR_STATE, "gamma", forward());
    close_layer();
}

static void check_norm_backward(bool centered)
{
    open_norm(centered, true);
    check_slot("x", &fix.call.in[0], false, true, true, backward);
    check_slot("dy", &fix.call.upstream[0], false, true, false, backward);
    check_slot("dsum", &fix.call.upstream[1], true, true, false, backward);
    check_slot("dx", &fix.call.din[0], true, true, false, backward);
    check_overlap("dx", &fix.call.din[0], fix.call.in[0], false, backward);
    check_overlap("dx", &fix.call.din[0], fix.call.upstream[0], true, backward);
    check_overlap("dx", &fix.call.din[0], fix.call.upstream[1], true, backward);
    void *saved = fix.call.saved;
    fix.call.saved = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "saved", backward());
    fix.call.saved = saved;
    close_layer();
    open_norm(centered, false);
    fix.call.saved = fix.call.out[1]->data;
    CHECK_FAILS(TUTTI_ERR_STATE, "gamma", backward());
    close_layer();
}

/* A wrapper refuses a NULL layer and one of another kind, and passes its arguments on in their
 * places. */
typedef tutti_status norm_forward_fn(tutti_layer *, tutti_context *, const tutti_tensor *,
                                     const tutti_tensor *, void *);
typedef tutti_status norm_residual_fn(tutti_layer *, tutti_context *, const tutti_tensor *,
                                      const tutti_tensor *, const tutti_tensor *,
                                      const tutti_tensor *, void *);
typedef tutti_status norm_backward_fn(tutti_layer *, tutti_context *, const tutti_tensor *,
                                      const void *, const tutti_tensor *, const tutti_tensor *,
                                      const tutti_tensor *, unsigned);

static void check_norm_forward_wrapper(bool centered, norm_forward_fn *call)
{
    check_norm_forward(centered);
    open_norm(!centered, true);
    const tutti_tensor *x = fix.call.in[0], *y = fix.call.out[0];
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", call(fix.layer, fix.ctx, x, y, NULL));
    close_layer();
    open_norm(centered, true);
    x = fix.call.in[0], y = fix.call.out[0];
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", call(NULL, fix.ctx, x, y, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", call(fix.layer, NULL, x, y, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, ": x", call(fix.layer, fix.ctx, NULL, y, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, ": y", call(fix.layer, fix.ctx, x, NULL, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "saved", call(fix.layer, fix.ctx, x, y, (char *)fix.saved.data + 4));
    CHECK_FAILS(TUTTI_ERR_ARG, ": y", call(fix.layer, fix.ctx, x, x, fix.saved.data));
    close_layer();
}

static void check_norm_residual_wrapper(bool centered, norm_residual_fn *call)
{
    open_norm(!centered, true);
    const tutti_tensor *x = fix.call.in[0], *residual = fix.call.in[1];
    const tutti_tensor *y = fix.call.out[0], *sum = fix.call.out[1];
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", call(fix.layer, fix.ctx, x, residual, sum, y, NULL));
    close_layer();
    open_norm(centered, true);
    x = fix.call.in[0], residual = fix.call.in[1], y = fix.call.out[0], sum = fix.call.out[1];
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", call(NULL, fix.ctx, x, residual, sum, y, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", call(fix.layer, NULL, x, residual, sum, y, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, ": x", call(fix.layer, fix.ctx, NULL, residual, sum, y, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, ": residual", call(fix.layer, fix.ctx, x, NULL, sum, y, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, ": y", call(fix.layer, fix.ctx, x, residual, sum, NULL, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, ": y", call(fix.layer, fix.ctx, x, residual, y, y, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "saved",
                call(fix.layer, fix.ctx, x, residual, sum, y, (char *)fix.saved.data + 8));
    close_layer();
}

static void check_norm_backward_wrapper(bool centered, norm_backward_fn *call)
{
    check_norm_backward(centered);
    open_norm(!centered, true);
    const tutti_tensor *x = fix.call.in[0], *dy = fix.call.upstream[0];
    const tutti_tensor *dsum = fix.call.upstream[1], *dx = fix.call.din[0];
    CHECK_FAILS(TUTTI_ERR_ARG, "layer",
                call(fix.layer, fix.ctx, x, fix.call.saved, dy, dsum, dx, 0));
    close_layer();
    open_norm(centered, true);
    x = fix.call.in[0], dy = fix.call.upstream[0], dsum = fix.call.upstream[1];
    dx = fix.call.din[0];
    void *saved = fix.call.saved;
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", call(NULL, fix.ctx, x, saved, dy, dsum, dx, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", call(fix.layer, NULL, x, saved, dy, dsum, dx, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, ": x", call(fix.layer, fix.ctx, NULL, saved, dy, dsum, dx, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, "saved", call(fix.layer, fix.ctx, x, NULL, dy, dsum, dx, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, ": dy", call(fix.layer, fix.ctx, x, saved, NULL, dsum, dx, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, ": dx", call(fix.layer, fix.ctx, x, saved, dy, dsum, x, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, "dsum", call(fix.layer, fix.ctx, x, saved, dy, dsum, NULL, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, "flags", call(fix.layer, fix.ctx, x, saved, dy, dsum, dx, 4));
    close_layer();
}

static void bad_layernorm_forward(void)
{
    check_norm_forward_wrapper(true, tutti_layernorm_forward);
}
static void bad_rmsnorm_forward(void)
{
    check_norm_forward_wrapper(false, tutti_rmsnorm_forward);
}
static void bad_layernorm_forward_residual(void)
{
    check_norm_residual_wrapper(true, tutti_layernorm_forward_residual);
}
static void bad_rmsnorm_forward_residual(void)
{
    check_norm_residual_wrapper(false, tutti_rmsnorm_forward_residual);
}
static void bad_layernorm_backward(void)
{
    check_norm_backward_wrapper(true, tutti_layernorm_backward);
}
static void bad_rmsnorm_backward(void)
{
    check_norm_backward_wrapper(false, tutti_rmsnorm_backward);
}

/* Softmax */

static void bad_softmax_create(void)
{
    tutti_context *ctx = harness_context();
    tutti_layer *layer = UNTOUCHED(tutti_layer);
    tutti_softmax_desc good = TUTTI_SOFTMAX_DESC_INIT;
    good.cols = COLS;
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "ctx", tutti_softmax_create(NULL, &good, &layer));
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "desc", tutti_softmax_create(ctx, NULL, &layer));
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", tutti_softmax_create(ctx, &good, NULL));
    for (int wrong = 0;; wrong++) {
        tutti_softmax_desc bad = good;
        const char *word = NULL;
        switch (wrong) {
        case 0:
            bad.cols = 0, word = "cols";
            break;
        case 1:
            bad.cols = -5, word = "cols";
            break;
        case 2:
            bad.cols = (1 << 20) + 1, word = "cols";
            break;
        case 3:
            bad.dtype = TUTTI_I32, word = "dtype";
            break;
        case 4:
            bad.dtype = (tutti_dtype)99, word = "dtype";
            break;
        case 5:
            bad.scale = NAN, word = "scale";
            break;
        case 6:
            bad.scale = -INFINITY, word = "scale";
            break;
        case 7:
            bad.causal_period = -1, word = "causal_period";
            break;
        default:
            break;
        }
        if (!word) break;
        harness_where("wrong in way %d", wrong);
        CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, word, tutti_softmax_create(ctx, &bad, &layer));
    }
}

static void bad_softmax_forward(void)
{
    open_softmax();
    check_slot("x", &fix.call.in[0], false, true, true, forward);
    check_slot("y", &fix.call.out[0], false, true, false, forward);
    check_overlap("y", &fix.call.out[0], fix.call.in[0], true, forward);
    const tutti_tensor *x = fix.call.in[0], *y = fix.call.out[0];
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", tutti_softmax_forward(NULL, fix.ctx, x, y, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_softmax_forward(fix.layer, NULL, x, y, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, ": x", tutti_softmax_forward(fix.layer, fix.ctx, NULL, y, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, ": y", tutti_softmax_forward(fix.layer, fix.ctx, x, NULL, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, "first_row", tutti_softmax_forward(fix.layer, fix.ctx, x, y, -1));
    close_layer();
    open_norm(true, true);
    CHECK_FAILS(TUTTI_ERR_ARG, "layer",
                tutti_softmax_forward(fix.layer, fix.ctx, fix.call.in[0], fix.call.out[0], 0));
    close_layer();
}

static void bad_softmax_backward(void)
{
    open_softmax();
    check_slot("y", &fix.call.out[0], false, true, true, backward);
    check_slot("dy", &fix.call.upstream[0], false, true, false, backward);
    check_slot("dx", &fix.call.din[0], false, true, false, backward);
    check_overlap("dx", &fix.call.din[0], fix.call.out[0], false, backward);
    check_overlap("dx", &fix.call.din[0], fix.call.upstream[0], true, backward);
    const tutti_tensor *y = fix.call.out[0], *dy = fix.call.upstream[0], *dx = fix.call.din[0];
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", tutti_softmax_backward(NULL, fix.ctx, y, dy, dx, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_softmax_backward(fix.layer, NULL, y, dy, dx, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, ": y", tutti_softmax_backward(fix.layer, fix.ctx, NULL, dy, dx, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, ": dy", tutti_softmax_backward(fix.layer, fix.ctx, y, NULL, dx, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, ": dx", tutti_softmax_backward(fix.layer, fix.ctx, y, dy, NULL, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, "first_row",
                tutti_softmax_backward(fix.layer, fix.ctx, y, dy, dx, -7));
    close_layer();
    open_norm(true, true);
    CHECK_FAILS(TUTTI_ERR_ARG, "layer",
                tutti_softmax_backward(fix.layer, fix.ctx, fix.call.out[0], fix.call.upstream[0],
                                       fix.call.din[0], 0));
    close_layer();
}

/* Linear */

static void bad_linear_create(void)
{
    tutti_context *ctx = harness_context();
    tutti_layer *layer = UNTOUCHED(tutti_layer);
    tutti_linear_desc good = TUTTI_LINEAR_DESC_INIT;
    good.in = COLS;
    good.out = OUT;
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "ctx", tutti_linear_create(NULL, &good, &layer));
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "desc", tutti_linear_create(ctx, NULL, &layer));
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", tutti_linear_create(ctx, &good, NULL));
    for (int wrong = 0;; wrong++) {
        tutti_linear_desc bad = good;
        const char *word = NULL;
        switch (wrong) {
        case 0:
            bad.in = 0, word = "in is";
            break;
        case 1:
            bad.in = -1, word = "in is";
            break;
        case 2:
            bad.in = INT64_C(1) << 31, word = "in is";
            break;
        case 3:
            bad.out = 0, word = "out";
            break;
        case 4:
            bad.out = INT64_MAX, word = "out";
            break;
        case 5:
            bad.dtype = TUTTI_I32, word = "dtype";
            break;
        case 6:
            bad.dtype = (tutti_dtype)99, word = "dtype";
            break;
        case 7:
            bad.activation = (tutti_activation)99, word = "activation";
            break;
        case 8:
            bad.activation = (tutti_activation)-1, word = "activation";
            break;
        case 9:
            bad.activation = TUTTI_ACT_LEAKY_RELU, bad.slope = 0, word = "slope";
            break;
        case 10:
            bad.activation = TUTTI_ACT_LEAKY_RELU, bad.slope = -0.1, word = "slope";
            break;
        case 11:
            bad.activation = TUTTI_ACT_LEAKY_RELU, bad.slope = NAN, word = "slope";
            break;
        case 12:
            bad.activation = TUTTI_ACT_LEAKY_RELU, bad.slope = INFINITY, word = "slope";
            break;
        default:
            break;
        }
        if (!word) break;
        harness_where("wrong in way %d", wrong);
        CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, word, tutti_linear_create(ctx, &bad, &layer));
    }
}

static void bad_linear_forward(void)
{
    open_linear(TUTTI_ACT_GELU, true);
    check_slot("x", &fix.call.in[0], false, true, true, forward);
    check_slot("y", &fix.call.out[0], false, true, false, forward);
    check_overlap("y", &fix.call.out[0], fix.call.in[0], false, forward);
    const tutti_tensor *x = fix.call.in[0], *y = fix.call.out[0];
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", tutti_linear_forward(NULL, fix.ctx, x, y, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_linear_forward(fix.layer, NULL, x, y, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, ": x", tutti_linear_forward(fix.layer, fix.ctx, NULL, y, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, ": y", tutti_linear_forward(fix.layer, fix.ctx, x, NULL, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "saved",
                tutti_linear_forward(fix.layer, fix.ctx, x, y, (char *)fix.saved.data + 1));
    close_layer();
    open_linear(TUTTI_ACT_NONE, false);
    CHECK_FAILS(TUTTI_ERR_STATE, "weight", forward());
    close_layer();
    open_softmax();
    CHECK_FAILS(TUTTI_ERR_ARG, "layer",
                tutti_linear_forward(fix.layer, fix.ctx, fix.call.in[0], fix.call.out[0], NULL));
    close_layer();
}

static void bad_linear_backward(void)
{
    open_linear(TUTTI_ACT_RELU, true);
    check_slot("x", &fix.call.in[0], false, true, true, backward);
    check_slot("y", &fix.call.out[0], false, true, false, backward);
    check_slot("dy", &fix.call.upstream[0], false, true, false, backward);
    check_slot("dx", &fix.call.din[0], true, true, false, backward);
    check_overlap("dx", &fix.call.din[0], fix.call.in[0], false, backward);
    check_overlap("dx", &fix.call.din[0], fix.call.out[0], false, backward);
    check_overlap("dx", &fix.call.din[0], fix.call.upstream[0], false, backward);
    const tutti_tensor *x = fix.call.in[0], *y = fix.call.out[0], *dy = fix.call.upstream[0];
    const tutti_tensor *dx = fix.call.din[0];
    CHECK_FAILS(TUTTI_ERR_ARG, "layer",
                tutti_linear_backward(NULL, fix.ctx, x, y, NULL, dy, dx, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx",
                tutti_linear_backward(fix.layer, NULL, x, y, NULL, dy, dx, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, ": x",
                tutti_linear_backward(fix.layer, fix.ctx, NULL, y, NULL, dy, dx, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, ": y",
                tutti_linear_backward(fix.layer, fix.ctx, x, NULL, NULL, dy, dx, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, ": dy",
                tutti_linear_backward(fix.layer, fix.ctx, x, y, NULL, NULL, dx, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, ": dx",
                tutti_linear_backward(fix.layer, fix.ctx, x, y, NULL, dy, x, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, "flags",
                tutti_linear_backward(fix.layer, fix.ctx, x, y, NULL, dy, dx, 2));
    close_layer();
    open_linear(TUTTI_ACT_SILU, true);
    fix.call.saved = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "saved", backward());
    close_layer();
    open_linear(TUTTI_ACT_NONE, false);
    CHECK_FAILS(TUTTI_ERR_STATE, "weight", backward());
    close_layer();
    open_softmax();
    CHECK_FAILS(TUTTI_ERR_ARG, "layer",
                tutti_linear_backward(fix.layer, fix.ctx, fix.call.in[0], fix.call.out[0], NULL,
                                      fix.call.upstream[0], fix.call.din[0], 0));
    close_layer();

    /* gradients of another type than the arithmetic's */
    open_linear(TUTTI_ACT_NONE, true);
    tutti_param *weight = tutti_layer_param(fix.layer, 0);
    harness_buffer memory = harness_buffer_make(fix.ctx, TUTTI_F64, OUT, COLS, 0, 0);
    tutti_tensor value = weight->value, grad = harness_buffer_tensor(&memory);
    CHECK_OK(tutti_param_bind(weight, &value, &grad));
    CHECK_FAILS(TUTTI_ERR_ARG, "weight", backward());
    CHECK(harness_buffer_unchanged(fix.ctx, &memory), "the gradient was written");
    harness_buffer_free(fix.ctx, &memory);
    close_layer();
}

/* Cross-entropy */

static void bad_cross_entropy_create(void)
{
    tutti_context *ctx = harness_context();
    tutti_layer *layer = UNTOUCHED(tutti_layer);
    tutti_cross_entropy_desc good = TUTTI_CROSS_ENTROPY_DESC_INIT, bad;
    good.cols = COLS;
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "ctx",
                        tutti_cross_entropy_create(NULL, &good, &layer));
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "desc",
                        tutti_cross_entropy_create(ctx, NULL, &layer));
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", tutti_cross_entropy_create(ctx, &good, NULL));
    static const int64_t cols[] = {0, -1, (1 << 20) + 1};
    for (int i = 0; i < HARNESS_COUNT(cols); i++) {
        bad = good, bad.cols = cols[i];
        CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "cols",
                            tutti_cross_entropy_create(ctx, &bad, &layer));
    }
    bad = good, bad.dtype = TUTTI_U8;
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "dtype",
                        tutti_cross_entropy_create(ctx, &bad, &layer));
    bad = good, bad.dtype = (tutti_dtype)99;
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "dtype",
                        tutti_cross_entropy_create(ctx, &bad, &layer));
}

static void bad_cross_entropy_forward(void)
{
    open_cross_entropy();
    check_slot("logits", &fix.call.in[0], false, true, true, forward);
    check_slot("labels", &fix.call.in[1], false, false, false, forward);
    check_slot("loss", &fix.call.out[0], true, false, false, forward);
    check_slot("loss_sum", &fix.call.out[1], true, false, false, forward);
    check_slot("dlogits", &fix.call.out[2], true, true, false, forward);
    check_overlap("dlogits", &fix.call.out[2], fix.call.in[0], true, forward);
    const tutti_tensor *good = fix.call.in[1];
    tutti_tensor bad = *good;
    bad.strides[0] = 2;
    fix.call.in[1] = &bad;
    CHECK_FAILS(TUTTI_ERR_ARG, "labels", forward());
    fix.call.in[1] = good;
    bad = *fix.call.out[0];
    good = fix.call.out[0];
    bad.strides[0] = 2;
    fix.call.out[0] = &bad;
    CHECK_FAILS(TUTTI_ERR_ARG, "loss", forward());
    fix.call.out[0] = good;
    const tutti_tensor *x = fix.call.in[0], *labels = fix.call.in[1], *loss = fix.call.out[0];
    const tutti_tensor *sum = fix.call.out[1], *dx = fix.call.out[2];
    CHECK_FAILS(TUTTI_ERR_ARG, "layer",
                tutti_cross_entropy_forward(NULL, fix.ctx, x, labels, loss, sum, dx, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx",
                tutti_cross_entropy_forward(fix.layer, NULL, x, labels, loss, sum, dx, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "logits",
                tutti_cross_entropy_forward(fix.layer, fix.ctx, NULL, labels, loss, sum, dx, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "labels",
                tutti_cross_entropy_forward(fix.layer, fix.ctx, x, NULL, loss, sum, dx, NULL));
    if (foreign_context()) {
        tutti_step *step = NULL;
        CHECK_OK(tutti_step_create(foreign_context(), &step));
        CHECK_FAILS(
            TUTTI_ERR_ARG, "step",
            tutti_cross_entropy_forward(fix.layer, fix.ctx, x, labels, loss, sum, dx, step));
        tutti_step_destroy(&step);
    }
    close_layer();
    open_softmax();
    tutti_tensor some = *fix.call.in[0];
    CHECK_FAILS(
        TUTTI_ERR_ARG, "layer",
        tutti_cross_entropy_forward(fix.layer, fix.ctx, &some, &some, NULL, NULL, NULL, NULL));
    close_layer();
}

/* Embedding */

static void bad_embedding_create(void)
{
    tutti_context *ctx = harness_context();
    tutti_layer *layer = UNTOUCHED(tutti_layer);
    tutti_embedding_desc good = TUTTI_EMBEDDING_DESC_INIT, bad;
    good.vocab = OUT;
    good.cols = COLS;
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "ctx", tutti_embedding_create(NULL, &good, &layer));
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "desc", tutti_embedding_create(ctx, NULL, &layer));
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", tutti_embedding_create(ctx, &good, NULL));
    static const int64_t vocabs[] = {0, -1, INT64_C(1) << 31, INT64_MAX};
    for (int i = 0; i < HARNESS_COUNT(vocabs); i++) {
        bad = good, bad.vocab = vocabs[i];
        CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "vocab",
                            tutti_embedding_create(ctx, &bad, &layer));
    }
    static const int64_t cols[] = {0, -1, (1 << 20) + 1, INT64_MIN};
    for (int i = 0; i < HARNESS_COUNT(cols); i++) {
        bad = good, bad.cols = cols[i];
        CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "cols",
                            tutti_embedding_create(ctx, &bad, &layer));
    }
    static const tutti_dtype dtypes[] = {TUTTI_I32, TUTTI_U8, (tutti_dtype)99, (tutti_dtype)-1};
    for (int i = 0; i < HARNESS_COUNT(dtypes); i++) {
        bad = good, bad.dtype = dtypes[i];
        CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "dtype",
                            tutti_embedding_create(ctx, &bad, &layer));
    }
}

/* Tokens that are not one after the other, or too many. */
static void check_tokens(tutti_status (*attempt)(void))
{
    const tutti_tensor *good = fix.call.in[0];
    tutti_tensor bad = *good;
    fix.call.in[0] = &bad;
    bad.strides[0] = 2;
    CHECK_FAILS(TUTTI_ERR_ARG, "tokens", attempt());
    bad = *good;
    bad.dims[0] = INT64_C(1) << 31;
    CHECK_FAILS(TUTTI_ERR_ARG, "rows", attempt());
    fix.call.in[0] = good;
    check_untouched();
}

static void bad_embedding_forward(void)
{
    open_embedding(true);
    check_slot("tokens", &fix.call.in[0], false, false, true, forward);
    check_slot("y", &fix.call.out[0], false, true, false, forward);
    check_overlap("y", &fix.call.out[0], fix.call.in[0], false, forward);
    check_tokens(forward);
    const tutti_tensor *tokens = fix.call.in[0], *y = fix.call.out[0];
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", tutti_embedding_forward(NULL, fix.ctx, tokens, y));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_embedding_forward(fix.layer, NULL, tokens, y));
    CHECK_FAILS(TUTTI_ERR_ARG, ": tokens", tutti_embedding_forward(fix.layer, fix.ctx, NULL, y));
    CHECK_FAILS(TUTTI_ERR_ARG, ": y", tutti_embedding_forward(fix.layer, fix.ctx, tokens, NULL));
    close_layer();
    open_embedding(false);
    CHECK_FAILS(TUTTI_ERR_STATE, "weight", forward());
    close_layer();
    open_softmax();
    CHECK_FAILS(TUTTI_ERR_ARG, "layer",
                tutti_embedding_forward(fix.layer, fix.ctx, fix.call.in[0], fix.call.out[0]));
    close_layer();
}

static void bad_embedding_backward(void)
{
    open_embedding(true);
    check_slot("tokens", &fix.call.in[0], false, false, true, backward);
    check_slot("dy", &fix.call.upstream[0], false, true, false, backward);
    check_overlap("dy", &fix.call.upstream[0], fix.call.in[0], false, backward);
    check_tokens(backward);
    const tutti_tensor *tokens = fix.call.in[0], *dy = fix.call.upstream[0];
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", tutti_embedding_backward(NULL, fix.ctx, tokens, dy, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_embedding_backward(fix.layer, NULL, tokens, dy, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, ": tokens",
                tutti_embedding_backward(fix.layer, fix.ctx, NULL, dy, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, ": dy",
                tutti_embedding_backward(fix.layer, fix.ctx, tokens, NULL, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, "flags",
                tutti_embedding_backward(fix.layer, fix.ctx, tokens, dy, 2));
    fix.call.din[0] = tokens;
    CHECK_FAILS(TUTTI_ERR_ARG, "din", backward());
    close_layer();
    open_embedding(false);
    CHECK_FAILS(TUTTI_ERR_STATE, "weight", backward());
    close_layer();
    open_softmax();
    CHECK_FAILS(
        TUTTI_ERR_ARG, "layer",
        tutti_embedding_backward(fix.layer, fix.ctx, fix.call.in[0], fix.call.upstream[0], 0));
    close_layer();

    /* a gradient of another type than the arithmetic's */
    open_embedding(true);
    tutti_param *weight = tutti_layer_param(fix.layer, 0);
    harness_buffer memory = harness_buffer_make(fix.ctx, TUTTI_F64, OUT, COLS, 0, 0);
    tutti_tensor value = weight->value, grad = harness_buffer_tensor(&memory);
    CHECK_OK(tutti_param_bind(weight, &value, &grad));
    CHECK_FAILS(TUTTI_ERR_ARG, "weight", backward());
    CHECK(harness_buffer_unchanged(fix.ctx, &memory), "the gradient was written");
    harness_buffer_free(fix.ctx, &memory);
    close_layer();
}

const harness_test bad_layers[] = {
    {"tutti_layer_plan", bad_layer_plan},
    {"tutti_layer_forward", bad_layer_forward},
    {"tutti_layer_backward", bad_layer_backward},
    {"tutti_layer_saved_bytes", bad_layer_saved_bytes},
    {"tutti_layer_param_count", bad_layer_param_count},
    {"tutti_layer_param", bad_layer_param},
    {"tutti_layer_destroy", bad_layer_destroy},
    {"tutti_layer_type_get", bad_layer_type_get},
    {"tutti_layer_type_of", bad_layer_type_of},
    {"tutti_layer_create_by_name", bad_layer_create_by_name},
    {"tutti_layernorm_create", bad_layernorm_create},
    {"tutti_layernorm_forward", bad_layernorm_forward},
    {"tutti_layernorm_forward_residual", bad_layernorm_forward_residual},
    {"tutti_layernorm_backward", bad_layernorm_backward},
    {"tutti_rmsnorm_create", bad_rmsnorm_create},
    {"tutti_rmsnorm_forward", bad_rmsnorm_forward},
    {"tutti_rmsnorm_forward_residual", bad_rmsnorm_forward_residual},
    {"tutti_rmsnorm_backward", bad_rmsnorm_backward},
    {"tutti_softmax_create", bad_softmax_create},
    {"tutti_softmax_forward", bad_softmax_forward},
    {"tutti_softmax_backward", bad_softmax_backward},
    {"tutti_linear_create", bad_linear_create},
    {"tutti_linear_forward", bad_linear_forward},
    {"tutti_linear_backward", bad_linear_backward},
    {"tutti_cross_entropy_create", bad_cross_entropy_create},
    {"tutti_cross_entropy_forward", bad_cross_entropy_forward},
    {"tutti_embedding_create", bad_embedding_create},
    {"tutti_embedding_forward", bad_embedding_forward},
    {"tutti_embedding_backward", bad_embedding_backward},
    {NULL, NULL},
};
