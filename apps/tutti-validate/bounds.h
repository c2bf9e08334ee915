/* Bounds of rounding errors where a case gives none. */
#ifndef TUTTI_VALIDATE_BOUNDS_H
#define TUTTI_VALIDATE_BOUNDS_H

#include "subject.h"

/* Fills bounds, one entry a tensor of the case: an array of all its elements, for results that have no bound in the file.
 * alone: the results of all rows. */
int bounds_compute(const subject *s, void *const *alone, double **bounds);

#endif
