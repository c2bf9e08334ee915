/* Bad input for embedding.h. */
#include "layer_fixture.h"

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

const harness_test bad_embedding[] = {
    {"tutti_embedding_create", bad_embedding_create},
    {"tutti_embedding_forward", bad_embedding_forward},
    {"tutti_embedding_backward", bad_embedding_backward},
    {NULL, NULL},
};
