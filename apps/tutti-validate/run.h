/* Running a case, or some of its rows, on this rank. */
#ifndef TUTTI_VALIDATE_RUN_H
#define TUTTI_VALIDATE_RUN_H

#include "subject.h"

typedef struct run_plan {
    int64_t first, count; /* rows */
    int64_t cut;          /* rows of the first call, the others are in a second one; 0: one call */
    bool exchange;        /* gradients and sums over rows are summed over all ranks: collective */
    bool probe;           /* no rows: the layer checks types and shapes, nothing is read */
} run_plan;

/* Results, one a tensor of the case (NULL for what is no result): host memory, in the tensor's
 * type, of these rows or, where it has no rows, whole.  results NULL: none wanted.  With exchange
 * all ranks return the same code. */
int run_case(validator *v, const subject *s, const run_plan *plan, void **results);
/* Frees what is in results. */
void run_free(const subject *s, void **results);

/* Rows of a rank: those before begin at rank r.  Uneven on purpose: rank r has r + 1 parts of
 * them. */
int64_t run_share(int64_t rows, int rank, int world_size);

#endif
