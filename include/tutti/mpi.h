/* For programs that have an MPI communicator of their own.  Only a library built with MPI has this function. */
#ifndef TUTTI_MPI_H
#define TUTTI_MPI_H

#include <mpi.h>

#include "tutti/comm.h"

TUTTI_BEGIN

/* As tutti_comm_create, over the caller's intracommunicator, which is duplicated and may be freed
 * afterwards. */
TUTTI_API tutti_status tutti_comm_create_from_mpi(tutti_context *ctx, const tutti_comm_desc *desc,
                                                  MPI_Comm mpi_comm, tutti_comm **comm);

TUTTI_END
#endif
