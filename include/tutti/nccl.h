/* For programs that have an NCCL communicator of their own.  Only a library built with NCCL has
 * this function. */
#ifndef TUTTI_NCCL_H
#define TUTTI_NCCL_H

#include <nccl.h>

#include "tutti/comm.h"

TUTTI_BEGIN

/* A communicator over the caller's, which must be on the context's device, must outlive it and is
 * never destroyed here.  After a missed deadline nccl_comm is aborted (by another thread if the
 * caller's is blocked) and must not be used any more.  Without MPI a silent rank cannot be named.
 * Not collective.  desc NULL means the defaults; desc.transport must be AUTO or NCCL. */
TUTTI_API tutti_status tutti_comm_create_from_nccl(tutti_context *ctx, ncclComm_t nccl_comm,
                                                   const tutti_comm_desc *desc, tutti_comm **comm);

TUTTI_END
#endif
