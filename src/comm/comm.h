/* Inside of a communicator: the tables that self, mpi and nccl fill in, and waiting with a deadline. */
#ifndef TUTTI_COMM_COMM_H
#define TUTTI_COMM_COMM_H

#include <stdatomic.h>

#include "core/context.h"
#include "tutti/comm.h"

#define TUTTI__MESSAGE_MAX 512

/* A wait for other ranks: began at `begin`, for the operation that the sequence number names. */
typedef struct tutti__wait {
    tutti_comm *comm;
    const char *operation;
    int64_t sequence;
    double begin, last;
    unsigned polls;
    int pauses; /* times that this process seems to have been stopped */
    bool announced;
} tutti__wait;

/* How ranks exchange a few bytes of host memory, and how they tell each other where they wait.  An all-reduce
 * cannot tell who is late: so whoever has waited a while announces point to point in which operation it is, and
 * at the deadline all are asked, and those that do not answer are named. */
typedef struct tutti__control {
    /* recv [world_size * bytes] = everybody's send [bytes] */
    tutti_status (*gather)(tutti_comm *comm, const void *send, void *recv, size_t bytes,
                           const char *operation);
    tutti_status (*broadcast)(tutti_comm *comm, void *data, size_t bytes, int root,
                              const char *operation);
    /* optional: the calling thread may use it; who: for the message */
    tutti_status (*thread)(const tutti_comm *comm, const char *who);
    /* optional, all or none: */
    /* says once where this rank waits; never blocks */
    void (*announce)(const tutti__wait *wait);
    /* takes in what others said, and answers who asks; true if anybody said something about this communicator */
    bool (*hear)(const tutti__wait *wait);
    /* asks the others for a sign of life, which those who wait give as soon as they hear of it */
    void (*ask)(const tutti__wait *wait);
    /* all have given one */
    bool (*answered)(const tutti_comm *comm);
    /* what was said before does not count any more */
    void (*forget)(tutti_comm *comm);
    /* writes the ranks ("rank 2") that have given none, and of which it is known, or is not, that they had come to the operation */
    void (*silent)(const tutti__wait *wait, bool had_come, char *text, size_t size);
    /* writes the ranks that wait somewhere else, and where ("ranks 1, 2 wait in broadcast") */
    void (*astray)(const tutti__wait *wait, char *text, size_t size);
    /* tells the others that this rank goes no further; may take a second */
    void (*give_up)(tutti_comm *comm, const char *reason);
    /* the rank that has been heard to, with its reason; -1: none */
    int (*gave_up)(const tutti_comm *comm, char *reason, size_t size);

    /* never waits for other ranks; after comm->dead does not communicate */
    void (*destroy)(tutti_comm *comm);
} tutti__control;

typedef enum tutti__collective_kind {
    TUTTI__ALL_REDUCE,
    TUTTI__BROADCAST, /* recv, root */
    TUTTI__ALL_GATHER,
    TUTTI__REDUCE_SCATTER,
    TUTTI__ALL_TO_ALL
} tutti__collective_kind;

/* A verb whose arguments have been checked; count > 0. */
typedef struct tutti__collective {
    tutti__collective_kind kind;
    const char *name;
    const void *send;
    void *recv;
    int64_t count;
    tutti_dtype dtype;
    tutti_op op;
    int root;
    int64_t sequence;
} tutti__collective;

typedef enum tutti__transport_style {
    TUTTI__STYLE_LOCAL,  /* nothing to exchange */
    TUTTI__STYLE_STREAM, /* sums on a stream: all_reduce_on_stream */
    TUTTI__STYLE_HOST    /* sums in host memory, moved on by the host: flight_start, flight_test */
} tutti__transport_style;

/* Messages point to point, sent and received side by side; in both lists those to or from one peer are in one order. */
typedef struct tutti__piece {
    int peer;
    void *data;
    int64_t count; /* elements */
} tutti__piece;
typedef struct tutti__swap {
    tutti__piece *sends, *recvs;
    int send_count, recv_count;
    tutti_dtype dtype;
    int tag; /* HOST: tells swaps under way at one time apart */
} tutti__swap;

typedef struct tutti__transport {
    tutti_transport kind;
    tutti__transport_style style;
    tutti_status (*collective)(tutti_comm *comm, tutti_context *ctx, const tutti__collective *what);

    /* STREAM: in place, a plain sum */
    tutti_status (*all_reduce_on_stream)(tutti_comm *comm, tutti__stream stream, void *data,
                                         int64_t count, tutti_dtype dtype, int64_t sequence);
    tutti_status (*swap_on_stream)(tutti_comm *comm, tutti__stream stream, const tutti__swap *swap,
                                   int64_t sequence);
    /* STREAM, optional: what has been enqueued so far comes before this place of a stream that is not being captured */
    tutti_status (*fence)(tutti_comm *comm, tutti__stream stream);
    /* STREAM, in every poll of a wait: an error that the transport has noticed; never blocks */
    tutti_status (*poll)(tutti_comm *comm);

    /* HOST: a lane has an order of its own, so that its sums start when they can.  link_create is collective. */
    tutti_status (*link_create)(tutti_comm *comm, void **link);
    /* idle: none of its flights is under way.  Otherwise its memory is left to them. */
    void (*link_destroy)(tutti_comm *comm, void *link, bool idle);
    /* a plain sum in place in host memory; *flight must stay where it is until flight_test says done */
    tutti_status (*flight_start)(tutti_comm *comm, void *link, void *data, int64_t count,
                                 tutti_dtype dtype, void **flight);
    tutti_status (*swap_start)(tutti_comm *comm, void *link, const tutti__swap *swap,
                               void **flight);
    tutti_status (*flight_test)(tutti_comm *comm, void **flight, bool *done);

    /* optional: memory that the transport likes best */
    tutti_status (*alloc)(tutti_comm *comm, size_t bytes, void **data);
    tutti_status (*free)(tutti_comm *comm, void *data);

    /* optional, when a deadline was missed: frees those who wait on this rank's device, within seconds */
    void (*abandon)(tutti_comm *comm);
    /* never waits for other ranks; after comm->dead does not communicate */
    void (*destroy)(tutti_comm *comm);
} tutti__transport;

struct tutti_comm {
    tutti__holders holders;
    const tutti__transport *transport;
    const tutti__control *control;
    const tutti__backend *backend;
    int device;
    int rank, world_size;
    double timeout;
    int64_t sequence;  /* operations entered so far; the same on all ranks between operations */
    atomic_uint polls; /* of this rank's waits, and calls on its contexts: a sign of life */
    atomic_bool dying, dead;      /* nccl's watchdog may end it from another thread */
    char why[TUTTI__MESSAGE_MAX]; /* it is dead */
    struct tutti__comm_use *uses;
    void *channel; /* the control's own */
    void *state;   /* the transport's own */
};

extern const tutti__transport tutti__self_transport;
extern const tutti__control tutti__self_control;

/* A communicator without transport: size 1, self's control. */
tutti_status tutti__comm_new(tutti_context *ctx, double timeout, tutti_comm **comm);

/* What is wrong with a descriptor; *wanted gets it or the defaults. */
tutti_status tutti__comm_desc_check(const tutti_comm_desc *desc, const char *who,
                                    tutti_comm_desc *wanted);

/* Both are there and on one device. */
tutti_status tutti__comm_context_check(const tutti_comm *comm, const tutti_context *ctx,
                                       const char *who);

/* A call of the caller's may use it: not destroyed while somebody held it, on a thread that may (TUTTI_ERR_STATE), and alive. */
tutti_status tutti__comm_open(const tutti_comm *comm, const char *who);
/* Gives up a hold (tutti__hold). */
void tutti__comm_release(tutti_comm *comm);

/* TUTTI_ERR_COMM, with the cause, if the communicator is dead. */
tutti_status tutti__comm_alive(const tutti_comm *comm, const char *who);

/* The communicator is of no use any more: writes why, lets the transport go, returns TUTTI_ERR_COMM.  Of two threads the first
 * says why. */
tutti_status tutti__comm_die(tutti_comm *comm, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Waiting:  tutti__wait wait = tutti__wait_begin(…);
 *           while (!done()) TUTTI_TRY(tutti__wait_poll(&wait));
 * A poll pauses a little, tells and hears where ranks are, and fails at the deadline; the communicator is dead then. */
tutti__wait tutti__wait_begin(tutti_comm *comm, const char *operation, int64_t sequence);
tutti_status tutti__wait_poll(tutti__wait *wait);

/* Calls on ctx are this rank's signs of life from now on, before any work is there. */
tutti_status tutti__comm_follow(tutti_comm *comm, tutti_context *ctx, const char *operation);

/* Work of a STREAM transport has been enqueued on ctx, or ctx has been made to wait for it: waits for ctx get the deadline.  all:
 * what ctx does next comes behind everything that was enqueued so far. */
tutti_status tutti__comm_touch(tutti_comm *comm, tutti_context *ctx, const char *operation,
                               bool all);

/* Compares 64-bit numbers over ranks.  *differ: -1 if all are equal, otherwise the first index where a rank differs from rank
 * 0; ranks: those that do, "rank 2" or "ranks 1, 3". */
tutti_status tutti__comm_compare(tutti_comm *comm, const uint64_t *values, int count,
                                 const char *operation, int *differ, int *first_rank, char *ranks,
                                 size_t size);

/* Appends a number to a list "rank 2" -> "ranks 2, 5". */
void tutti__rank_list_add(char *text, size_t size, int rank);

#ifdef TUTTI_WITH_MPI
/* Over MPI_COMM_WORLD; *made: false if MPI is not in use and the transport asked for does not need it. */
tutti_status tutti__comm_create_world(tutti_context *ctx, const tutti_comm_desc *desc, bool *made,
                                      tutti_comm **comm);
#endif

/* Who a rank is, for the agreement on a transport. */
typedef struct tutti__identity {
    int32_t transport;    /* asked for */
    int32_t backend;      /* of the context */
    int32_t nccl_built;   /* into this rank's library */
    int32_t nccl_version; /* of the NCCL that is loaded; 0: not asked on the host */
    int32_t nccl_shares;  /* it has been told to let ranks share a GPU */
    int32_t device;
    unsigned char uuid[16];
    char bus[32];
    char host[64];
} tutti__identity;

#ifdef TUTTI_WITH_NCCL
/* Fills in what NCCL wants to know. */
tutti_status tutti__nccl_identify(const tutti_context *ctx, tutti__identity *identity);
/* Gives comm, whose control works, the transport; collective.  Every phase is agreed. */
tutti_status tutti__nccl_attach(tutti_comm *comm);
#endif

#endif
