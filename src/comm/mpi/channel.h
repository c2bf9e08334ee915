/* The control channel: duplicates of the caller's communicator, made without ever blocking.  The
 * mpi transport's own messages go over it, and nccl starts with it. */
#ifndef TUTTI_COMM_MPI_CHANNEL_H
#define TUTTI_COMM_MPI_CHANNEL_H

#include <mpi.h>
#include <pthread.h>

#include "comm/control.h"
#include "comm/transport.h"

#define TUTTI__FUNNELED_TEXT                                                                       \
    "%s: MPI was initialised with MPI_THREAD_FUNNELED, so this must be called on the thread that " \
    "called MPI_Init_thread; want MPI_THREAD_SERIALIZED to call it on another one while no other " \
    "thread is in Tutti or MPI, MPI_THREAD_MULTIPLE otherwise"

typedef enum tutti__heartbeat_kind {
    TUTTI__HEARTBEAT_SAY,
    TUTTI__HEARTBEAT_ASK,
    TUTTI__HEARTBEAT_ANSWER,
    TUTTI__HEARTBEAT_GAVE_UP
} tutti__heartbeat_kind;

typedef struct tutti__heartbeat {
    uint64_t magic;
    int64_t entered; /* the operation that the rank has entered, ... */
    int64_t waits;   /* ... and the one that it waits for: an older one where sums are under way */
    int32_t kind;    /* a tutti__heartbeat_kind */
    int32_t elsewhere;  /* it waits with another communicator: entered and waits are not known */
    char operation[48]; /* the name, cut off if it is longer */
    char reason[256];   /* GAVE_UP: the caller's, cut off too */
} tutti__heartbeat;

/* Where heartbeats travel: the caller's communicator, with a tag that nobody else uses, while ours
 * is being made; and ours. */
enum { TUTTI__WAY_EARLY, TUTTI__WAY_CONTROL, TUTTI__WAYS };
typedef struct tutti__way {
    MPI_Comm comm; /* MPI_COMM_NULL: not now */
    int tag;
} tutti__way;

/* What goes to a rank one way. */
typedef struct tutti__mail {
    tutti__heartbeat out; /* being sent */
    MPI_Request send;
    bool asks, answers; /* to be sent next */
} tutti__mail;

/* What is known of a rank. */
typedef struct tutti__peer {
    tutti__heartbeat heard; /* the last one; entered -1: nothing yet */
    int64_t entered;        /* the last operation that it is known to have entered */
    bool said_early;        /* over the caller's communicator */
    bool answered;          /* it polls, or did at its own deadline */
    tutti__mail mail[TUTTI__WAYS];
} tutti__peer;

typedef struct tutti__channel {
    struct tutti__channel *next; /* of this process */
    int world_size;
    bool funneled;    /* MPI is for its main thread, ... */
    pthread_t main;   /* ... which has made this */
    MPI_Comm data;    /* collectives */
    MPI_Comm control; /* heartbeats */
    MPI_Comm pending; /* a duplicate that MPI may still be making */
    tutti__way ways[TUTTI__WAYS];
    bool announced_early; /* over the caller's communicator: the others must take it in */
    bool due;             /* questions or answers */
    tutti__peer *peers;   /* per rank */
    int gave_up;          /* the first rank that said so; -1: none */
    char reason[sizeof((tutti__heartbeat *)0)->reason];
    MPI_Op ops[2][3]; /* f16, bf16 x sum, min, max */
} tutti__channel;

extern const tutti__control tutti__mpi_control;

/* Heartbeats (heartbeats.c).  From open to close the channel's ranks are answered by every wait of
 * this process. */
void tutti__heartbeats_open(tutti__channel *channel);
void tutti__heartbeats_close(tutti__channel *channel, bool drain);
/* From now on they travel so. */
void tutti__heartbeats_move(tutti__channel *channel, int way, MPI_Comm comm, int tag);
/* The one that the rank has sent over the caller's communicator has been taken in. */
bool tutti__heartbeats_said_early(tutti__channel *channel, int rank);
/* Entries of tutti__control. */
void tutti__heartbeats_announce(const tutti__wait *wait);
bool tutti__heartbeats_hear(const tutti__wait *wait);
void tutti__heartbeats_ask(const tutti__wait *wait);
bool tutti__heartbeats_answered(const tutti_comm *comm);
void tutti__heartbeats_forget(tutti_comm *comm);
void tutti__heartbeats_silent(const tutti__wait *wait, bool had_entered, char *text, size_t size);
void tutti__heartbeats_elsewhere(const tutti__wait *wait, char *text, size_t size);
void tutti__heartbeats_give_up(tutti_comm *comm, const char *reason);
int tutti__heartbeats_gave_up(const tutti_comm *comm, char *reason, size_t size);

/* Gives comm, whose rank and world_size are set, a channel over parent.  Collective.  Afterwards
 * the ranks agree on status, which is what this rank has found so far. */
tutti_status tutti__channel_open(tutti_comm *comm, MPI_Comm parent, tutti_status status);

/* Fails with MPI's text unless code is MPI_SUCCESS; the communicator is dead then. */
tutti_status tutti__mpi_check(tutti_comm *comm, int code, const char *operation);

/* MPI_Test, except that an error that the request has met is a status on every MPI. */
tutti_status tutti__mpi_test(tutti_comm *comm, MPI_Request *request, const char *operation,
                             int *done);

/* Waits for a request to the deadline. */
tutti_status tutti__mpi_wait(tutti_comm *comm, MPI_Request *request, const char *operation,
                             int64_t sequence);

/* Duplicates parent to the deadline.  *duplicate must stay where it is if this fails. */
tutti_status tutti__mpi_duplicate(tutti_comm *comm, MPI_Comm parent, MPI_Comm *duplicate,
                                  const char *operation, int64_t sequence);

/* Operators for the types that MPI does not know: sums in f32, rounded once.  Local. */
tutti_status tutti__half_ops_create(MPI_Op ops[2][3]);
void tutti__half_ops_free(MPI_Op ops[2][3]);

#endif
