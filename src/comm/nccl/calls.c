/* Calls of NCCL: entered by one thread at a time, and completed until the deadline. */
#include <stdio.h>

#include "comm/nccl/transport.h"
#include "comm/wait.h"

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

const char *tutti__nccl_last_words(void)
{
    const char *text = ncclGetLastError(NULL);
    return text && text[0] ? text : "NCCL_DEBUG=WARN may tell more";
}

/* The state of a call that returned `result`.  A call that continues in the background does not
 * always return ncclInProgress (2.28's window registration returns success). */
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
    snprintf(words, sizeof words, "%s", tutti__nccl_last_words());
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

tutti_status tutti__nccl_poll(tutti_comm *comm)
{
    ncclResult_t state = ncclSuccess;
    TUTTI_TRY(look(comm, "nccl", &state));
    if (state == ncclSuccess || state == ncclInProgress) return TUTTI_OK;
    return broken(comm, state, "nccl");
}
