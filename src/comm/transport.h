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

struct tutti__transport {
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
};

#endif
