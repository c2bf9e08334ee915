/* Contexts whose streams wait for other ranks. */
#ifndef TUTTI_COMM_FOLLOW_H
#define TUTTI_COMM_FOLLOW_H

#include "comm/comm.h"

/* Calls on ctx are this rank's signs of life from now on, before any work is there. */
tutti_status tutti__comm_follow(tutti_comm *comm, tutti_context *ctx, const char *operation);

/* Work of a STREAM transport has been enqueued on ctx, or ctx has been made to wait for it: waits
 * for ctx get the deadline.  all: what ctx does next comes behind everything enqueued so far. */
tutti_status tutti__comm_touch(tutti_comm *comm, tutti_context *ctx, const char *operation,
                               bool all);

/* Waits for the work on all contexts. */
void tutti__comm_drain(tutti_comm *comm);

/* No wait for a context is this communicator's affair any more. */
void tutti__comm_unfollow(tutti_comm *comm);

#endif
