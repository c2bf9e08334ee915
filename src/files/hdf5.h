/* Making HDF5's objects, for files whose bytes depend on nothing but what is put into them. */
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

/* What follows is negative or false if HDF5 fails. */

/* The file that fd has open, whatever is at its name by now: created, or opened again.  What has
 * 512 bytes or more begins at a multiple of the alignment.  The caller closes it. */
hid_t tutti__hdf5_file(int fd, bool create, int alignment);
/* Attributes of the root of a new file, which is not complete yet; that it is. */
bool tutti__hdf5_begin(hid_t file, const tutti__format *format);
bool tutti__hdf5_complete(hid_t file);

/* The file's type of a dtype: little-endian; f16 and bf16 as float types of two bytes, so that
 * every reader shows numbers.  Of a text of so many bytes: at least one, without its 0.  The caller
 * closes both. */
hid_t tutti__hdf5_type(tutti_dtype dtype);
hid_t tutti__hdf5_text_type(size_t bytes);

/* The groups that a path leads through, where they are not there yet. */
bool tutti__hdf5_groups(hid_t file, const char *path);
/* A dataset in one piece, with its place in the file, and the groups above it; ndim 0: one value.
 * The caller closes it. */
hid_t tutti__hdf5_dataset(hid_t file, const char *path, hid_t type, int ndim, const int64_t *dims);

/* A new attribute of count values; one is a scalar. */
bool tutti__hdf5_attribute(hid_t object, const char *name, hid_t type, int count, const void *data);
bool tutti__hdf5_text(hid_t object, const char *name, const char *text);
/* Gives an attribute of the object at a path another value. */
bool tutti__hdf5_set(hid_t file, const char *path, const char *name, hid_t type, const void *data);

#endif
