/* How communicators over MPI get their transport: one maker per transport that was built. */
#ifndef TUTTI_COMM_MAKERS_H
#define TUTTI_COMM_MAKERS_H

#include "comm/comm.h"

/* What a rank tells the others to agree on a transport. */
typedef struct tutti__identity {
    int32_t transport;    /* asked for */
    int32_t backend;      /* of the context */
    int32_t nccl_built;   /* this rank's library was built with NCCL */
    int32_t nccl_version; /* of the loaded NCCL; 0 on the host, where it is not queried */
    int32_t nccl_shares;  /* NCCL is set up to let ranks share a GPU */
    int32_t device;
    unsigned char uuid[16];
    char bus[32];
    char host[64];
} tutti__identity;

typedef struct tutti__maker {
    tutti_transport kind;
    /* optional: fills in what the transport needs to know */
    tutti_status (*identify)(const tutti_context *ctx, tutti__identity *identity);
    /* Sets the transport of comm, whose control works.  Collective; the ranks agree after every
     * phase. */
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
