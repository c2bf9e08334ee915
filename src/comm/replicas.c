/* Replicas: broadcasting rank 0's parameters, and proving that all ranks hold the same. */
#include <stdlib.h>
#include <string.h>

#include "comm/agree.h"
#include "comm/comm.h"
#include "comm/control.h"
#include "comm/rank_list.h"
#include "core/params.h"

static uint64_t param_signature(const tutti_param *param)
{
    uint64_t hash = tutti__hash(TUTTI__HASH_START, param->name, strlen(param->name) + 1);
    const int32_t types[] = {(int32_t)param->value.dtype, param->value.ndim};
    hash = tutti__hash(hash, types, sizeof types);
    return tutti__hash(hash, param->value.dims, (size_t)param->value.ndim * sizeof(int64_t));
}

/* Fails unless every rank's store has the same layout. */
static tutti_status same_layout(tutti_comm *comm, const tutti_params *params, const char *who)
{
    uint64_t layout = tutti__hash(TUTTI__HASH_START, &params->count, sizeof params->count);
    layout = tutti__hash(layout, &params->trained, sizeof params->trained);
    layout = tutti__hash(layout, &params->desc.shards, sizeof params->desc.shards);
    for (int i = 0; i < params->slot_count; i++) {
        uint64_t one = param_signature(params->slots[i].param);
        layout = tutti__hash(layout, &one, sizeof one);
    }
    uint64_t values[] = {(uint64_t)params->slot_count, (uint64_t)params->desc.master_dtype, layout};
    int differ, first;
    char ranks[160];
    TUTTI_TRY(tutti__comm_compare(comm, values, 3, who, &differ, &first, ranks, sizeof ranks));
    static const char *const what[] = {
        "the number of parameters", "the type of the masters",
        "a parameter's name, shape or type, whether it is frozen, or the number of shards"};
    if (differ >= 0)
        return tutti__fail(TUTTI_ERR_COMM,
                           "%s: %s on %s differs from rank 0's; every rank must build the same "
                           "model",
                           who, what[differ], ranks);
    return TUTTI_OK;
}

/* What all ranks should hold equally: a master (empty name) or a part of an optimizer's state. */
typedef struct replica {
    const tutti_param *param; /* NULL: a tensor that is not laid out like the store */
    const char *name;
    const char *data;
    size_t bytes;
} replica;

static tutti_status hash_replicas(tutti_context *ctx, const replica *replicas, int count,
                                  uint64_t *hashes)
{
    const size_t bytes = (size_t)count * sizeof *hashes;
    void *device = NULL;
    TUTTI_TRY(tutti_alloc(ctx, bytes + sizeof *hashes, &device));
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < count && status == TUTTI_OK; i++)
        status = ctx->backend->op.hash(ctx, (const uint32_t *)(const void *)replicas[i].data,
                                       (int64_t)(replicas[i].bytes / sizeof(uint32_t)),
                                       (uint64_t *)device + i);
    if (status == TUTTI_OK) status = tutti_copy(ctx, hashes, device, bytes);
    if (status == TUTTI_OK) status = tutti_context_synchronize(ctx);
    tutti_status freed = tutti_free(ctx, &device);
    return status == TUTTI_OK ? freed : status;
}

/* The ranks whose value is not the most frequent one (in a tie, rank 0's counts). */
static void minority(const uint64_t *values, int world, size_t stride, char *ranks, size_t size)
{
    int best = 0, most = 0;
    for (int r = 0; r < world; r++) {
        int same = 0;
        for (int q = 0; q < world; q++)
            same += values[(size_t)q * stride] == values[(size_t)r * stride];
        if (same > most) best = r, most = same;
    }
    ranks[0] = 0;
    for (int r = 0; r < world; r++)
        if (values[(size_t)r * stride] != values[(size_t)best * stride])
            tutti__rank_list_add(ranks, size, r);
}

/* Compares replicas over the ranks.  *differ: -1, or the first that differs; ranks: the
 * minority. */
static tutti_status compare_replicas(tutti_comm *comm, tutti_context *ctx, const replica *replicas,
                                     int count, const char *who, int *differ, char *ranks,
                                     size_t size)
{
    const size_t n = (size_t)count;
    uint64_t *own = calloc(n + 1, sizeof *own);
    uint64_t *all = calloc(n * (size_t)comm->world_size + 1, sizeof *all);
    tutti_status status = own && all ? hash_replicas(ctx, replicas, count, own)
                                     : tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    status = tutti_comm_agree(comm, status);
    if (status == TUTTI_OK) status = comm->control->gather(comm, own, all, n * sizeof *all, who);
    *differ = -1;
    for (size_t i = 0; i < n && status == TUTTI_OK && *differ < 0; i++)
        for (size_t r = 1; r < (size_t)comm->world_size; r++)
            if (all[r * n + i] != all[i]) *differ = (int)i;
    if (*differ >= 0) minority(all + *differ, comm->world_size, n, ranks, size);
    free(own);
    free(all);
    return status;
}

/* The masters, or of parameters whose masters are in parts the values. */
static int list_masters(const tutti_params *params, replica *list)
{
    for (int i = 0; i < params->slot_count; i++) {
        const tutti_param *param = params->slots[i].param;
        const tutti_tensor *tensor = param->master.data ? &param->master : &param->value;
        size_t bytes = (size_t)tutti_tensor_count(tensor) * tutti__size_of(tensor->dtype);
        /* whole words: the padding is zero */
        bytes = (bytes + sizeof(uint32_t) - 1) / sizeof(uint32_t) * sizeof(uint32_t);
        list[i] = (replica){param, "", tensor->data, bytes};
    }
    return params->slot_count;
}

/* The parts of a state tensor: one per slot, or the whole; none of a shard's own. */
static int list_state(const tutti_params *params, const tutti_state_tensor *state, replica *list)
{
    const tutti_tensor *tensor = &state->tensor;
    const size_t size = tutti__size_of(tensor->dtype);
    if (state->like_store && params->desc.shards) return 0;
    if (!state->like_store) {
        *list = (replica){NULL, state->name, tensor->data, (size_t)tensor->dims[0] * size};
        return 1;
    }
    for (int i = 0; i < params->trained_slots; i++) {
        const tutti__slot *slot = &params->slots[i];
        list[i] = (replica){slot->param, state->name,
                            (const char *)tensor->data + (size_t)slot->offset * size,
                            (size_t)slot->count * size};
    }
    return params->trained_slots;
}

/* Rank 0's masters to all ranks; of those in parts, every rank's values. */
static tutti_status send_params(tutti_comm *comm, tutti_context *ctx, tutti_params *params)
{
    const int64_t first = params->parted ? params->rounded : 0, count = params->count - first;
    TUTTI_TRY(tutti_comm_broadcast(comm, ctx, tutti__masters_at(params, first), count,
                                   params->desc.master_dtype, 0));
    TUTTI_TRY(tutti_params_refresh(params, ctx));
    return tutti_context_synchronize(ctx);
}

tutti_status tutti_comm_broadcast_params(tutti_comm *comm, tutti_context *ctx, tutti_params *params)
{
    TUTTI_REQUIRE(comm, "broadcast_params: comm is NULL");
    TUTTI_TRY(tutti__comm_open(comm, "broadcast_params"));
    /* an error on one rank fails all of them before anything is sent */
    tutti_status status = tutti__comm_context_check(comm, ctx, "broadcast_params");
    if (status == TUTTI_OK && !params)
        status = tutti__fail(TUTTI_ERR_ARG, "broadcast_params: params is NULL");
    if (status == TUTTI_OK) status = tutti__params_ready(params, ctx, "broadcast_params");
    if (status == TUTTI_OK) status = tutti__values_await(params, ctx, TUTTI__VALUES_ALL);
    if (status == TUTTI_OK) status = tutti_context_synchronize(ctx); /* fails during capture */
    TUTTI_TRY(tutti_comm_agree(comm, status));
    TUTTI_TRY(same_layout(comm, params, "broadcast_params"));
    TUTTI_TRY(send_params(comm, ctx, params));

    replica *masters = calloc((size_t)params->slot_count + 1, sizeof *masters);
    TUTTI_TRY(tutti_comm_agree(
        comm, masters ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "broadcast_params: no memory")));
    (void)list_masters(params, masters);
    int differ = -1;
    char ranks[160];
    status = compare_replicas(comm, ctx, masters, params->slot_count, "broadcast_params", &differ,
                              ranks, sizeof ranks);
    free(masters);
    TUTTI_TRY(status);
    if (differ >= 0)
        return tutti__fail(TUTTI_ERR_COMM,
                           "broadcast_params: after the broadcast '%s' on %s differs from the "
                           "others': memory or transport is faulty",
                           params->slots[differ].param->name, ranks);
    return TUTTI_OK;
}

/* Checks the arguments of check_params. */
static tutti_status check_state(const tutti_comm *comm, const tutti_context *ctx,
                                const tutti_params *params, const tutti_state_tensor *state,
                                int count)
{
    static const char who[] = "check_params";
    TUTTI_TRY(tutti__comm_context_check(comm, ctx, who));
    TUTTI_REQUIRE(params, "%s: params is NULL", who);
    TUTTI_TRY(tutti__params_ready(params, ctx, who));
    TUTTI_REQUIRE(count >= 0 && count < 1 << 16, "%s: count is %d, want 0 to 65535", who, count);
    TUTTI_REQUIRE(count == 0 || state, "%s: state is NULL", who);
    for (int i = 0; i < count; i++) {
        const tutti_tensor *tensor = &state[i].tensor;
        TUTTI_REQUIRE(state[i].name, "%s: state[%d].name is NULL", who, i);
        TUTTI_REQUIRE(tensor->data, "%s: the data of state '%s' is NULL", who, state[i].name);
        TUTTI_REQUIRE(
            tutti_dtype_size(tensor->dtype) >= 4 && tensor->ndim == 1,
            "%s: state '%s' is %s with %d dimensions, want f32, f64 or i32 with 1 dimension", who,
            state[i].name, tutti_dtype_name(tensor->dtype), tensor->ndim);
        TUTTI_TRY(tutti__state_check(params, &state[i], who));
    }
    return TUTTI_OK;
}

tutti_status tutti_comm_check_params(tutti_comm *comm, tutti_context *ctx, tutti_params *params,
                                     const tutti_state_tensor *state, int count)
{
    static const char who[] = "check_params";
    TUTTI_REQUIRE(comm, "%s: comm is NULL", who);
    TUTTI_TRY(tutti__comm_open(comm, who));
    tutti_status status = check_state(comm, ctx, params, state, count);
    if (status == TUTTI_OK) status = tutti__values_await(params, ctx, TUTTI__VALUES_ALL);
    if (status == TUTTI_OK) status = tutti_context_synchronize(ctx); /* fails during capture */
    replica *list = NULL;
    if (status == TUTTI_OK) {
        list = calloc((size_t)(count + 1) * (size_t)(params->slot_count + 1), sizeof *list);
        if (!list) status = tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    }
    status = tutti_comm_agree(comm, status);
    if (status == TUTTI_OK) status = same_layout(comm, params, who);
    if (status != TUTTI_OK) {
        free(list);
        return status;
    }
    int n = list_masters(params, list), differ = -1;
    for (int i = 0; i < count; i++) n += list_state(params, &state[i], list + n);
    char ranks[160];
    status = compare_replicas(comm, ctx, list, n, who, &differ, ranks, sizeof ranks);
    if (status == TUTTI_OK && differ >= 0) {
        const replica *bad = &list[differ];
        status = tutti__fail(TUTTI_ERR_DATA,
                             "%s: '%s%s%s' on %s differs from the other ranks': the replicas have "
                             "diverged",
                             who, bad->param ? bad->param->name : "",
                             bad->param && bad->name[0] ? " " : "", bad->name, ranks);
    }
    free(list);
    return status;
}
