/* Communicators: a data-parallel group of ranks. */
#ifndef TUTTI_COMM_H
#define TUTTI_COMM_H

#include "tutti/param.h"

TUTTI_BEGIN

typedef struct tutti_comm tutti_comm;

typedef enum tutti_transport {
    /* self without MPI or with one rank; nccl for a CUDA context if every rank has its own GPU;
     * otherwise mpi */
    TUTTI_TRANSPORT_AUTO,
    TUTTI_TRANSPORT_SELF, /* one rank */
    /* host memory; device memory is staged through the host, so ranks may share a GPU */
    TUTTI_TRANSPORT_MPI,
    TUTTI_TRANSPORT_NCCL /* device memory, one GPU per rank; MPI distributes the unique id */
} tutti_transport;

typedef struct tutti_comm_desc {
    size_t size;
    tutti_transport transport;
    double timeout; /* longest wait in seconds, > 0; 0: 60 */
} tutti_comm_desc;
#define TUTTI_COMM_DESC_INIT TUTTI_DESC_INIT(tutti_comm_desc)
TUTTI_API tutti_comm_desc tutti_comm_desc_default(void);

/* Rules for all calls.  Every rank calls the same collective operations in the same order, with the
 * same counts, types, operators and roots; a different count on one rank is TUTTI_ERR_COMM where
 * MPI detects it, otherwise wrong data.  Buffers are on the context's device; counts are in
 * elements.  Operations of self and nccl are asynchronous on the context's stream and can be
 * captured; those of mpi are complete when they return.
 *
 * Deadlines.  Every wait ends at the deadline with TUTTI_ERR_COMM and a message that names the
 * operation and, if the communicator was created with MPI, the ranks that do not answer or that
 * wait in another operation.  (Ranks get up to a second more to answer; every rank that waits in a
 * call of this library does, with any communicator.)  After that the communicator is dead: every
 * call returns TUTTI_ERR_COMM, buffers of unfinished operations must not be touched or freed, and
 * destroying it does not communicate.  A program should then print the message and call MPI_Abort,
 * not MPI_Finalize or any other function of MPI; tutti_comm_lost tells whether it must.  (Other
 * failures are TUTTI_ERR_COMM too: a difference that all ranks have been told of, for example.)
 * With nccl the deadline also covers calls of CUDA, the caller's too, that block behind sums that
 * do not end (a full launch queue, for example): a rank that makes no call here for the whole
 * timeout while sums are under way is assumed to be blocked.  Sums in graphs have a deadline only
 * while this library waits for them.
 *
 * Threads.  A communicator, with its exchanges, checkpoints and allocator, is used from one thread
 * at a time.  If it was created with MPI, every function that takes one of them (except the getters
 * without a context: rank, world_size, transport, lost, get_info, own_leaves), and every call on a
 * context on which an exchange of transport mpi is in a step, may call MPI, and so requires of
 * MPI_Init_thread:
 *   MPI_THREAD_FUNNELED    if all these calls are made on the thread that called it;
 *   MPI_THREAD_SERIALIZED  if another thread makes them, but never while a second one is in this
 *                          library or in MPI;
 *   MPI_THREAD_MULTIPLE    if two threads do so at a time, with a communicator and a context each.
 * Under FUNNELED a call on another thread is TUTTI_ERR_STATE; under SERIALIZED it is not checked
 * that threads take turns.  Transport self without MPI and tutti_comm_create_from_nccl require
 * nothing.  Destroying the last handle calls MPI too; under FUNNELED, on another thread (a
 * finaliser's), MPI's objects are left to MPI_Finalize. */

/* A communicator over MPI_COMM_WORLD.  The caller has initialised MPI (the library never calls
 * MPI_Init or MPI_Finalize) with at least MPI_THREAD_FUNNELED, and then calls this on the main
 * thread.  Collective: if one rank fails, all fail, with a message that names the rank and the
 * reason.  TUTTI_ERR_STATE if MPI is requested, or a launcher has started several ranks, and MPI is
 * not initialised.  TUTTI_ERR_UNSUPPORTED if the transport was not built, TUTTI_ERR_COMM if two
 * ranks share a GPU under nccl (which 2.30 allows with NCCL_MULTI_RANK_GPU_ENABLE=1) or NCCL is
 * older than 2.18.  desc NULL means the defaults. */
TUTTI_API tutti_status tutti_comm_create(tutti_context *ctx, const tutti_comm_desc *desc,
                                         tutti_comm **comm);

/* Collective unless dead, but does not wait for other ranks.  Exchanges, checkpoints and memory of
 * its allocator keep the communicator alive until the last of them is destroyed; from now on they
 * can only be destroyed or freed, other calls are TUTTI_ERR_STATE.  NULL is allowed. */
TUTTI_API void tutti_comm_destroy(tutti_comm **comm);

/* Declares that this rank cannot continue (a step failed on it alone, for example), so that no rank
 * waits for it until the deadline.  Not collective.  The communicator is then dead: here at once,
 * on other ranks within about a second of waiting with it, with TUTTI_ERR_COMM and "rank 2 gave up:
 * …" with the message's first 255 bytes.  May take a second itself if a rank does not receive.
 * With tutti_comm_create_from_nccl the others cannot be told and wait until their deadline.  Called
 * from the thread that uses the communicator.  TUTTI_ERR_COMM if it is dead already. */
TUTTI_API tutti_status tutti_comm_abort(tutti_comm *comm, const char *message);

/* NULL as long as no communicator of this process has died; afterwards the reason why the first one
 * did, even if it has been destroyed or died in tutti_comm_create: one line, always clean
 * (tutti_text_clean).  Thread-safe. */
TUTTI_API const char *tutti_comm_lost(void);

/* −1 and 0 for NULL. */
TUTTI_API int tutti_comm_rank(const tutti_comm *comm);
TUTTI_API int tutti_comm_world_size(const tutti_comm *comm);
/* The transport in use; AUTO for NULL. */
TUTTI_API tutti_transport tutti_comm_transport(const tutti_comm *comm);

typedef enum tutti_op { TUTTI_SUM, TUTTI_MIN, TUTTI_MAX } tutti_op;

/* recv = op over ranks of send; in place if send == recv.  f16 and bf16 are rounded after every
 * pairwise sum, which mpi computes in f32. */
TUTTI_API tutti_status tutti_comm_all_reduce(tutti_comm *comm, tutti_context *ctx, const void *send,
                                             void *recv, int64_t count, tutti_dtype dtype,
                                             tutti_op op);
/* Copies root's data to all ranks. */
TUTTI_API tutti_status tutti_comm_broadcast(tutti_comm *comm, tutti_context *ctx, void *data,
                                            int64_t count, tutti_dtype dtype, int root);
/* recv[r * count ..] = send of rank r.  In place if send == recv + rank * count elements. */
TUTTI_API tutti_status tutti_comm_all_gather(tutti_comm *comm, tutti_context *ctx, const void *send,
                                             void *recv, int64_t count, tutti_dtype dtype);
/* recv [count] = op over ranks of their send[rank * count ..], rank being this rank's. */
TUTTI_API tutti_status tutti_comm_reduce_scatter(tutti_comm *comm, tutti_context *ctx,
                                                 const void *send, void *recv, int64_t count,
                                                 tutti_dtype dtype, tutti_op op);
/* recv[r * count ..] = send[rank * count ..] of rank r.  Not in place.  With nccl a buffer in
 * memory of tutti_comm_allocator costs a copy, and either all buffers on all ranks or none may be
 * registered with NCCL by the caller (ncclCommRegister): NCCL's messages between registered and
 * other memory never complete. */
TUTTI_API tutti_status tutti_comm_all_to_all(tutti_comm *comm, tutti_context *ctx, const void *send,
                                             void *recv, int64_t count, tutti_dtype dtype);
/* Returns when every rank has called it; waits for the context's stream first. */
TUTTI_API tutti_status tutti_comm_barrier(tutti_comm *comm, tutti_context *ctx);

/* Agrees on a status before ranks diverge: TUTTI_OK if all ranks passed it; otherwise every rank
 * gets the status and the message ("rank 2: …", as tutti_last_error) of the lowest rank that did
 * not.  The message is that of the library's last failure on that rank; a status of the program's
 * own has no message, so the program must report it. */
TUTTI_API tutti_status tutti_comm_agree(tutti_comm *comm, tutti_status status);

/* Copies rank 0's masters to all ranks, refreshes the working values and verifies by a hash of the
 * masters that all are equal.  A sharded store's masters that are in slices stay where they are:
 * every rank's values are made from them, and compared.  Waits for the stream. */
TUTTI_API tutti_status tutti_comm_broadcast_params(tutti_comm *comm, tutti_context *ctx,
                                                   tutti_params *params);

/* Gives rank 0's measured choices for matrix products to all ranks, in place of their own, so that
 * replicas compute alike, and ends tuning on all contexts (tutti_context_tune, _tuning_get and
 * _tuning_set): shapes that rank 0 has not planned are not measured.  The other ranks drop their
 * plans.  They wait for rank 0 here, up to the deadline, so it should have measured little since
 * the last collective call, or the deadline be long.  Every context must be on the same kind of GPU
 * with the same cuBLASLt; on the host there is nothing to give. */
TUTTI_API tutti_status tutti_comm_broadcast_tuning(tutti_comm *comm, tutti_context *ctx);

/* Verifies that the replicas are equal: compares, over the ranks, 64-bit hashes of every
 * parameter's master and of `count` tensors of an optimizer's state (tutti_adamw_state_get),
 * parameter by parameter where the tensor is laid out like the store.  If they differ,
 * TUTTI_ERR_DATA names the first tensor that does ("block0.norm/gamma m") and the ranks that differ
 * from the majority; the communicator stays usable.  Of a sharded store what each rank alone has
 * is not compared: instead of masters in slices the values are.  Waits for the stream.  state may
 * be NULL if count is 0. */
TUTTI_API tutti_status tutti_comm_check_params(tutti_comm *comm, tutti_context *ctx,
                                               tutti_params *params,
                                               const tutti_state_tensor *state, int count);

/* An allocator for tutti_params_desc.gradient_memory whose memory suits the transport: under nccl a
 * registered symmetric window.  If one rank passes such memory to an operation, all must.  Its
 * calls are collective, with equal sizes: all ranks get memory, or all the error of the lowest rank
 * that does not.  The memory keeps the communicator alive. */
TUTTI_API tutti_allocator tutti_comm_allocator(tutti_comm *comm);

TUTTI_END
#endif
