/* An operation of a backend, for one kind of layer or the optimizer, and the plan of its calls of
 * one shape.
 *
 * Functions that take a context are asynchronous on its stream.  Arguments have been validated by
 * the caller.  Only plan allocates. */
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

/* What is decided once for the calls of one shape: their scratch, which of the operation's kernels
 * runs, and its parameters (a measured choice is kept here, too). */
typedef struct tutti__plan {
    size_t scratch; /* bytes that a call gets, 256-byte aligned */
    int kernel;     /* the operation's own numbers */
    union {
        char bytes[96];
        double aligns;
    } parameters; /* of the kernel: the operation's own struct */
    void *data;   /* what does not fit in parameters, or NULL; freed by drop */
    void (*drop)(void *data);
} tutti__plan;

/* How much of a backward a call does.  In two parts, with equal args, plan and scratch: first all
 * that gradients of parameters need, so that their exchange can begin; then the rest, in practice
 * gradients of inputs.  Both together have the bits of the whole. */
typedef enum tutti__stage { TUTTI__STAGE_ALL, TUTTI__STAGE_FIRST, TUTTI__STAGE_REST } tutti__stage;

/* What a call gets besides its args. */
typedef struct tutti__job {
    tutti_context *ctx;
    tutti__stage stage; /* of an operation whose class says that it has stages */
    const tutti__plan *plan;
    /* plan->scratch bytes; the next call on this context but a rest reuses it, in stream order */
    void *scratch;
} tutti__job;

/* The operation's args hold both directions' tensors; ops/X.h has them. */
typedef struct tutti__op {
    /* Fills in a zeroed plan for calls like args in this direction.  Reads no memory that args
     * point to.  TUTTI_ERR_STATE if it would have to use the stream during capture. */
    tutti_status (*plan)(tutti_context *ctx, const void *args, bool backward, tutti__plan *plan);
    tutti_status (*forward)(const tutti__job *job, const void *args);
    tutti_status (*backward)(const tutti__job *job, const void *args);
} tutti__op;

/* Calls with equal keys share a plan: one operation and direction, one kind of layer with equal
 * settings (its descriptor), rows and alignment.  A plan must serve calls with and without anything
 * else, such as optional tensors. */
typedef struct tutti__plan_key {
    const tutti__op *op;
    const void *kind; /* descriptors of LayerNorm and RMSNorm, one operation, can be equal */
    const void *settings;
    size_t settings_bytes; /* at most TUTTI__SETTINGS_MAX */
    uint64_t settings_hash;
    int64_t rows;
    int leaves; /* of args that have several; 0: rows of no leaf */
    /* bytes, a power of two up to 16, that all addresses, row and line strides are multiples of */
    uint32_t alignment;
    bool backward;
} tutti__plan_key;

enum { TUTTI__SETTINGS_MAX = 192 };
uint64_t tutti__settings_hash(const void *settings, size_t bytes);

/* The plan of calls like this one, made if there is none. */
tutti_status tutti__plan_get(tutti_context *ctx, const tutti__plan_key *key, const void *args,
                             const tutti__plan **plan);
/* Plans the call, so that it allocates nothing later; runs the call, or the first of its stages,
 * and leaves the job for the rest, which is the context's next call. */
tutti_status tutti__op_plan(tutti_context *ctx, const tutti__plan_key *key, const void *args);
tutti_status tutti__op_run(tutti_context *ctx, const tutti__plan_key *key, const void *args);
tutti_status tutti__op_begin(tutti_context *ctx, const tutti__plan_key *key, const void *args,
                             tutti__job *rest);

#ifdef __cplusplus
}
#endif
#endif
