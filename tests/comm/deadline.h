/* Deadlines that begin after set-up: making a communicator and connecting may take long where many
 * tests run.  Looks into communicators, whose deadline is set when they are made. */
#ifndef TESTS_COMM_DEADLINE_H
#define TESTS_COMM_DEADLINE_H

#include "comm/comm.h"

/* The communicator's longest wait from now on. */
static inline void set_deadline(tutti_comm *comm, double seconds)
{
    comm->timeout = seconds; /* the watchdog reads it, the old or the new one */
}

#endif
