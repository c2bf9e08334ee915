/* Waiting for other ranks until the deadline. */
#ifndef TUTTI_COMM_WAIT_H
#define TUTTI_COMM_WAIT_H

#include "comm/comm.h"

/* A wait for other ranks since `begin`, in the operation with this sequence number. */
typedef struct tutti__wait {
    tutti_comm *comm;
    const char *operation;
    int64_t sequence;
    double begin, last;
    unsigned polls;
    int pauses; /* times that this process was apparently stopped */
    bool announced;
} tutti__wait;

/* Waiting:  tutti__wait wait = tutti__wait_begin(…);
 *           while (!done()) TUTTI_TRY(tutti__wait_poll(&wait));
 * A poll pauses briefly, exchanges heartbeats and fails at the deadline; then the communicator is
 * dead. */
tutti__wait tutti__wait_begin(tutti_comm *comm, const char *operation, int64_t sequence);
tutti_status tutti__wait_poll(tutti__wait *wait);
/* A poll without the pause, for a wait in another function that has lasted `waited` seconds. */
tutti_status tutti__wait_check(tutti__wait *wait, double waited);

/* Waits for an event, or for a whole stream (event NULL), that follows work of a STREAM
 * transport. */
tutti_status tutti__wait_device(tutti_comm *comm, tutti__event event, tutti__stream stream,
                                const char *operation, int64_t sequence);

#endif
