/* What a transport does: the public verbs, and the sums and messages of a gradient exchange. */
#ifndef TUTTI_COMM_TRANSPORT_H
#define TUTTI_COMM_TRANSPORT_H

#include "comm/peers.h"

typedef enum tutti__collective_kind {
    TUTTI__ALL_REDUCE,
    TUTTI__BROADCAST, /* recv, root */
    TUTTI__ALL_GATHER,
    TUTTI__REDUCE_SCATTER,
    TUTTI__ALL_TO_ALL
} tutti__collective_kind;

/* A collective whose arguments have been checked; count > 0. */
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
    TUTTI__STYLE_STREAM, /* sums are enqueued on a stream */
    TUTTI__STYLE_HOST    /* sums in host memory, driven by the host */
} tutti__transport_style;

/* Point-to-point messages, sent and received concurrently; those between two ranks are in the same
 * order in both ranks' lists. */
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

/* A range that is being summed over the ranks. */
typedef struct tutti__work {
    int64_t sequence;
    int round;            /* of messages, in this step */
    int tag;              /* HOST: distinguishes messages that are under way together */
    tutti__stream stream; /* STREAM */
    void *duplicate;      /* HOST */
    void *requests;       /* HOST: what is under way; NULL: nothing */
} tutti__work;

struct tutti__transport {
    tutti_transport kind;
    tutti__transport_style style;
    tutti_status (*collective)(tutti_comm *comm, tutti_context *ctx, const tutti__collective *call);

    /* For an exchange: a plain sum in place, or messages.  STREAM enqueues them; HOST begins them,
     * and *work must not move until test reports done. */
    tutti_status (*all_reduce)(tutti_comm *comm, tutti__work *work, void *data, int64_t count,
                               tutti_dtype dtype);
    tutti_status (*swap)(tutti_comm *comm, tutti__work *work, const tutti__swap *swap);
    tutti_status (*test)(tutti_comm *comm, tutti__work *work, bool *done); /* HOST */
    /* HOST: each duplicate orders its own sums, independent of other calls; collective */
    tutti_status (*duplicate_create)(tutti_comm *comm, void **duplicate);
    /* idle: none of its work is under way; otherwise its memory is not freed */
    void (*duplicate_destroy)(tutti_comm *comm, void *duplicate, bool idle);

    /* STREAM: before work that waits for other ranks is enqueued on the stream, but not by the
     * transport itself or its peers */
    tutti_status (*watch)(tutti_comm *comm, tutti__stream stream, const char *operation,
                          int64_t sequence);
    /* STREAM, optional: all work enqueued so far precedes this point of the stream, which is not
     * being captured */
    tutti_status (*fence)(tutti_comm *comm, tutti__stream stream);
    /* STREAM, in every poll of a wait: fails if the transport has met an error; never blocks */
    tutti_status (*poll)(tutti_comm *comm);

    /* optional: memory in which the transport is fastest */
    tutti_status (*alloc)(tutti_comm *comm, size_t bytes, void **data);
    tutti_status (*free)(tutti_comm *comm, void *data);

    /* optional: direct access to the other ranks' device memory */
    const tutti__peers_table *peers;

    /* optional, after a deadline: ends work that is stuck on this rank's device, within seconds */
    void (*abandon)(tutti_comm *comm);
    /* never waits for other ranks; after comm->dead does not communicate */
    void (*destroy)(tutti_comm *comm);
};

extern const tutti__transport tutti__self_transport;

#endif
