/* The files of Tutti's formats, as the library's checkpoints and tutti-validate's cases share them:
 * opening one and checking what it says of itself, HDF5's objects (hdf5.h), what a file holds
 * (structure.h), and a new file's way to its place (place.h).
 *
 * Linked to both, so that nothing of it is exported: it calls none of core's functions, and reports
 * through a table. */
#ifndef TUTTI_FILES_FILE_H
#define TUTTI_FILES_FILE_H

#include <stdio.h>

#include "core/internal.h"

/* How a failure is kept for whoever asks, and a line of debugging logged. */
typedef struct tutti__reporter {
    tutti_status (*fail)(tutti_status status, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
    void (*log)(tutti_log_level level, const char *format, ...)
        __attribute__((format(printf, 2, 3))); /* NULL: nobody listens */
} tutti__reporter;

/* A format, as a file's root names it by the attributes format, format_version and complete. */
typedef struct tutti__format {
    const char *noun, *name; /* "case file", "tutti-cases" */
    int major, minor;
    bool says_complete; /* every file does; otherwise one that says nothing is complete, too */
} tutti__format;

typedef struct tutti__file {
    const tutti__reporter *reporter;
    const char *who, *path; /* of messages; path outlives it */
    int fd;                 /* -1: not open */
    struct tutti__structure *structure;
} tutti__file;

/* Fails with "<who>: <path>: <text>". */
tutti_status tutti__file_fail(const tutti__file *file, tutti_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Opens a file for reading, of which reporter, who and path are set, and takes in its structure.
 * TUTTI_ERR_IO: it is not there or no regular file; TUTTI_ERR_DATA: not of this format and its
 * major version, or not complete.  To be closed in any case. */
tutti_status tutti__file_open(tutti__file *file, const tutti__format *format);
void tutti__file_close(tutti__file *file);

/* Writes "[3, 4]". */
static inline void tutti__shape_text(char *text, size_t size, int ndim, const int64_t *dims)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < ndim && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i > 0 ? ", " : "",
                                 (long long)dims[i]);
    if (used < size) snprintf(text + used, size - used, "]");
}

/* The whole of it, at an offset.  0, errno, or -1 if the file ends early. */
int tutti__write_at(int fd, const void *data, int64_t bytes, int64_t offset);
int tutti__read_at(int fd, void *data, int64_t bytes, int64_t offset);

#endif
