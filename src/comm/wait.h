/* Waiting for other ranks, to the deadline. */
#ifndef TUTTI_COMM_WAIT_H
#define TUTTI_COMM_WAIT_H

#include "comm/comm.h"

/* A wait for other ranks: began at `begin`, for the operation that the sequence number names. */
typedef struct tutti__wait {
    tutti_comm *comm;
    const char *operation;
    int64_t sequence;
    double begin, last;
    unsigned polls;
    int pauses; /* times that this process seems to have been stopped */
    bool announced;
} tutti__wait;

/* Waiting:  tutti__wait wait = tutti__wait_begin(…);
 *           while (!done()) TUTTI_TRY(tutti__wait_poll(&wait));
 * A poll pauses a little, tells and hears where ranks are, and fails at the deadline; the
 * communicator is dead then. */
tutti__wait tutti__wait_begin(tutti_comm *comm, const char *operation, int64_t sequence);
tutti_status tutti__wait_poll(tutti__wait *wait);
/* A poll without the pause, for a wait that somebody else makes and that has lasted so long. */
tutti_status tutti__wait_check(tutti__wait *wait, double waited);

/* Waits for an event, or for all of a stream (event NULL), behind work of a STREAM transport. */
tutti_status tutti__wait_device(tutti_comm *comm, tutti__event event, tutti__stream stream,
                                const char *operation, int64_t sequence);

#endif
