/* Shared by layers with an activation: rows of their tables, checks beyond these, and what their
 * operations get. */
#ifndef TUTTI_LAYERS_ACTIVATION_H
#define TUTTI_LAYERS_ACTIVATION_H

#include <math.h>

#include "core/layer.h"
#include "ops/activation.h"

/* "none|relu|…" without the | that the list begins with. */
#define TUTTI__ACTIVATION_TEXT(name, text, from) "|" text
#define TUTTI__ACTIVATIONS &(TUTTI_ACTIVATION_LIST(TUTTI__ACTIVATION_TEXT))[1]

/* standard: what 0 selects. */
#define TUTTI__ACTIVATION_OPTIONS(desc, standard)                                   \
    {"activation", TUTTI__ACTIVATIONS, standard, offsetof(desc, activation), 0, 0}, \
        {"slope", "real", "0.01", offsetof(desc, slope), 0, 0},                     \
        {"smelu_beta", "real", "2", offsetof(desc, smelu_beta), 0, 0},              \
        {"star_scale", "real", "0.8944", offsetof(desc, star_scale), 0, 0},         \
    {                                                                               \
        "star_bias", "real", "-0.4472", offsetof(desc, star_bias), 0, 0             \
    }

/* A descriptor's activation. */
#define TUTTI__ACTIVATION_OF(desc)                                              \
    ((tutti__activation){(desc)->activation, (desc)->slope, (desc)->smelu_beta, \
                         (desc)->star_scale, (desc)->star_bias})

static inline tutti_status tutti__activation_check(const char *name, tutti_dtype dtype,
                                                   tutti__activation activation)
{
    const bool star = activation.kind == TUTTI_ACT_STAR_RELU, wide = dtype == TUTTI_F64;
    const double scale = wide ? activation.star_scale : (float)activation.star_scale;
    const double bias = wide ? activation.star_bias : (float)activation.star_bias;
    TUTTI_REQUIRE(activation.kind != TUTTI_ACT_LEAKY_RELU || activation.slope > 0,
                  "%s: slope is %g, want > 0", name, activation.slope);
    TUTTI_REQUIRE(activation.kind != TUTTI_ACT_SMELU ||
                      (activation.smelu_beta >= 1e-30 && activation.smelu_beta <= 1e30),
                  "%s: smelu_beta is %g, want 1e-30 to 1e30", name, activation.smelu_beta);
    TUTTI_REQUIRE(!star || (isfinite(scale) && scale != 0),
                  "%s: star_scale is %g, want finite and not 0 in the arithmetic, %s", name,
                  activation.star_scale, wide ? "f64" : "f32");
    TUTTI_REQUIRE(!star || isfinite(bias), "%s: star_bias is %g, want finite in the arithmetic, %s",
                  name, activation.star_bias, wide ? "f64" : "f32");
    return TUTTI_OK;
}

#endif
