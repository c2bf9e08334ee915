/* Gradient memory in a symmetric window: NCCL then reads the peers' memory directly, which halves
 * the time of small sums.  Plain device memory if the library is too old for windows or a rank
 * cannot have one. */
#include <stdlib.h>

#include "comm/agree.h"
#include "comm/nccl/transport.h"

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
#define WITH_WINDOWS
/* NULL if the loaded library is older than the header */
#pragma weak ncclCommWindowRegister
#pragma weak ncclCommWindowDeregister
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
#define WITH_MEM_ALLOC
#pragma weak ncclMemAlloc
#pragma weak ncclMemFree
#endif

/* Allocates by NCCL if every rank can. */
static tutti_status alloc_by_nccl(tutti_comm *comm, size_t bytes, tutti__nccl_memory *memory)
{
#if defined WITH_WINDOWS && defined WITH_MEM_ALLOC
    bool able = ncclMemAlloc && ncclMemFree && ncclCommWindowRegister && ncclCommWindowDeregister;
    if (able && ncclMemAlloc(&memory->data, bytes) != ncclSuccess) memory->data = NULL;
    /* the registration below is collective */
    unsigned char mine = memory->data != NULL, *all = malloc((size_t)comm->world_size);
    tutti_status status = all ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "allocator: no memory");
    status = tutti_comm_agree(comm, status);
    if (status == TUTTI_OK) status = comm->control->gather(comm, &mine, all, 1, "allocator");
    bool complete = status == TUTTI_OK;
    for (int r = 0; r < comm->world_size && complete; r++) complete = all[r];
    free(all);
    if (!complete) {
        if (memory->data) (void)ncclMemFree(memory->data);
        memory->data = NULL;
        return status;
    }
    memory->by_nccl = true;
    tutti__nccl *nccl = comm->state;
    ncclWindow_t *window = (ncclWindow_t *)&memory->window; /* written when the call completes */
    TUTTI_TRY(tutti__nccl_enter(comm, "allocator"));
    ncclResult_t result =
        ncclCommWindowRegister(nccl->comm, memory->data, bytes, window, NCCL_WIN_COLL_SYMMETRIC);
    tutti__nccl_leave(comm);
    return tutti__nccl_settle(comm, result, "window registration", ++comm->sequence);
#else
    (void)comm, (void)bytes, (void)memory;
    return TUTTI_OK;
#endif
}

tutti_status tutti__nccl_alloc(tutti_comm *comm, size_t bytes, void **data)
{
    tutti__nccl *nccl = comm->state;
    tutti__nccl_memory *memory = tutti__comm_room(comm, sizeof *memory, "allocator");
    if (!memory) return TUTTI_ERR_MEMORY;
    memory->bytes = bytes;
    tutti_status status = alloc_by_nccl(comm, bytes, memory);
    if (status == TUTTI_OK && !memory->data)
        status = comm->backend->run.alloc(comm->device, bytes, &memory->data);
    if (status != TUTTI_OK) {
        /* NCCL may still write to the record of a lost registration */
        if (!comm->dead) free(memory);
        return status;
    }
    memory->next = nccl->memory;
    nccl->memory = memory;
    *data = memory->data;
    return TUTTI_OK;
}

tutti_status tutti__nccl_free(tutti_comm *comm, void *data)
{
    tutti__nccl *nccl = comm->state;
    tutti__nccl_memory **at = &nccl->memory;
    while (*at && (*at)->data != data) at = &(*at)->next;
    tutti__nccl_memory *memory = *at;
    TUTTI_REQUIRE(memory, "allocator: %p was not allocated by this communicator", data);
    *at = memory->next;
    if (comm->dead) {
        /* kernels that never ended may still use it */
    } else if (memory->by_nccl) {
        /* these do not wait for kernels as cudaFree does; the communicator's own have ended */
        (void)cudaSetDevice(comm->device);
        (void)cudaDeviceSynchronize();
#if defined WITH_WINDOWS && defined WITH_MEM_ALLOC
        if (memory->window && tutti__nccl_enter(comm, "allocator") == TUTTI_OK) {
            ncclResult_t result = ncclCommWindowDeregister(nccl->comm, memory->window);
            tutti__nccl_leave(comm);
            (void)tutti__nccl_settle(comm, result, "window release", ++comm->sequence);
        }
        if (!comm->dead) (void)ncclMemFree(data);
#endif
    } else
        comm->backend->run.free(comm->device, data);
    free(memory);
    return TUTTI_OK;
}
