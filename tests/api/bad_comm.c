/* Bad input for comm.h and grad_sync.h, with a communicator of one rank, and for cuda.h, mpi.h and
 * nccl.h where they were built. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef TESTS_WITH_CUDA
#include "tutti/cuda.h"
#endif
#ifdef TESTS_WITH_MPI
#include "tutti/mpi.h"
#endif
#ifdef TESTS_WITH_NCCL
#include "tutti/nccl.h"
#endif

#include "bad_input.h"

static tutti_comm *self(void)
{
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    desc.transport = TUTTI_TRANSPORT_SELF;
    tutti_comm *comm = NULL;
    CHECK_OK(tutti_comm_create(harness_context(), &desc, &comm));
    return comm;
}

static const double bad_timeouts[] = {NAN, INFINITY, 0, -1};

static void bad_comm_create(void)
{
    tutti_context *ctx = harness_context();
    tutti_comm *comm = UNTOUCHED(tutti_comm);
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    desc.transport = TUTTI_TRANSPORT_SELF;
    CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "ctx", tutti_comm_create(NULL, &desc, &comm));
    CHECK_FAILS(TUTTI_ERR_ARG, "comm", tutti_comm_create(ctx, &desc, NULL));
    for (int i = 0; i < HARNESS_COUNT(bad_timeouts); i++) {
        desc.timeout = bad_timeouts[i];
        CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "timeout", tutti_comm_create(ctx, &desc, &comm));
    }
    desc.timeout = 1;
    static const int transports[] = {99, -1, TUTTI_TRANSPORT_NCCL + 1};
    for (int i = 0; i < HARNESS_COUNT(transports); i++) {
        desc.transport = (tutti_transport)transports[i];
        CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "transport", tutti_comm_create(ctx, &desc, &comm));
    }
    desc.transport = TUTTI_TRANSPORT_MPI;
#ifdef TESTS_WITH_MPI
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (!initialized)
        CHECK_FAILS_KEEPING(comm, TUTTI_ERR_STATE, "MPI", tutti_comm_create(ctx, &desc, &comm));
#else
    CHECK_FAILS_KEEPING(comm, TUTTI_ERR_UNSUPPORTED, "MPI", tutti_comm_create(ctx, &desc, &comm));
    desc.transport = TUTTI_TRANSPORT_NCCL;
    CHECK_FAILS_KEEPING(comm, TUTTI_ERR_UNSUPPORTED, "nccl", tutti_comm_create(ctx, &desc, &comm));
#endif
}

static void bad_comm_destroy(void)
{
    tutti_comm_destroy(NULL);
    tutti_comm *comm = NULL;
    tutti_comm_destroy(&comm);
    comm = self();
    tutti_comm_destroy(&comm);
    CHECK(!comm, "the pointer was not cleared");
}

static void bad_comm_rank(void)
{
    CHECK(tutti_comm_rank(NULL) == -1, "NULL has rank %d", tutti_comm_rank(NULL));
}

static void bad_comm_world_size(void)
{
    CHECK(tutti_comm_world_size(NULL) == 0, "NULL has %d ranks", tutti_comm_world_size(NULL));
}

static void bad_comm_transport(void)
{
    CHECK(tutti_comm_transport(NULL) == TUTTI_TRANSPORT_AUTO, "NULL has a transport");
}

/* The arguments of a verb; wrong ones are put in one at a time. */
typedef struct verb {
    tutti_comm *comm;
    tutti_context *ctx;
    void *send, *recv;
    int64_t count;
    tutti_dtype dtype;
    tutti_op op;
    int root;
} verb;

static tutti_status all_reduce(const verb *v)
{
    return tutti_comm_all_reduce(v->comm, v->ctx, v->send, v->recv, v->count, v->dtype, v->op);
}
static tutti_status broadcast(const verb *v)
{
    return tutti_comm_broadcast(v->comm, v->ctx, v->send, v->count, v->dtype, v->root);
}
static tutti_status all_gather(const verb *v)
{
    return tutti_comm_all_gather(v->comm, v->ctx, v->send, v->recv, v->count, v->dtype);
}
static tutti_status reduce_scatter(const verb *v)
{
    return tutti_comm_reduce_scatter(v->comm, v->ctx, v->send, v->recv, v->count, v->dtype, v->op);
}
static tutti_status all_to_all(const verb *v)
{
    return tutti_comm_all_to_all(v->comm, v->ctx, v->send, v->recv, v->count, v->dtype);
}

static void check_verb(tutti_status (*call)(const verb *), bool has_recv, bool has_op,
                       bool has_root)
{
    tutti_context *ctx = harness_context();
    harness_buffer from = harness_buffer_make(ctx, TUTTI_F32, 1, 8, 0, 0);
    harness_buffer to = harness_buffer_make(ctx, TUTTI_F32, 1, 8, 0, 0);
    const verb good = {self(), ctx, from.data, to.data, 8, TUTTI_F32, TUTTI_SUM, 0};
    verb bad = good;
    bad.comm = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "comm", call(&bad));
    bad = good, bad.ctx = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", call(&bad));
    if (foreign_context()) {
        bad = good, bad.ctx = foreign_context();
        CHECK_FAILS(TUTTI_ERR_ARG, "context", call(&bad));
    }
    bad = good, bad.send = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, has_recv ? "send" : "data", call(&bad));
    bad = good, bad.count = -1;
    CHECK_FAILS(TUTTI_ERR_ARG, "count", call(&bad));
    bad = good, bad.count = INT64_MAX;
    CHECK_FAILS(TUTTI_ERR_ARG, "count", call(&bad));
    bad = good, bad.dtype = (tutti_dtype)99;
    CHECK_FAILS(TUTTI_ERR_ARG, "dtype", call(&bad));
    bad = good, bad.dtype = (tutti_dtype)-1;
    CHECK_FAILS(TUTTI_ERR_ARG, "dtype", call(&bad));
    if (has_recv) {
        bad = good, bad.recv = NULL;
        CHECK_FAILS(TUTTI_ERR_ARG, "recv", call(&bad));
        bad = good, bad.recv = (char *)from.data + 4;
        CHECK_FAILS(TUTTI_ERR_ARG, "overlap", call(&bad));
    }
    for (int i = 0; i < 2 && has_op; i++) {
        bad = good, bad.op = (tutti_op)(i ? -1 : 99);
        CHECK_FAILS(TUTTI_ERR_ARG, "op", call(&bad));
    }
    for (int i = 0; i < 2 && has_root; i++) {
        bad = good, bad.root = i ? -1 : 1;
        CHECK_FAILS(TUTTI_ERR_ARG, "root", call(&bad));
    }
    CHECK(harness_buffer_unchanged(ctx, &from) && harness_buffer_unchanged(ctx, &to),
          "a refused call wrote");
    bad = good;
    bad.count = 0, bad.send = bad.recv = NULL; /* nothing is nothing wrong */
    CHECK_OK(call(&bad));
    tutti_comm_destroy(&bad.comm);
    harness_buffer_free(ctx, &from);
    harness_buffer_free(ctx, &to);
}

static void bad_all_reduce(void)
{
    check_verb(all_reduce, true, true, false);
}
static void bad_broadcast(void)
{
    check_verb(broadcast, false, false, true);
}
static void bad_all_gather(void)
{
    check_verb(all_gather, true, false, false);
}
static void bad_reduce_scatter(void)
{
    check_verb(reduce_scatter, true, true, false);
}
static void bad_all_to_all(void)
{
    check_verb(all_to_all, true, false, false);
    tutti_comm *comm = self();
    harness_buffer data = harness_buffer_make(harness_context(), TUTTI_F32, 1, 8, 0, 0);
    CHECK_FAILS(TUTTI_ERR_ARG, "overlap",
                tutti_comm_all_to_all(comm, harness_context(), data.data, data.data, 8, TUTTI_F32));
    harness_buffer_free(harness_context(), &data);
    tutti_comm_destroy(&comm);
}

static void bad_barrier(void)
{
    tutti_comm *comm = self();
    CHECK_FAILS(TUTTI_ERR_ARG, "comm", tutti_comm_barrier(NULL, harness_context()));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_comm_barrier(comm, NULL));
    if (foreign_context())
        CHECK_FAILS(TUTTI_ERR_ARG, "context", tutti_comm_barrier(comm, foreign_context()));
    tutti_comm_destroy(&comm);
}

static void bad_agree(void)
{
    tutti_comm *comm = self();
    CHECK_FAILS(TUTTI_ERR_ARG, "comm", tutti_comm_agree(NULL, TUTTI_OK));
    CHECK(tutti_comm_agree(comm, TUTTI_ERR_DATA) == TUTTI_ERR_DATA, "another status");
    tutti_comm_destroy(&comm);
}

static void bad_comm_allocator(void)
{
    tutti_allocator none = tutti_comm_allocator(NULL);
    CHECK(!none.alloc && !none.free && !none.self, "NULL allocates");
}

/* A model of two layers, in a store. */
typedef struct model {
    tutti_layer *a, *b, *outside;
    tutti_params *params;
} model;

static tutti_layer *norm(void)
{
    tutti_rmsnorm_desc desc = TUTTI_RMSNORM_DESC_INIT;
    desc.cols = 6;
    tutti_layer *layer = NULL;
    CHECK_OK(tutti_rmsnorm_create(harness_context(), &desc, &layer));
    return layer;
}

static model open_model(bool build)
{
    model m = {norm(), norm(), norm(), NULL};
    CHECK_OK(tutti_params_create(harness_context(), NULL, &m.params));
    CHECK_OK(tutti_params_add(m.params, m.a, "a"));
    CHECK_OK(tutti_params_add(m.params, m.b, "b"));
    if (build) CHECK_OK(tutti_params_build(m.params, harness_context()));
    return m;
}

static void close_model(model *m)
{
    tutti_params_destroy(&m->params);
    tutti_layer_destroy(&m->a);
    tutti_layer_destroy(&m->b);
    tutti_layer_destroy(&m->outside);
}

static void bad_check_params(void)
{
    tutti_context *ctx = harness_context();
    tutti_comm *comm = self();
    model unbuilt = open_model(false), m = open_model(true);
    const char *names[] = {"m"};
    tutti_tensor state[1], half;
    CHECK_OK(tutti_params_flat(m.params, TUTTI_PARAMS_GRAD, &state[0]));
    half = state[0];
    half.dtype = TUTTI_F16;
    CHECK_FAILS(TUTTI_ERR_ARG, "comm",
                tutti_comm_check_params(NULL, ctx, m.params, names, state, 1));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx",
                tutti_comm_check_params(comm, NULL, m.params, names, state, 1));
    CHECK_FAILS(TUTTI_ERR_ARG, "params", tutti_comm_check_params(comm, ctx, NULL, names, state, 1));
    CHECK_FAILS(TUTTI_ERR_STATE, "built",
                tutti_comm_check_params(comm, ctx, unbuilt.params, names, state, 1));
    CHECK_FAILS(TUTTI_ERR_ARG, "count",
                tutti_comm_check_params(comm, ctx, m.params, names, state, -1));
    CHECK_FAILS(TUTTI_ERR_ARG, "names",
                tutti_comm_check_params(comm, ctx, m.params, NULL, state, 1));
    CHECK_FAILS(TUTTI_ERR_ARG, "state",
                tutti_comm_check_params(comm, ctx, m.params, names, NULL, 1));
    CHECK_FAILS(TUTTI_ERR_ARG, "f16",
                tutti_comm_check_params(comm, ctx, m.params, names, &half, 1));
    state[0].data = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "NULL",
                tutti_comm_check_params(comm, ctx, m.params, names, state, 1));
    if (foreign_context())
        CHECK_FAILS(TUTTI_ERR_ARG, "context",
                    tutti_comm_check_params(comm, foreign_context(), m.params, NULL, NULL, 0));
    close_model(&m);
    close_model(&unbuilt);
    tutti_comm_destroy(&comm);
}

static void bad_broadcast_params(void)
{
    tutti_context *ctx = harness_context();
    tutti_comm *comm = self();
    model m = open_model(false);
    CHECK_FAILS(TUTTI_ERR_ARG, "comm", tutti_comm_broadcast_params(NULL, ctx, m.params));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_comm_broadcast_params(comm, NULL, m.params));
    CHECK_FAILS(TUTTI_ERR_ARG, "params", tutti_comm_broadcast_params(comm, ctx, NULL));
    CHECK_FAILS(TUTTI_ERR_STATE, "built", tutti_comm_broadcast_params(comm, ctx, m.params));
    if (foreign_context())
        CHECK_FAILS(TUTTI_ERR_ARG, "context",
                    tutti_comm_broadcast_params(comm, foreign_context(), m.params));
    close_model(&m);
    tutti_comm_destroy(&comm);
}

/* grad_sync.h */

static void bad_grad_sync_create(void)
{
    tutti_context *ctx = harness_context();
    tutti_comm *comm = self();
    model m = open_model(true), unbuilt = open_model(false);
    tutti_grad_sync *sync = UNTOUCHED(tutti_grad_sync);
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "comm",
                        tutti_grad_sync_create(NULL, ctx, m.params, NULL, &sync));
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "ctx",
                        tutti_grad_sync_create(comm, NULL, m.params, NULL, &sync));
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "params",
                        tutti_grad_sync_create(comm, ctx, NULL, NULL, &sync));
    CHECK_FAILS(TUTTI_ERR_ARG, "sync", tutti_grad_sync_create(comm, ctx, m.params, NULL, NULL));
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_STATE, "built",
                        tutti_grad_sync_create(comm, ctx, unbuilt.params, NULL, &sync));
    if (foreign_context())
        CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "context",
                            tutti_grad_sync_create(comm, foreign_context(), m.params, NULL, &sync));
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.range_bytes = 0;
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "range_bytes",
                        tutti_grad_sync_create(comm, ctx, m.params, &desc, &sync));
    desc = (tutti_grad_sync_desc)TUTTI_GRAD_SYNC_DESC_INIT;
    desc.last_range_bytes = 0;
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "last_range_bytes",
                        tutti_grad_sync_create(comm, ctx, m.params, &desc, &sync));
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
                        tutti_grad_sync_create_list(NULL, ctx, list, 2, NULL, &sync));
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "ctx",
                        tutti_grad_sync_create_list(comm, NULL, list, 2, NULL, &sync));
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "list",
                        tutti_grad_sync_create_list(comm, ctx, NULL, 2, NULL, &sync));
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "count",
                        tutti_grad_sync_create_list(comm, ctx, list, -1, NULL, &sync));
    CHECK_FAILS(TUTTI_ERR_ARG, "sync", tutti_grad_sync_create_list(comm, ctx, list, 2, NULL, NULL));
    list[1] = NULL;
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "list[1]",
                        tutti_grad_sync_create_list(comm, ctx, list, 2, NULL, &sync));
    list[1] = a;
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "a/gamma",
                        tutti_grad_sync_create_list(comm, ctx, list, 2, NULL, &sync));
    list[1] = tutti_layer_param(m.outside, 0); /* bound to nothing */
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "gamma",
                        tutti_grad_sync_create_list(comm, ctx, list, 2, NULL, &sync));
    tutti_param shifted = *b; /* its gradient begins inside of a's */
    snprintf(shifted.name, sizeof shifted.name, "shifted");
    shifted.grad.data = (char *)a->grad.data + 4;
    list[1] = &shifted;
    CHECK_FAILS_KEEPING(sync, TUTTI_ERR_ARG, "shifted",
                        tutti_grad_sync_create_list(comm, ctx, list, 2, NULL, &sync));
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
    CHECK_OK(tutti_grad_sync_create(e.comm, harness_context(), e.m.params, &desc, &e.sync));
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
    CHECK_OK(tutti_grad_sync_ready(e.sync, ctx, e.m.a)); /* the refusal spoilt nothing */
    CHECK_OK(tutti_grad_sync_finish(e.sync, ctx));
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

/* tests/comm/test_leaves.c has what can be wrong with the leaf */
static void bad_grad_sync_leaf(tutti_status (*call)(tutti_grad_sync *, tutti_context *, int))
{
    exchange e = open_exchange(false);
    tutti_context *ctx = harness_context();
    CHECK_FAILS(TUTTI_ERR_ARG, "sync", call(NULL, ctx, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", call(e.sync, NULL, 0));
    if (foreign_context())
        CHECK_FAILS(TUTTI_ERR_ARG, "context", call(e.sync, foreign_context(), 0));
    CHECK_FAILS(TUTTI_ERR_STATE, "fast mode", call(e.sync, ctx, 0));
    close_exchange(&e);
}
static void bad_grad_sync_leaf_begin(void)
{
    bad_grad_sync_leaf(tutti_grad_sync_leaf_begin);
}
static void bad_grad_sync_leaf_end(void)
{
    bad_grad_sync_leaf(tutti_grad_sync_leaf_end);
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

/* cuda.h */

#ifdef TESTS_WITH_CUDA
static void bad_context_create_on_stream(void)
{
    tutti_context *ctx = UNTOUCHED(tutti_context);
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_context_create_on_stream(0, NULL, NULL));
    CHECK_FAILS_KEEPING(ctx, TUTTI_ERR_DEVICE, "device",
                        tutti_context_create_on_stream(-1, NULL, &ctx));
    CHECK_FAILS_KEEPING(ctx, TUTTI_ERR_DEVICE, "device",
                        tutti_context_create_on_stream(1000, NULL, &ctx));
}

static void bad_context_stream(void)
{
    CHECK(!tutti_context_stream(NULL), "NULL has a stream");
    tutti_context *host = NULL;
    tutti_context_desc desc = TUTTI_CONTEXT_DESC_INIT;
    desc.backend = TUTTI_BACKEND_HOST;
    CHECK_OK(tutti_context_create(&desc, &host));
    CHECK(!tutti_context_stream(host), "a context on the host has a CUDA stream");
    tutti_context_destroy(&host);
}
#endif

/* nccl.h */

#ifdef TESTS_WITH_NCCL
static void bad_comm_create_from_nccl(void)
{
    tutti_context *ctx = harness_context();
    tutti_comm *comm = UNTOUCHED(tutti_comm);
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "nccl_comm",
                        tutti_comm_create_from_nccl(ctx, &desc, NULL, &comm));
    /* no communicator of NCCL's is looked at before the other arguments are right */
    ncclComm_t some = (ncclComm_t)&desc;
    CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "ctx",
                        tutti_comm_create_from_nccl(NULL, &desc, some, &comm));
    CHECK_FAILS(TUTTI_ERR_ARG, "comm", tutti_comm_create_from_nccl(ctx, &desc, some, NULL));
    for (int i = 0; i < HARNESS_COUNT(bad_timeouts); i++) {
        desc.timeout = bad_timeouts[i];
        CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "timeout",
                            tutti_comm_create_from_nccl(ctx, &desc, some, &comm));
    }
    desc.timeout = 1;
    static const int transports[] = {99, TUTTI_TRANSPORT_SELF, TUTTI_TRANSPORT_MPI};
    for (int i = 0; i < HARNESS_COUNT(transports); i++) {
        desc.transport = (tutti_transport)transports[i];
        CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "transport",
                            tutti_comm_create_from_nccl(ctx, &desc, some, &comm));
    }
    tutti_context *host = NULL;
    tutti_context_desc on_host = TUTTI_CONTEXT_DESC_INIT;
    on_host.backend = TUTTI_BACKEND_HOST;
    CHECK_OK(tutti_context_create(&on_host, &host));
    desc.transport = TUTTI_TRANSPORT_NCCL;
    CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "host",
                        tutti_comm_create_from_nccl(host, &desc, some, &comm));
    tutti_context_destroy(&host);
}
#endif

/* mpi.h: a program that was started without mpirun is a world of one rank.  The last case, because
 * it initialises MPI and, at the end, finalises it. */

#ifdef TESTS_WITH_MPI
static void bad_comm_create_from_mpi(void)
{
    tutti_context *ctx = harness_context();
    tutti_comm *comm = UNTOUCHED(tutti_comm);
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    CHECK_FAILS_KEEPING(comm, TUTTI_ERR_STATE, "MPI",
                        tutti_comm_create_from_mpi(ctx, &desc, MPI_COMM_WORLD, &comm));
    int level;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "mpi_comm",
                        tutti_comm_create_from_mpi(ctx, &desc, MPI_COMM_NULL, &comm));
    CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "ctx",
                        tutti_comm_create_from_mpi(NULL, &desc, MPI_COMM_WORLD, &comm));
    CHECK_FAILS(TUTTI_ERR_ARG, "comm",
                tutti_comm_create_from_mpi(ctx, &desc, MPI_COMM_WORLD, NULL));
    for (int i = 0; i < HARNESS_COUNT(bad_timeouts); i++) {
        desc.timeout = bad_timeouts[i];
        CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "timeout",
                            tutti_comm_create_from_mpi(ctx, &desc, MPI_COMM_WORLD, &comm));
    }
    desc.timeout = 20;
    desc.transport = (tutti_transport)99;
    CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "transport",
                        tutti_comm_create_from_mpi(ctx, &desc, MPI_COMM_WORLD, &comm));
    desc.transport = TUTTI_TRANSPORT_NCCL;
#ifdef TESTS_WITH_NCCL
    if (harness_backend() == TUTTI_BACKEND_HOST)
        CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "host",
                            tutti_comm_create_from_mpi(ctx, &desc, MPI_COMM_WORLD, &comm));
#else
    CHECK_FAILS_KEEPING(comm, TUTTI_ERR_UNSUPPORTED, "NCCL",
                        tutti_comm_create_from_mpi(ctx, &desc, MPI_COMM_WORLD, &comm));
#endif
    /* the verbs of the mpi transport check what those of self do */
    desc.transport = TUTTI_TRANSPORT_MPI;
    if (CHECK_OK(tutti_comm_create_from_mpi(ctx, &desc, MPI_COMM_WORLD, &comm))) {
        float data = 1;
        CHECK_FAILS(TUTTI_ERR_ARG, "count",
                    tutti_comm_all_reduce(comm, ctx, &data, &data, -1, TUTTI_F32, TUTTI_SUM));
        CHECK_FAILS(TUTTI_ERR_ARG, "ctx",
                    tutti_comm_all_reduce(comm, NULL, &data, &data, 1, TUTTI_F32, TUTTI_SUM));
        CHECK_OK(tutti_comm_barrier(comm, ctx));
        tutti_comm_destroy(&comm);
    }
    MPI_Finalize();
    comm = UNTOUCHED(tutti_comm);
    CHECK_FAILS_KEEPING(comm, TUTTI_ERR_STATE, "finalised",
                        tutti_comm_create_from_mpi(ctx, &desc, MPI_COMM_WORLD, &comm));
}
#endif

const harness_test bad_comm[] = {
    {"tutti_comm_create", bad_comm_create},
    {"tutti_comm_destroy", bad_comm_destroy},
    {"tutti_comm_rank", bad_comm_rank},
    {"tutti_comm_world_size", bad_comm_world_size},
    {"tutti_comm_transport", bad_comm_transport},
    {"tutti_comm_all_reduce", bad_all_reduce},
    {"tutti_comm_broadcast", bad_broadcast},
    {"tutti_comm_all_gather", bad_all_gather},
    {"tutti_comm_reduce_scatter", bad_reduce_scatter},
    {"tutti_comm_all_to_all", bad_all_to_all},
    {"tutti_comm_barrier", bad_barrier},
    {"tutti_comm_agree", bad_agree},
    {"tutti_comm_broadcast_params", bad_broadcast_params},
    {"tutti_comm_check_params", bad_check_params},
    {"tutti_comm_allocator", bad_comm_allocator},
    {"tutti_grad_sync_create", bad_grad_sync_create},
    {"tutti_grad_sync_create_list", bad_grad_sync_create_list},
    {"tutti_grad_sync_destroy", bad_grad_sync_destroy},
    {"tutti_grad_sync_ready", bad_grad_sync_ready},
    {"tutti_grad_sync_ready_param", bad_grad_sync_ready_param},
    {"tutti_grad_sync_finish", bad_grad_sync_finish},
    {"tutti_grad_sync_own_leaves", bad_grad_sync_own_leaves},
    {"tutti_grad_sync_leaf_begin", bad_grad_sync_leaf_begin},
    {"tutti_grad_sync_leaf_end", bad_grad_sync_leaf_end},
    {"tutti_grad_sync_get_info", bad_grad_sync_get_info},
    {"tutti_grad_sync_get_timeline", bad_grad_sync_get_timeline},
#ifdef TESTS_WITH_CUDA
    {"tutti_context_create_on_stream", bad_context_create_on_stream},
    {"tutti_context_stream", bad_context_stream},
#endif
#ifdef TESTS_WITH_NCCL
    {"tutti_comm_create_from_nccl", bad_comm_create_from_nccl},
#endif
#ifdef TESTS_WITH_MPI
    {"tutti_comm_create_from_mpi", bad_comm_create_from_mpi},
#endif
    {NULL, NULL},
};
