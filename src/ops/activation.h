/* An activation with its parameters; include/tutti/linear.h has the mathematics. */
#ifndef TUTTI_OPS_ACTIVATION_H
#define TUTTI_OPS_ACTIVATION_H

#include <stdbool.h>

#include "tutti/linear.h"

typedef struct tutti__activation {
    tutti_activation kind;
    double slope; /* of leaky_relu */
} tutti__activation;

/* Whether act' must be computed from z, because y = act(z) does not determine it. */
static inline bool tutti__activation_wants_z(tutti_activation kind)
{
    return kind == TUTTI_ACT_GELU || kind == TUTTI_ACT_GELU_ERF || kind == TUTTI_ACT_SILU;
}

#endif
