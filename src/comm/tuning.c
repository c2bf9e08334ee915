/* Rank 0's measured choices for matrix products to all ranks. */
#include <stdlib.h>

#include "comm/comm.h"
#include "comm/control.h"

static const char who[] = "broadcast_tuning";

/* Rank 0's bytes, allocated; NULL on the others. */
static tutti_status collect(const tutti_comm *comm, tutti_context *ctx, void **data,
                            uint64_t *bytes)
{
    TUTTI_TRY(tutti__comm_context_check(comm, ctx, who));
    TUTTI_TRY(tutti_context_tune(ctx, 0)); /* fails during capture */
    if (comm->rank != 0) return TUTTI_OK;
    size_t size;
    TUTTI_TRY(tutti_context_tuning_get(ctx, NULL, 0, &size));
    *bytes = size;
    *data = malloc(size + 1);
    if (!*data) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory for the choices", who);
    return tutti_context_tuning_get(ctx, *data, size, &size);
}

static tutti_status spread(tutti_comm *comm, tutti_context *ctx, void **data, uint64_t bytes)
{
    TUTTI_TRY(comm->control->broadcast(comm, &bytes, sizeof bytes, 0, who));
    if (!*data) *data = malloc((size_t)bytes + 1);
    TUTTI_TRY(tutti_comm_agree(
        comm,
        *data ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory for the choices", who)));
    if (bytes > 0) TUTTI_TRY(comm->control->broadcast(comm, *data, (size_t)bytes, 0, who));
    return tutti_comm_agree(
        comm, comm->rank == 0 ? TUTTI_OK : tutti_context_tuning_set(ctx, *data, (size_t)bytes));
}

tutti_status tutti_comm_broadcast_tuning(tutti_comm *comm, tutti_context *ctx)
{
    TUTTI_REQUIRE(comm, "%s: comm is NULL", who);
    TUTTI_TRY(tutti__comm_open(comm, who));
    void *data = NULL;
    uint64_t bytes = 0;
    /* an error on one rank fails all of them before anything is sent */
    tutti_status status = tutti_comm_agree(comm, collect(comm, ctx, &data, &bytes));
    if (status == TUTTI_OK) status = spread(comm, ctx, &data, bytes);
    free(data);
    return status;
}
