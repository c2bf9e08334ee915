/* For programs that have an MPI communicator of their own.  Only a library built with MPI has this
 * function.
 *
 * MPI's removed C++ bindings, which mpi.h of Open MPI 4 and of MPICH declares in C++ and which
 * would have to be linked, are left out.  A program that includes mpi.h itself does so after this
 * header, or defines the two macros. */
#ifndef TUTTI_MPI_H
#define TUTTI_MPI_H

#ifdef __cplusplus
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#endif
#include <mpi.h>

#include "tutti/comm.h"

TUTTI_BEGIN

/* As tutti_comm_create, over the caller's intracommunicator, which is duplicated and may be freed
 * afterwards. */
TUTTI_API tutti_status tutti_comm_create_from_mpi(tutti_context *ctx, MPI_Comm mpi_comm,
                                                  const tutti_comm_desc *desc, tutti_comm **comm);

TUTTI_END
#endif
