/* The output of tutti-validate: the table, JSON, JUnit.  Only rank 0 writes. */
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
/* Prints lines of the table; the summary takes ownership of the outcome. */
int report_case(const validator *v, summary *sum, const outcome *o);
void report_summary(const validator *v, summary *sum);
/* Checks before the work that the requested files can be written; writes them. */
int report_open(const validator *v, summary *sum);
int report_files(const validator *v, summary *sum);
void report_drop(summary *sum);

/* --json and --junit; write errors are reported when the file is closed. */
void report_json(FILE *file, const validator *v, const summary *sum);
void report_junit(FILE *file, const summary *sum);

/* Prints an element's index: "[3,1]". */
void report_index(const tutti_case_tensor *tensor, double index, char *text, size_t size);
/* One line on what is wrong with a tensor. */
void report_why(const verdict *d, char *text, size_t size);

#endif
