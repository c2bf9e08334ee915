/* How messages write types and shapes. */
#ifndef TUTTI_CORE_TEXT_H
#define TUTTI_CORE_TEXT_H

#include "tutti/tensor.h"

/* What "x is" goes on with: the type's name, or that none was set. */
const char *tutti__dtype_text(tutti_dtype dtype);

#define TUTTI__DIMS_TEXT 96
/* Writes "[2, 3]", or that the number of dimensions is invalid, and returns text. */
const char *tutti__dims_text(const tutti_tensor *tensor, char text[TUTTI__DIMS_TEXT]);

#endif
