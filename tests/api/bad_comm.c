/* Bad input for comm.h, with a communicator of one rank. */
#ifdef TESTS_WITH_MPI
#include <mpi.h>
#endif

#include <string.h>

#include "comm_fixture.h"

static void bad_comm_create(void)
{
    tutti_context *ctx = harness_context();
    tutti_comm *comm = UNTOUCHED(tutti_comm);
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    desc.transport = TUTTI_TRANSPORT_SELF;
    static const int transports[] = {99, -1, TUTTI_TRANSPORT_NCCL + 1};
    check_create_comm(tutti_comm_create, desc, transports, HARNESS_COUNT(transports));
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

/* It takes no arguments, and failures of arguments do not change its result. */
static void bad_comm_lost(void)
{
    tutti_comm *comm = self();
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_comm_barrier(comm, NULL));
    CHECK(!tutti_comm_lost(), "nothing is lost, and yet: %s", tutti_comm_lost());
    tutti_comm_destroy(&comm);
}

static void bad_comm_abort(void)
{
    tutti_comm *comm = self();
    CHECK_FAILS(TUTTI_ERR_ARG, "comm", tutti_comm_abort(NULL, "why"));
    CHECK_FAILS(TUTTI_ERR_ARG, "message", tutti_comm_abort(comm, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "message", tutti_comm_abort(comm, ""));
    CHECK_OK(tutti_comm_barrier(comm, harness_context())); /* the refusals did nothing */
    CHECK_OK(tutti_comm_abort(comm, "the disk\n\x1b[31m is full"));
    static const char why[] = "rank 0 gave up: the disk??[31m is full";
    CHECK_FAILS(TUTTI_ERR_COMM, why, tutti_comm_barrier(comm, harness_context()));
    CHECK_FAILS(TUTTI_ERR_COMM, why, tutti_comm_abort(comm, "again"));
    CHECK(tutti_comm_lost() && !strcmp(tutti_comm_lost(), why), "lost says %s", tutti_comm_lost());
    tutti_comm_destroy(&comm);
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

/* One wrong argument. */
#define CHECK_VERB(change, word)                      \
    do {                                              \
        verb bad = good;                              \
        bad.change;                                   \
        harness_where("%s", #change);                 \
        CHECK_FAILS(TUTTI_ERR_ARG, word, call(&bad)); \
        harness_where(NULL);                          \
    } while (0)

static void check_verb(tutti_status (*call)(const verb *), bool has_recv, bool has_op,
                       bool has_root)
{
    tutti_context *ctx = harness_context();
    harness_buffer from = harness_buffer_make(ctx, TUTTI_F32, 1, 8, 0, 0);
    harness_buffer to = harness_buffer_make(ctx, TUTTI_F32, 1, 8, 0, 0);
    verb good = {self(), ctx, from.data, to.data, 8, TUTTI_F32, TUTTI_SUM, 0};
    CHECK_VERB(comm = NULL, "comm");
    CHECK_VERB(ctx = NULL, "ctx");
    if (foreign_context()) CHECK_VERB(ctx = foreign_context(), "context");
    CHECK_VERB(send = NULL, has_recv ? "send" : "data");
    CHECK_VERB(count = -1, "count");
    CHECK_VERB(count = INT64_MAX, "count");
    CHECK_VERB(dtype = (tutti_dtype)99, "dtype");
    CHECK_VERB(dtype = (tutti_dtype)-1, "dtype");
    if (has_recv) {
        CHECK_VERB(recv = NULL, "recv");
        CHECK_VERB(recv = (char *)from.data + 4, "overlap");
    }
    if (has_op) {
        CHECK_VERB(op = (tutti_op)99, "op");
        CHECK_VERB(op = (tutti_op)-1, "op");
    }
    if (has_root) {
        CHECK_VERB(root = 1, "root");
        CHECK_VERB(root = -1, "root");
    }
    CHECK(harness_buffer_unchanged(ctx, &from) && harness_buffer_unchanged(ctx, &to),
          "a refused call wrote");
    verb nothing = good; /* nothing wrong */
    nothing.count = 0, nothing.send = nothing.recv = NULL;
    CHECK_OK(call(&nothing));
    tutti_comm_destroy(&good.comm);
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

static void bad_check_params(void)
{
    tutti_context *ctx = harness_context();
    tutti_comm *comm = self();
    model unbuilt = open_model(false), m = open_model(true);
    tutti_state_tensor state = {.name = "m", .like_store = 1}, bad;
    CHECK_OK(tutti_params_flat(m.params, TUTTI_PARAMS_GRAD, &state.tensor));
    CHECK_FAILS(TUTTI_ERR_ARG, "comm", tutti_comm_check_params(NULL, ctx, m.params, &state, 1));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_comm_check_params(comm, NULL, m.params, &state, 1));
    CHECK_FAILS(TUTTI_ERR_ARG, "params", tutti_comm_check_params(comm, ctx, NULL, &state, 1));
    CHECK_FAILS(TUTTI_ERR_STATE, "built",
                tutti_comm_check_params(comm, ctx, unbuilt.params, &state, 1));
    CHECK_FAILS(TUTTI_ERR_ARG, "count", tutti_comm_check_params(comm, ctx, m.params, &state, -1));
    CHECK_FAILS(TUTTI_ERR_ARG, "state", tutti_comm_check_params(comm, ctx, m.params, NULL, 1));
    bad = state, bad.name = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "name", tutti_comm_check_params(comm, ctx, m.params, &bad, 1));
    bad = state, bad.tensor.dtype = TUTTI_F16;
    CHECK_FAILS(TUTTI_ERR_ARG, "f16", tutti_comm_check_params(comm, ctx, m.params, &bad, 1));
    bad = state, bad.tensor.dims[0]--;
    CHECK_FAILS(TUTTI_ERR_ARG, "like_store", tutti_comm_check_params(comm, ctx, m.params, &bad, 1));
    bad = state, bad.tensor.data = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "NULL", tutti_comm_check_params(comm, ctx, m.params, &bad, 1));
    if (foreign_context())
        CHECK_FAILS(TUTTI_ERR_ARG, "context",
                    tutti_comm_check_params(comm, foreign_context(), m.params, NULL, 0));
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

static void bad_broadcast_tuning(void)
{
    tutti_comm *comm = self();
    CHECK_FAILS(TUTTI_ERR_ARG, "comm", tutti_comm_broadcast_tuning(NULL, harness_context()));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_comm_broadcast_tuning(comm, NULL));
    if (foreign_context())
        CHECK_FAILS(TUTTI_ERR_ARG, "context", tutti_comm_broadcast_tuning(comm, foreign_context()));
    tutti_comm_destroy(&comm);
}

/* Nothing but its size: 0 is every default. */
static void bad_comm_desc_default(void)
{
    tutti_comm_desc desc = tutti_comm_desc_default(), zero = {.size = sizeof zero};
    CHECK(memcmp(&desc, &zero, sizeof desc) == 0, "the default is not all 0");
}

const harness_test bad_comm[] = {
    {"tutti_comm_desc_default", bad_comm_desc_default},
    {"tutti_comm_create", bad_comm_create},
    {"tutti_comm_destroy", bad_comm_destroy},
    {"tutti_comm_lost", bad_comm_lost},
    {"tutti_comm_abort", bad_comm_abort},
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
    {"tutti_comm_broadcast_tuning", bad_broadcast_tuning},
    {"tutti_comm_check_params", bad_check_params},
    {"tutti_comm_allocator", bad_comm_allocator},
    {NULL, NULL},
};
