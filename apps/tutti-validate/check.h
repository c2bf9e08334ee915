/* Checks one case: runs it on all ranks together and on one alone, and compares. */
#ifndef TUTTI_VALIDATE_CHECK_H
#define TUTTI_VALIDATE_CHECK_H

#include "report.h"

/* The results of a case, one entry a tensor; NULL if that is not a result. */
typedef struct results {
    void **together, **alone; /* of this rank's rows; of all rows */
    double **bounds;          /* of all rows, where the file gives none */
    double **references;      /* of all rows, where there is no file */
} results;

/* Collective: all ranks return the same code, and the same outcome. */
int check_case(validator *v, const subject *s, const char *file, results *r, outcome *o);
int results_make(const subject *s, results *r);
void results_drop(const subject *s, results *r);

/* This rank's elements of a tensor: the first, and their number. */
void check_own(const validator *v, const subject *s, const tutti_case_tensor *tensor,
               int64_t *first, int64_t *count);

#endif
