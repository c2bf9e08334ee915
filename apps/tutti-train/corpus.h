/* A corpus: files, mapped one after another into one sequence of bytes, which may be larger than
 * memory. */
#ifndef TUTTI_TRAIN_CORPUS_H
#define TUTTI_TRAIN_CORPUS_H

#include <stdint.h>

#include "common/files.h"

/* the licence texts, present on every Debian */
#define CORPUS_FOLDER "/usr/share/common-licenses"

typedef struct corpus_file {
    const uint8_t *data;
    int64_t first, bytes; /* place in the sequence */
} corpus_file;

typedef struct corpus {
    corpus_file *files;
    int64_t count;
    int64_t bytes; /* of all files */
} corpus;

/* Maps the files in the order given.  A failure names the file: APP_FAILED.  On failure, here and
 * below, corpus_close cleans up.  The files must not shrink while they are mapped: reading beyond
 * the new end is a SIGBUS. */
int corpus_open(corpus *corpus, const char *const *paths, int64_t count);
/* The regular files of a folder in the order of their names' bytes; symbolic links are skipped. */
int corpus_open_folder(corpus *corpus, const char *folder);
void corpus_close(corpus *corpus);

/* Adds these files to the list, as far as they can be found. */
void corpus_list_folder(const char *folder, app_files *files);

/* Copies bytes first to first + count - 1, which must exist, across files' borders. */
void corpus_read(const corpus *corpus, int64_t first, int64_t count, uint8_t *bytes);

#endif
