/* Making HDF5's objects, for files whose bytes depend only on their content. */
#ifndef TUTTI_FILES_HDF5_H
#define TUTTI_FILES_HDF5_H

#include <hdf5.h>

#include "files/file.h"

/* HDF5's messages go to stderr unless told otherwise: the library never prints. */
typedef struct tutti__hush {
    H5E_auto2_t print;
    void *data;
} tutti__hush;
tutti__hush tutti__hdf5_hush(void);
void tutti__hdf5_unhush(tutti__hush before);

/* The functions below return a negative value or false if HDF5 fails. */

/* Creates or opens an HDF5 file in fd, whatever its name now refers to.  Objects of 512 bytes or
 * more are aligned.  The caller closes it. */
hid_t tutti__hdf5_file(int fd, bool create, int alignment);
/* begin writes the root's attributes of a new, incomplete file; complete marks it as complete. */
bool tutti__hdf5_begin(hid_t file, const tutti__format *format);
bool tutti__hdf5_complete(hid_t file);

/* The file's type of a dtype: little-endian; f16 and bf16 as two-byte float types, so that every
 * reader shows numbers.  text_type: of a text of `bytes` >= 1 bytes, without its 0.  The caller
 * closes both. */
hid_t tutti__hdf5_type(tutti_dtype dtype);
hid_t tutti__hdf5_text_type(size_t bytes);

/* Creates the missing groups of a path. */
bool tutti__hdf5_groups(hid_t file, const char *path);
/* Creates a contiguous dataset, with its space in the file, and the groups above it; ndim 0: one
 * value.  The caller closes it. */
hid_t tutti__hdf5_dataset(hid_t file, const char *path, hid_t type, int ndim, const int64_t *dims);

/* Creates an attribute of count values, a scalar if count is 1. */
bool tutti__hdf5_attribute(hid_t object, const char *name, hid_t type, int count, const void *data);
bool tutti__hdf5_text(hid_t object, const char *name, const char *text);
/* Overwrites an attribute of the object at a path. */
bool tutti__hdf5_set(hid_t file, const char *path, const char *name, hid_t type, const void *data);

#endif
