/* Shared by layers with an activation: rows of their tables, and checks beyond these. */
#ifndef TUTTI_LAYERS_ACTIVATION_H
#define TUTTI_LAYERS_ACTIVATION_H

#include "core/layer.h"
#include "ops/activation.h"

#define TUTTI__ACTIVATIONS "none|relu|leaky_relu|gelu|gelu_erf|squared_relu|silu"
#define TUTTI__ACTIVATION_OPTIONS(desc)                                           \
    {"activation", TUTTI__ACTIVATIONS, "none", offsetof(desc, activation), 0, 0}, \
    {                                                                             \
        "slope", "real", "0.01", offsetof(desc, slope), 0, 0                      \
    }

static inline tutti_status tutti__activation_check(const char *name, tutti__activation activation)
{
    TUTTI_REQUIRE(activation.kind != TUTTI_ACT_LEAKY_RELU || activation.slope > 0,
                  "%s: slope is %g, want > 0", name, activation.slope);
    return TUTTI_OK;
}

#endif
