/* The operations and the kinds of layer, one line each. */
#ifndef TUTTI_OPS_OPS_H
#define TUTTI_OPS_OPS_H

/* A backend's table has a tutti__op of each name, tutti__host_X and tutti__cuda_X; its functions
 * are NULL if the backend lacks it. */
#define TUTTI__OPS(X) \
    X(norm)           \
    X(softmax)        \
    X(cross_entropy)  \
    X(embedding)      \
    X(linear)         \
    X(mlp)            \
    X(matmul)         \
    X(dropout)        \
    X(glu)            \
    X(rope)           \
    X(loss)           \
    X(squares)        \
    X(update)         \
    X(grad_norm)      \
    X(apply)

/* tutti__X_class in layers/X.c; the kind's name in tutti_layer_create_by_name. */
#define TUTTI__KINDS(X) \
    X(layernorm)        \
    X(rmsnorm)          \
    X(softmax)          \
    X(linear)           \
    X(mlp)              \
    X(matmul)           \
    X(cross_entropy)    \
    X(embedding)        \
    X(dropout)          \
    X(glu)              \
    X(rope)             \
    X(mse)              \
    X(bce_with_logits)

#endif
