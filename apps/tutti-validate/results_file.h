/* --emit and --record: results in an HDF5 file that rank 0 writes. */
#ifndef TUTTI_VALIDATE_RESULTS_FILE_H
#define TUTTI_VALIDATE_RESULTS_FILE_H

#include "check.h"

typedef struct results_file {
    const char *path; /* NULL: not requested */
    bool records;     /* a case file of results; otherwise differences of those that failed */
    tutti_cases_writer *writer;
} results_file;

/* All but results_file_drop are collective, and do nothing if path is NULL. */
int results_file_open(results_file *f, validator *v, const char *path, const char *format);
int results_file_add(results_file *f, validator *v, const subject *s, const results *r,
                     const outcome *o);
/* keep: false leaves no file behind. */
int results_file_finish(results_file *f, validator *v, bool keep);
void results_file_drop(results_file *f);

#endif
