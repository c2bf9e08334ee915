/* The control channel: duplicating a communicator to a deadline, beacons, gathers and broadcasts of a few bytes. */
#include "comm/mpi/channel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEACON_MAGIC UINT64_C(0x74757474692d6265)

tutti_status tutti__mpi_check(tutti_comm *comm, int code, const char *operation)
{
    if (code == MPI_SUCCESS) return TUTTI_OK;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return tutti__comm_die(comm, "%s: MPI failed: %s", operation, text);
}

tutti_status tutti__mpi_test(tutti_comm *comm, MPI_Request *request, const char *operation,
                             int *done)
{
    *done = 0;
    int code = MPI_Request_get_status(*request, done, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS && *done) {
        /* Open MPI takes the error of a collective's request to MPI_COMM_WORLD's handler, which ends the process, whatever
         * the communicator's own says. */
        MPI_Errhandler callers;
        MPI_Comm_get_errhandler(MPI_COMM_WORLD, &callers);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        code = MPI_Test(request, done, MPI_STATUS_IGNORE);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, callers);
        MPI_Errhandler_free(&callers);
    }
    return tutti__mpi_check(comm, code, operation);
}

tutti_status tutti__mpi_wait(tutti_comm *comm, MPI_Request *request, const char *operation,
                             int64_t sequence)
{
    tutti__wait wait = tutti__wait_begin(comm, operation, sequence);
    for (;;) {
        int done;
        TUTTI_TRY(tutti__mpi_test(comm, request, operation, &done));
        if (done) return TUTTI_OK;
        TUTTI_TRY(tutti__wait_poll(&wait));
    }
}

tutti_status tutti__mpi_duplicate(tutti_comm *comm, MPI_Comm parent, MPI_Comm *duplicate,
                                  const char *operation, int64_t sequence)
{
    MPI_Request request;
    TUTTI_TRY(tutti__mpi_check(comm, MPI_Comm_idup(parent, duplicate, &request), operation));
    TUTTI_TRY(tutti__mpi_wait(comm, &request, operation, sequence));
    return tutti__mpi_check(comm, MPI_Comm_set_errhandler(*duplicate, MPI_ERRORS_RETURN),
                            operation);
}

/* Beacons */

static tutti__beacon beacon_of(int64_t sequence, const char *operation)
{
    tutti__beacon beacon = {BEACON_MAGIC, sequence, ""};
    strncpy(beacon.operation, operation, sizeof beacon.operation - 1);
    return beacon;
}

static void channel_announce(tutti_comm *comm, int64_t sequence, const char *operation)
{
    tutti__channel *channel = comm->channel;
    if (channel->control == MPI_COMM_NULL) {
        if (channel->announced_early) return;
        channel->announced_early = true;
    }
    for (int r = 0; r < comm->world_size; r++) {
        if (r == comm->rank) continue;
        int free_again = 1;
        if (channel->sends[r] != MPI_REQUEST_NULL)
            MPI_Test(&channel->sends[r], &free_again, MPI_STATUS_IGNORE);
        if (!free_again) continue; /* it takes nothing in: it will not read this either */
        channel->out[r] = beacon_of(sequence, operation);
        if (MPI_Isend(&channel->out[r], sizeof channel->out[r], MPI_BYTE, r, channel->beacon_tag,
                      channel->beacon_comm, &channel->sends[r]) != MPI_SUCCESS)
            channel->sends[r] = MPI_REQUEST_NULL;
    }
}

/* Takes in one beacon if there is one. */
static bool hear_one(tutti_comm *comm, MPI_Comm where, int tag, int source)
{
    tutti__channel *channel = comm->channel;
    int there = 0;
    MPI_Status status;
    if (MPI_Iprobe(source, tag, where, &there, &status) != MPI_SUCCESS || !there) return false;
    tutti__beacon in = {0, 0, ""};
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (bytes != (int)sizeof in) return false; /* not ours: left to whoever waits for it */
    if (MPI_Recv(&in, sizeof in, MPI_BYTE, status.MPI_SOURCE, tag, where, MPI_STATUS_IGNORE) !=
        MPI_SUCCESS)
        return false;
    if (in.magic == BEACON_MAGIC && in.sequence > channel->heard[status.MPI_SOURCE].sequence)
        channel->heard[status.MPI_SOURCE] = in;
    return true;
}

static bool channel_hear(tutti_comm *comm)
{
    const tutti__channel *channel = comm->channel;
    bool any = false;
    while (hear_one(comm, channel->beacon_comm, channel->beacon_tag, MPI_ANY_SOURCE)) any = true;
    return any;
}

static void channel_forget(tutti_comm *comm)
{
    tutti__channel *channel = comm->channel;
    for (int r = 0; r < comm->world_size; r++) channel->heard[r].sequence = -1;
}

static void channel_silent(const tutti_comm *comm, int64_t sequence, char *text, size_t size)
{
    const tutti__channel *channel = comm->channel;
    for (int r = 0; r < comm->world_size; r++)
        if (r != comm->rank && channel->heard[r].sequence < sequence)
            tutti__rank_list_add(text, size, r);
}

static void channel_astray(const tutti_comm *comm, int64_t sequence, const char *operation,
                           char *text, size_t size)
{
    const tutti__channel *channel = comm->channel;
    const tutti__beacon mine = beacon_of(sequence, operation);
    const char *theirs = NULL;
    for (int r = 0; r < comm->world_size; r++) {
        const tutti__beacon *said = &channel->heard[r];
        if (r == comm->rank || said->sequence != sequence || !said->operation[0] ||
            strcmp(said->operation, mine.operation) == 0)
            continue;
        if (theirs && strcmp(said->operation, theirs) != 0) continue; /* one is enough */
        theirs = said->operation;
        tutti__rank_list_add(text, size, r);
    }
    if (!theirs) return;
    size_t used = strlen(text);
    snprintf(text + used, size - used, " wait%s in %s", strncmp(text, "ranks", 5) == 0 ? "" : "s",
             theirs);
}

/* A few bytes */

static tutti_status channel_gather(tutti_comm *comm, const void *send, void *recv, size_t bytes,
                                   const char *operation)
{
    tutti__channel *channel = comm->channel;
    TUTTI_ASSERT(bytes <= INT32_MAX);
    int64_t sequence = ++comm->sequence;
    /* copies of its own: after a missed deadline MPI may still write them */
    size_t world = (size_t)comm->world_size;
    char *buffer = malloc((world + 1) * bytes + 1);
    if (!buffer) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", operation);
    char *mine = buffer + world * bytes;
    memcpy(mine, send, bytes);
    MPI_Request request;
    TUTTI_TRY(tutti__mpi_check(comm,
                               MPI_Iallgather(mine, (int)bytes, MPI_BYTE, buffer, (int)bytes,
                                              MPI_BYTE, channel->data, &request),
                               operation));
    TUTTI_TRY(tutti__mpi_wait(comm, &request, operation, sequence));
    memcpy(recv, buffer, world * bytes);
    free(buffer);
    return TUTTI_OK;
}

static tutti_status channel_broadcast(tutti_comm *comm, void *data, size_t bytes, int root,
                                      const char *operation)
{
    tutti__channel *channel = comm->channel;
    TUTTI_ASSERT(bytes <= INT32_MAX);
    int64_t sequence = ++comm->sequence;
    char *buffer = malloc(bytes + 1);
    if (!buffer) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", operation);
    memcpy(buffer, data, bytes);
    MPI_Request request;
    TUTTI_TRY(tutti__mpi_check(
        comm, MPI_Ibcast(buffer, (int)bytes, MPI_BYTE, root, channel->data, &request), operation));
    TUTTI_TRY(tutti__mpi_wait(comm, &request, operation, sequence));
    memcpy(data, buffer, bytes);
    free(buffer);
    return TUTTI_OK;
}

/* Life */

static void channel_destroy(tutti_comm *comm)
{
    tutti__channel *channel = comm->channel;
    if (!channel) return;
    int finalized = 0;
    MPI_Finalized(&finalized);
    /* a collective under way can be neither cancelled nor freed: its memory is left to it */
    if (comm->dead || finalized) return;
    bool sent = true;
    for (int r = 0; r < comm->world_size; r++) {
        int done = 1;
        if (channel->sends[r] != MPI_REQUEST_NULL)
            MPI_Test(&channel->sends[r], &done, MPI_STATUS_IGNORE);
        if (!done) {
            MPI_Request_free(&channel->sends[r]);
            sent = false;
        }
    }
    channel_hear(comm);
    tutti__half_ops_free(channel->ops);
    if (channel->control != MPI_COMM_NULL) MPI_Comm_free(&channel->control);
    if (channel->data != MPI_COMM_NULL) MPI_Comm_free(&channel->data);
    if (sent) free(channel->out);
    free(channel->sends);
    free(channel->heard);
    free(channel);
    comm->channel = NULL;
}

const tutti__control tutti__mpi_control = {
    .gather = channel_gather,
    .broadcast = channel_broadcast,
    .announce = channel_announce,
    .hear = channel_hear,
    .forget = channel_forget,
    .silent = channel_silent,
    .astray = channel_astray,
    .destroy = channel_destroy,
};

static tutti_status channel_new(tutti_comm *comm, MPI_Comm parent)
{
    size_t world = (size_t)comm->world_size;
    tutti__channel *channel = calloc(1, sizeof *channel);
    if (channel) {
        channel->heard = malloc(world * sizeof *channel->heard);
        channel->out = calloc(world, sizeof *channel->out);
        channel->sends = malloc(world * sizeof *channel->sends);
    }
    if (!channel || !channel->heard || !channel->out || !channel->sends) {
        if (channel) {
            free(channel->heard);
            free(channel->out);
            free(channel->sends);
        }
        free(channel);
        return tutti__fail(TUTTI_ERR_MEMORY, "comm_create: no memory");
    }
    for (size_t r = 0; r < world; r++) {
        channel->heard[r].sequence = -1;
        channel->sends[r] = MPI_REQUEST_NULL;
    }
    channel->data = channel->control = MPI_COMM_NULL;
    for (int i = 0; i < 6; i++) channel->ops[i / 3][i % 3] = MPI_OP_NULL;
    channel->beacon_comm = parent;
    int *upper, there = 0;
    channel->beacon_tag = 32767; /* what MPI grants at least */
    if (MPI_Comm_get_attr(parent, MPI_TAG_UB, &upper, &there) == MPI_SUCCESS && there)
        channel->beacon_tag = *upper;
    comm->channel = channel;
    comm->control = &tutti__mpi_control;
    return TUTTI_OK;
}

/* Takes the beacons that were sent over the caller's communicator out of it again. */
static tutti_status drain_early(tutti_comm *comm, const int32_t *announced, MPI_Comm parent,
                                int parent_tag)
{
    const tutti__channel *channel = comm->channel;
    for (int r = 0; r < comm->world_size; r++) {
        if (r == comm->rank || !announced[r] || channel->heard[r].sequence >= 0) continue;
        tutti__wait wait = tutti__wait_begin(comm, "comm_create", comm->sequence);
        while (!hear_one(comm, parent, parent_tag, r)) TUTTI_TRY(tutti__wait_poll(&wait));
    }
    return TUTTI_OK;
}

tutti_status tutti__channel_open(tutti_comm *comm, MPI_Comm parent, tutti_status status)
{
    char message[TUTTI__MESSAGE_MAX] = "";
    if (status != TUTTI_OK) strncpy(message, tutti_last_error(), sizeof message - 1);
    TUTTI_TRY(channel_new(comm, parent));
    tutti__channel *channel = comm->channel;
    int parent_tag = channel->beacon_tag;
    TUTTI_TRY(tutti__mpi_duplicate(comm, parent, &channel->data, "comm_create", 0));
    TUTTI_TRY(tutti__mpi_duplicate(comm, channel->data, &channel->pending, "comm_create", 0));

    /* who said something over the caller's communicator is asked before beacons move to ours */
    size_t world = (size_t)comm->world_size;
    int32_t *announced = calloc(world, sizeof *announced);
    if (!announced) return tutti__fail(TUTTI_ERR_MEMORY, "comm_create: no memory");
    int32_t early = channel->announced_early;
    channel->control = channel->pending;
    channel->beacon_comm = channel->control;
    channel->beacon_tag = 0;
    tutti_status moved =
        channel_gather(comm, &early, announced, sizeof early, "comm_create (duplicated)");
    if (moved == TUTTI_OK) moved = drain_early(comm, announced, parent, parent_tag);
    free(announced);
    TUTTI_TRY(moved);
    if (status == TUTTI_OK)
        status = tutti__half_ops_create(channel->ops);
    else
        tutti__fail(status, "%s", message);
    return tutti_comm_agree(comm, status);
}
