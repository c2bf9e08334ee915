/* Internals of case files.
 *
 *   part.c    parts and names
 *   open.c    opening, and checking the file's structure
 *   check.c   checking a case and its tensors
 *   read.c    reading rows of a tensor
 *   write.c   writing
 *   none.c    replaces all but part.c in builds without HDF5 */
#ifndef TUTTI_VALIDATE_CASES_INSIDE_H
#define TUTTI_VALIDATE_CASES_INSIDE_H

#include "cases.h"
#include "common/exit_code.h"
#include "common/report.h"
#include "files/structure.h"

/* The exit code of a helper's status, whose message cases_reporter has kept. */
int cases_code(tutti_status status);
extern const tutti__reporter cases_reporter;
extern const tutti__format cases_format;

/* Fails with a message after the file's name. */
#define CASES_REFUSE(cases, ...) \
    return cases_code(tutti__file_fail(&(cases)->file, TUTTI_ERR_DATA, __VA_ARGS__))

struct tutti_cases {
    tutti__file file;
    tutti_case *cases;
    int count;
    tutti_case_tensor *tensors; /* of all cases */
    const tutti__node **nodes;  /* one a tensor */
    int tensor_count;
};

/* 1 to 63 letters, digits, - _ and . (not first) */
bool case_name_ok(const char *name);
/* -1: no such part. */
int case_part_parse(const char *name, size_t length);
bool case_is_expected(tutti_case_part part);

/* Fills in a case from its group's attributes. */
int case_from(const tutti_cases *cases, const tutti__node *node, tutti_case *test_case);
/* Fills in a tensor. */
int case_tensor_from(const tutti_cases *cases, const tutti__node *node, tutti_case_part part,
                     tutti_case_tensor *tensor);
/* Checks the case as a whole, once its tensors are filled in. */
int case_complete(const tutti_cases *cases, tutti_case *test_case);

#endif
