/* What the library's checkpoints and tutti-validate's case files share: opening a file and checking
 * its format, HDF5's objects (hdf5.h), a file's structure (structure.h), and replacing a file
 * atomically (place.h).
 *
 * It is linked to both, so that none of it is exported; it calls no function of core and reports
 * through a table. */
#ifndef TUTTI_FILES_FILE_H
#define TUTTI_FILES_FILE_H

#include <stdio.h>

#include "core/internal.h"

/* Where failures and log lines go. */
typedef struct tutti__reporter {
    tutti_status (*fail)(tutti_status status, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
    void (*log)(tutti_log_level level, const char *format, ...)
        __attribute__((format(printf, 2, 3))); /* NULL: not logged */
} tutti__reporter;

/* A file format, named by the root's attributes format, format_version and complete. */
typedef struct tutti__format {
    const char *noun, *name; /* "case file", "tutti-cases" */
    int major, minor;
    bool says_complete; /* a file without the attribute complete is not */
} tutti__format;

typedef struct tutti__file {
    const tutti__reporter *reporter;
    const char *who, *path; /* for messages; path must outlive it */
    int fd;                 /* -1: not open */
    struct tutti__structure *structure;
} tutti__file;

/* Fails with "<who>: <path>: <text>". */
tutti_status tutti__file_fail(const tutti__file *file, tutti_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Opens a file, whose reporter, who and path are set, for reading, and reads its structure.
 * TUTTI_ERR_IO if it is missing or not a regular file; TUTTI_ERR_DATA if it is not of this format
 * and major version, or not complete.  To be closed in any case. */
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

/* Write or read all bytes at an offset.  Return 0, errno, or -1 if the file ends early. */
int tutti__write_at(int fd, const void *data, int64_t bytes, int64_t offset);
int tutti__read_at(int fd, void *data, int64_t bytes, int64_t offset);

#endif
