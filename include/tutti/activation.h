/* The activations of layers, act(z):
 *
 * none          z                                    relu           max(z, 0), NaN stays, -0 is 0
 * leaky_relu    z > 0 ? z : slope z                  squared_relu   relu(z)^2
 * gelu          z/2 (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3)))       [Hendrycks & Gimpel 2016]
 * gelu_erf      z/2 (1 + erf(z / sqrt 2))            silu           z / (1 + exp(-z))
 * smelu         0 for z <= -beta, z for z >= beta, (z + beta)^2 / (4 beta) between
 *                                                                   [Shamir & Lin 2022]
 * star_relu     scale relu(z)^2 + bias               [Yu et al. 2022, "MetaFormer Baselines"]
 *
 * slope, beta (smelu_beta), scale and bias (star_scale, star_bias) are options of the layers.
 *
 * act'(0) is 0 for relu, squared_relu and star_relu, slope for leaky_relu, 1/2 for smelu.  A NaN in
 * z is a NaN in act and act', except act' of none.  At infinite z, act and act' have their limits:
 * for gelu, gelu_erf and silu -0 and 0 at -inf (where the formulas, and other libraries, give NaN),
 * inf and 1 at +inf.  gelu, gelu_erf and silu keep their accuracy for large negative z, down
 * to the arithmetic's smallest normal number. */
#ifndef TUTTI_ACTIVATION_H
#define TUTTI_ACTIVATION_H

#include "tutti/api.h"

TUTTI_BEGIN

/* Name, its text in options, what determines act': 'z', or 'y' where y = act(z) suffices, or 0. */
#define TUTTI_ACTIVATION_LIST(X)         \
    X(NONE, "none", 0)                   \
    X(RELU, "relu", 'y')                 \
    X(LEAKY_RELU, "leaky_relu", 'y')     \
    X(GELU, "gelu", 'z')                 \
    X(GELU_ERF, "gelu_erf", 'z')         \
    X(SQUARED_RELU, "squared_relu", 'y') \
    X(SILU, "silu", 'z')                 \
    X(SMELU, "smelu", 'z')               \
    X(STAR_RELU, "star_relu", 'z')

/* TUTTI_ACT_NONE, TUTTI_ACT_RELU, … */
typedef enum tutti_activation {
#define TUTTI_X(name, text, from) TUTTI_ACT_##name,
    TUTTI_ACTIVATION_LIST(TUTTI_X)
#undef TUTTI_X
    /* none, in a descriptor where 0 selects another default */
    TUTTI_ACT_ZERO = TUTTI_ZERO_INT32
} tutti_activation;

TUTTI_END
#endif
