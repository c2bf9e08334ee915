/* The control channel: duplicates of the caller's communicator, made without blocking.  The mpi
 * transport's messages use it, and nccl is set up over it. */
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
    int64_t entered;    /* the last operation that the rank has entered, ... */
    int64_t waits;      /* ... and the one that it waits for, older if sums are under way */
    int32_t kind;       /* a tutti__heartbeat_kind */
    int32_t elsewhere;  /* it waits with another communicator: entered and waits are unknown */
    char operation[48]; /* its name, truncated */
    char reason[256];   /* GAVE_UP: the caller's, truncated */
} tutti__heartbeat;

/* Where heartbeats travel: over the caller's communicator, with a tag that nobody else uses, while
 * ours is being made; then over ours. */
enum { TUTTI__ROUTE_EARLY, TUTTI__ROUTE_CONTROL, TUTTI__ROUTES };
typedef struct tutti__route {
    MPI_Comm comm; /* MPI_COMM_NULL: closed */
    int tag;
} tutti__route;

/* What is sent to a rank over one route. */
typedef struct tutti__outbox {
    tutti__heartbeat out; /* being sent */
    MPI_Request send;
    bool asks, answers; /* still to be sent */
} tutti__outbox;

/* What is known of a rank. */
typedef struct tutti__peer {
    tutti__heartbeat heard; /* its last heartbeat; entered -1: none yet */
    int64_t entered;        /* the last operation it is known to have entered */
    bool said_early;        /* over the caller's communicator */
    bool answered;          /* it polls, or asked at its own deadline */
    tutti__outbox outbox[TUTTI__ROUTES];
} tutti__peer;

typedef struct tutti__channel {
    struct tutti__channel *next; /* of this process: of the open ones, or of those still sending */
    int world_size;
    bool funneled;    /* MPI may be called on its main thread only, ... */
    pthread_t main;   /* ... which made this */
    MPI_Comm data;    /* collectives */
    MPI_Comm control; /* heartbeats */
    MPI_Comm pending; /* a duplicate that MPI may still be making */
    tutti__route routes[TUTTI__ROUTES];
    bool announced_early; /* over the caller's communicator: the others must receive it */
    bool due;             /* questions or answers are to be sent */
    tutti__peer *peers;   /* per rank */
    int gave_up;          /* the first rank that gave up; -1: none */
    char reason[sizeof((tutti__heartbeat *)0)->reason];
    MPI_Op ops[2][3]; /* f16, bf16 x sum, min, max */
} tutti__channel;

extern const tutti__control tutti__mpi_control;

/* Heartbeats (heartbeats.c).  From open to close every wait of this process answers the channel's
 * ranks. */
void tutti__heartbeats_open(tutti__channel *channel);
void tutti__heartbeats_close(tutti__channel *channel, bool drain);
/* Sets the communicator and tag of a route. */
void tutti__heartbeats_move(tutti__channel *channel, int route, MPI_Comm comm, int tag);
/* The rank's heartbeat over the caller's communicator has been received. */
bool tutti__heartbeats_said_early(tutti__channel *channel, int rank);
/* Entries of tutti__control. */
void tutti__heartbeats_announce(const tutti__wait *wait);
bool tutti__heartbeats_receive(const tutti__wait *wait);
void tutti__heartbeats_ask(const tutti__wait *wait);
bool tutti__heartbeats_answered(const tutti_comm *comm);
void tutti__heartbeats_forget(tutti_comm *comm);
void tutti__heartbeats_silent(const tutti__wait *wait, bool had_entered, char *text, size_t size);
void tutti__heartbeats_elsewhere(const tutti__wait *wait, char *text, size_t size);
void tutti__heartbeats_give_up(tutti_comm *comm, const char *reason);
int tutti__heartbeats_gave_up(const tutti_comm *comm, char *reason, size_t size);

/* Opens a channel over parent for comm, whose rank and world_size are set.  Collective.  The ranks
 * then agree on status, this rank's result so far. */
tutti_status tutti__channel_open(tutti_comm *comm, MPI_Comm parent, tutti_status status);

/* Fails with MPI's text unless code is MPI_SUCCESS; the communicator is dead then. */
tutti_status tutti__mpi_check(tutti_comm *comm, int code, const char *operation);

/* MPI_Test, but an error of the request is always returned as a status, whatever the MPI. */
tutti_status tutti__mpi_test(tutti_comm *comm, MPI_Request *request, const char *operation,
                             int *done);

/* Waits for a request until the deadline. */
tutti_status tutti__mpi_wait(tutti_comm *comm, MPI_Request *request, const char *operation,
                             int64_t sequence);

/* Duplicates parent, until the deadline.  If this fails, *duplicate must stay allocated. */
tutti_status tutti__mpi_duplicate(tutti_comm *comm, MPI_Comm parent, MPI_Comm *duplicate,
                                  const char *operation, int64_t sequence);

/* Operators for f16 and bf16, which MPI lacks: computed in f32, rounded once.  Local. */
tutti_status tutti__half_ops_create(MPI_Op ops[2][3]);
void tutti__half_ops_free(MPI_Op ops[2][3]);

#endif
