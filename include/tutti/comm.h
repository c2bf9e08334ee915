/* Communicators: a data-parallel group of ranks. */
#ifndef TUTTI_COMM_H
#define TUTTI_COMM_H

#include "tutti/param.h"

TUTTI_BEGIN

typedef struct tutti_comm tutti_comm;

typedef enum tutti_transport {
    /* self without MPI or with one rank; nccl for a CUDA context whose ranks have a GPU each;
     * otherwise mpi */
    TUTTI_TRANSPORT_AUTO,
    TUTTI_TRANSPORT_SELF, /* one rank */
    /* host memory; device memory is staged through the host, so ranks may share a GPU */
    TUTTI_TRANSPORT_MPI,
    TUTTI_TRANSPORT_NCCL /* device memory, one GPU a rank; the unique id travels by MPI */
} tutti_transport;

typedef struct tutti_comm_desc {
    size_t size;
    tutti_transport transport;
    double timeout; /* seconds that any wait may last, > 0; 0: 60 */
} tutti_comm_desc;
#define TUTTI_COMM_DESC_INIT TUTTI_DESC_INIT(tutti_comm_desc)
TUTTI_API tutti_comm_desc tutti_comm_desc_default(void);

/* Rules for all calls.  A verb is collective: every rank calls the same verbs in the same order
 * with the same counts, types, operators and roots: another count on one rank is TUTTI_ERR_COMM
 * where MPI notices, otherwise wrong data.  Buffers are on the context's device; counts are
 * elements.  Verbs of self and nccl are asynchronous on the context's stream and can be captured;
 * those of mpi have finished when they return.  Every wait ends at the deadline with TUTTI_ERR_COMM
 * and a message that names the operation and, where the communicator was made with MPI, the ranks
 * that do not answer (they get up to a second on top to do so, which whoever waits in a call of
 * this library does, with any communicator) or that wait in another operation.  After that the
 * communicator is dead: every call returns TUTTI_ERR_COMM, buffers of unfinished operations must
 * not be touched or freed, and destroying it does not communicate.  A program should then print the
 * message and leave by MPI_Abort, not MPI_Finalize, nor call MPI otherwise: tutti_comm_lost says
 * so.  (Other failures are TUTTI_ERR_COMM too, a difference that all ranks have been told of, say.)
 * With nccl those waits include one in a call of CUDA, the caller's too, behind sums that do not
 * end (a full queue of launches, say): a rank that calls nothing here for the whole timeout while
 * sums are under way is taken to be in one.  Sums in graphs have a deadline only while this library
 * waits for them.
 *
 * Threads.  A communicator, with its exchanges, checkpoints and allocator, is used from one thread
 * at a time.  Where it was made with MPI, every function that takes one of them (the getters
 * without a context aside: rank, world_size, transport, lost, get_info, own_leaves), and every call
 * on a context while an exchange of transport mpi is in a step there, may call MPI, and so wants of
 * MPI_Init_thread:
 *   MPI_THREAD_FUNNELED    if all these calls are made on the thread that called it;
 *   MPI_THREAD_SERIALIZED  if another thread makes them, but never while a second one is in this
 *                          library or in MPI;
 *   MPI_THREAD_MULTIPLE    if two threads do so at a time, with a communicator and a context each.
 * Under FUNNELED a call on another thread is TUTTI_ERR_STATE; that threads take turns under
 * SERIALIZED is not seen here.  Nothing is asked of transport self without MPI and of
 * tutti_comm_create_from_nccl.  Destroying calls MPI too, when the last holder goes: under FUNNELED
 * a finaliser's thread is the wrong one, and then MPI's part is left to MPI_Finalize. */

/* Over MPI_COMM_WORLD, which the caller has initialised (the library never calls MPI_Init or
 * MPI_Finalize) with at least MPI_THREAD_FUNNELED, called on the main thread then.  Collective: a
 * rank that fails makes all fail, with a message that says which and why.  TUTTI_ERR_STATE if MPI
 * is not initialised although it is asked for, or although a launcher has started several ranks.
 * TUTTI_ERR_UNSUPPORTED if the transport was not built, TUTTI_ERR_COMM if two ranks share a GPU
 * under nccl (2.30 can be told to, NCCL_MULTI_RANK_GPU_ENABLE=1) or its library is older than 2.18.
 * desc NULL means the defaults. */
TUTTI_API tutti_status tutti_comm_create(tutti_context *ctx, const tutti_comm_desc *desc,
                                         tutti_comm **comm);

/* Collective unless dead, but does not wait for other ranks.  Exchanges, checkpoints and memory of
 * its allocator hold the communicator, which goes with the last of them; their calls are
 * TUTTI_ERR_STATE from now on, but destroying and freeing.  NULL is allowed. */
TUTTI_API void tutti_comm_destroy(tutti_comm **comm);

/* Declares that this rank cannot go on (a step failed here alone, say), so that nobody waits for it
 * until the deadline.  Not collective.  The communicator is dead: here at once, in the others as
 * soon as they wait with it, within about a second, with TUTTI_ERR_COMM and "rank 2 gave up: " and
 * the message, of which 255 bytes arrive.  May take a second itself, where a rank takes nothing in.
 * A communicator of tutti_comm_create_from_nccl has no way to tell: there the others come to their
 * deadline.  From the thread that uses the communicator.  TUTTI_ERR_COMM if it is dead already. */
TUTTI_API tutti_status tutti_comm_abort(tutti_comm *comm, const char *message);

/* NULL as long as no communicator of this process has died; afterwards why the first one did, even
 * if it was destroyed or died while tutti_comm_create made it.  From any thread. */
TUTTI_API const char *tutti_comm_lost(void);

/* −1 and 0 for NULL. */
TUTTI_API int tutti_comm_rank(const tutti_comm *comm);
TUTTI_API int tutti_comm_world_size(const tutti_comm *comm);
/* What AUTO became; AUTO for NULL. */
TUTTI_API tutti_transport tutti_comm_transport(const tutti_comm *comm);

typedef enum tutti_op { TUTTI_SUM, TUTTI_MIN, TUTTI_MAX } tutti_op;

/* recv = op over ranks of send; in place if send == recv.  f16 and bf16 are rounded after every
 * pairwise sum, which mpi makes in f32. */
TUTTI_API tutti_status tutti_comm_all_reduce(tutti_comm *comm, tutti_context *ctx, const void *send,
                                             void *recv, int64_t count, tutti_dtype dtype,
                                             tutti_op op);
/* data of root becomes everybody's. */
TUTTI_API tutti_status tutti_comm_broadcast(tutti_comm *comm, tutti_context *ctx, void *data,
                                            int64_t count, tutti_dtype dtype, int root);
/* recv[r * count .. ] = send of rank r.  send may lie at its place in recv. */
TUTTI_API tutti_status tutti_comm_all_gather(tutti_comm *comm, tutti_context *ctx, const void *send,
                                             void *recv, int64_t count, tutti_dtype dtype);
/* recv [count] = op over ranks of their send[rank * count .. ]. */
TUTTI_API tutti_status tutti_comm_reduce_scatter(tutti_comm *comm, tutti_context *ctx,
                                                 const void *send, void *recv, int64_t count,
                                                 tutti_dtype dtype, tutti_op op);
/* recv[r * count .. ] = send[rank * count .. ] of rank r.  Not in place.  With nccl a buffer in
 * memory of tutti_comm_allocator costs a copy, and one that the caller has registered with NCCL
 * (ncclCommRegister) must be on all ranks and both sides or on none: NCCL's messages between
 * registered and other memory never end. */
TUTTI_API tutti_status tutti_comm_all_to_all(tutti_comm *comm, tutti_context *ctx, const void *send,
                                             void *recv, int64_t count, tutti_dtype dtype);
/* Returns when every rank has called it; waits for the context's stream first. */
TUTTI_API tutti_status tutti_comm_barrier(tutti_comm *comm, tutti_context *ctx);

/* Agrees on a status before ranks part ways: TUTTI_OK if all gave that; otherwise every rank gets
 * the status and the message of the lowest rank that did not ("rank 2: …"), its own last error
 * included.  The message is that of the library's last failure there: of a status of the program's
 * own it says nothing, so the program does. */
TUTTI_API tutti_status tutti_comm_agree(tutti_comm *comm, tutti_status status);

/* Makes rank 0's masters everybody's, refreshes the working values and proves by a hash of the
 * masters that all are equal.  Waits for the stream. */
TUTTI_API tutti_status tutti_comm_broadcast_params(tutti_comm *comm, tutti_context *ctx,
                                                   tutti_params *params);

/* Proves that the ranks hold equal replicas: compares, over the ranks, 64-bit hashes of every
 * parameter's master and of every tensor of an optimizer's state (tutti_adamw_state_get), `count`
 * of them; in one like the store parameters are told apart.  TUTTI_ERR_DATA, with the first tensor
 * that differs ("block0.norm/gamma m") and the ranks that have another than most, if they are not
 * equal; the communicator stays usable.  Waits for the stream.  count may be 0, state NULL then. */
TUTTI_API tutti_status tutti_comm_check_params(tutti_comm *comm, tutti_context *ctx,
                                               tutti_params *params,
                                               const tutti_state_tensor *state, int count);

/* An allocator for tutti_params_desc.gradient_memory that gives memory the transport likes best:
 * under nccl a registered symmetric window.  What one rank passes to a verb in such memory, all
 * must.  Its calls are collective, with equal sizes: all ranks get the memory, or all the error of
 * the lowest rank that does not.  The memory holds the communicator. */
TUTTI_API tutti_allocator tutti_comm_allocator(tutti_comm *comm);

TUTTI_END
#endif
