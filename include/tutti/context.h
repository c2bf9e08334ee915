/* A context: a backend, a device, a stream on it, and scratch memory. */
#ifndef TUTTI_CONTEXT_H
#define TUTTI_CONTEXT_H

#include "tutti/tensor.h"

TUTTI_BEGIN

/* AUTO selects CUDA if the library was built with it and finds a device, otherwise the host. */
typedef enum tutti_backend {
    TUTTI_BACKEND_AUTO,
    TUTTI_BACKEND_HOST,
    TUTTI_BACKEND_CUDA
} tutti_backend;

/* Work on a context is asynchronous on its stream and runs in the order of the calls; on the host
 * backend it is complete when the call returns.  A context is used from one thread at a time;
 * different contexts are independent.  Scratch memory grows when a shape is planned and is freed
 * with the context or by tutti_context_trim, never before, so captured graphs stay valid. */
typedef struct tutti_context tutti_context;

typedef struct tutti_context_desc {
    size_t size;
    tutti_backend backend;
    int device; /* CUDA device; 0 on the host */
    /* host: OpenMP threads; 0: OpenMP's default.  The number never changes a result.
     * After a fork the child computes on one thread if its parent had used several. */
    int threads;
} tutti_context_desc;
#define TUTTI_CONTEXT_DESC_INIT TUTTI_DESC_INIT(tutti_context_desc)
TUTTI_API tutti_context_desc tutti_context_desc_default(void);

/* The number of devices: 1 for the host; for CUDA those visible, 0 without a driver.
 * TUTTI_ERR_UNSUPPORTED if the library was built without the backend. */
TUTTI_API tutti_status tutti_device_count(tutti_backend backend, int *count);

/* A context with a stream of its own.  desc NULL means the defaults.  TUTTI_ERR_UNSUPPORTED if the
 * backend was not built, TUTTI_ERR_DEVICE if there is no such device. */
TUTTI_API tutti_status tutti_context_create(const tutti_context_desc *desc, tutti_context **ctx);

/* Waits for the context's work and frees what it owns.  NULL is allowed.
 *
 * Handles, here and in all headers, may be destroyed in any order, also by finalisers on another
 * thread as long as no other thread is using the handle: each keeps alive what it needs of others
 * (an exchange its communicator and store, a store its layers, a checkpoint its context).  Using a
 * destroyed handle that is still kept alive is TUTTI_ERR_STATE where it can be detected.  Layers,
 * stores and communicators stay valid after the context that they were created with is
 * destroyed. */
TUTTI_API void tutti_context_destroy(tutti_context **ctx);

/* Waits until all enqueued work is complete.  If a communicator has work on this stream, the wait
 * ends at its deadline with TUTTI_ERR_COMM; every later wait then fails at once, until the
 * communicator is destroyed. */
TUTTI_API tutti_status tutti_context_synchronize(tutti_context *ctx);

/* Waits as above, then reports faults that kernels found in the data since the last check (a label
 * out of range): TUTTI_ERR_DATA names one of them, and all are cleared. */
TUTTI_API tutti_status tutti_context_check(tutti_context *ctx);

/* Waits as above, then frees the context's plans, scratch and staging memory; later calls plan
 * themselves again.  Scratch grows to at most three times what the largest call needs.  Graphs
 * captured on this context use it and must not be replayed after a trim. */
TUTTI_API tutti_status tutti_context_trim(tutti_context *ctx);

/* Tuning of matrix products (FusedLinear, MLP, MatMul).  on 1: whenever a shape is planned from now
 * on, the algorithms for its products are measured on the context's stream, on scratch operands,
 * and the fastest are taken; each shape once, as choices are kept until the context is destroyed.
 * That takes up to some 200 runs of each product, and memory for its operands.  Earlier plans are
 * dropped: plan what is to be captured.  0 (the default) ends that; what was measured remains in
 * use.  The host has nothing to measure: accepted, with no effect on results.
 *
 * The bits of products then depend on what was measured, which may differ from run to run.  So a
 * call with leaves on a context that tunes, or has such choices, is TUTTI_ERR_STATE.  Several ranks
 * should have the same choices: tutti_comm_broadcast_tuning.
 *
 * Waits as above; TUTTI_ERR_STATE during capture; TUTTI_ERR_ARG if on is not 0 or 1. */
TUTTI_API tutti_status tutti_context_tune(tutti_context *ctx, int on);

/* What was measured so far, as bytes for tutti_context_tuning_set.  *bytes: how many; 0 if nothing
 * was.  data: room for `capacity` bytes, or NULL to ask for the number alone.  TUTTI_ERR_ARG, with
 * *bytes set, if that is too little. */
TUTTI_API tutti_status tutti_context_tuning_get(tutti_context *ctx, void *data, size_t capacity,
                                                size_t *bytes);

/* Replaces a context's choices by another's, of any process: shapes planned from now on are not
 * measured if they are among them.  Earlier plans are dropped.  bytes 0: forgets all choices.
 * TUTTI_ERR_DATA if the bytes are damaged or not from tutti_context_tuning_get, and
 * TUTTI_ERR_UNSUPPORTED if they are from another version of cuBLASLt, another kind of GPU or
 * another backend; then nothing has changed.  A choice that turns out not to exist here is
 * TUTTI_ERR_UNSUPPORTED where its shape is planned.  Waits as above; TUTTI_ERR_STATE during
 * capture. */
TUTTI_API tutti_status tutti_context_tuning_set(tutti_context *ctx, const void *data, size_t bytes);

/* HOST or CUDA; AUTO if ctx is NULL. */
TUTTI_API tutti_backend tutti_context_backend(const tutti_context *ctx);
/* The device's number; −1 if ctx is NULL. */
TUTTI_API int tutti_context_device(const tutti_context *ctx);

/* Memory on the context's device, 256-byte aligned, not cleared.  bytes = 0 gives NULL. */
TUTTI_API tutti_status tutti_alloc(tutti_context *ctx, size_t bytes, void **data);
/* Frees it once the stream's work is complete and sets *data to NULL.  *data may be NULL. */
TUTTI_API tutti_status tutti_free(tutti_context *ctx, void **data);

/* The same of the host's memory, page-locked where the device is a GPU: copies between the two
 * never wait.  Not for many bytes: the system cannot move them. */
TUTTI_API tutti_status tutti_alloc_host(tutti_context *ctx, size_t bytes, void **data);
TUTTI_API tutti_status tutti_free_host(tutti_context *ctx, void **data);

/* Copies between host and device memory in any direction, in stream order.  With pageable host
 * memory the call returns when that memory may be used again: from up to 4 MiB of it to a GPU at
 * once, through page-locked memory of the context, unless four such copies are still to be made;
 * but to the host, or from more, once the stream is idle. */
TUTTI_API tutti_status tutti_copy(tutti_context *ctx, void *dst, const void *src, size_t bytes);
/* Sets bytes to zero, in stream order. */
TUTTI_API tutti_status tutti_zero(tutti_context *ctx, void *data, size_t bytes);

TUTTI_END
#endif
