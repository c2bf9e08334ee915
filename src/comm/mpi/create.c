/* Setting up a communicator over MPI: all ranks agree on each phase before the next. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/life.h"
#include "comm/makers.h"
#include "comm/mpi/channel.h"
#include "core/version.h"
#include "tutti/mpi.h"

/* Fails unless MPI can be called on this thread. */
static tutti_status mpi_usable(const char *who)
{
    int initialized = 0, finalized = 0, level = MPI_THREAD_SINGLE, main_thread = 0;
    MPI_Initialized(&initialized);
    if (!initialized)
        return tutti__fail(
            TUTTI_ERR_STATE,
            "%s: MPI is not initialised; call MPI_Init_thread with MPI_THREAD_FUNNELED first", who);
    MPI_Finalized(&finalized);
    if (finalized) return tutti__fail(TUTTI_ERR_STATE, "%s: MPI has been finalised already", who);
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_FUNNELED)
        return tutti__fail(TUTTI_ERR_STATE,
                           "%s: MPI was initialised with MPI_THREAD_SINGLE, want at least "
                           "MPI_THREAD_FUNNELED: call MPI_Init_thread instead of MPI_Init",
                           who);
    MPI_Is_thread_main(&main_thread);
    if (level == MPI_THREAD_FUNNELED && !main_thread)
        return tutti__fail(TUTTI_ERR_STATE, TUTTI__FUNNELED_TEXT, who);
    return TUTTI_OK;
}

static const char *transport_name(int transport)
{
    static const char *const names[] = {"auto", "self", "mpi", "nccl"};
    return names[transport];
}

static bool shares_device(const tutti__identity *a, const tutti__identity *b)
{
    if (a->backend != TUTTI_BACKEND_CUDA || b->backend != TUTTI_BACKEND_CUDA) return false;
    static const unsigned char unknown[16];
    if (memcmp(a->uuid, unknown, sizeof unknown) && !memcmp(a->uuid, b->uuid, sizeof a->uuid))
        return true;
    return a->bus[0] && !strcmp(a->bus, b->bus) && !strcmp(a->host, b->host);
}

/* Fails with what rules out nccl among these ranks; all ranks decide alike. */
static tutti_status nccl_possible(const tutti__identity *all, int world_size)
{
    for (int r = 0; r < world_size; r++) {
        if (!all[r].nccl_built)
            return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                               "comm_create: the library was built without NCCL (rank %d); use "
                               "transport mpi or build with -DTUTTI_WITH_NCCL=ON",
                               r);
        if (all[r].backend != TUTTI_BACKEND_CUDA)
            return tutti__fail(TUTTI_ERR_ARG,
                               "comm_create: transport nccl needs a context on a CUDA device, and "
                               "rank %d's is on the host; use transport mpi, or run with GPUs",
                               r);
        if (all[r].nccl_version < 21800)
            return tutti__fail(TUTTI_ERR_COMM,
                               "comm_create: rank %d loads NCCL %d.%d.%d, want 2.18 or newer: "
                               "install a newer libnccl2 or use transport mpi",
                               r, all[r].nccl_version / 10000, all[r].nccl_version / 100 % 100,
                               all[r].nccl_version % 100);
        if (all[r].nccl_version / 10000 != all[0].nccl_version / 10000)
            return tutti__fail(TUTTI_ERR_COMM,
                               "comm_create: rank 0 loads NCCL %d.%d and rank %d %d.%d, want the "
                               "same major version on all ranks",
                               all[0].nccl_version / 10000, all[0].nccl_version / 100 % 100, r,
                               all[r].nccl_version / 10000, all[r].nccl_version / 100 % 100);
        for (int q = 0; q < r; q++)
            if (shares_device(&all[q], &all[r]) && !(all[q].nccl_shares && all[r].nccl_shares))
                return tutti__fail(
                    TUTTI_ERR_COMM,
                    "comm_create: ranks %d and %d share one GPU (device %d of %s, "
                    "%s), which NCCL does not support: run one rank per GPU, or use transport mpi",
                    q, r, (int)all[r].device, all[r].host, all[r].bus);
    }
    return TUTTI_OK;
}

/* Chooses one transport from all ranks' identities; every rank decides alike. */
static tutti_status choose(const tutti__identity *all, int world_size, tutti_transport *chosen)
{
    for (int r = 1; r < world_size; r++) {
        if (all[r].transport != all[0].transport)
            return tutti__fail(TUTTI_ERR_ARG,
                               "comm_create: rank 0 asks for transport %s and rank %d for %s; want "
                               "the same on all ranks",
                               transport_name(all[0].transport), r,
                               transport_name(all[r].transport));
        if (all[r].backend != all[0].backend)
            return tutti__fail(TUTTI_ERR_ARG,
                               "comm_create: the context is on the %s on rank 0 and on the %s on "
                               "rank %d; want the same backend on all ranks",
                               all[0].backend == TUTTI_BACKEND_CUDA ? "GPU" : "host",
                               all[r].backend == TUTTI_BACKEND_CUDA ? "GPU" : "host", r);
    }
    *chosen = (tutti_transport)all[0].transport;
    if (*chosen == TUTTI_TRANSPORT_NCCL) return nccl_possible(all, world_size);
    if (*chosen == TUTTI_TRANSPORT_AUTO) {
        *chosen = TUTTI_TRANSPORT_MPI;
        if (all[0].backend == TUTTI_BACKEND_CUDA) {
            if (nccl_possible(all, world_size) == TUTTI_OK)
                *chosen = TUTTI_TRANSPORT_NCCL;
            else
                tutti__log(TUTTI_LOG_INFO, "using transport mpi: %s", tutti_last_error());
        }
    }
    return TUTTI_OK;
}

static tutti_status identify(const tutti_context *ctx, int transport, tutti__identity *identity)
{
    memset(identity, 0, sizeof *identity);
    identity->transport = transport;
    identity->backend = (int32_t)ctx->backend->kind;
    identity->device = ctx->device;
    gethostname(identity->host, sizeof identity->host - 1);
    const tutti__maker *nccl = tutti__maker_of(TUTTI_TRANSPORT_NCCL);
    identity->nccl_built = nccl != NULL;
    return nccl ? nccl->identify(ctx, identity) : TUTTI_OK;
}

/* Opens the channel, gathers the identities, attaches the transport. */
static tutti_status set_up(tutti_comm *comm, tutti_context *ctx, const tutti_comm_desc *desc,
                           MPI_Comm parent, tutti_status status)
{
    TUTTI_TRY(tutti__channel_open(comm, parent, status));
    tutti__identity mine;
    TUTTI_TRY(tutti_comm_agree(comm, identify(ctx, desc->transport, &mine)));
    tutti__identity *all = calloc((size_t)comm->world_size, sizeof *all);
    status = tutti_comm_agree(comm, all ? TUTTI_OK
                                        : tutti__fail(TUTTI_ERR_MEMORY, "comm_create: no memory"));
    tutti_transport chosen = TUTTI_TRANSPORT_MPI;
    if (status == TUTTI_OK)
        status = comm->control->gather(comm, &mine, all, sizeof mine, "comm_create (identities)");
    if (status == TUTTI_OK) status = choose(all, comm->world_size, &chosen);
    free(all);
    return status == TUTTI_OK ? tutti__maker_of(chosen)->attach(comm) : status;
}

static tutti_status create(tutti_context *ctx, const tutti_comm_desc *desc, MPI_Comm parent,
                           const char *who, tutti_comm **comm)
{
    TUTTI_TRY(mpi_usable(who));
    int inter = 0, world_size, rank;
    TUTTI_REQUIRE(parent != MPI_COMM_NULL, "%s: mpi_comm is MPI_COMM_NULL", who);
    if (MPI_Comm_test_inter(parent, &inter) != MPI_SUCCESS ||
        MPI_Comm_size(parent, &world_size) != MPI_SUCCESS ||
        MPI_Comm_rank(parent, &rank) != MPI_SUCCESS || inter)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: mpi_comm is an intercommunicator, want an intracommunicator", who);

    /* from here on an error of this rank is reported on all */
    tutti_comm_desc wanted;
    tutti_status status = tutti__comm_desc_check(desc, who, &wanted);
    if (status == TUTTI_OK && !ctx) status = tutti__fail(TUTTI_ERR_ARG, "%s: ctx is NULL", who);
    if (status == TUTTI_OK && !comm) status = tutti__fail(TUTTI_ERR_ARG, "%s: comm is NULL", who);
    if (status == TUTTI_OK && wanted.transport == TUTTI_TRANSPORT_SELF && world_size > 1)
        status = tutti__fail(TUTTI_ERR_ARG, "%s: transport self is for one rank, mpi_comm has %d",
                             who, world_size);
    bool alone =
        world_size == 1 && (status != TUTTI_OK || wanted.transport <= TUTTI_TRANSPORT_SELF);
    if (alone && status != TUTTI_OK) return status;

    tutti_comm *made;
    TUTTI_TRY(tutti__comm_new(ctx, wanted.timeout, &made));
    if (!alone) {
        made->rank = rank;
        made->world_size = world_size;
        status = set_up(made, ctx, &wanted, parent, status);
    }
    if (status != TUTTI_OK)
        tutti_comm_destroy(&made);
    else
        *comm = made;
    return status;
}

/* True if a launcher has started several ranks: one that has not initialised MPI would train alone.
 * A launcher sets several variables; a single one may be left over in a shell. */
static bool launched_with_others(void)
{
    static const char *const pairs[][2] = {{"OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE"},
                                           {"PMI_SIZE", "PMI_RANK"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const char *size = getenv(pairs[i][0]);
        if (size && atoi(size) > 1 && getenv(pairs[i][1])) return true;
    }
    return false;
}

tutti_status tutti__comm_create_world(tutti_context *ctx, const tutti_comm_desc *desc, bool *made,
                                      tutti_comm **comm)
{
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    bool usable = initialized && !finalized;
    tutti_transport transport = desc ? desc->transport : TUTTI_TRANSPORT_AUTO;
    bool demanded = transport == TUTTI_TRANSPORT_MPI || transport == TUTTI_TRANSPORT_NCCL ||
                    (transport == TUTTI_TRANSPORT_AUTO && !usable && launched_with_others());
    *made = demanded || (usable && transport != TUTTI_TRANSPORT_SELF);
    if (!*made) return TUTTI_OK;
    if (!usable) {
        /* no other rank can be told, so the arguments are checked first */
        tutti_comm_desc wanted;
        TUTTI_REQUIRE(ctx, "comm_create: ctx is NULL");
        TUTTI_REQUIRE(comm, "comm_create: comm is NULL");
        TUTTI_TRY(tutti__comm_desc_check(desc, "comm_create", &wanted));
        if (transport == TUTTI_TRANSPORT_NCCL && !tutti__maker_of(TUTTI_TRANSPORT_NCCL))
            return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                               "comm_create: the library was built without NCCL; use transport mpi "
                               "or build with -DTUTTI_WITH_NCCL=ON");
        return mpi_usable("comm_create");
    }
    return create(ctx, desc, MPI_COMM_WORLD, "comm_create", comm);
}

tutti_status tutti_comm_create_from_mpi(tutti_context *ctx, MPI_Comm mpi_comm,
                                        const tutti_comm_desc *desc, tutti_comm **comm)
{
    return create(ctx, desc, mpi_comm, "comm_create_from_mpi", comm);
}

void tutti__mpi_describe(char *text, size_t size)
{
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0, initialized = 0;
    MPI_Get_library_version(library, &length);
    MPI_Initialized(&initialized);
    library[strcspn(library, ",\n")] = 0; /* the rest tells where it was built */
    snprintf(text, size, "mpi: %s, %s", library, initialized ? "initialised" : "not initialised");
}
