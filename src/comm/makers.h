/* How communicators over MPI get their transport: each one that was built has registered how. */
#ifndef TUTTI_COMM_MAKERS_H
#define TUTTI_COMM_MAKERS_H

#include "comm/comm.h"

/* Who a rank is, for the agreement on a transport. */
typedef struct tutti__identity {
    int32_t transport;    /* asked for */
    int32_t backend;      /* of the context */
    int32_t nccl_built;   /* into this rank's library */
    int32_t nccl_version; /* of the NCCL that is loaded; 0: not asked on the host */
    int32_t nccl_shares;  /* it has been told to let ranks share a GPU */
    int32_t device;
    unsigned char uuid[16];
    char bus[32];
    char host[64];
} tutti__identity;

typedef struct tutti__maker {
    tutti_transport kind;
    /* optional: fills in what it wants to know */
    tutti_status (*identify)(const tutti_context *ctx, tutti__identity *identity);
    /* Gives comm, whose control works, the transport; collective.  Every phase is agreed. */
    tutti_status (*attach)(tutti_comm *comm);
} tutti__maker;

/* NULL: not built. */
const tutti__maker *tutti__maker_of(tutti_transport kind);

#ifdef TUTTI_WITH_MPI
/* Over MPI_COMM_WORLD; *made: false if MPI is not in use and the transport asked for does not need
 * it. */
tutti_status tutti__comm_create_world(tutti_context *ctx, const tutti_comm_desc *desc, bool *made,
                                      tutti_comm **comm);
#endif

#endif
