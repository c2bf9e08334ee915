/* Comparing results: with what is expected, and with the same computed by one rank alone. */
#ifndef TUTTI_VALIDATE_COMPARE_H
#define TUTTI_VALIDATE_COMPARE_H

#include "subject.h"

/* What was found in a tensor, by one rank or by all.  All numbers are f64: ranks gather findings as
 * arrays of them. */
typedef struct finding {
    double elements;
    double abs, rel, ulp; /* the worst of each error */
    double wrong;         /* elements beyond their bound */
    double load;          /* error / bound at the worst element, where that is largest */
    double index, rank, actual, expected, bound; /* of that element; index in the whole tensor */
    double differing; /* elements that are not what one rank alone computes */
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
    bool same_bits;         /* actual and alone are to be equal; otherwise within twice the bound */
} part;

/* Nothing found yet. */
void compare_start(finding *f);
void compare_part(const part *p, finding *f);
/* Takes the finding of another part in, or another rank's.  replicated: of the very same
 * elements. */
void compare_merge(finding *f, const finding *other, bool replicated);

/* Distance between neighbouring numbers of a type at a value. */
double compare_ulp(tutti_dtype dtype, double value);

#endif
