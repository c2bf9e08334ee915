/* Inside of case files.
 *
 *   cases.c         opening: what the file holds, against what a case file may hold
 *   cases_check.c   a case and its tensors
 *   cases_read.c    rows of a tensor
 *   cases_write.c   files of one's own */
#ifndef TUTTI_IO_CASES_H
#define TUTTI_IO_CASES_H

#include "io/structure.h"
#include "tutti/cases.h"

#define TUTTI__CASES_MAJOR 1
#define TUTTI__CASES_MINOR 0

struct tutti_cases {
    char *path;
    int fd;
    tutti__structure *structure;
    tutti_case *cases;
    int count;
    tutti_case_tensor *tensors; /* of all cases */
    const tutti__node **nodes;  /* one a tensor */
    int tensor_count;
};

/* 1 to 63 letters, digits, - _ and . */
bool tutti__case_name_ok(const char *name);
/* -1: no such part. */
int tutti__case_part_parse(const char *name, size_t length);
bool tutti__case_is_expected(tutti_case_part part);

/* Fills in a case from its group's attributes. */
tutti_status tutti__case_from(const tutti_cases *cases, const tutti__node *node, tutti_case *which);
/* Fills in a tensor. */
tutti_status tutti__case_tensor_from(const tutti_cases *cases, const tutti__node *node,
                                     tutti_case_part part, tutti_case_tensor *tensor);
/* The case as a whole, once its tensors are there. */
tutti_status tutti__case_complete(const tutti_cases *cases, tutti_case *which);

#endif
