/* The operations, one line each: a backend's table has a tutti__op of each name, tutti__host_X and tutti__cuda_X.  One that a
 * backend lacks is all NULL there. */
#ifndef TUTTI_OPS_OPS_H
#define TUTTI_OPS_OPS_H

#define TUTTI__OPS(X) \
    X(norm)           \
    X(softmax)        \
    X(cross_entropy)  \
    X(embedding)      \
    X(linear)         \
    X(dropout)        \
    X(adamw)

#endif
