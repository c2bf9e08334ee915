/* Spoiling files, again and again, by seeded random changes: bits flipped, numbers put in, pieces
 * moved, cut out, doubled. */
#ifndef TESTS_IO_MUTATE_H
#define TESTS_IO_MUTATE_H

#include <stdint.h>

#include "harness.h"

/* HDF5's own checksum of metadata, where the library lets it be seen; NULL where not. */
typedef uint32_t (*metadata_checksum)(const void *data, size_t length, uint32_t start);
metadata_checksum mutate_checksum(void);

/* The same tree, with its attributes, in a file of HDF5's first format, which has no checksums. */
void mutate_oldest(const char *from, const char *to);

/* Reads a spoilt file; false after a failed CHECK.  *taken: it was found to be good. */
typedef bool mutate_reader(const char *path, bool *taken);
/* For a reader: the message of a file that was refused names it. */
bool mutate_refused(const char *message, const char *path);

/* Spoils a good file TUTTI_TEST_ROUNDS times and has each read: soon, with a status, and without
 * much memory.  share: of these rounds, in percent.  checksum: makes HDF5's checksums right again,
 * so that it believes what it reads; NULL: does not. */
void mutate_run(const char *good, int share, metadata_checksum checksum, mutate_reader *read);

#endif
