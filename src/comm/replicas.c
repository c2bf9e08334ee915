/* Replicas: comparing numbers over ranks, and making rank 0's parameters everybody's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/params.h"

/* Comparing over ranks */

void tutti__rank_list_add(char *text, size_t size, int rank)
{
    size_t used = strlen(text);
    if (used == 0)
        snprintf(text, size, "rank %d", rank);
    else if (used + 16 < size) {
        if (!strncmp(text, "rank ", 5)) {
            memmove(text + 5, text + 4, used - 3);
            text[4] = 's';
            used++;
        }
        snprintf(text + used, size - used, ", %d", rank);
    } else if (used + 4 < size && text[used - 1] != '.')
        strcat(text, "...");
}

tutti_status tutti__comm_compare(tutti_comm *comm, const uint64_t *values, int count,
                                 const char *operation, int *differ, int *first_rank, char *ranks,
                                 size_t size)
{
    *differ = -1;
    *first_rank = 0;
    ranks[0] = 0;
    size_t n = (size_t)count, world = (size_t)comm->world_size;
    uint64_t *all = malloc((n * world + 1) * sizeof *all);
    if (!all) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", operation);
    tutti_status status = comm->control->gather(comm, values, all, n * sizeof *all, operation);
    for (int i = 0; status == TUTTI_OK && i < count && *differ < 0; i++)
        for (int r = 1; r < comm->world_size; r++)
            if (all[(size_t)r * n + (size_t)i] != all[i]) {
                if (*differ < 0) *first_rank = r;
                *differ = i;
                tutti__rank_list_add(ranks, size, r);
            }
    free(all);
    return status;
}

/* Parameters */

static uint64_t param_signature(const tutti_param *param)
{
    uint64_t hash = tutti__hash(TUTTI__HASH_START, param->name, strlen(param->name) + 1);
    const int32_t types[] = {(int32_t)param->value.dtype, param->value.ndim};
    hash = tutti__hash(hash, types, sizeof types);
    return tutti__hash(hash, param->value.dims, (size_t)param->value.ndim * sizeof(int64_t));
}

/* Every rank's store has the same layout. */
static tutti_status same_layout(tutti_comm *comm, const tutti_params *params)
{
    uint64_t layout = tutti__hash(TUTTI__HASH_START, &params->count, sizeof params->count);
    for (int i = 0; i < params->slot_count; i++) {
        uint64_t one = param_signature(params->slots[i].param);
        layout = tutti__hash(layout, &one, sizeof one);
    }
    uint64_t values[] = {(uint64_t)params->slot_count, (uint64_t)params->desc.master_dtype, layout};
    int differ, first;
    char ranks[160];
    TUTTI_TRY(tutti__comm_compare(comm, values, 3, "broadcast_params", &differ, &first, ranks,
                                  sizeof ranks));
    static const char *const what[] = {"the number of parameters", "the type of the masters",
                                       "a parameter's name, shape or type"};
    if (differ >= 0)
        return tutti__fail(TUTTI_ERR_COMM,
                           "broadcast_params: %s on %s differs from rank 0's; every rank must "
                           "build the same model",
                           what[differ], ranks);
    return TUTTI_OK;
}

/* One hash a slot, of the masters' bytes. */
static tutti_status hash_masters(tutti_context *ctx, const tutti_params *params, uint64_t *hashes)
{
    size_t size = tutti_dtype_size(params->desc.master_dtype);
    int64_t largest = 1;
    for (int i = 0; i < params->slot_count; i++)
        if (params->slots[i].count > largest) largest = params->slots[i].count;
    void *host = malloc((size_t)largest * size);
    if (!host) return tutti__fail(TUTTI_ERR_MEMORY, "broadcast_params: no memory");
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < params->slot_count && status == TUTTI_OK; i++) {
        const tutti__slot *slot = &params->slots[i];
        size_t bytes = (size_t)slot->count * size;
        status = tutti_copy(ctx, host, (char *)params->master + (size_t)slot->offset * size, bytes);
        if (status == TUTTI_OK) status = tutti_context_synchronize(ctx);
        if (status == TUTTI_OK) hashes[i] = tutti__hash(TUTTI__HASH_START, host, bytes);
    }
    free(host);
    return status;
}

tutti_status tutti_comm_broadcast_params(tutti_comm *comm, tutti_context *ctx, tutti_params *params)
{
    TUTTI_REQUIRE(comm, "broadcast_params: comm is NULL");
    TUTTI_TRY(tutti__comm_alive(comm, "broadcast_params"));
    /* what is wrong on one rank is wrong on all before anything is sent */
    tutti_status status = tutti__comm_context_check(comm, ctx, "broadcast_params");
    if (status == TUTTI_OK && !params)
        status = tutti__fail(TUTTI_ERR_ARG, "broadcast_params: params is NULL");
    if (status == TUTTI_OK) status = tutti__params_ready(params, ctx, "broadcast_params");
    if (status == TUTTI_OK) status = tutti_context_synchronize(ctx); /* refuses during capture */
    TUTTI_TRY(tutti_comm_agree(comm, status));
    TUTTI_TRY(same_layout(comm, params));
    TUTTI_TRY(tutti_comm_broadcast(comm, ctx, params->master, params->count,
                                   params->desc.master_dtype, 0));
    TUTTI_TRY(tutti_params_refresh(params, ctx));
    TUTTI_TRY(tutti_context_synchronize(ctx));

    uint64_t *hashes = calloc((size_t)params->slot_count + 1, sizeof *hashes);
    status = hashes ? hash_masters(ctx, params, hashes)
                    : tutti__fail(TUTTI_ERR_MEMORY, "broadcast_params: no memory");
    status = tutti_comm_agree(comm, status);
    int differ = -1, first;
    char ranks[160];
    if (status == TUTTI_OK)
        status = tutti__comm_compare(comm, hashes, params->slot_count, "broadcast_params", &differ,
                                     &first, ranks, sizeof ranks);
    free(hashes);
    TUTTI_TRY(status);
    if (differ >= 0)
        return tutti__fail(TUTTI_ERR_COMM,
                           "broadcast_params: after the broadcast '%s' on %s still differs from "
                           "rank 0's: memory or transport is faulty",
                           params->slots[differ].param->name, ranks);
    return TUTTI_OK;
}
