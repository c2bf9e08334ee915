/* An operation: what a backend does for one kind of layer, or for the optimizer, and what is
 * decided once for its calls of one shape.
 *
 * Everything that takes a context is asynchronous on the context's stream and has checked
 * arguments: an operation's caller validates, the operation trusts.  Nothing allocates but plan. */
#ifndef TUTTI_CORE_OP_H
#define TUTTI_CORE_OP_H

#include "core/internal.h"
#include "tutti/context.h"

/* A function of the host and, in CUDA, of the device. */
#ifdef __CUDACC__
#define TUTTI__ANYWHERE __host__ __device__
#else
#define TUTTI__ANYWHERE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A row-wise tensor: data, type, and the distance between rows in elements.  Within a row elements
 * are contiguous.  data NULL: absent. */
typedef struct tutti__matrix {
    void *data;
    tutti_dtype dtype;
    int64_t stride;
} tutti__matrix;

/* What is decided once for the calls of one shape: how much scratch they need, which of the
 * operation's kernels does them, and with which parameters (a measured choice lives here, too). */
typedef struct tutti__plan {
    size_t scratch; /* bytes, 256-byte aligned, that a call gets */
    int kernel;     /* the operation's own numbers */
    union {
        char bytes[96];
        double aligns;
    } parameters; /* of the kernel: the operation's own struct */
    void *data;   /* what does not fit there, or NULL; freed by drop */
    void (*drop)(void *data);
} tutti__plan;

/* What a call gets beside its args. */
typedef struct tutti__job {
    tutti_context *ctx;
    const tutti__plan *plan;
    void *
        scratch; /* plan->scratch bytes; the next call on this context reuses it, in stream order */
} tutti__job;

/* The operation's args hold both directions' tensors; ops/X.h has them. */
typedef struct tutti__op {
    /* Fills in a plan that is all 0 for calls like args in this direction.  Reads nothing that args
     * point to.  TUTTI_ERR_STATE if it would have to use the stream while that is being
     * captured. */
    tutti_status (*plan)(tutti_context *ctx, const void *args, bool backward, tutti__plan *plan);
    tutti_status (*forward)(const tutti__job *job, const void *args);
    tutti_status (*backward)(const tutti__job *job, const void *args);
} tutti__op;

/* Calls that share a plan: of one operation and direction, with equal settings (a layer's
 * descriptor), as many rows, and equally aligned.  Whatever else a call has, optional tensors for
 * one, a plan serves with and without. */
typedef struct tutti__plan_key {
    const tutti__op *op;
    const void *settings;
    size_t settings_bytes; /* at most TUTTI__SETTINGS_MAX */
    uint64_t settings_hash;
    int64_t rows;
    uint32_t present; /* a bit a tensor, and other flags of the caller's */
    /* bytes, a power of two up to 16, that all addresses and row strides are multiples of */
    uint32_t alignment;
    bool backward;
} tutti__plan_key;

enum { TUTTI__SETTINGS_MAX = 192 };
uint64_t tutti__settings_hash(const void *settings, size_t bytes);

/* The plan of calls like this one, made if there is none. */
tutti_status tutti__plan_get(tutti_context *ctx, const tutti__plan_key *key, const void *args,
                             const tutti__plan **plan);
/* Plans the call, so that it allocates nothing later; or makes it. */
tutti_status tutti__op_plan(tutti_context *ctx, const tutti__plan_key *key, const void *args);
tutti_status tutti__op_run(tutti_context *ctx, const tutti__plan_key *key, const void *args);

#ifdef __cplusplus
}
#endif
#endif
