/* tutti_comm_create: over MPI where it is in use, otherwise one rank alone. */
#include "comm/life.h"
#include "comm/makers.h"

tutti_status tutti_comm_create(tutti_context *ctx, const tutti_comm_desc *desc, tutti_comm **comm)
{
#ifdef TUTTI_WITH_MPI
    /* checks the arguments, too: what is wrong on one rank must fail on all */
    bool made;
    TUTTI_TRY(tutti__comm_create_world(ctx, desc, &made, comm));
    if (made) return TUTTI_OK;
#endif
    tutti_comm_desc wanted;
    TUTTI_REQUIRE(ctx, "comm_create: ctx is NULL");
    TUTTI_REQUIRE(comm, "comm_create: comm is NULL");
    TUTTI_TRY(tutti__comm_desc_check(desc, "comm_create", &wanted));
    if (wanted.transport == TUTTI_TRANSPORT_MPI || wanted.transport == TUTTI_TRANSPORT_NCCL)
        return tutti__fail(
            TUTTI_ERR_UNSUPPORTED,
            "comm_create: transport %s needs MPI and the library was built without "
            "it; want auto or self%s",
            wanted.transport == TUTTI_TRANSPORT_MPI ? "mpi" : "nccl",
            wanted.transport == TUTTI_TRANSPORT_MPI ? "" : ", or tutti_comm_create_from_nccl");
    return tutti__comm_new(ctx, wanted.timeout, comm);
}
