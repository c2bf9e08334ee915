/* The table of a backend.  Its run-time half knows memory, copies, streams and events; its operations half has
 * one entry and one args struct an operation.  Layers, comm and optim reach the hardware through it and no
 * other way; nobody includes kernels/host or kernels/cuda.
 *
 * Everything that takes a context is asynchronous on the context's stream, allocates nothing once its shape has
 * been planned (scratch grows in tutti__scratch, which refuses during capture), and has checked arguments: an
 * operation's caller, the layer, validates; the operation trusts.  A NULL entry means "not supported". */
#ifndef TUTTI_CORE_BACKEND_H
#define TUTTI_CORE_BACKEND_H

#include "core/internal.h"
#include "tutti/context.h"
#include "tutti/linear.h"
#include "tutti/step.h"

/* A function of the host and, in CUDA, of the device. */
#ifdef __CUDACC__
#define TUTTI__ANYWHERE __host__ __device__
#else
#define TUTTI__ANYWHERE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Word i of a hash: SplitMix64's mixing of the word and its place. [Steele, Lea & Flood 2014] */
static inline TUTTI__ANYWHERE uint64_t tutti__mix(uint32_t word, int64_t i)
{
    uint64_t z = word + (uint64_t)(i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Streams and events are opaque; the host backend's are NULL or its own. */
typedef void *tutti__stream;
typedef void *tutti__event;

typedef struct tutti__runtime {
    tutti_status (*device_count)(int *count);
    /* one line for tutti_build_info: versions and devices; never fails */
    void (*describe)(char *text, size_t size);

    /* priority: true for the exchange's stream, which must not wait behind compute kernels */
    tutti_status (*stream_create)(int device, bool priority, tutti__stream *stream);
    void (*stream_destroy)(int device, tutti__stream stream);
    /* *done: nothing enqueued is left.  TUTTI_ERR_DEVICE if work failed. */
    tutti_status (*stream_query)(int device, tutti__stream stream, bool *done);
    tutti_status (*stream_synchronize)(int device, tutti__stream stream);
    tutti_status (*stream_capturing)(int device, tutti__stream stream, bool *capturing);

    /* timing: elapsed will be asked */
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
    /* *waits: a copy between these would make the host wait for the stream, as with pageable memory; NULL where no
     * copy does */
    tutti_status (*copy_waits)(int device, const void *dst, const void *src, bool *waits);
    tutti_status (*zero)(int device, tutti__stream stream, void *data, size_t bytes);
} tutti__runtime;

/* A row-wise tensor: data, type, and the distance between rows in elements.  Within a row elements
 * are contiguous.  data NULL: absent. */
typedef struct tutti__matrix {
    void *data;
    tutti_dtype dtype;
    int64_t stride;
} tutti__matrix;

/* LayerNorm (centered) and RMSNorm; include/tutti/layernorm.h has the mathematics. */
typedef struct tutti__norm_forward_args {
    int64_t rows, cols;
    bool centered, zero_centered;
    double eps;
    tutti__matrix x;
    tutti__matrix residual; /* optional */
    tutti__matrix sum;      /* optional; may be x or residual */
    tutti__matrix y;
    const void *gamma; /* optional; param_dtype */
    const void *beta;  /* optional; only with gamma */
    tutti_dtype param_dtype;
    void *mean,
        *rstd; /* [rows] f32 or f64 (tutti__accumulate_dtype of x and params); mean: centered only; both NULL: not wanted */
} tutti__norm_forward_args;

typedef struct tutti__norm_backward_args {
    int64_t rows, cols;
    bool centered, zero_centered;
    tutti__matrix x;    /* what was normalised */
    tutti__matrix dy;   /* of y's type */
    tutti__matrix dsum; /* optional; x's type */
    tutti__matrix dx;   /* optional; x's type; may be dy or dsum */
    const void *gamma;  /* optional */
    tutti_dtype param_dtype;
    const void *mean, *rstd;
    void *dgamma, *dbeta;   /* optional, each; [cols] grad_dtype */
    tutti_dtype grad_dtype; /* f32 or f64 */
    bool accumulate;        /* dgamma, dbeta += */
} tutti__norm_backward_args;

typedef struct tutti__softmax_args {
    int64_t rows, cols;
    bool log;
    double scale;
    /* Exponents are (lead x - max lead x) size, with lead size = scale: the difference first, which is exactly 0 for
     * the greatest.  lead is 1 or -1, whichever makes the extreme a maximum; or half of that where |scale| < 1, so
     * that no difference overflows that scale would have brought back. */
    double lead, size;
    int64_t causal_period; /* 0: none */
    int64_t first_row;
    tutti__matrix x;      /* forward */
    tutti__matrix y;      /* forward writes, backward reads; may be x */
    tutti__matrix dy, dx; /* backward; dx may be dy */
} tutti__softmax_args;

typedef struct tutti__cross_entropy_args {
    int64_t rows, cols;
    tutti__matrix logits;
    const int32_t *labels;
    int32_t ignore_label;
    void *loss;                    /* optional; f32 or f64 as the arithmetic */
    double *loss_sum;              /* optional */
    tutti__matrix dlogits;         /* optional; may be logits */
    const tutti_step_values *step; /* on the device; optional */
} tutti__cross_entropy_args;

typedef struct tutti__embedding_args {
    int64_t rows, vocab, cols;
    tutti_dtype dtype;
    const int32_t *tokens;
    const void *weight; /* forward; contiguous */
    tutti__matrix y;    /* forward */
    tutti__matrix dy;   /* backward */
    void *dweight;      /* backward; contiguous; f64 for f64, otherwise f32 */
    bool accumulate;
} tutti__embedding_args;

/* What a backend keeps for one shape of a linear layer (chosen algorithms); freed by linear_plan_destroy. */
typedef struct tutti__linear_plan tutti__linear_plan;

typedef struct tutti__linear_shape {
    int64_t rows, in, out;
    tutti_dtype dtype;
    tutti_activation activation;
    double slope;
    bool has_bias, allow_tf32;
} tutti__linear_shape;

typedef struct tutti__linear_args {
    tutti__linear_shape shape;
    tutti__linear_plan *plan; /* of this shape; NULL where the backend has no linear_plan_create */
    tutti__matrix x;
    const void *weight, *bias; /* weight is contiguous */
    tutti__matrix y;       /* forward writes; backward reads for relu, leaky_relu, squared_relu */
    void *saved;           /* z, [rows, out] contiguous; NULL: not wanted */
    tutti__matrix dy, dx;  /* dx optional */
    void *dweight, *dbias; /* optional, each; contiguous; f64 for f64, otherwise f32 */
    bool accumulate;
} tutti__linear_args;

/* Flat passes of the optimizer.  Element i belongs to the parameter whose number is block_param[i / TUTTI_PARAM_ALIGN]. */
typedef struct tutti__param_factors {
    double weight_decay, lr_scale;
    int64_t working; /* this parameter has a working value of another type */
} tutti__param_factors;

/* What AdamW keeps on the device beside m and v. */
typedef struct tutti__adamw_state {
    double updates;   /* t */
    double grad_norm; /* of the last update, loss_scale divided out */
    double clip; /* factor of the last update's gradients: clipping and 1 / loss_scale together */
    double skipped; /* 1: the last update was skipped */
} tutti__adamw_state;

typedef struct tutti__adamw_args {
    int64_t count;     /* multiple of TUTTI_PARAM_ALIGN */
    tutti_dtype dtype; /* f32 or f64, of master, grad, m, v */
    void *master, *m, *v;
    const void *grad;
    void *working; /* or NULL */
    tutti_dtype working_dtype;
    const int32_t *block_param;
    const tutti__param_factors *factors;
    tutti__adamw_state *state;
    const tutti_step_values *step;
    double beta1, beta2, eps, weight_decay, clip_norm;
    bool skip_nonfinite;
} tutti__adamw_args;

/* dst = the sum of the inputs as a binary tree: input k is pushed on a stack, then the two topmost are replaced by
 * their sum pops[k] times; one is left at the end.  Elementwise, so dst may be an input. */
enum { TUTTI__TREE_INPUTS_MAX = 256 };
typedef struct tutti__tree_sum_args {
    int64_t count;
    tutti_dtype dtype; /* f32 or f64 */
    void *dst;
    int inputs, threads; /* threads: the host's */
    const void *in[TUTTI__TREE_INPUTS_MAX];
    unsigned char pops[TUTTI__TREE_INPUTS_MAX];
} tutti__tree_sum_args;

typedef struct tutti__operations {
    tutti_status (*norm_forward)(tutti_context *ctx, const tutti__norm_forward_args *args);
    tutti_status (*norm_backward)(tutti_context *ctx, const tutti__norm_backward_args *args);
    /* Ensures scratch (and kernels loaded) for calls of this shape; no pointer is read. */
    tutti_status (*norm_plan)(tutti_context *ctx, const tutti__norm_backward_args *args);

    tutti_status (*softmax_forward)(tutti_context *ctx, const tutti__softmax_args *args);
    tutti_status (*softmax_backward)(tutti_context *ctx, const tutti__softmax_args *args);

    tutti_status (*cross_entropy)(tutti_context *ctx, const tutti__cross_entropy_args *args);
    tutti_status (*cross_entropy_plan)(tutti_context *ctx, const tutti__cross_entropy_args *args);

    tutti_status (*embedding_forward)(tutti_context *ctx, const tutti__embedding_args *args);
    tutti_status (*embedding_backward)(tutti_context *ctx, const tutti__embedding_args *args);
    /* Ensures backward's scratch; no pointer is read. */
    tutti_status (*embedding_plan)(tutti_context *ctx, const tutti__embedding_args *args);

    /* linear_plan also ensures the scratch of both directions. */
    tutti_status (*linear_plan)(tutti_context *ctx, const tutti__linear_shape *shape,
                                tutti__linear_plan **plan);
    void (*linear_plan_destroy)(tutti__linear_plan *plan);
    tutti_status (*linear_forward)(tutti_context *ctx, const tutti__linear_args *args);
    tutti_status (*linear_backward)(tutti_context *ctx, const tutti__linear_args *args);

    /* norm of the gradients, skip decision, then the update and the working values */
    tutti_status (*adamw)(tutti_context *ctx, const tutti__adamw_args *args);
    tutti_status (*adamw_plan)(tutti_context *ctx, const tutti__adamw_args *args);

    /* of gradients; on any stream of the device */
    tutti_status (*tree_sum)(int device, tutti__stream stream, const tutti__tree_sum_args *args);

    /* *hash, on the device: the sum over i of mix(word i, i) modulo 2^64, which any order of adding gives */
    tutti_status (*hash)(tutti_context *ctx, const uint32_t *words, int64_t count, uint64_t *hash);

    /* dst[i] = src[i] converted; count elements of any float types, on the device */
    tutti_status (*convert)(tutti_context *ctx, void *dst, tutti_dtype dst_dtype, const void *src,
                            tutti_dtype src_dtype, int64_t count);
} tutti__operations;

typedef struct tutti__backend {
    const char *name;
    tutti_backend kind;
    tutti__runtime run;
    tutti__operations op;
} tutti__backend;

/* kernels/host and, where built, kernels/cuda define these. */
extern const tutti__backend tutti__host_backend;
#ifdef TUTTI_WITH_CUDA
extern const tutti__backend tutti__cuda_backend;
#endif

#ifdef __cplusplus
}
#endif
#endif
