/* FusedLinear; include/tutti/linear.h has the mathematics. */
#ifndef TUTTI_OPS_LINEAR_H
#define TUTTI_OPS_LINEAR_H

#include "core/op.h"
#include "ops/activation.h"

typedef struct tutti__linear_shape {
    int64_t rows, in, out;
    tutti_dtype dtype;
    tutti__activation activation;
    bool has_bias, allow_tf32;
} tutti__linear_shape;

typedef struct tutti__linear_args {
    tutti__linear_shape shape;
    tutti__matrix x;
    const void *weight, *bias; /* weight is contiguous */
    tutti__matrix y;       /* forward writes; backward reads for relu, leaky_relu, squared_relu */
    void *saved;           /* z, [rows, out] contiguous; NULL: not wanted */
    tutti__matrix dy, dx;  /* dx optional */
    void *dweight, *dbias; /* optional, each; contiguous; f64 for f64, otherwise f32 */
    bool accumulate;
} tutti__linear_args;

#endif
