/* Gradient exchange: sums gradients over the ranks while backward still runs. */
#ifndef TUTTI_GRAD_SYNC_H
#define TUTTI_GRAD_SYNC_H

#include "tutti/comm.h"

TUTTI_BEGIN

/* What moves the gradients and the values of a sharded store over the ranks, and small sums. */
typedef enum tutti_engine {
    TUTTI_ENGINE_AUTO,      /* copy engines where that is proven, otherwise the transport */
    TUTTI_ENGINE_TRANSPORT, /* the transport's messages, and its sums of any size */
    TUTTI_ENGINE_COPY       /* copy engines between the ranks' GPUs, and the update */
} tutti_engine;

typedef struct tutti_grad_sync_desc {
    size_t size;
    /* gradients go out in ranges of about this size; 0: 32 MiB, or the ranges of a sharded store,
     * for which it must be 0 */
    size_t range_bytes;
    /* the last range, which overlaps with no backward, is at most this where possible; 0: 1 MiB */
    size_t last_range_bytes;
    int timeline; /* record times for tutti_grad_sync_get_timeline; not during stream capture */
    /* 0: fast mode; otherwise reproducible mode: a power of two, world_size to TUTTI_LEAVES_MAX */
    int leaves;
    tutti_dtype wire;    /* what travels: 0, the gradients themselves; TUTTI_BF16 */
    tutti_engine engine; /* of a store; of small sums, whether all are the transport's */
    int exclusive;       /* not 0: only the library touches gradients and values (below) */
} tutti_grad_sync_desc;
#define TUTTI_GRAD_SYNC_DESC_INIT TUTTI_DESC_INIT(tutti_grad_sync_desc)
TUTTI_API tutti_grad_sync_desc tutti_grad_sync_desc_default(void);
#define TUTTI_LEAVES_MAX 256

/* Modes.  Fast: the transport's all-reduce, whose summation order depends on the number of ranks,
 * or a sum in rank order: by copy engines, or of small ranges (below).
 *
 * Reproducible: the global batch is always the same `leaves` blocks of rows, and the sum over them
 * is a binary tree over their numbers, so the bits of every gradient are the same for any number of
 * ranks from 1 to `leaves`.  A rank has consecutive leaves (tutti_grad_sync_own_leaves) and
 * computes them in one run, or to save memory in several:
 *
 *     for each run of own leaves:
 *         leaves_begin;  forward, backward (overwriting), ready of every layer;  leaves_end
 *     finish
 *
 * In a run of several leaves, calls of backward say where each begins (leaves, leaf_rows of
 * tutti/layer.h) and name the exchange (sync): forward and the gradients of rows see the run's rows
 * all at once, and only the gradients of parameters are formed leaf by leaf, and added in the
 * tree's order, without passing through the parameters' gradients.  The leaves of a tied gradient
 * are added after its last user, which like all but the first adds to them (TUTTI_GRAD_ACCUMULATE);
 * backward does not touch the parameters' own gradients, which are undefined from the last run's
 * first ready until finish (of a sharded store, but for its slices, for longer).  A backward of a
 * layer with parameters that names the exchange fails with TUTTI_ERR_STATE if no run has begun, or
 * if its leaves have been added already, and, where it has gradients of them, with TUTTI_ERR_ARG if
 * `leaves` is not the run's count, also where that is 1; forward wants the same.  Gradients that
 * backward does not compute so want runs of one leaf: of a caller's own layer, of two calls of one
 * layer, and of a layer that adds to a tied gradient and has one of its own (which fails with
 * TUTTI_ERR_STATE).  A failure inside a run of several leaves ends the exchange, since the layers
 * that are left cannot be declared ready: tutti_comm_abort lets the other ranks go.  The runs
 * change no bit.
 *
 * A complete gradient is merged with the rank's earlier leaves at once; in the rank's last run it
 * is exchanged while backward runs, as in fast mode: each rank receives its slice of every rank's
 * subtree sums, adds them in the tree's order and sends the sum to all.  That is the traffic of a
 * ring all-reduce if world_size is a power of two, and up to twice as much if not, as a rank's
 * leaves then form more than one subtree.  Small ranges are sent whole to all ranks.  Besides the
 * gradients it needs memory for a rank's subtrees, at most 1 + log2(leaves) times the gradients,
 * for a run up to eight times those of the largest layer, for all leaves of tied gradients, and for
 * received data.
 *
 * With a sharded store (tutti/param.h) each rank gets the sums of its slices only, in rank order in
 * fast mode: it receives their parts from every rank, and nothing is sent back but new values,
 * after the update.  The other slices' gradients are undefined from the step's first ready on.  In
 * host memory two ranges at a time are under way.  On a GPU backward is only beside the transfer,
 * and finish (or wait) adds what has arrived, since kernels that add between the products of
 * backward would slow them; so the exchange has room for what all ranges receive, (world_size - 1)
 * / world_size of the gradients.  With copy engines that is what the first range receives, and
 * those up to an eighth of it: the others' parts take the place of the range before, once it has
 * been sent, unless that has padding (a parameter's size is no multiple of TUTTI_PARAM_ALIGN) or
 * smaller slices, a rank has several subtrees, bf16 travels, or the gradients' memory cannot be
 * shared.  With NCCL's kernels it is as much as the gradients more where a rank's lie in memory of
 * its desc.gradient_memory, as that of tutti_comm_allocator; a caller must not register other
 * gradients with NCCL.
 *
 * The bits of a leaf's own gradients depend on the layers: equal rows, types, library versions and
 * device models give equal bits if each leaf's tensors begin at 256-byte boundaries, or all leaves
 * use the same addresses. */

/* Wire.  With TUTTI_BF16 half the bytes travel (three quarters by copy engines from a store that is
 * not sharded, whose rounded sums travel as f32): each rank's gradients, which are f32, are rounded
 * to it, added in f32 in rank order, and the sum is rounded again on its way to all ranks.  So the
 * sums are the same on all ranks, and those of a sharded store the same as without shards; they are
 * off by up to 2^-8 of each rank's share and of the sum.  One rank's own gradients stay as they
 * are.  TUTTI_ERR_ARG with leaves, whose bits would depend on the number of ranks, and where a
 * gradient is not f32; TUTTI_ERR_UNSUPPORTED beyond 256 ranks. */

/* Engines.  A store's gradients can travel by the GPUs' copy engines, which take no multiprocessor
 * from backward: each rank writes into memory of the others.  If the store is not sharded, a rank
 * adds its slice of a range in the stream order of the context that calls ready, when two to eight
 * more ranges are ready, or that of wait or finish, and writes the sum into the others' gradients.
 * So a sum does not end before all ranks have come so far, a late rank holds up the others'
 * backward, and the exchange has room for what all ranges receive.  A sharded store's new values
 * are written by the update's kernel, or copied behind it (below); a refresh copies them.  That
 * needs transport nccl, ranks that are processes of one host, GPUs that can write into each other's
 * memory, and, if the store is not sharded, gradients whose memory can be shared, which that of
 * tutti_comm_allocator cannot.  AUTO uses it, unless such a store has only small sums (below), if
 * transfers from each rank to the next have arrived while a kernel held every multiprocessor, which
 * tutti_grad_sync_create tries on all ranks together (it also writes the first bytes of the values
 * and gradients, and restores them, in the order of its context); otherwise, as with TRANSPORT,
 * NCCL's kernels send and receive.  COPY is TUTTI_ERR_UNSUPPORTED where ranks cannot write into
 * each other's memory, with the reason, or for a list of parameters; with one rank nothing travels,
 * and any engine will do.  Rank 0 logs the choice, and tutti_grad_sync_info has that of gradients;
 * values whose memory cannot be shared go by the transport even so, which is logged, too.  It
 * changes no bit of a sharded store's results, nor in reproducible mode, and steps may be captured
 * with either.
 *
 * With copy engines a rank's values are written by other ranks from the start of an update (or a
 * refresh) on to its end, in stream order of the context that it was given (if exclusive, until
 * tutti_params_settle), and the gradients of a store that is not sharded from their ready to
 * finish.  Other ranks have the store's memory open until they destroy the exchange; so destroying
 * it waits up to half a second for the others to do so, and a rank should not free a store much
 * earlier than the others: after a step that failed on it only once they have destroyed the
 * exchange, or tutti_comm_abort.  What a rank had enqueued when it missed the others' deadline, or
 * they its own, still runs: a rank that comes late may find values of an incomplete update before
 * its next call of this library fails.
 *
 * Exclusive.  With desc.exclusive the caller promises:
 * - from a layer's backward to the update nothing else writes the layer's gradients;
 * - values are read and written by calls of layers that tutti_params_add has given the store, and
 *   by functions that are given the store, its optimizer or a checkpoint of it; all else calls
 *   tutti_params_settle before, after each update: so do programs before a stream is captured, and
 *   before a graph is launched behind an update that is not captured;
 * - all forward, backward and ready calls of a step are on one context, which wait and finish then
 *   want, too (TUTTI_ERR_ARG).  Layers on another context, as of an evaluation, end before the next
 *   update begins, and their calls count as calls with the communicator;
 * - all ranks capture an update, or none does.
 * In return a backward that names the exchange may declare its layer ready before it has computed
 * the gradients of its inputs, so that a sum may be there while values are still read, until what
 * that context had been given has ended.  With copy engines what adds a sharded store's gradients
 * also finds the squares that their norm is made of; and what an update has written is on its way
 * when the update has ended, and travels beside the next forward pass, those values first that it
 * reads first.  Each call of a layer makes its context wait for what it reads, which fails with
 * TUTTI_ERR_STATE while the stream is being captured, and with TUTTI_ERR_COMM when the communicator
 * is dead (once the exchange has been destroyed nothing tells that values are incomplete).  An
 * update that is captured, and all that follow one, wait for all values themselves.  No bit depends
 * on it.
 *
 * Small sums.  Under the same conditions, with up to 16 ranks and any engine but TRANSPORT, sums of
 * up to 64 KiB go in one hop: a kernel of each rank writes the values into the memory of all others
 * and adds what arrives, in rank order.  These are ranges of floating-point gradients in fast mode
 * without `wire`, unless copy engines move all of the exchange's, or, with a sharded store, the sum
 * of squares for the norm, up to 4 MiB in parts.  An exchange that has such sums tries them when it
 * is created, on all ranks together; where they do not work, the transport adds.  Rank 0 logs
 * which.  They take 1 MiB for each rank, which the other ranks have open; so here, too,
 * destroying waits up to half a second for them. */

/* An exchange of a built store's gradients.  It keeps the communicator and the store alive.  A
 * sharded store, whose numbers must be the communicator's, has one at a time (TUTTI_ERR_STATE).
 * Collective: names, shapes and types are compared over the ranks, and a difference is
 * TUTTI_ERR_COMM, naming the parameter and the ranks.  desc NULL means the defaults; it must be the
 * same on all ranks. */
TUTTI_API tutti_status tutti_grad_sync_create(tutti_context *ctx, tutti_comm *comm,
                                              tutti_params *params,
                                              const tutti_grad_sync_desc *desc,
                                              tutti_grad_sync **sync);
/* The same for bound parameters of the caller's, which must outlive the exchange, listed in the
 * order in which backward finishes them, which is the order of the exchange.  Gradients that are
 * adjacent in memory, in the same way on all ranks, are exchanged together. */
TUTTI_API tutti_status tutti_grad_sync_create_list(tutti_context *ctx, tutti_comm *comm,
                                                   const tutti_param *const *list, int count,
                                                   const tutti_grad_sync_desc *desc,
                                                   tutti_grad_sync **sync);
/* NULL is allowed.  During a step it waits for sums under way: with nccl until the deadline, with
 * mpi for a second; after that the communicator is dead.  Graphs that hold its steps must have
 * ended, and must not be launched any more. */
TUTTI_API void tutti_grad_sync_destroy(tutti_grad_sync **sync);

/* Declares that the work enqueued on ctx so far completes the layer's gradients (a tied gradient is
 * complete when all its layers are ready).  The exchange of each range that is now complete starts
 * on a stream of its own; later work on ctx does not wait for it, but with copy engines and a store
 * that is not sharded for other ranks' parts of earlier ranges.  A range's calls are all on one
 * context, or the caller orders their streams.  Required with 0 rows too.
 *
 * Order.  Ranges are exchanged in one order, fixed at creation and the same on all ranks: that in
 * which backward completes them if it runs from the last layer added to the first, or that of the
 * list; a tied or shared gradient takes the place of its last parameter.  A range that is complete
 * earlier waits for its turn.  So another order of the calls, on one rank or on all, changes no
 * sum; it only costs overlap.  (With nccl, all work of a communicator is in one order, so its other
 * operations must then not be called between the first ready and finish.)
 *
 * The call has no effect for a layer without parameters, or with parameters bound without
 * gradients.  TUTTI_ERR_STATE if the layer is already declared ready in this step, or in a run of
 * several leaves has not been given each of them; TUTTI_ERR_ARG if it is not part of this
 * exchange.
 *
 * A gradient that is ready must not change until finish (or leaves_end, but for the last run's): a
 * backward of the layer that would write it and does not name the exchange is TUTTI_ERR_STATE until
 * then, which the library cannot tell of a gradient that tutti_grad_sync_ready_param has
 * declared. */
TUTTI_API tutti_status tutti_grad_sync_ready(tutti_grad_sync *sync, tutti_context *ctx,
                                             tutti_layer *layer);
TUTTI_API tutti_status tutti_grad_sync_ready_param(tutti_grad_sync *sync, tutti_context *ctx,
                                                   const tutti_param *param);

/* Reproducible mode.  This rank's leaves: *first to *first + *count - 1 = leaves (rank + 1) /
 * world_size - 1. */
TUTTI_API tutti_status tutti_grad_sync_own_leaves(const tutti_grad_sync *sync, int *first,
                                                  int *count);
/* Begin and end a run of this rank's leaves, leaf to leaf + count - 1, in the order of their
 * numbers, around its ready calls.  TUTTI_ERR_ARG for a leaf that is not the next, or a count that
 * is not 1 to what this rank has left; TUTTI_ERR_STATE in fast mode, after this rank's last leaf,
 * inside a run (begin), outside one (end), or, naming it, if a parameter is not ready (end). */
TUTTI_API tutti_status tutti_grad_sync_leaves_begin(tutti_grad_sync *sync, tutti_context *ctx,
                                                    int leaf, int count);
TUTTI_API tutti_status tutti_grad_sync_leaves_end(tutti_grad_sync *sync, tutti_context *ctx);

/* Makes later work on ctx wait for the sums (with mpi: waits for them) and starts the next step.
 * TUTTI_ERR_STATE if a parameter is not ready, naming it, or if in reproducible mode not all leaves
 * of this rank have ended. */
TUTTI_API tutti_status tutti_grad_sync_finish(tutti_grad_sync *sync, tutti_context *ctx);

/* Makes later work on ctx, which (unless the exchange is exclusive) may be another context than
 * that of ready and finish, wait for the sum of this parameter's gradient (with mpi: waits for it)
 * before finish, for an optimizer that starts early, for example.  From finish until the next ready
 * it waits for that step's sum.  TUTTI_ERR_STATE if this parameter, or one exchanged with it or
 * before it, is not ready, naming that one, and in reproducible mode before the run of this rank's
 * last leaf. */
TUTTI_API tutti_status tutti_grad_sync_wait(tutti_grad_sync *sync, tutti_context *ctx,
                                            const tutti_param *param);

typedef struct tutti_grad_sync_info {
    int ranges;          /* number of ranges */
    int64_t bytes;       /* of gradients summed per step */
    double wait_seconds; /* host time spent waiting in finish, over all steps */
    int64_t steps;       /* finished steps */
    /* by this rank, over all steps; in fast mode without `wire` as a ring all-reduce sends, but of
     * small sums all to every other rank */
    int64_t bytes_sent;
    int64_t bytes_held;  /* memory of the exchange on this rank, on the device and the host */
    tutti_engine engine; /* of gradients, in use */
} tutti_grad_sync_info;
/* The exchange's size and what it has cost so far. */
TUTTI_API tutti_status tutti_grad_sync_get_info(const tutti_grad_sync *sync,
                                                tutti_grad_sync_info *info);

/* Times of the last finished step, in ms from its first ready: for range r, ready[r] (backward had
 * completed it), begin[r] and end[r] of its exchange; finish: the call of finish.  Arrays have
 * info.ranges elements; any pointer may be NULL.  Waits for the exchange.  TUTTI_ERR_STATE without
 * desc.timeline or before a step. */
TUTTI_API tutti_status tutti_grad_sync_get_timeline(tutti_grad_sync *sync, double *ready,
                                                    double *begin, double *end, double *finish);

TUTTI_END
#endif
