/* Softmax and log-softmax; include/tutti/softmax.h has the mathematics. */
#ifndef TUTTI_OPS_SOFTMAX_H
#define TUTTI_OPS_SOFTMAX_H

#include "core/op.h"

typedef struct tutti__softmax_args {
    int64_t rows, cols;
    tutti_dtype dtype;
    bool log;
    double scale;
    /* Exponents are (lead x - max lead x) size, with lead size = scale: the difference first, which
     * is exactly 0 for the largest.  lead has scale's sign; its magnitude is 1, or 1/2 if |scale| <
     * 1, so that no difference overflows whose product with scale is in range. */
    double lead, size;
    int64_t causal_period; /* 0: none */
    int64_t first_row;
    tutti__matrix x;        /* forward */
    const int32_t *lengths; /* optional */
    tutti__matrix bias;     /* forward; optional: then exponents are scale x + bias - its max */
    int64_t bias_period;    /* row i has the bias of row i mod this */
    tutti__matrix y;        /* forward writes, backward reads; may be x */
    tutti__matrix dy, dx;   /* backward; dx may be dy */
    tutti__matrix dbias;    /* backward; optional */
    int32_t finding;        /* the code for findings: a row with its length */
} tutti__softmax_args;

#endif
