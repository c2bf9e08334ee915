/* Bad input for layer.h: what all layers share. */
#include "layer_fixture.h"

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

    /* rows and columns that are allowed, but not together */
    tutti_linear_desc desc = TUTTI_LINEAR_DESC_INIT;
    desc.in = INT32_MAX;
    desc.out = 1;
    tutti_layer *wide = NULL;
    CHECK_OK(tutti_linear_create(fix.ctx, &desc, &wide));
    CHECK_FAILS(TUTTI_ERR_ARG, "rows", tutti_layer_plan(wide, fix.ctx, INT64_C(1) << 30));
    tutti_layer_destroy(&wide);
}

/* Of the layer that is open, which is closed. */
static void check_and_close(attempt_fn *attempt)
{
    check_call(attempt);
    close_layer();
}

/* A tensor in a slot that the layer does not have, and the residual's gradient, which is x's. */
static void check_slots(void)
{
    open_linear(TUTTI_ACT_SILU, true);
    const tutti_tensor *extra = fix.call.in[0];
    const tutti_tensor **const slots[] = {&fix.call.in[1], &fix.call.out[1], &fix.call.upstream[1],
                                          &fix.call.din[3]};
    static const char *const names[] = {"in[1]", "out[1]", "upstream[1]", "din[3]"};
    for (int i = 0; i < HARNESS_COUNT(slots); i++) {
        *slots[i] = extra;
        CHECK_FAILS(TUTTI_ERR_ARG, names[i], forward());
        CHECK_FAILS(TUTTI_ERR_ARG, names[i], backward());
        *slots[i] = NULL;
    }
    close_layer();
    open_norm(false, true);
    fix.call.din[1] = fix.call.din[0];
    CHECK_FAILS(TUTTI_ERR_ARG, "din[1]", backward());
    close_layer();
}

static void bad_layer_forward(void)
{
    check_slots();
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

static void bad_layer_type_count(void)
{
    CHECK(tutti_layer_type_count() > 0 && !tutti_layer_type_get(tutti_layer_type_count()),
          "%d kinds, and one more", tutti_layer_type_count());
}

static void bad_layer_type_find(void)
{
    CHECK(!tutti_layer_type_find(NULL) && !tutti_layer_type_find("") &&
              !tutti_layer_type_find("Softmax"),
          "a kind that is not there");
}

static void bad_layer_slot_shape(void)
{
    open_softmax();
    tutti_slot_shape shape;
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", tutti_layer_slot_shape(NULL, 0, &shape));
    CHECK_FAILS(TUTTI_ERR_ARG, "shape", tutti_layer_slot_shape(fix.layer, 0, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "slot", tutti_layer_slot_shape(fix.layer, -1, &shape));
    CHECK_FAILS(TUTTI_ERR_ARG, "slot", tutti_layer_slot_shape(fix.layer, 2, &shape));
    close_layer();
}

/* Each refused tensor is named by its place, and only until something else fails. */
static void bad_last_error_place(void)
{
    open_softmax();
    const tutti_tensor *x = fix.call.in[0], *dx = fix.call.din[0];
    fix.call.in[0] = NULL;
    CHECK(forward() == TUTTI_ERR_ARG, "no x");
    tutti_call_place place = tutti_last_error_place();
    CHECK(place.part == TUTTI_PART_IN && place.index == 0, "x is part %d, %d", place.part,
          place.index);
    fix.call.in[0] = x;
    fix.call.din[0] = fix.call.out[0];
    CHECK(backward() == TUTTI_ERR_ARG, "dx over y");
    place = tutti_last_error_place();
    CHECK(place.part == TUTTI_PART_DIN && place.index == 0, "dx is part %d, %d", place.part,
          place.index);
    fix.call.din[0] = dx;
    CHECK(!tutti_layer_type_find("nonsense"), "a kind that is not there");
    CHECK(tutti_layer_forward(NULL, fix.ctx, &fix.call) == TUTTI_ERR_ARG, "no layer");
    CHECK(tutti_last_error_place().part == TUTTI_PART_NONE, "no layer is a tensor");
    close_layer();
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
        {"Linear", "in=4,out=4", "layernorm, rmsnorm"},
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
        {"linear", "in=4,out=4,bias=0", "no_bias"},
        {"rmsnorm", "cols=4x", "cols"},
        {"rmsnorm", "cols=1e3", "cols"},
        {"rmsnorm", "cols=99999999999999999999", "cols"},
        {"rmsnorm", "cols=0", "cols"},
        {"rmsnorm", "cols=-4", "cols"},
        {"rmsnorm", "cols=4,eps=tiny", "eps"},
        {"rmsnorm", "cols=4,eps=1e-5x", "eps"},
        {"rmsnorm", "cols=4,eps=nan", "eps"},
        {"rmsnorm", "cols=4,eps=-1", "eps"},
        {"rmsnorm", "cols=4,x_dtype=f8", "x_dtype"},
        {"rmsnorm", "cols=4,x_dtype=float", "want f32, f64, f16 or bf16"},
        {"rmsnorm", "cols=4,x_dtype=i32", "x_dtype"},
        {"rmsnorm", "cols=4,no_gamma=2", "no_gamma"},
        {"rmsnorm", "cols=4,no_gamma=yes", "no_gamma"},
        {"layernorm", "cols=4,no_gamma=1,no_beta=0", "no_beta"},
        {"softmax", "cols=4,scale=inf", "scale"},
        {"softmax", "cols=4,causal_period=-1", "causal_period"},
        {"linear", "in=4", "option out is missing"},
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

const harness_test bad_layers[] = {
    {"tutti_layer_plan", bad_layer_plan},
    {"tutti_layer_forward", bad_layer_forward},
    {"tutti_layer_backward", bad_layer_backward},
    {"tutti_layer_saved_bytes", bad_layer_saved_bytes},
    {"tutti_layer_param_count", bad_layer_param_count},
    {"tutti_layer_param", bad_layer_param},
    {"tutti_layer_destroy", bad_layer_destroy},
    {"tutti_layer_type_get", bad_layer_type_get},
    {"tutti_layer_type_count", bad_layer_type_count},
    {"tutti_layer_type_find", bad_layer_type_find},
    {"tutti_layer_type_of", bad_layer_type_of},
    {"tutti_layer_slot_shape", bad_layer_slot_shape},
    {"tutti_last_error_place", bad_last_error_place},
    {"tutti_layer_create_by_name", bad_layer_create_by_name},
    {NULL, NULL},
};
