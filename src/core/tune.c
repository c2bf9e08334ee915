/* Tuning of matrix products: what a context was asked for; the backend measures and remembers. */
#include "core/context.h"

/* Plans made so far have other choices. */
static void drop_plans(tutti_context *ctx)
{
    tutti__plans_drop(ctx);
    tutti__recent_drop(ctx);
}

static tutti_status known_bytes(tutti_context *ctx, size_t *bytes)
{
    *bytes = 0;
    return ctx->backend->op.tuning_get ? ctx->backend->op.tuning_get(ctx, NULL, 0, bytes)
                                       : TUTTI_OK;
}

static tutti_status settle(tutti_context *ctx)
{
    size_t bytes;
    TUTTI_TRY(known_bytes(ctx, &bytes));
    ctx->tuned = ctx->tunes || bytes > 0;
    return TUTTI_OK;
}

tutti_status tutti__tune_check(const tutti_context *ctx, int leaves, const char *name)
{
    if (leaves == 0 || !ctx->tuned) return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_STATE,
                       "%s: leaves is %d, but this context's products are tuned, so that their "
                       "bits depend on measurements: want 0",
                       name, leaves);
}

tutti_status tutti_context_tune(tutti_context *ctx, int on)
{
    TUTTI_REQUIRE(ctx, "context_tune: ctx is NULL");
    TUTTI_REQUIRE(on == 0 || on == 1, "context_tune: on is %d, want 0 or 1", on);
    TUTTI_TRY(tutti_context_synchronize(ctx)); /* fails during capture */
    if (on == ctx->tunes) return TUTTI_OK;
    if (on) drop_plans(ctx);
    ctx->tunes = on;
    return settle(ctx);
}

tutti_status tutti_context_tuning_get(tutti_context *ctx, void *data, size_t capacity,
                                      size_t *bytes)
{
    TUTTI_REQUIRE(ctx, "context_tuning_get: ctx is NULL");
    TUTTI_REQUIRE(bytes, "context_tuning_get: bytes is NULL");
    TUTTI_TRY(tutti__context_open(ctx, "context_tuning_get"));
    TUTTI_TRY(known_bytes(ctx, bytes));
    if (!data || *bytes == 0) return TUTTI_OK;
    TUTTI_REQUIRE(capacity >= *bytes, "context_tuning_get: capacity is %zu, want at least %zu",
                  capacity, *bytes);
    return ctx->backend->op.tuning_get(ctx, data, capacity, bytes);
}

tutti_status tutti_context_tuning_set(tutti_context *ctx, const void *data, size_t bytes)
{
    TUTTI_REQUIRE(ctx, "context_tuning_set: ctx is NULL");
    TUTTI_REQUIRE(data || bytes == 0, "context_tuning_set: data is NULL");
    if (!ctx->backend->op.tuning_set) {
        if (bytes == 0) return TUTTI_OK;
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "context_tuning_set: the %s backend measures no products",
                           ctx->backend->name);
    }
    TUTTI_TRY(tutti_context_synchronize(ctx)); /* fails during capture */
    TUTTI_TRY(ctx->backend->op.tuning_set(ctx, data, bytes));
    drop_plans(ctx);
    return settle(ctx);
}
