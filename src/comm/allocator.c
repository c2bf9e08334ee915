/* Gradient memory in which the transport is fastest. */
#include "comm/follow.h"
#include "comm/life.h"
#include "comm/transport.h"

static tutti_status free_memory(tutti_comm *comm, void *data)
{
    tutti__comm_drain(comm);
    /* a lost operation may still write to it */
    if (comm->dead) return TUTTI_OK;
    if (comm->transport->free) return comm->transport->free(comm, data);
    comm->backend->run.free(comm->device, data);
    return TUTTI_OK;
}

static tutti_status allocator_free(void *self, void *data)
{
    tutti_comm *comm = self;
    if (!data) return TUTTI_OK;
    tutti_status status = free_memory(comm, data);
    tutti__comm_release(comm); /* which may destroy it */
    return status;
}

/* Collective: all ranks get memory or none. */
static tutti_status allocator_alloc(void *self, size_t bytes, void **data)
{
    tutti_comm *comm = self;
    *data = NULL;
    TUTTI_TRY(tutti__comm_open(comm, "allocator"));
    if (bytes == 0) return TUTTI_OK;
    tutti_status mine = comm->transport->alloc
                            ? comm->transport->alloc(comm, bytes, data)
                            : comm->backend->run.alloc(comm->device, bytes, data);
    tutti_status status = tutti_comm_agree(comm, mine);
    if (status == TUTTI_OK) {
        tutti__hold(&comm->holders);
        return TUTTI_OK;
    }
    if (mine == TUTTI_OK) (void)free_memory(comm, *data);
    *data = NULL;
    return status;
}

static void allocator_hold(void *self)
{
    tutti__hold(&((tutti_comm *)self)->holders);
}

static void allocator_release(void *self)
{
    tutti__comm_release(self);
}

tutti_allocator tutti_comm_allocator(tutti_comm *comm)
{
    if (!comm) return (tutti_allocator){.self = NULL};
    return (tutti_allocator){allocator_alloc, allocator_free, comm, allocator_hold,
                             allocator_release};
}
