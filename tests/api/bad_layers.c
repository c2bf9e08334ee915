/* Bad input for layer.h: what all layers share, except the calls, which are in bad_kinds.c. */
#include "bad_input.h"

static tutti_layer *make(const char *kind, const char *options)
{
    tutti_layer *layer = NULL;
    CHECK_OK(tutti_layer_create_by_name(harness_context(), kind, options, &layer));
    return layer;
}

static void bad_layer_saved_bytes(void)
{
    tutti_layer *layer = make("layernorm", "cols=6");
    CHECK(tutti_layer_saved_bytes(NULL, 1) == 0, "NULL wants memory");
    CHECK(tutti_layer_saved_bytes(layer, -1) == 0, "-1 rows want memory");
    CHECK(tutti_layer_saved_bytes(layer, 0) == 0, "0 rows want memory");
    tutti_layer_destroy(&layer);
}

static void bad_layer_param_count(void)
{
    CHECK(tutti_layer_param_count(NULL) == 0, "NULL has parameters");
}

static void bad_layer_param(void)
{
    tutti_layer *layer = make("layernorm", "cols=6");
    CHECK(!tutti_layer_param(NULL, 0), "NULL has a parameter");
    CHECK(!tutti_layer_param(layer, -1) && !tutti_layer_param(layer, 2),
          "a parameter that is not there");
    tutti_layer_destroy(&layer);
}

static void bad_layer_destroy(void)
{
    tutti_layer_destroy(NULL);
    tutti_layer *layer = NULL;
    tutti_layer_destroy(&layer);
    layer = make("softmax", "cols=6");
    tutti_layer_destroy(&layer);
    CHECK(!layer, "the pointer was not cleared");
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
    tutti_layer *layer = make("softmax", "cols=6");
    tutti_slot_shape shape;
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", tutti_layer_slot_shape(NULL, 0, &shape));
    CHECK_FAILS(TUTTI_ERR_ARG, "shape", tutti_layer_slot_shape(layer, 0, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "slot", tutti_layer_slot_shape(layer, -1, &shape));
    CHECK_FAILS(TUTTI_ERR_ARG, "slot", tutti_layer_slot_shape(layer, 4, &shape));
    tutti_layer_destroy(&layer);
}

/* The place is kept until another failure; the files of bad_kinds.h check each place. */
static void bad_last_error_place(void)
{
    tutti_context *ctx = harness_context();
    tutti_layer *layer = make("softmax", "cols=6");
    CHECK(tutti_layer_forward(layer, ctx, &(tutti_call){0}) == TUTTI_ERR_ARG, "no x");
    CHECK(tutti_last_error_place().part == TUTTI_PART_IN, "x is part %d",
          tutti_last_error_place().part);
    CHECK(!tutti_layer_type_find("nonsense"), "a kind that is not there"); /* not a failure */
    CHECK(tutti_last_error_place().part == TUTTI_PART_IN, "x was forgotten");
    CHECK(tutti_layer_forward(NULL, ctx, &(tutti_call){0}) == TUTTI_ERR_ARG, "no layer");
    CHECK(tutti_last_error_place().part == TUTTI_PART_NONE, "no layer is a tensor");
    tutti_layer_destroy(&layer);
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
        {"rmsnorm", " cols=4", "option"},
        {"rmsnorm", "cols=4 ,eps=1", "cols"},
        {"rmsnorm", "cols=4, ", "option"},
        {"rmsnorm", "cols=4,,eps=1", "option"},
        {"rmsnorm", "cols =4", "option"},
        {"rmsnorm", "cols= 4x", "cols"},
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
        {"rmsnorm", "cols=4,no_gamma=yes", "no_gamma is 'yes', want 0, 1, false or true"},
        {"rmsnorm", "cols=4,no_gamma=true|True", "no_gamma"},
        {"layernorm", "cols=4,no_gamma=1,no_beta=0", "no_beta"},
        {"layernorm", "cols=4,no_gamma=1", "no_beta"},
        {"layernorm", "cols=4,y_dtype=bf16", "y_dtype"}, /* neither x's nor the parameters' */
        {"rmsnorm", "cols=4,x_dtype=bf16,y_dtype=f16", "y_dtype"},
        {"rmsnorm", "cols=4,zero_centered=1,no_gamma=1", "zero_centered"},
        {"softmax", "cols=4,scale=1e300", "scale"}, /* infinite in f32 */
        {"softmax", "cols=4,scale=inf", "scale"},
        {"softmax", "cols=4,causal_period=-1", "causal_period"},
        {"linear", "in=4", "option out is missing"},
        {"linear", "in=4,out=4,activation=tanh", "activation"},
        {"linear", "in=4,out=4,activation=relu|gelu", "activation"},
        {"linear", "in=4,out=4,activation=rel", "activation"},
        {"linear", "in=4,out=4,activation=leaky_relu,slope=0", "slope"},
        {"linear", "in=4,out=4,activation=leaky_relu,slope=-0.1", "slope"},
        {"linear", "in=4,out=4,activation=smelu,smelu_beta=0", "smelu_beta"},
        {"linear", "in=4,out=4,activation=smelu,smelu_beta=-1", "smelu_beta"},
        {"linear", "in=4,out=4,activation=smelu,smelu_beta=1e31", "smelu_beta"},
        {"linear", "in=4,out=4,smelu_beta=nan", "smelu_beta"},
        {"dropout", "cols=4,activation=star_relu,star_scale=0", "star_scale"},
        {"dropout", "cols=4,activation=star_relu,star_scale=1e-60", "star_scale"}, /* 0 in f32 */
        {"linear", "in=4,out=4,activation=star_relu,star_scale=1e39", "star_scale"},
        {"linear", "in=4,out=4,activation=star_relu,star_bias=1e39", "star_bias"},
        {"matmul", "m=4,n=4", "option k is missing"},
        {"matmul", "m=4,n=4,k=0", "k is 0"},
        {"matmul", "m=4,n=4,k=4,transpose_a=2", "transpose_a"},
        {"cross_entropy", "cols=4,ignore_label=99999999999", "ignore_label"},
        {"cross_entropy", "cols=2000000", "cols"},
        {"cross_entropy", "cols=4,label_smoothing=1", "label_smoothing"},
        {"cross_entropy", "cols=4,label_smoothing=-0.1", "label_smoothing"},
        {"cross_entropy", "cols=4,label_smoothing=nan", "label_smoothing"},
        {"cross_entropy", "cols=4,z_loss=-1e-4", "z_loss"},
        {"cross_entropy", "cols=4,z_loss=1e39", "z_loss"}, /* infinite in f32 */
        {"cross_entropy", "cols=4,dtype=f64,z_loss=inf", "z_loss"},
        {"embedding", "cols=4", "vocab"},
        {"embedding", "vocab=0,cols=4", "vocab"},
        {"embedding", "vocab=4,cols=2000000", "cols"},
        {"rope", "cols=4", "head_size"},
        {"rope", "cols=12,head_size=8", "want an even divisor of cols, 12"},
        {"rope", "cols=12,head_size=3", "want an even divisor of cols, 12"},
        {"rope", "cols=12,head_size=6,rotated=8", "want an even number up to head_size, 6"},
        {"rope", "cols=12,head_size=6,rotated=3", "want an even number up to head_size, 6"},
        {"rope", "cols=12,head_size=6,base=0.5", "base"},
        {"rope", "cols=12,head_size=6,pairing=thirds", "halves|interleaved"},
        {"rope", "cols=12,head_size=6,period=-1", "period"},
        {"rope", "cols=12,head_size=6,max_positions=3000000000", "max_positions"},
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

static void bad_cross_entropy_count(void)
{
    tutti_context *ctx = harness_context();
    tutti_layer *layer = make("cross_entropy", "cols=6"), *other = make("softmax", "cols=6");
    harness_buffer labels = harness_buffer_make(ctx, TUTTI_I32, 1, 8, 0, 0),
                   count = harness_buffer_make(ctx, TUTTI_F64, 1, 1, 0, 0);
    harness_buffer_put(ctx, &labels, (double[8]){0});
    harness_buffer_put(ctx, &count, (double[]){7});
    const tutti_tensor list = tutti_tensor_1d(labels.data, TUTTI_I32, 8);
    tutti_tensor one = tutti_tensor_1d(count.data, TUTTI_F64, 1), bad = one;
#define REFUSED(word, ...) CHECK_FAILS(TUTTI_ERR_ARG, word, tutti_cross_entropy_count(__VA_ARGS__))
    REFUSED("layer", NULL, ctx, &list, &one, 0);
    REFUSED("kind softmax", other, ctx, &list, &one, 0);
    REFUSED("ctx", layer, NULL, &list, &one, 0);
    REFUSED("labels", layer, ctx, NULL, &one, 0);
    REFUSED("count is NULL", layer, ctx, &list, NULL, 0);
    REFUSED("flags", layer, ctx, &list, &one, 2);
    if (foreign_context()) REFUSED("device", layer, foreign_context(), &list, &one, 0);
    REFUSED("labels is f64", layer, ctx, &one, &one, 0);
    bad.dtype = TUTTI_F32;
    REFUSED("want f64", layer, ctx, &list, &bad, 0);
    bad = tutti_tensor_1d(count.data, TUTTI_F64, 2);
    REFUSED("2 elements", layer, ctx, &list, &bad, 0);
    bad = tutti_tensor_1d(NULL, TUTTI_F64, 1);
    REFUSED("NULL", layer, ctx, &list, &bad, 0);
    bad = tutti_tensor_1d(labels.data, TUTTI_F64, 1);
    REFUSED("share memory", layer, ctx, &list, &bad, 0);
    bad = list;
    bad.strides[0] = 2;
    REFUSED("strides[0]", layer, ctx, &bad, &one, 0);
    bad = list;
    bad.dims[0] = -1;
    REFUSED("dims[0]", layer, ctx, &bad, &one, 0);
    bad = list;
    bad.ndim = 0;
    REFUSED("ndim", layer, ctx, &bad, &one, 0);
    bad = list;
    bad.data = (char *)bad.data + 1;
    REFUSED("aligned", layer, ctx, &bad, &one, 0);
    bad = tutti_tensor_2d(labels.data, TUTTI_I32, INT64_MAX / 2, 4);
    REFUSED("2^59", layer, ctx, &bad, &one, 0);
#undef REFUSED
    double left;
    harness_buffer_get(ctx, &count, &left);
    CHECK(left == 7, "a refused call made the count %g", left);
    CHECK_OK(tutti_cross_entropy_count(layer, ctx, &list, &one, TUTTI_GRAD_ACCUMULATE));
    harness_buffer_get(ctx, &count, &left);
    CHECK(left == 15, "the count is %g, want 15", left);
    harness_buffer_free(ctx, &labels);
    harness_buffer_free(ctx, &count);
    tutti_layer_destroy(&layer);
    tutti_layer_destroy(&other);
}

const harness_test bad_layers[] = {
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
    {"tutti_cross_entropy_count", bad_cross_entropy_count},
    {NULL, NULL},
};
