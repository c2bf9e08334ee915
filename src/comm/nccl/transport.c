/* The nccl transport: verbs on the caller's stream through a non-blocking communicator, so that no call can wait for a
 * rank that is gone. */
#include "comm/nccl/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/version.h"
#include "tutti/nccl.h"

/* Blocks of the GPU that a sum may take: enough for NVLink's bandwidth, few enough for matrix products to go on beside it. */
#define CTAS_MAX 16

tutti_status tutti__nccl_enter(tutti_comm *comm, const char *operation)
{
    tutti__nccl *nccl = comm->state;
    pthread_mutex_lock(&nccl->calls);
    tutti_status status = tutti__comm_alive(comm, operation);
    if (status == TUTTI_OK) {
        cudaError_t code = cudaSetDevice(comm->device);
        if (code != cudaSuccess)
            status = tutti__fail(TUTTI_ERR_DEVICE, "%s: cudaSetDevice(%d): %s", operation,
                                 comm->device, cudaGetErrorString(code));
    }
    if (status != TUTTI_OK) pthread_mutex_unlock(&nccl->calls);
    return status;
}

void tutti__nccl_leave(tutti_comm *comm)
{
    tutti__nccl *nccl = comm->state;
    pthread_mutex_unlock(&nccl->calls);
}

/* NCCL's last message of this process, whichever communicator it is about. */
static const char *last_words(void)
{
    const char *text = ncclGetLastError(NULL);
    return text && text[0] ? text : "NCCL_DEBUG=WARN may tell more";
}

/* How far NCCL has come with a call that returned `result`.  A call that goes on in the background does not always say so (2.28's
 * window registration returns success). */
static tutti_status look(tutti_comm *comm, const char *operation, ncclResult_t *result)
{
    tutti__nccl *nccl = comm->state;
    if (*result != ncclSuccess && *result != ncclInProgress) return TUTTI_OK;
    TUTTI_TRY(tutti__nccl_enter(comm, operation));
    ncclResult_t asked = ncclCommGetAsyncError(nccl->comm, result);
    tutti__nccl_leave(comm);
    if (asked != ncclSuccess) *result = asked;
    return TUTTI_OK;
}

static tutti_status broken(tutti_comm *comm, ncclResult_t result, const char *operation)
{
    char words[256];
    snprintf(words, sizeof words, "%s", last_words());
    return tutti__comm_die(comm, "%s: NCCL failed: %s (%s)", operation, ncclGetErrorString(result),
                           words);
}

tutti_status tutti__nccl_settle(tutti_comm *comm, ncclResult_t result, const char *operation,
                                int64_t sequence)
{
    TUTTI_TRY(look(comm, operation, &result));
    if (result == ncclSuccess) return TUTTI_OK;
    tutti__wait wait = tutti__wait_begin(comm, operation, sequence);
    while (result == ncclInProgress) {
        TUTTI_TRY(tutti__wait_poll(&wait));
        TUTTI_TRY(look(comm, operation, &result));
    }
    return result == ncclSuccess ? TUTTI_OK : broken(comm, result, operation);
}

static tutti_status nccl_poll(tutti_comm *comm)
{
    ncclResult_t state = ncclSuccess;
    TUTTI_TRY(look(comm, "nccl", &state));
    if (state == ncclSuccess || state == ncclInProgress) return TUTTI_OK;
    return broken(comm, state, "nccl");
}

/* Verbs */

static ncclDataType_t type_of(tutti_dtype dtype)
{
    switch (dtype) {
    case TUTTI_F32:
        return ncclFloat32;
    case TUTTI_F64:
        return ncclFloat64;
    case TUTTI_F16:
        return ncclFloat16;
    case TUTTI_BF16:
        return ncclBfloat16;
    case TUTTI_I32:
        return ncclInt32;
    case TUTTI_U8:
        break;
    }
    return ncclUint8;
}

static ncclRedOp_t op_of(tutti_op op)
{
    return op == TUTTI_MIN ? ncclMin : op == TUTTI_MAX ? ncclMax : ncclSum;
}

/* Inside of a registered window? */
static bool in_window(const tutti__nccl *nccl, const void *data)
{
    uintptr_t at = (uintptr_t)data;
    for (const tutti__nccl_memory *memory = nccl->memory; memory; memory = memory->next) {
        uintptr_t begin = (uintptr_t)memory->data;
        if (memory->window && at >= begin && at < begin + memory->bytes) return true;
    }
    return false;
}

/* A message from a registered window into plain memory, or the other way round, never ends in NCCL 2.28.  What a peer's buffer
 * is nobody knows here, so messages are always between plain ones. */
static tutti_status all_to_all(tutti_comm *comm, tutti_context *ctx, const tutti__collective *what)
{
    tutti__nccl *nccl = comm->state;
    size_t count = (size_t)what->count, block = count * tutti_dtype_size(what->dtype);
    size_t bytes = block * (size_t)comm->world_size, room = (bytes + 255) / 256 * 256;
    ncclDataType_t type = type_of(what->dtype);
    bool send_apart = in_window(nccl, what->send), recv_apart = in_window(nccl, what->recv);
    const tutti__runtime *run = &comm->backend->run;
    void *scratch;
    TUTTI_TRY(tutti__scratch(ctx, room * (size_t)(send_apart + recv_apart), &scratch));
    const char *send = send_apart ? scratch : what->send;
    char *recv = recv_apart ? (char *)scratch + (send_apart ? room : 0) : what->recv;
    if (send_apart) TUTTI_TRY(run->copy(comm->device, ctx->stream, scratch, what->send, bytes));

    TUTTI_TRY(tutti__nccl_enter(comm, what->name));
    ncclResult_t worst = ncclGroupStart();
    for (int r = 0; r < comm->world_size && worst == ncclSuccess; r++) {
        size_t skip = block * (size_t)r;
        worst = ncclSend(send + skip, count, type, r, nccl->comm, ctx->stream);
        if (worst == ncclSuccess)
            worst = ncclRecv(recv + skip, count, type, r, nccl->comm, ctx->stream);
    }
    ncclResult_t ended = ncclGroupEnd();
    tutti__nccl_leave(comm);
    TUTTI_TRY(
        tutti__nccl_settle(comm, worst == ncclSuccess ? ended : worst, what->name, what->sequence));
    return recv_apart ? run->copy(comm->device, ctx->stream, what->recv, recv, bytes) : TUTTI_OK;
}

static ncclResult_t enqueue(ncclComm_t nccl, cudaStream_t stream, const tutti__collective *what)
{
    size_t count = (size_t)what->count;
    ncclDataType_t type = type_of(what->dtype);
    ncclRedOp_t op = op_of(what->op);
    switch (what->kind) {
    case TUTTI__ALL_REDUCE:
        return ncclAllReduce(what->send, what->recv, count, type, op, nccl, stream);
    case TUTTI__BROADCAST:
        return ncclBroadcast(what->send, what->recv, count, type, what->root, nccl, stream);
    case TUTTI__ALL_GATHER:
        return ncclAllGather(what->send, what->recv, count, type, nccl, stream);
    case TUTTI__REDUCE_SCATTER:
        return ncclReduceScatter(what->send, what->recv, count, type, op, nccl, stream);
    case TUTTI__ALL_TO_ALL:
        break; /* several calls */
    }
    return ncclInternalError;
}

static tutti_status nccl_collective(tutti_comm *comm, tutti_context *ctx,
                                    const tutti__collective *what)
{
    tutti__nccl *nccl = comm->state;
    TUTTI_TRY(tutti__watchdog_begin(nccl->watchdog, ctx->stream, what->name, what->sequence));
    if (what->kind == TUTTI__ALL_TO_ALL) {
        TUTTI_TRY(all_to_all(comm, ctx, what));
    } else {
        TUTTI_TRY(tutti__nccl_enter(comm, what->name));
        ncclResult_t result = enqueue(nccl->comm, ctx->stream, what);
        tutti__nccl_leave(comm);
        TUTTI_TRY(tutti__nccl_settle(comm, result, what->name, what->sequence));
    }
    return tutti__comm_touch(comm, ctx, what->name, true);
}

static const char exchange[] = "gradient exchange";

static tutti_status nccl_all_reduce_on_stream(tutti_comm *comm, tutti__stream stream, void *data,
                                              int64_t count, tutti_dtype dtype, int64_t sequence)
{
    tutti__nccl *nccl = comm->state;
    TUTTI_TRY(tutti__watchdog_begin(nccl->watchdog, stream, exchange, sequence));
    TUTTI_TRY(tutti__nccl_enter(comm, exchange));
    ncclResult_t result = ncclAllReduce(data, data, (size_t)count, type_of(dtype), ncclSum,
                                        nccl->comm, (cudaStream_t)stream);
    tutti__nccl_leave(comm);
    return tutti__nccl_settle(comm, result, exchange, sequence);
}

static tutti_status nccl_swap_on_stream(tutti_comm *comm, tutti__stream stream,
                                        const tutti__swap *swap, int64_t sequence)
{
    tutti__nccl *nccl = comm->state;
    ncclDataType_t type = type_of(swap->dtype);
    TUTTI_TRY(tutti__watchdog_begin(nccl->watchdog, stream, exchange, sequence));
    TUTTI_TRY(tutti__nccl_enter(comm, exchange));
    ncclResult_t worst = ncclGroupStart();
    for (int i = 0; i < swap->send_count && worst == ncclSuccess; i++)
        worst = ncclSend(swap->sends[i].data, (size_t)swap->sends[i].count, type,
                         swap->sends[i].peer, nccl->comm, (cudaStream_t)stream);
    for (int i = 0; i < swap->recv_count && worst == ncclSuccess; i++)
        worst = ncclRecv(swap->recvs[i].data, (size_t)swap->recvs[i].count, type,
                         swap->recvs[i].peer, nccl->comm, (cudaStream_t)stream);
    ncclResult_t ended = ncclGroupEnd();
    tutti__nccl_leave(comm);
    return tutti__nccl_settle(comm, worst == ncclSuccess ? ended : worst, exchange, sequence);
}

static tutti_status nccl_fence(tutti_comm *comm, tutti__stream stream)
{
    tutti__nccl *nccl = comm->state;
    return tutti__watchdog_clear(nccl->watchdog, stream);
}

/* Life */

static tutti__nccl *state_new(ncclComm_t comm, bool owned)
{
    tutti__nccl *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->comm = comm;
    made->owned = owned;
    pthread_mutex_init(&made->calls, NULL);
    return made;
}

static void state_free(tutti__nccl *state)
{
    if (!state) return;
    pthread_mutex_destroy(&state->calls);
    free(state);
}

/* Called by the watchdog too, while the rank's thread may be anywhere. */
static void nccl_abandon(tutti_comm *comm)
{
    tutti__nccl *nccl = comm->state;
    if (!nccl) return;
    /* Non-blocking calls of NCCL end soon.  If one does not, aborting from another thread is what NCCL advises. */
    bool held = false;
    for (double until = tutti__now() + 1; !held && tutti__now() < until;) {
        held = pthread_mutex_trylock(&nccl->calls) == 0;
        if (!held) tutti__sleep(1e-3);
    }
    ncclComm_t handle = nccl->comm; /* nobody enters any more: comm is dead */
    if (held) pthread_mutex_unlock(&nccl->calls);
    /* the kernels that wait for the lost rank end, and with them the streams */
    if (handle && !tutti__nccl_abort(handle, comm->device))
        tutti__log(TUTTI_LOG_WARN, "NCCL does not come back from ncclCommAbort; left alone");
}

static void nccl_destroy(tutti_comm *comm)
{
    tutti__nccl *nccl = comm->state;
    if (!nccl) return;
    tutti__watchdog_close(&nccl->watchdog);
    if (comm->dead) return;
    comm->state = NULL;
    if (nccl->control_stream) comm->backend->run.stream_destroy(comm->device, nccl->control_stream);
    if (nccl->comm && nccl->owned && !tutti__nccl_finalize(nccl->comm, comm->device, comm->timeout))
        tutti__log(TUTTI_LOG_INFO,
                   "NCCL goes on destroying a communicator by itself: another rank has not come to "
                   "that yet, or graphs hold its work and must be destroyed");
    for (tutti__nccl_memory *memory = nccl->memory, *next; memory; memory = next) {
        next = memory->next; /* its owner has outlived the communicator: the memory is his */
        free(memory);
    }
    state_free(nccl);
}

const tutti__transport tutti__nccl_transport = {
    .kind = TUTTI_TRANSPORT_NCCL,
    .style = TUTTI__STYLE_STREAM,
    .collective = nccl_collective,
    .all_reduce_on_stream = nccl_all_reduce_on_stream,
    .swap_on_stream = nccl_swap_on_stream,
    .fence = nccl_fence,
    .poll = nccl_poll,
    .alloc = tutti__nccl_alloc,
    .free = tutti__nccl_free,
    .abandon = nccl_abandon,
    .destroy = nccl_destroy,
};

/* Set-up */

tutti_status tutti__nccl_identify(const tutti_context *ctx, tutti__identity *identity)
{
    int version = 0;
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
        return tutti__fail(TUTTI_ERR_DEVICE, "comm_create: device %d cannot be asked who it is: %s",
                           ctx->device, cudaGetErrorString(code));
    memcpy(identity->uuid, properties.uuid.bytes, sizeof identity->uuid);
    return TUTTI_OK;
}

static void warn_of_old_faults(int version)
{
    if (version >= NCCL_VERSION(2, 28, 0) && version < NCCL_VERSION(2, 28, 7))
        tutti__log(TUTTI_LOG_WARN,
                   "NCCL %d.%d.%d has known faults in small messages; 2.28.7 or newer is better",
                   version / 10000, version / 100 % 100, version % 100);
}

tutti_status tutti__nccl_attach(tutti_comm *comm)
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
        status =
            tutti__fail(TUTTI_ERR_COMM, "comm_create: ncclGetUniqueId failed (%s)", last_words());
    status = tutti_comm_agree(comm, status);
    if (status == TUTTI_OK)
        status = comm->control->broadcast(comm, &id, sizeof id, 0, "comm_create (unique id)");
    if (status != TUTTI_OK) {
        state_free(nccl);
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
    /* whoever is dead has missed the deadline or heard NCCL's error: the others find out the same way */
    if (comm->dead) return status;
    if (status == TUTTI_OK) status = tutti__watchdog_open(comm, &nccl->watchdog);
    return tutti_comm_agree(comm, status);
}

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
        return tutti__fail(TUTTI_ERR_ARG, "%s: nccl_comm is no working communicator", who);
    TUTTI_REQUIRE(device == ctx->device, "%s: nccl_comm is on device %d, the context on %d", who,
                  device, ctx->device);
    warn_of_old_faults(version);
    tutti__nccl *nccl = state_new(nccl_comm, false);
    if (!nccl) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    tutti_comm *made;
    tutti_status status = tutti__comm_new(ctx, wanted.timeout, &made);
    if (status != TUTTI_OK) {
        state_free(nccl);
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
        snprintf(text, size, "nccl: %d.%d.%d when built, none that works now", NCCL_MAJOR,
                 NCCL_MINOR, NCCL_PATCH);
    else
        snprintf(text, size, "nccl: %d.%d.%d, built against %d.%d.%d", version / 10000,
                 version / 100 % 100, version % 100, NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
}
