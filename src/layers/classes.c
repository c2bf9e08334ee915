/* The kinds of layer: one line each. */
#include "core/layer.h"

#define CLASSES(X)   \
    X(layernorm)     \
    X(rmsnorm)       \
    X(softmax)       \
    X(linear)        \
    X(cross_entropy) \
    X(embedding)     \
    X(dropout)

#define TUTTI_X(name) extern const tutti__layer_class tutti__##name##_class;
CLASSES(TUTTI_X)
#undef TUTTI_X

const tutti__layer_class *const tutti__layer_classes[] = {
#define TUTTI_X(name) &tutti__##name##_class,
    CLASSES(TUTTI_X)
#undef TUTTI_X
        NULL,
};
