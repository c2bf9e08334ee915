/* The control channel: duplicates of the caller's communicator, made without ever blocking.  The mpi transport's own
 * messages go over it, and nccl starts with it. */
#ifndef TUTTI_COMM_MPI_CHANNEL_H
#define TUTTI_COMM_MPI_CHANNEL_H

#include <mpi.h>

#include "comm/comm.h"

typedef struct tutti__beacon {
    uint64_t magic;
    int64_t sequence;
    char operation[32]; /* its name, cut off if it is longer; "": not known */
} tutti__beacon;

typedef struct tutti__channel {
    MPI_Comm data;    /* collectives */
    MPI_Comm control; /* beacons */
    MPI_Comm pending; /* a duplicate that MPI may still be making */
    /* Where beacons travel: control, and before it exists the caller's communicator with a tag that nobody else uses. */
    MPI_Comm beacon_comm;
    int beacon_tag;
    bool
        announced_early; /* a beacon went over the caller's communicator: the others must take it in */
    tutti__beacon
        *heard; /* per rank: the last operation it said to be in; sequence -1: nothing yet */
    tutti__beacon *out; /* per rank: what is being sent */
    MPI_Request *sends; /* per rank */
    MPI_Op ops[2][3];   /* f16, bf16 x sum, min, max */
} tutti__channel;

extern const tutti__control tutti__mpi_control;
extern const tutti__transport tutti__mpi_transport;

/* Gives comm, whose rank and world_size are set, a channel over parent.  Collective.  Afterwards the ranks agree on
 * status, which is what this rank has found so far. */
tutti_status tutti__channel_open(tutti_comm *comm, MPI_Comm parent, tutti_status status);

/* Fails with MPI's text unless code is MPI_SUCCESS; the communicator is dead then. */
tutti_status tutti__mpi_check(tutti_comm *comm, int code, const char *operation);

/* MPI_Test, except that an error that the request has met is a status on every MPI. */
tutti_status tutti__mpi_test(tutti_comm *comm, MPI_Request *request, const char *operation,
                             int *done);

/* Waits for a request to the deadline. */
tutti_status tutti__mpi_wait(tutti_comm *comm, MPI_Request *request, const char *operation,
                             int64_t sequence);

/* Duplicates parent to the deadline.  *duplicate must stay where it is if this fails. */
tutti_status tutti__mpi_duplicate(tutti_comm *comm, MPI_Comm parent, MPI_Comm *duplicate,
                                  const char *operation, int64_t sequence);

/* Operators for the types that MPI does not know: sums in f32, rounded once.  Local. */
tutti_status tutti__half_ops_create(MPI_Op ops[2][3]);
void tutti__half_ops_free(MPI_Op ops[2][3]);

#endif
