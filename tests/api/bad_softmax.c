/* Bad input for softmax.h. */
#include <math.h>

#include "layer_fixture.h"

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
    CHECK_DESC(softmax, good, scale = 1e300, "scale");
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

const harness_test bad_softmax[] = {
    {"tutti_softmax_create", bad_softmax_create},
    {"tutti_softmax_forward", bad_softmax_forward},
    {"tutti_softmax_backward", bad_softmax_backward},
    {NULL, NULL},
};
