/* Making and ending a communicator. */
#ifndef TUTTI_COMM_LIFE_H
#define TUTTI_COMM_LIFE_H

#include "comm/comm.h"

/* A communicator of one rank, with transport self. */
tutti_status tutti__comm_new(tutti_context *ctx, double timeout, tutti_comm **comm);

/* Checks a descriptor; *wanted gets it, or the defaults if it is invalid. */
tutti_status tutti__comm_desc_check(const tutti_comm_desc *desc, const char *who,
                                    tutti_comm_desc *wanted);

/* Releases a hold (tutti__hold). */
void tutti__comm_release(tutti_comm *comm);

#endif
