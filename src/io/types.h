/* The types of a file's tensors, for HDF5. */
#ifndef TUTTI_IO_TYPES_H
#define TUTTI_IO_TYPES_H

#include <hdf5.h>

#include "tutti/tensor.h"

/* The file's type of a dtype: little-endian; f16 and bf16 as float types of two bytes, so that every reader shows
 * numbers.  The caller closes it.  Negative if HDF5 fails. */
hid_t tutti__file_type_of(tutti_dtype dtype);

#endif
