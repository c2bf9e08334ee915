/* The control channel: duplicates made with a deadline, gathers and broadcasts of a few bytes. */
#include "comm/mpi/channel.h"

#include <stdlib.h>
#include <string.h>

#include "comm/agree.h"

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
        /* Open MPI reports the error of a collective's request to MPI_COMM_WORLD's handler, which
         * ends the process, whatever the communicator's own handler is. */
        /* one thread at a time, or the caller's handler is lost */
        static pthread_mutex_t handler_mutex = PTHREAD_MUTEX_INITIALIZER;
        MPI_Errhandler callers;
        pthread_mutex_lock(&handler_mutex);
        MPI_Comm_get_errhandler(MPI_COMM_WORLD, &callers);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        code = MPI_Test(request, done, MPI_STATUS_IGNORE);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, callers);
        MPI_Errhandler_free(&callers);
        pthread_mutex_unlock(&handler_mutex);
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

/* A few bytes */

/* Sends every rank's send [bytes] to all, or only the root's. */
enum { ALL_RANKS = -1 };
static tutti_status exchange(int root, tutti_comm *comm, const void *send, void *recv, size_t bytes,
                             const char *operation)
{
    tutti__channel *channel = comm->channel;
    TUTTI_ASSERT(bytes <= INT32_MAX);
    const size_t all = root == ALL_RANKS ? bytes * (size_t)comm->world_size : bytes;
    const size_t own = root == ALL_RANKS ? all : 0;
    const int n = (int)bytes;
    int64_t sequence = ++comm->sequence;
    /* own copies: after a missed deadline MPI may still write to them */
    char *buffer = tutti__comm_room(comm, own + bytes, operation);
    if (!buffer) return TUTTI_ERR_MEMORY;
    memcpy(buffer + own, send, bytes);
    MPI_Request request;
    const int code = root == ALL_RANKS
                         ? MPI_Iallgather(buffer + own, n, MPI_BYTE, buffer, n, MPI_BYTE,
                                          channel->data, &request)
                         : MPI_Ibcast(buffer, n, MPI_BYTE, root, channel->data, &request);
    TUTTI_TRY(tutti__mpi_check(comm, code, operation));
    TUTTI_TRY(tutti__mpi_wait(comm, &request, operation, sequence));
    memcpy(recv, buffer, all);
    free(buffer);
    return TUTTI_OK;
}

static tutti_status channel_gather(tutti_comm *comm, const void *send, void *recv, size_t bytes,
                                   const char *operation)
{
    return exchange(ALL_RANKS, comm, send, recv, bytes, operation);
}

static tutti_status channel_broadcast(tutti_comm *comm, void *data, size_t bytes, int root,
                                      const char *operation)
{
    return exchange(root, comm, data, data, bytes, operation);
}

/* Life */

static bool sent(tutti__channel *channel)
{
    bool all = true;
    for (int r = 0; r < channel->world_size; r++)
        for (int route = 0; route < TUTTI__ROUTES; route++) {
            MPI_Request *send = &channel->peers[r].outbox[route].send;
            int done = 1;
            if (*send != MPI_REQUEST_NULL) MPI_Test(send, &done, MPI_STATUS_IGNORE);
            all = all && done;
        }
    return all;
}

/* Frees the channel, and others of before, once all heartbeats have left: a rank that was late may
 * send its last one when the others have gone on. */
static void free_when_sent(tutti__channel *channel)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static tutti__channel *closed;
    pthread_mutex_lock(&mutex);
    channel->next = closed;
    closed = channel;
    for (tutti__channel **at = &closed; (channel = *at);) {
        if (!sent(channel)) {
            at = &channel->next;
            continue;
        }
        *at = channel->next;
        free(channel->peers);
        free(channel);
    }
    pthread_mutex_unlock(&mutex);
}

static void channel_destroy(tutti_comm *comm)
{
    tutti__channel *channel = comm->channel;
    if (!channel) return;
    int finalized = 0;
    MPI_Finalized(&finalized);
    /* a finaliser may run on a thread that must not call MPI */
    const bool ends =
        !comm->dead && !finalized && comm->control->thread(comm, "comm_destroy") == TUTTI_OK;
    tutti__heartbeats_close(channel, ends);
    /* a collective under way can be neither cancelled nor freed, so its memory is kept */
    if (!ends) return;
    tutti__half_ops_free(channel->ops);
    if (channel->control != MPI_COMM_NULL) MPI_Comm_free(&channel->control);
    if (channel->data != MPI_COMM_NULL) MPI_Comm_free(&channel->data);
    free_when_sent(channel);
    comm->channel = NULL;
}

static tutti_status channel_thread(const tutti_comm *comm, const char *who)
{
    const tutti__channel *channel = comm->channel;
    if (!channel->funneled || pthread_equal(pthread_self(), channel->main)) return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_STATE, TUTTI__FUNNELED_TEXT, who);
}

const tutti__control tutti__mpi_control = {
    .thread = channel_thread,
    .gather = channel_gather,
    .broadcast = channel_broadcast,
    .announce = tutti__heartbeats_announce,
    .receive = tutti__heartbeats_receive,
    .ask = tutti__heartbeats_ask,
    .answered = tutti__heartbeats_answered,
    .forget = tutti__heartbeats_forget,
    .silent = tutti__heartbeats_silent,
    .elsewhere = tutti__heartbeats_elsewhere,
    .give_up = tutti__heartbeats_give_up,
    .gave_up = tutti__heartbeats_gave_up,
    .destroy = channel_destroy,
};

static tutti_status channel_new(tutti_comm *comm, MPI_Comm parent)
{
    size_t world = (size_t)comm->world_size;
    tutti__channel *channel = calloc(1, sizeof *channel);
    if (channel) channel->peers = calloc(world, sizeof *channel->peers);
    if (!channel || !channel->peers) {
        free(channel);
        return tutti__fail(TUTTI_ERR_MEMORY, "comm_create: no memory");
    }
    channel->world_size = comm->world_size;
    channel->gave_up = -1;
    int level = MPI_THREAD_FUNNELED;
    MPI_Query_thread(&level);
    channel->funneled = level == MPI_THREAD_FUNNELED;
    channel->main = pthread_self();
    for (size_t r = 0; r < world; r++) {
        tutti__peer *peer = &channel->peers[r];
        peer->entered = peer->heard.entered = peer->heard.waits = -1;
        for (int route = 0; route < TUTTI__ROUTES; route++)
            peer->outbox[route].send = MPI_REQUEST_NULL;
    }
    channel->data = channel->control = MPI_COMM_NULL;
    for (int i = 0; i < 6; i++) channel->ops[i / 3][i % 3] = MPI_OP_NULL;
    int *upper, there = 0, tag = 32767; /* the least that MPI guarantees */
    if (MPI_Comm_get_attr(parent, MPI_TAG_UB, &upper, &there) == MPI_SUCCESS && there) tag = *upper;
    channel->routes[TUTTI__ROUTE_EARLY] = (tutti__route){parent, tag};
    channel->routes[TUTTI__ROUTE_CONTROL] = (tutti__route){MPI_COMM_NULL, 0};
    comm->channel = channel;
    comm->control = &tutti__mpi_control;
    tutti__heartbeats_open(channel);
    return TUTTI_OK;
}

/* Receives the heartbeats that were sent over the caller's communicator. */
static tutti_status drain_early(tutti_comm *comm, const int32_t *announced)
{
    for (int r = 0; r < comm->world_size; r++) {
        if (r == comm->rank || !announced[r]) continue;
        tutti__wait wait = tutti__wait_begin(comm, "comm_create", comm->sequence);
        while (!tutti__heartbeats_said_early(comm->channel, r)) TUTTI_TRY(tutti__wait_poll(&wait));
    }
    return TUTTI_OK;
}

tutti_status tutti__channel_open(tutti_comm *comm, MPI_Comm parent, tutti_status status)
{
    char message[TUTTI__MESSAGE_MAX] = "";
    if (status != TUTTI_OK) strncpy(message, tutti_last_error(), sizeof message - 1);
    TUTTI_TRY(channel_new(comm, parent));
    tutti__channel *channel = comm->channel;
    TUTTI_TRY(tutti__mpi_duplicate(comm, parent, &channel->data, "comm_create", 0));
    TUTTI_TRY(tutti__mpi_duplicate(comm, channel->data, &channel->pending, "comm_create", 0));

    /* find out who announced over the caller's communicator before heartbeats move to ours */
    size_t world = (size_t)comm->world_size;
    int32_t *announced = calloc(world, sizeof *announced);
    if (!announced) return tutti__fail(TUTTI_ERR_MEMORY, "comm_create: no memory");
    int32_t early = channel->announced_early;
    channel->control = channel->pending;
    tutti__heartbeats_move(channel, TUTTI__ROUTE_CONTROL, channel->control, 0);
    tutti_status moved =
        channel_gather(comm, &early, announced, sizeof early, "comm_create (duplicated)");
    if (moved == TUTTI_OK) moved = drain_early(comm, announced);
    free(announced);
    TUTTI_TRY(moved);
    tutti__heartbeats_move(channel, TUTTI__ROUTE_EARLY, MPI_COMM_NULL, 0);
    if (status == TUTTI_OK)
        status = tutti__half_ops_create(channel->ops);
    else
        tutti__fail(status, "%s", message);
    return tutti_comm_agree(comm, status);
}
