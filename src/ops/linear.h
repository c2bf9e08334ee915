/* FusedLinear; include/tutti/linear.h has the mathematics. */
#ifndef TUTTI_OPS_LINEAR_H
#define TUTTI_OPS_LINEAR_H

#include "ops/gemm.h"

typedef struct tutti__linear_shape {
    int64_t rows, in, out;
    tutti_dtype dtype;
    tutti__activation activation;
    bool allow_tf32;
    bool recompute; /* backward has no z and computes it where it needs it */
} tutti__linear_shape;

typedef struct tutti__linear_args {
    tutti__linear_shape shape;
    tutti__matrix x;
    const void *weight, *bias; /* contiguous; bias is NULL if the layer has none */
    tutti__matrix y;           /* forward writes; backward reads unless it reads z or act is none */
    void *saved;               /* z, [rows, out] contiguous; NULL: not wanted */
    tutti__matrix dy, dx;      /* dx optional */
    void *dweight, *dbias;     /* optional, each; contiguous; f64 for f64, otherwise f32 */
    bool accumulate;
    /* rows of equal leaves; in_leaves: a leaf's bits are the same whatever is beside it.  Gradients
     * are those of each leaf, or, where their span is 2 instead of 1 (cuda), of leaves 2 i and
     * 2 i + 1, so many elements apart. */
    int leaves;
    bool in_leaves;
    int64_t dweight_apart, dbias_apart;
    int dweight_span, dbias_span;
    /* backward, cuda, each or NULL: partial sums of db that are there already; what computes dx,
     * and more, in the place of the product */
    float *dbias_partial;
    tutti_status (*form_dx)(tutti_context *ctx, const void *form_dx_args);
    const void *form_dx_args;
} tutti__linear_args;

static inline tutti__matrix tutti__linear_weight(const tutti__linear_args *args)
{
    const tutti__matrix weight = {(void *)args->weight, args->shape.dtype, args->shape.in};
    return weight;
}

/* Makes a product one of each leaf; a, b, c: elements from a leaf's matrix to the next one's, 0 of
 * one that all leaves share. */
static inline void tutti__linear_leaves(const tutti__linear_args *args, tutti__gemm *gemm,
                                        int64_t a, int64_t b, int64_t c)
{
    if (args->leaves == 1) return;
    gemm->batch[1] = args->leaves;
    gemm->a.apart[1] = a;
    gemm->b.apart[1] = b;
    gemm->c_apart[1] = c;
}

/* y = act(x W^T + bias) */
static inline tutti__gemm tutti__linear_y(const tutti__linear_args *args)
{
    const tutti__linear_shape *s = &args->shape;
    const tutti__matrix weight = tutti__linear_weight(args);
    const int64_t rows = s->rows / args->leaves;
    tutti__gemm gemm =
        tutti__gemm_of("linear", rows, s->out, s->in, &args->x, false, &weight, true, &args->y);
    tutti__linear_leaves(args, &gemm, rows * args->x.stride, 0, rows * args->y.stride);
    gemm.tf32 = s->allow_tf32;
    gemm.bias = args->bias;
    gemm.z = args->saved;
    gemm.activation = s->activation;
    return gemm;
}

static inline bool tutti__linear_recomputes(const tutti__linear_shape *shape)
{
    return shape->recompute && tutti__activation_wants_z(shape->activation.kind);
}

/* Forward's args for z = x W^T + bias, [rows, out] contiguous. */
static inline tutti__linear_args tutti__linear_again(const tutti__linear_args *args, void *z)
{
    tutti__linear_args again = *args;
    again.shape.activation.kind = TUTTI_ACT_NONE;
    again.saved = NULL;
    again.y.data = z;
    again.y.dtype = args->shape.dtype;
    again.y.stride = args->shape.out;
    return again;
}

/* dx = dz W */
static inline tutti__gemm tutti__linear_dx(const tutti__linear_args *args, const tutti__matrix *dz)
{
    const tutti__linear_shape *s = &args->shape;
    const tutti__matrix weight = tutti__linear_weight(args);
    const int64_t rows = s->rows / args->leaves;
    tutti__gemm gemm =
        tutti__gemm_of("linear", rows, s->in, s->out, dz, false, &weight, false, &args->dx);
    tutti__linear_leaves(args, &gemm, rows * dz->stride, 0, rows * args->dx.stride);
    gemm.tf32 = s->allow_tf32;
    return gemm;
}

/* dW (+)= dz^T x */
static inline tutti__gemm tutti__linear_dweight(const tutti__linear_args *args,
                                                const tutti__matrix *dz)
{
    const tutti__linear_shape *s = &args->shape;
    const tutti_dtype real = tutti__accumulate_dtype(s->dtype, s->dtype);
    const tutti__matrix dweight = {args->dweight, real, s->in};
    const int64_t rows = s->rows / args->leaves;
    tutti__gemm gemm =
        tutti__gemm_of("linear", s->out, s->in, rows, dz, true, &args->x, false, &dweight);
    tutti__linear_leaves(args, &gemm, rows * dz->stride, rows * args->x.stride,
                         args->dweight_apart);
    gemm.tf32 = s->allow_tf32;
    gemm.beta = args->accumulate;
    return gemm;
}

#endif
