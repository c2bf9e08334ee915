/* What tutti-validate says: the table, JSON, JUnit.  The work of rank 0; on the others every call
 * does nothing. */
#ifndef TUTTI_VALIDATE_REPORT_H
#define TUTTI_VALIDATE_REPORT_H

#include "common/output.h"
#include "compare.h"

typedef struct verdict {
    const tutti_case_tensor *tensor;
    finding found;
    const char *alone; /* how it was compared with one rank alone: "bits", "bound", "" */
} verdict;

/* The verdicts of a case. */
typedef struct outcome {
    const char *file;
    char name[TUTTI_CASE_NAME_MAX], layer[TUTTI_CASE_NAME_MAX];
    bool holds;
    double seconds;
    int count;
    verdict *verdicts;
} outcome;

typedef struct summary {
    int cases, wrong_cases, tensors, wrong_tensors;
    double *margins; /* bound / error of each tensor that has an error */
    int margin_count;
    outcome *outcomes;
    int room;
    app_output *json, *junit; /* NULL: not asked for */
} summary;

void report_head(const validator *v);
/* Lines of the table; the summary takes the outcome over. */
int report_case(const validator *v, summary *sum, const outcome *o);
void report_summary(const validator *v, summary *sum);
/* Files that were asked for: whether they can be written, before the work, and writing them. */
int report_open(const validator *v, summary *sum);
int report_files(const validator *v, summary *sum);
void report_drop(summary *sum);

/* --json and --junit; a file's faults are seen when it is closed. */
void report_json(FILE *file, const validator *v, const summary *sum);
void report_junit(FILE *file, const summary *sum);

/* "[3, 1]" of an element of a tensor. */
void report_index(const tutti_case_tensor *tensor, double index, char *text, size_t size);
/* One line on what is wrong with a tensor. */
void report_why(const verdict *d, char *text, size_t size);

#endif
