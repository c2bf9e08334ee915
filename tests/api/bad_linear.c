/* Bad input for linear.h. */
#include <math.h>

#include "layer_fixture.h"

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
    CHECK_DESC(linear, good, slope = TUTTI_ZERO, "slope");
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

const harness_test bad_linear[] = {
    {"tutti_linear_create", bad_linear_create},
    {"tutti_linear_forward", bad_linear_forward},
    {"tutti_linear_backward", bad_linear_backward},
    {NULL, NULL},
};
