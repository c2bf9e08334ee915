/* What a transport does: the public verbs, and the sums and messages of a gradient exchange. */
#ifndef TUTTI_COMM_TRANSPORT_H
#define TUTTI_COMM_TRANSPORT_H

#include "comm/comm.h"

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
    TUTTI__STYLE_STREAM, /* sums on a stream: what is enqueued there */
    TUTTI__STYLE_HOST    /* sums in host memory, moved on by the host */
} tutti__transport_style;

/* Messages point to point, sent and received side by side; in both lists those to or from one peer
 * are in one order. */
typedef struct tutti__piece {
    int peer;
    void *data;
    int64_t count; /* elements */
} tutti__piece;
typedef struct tutti__swap {
    tutti__piece *sends, *recvs;
    int send_count, recv_count;
    tutti_dtype dtype;
} tutti__swap;

/* A range of an exchange on its way over the ranks. */
typedef struct tutti__work {
    int64_t sequence;
    int round;            /* of messages, in this step */
    int tag;              /* HOST: tells messages under way at one time apart */
    tutti__stream stream; /* STREAM */
    void *duplicate;      /* HOST */
    void *requests;       /* HOST: what is under way; NULL: nothing */
} tutti__work;

struct tutti__transport {
    tutti_transport kind;
    tutti__transport_style style;
    tutti_status (*collective)(tutti_comm *comm, tutti_context *ctx, const tutti__collective *call);

    /* Of an exchange: a plain sum in place, or messages.  STREAM enqueues them; HOST begins them,
     * and *work must stay where it is until test says done. */
    tutti_status (*all_reduce)(tutti_comm *comm, tutti__work *work, void *data, int64_t count,
                               tutti_dtype dtype);
    tutti_status (*swap)(tutti_comm *comm, tutti__work *work, const tutti__swap *swap);
    tutti_status (*test)(tutti_comm *comm, tutti__work *work, bool *done); /* HOST */
    /* HOST: a duplicate has an order of its own: its sums start when they can; collective */
    tutti_status (*duplicate_create)(tutti_comm *comm, void **duplicate);
    /* idle: none of its work is under way.  Otherwise its memory is left to it. */
    void (*duplicate_destroy)(tutti_comm *comm, void *duplicate, bool idle);

    /* STREAM, optional: what has been enqueued so far comes before this place of a stream that is
     * not being captured */
    tutti_status (*fence)(tutti_comm *comm, tutti__stream stream);
    /* STREAM, in every poll of a wait: an error that the transport has noticed; never blocks */
    tutti_status (*poll)(tutti_comm *comm);

    /* optional: memory that the transport likes best */
    tutti_status (*alloc)(tutti_comm *comm, size_t bytes, void **data);
    tutti_status (*free)(tutti_comm *comm, void *data);

    /* optional, after a deadline: frees those who wait on this rank's device, within seconds */
    void (*abandon)(tutti_comm *comm);
    /* never waits for other ranks; after comm->dead does not communicate */
    void (*destroy)(tutti_comm *comm);
};

extern const tutti__transport tutti__self_transport;

#endif
