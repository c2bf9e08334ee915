/* Inside of a gradient exchange: sync_create.c opens it, grad_sync.c knows parameters and steps, an
 * engine moves ranges. */
#ifndef TUTTI_COMM_SYNC_H
#define TUTTI_COMM_SYNC_H

#include "comm/engine.h"
#include "comm/gather.h"
#include "comm/gradients.h"
#include "core/ready.h"
#include "tutti/grad_sync.h"

/* How far a range has come on this rank. */
typedef struct tutti__sync_range {
    int missing;   /* gradients that are not ready */
    bool complete; /* in this run; issued once all ranges before it are */
} tutti__sync_range;

struct tutti_grad_sync {
    tutti__ready_sink sink; /* first member: what a layer's backward is given */
    tutti_comm *comm;
    tutti_grad_sync_desc desc;
    tutti_params *params; /* the store; NULL for a list */
    tutti__gradients gradients;
    tutti__sync_range *ranges;
    tutti__leaves leaves;
    int leaf;     /* this rank's next one, from leaves.first */
    int run;      /* leaves from it on that have begun, not ended; 0: none */
    void *shared; /* memory of the shared gradients' leaves */
    tutti__engine engine;
    int64_t steps;
    const tutti_context *ctx;     /* of the step, or the last one; only compared */
    tutti__store_exchange listed; /* by the store */
    tutti__shard_link link;       /* what a sharded store is given */
    tutti__gather gather;         /* of its values, where ranks share memory */
    bool failed;
    char why[TUTTI__MESSAGE_MAX];
};

/* shard.c: fails unless a sharded store belongs to this rank of the communicator, and has no other
 * exchange. */
tutti_status tutti__shard_check(const tutti_params *params, const tutti_comm *comm);
/* Makes the exchange the store's link, and the end of that. */
void tutti__shard_attach(tutti_grad_sync *sync);
void tutti__shard_detach(tutti_grad_sync *sync);

/* grad_sync.c: fails unless a step can go on with ctx; begins a step unless one has begun; gives a
 * step up, and returns status. */
tutti_status tutti__sync_usable(const tutti_grad_sync *sync, const tutti_context *ctx,
                                const char *who);
tutti_status tutti__sync_begin_step(tutti_grad_sync *sync, tutti_context *ctx);
tutti_status tutti__sync_fail(tutti_grad_sync *sync, tutti_status status);
/* Layers that were declared ready may be given gradients again by calls without the exchange. */
void tutti__sync_release_layers(tutti_grad_sync *sync);

/* leaf_run.c: memory of runs of leaves, after the engine's open; what the sink has for them. */
tutti_status tutti__run_open(tutti_grad_sync *sync);
void tutti__run_close(tutti_grad_sync *sync);
bool tutti__run_adds_leaves(const tutti__ready_sink *self, int leaves);
tutti_status tutti__run_leaf_grads(const tutti__ready_sink *self, const tutti_context *ctx,
                                   const tutti_param *param, int leaves, tutti__leaf_grads *grads);
tutti_status tutti__run_add_leaves(tutti__ready_sink *self, tutti_context *ctx,
                                   const tutti_param *param, int first, int count,
                                   const tutti__leaf_grads *grads);
tutti_status tutti__run_lose(tutti__ready_sink *self, tutti_status status);

/* As core/ready.h has them, of the exchange that begins with this: what backward must not do;
 * tutti_grad_sync_ready; whether it would complete a range that travels, and an exclusive one, so
 * that backward may still read values then. */
tutti_status tutti__sync_sink_may_begin(const tutti__ready_sink *self, const tutti_context *ctx,
                                        tutti_layer *layer, bool accumulate);
tutti_status tutti__sync_sink_ready(tutti__ready_sink *self, tutti_context *ctx, tutti_layer *layer,
                                    bool more);
bool tutti__sync_sink_begins(const tutti__ready_sink *self, tutti_layer *layer);

#endif
