/* FusedLinear; include/tutti/linear.h has the mathematics. */
#ifndef TUTTI_OPS_LINEAR_H
#define TUTTI_OPS_LINEAR_H

#include "ops/gemm.h"

typedef struct tutti__linear_shape {
    int64_t rows, in, out;
    tutti_dtype dtype;
    tutti__activation activation;
    bool allow_tf32;
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
} tutti__linear_args;

static inline tutti__matrix tutti__linear_weight(const tutti__linear_args *args)
{
    const tutti__matrix weight = {(void *)args->weight, args->shape.dtype, args->shape.in};
    return weight;
}

/* y = act(x W^T + bias) */
static inline tutti__gemm tutti__linear_y(const tutti__linear_args *args)
{
    const tutti__linear_shape *s = &args->shape;
    const tutti__matrix weight = tutti__linear_weight(args);
    tutti__gemm gemm =
        tutti__gemm_of("linear", s->rows, s->out, s->in, &args->x, false, &weight, true, &args->y);
    gemm.tf32 = s->allow_tf32;
    gemm.bias = args->bias;
    gemm.z = args->saved;
    gemm.activation = s->activation;
    return gemm;
}

/* dx = dz W */
static inline tutti__gemm tutti__linear_dx(const tutti__linear_args *args, const tutti__matrix *dz)
{
    const tutti__linear_shape *s = &args->shape;
    const tutti__matrix weight = tutti__linear_weight(args);
    tutti__gemm gemm =
        tutti__gemm_of("linear", s->rows, s->in, s->out, dz, false, &weight, false, &args->dx);
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
    tutti__gemm gemm =
        tutti__gemm_of("linear", s->out, s->in, s->rows, dz, true, &args->x, false, &dweight);
    gemm.tf32 = s->allow_tf32;
    gemm.beta = args->accumulate;
    return gemm;
}

#endif
