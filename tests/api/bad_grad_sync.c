/* Bad input for grad_sync.h, with a communicator of one rank. */
#include <stdio.h>

#include <string.h>

#include "comm_fixture.h"

static void bad_grad_sync_create(void)
{
    tutti_context *ctx = harness_context();
    tutti_comm *comm = self();
    model m = open_model(true), unbuilt = open_model(false);
    tutti_grad_sync *sync = UNTOUCHED(tutti_grad_sync);
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "comm",
                        tutti_grad_sync_create(ctx, NULL, m.params, NULL, &sync));
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "ctx",
                        tutti_grad_sync_create(NULL, comm, m.params, NULL, &sync));
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "params",
                        tutti_grad_sync_create(ctx, comm, NULL, NULL, &sync));
    CHECK_FAILS(TUTTI_ERR_ARG, "sync", tutti_grad_sync_create(ctx, comm, m.params, NULL, NULL));
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_STATE, "built",
                        tutti_grad_sync_create(ctx, comm, unbuilt.params, NULL, &sync));
    if (foreign_context())
        CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "context",
                            tutti_grad_sync_create(foreign_context(), comm, m.params, NULL, &sync));
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.size = 3;
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "size",
                        tutti_grad_sync_create(ctx, comm, m.params, &desc, &sync));
    static const int leaves[] = {-1, 3, 2 * TUTTI_LEAVES_MAX};
    for (int i = 0; i < HARNESS_COUNT(leaves); i++) {
        desc = (tutti_grad_sync_desc){.leaves = leaves[i]};
        CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "leaves",
                            tutti_grad_sync_create(ctx, comm, m.params, &desc, &sync));
    }
    desc = (tutti_grad_sync_desc){.wire = TUTTI_F16};
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "wire is 3 (f16), want 0 for",
                        tutti_grad_sync_create(ctx, comm, m.params, &desc, &sync));
    desc = (tutti_grad_sync_desc){.wire = TUTTI_BF16, .leaves = 2};
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "wire is bf16 with 2 leaves",
                        tutti_grad_sync_create(ctx, comm, m.params, &desc, &sync));
    close_model(&m);
    close_model(&unbuilt);
    tutti_comm_destroy(&comm);
}

static void bad_grad_sync_create_list(void)
{
    tutti_context *ctx = harness_context();
    tutti_comm *comm = self();
    model m = open_model(true);
    tutti_grad_sync *sync = UNTOUCHED(tutti_grad_sync);
    const tutti_param *a = tutti_layer_param(m.a, 0), *b = tutti_layer_param(m.b, 0);
    const tutti_param *list[] = {a, b};
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "comm",
                        tutti_grad_sync_create_list(ctx, NULL, list, 2, NULL, &sync));
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "ctx",
                        tutti_grad_sync_create_list(NULL, comm, list, 2, NULL, &sync));
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "list",
                        tutti_grad_sync_create_list(ctx, comm, NULL, 2, NULL, &sync));
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "count",
                        tutti_grad_sync_create_list(ctx, comm, list, -1, NULL, &sync));
    CHECK_FAILS(TUTTI_ERR_ARG, "sync", tutti_grad_sync_create_list(ctx, comm, list, 2, NULL, NULL));
    list[1] = NULL;
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "list[1]",
                        tutti_grad_sync_create_list(ctx, comm, list, 2, NULL, &sync));
    list[1] = a;
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "a/gamma",
                        tutti_grad_sync_create_list(ctx, comm, list, 2, NULL, &sync));
    list[1] = tutti_layer_param(m.outside, 0); /* bound to nothing */
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "gamma",
                        tutti_grad_sync_create_list(ctx, comm, list, 2, NULL, &sync));
    tutti_param shifted = *b; /* of another type, shape or place than a's */
    snprintf(shifted.name, sizeof shifted.name, "shifted");
    list[1] = &shifted;
    shifted.grad.dtype = (tutti_dtype)0;
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "'shifted' is of dtype 0 (not set), want f32 or f64",
                        tutti_grad_sync_create_list(ctx, comm, list, 2, NULL, &sync));
    shifted.grad = tutti_tensor_1d(a->grad.data, TUTTI_F32, 5);
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG,
                        "'shifted' f32 [5] and 'a/gamma' f32 [6] share one gradient",
                        tutti_grad_sync_create_list(ctx, comm, list, 2, NULL, &sync));
    shifted.grad = b->grad;
    shifted.grad.data = (char *)a->grad.data + 4;
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "shifted",
                        tutti_grad_sync_create_list(ctx, comm, list, 2, NULL, &sync));
    close_model(&m);
    tutti_comm_destroy(&comm);
}

static void bad_grad_sync_destroy(void)
{
    tutti_grad_sync_destroy(NULL);
    tutti_grad_sync *sync = NULL;
    tutti_grad_sync_destroy(&sync);
}

/* An exchange of the two layers. */
typedef struct exchange {
    model m;
    tutti_comm *comm;
    tutti_grad_sync *sync;
} exchange;

static exchange open_exchange(bool timeline)
{
    exchange e = {open_model(true), self(), NULL};
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.timeline = timeline;
    CHECK_OK(tutti_grad_sync_create(harness_context(), e.comm, e.m.params, &desc, &e.sync));
    return e;
}

static void close_exchange(exchange *e)
{
    tutti_grad_sync_destroy(&e->sync);
    CHECK(!e->sync, "the pointer was not cleared");
    tutti_comm_destroy(&e->comm);
    close_model(&e->m);
}

static void bad_grad_sync_ready(void)
{
    tutti_context *ctx = harness_context();
    exchange e = open_exchange(false);
    CHECK_FAILS(TUTTI_ERR_ARG, "sync", tutti_grad_sync_ready(NULL, ctx, e.m.a));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_grad_sync_ready(e.sync, NULL, e.m.a));
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", tutti_grad_sync_ready(e.sync, ctx, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", tutti_grad_sync_ready(e.sync, ctx, e.m.outside));
    if (foreign_context())
        CHECK_FAILS(TUTTI_ERR_ARG, "context",
                    tutti_grad_sync_ready(e.sync, foreign_context(), e.m.a));
    CHECK_OK(tutti_grad_sync_ready(e.sync, ctx, e.m.b));
    CHECK_FAILS(TUTTI_ERR_STATE, "b/gamma", tutti_grad_sync_ready(e.sync, ctx, e.m.b));
    CHECK_FAILS(TUTTI_ERR_STATE, "grad_sync_finish", tutti_grad_sync_ready(e.sync, ctx, e.m.b));
    close_exchange(&e);
}

static void bad_grad_sync_ready_param(void)
{
    tutti_context *ctx = harness_context();
    exchange e = open_exchange(false);
    const tutti_param *b = tutti_layer_param(e.m.b, 0);
    CHECK_FAILS(TUTTI_ERR_ARG, "sync", tutti_grad_sync_ready_param(NULL, ctx, b));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_grad_sync_ready_param(e.sync, NULL, b));
    CHECK_FAILS(TUTTI_ERR_ARG, "param", tutti_grad_sync_ready_param(e.sync, ctx, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "gamma",
                tutti_grad_sync_ready_param(e.sync, ctx, tutti_layer_param(e.m.outside, 0)));
    CHECK_OK(tutti_grad_sync_ready_param(e.sync, ctx, b));
    CHECK_FAILS(TUTTI_ERR_STATE, "b/gamma", tutti_grad_sync_ready_param(e.sync, ctx, b));
    close_exchange(&e);
}

static void bad_grad_sync_finish(void)
{
    tutti_context *ctx = harness_context();
    exchange e = open_exchange(false);
    CHECK_FAILS(TUTTI_ERR_ARG, "sync", tutti_grad_sync_finish(NULL, ctx));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_grad_sync_finish(e.sync, NULL));
    CHECK_FAILS(TUTTI_ERR_STATE, "gamma", tutti_grad_sync_finish(e.sync, ctx));
    CHECK_OK(tutti_grad_sync_ready(e.sync, ctx, e.m.b));
    CHECK_FAILS(TUTTI_ERR_STATE, "a/gamma", tutti_grad_sync_finish(e.sync, ctx));
    CHECK_OK(tutti_grad_sync_ready(e.sync, ctx, e.m.a)); /* the refusal did no harm */
    CHECK_OK(tutti_grad_sync_finish(e.sync, ctx));
    close_exchange(&e);
}

static void bad_grad_sync_wait(void)
{
    tutti_context *ctx = harness_context();
    exchange e = open_exchange(false);
    const tutti_param *a = tutti_layer_param(e.m.a, 0), *b = tutti_layer_param(e.m.b, 0);
    CHECK_FAILS(TUTTI_ERR_ARG, "sync", tutti_grad_sync_wait(NULL, ctx, b));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_grad_sync_wait(e.sync, NULL, b));
    CHECK_FAILS(TUTTI_ERR_ARG, "param", tutti_grad_sync_wait(e.sync, ctx, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "gamma",
                tutti_grad_sync_wait(e.sync, ctx, tutti_layer_param(e.m.outside, 0)));
    CHECK_FAILS(TUTTI_ERR_STATE, "b/gamma", tutti_grad_sync_wait(e.sync, ctx, b));
    CHECK_OK(tutti_grad_sync_ready(e.sync, ctx, e.m.b));
    CHECK_FAILS(TUTTI_ERR_STATE, "a/gamma", tutti_grad_sync_wait(e.sync, ctx, a));
    CHECK_OK(tutti_grad_sync_ready(e.sync, ctx, e.m.a));
    CHECK_OK(tutti_grad_sync_wait(e.sync, ctx, a));
    CHECK_OK(tutti_grad_sync_finish(e.sync, ctx));
    CHECK_OK(tutti_grad_sync_wait(e.sync, ctx, a));
    close_exchange(&e);
}

static void bad_grad_sync_own_leaves(void)
{
    exchange e = open_exchange(false);
    int first, count;
    CHECK_FAILS(TUTTI_ERR_ARG, "sync", tutti_grad_sync_own_leaves(NULL, &first, &count));
    CHECK_FAILS(TUTTI_ERR_ARG, "first", tutti_grad_sync_own_leaves(e.sync, NULL, &count));
    CHECK_FAILS(TUTTI_ERR_ARG, "count", tutti_grad_sync_own_leaves(e.sync, &first, NULL));
    CHECK_FAILS(TUTTI_ERR_STATE, "fast mode", tutti_grad_sync_own_leaves(e.sync, &first, &count));
    close_exchange(&e);
}

/* tests/comm/test_leaves.c covers wrong leaves */
static void bad_grad_sync_leaves(tutti_status (*call)(tutti_grad_sync *, tutti_context *))
{
    exchange e = open_exchange(false);
    tutti_context *ctx = harness_context();
    CHECK_FAILS(TUTTI_ERR_ARG, "sync", call(NULL, ctx));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", call(e.sync, NULL));
    if (foreign_context()) CHECK_FAILS(TUTTI_ERR_ARG, "context", call(e.sync, foreign_context()));
    CHECK_FAILS(TUTTI_ERR_STATE, "fast mode", call(e.sync, ctx));
    close_exchange(&e);
}
static tutti_status leaves_begin(tutti_grad_sync *sync, tutti_context *ctx)
{
    return tutti_grad_sync_leaves_begin(sync, ctx, 0, 1);
}
static void bad_grad_sync_leaves_begin(void)
{
    bad_grad_sync_leaves(leaves_begin);
}
static void bad_grad_sync_leaves_end(void)
{
    bad_grad_sync_leaves(tutti_grad_sync_leaves_end);
}

static void bad_grad_sync_get_info(void)
{
    exchange e = open_exchange(false);
    tutti_grad_sync_info info = {.ranges = 77};
    CHECK_FAILS(TUTTI_ERR_ARG, "sync", tutti_grad_sync_get_info(NULL, &info));
    CHECK_FAILS(TUTTI_ERR_ARG, "info", tutti_grad_sync_get_info(e.sync, NULL));
    CHECK(info.ranges == 77, "info was written");
    close_exchange(&e);
}

static void bad_grad_sync_get_timeline(void)
{
    exchange e = open_exchange(false);
    double finish = 77;
    CHECK_FAILS(TUTTI_ERR_ARG, "sync",
                tutti_grad_sync_get_timeline(NULL, NULL, NULL, NULL, &finish));
    CHECK_FAILS(TUTTI_ERR_STATE, "timeline",
                tutti_grad_sync_get_timeline(e.sync, NULL, NULL, NULL, &finish));
    close_exchange(&e);
    e = open_exchange(true);
    CHECK_FAILS(TUTTI_ERR_STATE, "step",
                tutti_grad_sync_get_timeline(e.sync, NULL, NULL, NULL, &finish));
    CHECK(finish == 77, "finish was written");
    close_exchange(&e);
}

/* Nothing but its size: 0 is every default. */
static void bad_grad_sync_desc_default(void)
{
    tutti_grad_sync_desc desc = tutti_grad_sync_desc_default(), zero = {.size = sizeof zero};
    CHECK(memcmp(&desc, &zero, sizeof desc) == 0, "the default is not all 0");
}

const harness_test bad_grad_sync[] = {
    {"tutti_grad_sync_desc_default", bad_grad_sync_desc_default},
    {"tutti_grad_sync_create", bad_grad_sync_create},
    {"tutti_grad_sync_create_list", bad_grad_sync_create_list},
    {"tutti_grad_sync_destroy", bad_grad_sync_destroy},
    {"tutti_grad_sync_ready", bad_grad_sync_ready},
    {"tutti_grad_sync_ready_param", bad_grad_sync_ready_param},
    {"tutti_grad_sync_finish", bad_grad_sync_finish},
    {"tutti_grad_sync_wait", bad_grad_sync_wait},
    {"tutti_grad_sync_own_leaves", bad_grad_sync_own_leaves},
    {"tutti_grad_sync_leaves_begin", bad_grad_sync_leaves_begin},
    {"tutti_grad_sync_leaves_end", bad_grad_sync_leaves_end},
    {"tutti_grad_sync_get_info", bad_grad_sync_get_info},
    {"tutti_grad_sync_get_timeline", bad_grad_sync_get_timeline},
    {NULL, NULL},
};
