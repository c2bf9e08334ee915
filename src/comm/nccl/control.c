/* A few bytes of host memory over NCCL itself, for a caller's ncclComm_t, where there may be no
 * MPI: copied to the device, exchanged on its own stream, copied back; every wait has the deadline.
 * Calls of a blocking communicator wait inside NCCL until the watchdog aborts them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/nccl/transport.h"
#include "comm/wait.h"

typedef struct buffers {
    char *host, *device; /* [mine][all] each */
} buffers;

static tutti_status buffers_open(tutti_comm *comm, size_t bytes, buffers *own)
{
    const tutti__runtime *run = &comm->backend->run;
    tutti__nccl *nccl = comm->state;
    bytes = (bytes + 15) / 16 * 16; /* NCCL reads whole words */
    *own = (buffers){NULL, NULL};
    if (!nccl->control_stream)
        TUTTI_TRY(run->stream_create(comm->device, true, &nccl->control_stream));
    TUTTI_TRY(run->host_alloc(comm->device, bytes, (void **)&own->host));
    tutti_status status = run->alloc(comm->device, bytes, (void **)&own->device);
    if (status != TUTTI_OK) run->host_free(comm->device, own->host);
    return status;
}

/* A lost operation may still write to them: they are then kept. */
static void buffers_close(tutti_comm *comm, buffers *own)
{
    tutti__nccl *nccl = comm->state;
    if (comm->dead) return;
    (void)tutti__watchdog_clear(nccl->watchdog, nccl->control_stream);
    comm->backend->run.free(comm->device, own->device);
    comm->backend->run.host_free(comm->device, own->host);
}

/* Sends every rank's send [bytes] to all, or only the root's. */
enum { ALL_RANKS = -1 };
static tutti_status exchange(int root, tutti_comm *comm, const void *send, void *recv, size_t bytes,
                             const char *operation)
{
    const tutti__runtime *run = &comm->backend->run;
    tutti__nccl *nccl = comm->state;
    const bool gathers = root == ALL_RANKS;
    const size_t skip = gathers ? bytes : 0;
    const size_t all = gathers ? bytes * (size_t)comm->world_size : bytes;
    int64_t sequence = ++comm->sequence;
    buffers own;
    TUTTI_TRY(tutti__comm_alive(comm, operation));
    const tutti_status opened = buffers_open(comm, skip + all, &own);
    if (opened != TUTTI_OK) { /* the others cannot be told, but this rank must not go on */
        char why[TUTTI__MESSAGE_MAX / 2];
        snprintf(why, sizeof why, "%s", tutti_last_error());
        (void)tutti__comm_die(comm, "%s: %s", operation, why);
        return opened;
    }
    memcpy(own.host, send, bytes);
    tutti__stream stream = nccl->control_stream;
    tutti_status status = run->copy(comm->device, stream, own.device, own.host, bytes);
    if (status == TUTTI_OK)
        status = tutti__watchdog_begin(nccl->watchdog, stream, operation, sequence);
    if (status == TUTTI_OK) status = tutti__nccl_enter(comm, operation);
    if (status == TUTTI_OK) {
        ncclResult_t result = gathers ? ncclAllGather(own.device, own.device + skip, bytes,
                                                      ncclUint8, nccl->comm, (cudaStream_t)stream)
                                      : ncclBroadcast(own.device, own.device, bytes, ncclUint8,
                                                      root, nccl->comm, (cudaStream_t)stream);
        tutti__nccl_leave(comm);
        status = tutti__nccl_settle(comm, result, operation, sequence);
    }
    if (status == TUTTI_OK)
        status = run->copy(comm->device, stream, own.host + skip, own.device + skip, all);
    if (status == TUTTI_OK) status = tutti__wait_device(comm, NULL, stream, operation, sequence);
    if (status == TUTTI_OK) status = tutti__comm_alive(comm, operation); /* unless it was aborted */
    if (status == TUTTI_OK) memcpy(recv, own.host + skip, all);
    buffers_close(comm, &own);
    return status;
}

static tutti_status nccl_gather(tutti_comm *comm, const void *send, void *recv, size_t bytes,
                                const char *operation)
{
    return exchange(ALL_RANKS, comm, send, recv, bytes, operation);
}

static tutti_status nccl_broadcast(tutti_comm *comm, void *data, size_t bytes, int root,
                                   const char *operation)
{
    return exchange(root, comm, data, data, bytes, operation);
}

static void nccl_control_destroy(tutti_comm *comm)
{
    (void)comm; /* the transport has released its stream */
}

const tutti__control tutti__nccl_control = {
    .gather = nccl_gather, .broadcast = nccl_broadcast, .destroy = nccl_control_destroy};
