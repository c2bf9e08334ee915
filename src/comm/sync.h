/* Inside of a gradient exchange: sync_create.c opens it, grad_sync.c knows parameters and steps, an
 * engine moves ranges. */
#ifndef TUTTI_COMM_SYNC_H
#define TUTTI_COMM_SYNC_H

#include "comm/engine.h"
#include "comm/gradients.h"
#include "core/ready.h"
#include "tutti/grad_sync.h"

/* How far a range has come on this rank. */
typedef struct tutti__sync_range {
    int missing;   /* gradients that are not ready */
    bool complete; /* in this leaf; issued once all ranges before it are */
} tutti__sync_range;

struct tutti_grad_sync {
    tutti__ready_sink sink; /* first member: what a layer's backward is given */
    tutti_comm *comm;
    tutti_grad_sync_desc desc;
    tutti_params *params; /* the store; NULL for a list */
    tutti__gradients gradients;
    tutti__sync_range *ranges;
    tutti__leaves leaves;
    int leaf; /* this rank's next one, from leaves.first */
    bool in_leaf;
    tutti__engine engine;
    int64_t steps;
    tutti__shard_link link; /* what a sharded store is given */
    bool failed;
    char why[TUTTI__MESSAGE_MAX];
};

/* shard.c: fails unless a sharded store belongs to this rank of the communicator, and has no other
 * exchange. */
tutti_status tutti__shard_check(const tutti_params *params, const tutti_comm *comm);
/* Makes the exchange the store's link, and the end of that. */
void tutti__shard_attach(tutti_grad_sync *sync);
void tutti__shard_detach(tutti_grad_sync *sync);

/* tutti_grad_sync_ready of the exchange that begins with this. */
tutti_status tutti__sync_sink_ready(tutti__ready_sink *self, tutti_context *ctx,
                                    tutti_layer *layer);

#endif
