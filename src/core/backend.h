/* The table of a backend: its run-time functions (memory, copies, streams, events) and its
 * operations (ops/ops.h).  Layers, comm and optim reach the hardware only through it; no file
 * outside a backend includes kernels/host or kernels/cuda. */
#ifndef TUTTI_CORE_BACKEND_H
#define TUTTI_CORE_BACKEND_H

#include "core/op.h"
#include "ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Streams and events are opaque; the host backend's are NULL or its own. */
typedef void *tutti__stream;
typedef void *tutti__event;

struct tutti__tree_sum_args;

/* Memory by which ranks sum in one hop (kernels/cuda/hop.cu). */
enum {
    TUTTI__HOP_RANKS = 16,        /* at most */
    TUTTI__HOP_BYTES = 256 << 10, /* of a sum, at most */
    TUTTI__HOP_BLOCKS = 64
};
typedef struct tutti__hop_memory {
    int rank, world_size;
    void *inbox[TUTTI__HOP_RANKS]; /* by rank, where it lies on this device; zero at first */
    const uint32_t *stop;          /* not 0: sums end without a result */
} tutti__hop_memory;

/* Of an inbox: two buffers with 16 bytes for 8 of each rank's, and the blocks' epochs. */
static inline size_t tutti__hop_inbox_bytes(int world_size)
{
    return (size_t)world_size * 4 * TUTTI__HOP_BYTES + TUTTI__HOP_BLOCKS * sizeof(uint32_t);
}

/* A copy between device memory of any GPUs. */
typedef struct tutti__copy {
    void *dst;
    const void *src;
    size_t bytes;
} tutti__copy;
enum { TUTTI__COPIES_MAX = 64, TUTTI__WORDS_MAX = 64 };

typedef struct tutti__runtime {
    tutti_status (*device_count)(int *count);
    /* one line for tutti_build_info: versions and devices; never fails */
    void (*describe)(char *text, size_t size);

    /* priority: for the exchange's stream, which must not wait behind compute kernels */
    tutti_status (*stream_create)(int device, bool priority, tutti__stream *stream);
    void (*stream_destroy)(int device, tutti__stream stream);
    /* *done: all enqueued work is complete.  TUTTI_ERR_DEVICE if work failed. */
    tutti_status (*stream_query)(int device, tutti__stream stream, bool *done);
    tutti_status (*stream_synchronize)(int device, tutti__stream stream);
    tutti_status (*stream_capturing)(int device, tutti__stream stream, bool *capturing);

    /* timing: elapsed will be called */
    tutti_status (*event_create)(int device, bool timing, tutti__event *event);
    void (*event_destroy)(int device, tutti__event event);
    tutti_status (*event_record)(int device, tutti__event event, tutti__stream stream);
    tutti_status (*event_query)(int device, tutti__event event, bool *done);
    tutti_status (*event_elapsed)(int device, tutti__event begin, tutti__event end, double *ms);
    tutti_status (*stream_wait_event)(int device, tutti__stream stream, tutti__event event);

    tutti_status (*alloc)(int device, size_t bytes, void **data); /* >= 256-byte aligned */
    void (*free)(int device, void *data);
    /* host memory that copies from and to the device without staging */
    tutti_status (*host_alloc)(int device, size_t bytes, void **data);
    void (*host_free)(int device, void *data);
    /* any direction; asynchronous between device and host_alloc memory */
    tutti_status (*copy)(int device, tutti__stream stream, void *dst, const void *src,
                         size_t bytes);
    /* At most TUTTI__COPIES_MAX, in any order: by copy engines, several at once where they can; or,
     * of whole numbers of 16 bytes that are aligned to them, by a kernel, which begins at once
     * where no other one runs.  NULL on the host. */
    tutti_status (*copy_all)(int device, tutti__stream stream, const tutti__copy *copies,
                             int count);
    tutti_status (*push)(int device, tutti__stream stream, const tutti__copy *copies, int count);
    /* *pageable: a copy from or to this would block the host until the stream is done; NULL if no
     * copy does */
    tutti_status (*is_pageable)(int device, const void *data, bool *pageable);
    tutti_status (*zero)(int device, tutti__stream stream, void *data, size_t bytes);

    /* Keeps all multiprocessors from any other kernel while all of *blocks, at most `room`, run:
     * each sets one of `running`, and clears it at *stop or after `seconds`.  Both in host_alloc
     * memory; NULL on the host. */
    tutti_status (*hold)(int device, tutti__stream stream, uint32_t *running, int room,
                         const uint32_t *stop, double seconds, int *blocks);

    /* Sets a word of host_alloc memory to 0 behind what the stream has been given, without a
     * multiprocessor or copy engine; not captured.  NULL on the host. */
    tutti_status (*word_clear)(int device, tutti__stream stream, uint32_t *word);
    /* By a kernel, on at most TUTTI__WORDS_MAX words that the device can reach: sets them to 1,
     * where all that the stream has been given can be seen; waits until none is 0, and clears
     * them.  NULL on the host. */
    tutti_status (*words_set)(int device, tutti__stream stream, uint32_t *const *words, int count);
    tutti_status (*words_await)(int device, tutti__stream stream, uint32_t *const *words,
                                int count);

    /* to = the sum of all ranks' `from`, which may be the same, in rank order, f16 and bf16 in f32:
     * 1 to TUTTI__HOP_BYTES of floats.  All ranks do so with equal counts and types, one sum after
     * another.  NULL on the host. */
    tutti_status (*hop)(int device, tutti__stream stream, const tutti__hop_memory *memory,
                        const void *from, void *to, int64_t count, tutti_dtype dtype);
} tutti__runtime;

typedef struct tutti__operations {
#define TUTTI_X(name) const tutti__op *name;
    TUTTI__OPS(TUTTI_X)
#undef TUTTI_X

    /* ops/tree_sum.h: of gradients; on any stream of the device */
    tutti_status (*tree_sum)(int device, tutti__stream stream,
                             const struct tutti__tree_sum_args *args);

    /* *hash, on the device: the sum over i of mix(word i, i) modulo 2^64 (ops/hash.h), in any
     * order */
    tutti_status (*hash)(tutti_context *ctx, const uint32_t *words, int64_t count, uint64_t *hash);

    /* dst[i] = src[i] converted; count elements of any float types, on the device */
    tutti_status (*convert)(tutti_context *ctx, void *dst, tutti_dtype dst_dtype, const void *src,
                            tutti_dtype src_dtype, int64_t count);

    /* *count (+)= the number of labels in [0, below) that are not `ignored`, all on the device */
    tutti_status (*count_labels)(tutti_context *ctx, const int32_t *labels, int64_t rows,
                                 int32_t ignored, int64_t below, double *count, bool accumulate);
    /* *weight = 1 / *count, or 0 for 0, on the device */
    tutti_status (*weigh)(tutti_context *ctx, const double *count, double *weight);

    /* tutti_context_tuning_get and _set; NULL: there is nothing to tune.  get writes nothing if
     * capacity is less than *bytes; after a failure of set, what was there is kept. */
    tutti_status (*tuning_get)(tutti_context *ctx, void *data, size_t capacity, size_t *bytes);
    tutti_status (*tuning_set)(tutti_context *ctx, const void *data, size_t bytes);
} tutti__operations;

typedef struct tutti__backend {
    const char *name;
    tutti_backend kind;
    tutti__runtime run;
    tutti__operations op;
} tutti__backend;

/* kernels/host and, where built, kernels/cuda define these. */
extern const tutti__backend tutti__host_backend;
#define TUTTI_X(name) extern const tutti__op tutti__host_##name;
TUTTI__OPS(TUTTI_X)
#undef TUTTI_X
#ifdef TUTTI_WITH_CUDA
extern const tutti__backend tutti__cuda_backend;
#define TUTTI_X(name) extern const tutti__op tutti__cuda_##name;
TUTTI__OPS(TUTTI_X)
#undef TUTTI_X
#endif

#ifdef __cplusplus
}
#endif
#endif
