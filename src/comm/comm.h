/* Inside of a communicator: the handle, and whether it can be used. */
#ifndef TUTTI_COMM_COMM_H
#define TUTTI_COMM_COMM_H

#include <stdatomic.h>

#include "core/context.h"
#include "tutti/comm.h"

#define TUTTI__MESSAGE_MAX 512

typedef struct tutti__transport tutti__transport;
typedef struct tutti__control tutti__control;

struct tutti_comm {
    tutti__holders holders;
    const tutti__transport *transport;
    const tutti__control *control;
    const tutti__backend *backend;
    int device;
    int rank, world_size;
    double timeout;
    int64_t sequence;        /* operations entered so far, equal on all ranks between operations */
    atomic_uint polls;       /* by this rank, and its calls on contexts: signs of life */
    atomic_bool dying, dead; /* nccl's watchdog may end it from another thread */
    char why[TUTTI__MESSAGE_MAX]; /* why it is dead */
    struct tutti__comm_use *uses;
    void *channel; /* the control's own */
    void *state;   /* the transport's own */
};

/* Fails unless a call may use the communicator: not destroyed, on an allowed thread, alive. */
tutti_status tutti__comm_open(const tutti_comm *comm, const char *who);

/* Fails unless both are given and on the same device. */
tutti_status tutti__comm_context_check(const tutti_comm *comm, const tutti_context *ctx,
                                       const char *who);

/* TUTTI_ERR_STATE if ctx is being captured and the transport works on the host. */
tutti_status tutti__comm_capture_check(const tutti_comm *comm, const tutti_context *ctx,
                                       const char *who);

/* TUTTI_ERR_COMM, with the cause, if the communicator is dead. */
tutti_status tutti__comm_alive(const tutti_comm *comm, const char *who);

/* Marks the communicator dead with a reason, abandons the transport and returns TUTTI_ERR_COMM.  Of
 * several threads the first one's reason is kept. */
tutti_status tutti__comm_die(tutti_comm *comm, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
