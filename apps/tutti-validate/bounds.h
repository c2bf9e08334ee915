/* Bounds of rounding errors that a case does not give, and references that it does not have,
 * computed by reference/. */
#ifndef TUTTI_VALIDATE_BOUNDS_H
#define TUTTI_VALIDATE_BOUNDS_H

#include "subject.h"

/* Fills `bounds`, one entry a tensor of the case: an array over its elements, for results without a
 * bound in the file; and `references` alike if the source has none.  Call it after the case was
 * run: its layer's parameters must be bound. */
int bounds_compute(const subject *s, double **bounds, double **references);

#endif
