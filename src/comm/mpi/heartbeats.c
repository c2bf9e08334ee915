/* Heartbeats: ranks tell each other, point to point, where they wait.
 *
 *   say     sent once in a long wait: this rank has entered an operation.
 *   ask     sent at the deadline, before any rank is named: every rank that polls answers.
 *   answer  the reply of a waiting rank, even if it waits with another communicator.
 *   gave up sent last by a rank that aborts, with its reason.
 *
 * A rank that asks is alive, so a question also counts as an answer. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "comm/mpi/channel.h"
#include "comm/rank_list.h"

#define HEARTBEAT_MAGIC UINT64_C(0x74757474692d6265)

/* Guards all channels of this process: a wait with one answers for the others, which other threads
 * may be using. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static tutti__channel *channels;

/* Sending */

/* States where this rank waits; over another communicator's channel only that it waits
 * elsewhere. */
static tutti__heartbeat heartbeat_of(const tutti__wait *wait, const tutti__channel *channel,
                                     tutti__heartbeat_kind kind)
{
    const bool own = wait->comm->channel == channel;
    tutti__heartbeat heartbeat = {.magic = HEARTBEAT_MAGIC, .kind = kind, .elsewhere = !own};
    heartbeat.entered = own ? wait->comm->sequence : -1;
    heartbeat.waits = own ? wait->sequence : -1;
    strncpy(heartbeat.operation, wait->operation, sizeof heartbeat.operation - 1);
    return heartbeat;
}

/* False if the last one has not left: the rank receives nothing, and would not read this one. */
static bool post(tutti__channel *channel, int rank, int route, const tutti__heartbeat *heartbeat)
{
    const tutti__route *over = &channel->routes[route];
    tutti__outbox *outbox = &channel->peers[rank].outbox[route];
    int free_again = 1;
    if (over->comm == MPI_COMM_NULL) return true; /* closed; questions go both routes */
    if (outbox->send != MPI_REQUEST_NULL) MPI_Test(&outbox->send, &free_again, MPI_STATUS_IGNORE);
    if (!free_again) return false;
    outbox->out = *heartbeat;
    if (MPI_Isend(&outbox->out, sizeof outbox->out, MPI_BYTE, rank, over->tag, over->comm,
                  &outbox->send) != MPI_SUCCESS)
        outbox->send = MPI_REQUEST_NULL;
    return true;
}

/* Sends the questions and answers that are due; those that cannot be sent now stay due. */
static void deliver(tutti__channel *channel, const tutti__wait *wait)
{
    if (!channel->due) return;
    channel->due = false;
    const tutti__heartbeat question = heartbeat_of(wait, channel, TUTTI__HEARTBEAT_ASK);
    const tutti__heartbeat answer = heartbeat_of(wait, channel, TUTTI__HEARTBEAT_ANSWER);
    for (int r = 0; r < channel->world_size; r++)
        for (int route = 0; route < TUTTI__ROUTES; route++) {
            tutti__outbox *outbox = &channel->peers[r].outbox[route];
            if (!outbox->asks && !outbox->answers) continue;
            if (post(channel, r, route, outbox->asks ? &question : &answer))
                outbox->asks = outbox->answers = false;
            else
                channel->due = true;
        }
}

void tutti__heartbeats_announce(const tutti__wait *wait)
{
    tutti__channel *channel = wait->comm->channel;
    pthread_mutex_lock(&mutex);
    const int route = channel->routes[TUTTI__ROUTE_CONTROL].comm != MPI_COMM_NULL
                          ? TUTTI__ROUTE_CONTROL
                          : TUTTI__ROUTE_EARLY;
    const tutti__heartbeat heartbeat = heartbeat_of(wait, channel, TUTTI__HEARTBEAT_SAY);
    if (route == TUTTI__ROUTE_CONTROL || !channel->announced_early)
        for (int r = 0; r < channel->world_size; r++)
            if (r != wait->comm->rank) (void)post(channel, r, route, &heartbeat);
    if (route == TUTTI__ROUTE_EARLY) channel->announced_early = true;
    pthread_mutex_unlock(&mutex);
}

void tutti__heartbeats_ask(const tutti__wait *wait)
{
    tutti__channel *channel = wait->comm->channel;
    pthread_mutex_lock(&mutex);
    for (int r = 0; r < channel->world_size; r++)
        for (int route = 0; route < TUTTI__ROUTES && r != wait->comm->rank; route++)
            channel->peers[r].outbox[route].asks = channel->routes[route].comm != MPI_COMM_NULL;
    channel->due = true;
    deliver(channel, wait);
    pthread_mutex_unlock(&mutex);
}

/* Receiving */

static void record(tutti__channel *channel, int rank, int route, const tutti__heartbeat *in)
{
    tutti__peer *peer = &channel->peers[rank];
    if (in->kind == TUTTI__HEARTBEAT_GAVE_UP) {
        if (channel->gave_up >= 0) return;
        channel->gave_up = rank;
        memcpy(channel->reason, in->reason, sizeof channel->reason);
        channel->reason[sizeof channel->reason - 1] = 0;
        return;
    }
    if (in->kind == TUTTI__HEARTBEAT_SAY && route == TUTTI__ROUTE_EARLY) peer->said_early = true;
    if (in->kind == TUTTI__HEARTBEAT_ASK) channel->due = peer->outbox[route].answers = true;
    if (in->kind != TUTTI__HEARTBEAT_SAY) peer->answered = true;
    if (in->elsewhere || in->entered >= peer->heard.entered) peer->heard = *in;
    if (in->entered > peer->entered) peer->entered = in->entered;
}

/* Receives one heartbeat if there is one. */
static bool receive_one(tutti__channel *channel, int route)
{
    const tutti__route *over = &channel->routes[route];
    int there = 0, bytes = 0;
    MPI_Status status;
    if (over->comm == MPI_COMM_NULL ||
        MPI_Iprobe(MPI_ANY_SOURCE, over->tag, over->comm, &there, &status) != MPI_SUCCESS || !there)
        return false;
    tutti__heartbeat in = {.magic = 0};
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (bytes != (int)sizeof in) return false; /* not ours: left for its receiver */
    if (MPI_Recv(&in, sizeof in, MPI_BYTE, status.MPI_SOURCE, over->tag, over->comm,
                 MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return false;
    if (in.magic == HEARTBEAT_MAGIC) record(channel, status.MPI_SOURCE, route, &in);
    return true;
}

static bool receive_all(tutti__channel *channel)
{
    bool any = false;
    for (int route = 0; route < TUTTI__ROUTES; route++)
        while (receive_one(channel, route)) any = true;
    return any;
}

bool tutti__heartbeats_receive(const tutti__wait *wait)
{
    bool any = false;
    pthread_mutex_lock(&mutex);
    for (tutti__channel *channel = channels; channel; channel = channel->next) {
        if (receive_all(channel) && channel == wait->comm->channel) any = true;
        deliver(channel, wait);
    }
    pthread_mutex_unlock(&mutex);
    return any;
}

bool tutti__heartbeats_said_early(tutti__channel *channel, int rank)
{
    pthread_mutex_lock(&mutex);
    receive_all(channel);
    const bool said = channel->peers[rank].said_early;
    pthread_mutex_unlock(&mutex);
    return said;
}

void tutti__heartbeats_forget(tutti_comm *comm)
{
    tutti__channel *channel = comm->channel;
    pthread_mutex_lock(&mutex);
    for (int r = 0; r < channel->world_size; r++)
        channel->peers[r].entered = channel->peers[r].heard.entered = -1;
    pthread_mutex_unlock(&mutex);
}

/* Giving up */

#define TELL_SECONDS 1.0 /* spent at most on ranks that receive nothing */

void tutti__heartbeats_give_up(tutti_comm *comm, const char *reason)
{
    tutti__channel *channel = comm->channel;
    const tutti__wait wait = tutti__wait_begin(comm, "abort", comm->sequence);
    tutti__heartbeat heartbeat = heartbeat_of(&wait, channel, TUTTI__HEARTBEAT_GAVE_UP);
    strncpy(heartbeat.reason, reason, sizeof heartbeat.reason - 1);
    const double until = tutti__now() + TELL_SECONDS;
    pthread_mutex_lock(&mutex);
    /* wait until earlier heartbeats and this one have left: the program may end MPI next */
    for (int r = 0; r < channel->world_size; r++) {
        if (r == comm->rank) continue;
        while (!post(channel, r, TUTTI__ROUTE_CONTROL, &heartbeat) && tutti__now() < until)
            tutti__sleep(1e-4);
    }
    for (int r = 0; r < channel->world_size; r++) {
        MPI_Request *send = &channel->peers[r].outbox[TUTTI__ROUTE_CONTROL].send;
        int left = *send == MPI_REQUEST_NULL;
        while (!left && MPI_Test(send, &left, MPI_STATUS_IGNORE) == MPI_SUCCESS && !left &&
               tutti__now() < until)
            tutti__sleep(1e-4);
    }
    pthread_mutex_unlock(&mutex);
}

int tutti__heartbeats_gave_up(const tutti_comm *comm, char *reason, size_t size)
{
    const tutti__channel *channel = comm->channel;
    pthread_mutex_lock(&mutex);
    snprintf(reason, size, "%s", channel->reason);
    const int rank = channel->gave_up;
    pthread_mutex_unlock(&mutex);
    return rank;
}

/* Life */

void tutti__heartbeats_open(tutti__channel *channel)
{
    pthread_mutex_lock(&mutex);
    channel->next = channels;
    channels = channel;
    pthread_mutex_unlock(&mutex);
}

void tutti__heartbeats_move(tutti__channel *channel, int route, MPI_Comm comm, int tag)
{
    pthread_mutex_lock(&mutex);
    channel->routes[route] = (tutti__route){comm, tag};
    pthread_mutex_unlock(&mutex);
}

void tutti__heartbeats_close(tutti__channel *channel, bool drain)
{
    pthread_mutex_lock(&mutex);
    if (drain) receive_all(channel);
    tutti__channel **at = &channels;
    while (*at && *at != channel) at = &(*at)->next;
    if (*at) *at = channel->next;
    pthread_mutex_unlock(&mutex);
}

/* What was received */

bool tutti__heartbeats_answered(const tutti_comm *comm)
{
    const tutti__channel *channel = comm->channel;
    bool all = true;
    pthread_mutex_lock(&mutex);
    for (int r = 0; r < channel->world_size; r++)
        all = all && (r == comm->rank || channel->peers[r].answered);
    pthread_mutex_unlock(&mutex);
    return all;
}

void tutti__heartbeats_silent(const tutti__wait *wait, bool had_entered, char *text, size_t size)
{
    const tutti__channel *channel = wait->comm->channel;
    pthread_mutex_lock(&mutex);
    for (int r = 0; r < channel->world_size; r++)
        if (r != wait->comm->rank && !channel->peers[r].answered &&
            (channel->peers[r].entered >= wait->sequence) == had_entered)
            tutti__rank_list_add(text, size, r);
    pthread_mutex_unlock(&mutex);
}

/* Where a rank waits, or "" if it waits where this one does. */
static void place_of(const tutti__wait *wait, const tutti__heartbeat *heard, char *text,
                     size_t size)
{
    const tutti__heartbeat mine = heartbeat_of(wait, wait->comm->channel, TUTTI__HEARTBEAT_SAY);
    text[0] = 0;
    if (heard->elsewhere)
        snprintf(text, size, "%s of another communicator", heard->operation);
    else if (heard->waits == mine.waits && strcmp(heard->operation, mine.operation) != 0)
        snprintf(text, size, "%s", heard->operation);
    else if (heard->entered >= 0 && heard->entered < mine.waits)
        snprintf(text, size, "%s #%lld", heard->operation, (long long)heard->waits);
}

void tutti__heartbeats_elsewhere(const tutti__wait *wait, char *text, size_t size)
{
    const tutti__channel *channel = wait->comm->channel;
    char first[96] = "", place[96];
    pthread_mutex_lock(&mutex);
    for (int r = 0; r < channel->world_size; r++) {
        if (r == wait->comm->rank) continue;
        place_of(wait, &channel->peers[r].heard, place, sizeof place);
        if (!place[0] || (first[0] && strcmp(place, first) != 0))
            continue; /* name only one place */
        memcpy(first, place, sizeof first);
        tutti__rank_list_add(text, size, r);
    }
    pthread_mutex_unlock(&mutex);
    if (!first[0]) return;
    const size_t used = strlen(text);
    snprintf(text + used, size - used, " wait%s in %s", strncmp(text, "ranks", 5) == 0 ? "" : "s",
             first);
}
