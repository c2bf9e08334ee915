/* What a layer does after its sum z: act, its derivative, and the errors of both. */
#ifndef TUTTI_REFERENCE_ACTIVATIONS_H
#define TUTTI_REFERENCE_ACTIVATIONS_H

#include "kind.h"

/* A number and its error. */
typedef struct inexact {
    real value;
    spread error;
} inexact;

typedef enum activation_kind {
    ACTIVATION_NONE,
    ACTIVATION_RELU,
    ACTIVATION_LEAKY_RELU,
    ACTIVATION_GELU,
    ACTIVATION_GELU_ERF,
    ACTIVATION_SQUARED_RELU,
    ACTIVATION_SILU,
    ACTIVATION_KINDS
} activation_kind;

typedef struct activation {
    activation_kind kind;
    real slope, u;
    tutti_dtype dtype, computed; /* of the layer's tensors, of the arithmetic */
} activation;

/* From the options "activation" and "slope"; false: of this activation no formula is known.
 * dtype: of the layer's tensors. */
bool activation_take(activation *a, const reference_work *w, tutti_dtype dtype);

/* What storing a value in the type adds: nothing where it is computed in it. */
spread activation_rounding(const activation *a, real value);
/* act(z) before it is stored. */
inexact activation_apply(const activation *a, inexact z);
/* dy act'(z), before it is stored if at all.  y: as forward stored it, which relu and its kin go
 * by; NULL: from z. */
inexact activation_gradient(const activation *a, inexact z, const double *y, real dy);

#endif
