/* Inside of a gradient exchange: sync_create.c opens it, grad_sync.c knows parameters and steps, exchange.c moves ranges,
 * tree.c sums them in reproducible mode. */
#ifndef TUTTI_COMM_EXCHANGE_H
#define TUTTI_COMM_EXCHANGE_H

#include "comm/leaves.h"
#include "comm/ranges.h"
#include "comm/transport.h"
#include "core/ready.h"
#include "tutti/grad_sync.h"

/* How far a range has come in this step. */
typedef enum tutti__range_state {
    TUTTI__RANGE_OPEN,     /* gradients are missing */
    TUTTI__RANGE_MERGED,   /* complete in a leaf that is not this rank's last */
    TUTTI__RANGE_COMPLETE, /* waits for its turn: those before it go out first, on all ranks alike */
    TUTTI__RANGE_ISSUED,   /* on its way; staged, and in its lane, it may still wait there */
    TUTTI__RANGE_FLYING,   /* MPI has it */
    TUTTI__RANGE_DONE      /* summed, or enqueued on a stream */
} tutti__range_state;

/* A point in time: an event on a device, the clock on the host. */
typedef struct tutti__mark {
    tutti__event event;
    double time;
    bool set;
} tutti__mark;

typedef struct tutti__timeline {
    tutti__mark start, finish;
    tutti__mark *ready, *begin, *end; /* per range */
} tutti__timeline;

typedef struct tutti__exchange_range {
    tutti__range at;
    tutti__range_state state;
    int missing; /* gradients that are not ready yet */
    int64_t sequence;
    size_t offset;  /* its place in slots and in staging memory */
    char *received; /* reproducible: roots of the other ranks, in host memory for HOST */
    bool gathering; /* reproducible: this rank's slice is summed and on its way to the others */
    tutti__event copied; /* staged */
    tutti__event summed; /* behind the sum, on the exchange's stream; NULL where there is none */
    void *flight;
} tutti__exchange_range;

/* A parameter of the exchange; sorted by address for the look-up. */
typedef struct tutti__sync_entry {
    const tutti_param *param;
    int gradient;
    bool ready;
} tutti__sync_entry;

struct tutti_grad_sync {
    tutti__ready_sink sink; /* first: what a layer's backward is given */
    tutti_comm *comm;
    const tutti__backend *backend;
    int device;
    tutti_grad_sync_desc desc;
    tutti_params *params; /* whose gradients these are; NULL for a list */

    tutti__sync_entry *entries;
    int entry_count;
    tutti__gradient *gradients;
    int *missing; /* per gradient: parameters that are not ready yet */
    int gradient_count;
    int64_t bytes;
    int64_t gap;     /* elements of padding that neighbours may have between them */
    uint64_t layout; /* how gradients lie beside each other */

    tutti__exchange_range *ranges;
    int range_count;
    int issued_count, started_count,
        done_count; /* the first so many ranges: they go out in order */
    bool staged;    /* HOST transport, device memory */
    void *link;
    size_t flat_bytes; /* of all ranges, each at its offset */
    char *
        staging; /* staged: for each of this rank's roots flat_bytes of host memory; fast mode has one */

    tutti__leaves leaves;
    int leaf; /* the next one of this rank's, from leaves.first */
    bool in_leaf;
    char *slots;    /* reproducible: subtrees, each flat_bytes on the device */
    bool apart;     /* reproducible: sums over the ranks are made in slots, not in the gradients */
    char *received; /* reproducible: memory of the ranges' received */
    tutti__piece *pieces; /* reproducible: room for a swap's messages */
    int threads;          /* of the context that began the step */

    tutti__stream stream;     /* the exchange's own; NULL where it needs none */
    tutti__event fork, join;  /* from the caller's stream and back */
    bool forked;              /* in this call of ready */
    bool join_recorded;       /* by the last step, outside of a capture */
    tutti__timeline times[2]; /* of this step and of the last finished one */
    int current;
    tutti__watch watch;
    tutti_context *watched;

    bool started; /* in a step */
    double wait_seconds;
    int64_t steps;
    int64_t bytes_sent;
    bool failed;
    char why[TUTTI__MESSAGE_MAX];
};

/* The entry of a parameter; NULL if it is not part of the exchange. */
tutti__sync_entry *tutti__sync_find(const tutti_grad_sync *sync, const tutti_param *param);

/* tutti_grad_sync_ready of the exchange that begins with this. */
tutti_status tutti__sync_sink_ready(tutti__ready_sink *self, tutti_context *ctx,
                                    tutti_layer *layer);

/* Streams, events, staging memory; the link is the caller's to make. */
tutti_status tutti__exchange_open(tutti_grad_sync *sync);
/* No finish follows what has gone out in this step: the transport is told where those sums end. */
void tutti__exchange_give_up(tutti_grad_sync *sync);
/* What a lost exchange may still touch stays. */
void tutti__exchange_close(tutti_grad_sync *sync);

/* Before a step's first range. */
tutti_status tutti__exchange_begin(tutti_grad_sync *sync, tutti_context *ctx);
/* A range is complete on ctx. */
tutti_status tutti__exchange_complete(tutti_grad_sync *sync, tutti_context *ctx, int range);
/* A complete range goes out: the next one, issued_count. */
tutti_status tutti__exchange_issue(tutti_grad_sync *sync, tutti_context *ctx, int range);
/* Moves on what flies; never blocks. */
tutti_status tutti__exchange_advance(tutti_grad_sync *sync);
/* Everything has been issued: makes ctx wait for the sums, or waits for them. */
tutti_status tutti__exchange_finish(tutti_grad_sync *sync, tutti_context *ctx);

/* Makes ctx wait for the sums of these ranges, which have been issued, or waits for them; after a finish, for those of its step. */
tutti_status tutti__exchange_wait(tutti_grad_sync *sync, tutti_context *ctx, int first, int last);

/* Reproducible mode (tree.c) */

/* Memory for the subtrees of this rank and of the others. */
tutti_status tutti__tree_open(tutti_grad_sync *sync);
void tutti__tree_close(tutti_grad_sync *sync, bool idle);
/* A range is complete in the current leaf: merges it with the leaves before, on ctx's stream. */
tutti_status tutti__tree_merge(tutti_grad_sync *sync, tutti_context *ctx, int range);
/* Sums a range over the ranks, on the exchange's stream. */
tutti_status tutti__tree_on_stream(tutti_grad_sync *sync, tutti__exchange_range *range);
/* The same in host memory: starts the first swap; after one has landed, goes on.  *landed: that was all. */
tutti_status tutti__tree_fly(tutti_grad_sync *sync, tutti__exchange_range *range);
tutti_status tutti__tree_landed(tutti_grad_sync *sync, tutti__exchange_range *range, bool *landed);

/* This rank's root k of a range, 0 the oldest, in the memory where sums over the ranks are made: the last one's place is the
 * result's too.  Fast mode has one root. */
char *tutti__exchange_root(const tutti_grad_sync *sync, const tutti__exchange_range *range, int k);
int tutti__exchange_roots(const tutti_grad_sync *sync);

/* Marks a point in time on a stream. */
tutti_status tutti__exchange_mark(tutti_grad_sync *sync, tutti__mark *mark, tutti__stream stream);

#endif
