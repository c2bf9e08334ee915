/* Making communicators over NCCL: a new one, whose id is broadcast by the control, or the
 * caller's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/life.h"
#include "comm/makers.h"
#include "comm/nccl/transport.h"
#include "core/version.h"
#include "tutti/nccl.h"

/* Thread blocks of a sum: enough for NVLink's bandwidth, few enough for matrix products beside
 * it. */
#define CTAS_MAX 16

static tutti__nccl *state_new(ncclComm_t comm, bool owned)
{
    tutti__nccl *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->comm = comm;
    made->owned = owned;
    pthread_mutex_init(&made->calls, NULL);
    return made;
}

static tutti_status nccl_identify(const tutti_context *ctx, tutti__identity *identity)
{
    int version = 0;
    if (ctx->backend->kind != TUTTI_BACKEND_CUDA) return TUTTI_OK;
    if (ncclGetVersion(&version) != ncclSuccess)
        return tutti__fail(TUTTI_ERR_COMM, "comm_create: ncclGetVersion failed");
    identity->nccl_version = version;
    const char *shares = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    identity->nccl_shares = version >= NCCL_VERSION(2, 30, 0) && shares && !strcmp(shares, "1");
    struct cudaDeviceProp properties;
    cudaError_t code = cudaGetDeviceProperties(&properties, ctx->device);
    if (code == cudaSuccess)
        code = cudaDeviceGetPCIBusId(identity->bus, sizeof identity->bus, ctx->device);
    if (code != cudaSuccess)
        return tutti__fail(TUTTI_ERR_DEVICE, "comm_create: cannot query device %d: %s", ctx->device,
                           cudaGetErrorString(code));
    memcpy(identity->uuid, properties.uuid.bytes, sizeof identity->uuid);
    return TUTTI_OK;
}

static void warn_of_old_faults(int version)
{
    if (version >= NCCL_VERSION(2, 28, 0) && version < NCCL_VERSION(2, 28, 7))
        tutti__log(TUTTI_LOG_WARN,
                   "NCCL %d.%d.%d has known bugs with small messages; want 2.28.7 or newer",
                   version / 10000, version / 100 % 100, version % 100);
}

static tutti_status nccl_attach(tutti_comm *comm)
{
    tutti__nccl *nccl = state_new(NULL, true);
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    int version = 0;
    tutti_status status = nccl ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "comm_create: no memory");
    cudaError_t code = cudaSetDevice(comm->device);
    if (status == TUTTI_OK && code != cudaSuccess)
        status = tutti__fail(TUTTI_ERR_DEVICE, "comm_create: cudaSetDevice(%d): %s", comm->device,
                             cudaGetErrorString(code));
    if (status == TUTTI_OK && comm->rank == 0 && ncclGetUniqueId(&id) != ncclSuccess)
        status = tutti__fail(TUTTI_ERR_COMM, "comm_create: ncclGetUniqueId failed (%s)",
                             tutti__nccl_last_words());
    status = tutti_comm_agree(comm, status);
    if (status == TUTTI_OK)
        status = comm->control->broadcast(comm, &id, sizeof id, 0, "comm_create (unique id)");
    if (status != TUTTI_OK) {
        tutti__nccl_state_free(nccl);
        return status;
    }
    (void)ncclGetVersion(&version);
    warn_of_old_faults(version);

    comm->state = nccl;
    comm->transport = &tutti__nccl_transport;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = CTAS_MAX;
    ncclResult_t result =
        ncclCommInitRankConfig(&nccl->comm, comm->world_size, id, comm->rank, &config);
    status =
        tutti__nccl_settle(comm, result, "comm_create (ncclCommInitRankConfig)", ++comm->sequence);
    /* dead: the deadline has passed or NCCL has failed, as it will on the other ranks */
    if (comm->dead) return status;
    if (status == TUTTI_OK) status = tutti__watchdog_open(comm, &nccl->watchdog);
    return tutti_comm_agree(comm, status);
}

const tutti__maker tutti__nccl_maker = {
    .kind = TUTTI_TRANSPORT_NCCL, .identify = nccl_identify, .attach = nccl_attach};

tutti_status tutti_comm_create_from_nccl(tutti_context *ctx, ncclComm_t nccl_comm,
                                         const tutti_comm_desc *desc, tutti_comm **comm)
{
    static const char who[] = "comm_create_from_nccl";
    tutti_comm_desc wanted;
    TUTTI_REQUIRE(ctx, "%s: ctx is NULL", who);
    TUTTI_REQUIRE(comm, "%s: comm is NULL", who);
    TUTTI_REQUIRE(nccl_comm, "%s: nccl_comm is NULL", who);
    TUTTI_TRY(tutti__comm_desc_check(desc, who, &wanted));
    TUTTI_REQUIRE(wanted.transport == TUTTI_TRANSPORT_AUTO ||
                      wanted.transport == TUTTI_TRANSPORT_NCCL,
                  "%s: transport is %s, want auto or nccl", who,
                  wanted.transport == TUTTI_TRANSPORT_SELF ? "self" : "mpi");
    TUTTI_REQUIRE(ctx->backend->kind == TUTTI_BACKEND_CUDA,
                  "%s: the context is on the host, want a CUDA device", who);
    int rank, size, device, version = 0;
    (void)ncclGetVersion(&version);
    if (version < NCCL_VERSION(2, 18, 0))
        return tutti__fail(TUTTI_ERR_COMM, "%s: NCCL %d.%d is loaded, want 2.18 or newer", who,
                           version / 10000, version / 100 % 100);
    if (ncclCommUserRank(nccl_comm, &rank) != ncclSuccess ||
        ncclCommCount(nccl_comm, &size) != ncclSuccess ||
        ncclCommCuDevice(nccl_comm, &device) != ncclSuccess)
        return tutti__fail(TUTTI_ERR_ARG, "%s: nccl_comm is not a working communicator", who);
    TUTTI_REQUIRE(device == ctx->device, "%s: nccl_comm is on device %d, the context on %d", who,
                  device, ctx->device);
    warn_of_old_faults(version);
    tutti__nccl *nccl = state_new(nccl_comm, false);
    if (!nccl) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    tutti_comm *made;
    tutti_status status = tutti__comm_new(ctx, wanted.timeout, &made);
    if (status != TUTTI_OK) {
        tutti__nccl_state_free(nccl);
        return status;
    }
    made->state = nccl;
    made->rank = rank;
    made->world_size = size;
    made->transport = &tutti__nccl_transport;
    made->control = &tutti__nccl_control;
    status = tutti__watchdog_open(made, &nccl->watchdog);
    if (status != TUTTI_OK)
        tutti_comm_destroy(&made);
    else
        *comm = made;
    return status;
}

void tutti__nccl_describe(char *text, size_t size)
{
    int version = 0;
    if (ncclGetVersion(&version) != ncclSuccess)
        snprintf(text, size, "nccl: %d.%d.%d when built, no working one loaded", NCCL_MAJOR,
                 NCCL_MINOR, NCCL_PATCH);
    else
        snprintf(text, size, "nccl: %d.%d.%d, built against %d.%d.%d", version / 10000,
                 version / 100 % 100, version % 100, NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
}
