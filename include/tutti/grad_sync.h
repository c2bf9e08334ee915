/* Gradient exchange: sums gradients over the ranks while backward still runs. */
#ifndef TUTTI_GRAD_SYNC_H
#define TUTTI_GRAD_SYNC_H

#include "tutti/comm.h"

TUTTI_BEGIN

typedef struct tutti_grad_sync_desc {
    size_t size;
    size_t range_bytes; /* gradients go out in ranges of about this size; 0: 32 MiB */
    /* the last one, which nothing hides, is at most this if it can be; 0: 1 MiB */
    size_t last_range_bytes;
    int timeline; /* keep times for tutti_grad_sync_get_timeline; not while a stream is captured */
    /* 0: fast mode; otherwise reproducible mode: a power of two, world_size to TUTTI_LEAVES_MAX */
    int leaves;
} tutti_grad_sync_desc;
#define TUTTI_GRAD_SYNC_DESC_INIT TUTTI_DESC_INIT(tutti_grad_sync_desc)
TUTTI_API tutti_grad_sync_desc tutti_grad_sync_desc_default(void);
#define TUTTI_LEAVES_MAX 256

/* Modes.  Fast: the transport's all-reduce, whose order of summation depends on the number of
 * ranks.
 *
 * Reproducible: the global batch is always the same `leaves` blocks of rows, whatever the number of
 * ranks, and the sum over them is a binary tree over their numbers: the bits of every gradient are
 * the same for 1 rank and for `leaves` ranks.  A rank has a run of consecutive leaves
 * (tutti_grad_sync_own_leaves) and computes the gradients of one after the other:
 *
 *     for each own leaf:  leaf_begin;  forward, backward (overwriting), ready of every layer;
 *     leaf_end finish
 *
 * What is complete in a leaf is merged with the rank's earlier leaves at once; in the rank's last
 * leaf it goes out while backward runs, as in fast mode: each rank receives its slice of every
 * rank's subtree sums, adds them in the tree's order and sends the slice to all, which moves the
 * bytes of a ring all-reduce where world_size is a power of two (up to twice as many where it is
 * not: a rank's leaves are more than one subtree then).  Small ranges go to all ranks at once.
 * Beside the gradients it needs memory for the subtrees of a rank, at most 1 + log2(leaves) times
 * the gradients, and for what is received.
 *
 * The bits of a leaf's own gradients are the layers' matter: equal rows, types, library versions
 * and device models give equal bits if each leaf's tensors begin at 256-byte boundaries, or at the
 * same places for every leaf. */

/* Exchanges the gradients of a built store.  It holds the communicator and the store.  Collective:
 * names, shapes and types are compared over the ranks, and a difference is TUTTI_ERR_COMM with the
 * parameter's and the ranks' names.  desc NULL means the defaults; it must be the same on all
 * ranks. */
TUTTI_API tutti_status tutti_grad_sync_create(tutti_context *ctx, tutti_comm *comm,
                                              tutti_params *params,
                                              const tutti_grad_sync_desc *desc,
                                              tutti_grad_sync **sync);
/* The same for bound parameters of the caller's own, which must be there for as long as the
 * exchange is used, listed in the order in which backward finishes them: they go out so. Gradients
 * that lie side by side in memory, in one way on all ranks, go out together. */
TUTTI_API tutti_status tutti_grad_sync_create_list(tutti_context *ctx, tutti_comm *comm,
                                                   const tutti_param *const *list, int count,
                                                   const tutti_grad_sync_desc *desc,
                                                   tutti_grad_sync **sync);
/* NULL is allowed.  In the middle of a step it waits for sums under way: with nccl to the deadline,
 * with mpi for a second; after that the communicator is dead. */
TUTTI_API void tutti_grad_sync_destroy(tutti_grad_sync **sync);

/* Says that everything enqueued on ctx so far completes the layer's gradients (a tied one completes
 * when all its layers are ready).  Each range that is thereby complete goes out on a stream of its
 * own; what follows on ctx does not wait for it.  Also with 0 rows.
 *
 * Order.  Ranges go out in one order, fixed when the exchange is made and the same on all ranks:
 * that in which backward completes them if it runs through the layers from the last added to the
 * first, or that of the list; a tied or shared gradient has the place of the parameter that comes
 * last.  A range that is complete earlier waits for its turn.  So another order of the calls, on
 * one rank or on all, changes no sum; it only costs overlap.  (With nccl, verbs of the same
 * communicator must then stay outside of the time from the first ready to finish, as all its work
 * is in one order.)
 *
 * A layer without parameters, or whose parameters were bound without gradients, has nothing to say
 * and may do so.  TUTTI_ERR_STATE if the layer is already declared ready in this step,
 * TUTTI_ERR_ARG if it is not part of this exchange. */
TUTTI_API tutti_status tutti_grad_sync_ready(tutti_grad_sync *sync, tutti_context *ctx,
                                             tutti_layer *layer);
TUTTI_API tutti_status tutti_grad_sync_ready_param(tutti_grad_sync *sync, tutti_context *ctx,
                                                   const tutti_param *param);

/* Reproducible mode.  This rank's leaves: *first to *first + *count - 1 = leaves (rank + 1) /
 * world_size - 1. */
TUTTI_API tutti_status tutti_grad_sync_own_leaves(const tutti_grad_sync *sync, int *first,
                                                  int *count);
/* Brackets the ready calls of one own leaf, in the order of their numbers.  TUTTI_ERR_ARG for
 * another leaf than the next; TUTTI_ERR_STATE in fast mode, inside of a leaf (begin), outside of
 * one (end), or with the name of a parameter that is not ready (end). */
TUTTI_API tutti_status tutti_grad_sync_leaf_begin(tutti_grad_sync *sync, tutti_context *ctx,
                                                  int leaf);
TUTTI_API tutti_status tutti_grad_sync_leaf_end(tutti_grad_sync *sync, tutti_context *ctx,
                                                int leaf);

/* Makes what follows on ctx wait for the sums (with mpi: waits for them) and starts the next step.
 * TUTTI_ERR_STATE, with the name of a parameter, if not all are ready, or in reproducible mode not
 * all own leaves have ended. */
TUTTI_API tutti_status tutti_grad_sync_finish(tutti_grad_sync *sync, tutti_context *ctx);

/* Makes what follows on ctx, which may be another than that of ready and finish, wait for the sum
 * of this parameter's gradient (with mpi: waits for it), before finish: for an optimizer that
 * starts early, say.  After finish it waits for that step's sum, until the next ready.  (With a
 * sharded optimizer it will also wait until the parameter's new value has come from all ranks: a
 * layer's forward calls it then.)  TUTTI_ERR_STATE, with the name of a parameter, if this one, or
 * one that goes out with it or before it, is not ready; in reproducible mode before this rank's
 * last leaf. */
TUTTI_API tutti_status tutti_grad_sync_wait(tutti_grad_sync *sync, tutti_context *ctx,
                                            const tutti_param *param);

typedef struct tutti_grad_sync_info {
    int ranges;          /* number of them */
    int64_t bytes;       /* of gradients summed a step */
    double wait_seconds; /* host time spent waiting in finish, all steps together */
    int64_t steps;       /* finished */
    int64_t
        bytes_sent; /* by this rank, all steps together; fast mode: what a ring all-reduce sends */
} tutti_grad_sync_info;
/* What the exchange is made of and what it has cost so far. */
TUTTI_API tutti_status tutti_grad_sync_get_info(const tutti_grad_sync *sync,
                                                tutti_grad_sync_info *info);

/* When things happened in the last finished step, in ms from its first ready: for range r, ready[r]
 * (backward had completed it), begin[r] and end[r] of its exchange; and the call of finish.  Arrays
 * of info.ranges elements, any of them NULL.  Waits for the exchange.  TUTTI_ERR_STATE without
 * desc.timeline or before a step. */
TUTTI_API tutti_status tutti_grad_sync_get_timeline(tutti_grad_sync *sync, double *ready,
                                                    double *begin, double *end, double *finish);

TUTTI_END
#endif
