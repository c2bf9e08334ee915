/* Handles are destroyed in every order, as finalisers of other languages do: nothing is used after
 * it was freed or leaks (under ASan), and using a handle that needs a destroyed one fails with a
 * message. */
#include <stdio.h>
#include <string.h>

#include "rig.h"

typedef struct handles {
    tutti_context *ctx;
    tutti_layer *layer;
    tutti_params *params;
    tutti_adamw *adamw;
    tutti_comm *comm;
    tutti_grad_sync *sync;
    tutti_checkpoint *checkpoint; /* NULL without HDF5 */
    tutti_step_block *step;
} handles;

enum { KINDS = 8 };

static tutti_backend backend_of_rig(void)
{
    return tutti_context_backend(rig_context());
}

/* A store whose gradients lie in the communicator's memory, and everything that depends on it. */
static handles make(tutti_transport transport)
{
    handles h = {NULL};
    tutti_context_desc context = TUTTI_CONTEXT_DESC_INIT;
    context.backend = backend_of_rig();
    context.device = tutti_context_device(rig_context());
    context.threads = 1;
    CHECK_OK(tutti_context_create(&context, &h.ctx));
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    desc.transport = transport;
    CHECK_OK(tutti_comm_create(h.ctx, &desc, &h.comm));
    CHECK_OK(tutti_layer_create_by_name(h.ctx, "rmsnorm", "cols=4", &h.layer));
    tutti_params_desc store = TUTTI_PARAMS_DESC_INIT;
    store.gradient_memory = tutti_comm_allocator(h.comm);
    CHECK_OK(tutti_params_create(h.ctx, &store, &h.params));
    CHECK_OK(tutti_params_add(h.params, h.layer, "norm"));
    CHECK_OK(tutti_params_build(h.params, h.ctx));
    CHECK_OK(tutti_adamw_create(h.ctx, h.params, NULL, &h.adamw));
    CHECK_OK(tutti_grad_sync_create(h.ctx, h.comm, h.params, NULL, &h.sync));
    CHECK_OK(tutti_step_block_create(h.ctx, &h.step));
    CHECK_OK(
        tutti_step_block_set(h.step, h.ctx, &(tutti_step_values){.step = 1, .loss_weight = 1}));
    tutti_status status = tutti_checkpoint_create(h.ctx, h.comm, &h.checkpoint);
    if (status == TUTTI_OK) CHECK_OK(tutti_checkpoint_add_params(h.checkpoint, h.params));
    return h;
}

static void destroy(handles *h, int kind)
{
    switch (kind) {
    case 0:
        tutti_context_destroy(&h->ctx);
        break;
    case 1:
        tutti_layer_destroy(&h->layer);
        break;
    case 2:
        tutti_params_destroy(&h->params);
        break;
    case 3:
        tutti_adamw_destroy(&h->adamw);
        break;
    case 4:
        tutti_comm_destroy(&h->comm);
        break;
    case 5:
        tutti_grad_sync_destroy(&h->sync);
        break;
    case 6:
        tutti_checkpoint_destroy(&h->checkpoint);
        break;
    case 7:
        tutti_step_block_destroy(&h->step);
        break;
    }
}

/* The next permutation in lexicographic order; false after the last. */
static bool next(int *order)
{
    int i = KINDS - 2, j = KINDS - 1;
    while (i >= 0 && order[i] > order[i + 1]) i--;
    if (i < 0) return false;
    while (order[j] < order[i]) j--;
    int swapped = order[i];
    order[i] = order[j];
    order[j] = swapped;
    for (int a = i + 1, b = KINDS - 1; a < b; a++, b--) {
        swapped = order[a];
        order[a] = order[b];
        order[b] = swapped;
    }
    return true;
}

/* Destroys in every stride-th order, after a whole step, half of one, or none. */
static void orders(tutti_transport transport, int stride)
{
    int order[KINDS], count = 0;
    for (int i = 0; i < KINDS; i++) order[i] = i;
    do {
        if (count++ % stride) continue;
        handles h = make(transport);
        if (count % 3) CHECK_OK(tutti_grad_sync_ready(h.sync, h.ctx, h.layer));
        if (count % 3 == 2) CHECK_OK(tutti_grad_sync_finish(h.sync, h.ctx));
        for (int i = 0; i < KINDS; i++) destroy(&h, order[i]);
    } while (!harness_failures() && next(order));
    CHECK(count == 40320, "%d orders", count);
}

/* Handles that need a destroyed one say so. */
static void used_over(tutti_transport transport)
{
    handles h = make(transport);
    tutti_allocator memory = tutti_comm_allocator(h.comm);
    const tutti_param *gamma = tutti_layer_param(h.layer, 0);
    void *data = NULL;
    CHECK_OK(memory.alloc(memory.self, 64, &data));
    static const char gone[] = "communicator has been destroyed";
    tutti_comm_destroy(&h.comm);
    CHECK_FAILS(TUTTI_ERR_STATE, gone, tutti_grad_sync_ready(h.sync, h.ctx, h.layer));
    CHECK_FAILS(TUTTI_ERR_STATE, gone, tutti_grad_sync_ready_param(h.sync, h.ctx, gamma));
    CHECK_FAILS(TUTTI_ERR_STATE, gone, tutti_grad_sync_wait(h.sync, h.ctx, gamma));
    CHECK_FAILS(TUTTI_ERR_STATE, gone, tutti_grad_sync_finish(h.sync, h.ctx));
    CHECK_FAILS(TUTTI_ERR_STATE, gone, memory.alloc(memory.self, 64, &(void *){NULL}));
    if (h.checkpoint) {
        CHECK_FAILS(TUTTI_ERR_STATE, gone, tutti_checkpoint_save(h.checkpoint, "x", 0));
        CHECK_FAILS(TUTTI_ERR_STATE, gone, tutti_checkpoint_load(h.checkpoint, "x", 0));
        CHECK_FAILS(TUTTI_ERR_STATE, gone, tutti_checkpoint_own(h.checkpoint, "x", 0));
    }
    CHECK_OK(memory.free(memory.self, data));
    for (int i = 0; i < KINDS; i++) destroy(&h, i);

    h = make(transport);
    tutti_params_destroy(&h.params);
    CHECK_FAILS(TUTTI_ERR_STATE, "store has been", tutti_adamw_update(h.adamw, h.ctx, h.step));
    CHECK_FAILS(TUTTI_ERR_STATE, "store has been", tutti_grad_sync_finish(h.sync, h.ctx));
    if (h.checkpoint)
        CHECK_FAILS(TUTTI_ERR_STATE, "store has been", tutti_checkpoint_save(h.checkpoint, "x", 0));
    float row[4] = {1, 2, 3, 4};
    tutti_tensor x = tutti_tensor_2d(row, TUTTI_F32, 1, 4);
    if (backend_of_rig() == TUTTI_BACKEND_HOST)
        CHECK_FAILS(TUTTI_ERR_STATE, "gamma",
                    tutti_rmsnorm_forward(h.layer, h.ctx,
                                          &(tutti_rmsnorm_call){.x = &x, .y = &x})); /* unbound */
    for (int i = 0; i < KINDS; i++) destroy(&h, i);

    h = make(transport);
    tutti_context *held = h.ctx; /* by the checkpoint */
    tutti_layer *loss = NULL;
    void *given = NULL;
    CHECK_OK(tutti_layer_create_by_name(h.ctx, "cross_entropy", "cols=4", &loss));
    CHECK_OK(tutti_alloc(h.ctx, 64, &given));
    tutti_context_destroy(&h.ctx);
    if (h.checkpoint) {
        static const char closed[] = "context has been destroyed";
        const tutti_step_values values = {.step = 2, .loss_weight = 1};
        const tutti_rmsnorm_call call = {.x = &x, .y = &x};
        size_t bytes;
        CHECK_FAILS(TUTTI_ERR_STATE, closed, tutti_checkpoint_save(h.checkpoint, "x", 0));
        CHECK_FAILS(TUTTI_ERR_STATE, closed, tutti_rmsnorm_plan(h.layer, held, &call));
        CHECK_FAILS(TUTTI_ERR_STATE, closed, tutti_rmsnorm_forward(h.layer, held, &call));
        CHECK_FAILS(TUTTI_ERR_STATE, closed, tutti_cross_entropy_count(loss, held, &x, &x, 0));
        CHECK_FAILS(TUTTI_ERR_STATE, closed, tutti_context_synchronize(held));
        CHECK_FAILS(TUTTI_ERR_STATE, closed, tutti_context_check(held));
        CHECK_FAILS(TUTTI_ERR_STATE, closed, tutti_context_trim(held));
        CHECK_FAILS(TUTTI_ERR_STATE, closed, tutti_context_tune(held, 1));
        CHECK_FAILS(TUTTI_ERR_STATE, closed, tutti_context_tuning_get(held, NULL, 0, &bytes));
        CHECK_FAILS(TUTTI_ERR_STATE, closed, tutti_alloc(held, 64, &data));
        CHECK_FAILS(TUTTI_ERR_STATE, closed, tutti_free(held, &given));
        CHECK_FAILS(TUTTI_ERR_STATE, closed, tutti_copy(held, row, row + 2, 8));
        CHECK_FAILS(TUTTI_ERR_STATE, closed, tutti_zero(held, row, 8));
        CHECK_FAILS(TUTTI_ERR_STATE, closed, tutti_step_block_set(h.step, held, &values));
        CHECK_FAILS(TUTTI_ERR_STATE, closed, tutti_step_block_weigh(h.step, held, &x));
        CHECK_FAILS(TUTTI_ERR_STATE, closed, tutti_params_zero_grad(h.params, held));
        CHECK_FAILS(TUTTI_ERR_STATE, closed, tutti_adamw_update(h.adamw, held, h.step));
        CHECK_FAILS(TUTTI_ERR_STATE, closed, tutti_grad_sync_ready(h.sync, held, h.layer));
        CHECK_FAILS(TUTTI_ERR_STATE, closed, tutti_comm_barrier(h.comm, held));
    }
    CHECK_OK(tutti_free(rig_context(), &given)); /* of the same device */
    tutti_layer_destroy(&loss);
    for (int i = 0; i < KINDS; i++) destroy(&h, i);

    /* a store built after its memory's communicator was destroyed */
    h = make(transport);
    tutti_params *late = NULL;
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    desc.gradient_memory = tutti_comm_allocator(h.comm);
    CHECK_OK(tutti_params_create(h.ctx, &desc, &late));
    for (int i = 3; i < KINDS; i++) destroy(&h, i);
    CHECK_FAILS(TUTTI_ERR_STATE, gone, tutti_params_build(late, h.ctx));
    tutti_params_destroy(&late);
    for (int i = 0; i < KINDS; i++) destroy(&h, i);
}

/* A dead communicator is what the store's optimizers complain of, not of a finish that was left
 * out; destroyed, it no longer takes part in a context's waits, even if still held. */
static void dead_over(tutti_transport transport)
{
#ifdef __SANITIZE_ADDRESS__
    (void)transport;
    harness_skip("memory that a dead communicator may still write to is not freed, and so leaks");
    return;
#else
    handles h = make(transport);
    CHECK_OK(tutti_grad_sync_ready(h.sync, h.ctx, h.layer));
    static const char unsummed[] = "not summed over the ranks: call tutti_grad_sync_finish";
    CHECK_FAILS(TUTTI_ERR_STATE, unsummed, tutti_adamw_update(h.adamw, h.ctx, h.step));
    CHECK_OK(tutti_comm_abort(h.comm, "a test"));
    CHECK_FAILS(TUTTI_ERR_COMM, "gave up: a test", tutti_grad_sync_finish(h.sync, h.ctx));
    tutti_sgd *sgd = NULL;
    CHECK_OK(tutti_sgd_create(h.ctx, h.params, NULL, &sgd));
    CHECK_FAILS(TUTTI_ERR_COMM, "adamw_update: the gradients are not summed over the ranks, and ",
                tutti_adamw_update(h.adamw, h.ctx, h.step));
    CHECK_FAILS(TUTTI_ERR_COMM, "and the exchange's communicator is dead: rank 0 gave up: a test",
                tutti_sgd_update(sgd, h.ctx, h.step));
    handles other = make(transport); /* whose communicator lives */
    CHECK_FAILS(TUTTI_ERR_STATE, unsummed, tutti_adamw_update(other.adamw, other.ctx, other.step));
    for (int i = 0; i < KINDS; i++) destroy(&other, i);
    tutti_sgd_destroy(&sgd);
    tutti_comm_destroy(&h.comm);
    CHECK_OK(tutti_context_synchronize(h.ctx));
    for (int i = 0; i < KINDS; i++) destroy(&h, i);
#endif
}

#define OVER(name, transport, stride) \
    static void orders_##name(void)   \
    {                                 \
        orders(transport, stride);    \
    }                                 \
    static void used_##name(void)     \
    {                                 \
        used_over(transport);         \
    }                                 \
    static void dead_##name(void)     \
    {                                 \
        dead_over(transport);         \
    }

OVER(self, TUTTI_TRANSPORT_SELF, backend_of_rig() == TUTTI_BACKEND_HOST ? 1 : 101)
#ifdef RIG_WITH_MPI
OVER(mpi, TUTTI_TRANSPORT_MPI, 101)
#endif

static const rig_test tests[] = {
    {"every order over self", orders_self, 1, 1, false},
    {"used after destroy over self", used_self, 1, 1, false},
    {"dead and destroyed over self", dead_self, 1, 1, false},
#ifdef RIG_WITH_MPI
    {"many orders over mpi", orders_mpi, 1, 0, false},
    {"used after destroy over mpi", used_mpi, 1, 0, false},
    {"dead and destroyed over mpi", dead_mpi, 1, 1, false},
#endif
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "handles", tests, HARNESS_COUNT(tests));
}
