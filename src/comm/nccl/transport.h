/* Inside of the nccl transport. */
#ifndef TUTTI_COMM_NCCL_TRANSPORT_H
#define TUTTI_COMM_NCCL_TRANSPORT_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>

#include "comm/control.h"
#include "comm/transport.h"

/* Gradient memory, in a symmetric window where NCCL supports it. */
typedef struct tutti__nccl_memory {
    struct tutti__nccl_memory *next;
    void *data;
    size_t bytes;
    bool by_nccl; /* from ncclMemAlloc */
    void *window; /* NULL: not registered */
} tutti__nccl_memory;

typedef struct tutti__watchdog tutti__watchdog;

typedef struct tutti__nccl {
    ncclComm_t comm;       /* invalid once the communicator is dead */
    bool owned;            /* ours to destroy */
    pthread_mutex_t calls; /* held during NCCL calls with comm, which the watchdog may abort */
    tutti__watchdog *watchdog;
    tutti__nccl_memory *memory;
    tutti__stream control_stream; /* for the control's messages, without MPI */
    tutti__peers *peers;          /* those that are open (peers.c) */
} tutti__nccl;

extern const tutti__transport tutti__nccl_transport;
/* Gathers and broadcasts through NCCL itself, for a caller's ncclComm_t without MPI. */
extern const tutti__control tutti__nccl_control;

void tutti__nccl_state_free(tutti__nccl *state);

/* NCCL's last message in this process, whichever communicator it is about. */
const char *tutti__nccl_last_words(void);
/* Fails if NCCL has met an asynchronous error. */
tutti_status tutti__nccl_poll(tutti_comm *comm);
/* After an NCCL call: waits until a non-blocking communicator has completed it, until the deadline.
 * If this fails, the communicator is dead. */
tutti_status tutti__nccl_settle(tutti_comm *comm, ncclResult_t result, const char *operation,
                                int64_t sequence);
/* Brackets NCCL calls with the communicator: it is alive and not aborted meanwhile, and its device
 * is current.  If enter fails, leave must not be called. */
tutti_status tutti__nccl_enter(tutti_comm *comm, const char *operation);
void tutti__nccl_leave(tutti_comm *comm);

/* Ends a wait of the host behind a sum that never completes (watchdog.c).  NULL with one rank,
 * where it does nothing. */
tutti_status tutti__watchdog_open(tutti_comm *comm, tutti__watchdog **made);
/* Called before the communicator is destroyed; waits for the thread, which may be aborting it. */
void tutti__watchdog_close(tutti__watchdog **closing);
/* begin: before work that waits for other ranks is enqueued on a stream.  clear: after it, on that
 * stream or one that waits for it. */
tutti_status tutti__watchdog_begin(tutti__watchdog *dog, tutti__stream stream,
                                   const char *operation, int64_t sequence);
tutti_status tutti__watchdog_clear(tutti__watchdog *dog, tutti__stream stream);

/* A condition variable on tutti__now's clock.  False: `until` has passed. */
void tutti__cond_init(pthread_cond_t *cond);
bool tutti__cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, double until);

/* While held, exit waits: five seconds, or until the `timeout` of a communicator whose finalize was
 * left running, at most a minute.  False: exit has begun, so CUDA may be gone.  To be released in
 * either case. */
bool tutti__exit_hold(void);
void tutti__exit_release(void);

/* Tearing down; each returns within two seconds whatever other ranks do.  True: done.  False: it
 * continues in the background, and exit waits for it.  Work in flight has `timeout` seconds. */
bool tutti__nccl_abort(ncclComm_t comm, int device);
bool tutti__nccl_finalize(ncclComm_t comm, int device, double timeout);

/* Ends the waits of streams for posts of other ranks, from now on for ever.  Calls nothing of
 * CUDA; the communicator is dead. */
void tutti__peers_release(tutti__nccl *nccl);
extern const tutti__peers_table tutti__nccl_peers;

/* alloc and free of the transport */
tutti_status tutti__nccl_alloc(tutti_comm *comm, size_t bytes, void **data);
tutti_status tutti__nccl_free(tutti_comm *comm, void *data);

#endif
