/* Inside of the nccl transport. */
#ifndef TUTTI_COMM_NCCL_TRANSPORT_H
#define TUTTI_COMM_NCCL_TRANSPORT_H

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "comm/comm.h"

/* Gradient memory, in a symmetric window where NCCL has them. */
typedef struct tutti__nccl_memory {
    struct tutti__nccl_memory *next;
    void *data;
    bool by_nccl; /* ncclMemAlloc's */
    void *window; /* NULL: not registered */
} tutti__nccl_memory;

typedef struct tutti__nccl {
    ncclComm_t comm;
    bool owned; /* ours to destroy */
    tutti__nccl_memory *memory;
    tutti__stream control_stream; /* without MPI: for the few bytes of the control */
} tutti__nccl;

extern const tutti__transport tutti__nccl_transport;
/* Gathers and broadcasts through NCCL itself, for a communicator of the caller's without MPI. */
extern const tutti__control tutti__nccl_control;

/* After an NCCL call: waits until a non-blocking communicator has taken it in, to the deadline; a failure is the end of the
 * communicator. */
tutti_status tutti__nccl_settle(tutti_comm *comm, ncclResult_t result, const char *operation,
                                int64_t sequence);
/* The device of the communicator is current from here on. */
tutti_status tutti__nccl_use(const tutti_comm *comm, const char *operation);

/* Tearing down, each back within two seconds whatever other ranks do.  true: done; false: it goes on by itself, and the end of
 * the process waits a few seconds for it.  Work in flight has `timeout` seconds. */
bool tutti__nccl_abort(ncclComm_t comm, int device);
bool tutti__nccl_finalize(ncclComm_t comm, int device, double timeout);

/* alloc and free of the transport */
tutti_status tutti__nccl_alloc(tutti_comm *comm, size_t bytes, void **data);
tutti_status tutti__nccl_free(tutti_comm *comm, void *data);

#endif
