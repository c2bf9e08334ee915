/* Bad input for layer.h and the layers. */
#include <math.h>

#include "layer_fixture.h"

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

/* Of the layer that is open, which is closed. */
static void check_and_close(attempt_fn *attempt)
{
    check_call(attempt);
    close_layer();
}

static void bad_layer_forward(void)
{
    open_norm(true, true);
    CHECK_FAILS(TUTTI_ERR_ARG, "call", tutti_layer_forward(fix.layer, fix.ctx, NULL));
    check_and_close(forward);
    open_softmax();
    check_and_close(forward);
    open_linear(TUTTI_ACT_SILU, true);
    check_and_close(forward);
    open_cross_entropy();
    check_and_close(forward);
    open_embedding(true);
    check_and_close(forward);
}

static void bad_layer_backward(void)
{
    open_norm(false, true);
    CHECK_FAILS(TUTTI_ERR_ARG, "call", tutti_layer_backward(fix.layer, fix.ctx, NULL));
    check_and_close(backward);
    open_softmax();
    check_and_close(backward);
    open_linear(TUTTI_ACT_SILU, true);
    check_and_close(backward);
    open_cross_entropy();
    CHECK_FAILS(TUTTI_ERR_UNSUPPORTED, "backward", backward());
    close_layer();
    open_embedding(true);
    check_and_close(backward);
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
    tutti_layernorm_desc good = TUTTI_LAYERNORM_DESC_INIT;
    good.cols = COLS;
    CHECK_CREATE(layernorm, good);
    CHECK_DESC(layernorm, good, cols = 0, "cols");
    CHECK_DESC(layernorm, good, cols = -1, "cols");
    CHECK_DESC(layernorm, good, cols = (1 << 20) + 1, "cols");
    CHECK_DESC(layernorm, good, eps = NAN, "eps");
    CHECK_DESC(layernorm, good, eps = -1e-9, "eps");
    CHECK_DESC(layernorm, good, eps = INFINITY, "eps");
    CHECK_DESC(layernorm, good, x_dtype = bad.y_dtype = TUTTI_I32, "x_dtype");
    CHECK_DESC(layernorm, good, x_dtype = (tutti_dtype)99, "x_dtype");
    CHECK_DESC(layernorm, good, param_dtype = TUTTI_U8, "param_dtype");
    CHECK_DESC(layernorm, good, param_dtype = (tutti_dtype)-1, "param_dtype");
    CHECK_DESC(layernorm, good, y_dtype = TUTTI_BF16, "y_dtype"); /* neither x's nor the params' */
    CHECK_DESC(layernorm, good, y_dtype = TUTTI_U8, "y_dtype");
    CHECK_DESC(layernorm, good, has_gamma = 0, "has_beta");
}

static void bad_rmsnorm_create(void)
{
    tutti_rmsnorm_desc good = TUTTI_RMSNORM_DESC_INIT;
    good.cols = COLS;
    CHECK_CREATE(rmsnorm, good);
    CHECK_DESC(rmsnorm, good, cols = 0, "cols");
    CHECK_DESC(rmsnorm, good, cols = (1 << 20) + 1, "cols");
    CHECK_DESC(rmsnorm, good, eps = NAN, "eps");
    CHECK_DESC(rmsnorm, good, eps = -1e-9, "eps");
    CHECK_DESC(rmsnorm, good, x_dtype = bad.y_dtype = TUTTI_I32, "x_dtype");
    CHECK_DESC(rmsnorm, good, param_dtype = (tutti_dtype)99, "param_dtype");
    CHECK_DESC(rmsnorm, good, y_dtype = TUTTI_F16, "y_dtype");
}

/* The wrappers of the norm that `centered` names. */
static bool centered;

static tutti_status norm_forward(void)
{
    return (centered ? tutti_layernorm_forward : tutti_rmsnorm_forward)(
        fix.layer, fix.ctx, fix.call.in[0], fix.call.out[0], fix.call.saved);
}
static tutti_status norm_forward_residual(void)
{
    return (centered ? tutti_layernorm_forward_residual : tutti_rmsnorm_forward_residual)(
        fix.layer, fix.ctx, fix.call.in[0], fix.call.in[1], fix.call.out[1], fix.call.out[0],
        fix.call.saved);
}
static tutti_status norm_backward(void)
{
    return (centered ? tutti_layernorm_backward : tutti_rmsnorm_backward)(
        fix.layer, fix.ctx, fix.call.in[0], fix.call.saved, fix.call.upstream[0],
        fix.call.upstream[1], fix.call.din[0], fix.call.flags);
}

/* A wrapper refuses a layer of the other kind and none; leaves a good one open. */
static void open_for_wrapper(attempt_fn *wrapper)
{
    open_norm(!centered, true);
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", wrapper());
    close_layer();
    open_norm(centered, true);
    check_owners(wrapper);
}

static void check_forward(void)
{
    open_norm(centered, true);
    check_slot("x", &fix.call.in[0], SETS_ROWS, forward);
    check_slot("residual", &fix.call.in[1], OPTIONAL, forward);
    check_slot("y", &fix.call.out[0], 0, forward);
    check_slot("sum", &fix.call.out[1], OPTIONAL, forward);
    check_overlap("y", &fix.call.out[0], fix.call.in[0], 0, forward);
    check_overlap("y", &fix.call.out[0], fix.call.out[1], 0, forward);
    check_overlap("sum", &fix.call.out[1], fix.call.in[0], IN_PLACE, forward);
    check_overlap("sum", &fix.call.out[1], fix.call.in[1], IN_PLACE, forward);
    CHECK_WITH(fix.call.in[1] = NULL, "sum", forward);
    close_layer();
    open_norm(centered, false);
    CHECK_FAILS(TUTTI_ERR_STATE, "gamma", forward());
    close_layer();

    open_for_wrapper(norm_forward);
    CHECK_WITH(fix.call.in[0] = NULL, ": x", norm_forward);
    CHECK_WITH(fix.call.out[0] = NULL, ": y", norm_forward);
    CHECK_WITH(fix.call.saved = (char *)fix.saved.data + 4, "saved", norm_forward);
    CHECK_WITH(fix.call.out[0] = fix.call.in[0], ": y", norm_forward);
    close_layer();
}

static void check_forward_residual(void)
{
    open_for_wrapper(norm_forward_residual);
    CHECK_WITH(fix.call.in[0] = NULL, ": x", norm_forward_residual);
    CHECK_WITH(fix.call.in[1] = NULL, ": residual", norm_forward_residual);
    CHECK_WITH(fix.call.out[0] = NULL, ": y", norm_forward_residual);
    CHECK_WITH(fix.call.out[1] = fix.call.out[0], ": y", norm_forward_residual);
    CHECK_WITH(fix.call.saved = (char *)fix.saved.data + 8, "saved", norm_forward_residual);
    close_layer();
}

static void check_backward(void)
{
    open_norm(centered, true);
    check_slot("x", &fix.call.in[0], SETS_ROWS, backward);
    check_slot("dy", &fix.call.upstream[0], 0, backward);
    check_slot("dsum", &fix.call.upstream[1], OPTIONAL, backward);
    check_slot("dx", &fix.call.din[0], OPTIONAL, backward);
    check_overlap("dx", &fix.call.din[0], fix.call.in[0], 0, backward);
    check_overlap("dx", &fix.call.din[0], fix.call.upstream[0], IN_PLACE, backward);
    check_overlap("dx", &fix.call.din[0], fix.call.upstream[1], IN_PLACE, backward);
    CHECK_WITH(fix.call.saved = NULL, "saved", backward);
    close_layer();
    open_norm(centered, false);
    fix.call.saved = fix.call.out[1]->data;
    CHECK_FAILS(TUTTI_ERR_STATE, "gamma", backward());
    close_layer();

    open_for_wrapper(norm_backward);
    CHECK_WITH(fix.call.in[0] = NULL, ": x", norm_backward);
    CHECK_WITH(fix.call.saved = NULL, "saved", norm_backward);
    CHECK_WITH(fix.call.upstream[0] = NULL, ": dy", norm_backward);
    CHECK_WITH(fix.call.din[0] = fix.call.in[0], ": dx", norm_backward);
    CHECK_WITH(fix.call.din[0] = NULL, "dsum", norm_backward);
    CHECK_WITH(fix.call.flags = 4, "flags", norm_backward);
    close_layer();
}

static void bad_layernorm_forward(void)
{
    centered = true;
    check_forward();
}
static void bad_rmsnorm_forward(void)
{
    centered = false;
    check_forward();
}
static void bad_layernorm_forward_residual(void)
{
    centered = true;
    check_forward_residual();
}
static void bad_rmsnorm_forward_residual(void)
{
    centered = false;
    check_forward_residual();
}
static void bad_layernorm_backward(void)
{
    centered = true;
    check_backward();
}
static void bad_rmsnorm_backward(void)
{
    centered = false;
    check_backward();
}

/* Softmax */

static void bad_softmax_create(void)
{
    tutti_softmax_desc good = TUTTI_SOFTMAX_DESC_INIT;
    good.cols = COLS;
    CHECK_CREATE(softmax, good);
    CHECK_DESC(softmax, good, cols = 0, "cols");
    CHECK_DESC(softmax, good, cols = -5, "cols");
    CHECK_DESC(softmax, good, cols = (1 << 20) + 1, "cols");
    CHECK_DESC(softmax, good, dtype = TUTTI_I32, "dtype");
    CHECK_DESC(softmax, good, dtype = (tutti_dtype)99, "dtype");
    CHECK_DESC(softmax, good, scale = NAN, "scale");
    CHECK_DESC(softmax, good, scale = -INFINITY, "scale");
    CHECK_DESC(softmax, good, causal_period = -1, "causal_period");
}

static tutti_status softmax_forward(void)
{
    return tutti_softmax_forward(fix.layer, fix.ctx, fix.call.in[0], fix.call.out[0],
                                 fix.call.first_row);
}
static tutti_status softmax_backward(void)
{
    return tutti_softmax_backward(fix.layer, fix.ctx, fix.call.out[0], fix.call.upstream[0],
                                  fix.call.din[0], fix.call.first_row);
}

static void bad_softmax_forward(void)
{
    open_softmax();
    check_slot("x", &fix.call.in[0], SETS_ROWS, forward);
    check_slot("y", &fix.call.out[0], 0, forward);
    check_overlap("y", &fix.call.out[0], fix.call.in[0], IN_PLACE, forward);
    check_owners(softmax_forward);
    CHECK_WITH(fix.call.in[0] = NULL, ": x", softmax_forward);
    CHECK_WITH(fix.call.out[0] = NULL, ": y", softmax_forward);
    CHECK_WITH(fix.call.first_row = -1, "first_row", softmax_forward);
    close_layer();
    open_norm(true, true);
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", softmax_forward());
    close_layer();
}

static void bad_softmax_backward(void)
{
    open_softmax();
    check_slot("y", &fix.call.out[0], SETS_ROWS, backward);
    check_slot("dy", &fix.call.upstream[0], 0, backward);
    check_slot("dx", &fix.call.din[0], 0, backward);
    check_overlap("dx", &fix.call.din[0], fix.call.out[0], 0, backward);
    check_overlap("dx", &fix.call.din[0], fix.call.upstream[0], IN_PLACE, backward);
    check_owners(softmax_backward);
    CHECK_WITH(fix.call.out[0] = NULL, ": y", softmax_backward);
    CHECK_WITH(fix.call.upstream[0] = NULL, ": dy", softmax_backward);
    CHECK_WITH(fix.call.din[0] = NULL, ": dx", softmax_backward);
    CHECK_WITH(fix.call.first_row = -7, "first_row", softmax_backward);
    close_layer();
    open_norm(true, true);
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", softmax_backward());
    close_layer();
}

/* Linear */

static void bad_linear_create(void)
{
    tutti_linear_desc good = TUTTI_LINEAR_DESC_INIT;
    good.in = COLS;
    good.out = OUT;
    CHECK_CREATE(linear, good);
    CHECK_DESC(linear, good, in = 0, "in is");
    CHECK_DESC(linear, good, in = -1, "in is");
    CHECK_DESC(linear, good, in = INT64_C(1) << 31, "in is");
    CHECK_DESC(linear, good, out = 0, "out");
    CHECK_DESC(linear, good, out = INT64_MAX, "out");
    CHECK_DESC(linear, good, dtype = TUTTI_I32, "dtype");
    CHECK_DESC(linear, good, dtype = (tutti_dtype)99, "dtype");
    CHECK_DESC(linear, good, activation = (tutti_activation)99, "activation");
    CHECK_DESC(linear, good, activation = (tutti_activation)-1, "activation");
    good.activation = TUTTI_ACT_LEAKY_RELU;
    CHECK_DESC(linear, good, slope = 0, "slope");
    CHECK_DESC(linear, good, slope = -0.1, "slope");
    CHECK_DESC(linear, good, slope = NAN, "slope");
    CHECK_DESC(linear, good, slope = INFINITY, "slope");
}

static tutti_status linear_forward(void)
{
    return tutti_linear_forward(fix.layer, fix.ctx, fix.call.in[0], fix.call.out[0],
                                fix.call.saved);
}
static tutti_status linear_backward(void)
{
    return tutti_linear_backward(fix.layer, fix.ctx, fix.call.in[0], fix.call.out[0],
                                 fix.call.saved, fix.call.upstream[0], fix.call.din[0],
                                 fix.call.flags);
}

static void bad_linear_forward(void)
{
    open_linear(TUTTI_ACT_GELU, true);
    check_slot("x", &fix.call.in[0], SETS_ROWS, forward);
    check_slot("y", &fix.call.out[0], 0, forward);
    check_overlap("y", &fix.call.out[0], fix.call.in[0], 0, forward);
    check_owners(linear_forward);
    CHECK_WITH(fix.call.in[0] = NULL, ": x", linear_forward);
    CHECK_WITH(fix.call.out[0] = NULL, ": y", linear_forward);
    CHECK_WITH(fix.call.saved = (char *)fix.saved.data + 1, "saved", linear_forward);
    close_layer();
    open_linear(TUTTI_ACT_NONE, false);
    CHECK_FAILS(TUTTI_ERR_STATE, "weight", forward());
    close_layer();
    open_softmax();
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", linear_forward());
    close_layer();
}

static void bad_linear_backward(void)
{
    open_linear(TUTTI_ACT_RELU, true);
    check_slot("x", &fix.call.in[0], SETS_ROWS, backward);
    check_slot("y", &fix.call.out[0], 0, backward);
    check_slot("dy", &fix.call.upstream[0], 0, backward);
    check_slot("dx", &fix.call.din[0], OPTIONAL, backward);
    check_overlap("dx", &fix.call.din[0], fix.call.in[0], 0, backward);
    check_overlap("dx", &fix.call.din[0], fix.call.out[0], 0, backward);
    check_overlap("dx", &fix.call.din[0], fix.call.upstream[0], 0, backward);
    check_owners(linear_backward);
    CHECK_WITH(fix.call.in[0] = NULL, ": x", linear_backward);
    CHECK_WITH(fix.call.out[0] = NULL, ": y", linear_backward);
    CHECK_WITH(fix.call.upstream[0] = NULL, ": dy", linear_backward);
    CHECK_WITH(fix.call.din[0] = fix.call.in[0], ": dx", linear_backward);
    CHECK_WITH(fix.call.flags = 2, "flags", linear_backward);
    close_layer();
    open_linear(TUTTI_ACT_SILU, true);
    CHECK_WITH(fix.call.saved = NULL, "saved", backward);
    close_layer();
    open_linear(TUTTI_ACT_NONE, false);
    CHECK_FAILS(TUTTI_ERR_STATE, "weight", backward());
    close_layer();
    open_softmax();
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", linear_backward());
    close_layer();
    open_linear(TUTTI_ACT_NONE, true);
    check_gradient_type();
    close_layer();
}

/* Cross-entropy */

static void bad_cross_entropy_create(void)
{
    tutti_cross_entropy_desc good = TUTTI_CROSS_ENTROPY_DESC_INIT;
    good.cols = COLS;
    CHECK_CREATE(cross_entropy, good);
    CHECK_DESC(cross_entropy, good, cols = 0, "cols");
    CHECK_DESC(cross_entropy, good, cols = -1, "cols");
    CHECK_DESC(cross_entropy, good, cols = (1 << 20) + 1, "cols");
    CHECK_DESC(cross_entropy, good, dtype = TUTTI_U8, "dtype");
    CHECK_DESC(cross_entropy, good, dtype = (tutti_dtype)99, "dtype");
}

static tutti_status cross_entropy_forward(void)
{
    return tutti_cross_entropy_forward(fix.layer, fix.ctx, fix.call.in[0], fix.call.in[1],
                                       fix.call.out[0], fix.call.out[1], fix.call.out[2],
                                       fix.call.step);
}

/* Elements that are not one after the other. */
static void check_gaps(const char *word, const tutti_tensor **place)
{
    const tutti_tensor *good = *place;
    tutti_tensor bad = *good;
    bad.strides[0] = 2;
    *place = &bad;
    CHECK_FAILS(TUTTI_ERR_ARG, word, forward());
    *place = good;
}

static void bad_cross_entropy_forward(void)
{
    open_cross_entropy();
    check_slot("logits", &fix.call.in[0], SETS_ROWS, forward);
    check_slot("labels", &fix.call.in[1], VECTOR, forward);
    check_slot("loss", &fix.call.out[0], VECTOR | OPTIONAL, forward);
    check_slot("loss_sum", &fix.call.out[1], VECTOR | OPTIONAL, forward);
    check_slot("dlogits", &fix.call.out[2], OPTIONAL, forward);
    check_overlap("dlogits", &fix.call.out[2], fix.call.in[0], IN_PLACE, forward);
    check_gaps("labels", &fix.call.in[1]);
    check_gaps("loss", &fix.call.out[0]);
    check_owners(cross_entropy_forward);
    CHECK_WITH(fix.call.in[0] = NULL, "logits", cross_entropy_forward);
    CHECK_WITH(fix.call.in[1] = NULL, "labels", cross_entropy_forward);
    check_foreign_step(cross_entropy_forward);
    close_layer();
    open_softmax();
    fix.call.in[1] = fix.call.in[0];
    fix.call.out[0] = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", cross_entropy_forward());
    close_layer();
}

/* Embedding */

static void bad_embedding_create(void)
{
    tutti_embedding_desc good = TUTTI_EMBEDDING_DESC_INIT;
    good.vocab = OUT;
    good.cols = COLS;
    CHECK_CREATE(embedding, good);
    CHECK_DESC(embedding, good, vocab = 0, "vocab");
    CHECK_DESC(embedding, good, vocab = -1, "vocab");
    CHECK_DESC(embedding, good, vocab = INT64_C(1) << 31, "vocab");
    CHECK_DESC(embedding, good, vocab = INT64_MAX, "vocab");
    CHECK_DESC(embedding, good, cols = 0, "cols");
    CHECK_DESC(embedding, good, cols = -1, "cols");
    CHECK_DESC(embedding, good, cols = (1 << 20) + 1, "cols");
    CHECK_DESC(embedding, good, cols = INT64_MIN, "cols");
    CHECK_DESC(embedding, good, dtype = TUTTI_I32, "dtype");
    CHECK_DESC(embedding, good, dtype = TUTTI_U8, "dtype");
    CHECK_DESC(embedding, good, dtype = (tutti_dtype)99, "dtype");
    CHECK_DESC(embedding, good, dtype = (tutti_dtype)-1, "dtype");
}

static tutti_status embedding_forward(void)
{
    return tutti_embedding_forward(fix.layer, fix.ctx, fix.call.in[0], fix.call.out[0]);
}
static tutti_status embedding_backward(void)
{
    return tutti_embedding_backward(fix.layer, fix.ctx, fix.call.in[0], fix.call.upstream[0],
                                    fix.call.flags);
}

/* Tokens that are not one after the other, or too many. */
static void check_tokens(attempt_fn *attempt)
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
    check_slot("tokens", &fix.call.in[0], VECTOR | SETS_ROWS, forward);
    check_slot("y", &fix.call.out[0], 0, forward);
    check_overlap("y", &fix.call.out[0], fix.call.in[0], 0, forward);
    check_tokens(forward);
    check_owners(embedding_forward);
    CHECK_WITH(fix.call.in[0] = NULL, ": tokens", embedding_forward);
    CHECK_WITH(fix.call.out[0] = NULL, ": y", embedding_forward);
    close_layer();
    open_embedding(false);
    CHECK_FAILS(TUTTI_ERR_STATE, "weight", forward());
    close_layer();
    open_softmax();
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", embedding_forward());
    close_layer();
}

static void bad_embedding_backward(void)
{
    open_embedding(true);
    check_slot("tokens", &fix.call.in[0], VECTOR | SETS_ROWS, backward);
    check_slot("dy", &fix.call.upstream[0], 0, backward);
    check_overlap("dy", &fix.call.upstream[0], fix.call.in[0], 0, backward);
    check_tokens(backward);
    check_owners(embedding_backward);
    CHECK_WITH(fix.call.in[0] = NULL, ": tokens", embedding_backward);
    CHECK_WITH(fix.call.upstream[0] = NULL, ": dy", embedding_backward);
    CHECK_WITH(fix.call.flags = 2, "flags", embedding_backward);
    CHECK_WITH(fix.call.din[0] = fix.call.in[0], "din", backward);
    close_layer();
    open_embedding(false);
    CHECK_FAILS(TUTTI_ERR_STATE, "weight", backward());
    close_layer();
    open_softmax();
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", embedding_backward());
    close_layer();
    open_embedding(true);
    check_gradient_type();
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
