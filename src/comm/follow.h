/* Contexts whose streams wait for other ranks. */
#ifndef TUTTI_COMM_FOLLOW_H
#define TUTTI_COMM_FOLLOW_H

#include "comm/comm.h"

/* From now on calls on ctx count as this rank's signs of life, even before it has work of comm. */
tutti_status tutti__comm_follow(tutti_comm *comm, tutti_context *ctx, const char *operation);

/* ctx has been given work of a STREAM transport, or made to wait for it: waits for ctx get the
 * deadline.  all: everything enqueued so far precedes what ctx does next. */
tutti_status tutti__comm_touch(tutti_comm *comm, tutti_context *ctx, const char *operation,
                               bool all);

/* Waits for the work on all contexts, and for all that is under way on the streams of those that
 * graphs with such work were captured on. */
void tutti__comm_drain(tutti_comm *comm);

/* Ends the deadline of all contexts' waits. */
void tutti__comm_unfollow(tutti_comm *comm);

#endif
