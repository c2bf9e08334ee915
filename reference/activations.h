/* act(z) and its derivative, with the errors of both. */
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

/* Sets a from the options "activation" and "slope"; false if there is no formula for the
 * activation.  dtype: of the layer's tensors. */
bool activation_take(activation *a, const reference_work *w, tutti_dtype dtype);

/* The error of storing a value in the layer's type: none if it is computed in that type. */
spread activation_rounding(const activation *a, real value);
/* act(z) before it is stored. */
inexact activation_apply(const activation *a, inexact z);
/* dy act'(z), before it may be stored.  y: as forward stored it, from which relu and its variants
 * take act'; NULL: from z. */
inexact activation_gradient(const activation *a, inexact z, const double *y, real dy);

#endif
