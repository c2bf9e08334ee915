/* The kinds of layer: one line each. */
#include "core/layer.h"

const tutti__layer_class *const tutti__layer_classes[] = {
    &tutti__layernorm_class,
    &tutti__rmsnorm_class,
    &tutti__softmax_class,
    &tutti__linear_class,
    &tutti__cross_entropy_class,
    &tutti__embedding_class,
    NULL,
};
