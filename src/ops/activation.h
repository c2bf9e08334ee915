/* An activation with its constants; include/tutti/activation.h has the mathematics. */
#ifndef TUTTI_OPS_ACTIVATION_H
#define TUTTI_OPS_ACTIVATION_H

#include <stdbool.h>

#include "tutti/activation.h"

typedef struct tutti__activation {
    tutti_activation kind;
    double slope;      /* of leaky_relu */
    double smelu_beta; /* the rest too as in tutti_linear_desc */
    double star_scale, star_bias;
} tutti__activation;

/* Whether act' must be computed from z, because y = act(z) does not determine it. */
static inline bool tutti__activation_wants_z(tutti_activation kind)
{
#define TUTTI_X(name, text, from) from,
    static const char from[] = {TUTTI_ACTIVATION_LIST(TUTTI_X)};
#undef TUTTI_X
    return from[kind] == 'z';
}

#endif
