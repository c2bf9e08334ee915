/* GLU; include/tutti/glu.h has the mathematics. */
#ifndef TUTTI_OPS_GLU_H
#define TUTTI_OPS_GLU_H

#include "core/op.h"
#include "ops/activation.h"

typedef struct tutti__glu_args {
    int64_t rows, cols;
    tutti_dtype dtype;
    tutti__activation activation;
    tutti__matrix a, b;
    tutti__matrix y;  /* forward */
    tutti__matrix dy; /* backward; the rest optional, each: */
    tutti__matrix da; /* may be dy or a */
    tutti__matrix db; /* may be dy or b */
} tutti__glu_args;

#endif
