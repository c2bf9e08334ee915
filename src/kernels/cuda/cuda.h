/* Shared by the host code of the CUDA backend: error checks, device properties, types by name, and
 * the entries of the table that are defined in other files. */
#ifndef TUTTI_KERNELS_CUDA_CUDA_H
#define TUTTI_KERNELS_CUDA_CUDA_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "core/backend.h"
#include "core/context.h"

/* Turns an error of the CUDA runtime into a status; clears the runtime's own record of it. */
static inline tutti_status tutti__cuda_status(cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return TUTTI_OK;
    (void)cudaGetLastError();
    return tutti__fail(error == cudaErrorMemoryAllocation ? TUTTI_ERR_MEMORY : TUTTI_ERR_DEVICE,
                       "%s: %s", what, cudaGetErrorString(error));
}

/* TUTTI_CUDA(cudaX(...), "alloc: cudaX"): returns TUTTI_ERR_DEVICE on failure. */
#define TUTTI_CUDA(call, what) TUTTI_TRY(tutti__cuda_status((call), (what)))

/* After a launch.  what: the operation, "norm_forward". */
#define TUTTI_CUDA_LAUNCHED(what) TUTTI_TRY(tutti__cuda_status(cudaGetLastError(), (what)))

/* Every call makes its device current first. */
static inline tutti_status tutti__cuda_use(int device, const char *what)
{
    return tutti__cuda_status(cudaSetDevice(device), what);
}

static inline cudaStream_t tutti__cuda_stream(const tutti_context *ctx)
{
    return (cudaStream_t)ctx->stream;
}

/* What a context has of its own, made when an operation that needs it is first planned. */
typedef struct tutti__cuda_own {
    void *products; /* cublasLtHandle_t */
    void (*products_free)(void *products);
    struct tutti__cuda_tuned *tuned; /* tune.cu */
    cudaStream_t beside;             /* a second stream */
    cudaEvent_t parted, joined;
} tutti__cuda_own;

/* A pointer moved by so many elements of a type. */
static inline void *tutti__cuda_at(void *data, tutti_dtype dtype, int64_t elements)
{
    return (char *)data + elements * (int64_t)tutti_dtype_size(dtype);
}

/* Pairs for a sort: keys[0] and values[0] are the input; any of the four buffers may be written,
 * and two of them hold the result. */
typedef struct tutti__cuda_pairs {
    uint32_t *keys[2], *sorted_keys;
    int32_t *values[2], *sorted_values;
} tutti__cuda_pairs;

extern "C" {

tutti_status tutti__cuda_own_get(tutti_context *ctx, tutti__cuda_own **own);
/* tune.cu */
void tutti__cuda_tuned_free(struct tutti__cuda_tuned *tuned);
tutti_status tutti__cuda_tuning_get(tutti_context *ctx, void *data, size_t capacity, size_t *bytes);
tutti_status tutti__cuda_tuning_set(tutti_context *ctx, const void *data, size_t bytes);
/* Work beside that of the context's stream.  A plan opens the second stream; in a call, what is
 * enqueued there after part waits for what came before on the context's stream, and what comes
 * after join there waits for it.  Can be captured. */
tutti_status tutti__cuda_beside_open(tutti_context *ctx);
tutti_status tutti__cuda_beside_part(tutti_context *ctx, cudaStream_t *beside);
tutti_status tutti__cuda_beside_join(tutti_context *ctx);

/* Streaming multiprocessors of a device; queried once. */
int tutti__cuda_sm_count(int device);
/* The most dynamic shared memory that a block may have; queried once. */
int tutti__cuda_shared_limit(int device);
/* Whether it has thread-block clusters (compute capability 9.0); queried once. */
bool tutti__cuda_has_clusters(int device);

/* runtime.cu: the run-time functions of core/backend.h */
tutti_status tutti__cuda_device_count(int *count);
void tutti__cuda_describe(char *text, size_t size);
tutti_status tutti__cuda_stream_create(int device, bool priority, tutti__stream *stream);
void tutti__cuda_stream_destroy(int device, tutti__stream stream);
tutti_status tutti__cuda_stream_query(int device, tutti__stream stream, bool *done);
tutti_status tutti__cuda_stream_synchronize(int device, tutti__stream stream);
tutti_status tutti__cuda_stream_capturing(int device, tutti__stream stream, bool *capturing);
tutti_status tutti__cuda_event_create(int device, bool timing, tutti__event *event);
void tutti__cuda_event_destroy(int device, tutti__event event);
tutti_status tutti__cuda_event_record(int device, tutti__event event, tutti__stream stream);
tutti_status tutti__cuda_event_query(int device, tutti__event event, bool *done);
tutti_status tutti__cuda_event_elapsed(int device, tutti__event begin, tutti__event end,
                                       double *ms);
tutti_status tutti__cuda_stream_wait_event(int device, tutti__stream stream, tutti__event event);
tutti_status tutti__cuda_alloc(int device, size_t bytes, void **data);
void tutti__cuda_free(int device, void *data);
tutti_status tutti__cuda_host_alloc(int device, size_t bytes, void **data);
void tutti__cuda_host_free(int device, void *data);
tutti_status tutti__cuda_copy(int device, tutti__stream stream, void *dst, const void *src,
                              size_t bytes);
tutti_status tutti__cuda_is_pageable(int device, const void *data, bool *pageable);
tutti_status tutti__cuda_zero(int device, tutti__stream stream, void *data, size_t bytes);
/* peers.cu */
tutti_status tutti__cuda_copy_all(int device, tutti__stream stream, const tutti__copy *copies,
                                  int count);
tutti_status tutti__cuda_push(int device, tutti__stream stream, const tutti__copy *copies,
                              int count);
tutti_status tutti__cuda_word_clear(int device, tutti__stream stream, uint32_t *word);
tutti_status tutti__cuda_words_set(int device, tutti__stream stream, uint32_t *const *words,
                                   int count);
tutti_status tutti__cuda_words_await(int device, tutti__stream stream, uint32_t *const *words,
                                     int count);
tutti_status tutti__cuda_hold(int device, tutti__stream stream, uint32_t *running, int room,
                              const uint32_t *stop, double seconds, int *blocks);
tutti_status tutti__cuda_hop(int device, tutti__stream stream, const tutti__hop_memory *memory,
                             const void *from, void *to, int64_t count, tutti_dtype dtype);

/* sort.cu: pairs by the last `bits` bits of their keys, equal keys in their original order; count <
 * 2^31.  With scratch NULL only returns how many bytes it needs. */
tutti_status tutti__cuda_sort_pairs(tutti_context *ctx, void *scratch, size_t *scratch_bytes,
                                    tutti__cuda_pairs *pairs, int64_t count, int bits);

/* tree_sum.cu */
tutti_status tutti__cuda_tree_sum(int device, tutti__stream stream,
                                  const struct tutti__tree_sum_args *args);

/* hash.cu */
tutti_status tutti__cuda_hash(tutti_context *ctx, const uint32_t *words, int64_t count,
                              uint64_t *hash);

/* convert.cu */
tutti_status tutti__cuda_convert(tutti_context *ctx, void *dst, tutti_dtype dst_dtype,
                                 const void *src, tutti_dtype src_dtype, int64_t count);

/* count.cu */
tutti_status tutti__cuda_count_labels(tutti_context *ctx, const int32_t *labels, int64_t rows,
                                      int32_t ignored, int64_t below, double *count,
                                      bool accumulate);
tutti_status tutti__cuda_weigh(tutti_context *ctx, const double *count, double *weight);

} /* extern "C" */

/* A plan's parameters as an operation's own struct. */
template<class P>
static inline P *tutti__cuda_parameters(tutti__plan *plan)
{
    static_assert(sizeof(P) <= sizeof plan->parameters && alignof(P) <= alignof(double),
                  "too large");
    return reinterpret_cast<P *>(plan->parameters.bytes);
}
template<class P>
static inline const P *tutti__cuda_parameters(const tutti__plan *plan)
{
    return tutti__cuda_parameters<P>(const_cast<tutti__plan *>(plan));
}

/* A type as a value, to choose templates by. */
template<class T>
struct tutti__type {
    using type = T;
};

/* Calls f(tutti__type<T>{}) with the C++ type of a dtype: the one place where a run-time type
 * becomes a type. */
template<class F>
static inline tutti_status tutti__cuda_dispatch(tutti_dtype dtype, F &&f)
{
    switch (dtype) {
    case TUTTI_F32:
        return f(tutti__type<float>{});
    case TUTTI_F64:
        return f(tutti__type<double>{});
    case TUTTI_F16:
        return f(tutti__type<__half>{});
    case TUTTI_BF16:
        return f(tutti__type<__nv_bfloat16>{});
    default:
        return tutti__fail(TUTTI_ERR_INTERNAL, "cuda: %s is no floating-point type",
                           tutti_dtype_name(dtype));
    }
}

#endif
