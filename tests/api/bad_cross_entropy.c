/* Bad input for cross_entropy.h. */
#include "layer_fixture.h"

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

const harness_test bad_cross_entropy[] = {
    {"tutti_cross_entropy_create", bad_cross_entropy_create},
    {"tutti_cross_entropy_forward", bad_cross_entropy_forward},
    {NULL, NULL},
};
