/* --emit and --record: results in an HDF5 file that rank 0 writes. */
#ifndef TUTTI_VALIDATE_RESULTS_FILE_H
#define TUTTI_VALIDATE_RESULTS_FILE_H

#include "check.h"

typedef struct results_file {
    const char *path; /* NULL: not asked for */
    bool records;     /* a case file of results; otherwise differences of what failed */
    tutti_cases_writer *writer;
} results_file;

/* All collective.  path NULL: all of them do nothing. */
int results_file_open(results_file *f, validator *v, const char *path, const char *format);
int results_file_add(results_file *f, validator *v, const subject *s, const results *r,
                     const outcome *o);
/* keep: otherwise nothing is left behind. */
int results_file_finish(results_file *f, validator *v, bool keep);
void results_file_drop(results_file *f);

#endif
