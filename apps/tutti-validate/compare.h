/* Compares results with the expected ones, and with those of one rank alone. */
#ifndef TUTTI_VALIDATE_COMPARE_H
#define TUTTI_VALIDATE_COMPARE_H

#include "subject.h"

/* The comparison of a tensor, of one rank or of all.  All members are doubles, so that ranks gather
 * findings as arrays. */
typedef struct finding {
    double elements;
    double abs, rel, ulp; /* largest absolute and relative error, and in ulp */
    double wrong;         /* elements beyond their bound */
    double ratio;         /* largest error / bound */
    double index, rank, actual, expected, bound; /* of that element; index in the whole tensor */
    double differing; /* elements that differ from those of one rank alone */
    double differ_index, differ_rank, differ_actual, differ_alone;
} finding;
enum { FINDING_NUMBERS = sizeof(finding) / sizeof(double) };

bool finding_holds(const finding *f);

/* A part of a tensor: elements [first, first + count). */
typedef struct part {
    const tutti_case_tensor *tensor;
    int64_t first, count;
    int rank;
    const double *actual;   /* of this part */
    const double *expected; /* of this part */
    const double *alone;    /* of this part, as one rank alone computes it */
    const double *bounds;   /* of this part; NULL: the tensor's own */
    bool same_bits;         /* actual and alone must be equal; otherwise within twice the bound */
} part;

/* Sets an empty finding. */
void compare_start(finding *f);
void compare_part(const part *p, finding *f);
/* Adds the finding of another part or rank.  replicated: it is of the same elements. */
void compare_merge(finding *f, const finding *other, bool replicated);

#endif
