/* Bounds of rounding errors where a case gives none, and what is right where it has no
 * reference: from reference/. */
#ifndef TUTTI_VALIDATE_BOUNDS_H
#define TUTTI_VALIDATE_BOUNDS_H

#include "subject.h"

/* Fills bounds, one entry a tensor of the case: an array of all its elements, for results that
 * have no bound in the file. The same for references, if the source has none.  The case has been
 * run: its layer's parameters are bound. */
int bounds_compute(const subject *s, double **bounds, double **references);

#endif
