/* Embedding; include/tutti/embedding.h has the mathematics. */
#ifndef TUTTI_OPS_EMBEDDING_H
#define TUTTI_OPS_EMBEDDING_H

#include "core/op.h"

typedef struct tutti__embedding_args {
    int64_t rows, vocab, cols;
    tutti_dtype dtype;
    const int32_t *tokens;
    const void *weight; /* forward; contiguous */
    tutti__matrix y;    /* forward */
    tutti__matrix dy;   /* backward */
    void *dweight;      /* backward; contiguous; f64 for f64, otherwise f32 */
    bool accumulate;
    int32_t finding; /* the code for findings: a row with its token */
} tutti__embedding_args;

#endif
