/* Checking one case: run it on all ranks together, run it on one alone, compare. */
#ifndef TUTTI_VALIDATE_CHECK_H
#define TUTTI_VALIDATE_CHECK_H

#include "report.h"

/* What came out of a case; one entry a tensor, NULL for what is no result. */
typedef struct results {
    void **together, **alone; /* of this rank's rows; of all rows */
    double **bounds;          /* of all rows, where the file gives none */
    double **references;      /* of all rows, where there is no file */
} results;

/* Collective: all ranks return the same code, and the same outcome. */
int check_case(validator *v, const subject *s, const char *file, results *r, outcome *o);
int results_make(const subject *s, results *r);
void results_drop(const subject *s, results *r);

/* Elements of a tensor that this rank has: the first, and how many. */
void check_own(const validator *v, const subject *s, const tutti_case_tensor *tensor,
               int64_t *first, int64_t *count);

#endif
