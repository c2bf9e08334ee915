/* LayerNorm and RMSNorm share one operation; RMSNorm omits the mean and beta.  Its descriptor and
 * its parameters are the beginning of LayerNorm's. */
#ifndef TUTTI_LAYERS_NORM_H
#define TUTTI_LAYERS_NORM_H

#include <float.h>

#include "core/layer.h"
#include "ops/norm.h"
#include "tutti/rmsnorm.h"

#define TUTTI__NORM_OPTIONS(desc, eps_default)                              \
    {"cols", "int", NULL, offsetof(desc, cols), 1, 1 << 20},                \
        {"eps", "real", eps_default, offsetof(desc, eps), 0, DBL_MAX},      \
        {"x_dtype", "dtype", "f32", offsetof(desc, x_dtype), 0, 0},         \
        {"param_dtype", "dtype", "f32", offsetof(desc, param_dtype), 0, 0}, \
        {"y_dtype", "dtype", "x_dtype", offsetof(desc, y_dtype), 0, 0},     \
        {"no_gamma", "bool", "0", offsetof(desc, no_gamma), 0, 0},          \
    {                                                                       \
        "zero_centered", "bool", "0", offsetof(desc, zero_centered), 0, 0   \
    }

#define TUTTI__NORM_SLOTS                                                                        \
    TUTTI__IN("x", .cols = "cols", .dtype = "x_dtype", .flags = TUTTI__READ_GRAD,                \
              .grad_may_be = "dy dsum"),                                                         \
        TUTTI__IN("residual", .cols = "cols", .dtype = "x_dtype", .flags = TUTTI_SLOT_OPTIONAL), \
        TUTTI__OUT("y", .cols = "cols", .dtype = "y_dtype", .flags = TUTTI_SLOT_GRAD,            \
                   .may_be = "x residual"),                                                      \
        TUTTI__OUT("sum", .cols = "cols", .dtype = "x_dtype",                                    \
                   .flags = TUTTI_SLOT_OPTIONAL | TUTTI_SLOT_GRAD | TUTTI_SLOT_GRAD_OPTIONAL,    \
                   .with = "residual", .grad_with = "dx", .may_be = "x residual", .replaces = "x")

#define TUTTI__NORM_GAMMA                                                               \
    {                                                                                   \
        .name = "gamma", .dims = {"cols"}, .dtype = "param_dtype", .unless = "no_gamma" \
    }

extern const tutti__layer_class tutti__layernorm_class;

/* Entries of both classes. */
tutti_status tutti__norm_check(const char *name, const void *desc);
void tutti__norm_finish(tutti_layer *layer);
void tutti__norm_fill(const tutti_layer *layer, const tutti__views *views, void *args);

#endif
