/* Bad input for layernorm.h and rmsnorm.h. */
#include <math.h>

#include "layer_fixture.h"

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
    CHECK_DESC(layernorm, good, no_gamma = 1, "no_beta");
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
    good.zero_centered = 1;
    CHECK_DESC(rmsnorm, good, no_gamma = 1, "zero_centered");
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
    open_norm(true, true);
    check_gradient_type();
    close_layer();
}
static void bad_rmsnorm_backward(void)
{
    centered = false;
    check_backward();
}

const harness_test bad_norms[] = {
    {"tutti_layernorm_create", bad_layernorm_create},
    {"tutti_layernorm_forward", bad_layernorm_forward},
    {"tutti_layernorm_forward_residual", bad_layernorm_forward_residual},
    {"tutti_layernorm_backward", bad_layernorm_backward},
    {"tutti_rmsnorm_create", bad_rmsnorm_create},
    {"tutti_rmsnorm_forward", bad_rmsnorm_forward},
    {"tutti_rmsnorm_forward_residual", bad_rmsnorm_forward_residual},
    {"tutti_rmsnorm_backward", bad_rmsnorm_backward},
    {NULL, NULL},
};
