/* act(z) and its derivative, with the errors of both. */
#ifndef TUTTI_REFERENCE_ACTIVATIONS_H
#define TUTTI_REFERENCE_ACTIVATIONS_H

#include "kind.h"
#include "tutti/activation.h"

/* A number and its error. */
typedef struct inexact {
    real value;
    spread error;
} inexact;

/* ACTIVATION_NONE, ACTIVATION_RELU, … */
typedef enum activation_kind {
#define KIND(name, text, from) ACTIVATION_##name,
    TUTTI_ACTIVATION_LIST(KIND)
#undef KIND
        ACTIVATION_KINDS
} activation_kind;

typedef struct activation {
    activation_kind kind;
    real slope, beta, scale, bias, u;
    tutti_dtype dtype, computed; /* of the layer's tensors, of the arithmetic */
    bool from_z; /* of a layer whose act' is computed from z, even where y would do */
    bool fast;   /* a GPU may take functions for 16-bit types; of a layer that does not round z */
} activation;

/* Sets a from the layer's options, from_z and fast to false; false if there is no formula for the
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
