/* Inside of the nccl transport. */
#ifndef TUTTI_COMM_NCCL_TRANSPORT_H
#define TUTTI_COMM_NCCL_TRANSPORT_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>

#include "comm/control.h"
#include "comm/transport.h"

/* Gradient memory, in a symmetric window where NCCL has them. */
typedef struct tutti__nccl_memory {
    struct tutti__nccl_memory *next;
    void *data;
    size_t bytes;
    bool by_nccl; /* ncclMemAlloc's */
    void *window; /* NULL: not registered */
} tutti__nccl_memory;

typedef struct tutti__watchdog tutti__watchdog;

typedef struct tutti__nccl {
    ncclComm_t comm;       /* gone once the communicator is dead */
    bool owned;            /* ours to destroy */
    pthread_mutex_t calls; /* held in a call of NCCL with comm: the watchdog may abort it */
    tutti__watchdog *watchdog;
    tutti__nccl_memory *memory;
    tutti__stream control_stream; /* without MPI: for the few bytes of the control */
} tutti__nccl;

extern const tutti__transport tutti__nccl_transport;
/* Gathers and broadcasts through NCCL itself, for a communicator of the caller's without MPI. */
extern const tutti__control tutti__nccl_control;

void tutti__nccl_state_free(tutti__nccl *state);

/* NCCL's last message of this process, whichever communicator it is about. */
const char *tutti__nccl_last_words(void);
/* An error that NCCL has noticed. */
tutti_status tutti__nccl_poll(tutti_comm *comm);
/* After an NCCL call: waits until a non-blocking communicator has taken it in, to the deadline; a
 * failure is the end of the communicator. */
tutti_status tutti__nccl_settle(tutti_comm *comm, ncclResult_t result, const char *operation,
                                int64_t sequence);
/* Brackets calls of NCCL with the communicator: alive, not aborted meanwhile, its device current.
 * Fails without entering. */
tutti_status tutti__nccl_enter(tutti_comm *comm, const char *operation);
void tutti__nccl_leave(tutti_comm *comm);

/* Watches that the host is not held up for ever behind a sum (watchdog.c).  NULL, with one rank,
 * does nothing. */
tutti_status tutti__watchdog_open(tutti_comm *comm, tutti__watchdog **made);
/* Before the communicator goes; waits for the thread, which may be aborting it. */
void tutti__watchdog_close(tutti__watchdog **closing);
/* Before work that waits for other ranks is enqueued on a stream; and after it, on that stream or
 * one that waits for it. */
tutti_status tutti__watchdog_begin(tutti__watchdog *dog, tutti__stream stream,
                                   const char *operation, int64_t sequence);
tutti_status tutti__watchdog_clear(tutti__watchdog *dog, tutti__stream stream);

/* A condition on tutti__now's clock; false: `until` has passed. */
void tutti__cond_init(pthread_cond_t *cond);
bool tutti__cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, double until);

/* The end of the process waits a few seconds for whoever holds it up.  false: it has begun, and
 * CUDA may be gone.  Released in either case. */
bool tutti__exit_hold(void);
void tutti__exit_release(void);

/* Tearing down, each back within two seconds whatever other ranks do.  true: done; false: it goes
 * on by itself, and the end of the process waits a few seconds for it.  Work in flight has
 * `timeout` seconds. */
bool tutti__nccl_abort(ncclComm_t comm, int device);
bool tutti__nccl_finalize(ncclComm_t comm, int device, double timeout);

/* alloc and free of the transport */
tutti_status tutti__nccl_alloc(tutti_comm *comm, size_t bytes, void **data);
tutti_status tutti__nccl_free(tutti_comm *comm, void *data);

#endif
