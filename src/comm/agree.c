/* Agreement of all ranks: the first failed rank's status, and whether their numbers are equal. */
#include "comm/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/control.h"
#include "comm/rank_list.h"

void *tutti__comm_room(tutti_comm *comm, size_t bytes, const char *operation)
{
    void *room = calloc(1, bytes + 1);
    char why[128];
    if (room) return room;
    snprintf(why, sizeof why, "%s: no memory", operation);
    (void)tutti_comm_abort(comm, why);
    (void)tutti__fail(TUTTI_ERR_MEMORY, "%s", why);
    return NULL;
}

tutti_status tutti_comm_agree(tutti_comm *comm, tutti_status status)
{
    TUTTI_REQUIRE(comm, "agree: comm is NULL");
    TUTTI_TRY(tutti__comm_open(comm, "agree"));
    if (comm->world_size == 1) return status; /* the message is written already */
    char message[TUTTI__MESSAGE_MAX] = "";
    if (status != TUTTI_OK)
        snprintf(message, sizeof message, "%s",
                 tutti_last_error()[0] ? tutti_last_error() : tutti_status_string(status));
    int32_t mine = (int32_t)status,
            *all = tutti__comm_room(comm, (size_t)comm->world_size * sizeof *all, "agree");
    if (!all) return TUTTI_ERR_MEMORY;
    tutti_status moved = comm->control->gather(comm, &mine, all, sizeof mine, "agree");
    int first = 0;
    while (moved == TUTTI_OK && first < comm->world_size && all[first] == TUTTI_OK) first++;
    if (moved == TUTTI_OK && first < comm->world_size) {
        status = (tutti_status)all[first];
        moved = comm->control->broadcast(comm, message, sizeof message, first, "agree");
        message[sizeof message - 1] = 0;
        /* not twice, where one agreement follows another */
        const bool named = strncmp(message, "rank ", 5) == 0;
        if (moved == TUTTI_OK && named)
            tutti__fail(status, "%s", message);
        else if (moved == TUTTI_OK)
            tutti__fail(status, "rank %d: %s", first, message);
    }
    free(all);
    return moved == TUTTI_OK ? status : moved;
}

tutti_status tutti__comm_compare(tutti_comm *comm, const uint64_t *values, int count,
                                 const char *operation, int *differ, int *first_rank, char *ranks,
                                 size_t size)
{
    *differ = -1;
    *first_rank = 0;
    ranks[0] = 0;
    size_t n = (size_t)count, world = (size_t)comm->world_size;
    uint64_t *all = tutti__comm_room(comm, n * world * sizeof *all, operation);
    if (!all) return TUTTI_ERR_MEMORY;
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

tutti_status tutti__comm_all(tutti_comm *comm, bool mine, const char *operation, bool *all)
{
    const int32_t own = mine;
    int32_t *told = tutti__comm_room(comm, (size_t)comm->world_size * sizeof *told, operation);
    if (!told) return TUTTI_ERR_MEMORY;
    const tutti_status status = comm->control->gather(comm, &own, told, sizeof own, operation);
    *all = status == TUTTI_OK;
    for (int r = 0; r < comm->world_size && *all; r++) *all = told[r] != 0;
    free(told);
    return status;
}
