/* A few bytes of host memory over NCCL itself: for a communicator of the caller's, where there may be no MPI.  Copied to
 * the device, exchanged on a stream of its own, copied back; every wait has the deadline.  The calls of a blocking communicator wait
 * in NCCL, from where the watchdog fetches them. */
#include <stdlib.h>
#include <string.h>

#include "comm/nccl/transport.h"

typedef struct parcel {
    char *host, *device; /* [mine][all] each */
} parcel;

static tutti_status parcel_open(tutti_comm *comm, size_t bytes, parcel *box)
{
    const tutti__runtime *run = &comm->backend->run;
    tutti__nccl *nccl = comm->state;
    bytes = (bytes + 15) / 16 * 16; /* NCCL reads bytes in whole words */
    *box = (parcel){NULL, NULL};
    if (!nccl->control_stream)
        TUTTI_TRY(run->stream_create(comm->device, true, &nccl->control_stream));
    TUTTI_TRY(run->host_alloc(comm->device, bytes, (void **)&box->host));
    tutti_status status = run->alloc(comm->device, bytes, (void **)&box->device);
    if (status != TUTTI_OK) run->host_free(comm->device, box->host);
    return status;
}

/* What a lost operation may still write stays. */
static void parcel_close(tutti_comm *comm, parcel *box)
{
    tutti__nccl *nccl = comm->state;
    if (comm->dead) return;
    (void)tutti__watchdog_clear(nccl->watchdog, nccl->control_stream);
    comm->backend->run.free(comm->device, box->device);
    comm->backend->run.host_free(comm->device, box->host);
}

static tutti_status wait_for_stream(tutti_comm *comm, const char *operation, int64_t sequence)
{
    tutti__nccl *nccl = comm->state;
    tutti__wait wait = tutti__wait_begin(comm, operation, sequence);
    for (;;) {
        bool done;
        TUTTI_TRY(comm->backend->run.stream_query(comm->device, nccl->control_stream, &done));
        if (done) return tutti__comm_alive(comm, operation); /* not by being aborted */
        TUTTI_TRY(tutti__nccl_transport.poll(comm));
        TUTTI_TRY(tutti__wait_poll(&wait));
    }
}

static tutti_status nccl_gather(tutti_comm *comm, const void *send, void *recv, size_t bytes,
                                const char *operation)
{
    const tutti__runtime *run = &comm->backend->run;
    tutti__nccl *nccl = comm->state;
    size_t all = bytes * (size_t)comm->world_size;
    int64_t sequence = ++comm->sequence;
    parcel box;
    TUTTI_TRY(tutti__comm_alive(comm, operation));
    TUTTI_TRY(parcel_open(comm, bytes + all, &box));
    memcpy(box.host, send, bytes);
    tutti__stream stream = nccl->control_stream;
    tutti_status status = run->copy(comm->device, stream, box.device, box.host, bytes);
    if (status == TUTTI_OK)
        status = tutti__watchdog_begin(nccl->watchdog, stream, operation, sequence);
    if (status == TUTTI_OK) status = tutti__nccl_enter(comm, operation);
    if (status == TUTTI_OK) {
        ncclResult_t result = ncclAllGather(box.device, box.device + bytes, bytes, ncclUint8,
                                            nccl->comm, (cudaStream_t)stream);
        tutti__nccl_leave(comm);
        status = tutti__nccl_settle(comm, result, operation, sequence);
    }
    if (status == TUTTI_OK)
        status = run->copy(comm->device, stream, box.host + bytes, box.device + bytes, all);
    if (status == TUTTI_OK) status = wait_for_stream(comm, operation, sequence);
    if (status == TUTTI_OK) memcpy(recv, box.host + bytes, all);
    parcel_close(comm, &box);
    return status;
}

static tutti_status nccl_broadcast(tutti_comm *comm, void *data, size_t bytes, int root,
                                   const char *operation)
{
    const tutti__runtime *run = &comm->backend->run;
    tutti__nccl *nccl = comm->state;
    int64_t sequence = ++comm->sequence;
    parcel box;
    TUTTI_TRY(tutti__comm_alive(comm, operation));
    TUTTI_TRY(parcel_open(comm, bytes, &box));
    memcpy(box.host, data, bytes);
    tutti__stream stream = nccl->control_stream;
    tutti_status status = run->copy(comm->device, stream, box.device, box.host, bytes);
    if (status == TUTTI_OK)
        status = tutti__watchdog_begin(nccl->watchdog, stream, operation, sequence);
    if (status == TUTTI_OK) status = tutti__nccl_enter(comm, operation);
    if (status == TUTTI_OK) {
        ncclResult_t result = ncclBroadcast(box.device, box.device, bytes, ncclUint8, root,
                                            nccl->comm, (cudaStream_t)stream);
        tutti__nccl_leave(comm);
        status = tutti__nccl_settle(comm, result, operation, sequence);
    }
    if (status == TUTTI_OK) status = run->copy(comm->device, stream, box.host, box.device, bytes);
    if (status == TUTTI_OK) status = wait_for_stream(comm, operation, sequence);
    if (status == TUTTI_OK) memcpy(data, box.host, bytes);
    parcel_close(comm, &box);
    return status;
}

static void nccl_control_destroy(tutti_comm *comm)
{
    (void)comm; /* the transport has released what there was */
}

const tutti__control tutti__nccl_control = {
    .gather = nccl_gather, .broadcast = nccl_broadcast, .destroy = nccl_control_destroy};
