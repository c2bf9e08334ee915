/* Damaging files by seeded random changes: bits flipped, numbers replaced, pieces moved, removed or
 * duplicated. */
#ifndef TESTS_IO_MUTATE_H
#define TESTS_IO_MUTATE_H

#include <stdint.h>

#include "harness.h"

/* HDF5's own checksum of metadata; NULL if this HDF5 does not export it. */
typedef uint32_t (*metadata_checksum)(const void *data, size_t length, uint32_t start);
metadata_checksum mutate_checksum(void);

/* The same tree, with its attributes, in a file of HDF5's first format, which has no checksums. */
void mutate_oldest(const char *from, const char *to);

/* Reads a damaged file; false after a failed CHECK.  *taken: it was accepted. */
typedef bool mutate_reader(const char *path, bool *taken);
/* Checks, for a reader, that the message names the refused file. */
bool mutate_refused(const char *message, const char *path);

/* Damages a good file in `share` percent of TUTTI_TEST_ROUNDS rounds and checks that each is read
 * quickly, with a status and little memory.  checksum: corrects HDF5's checksums, so that HDF5
 * accepts what it reads; NULL: does not. */
void mutate_run(const char *good, int share, metadata_checksum checksum, mutate_reader *read);

#endif
