/* Runs a case, or some of its rows, on this rank. */
#ifndef TUTTI_VALIDATE_RUN_H
#define TUTTI_VALIDATE_RUN_H

#include "subject.h"

typedef struct run_plan {
    int64_t first, count; /* rows */
    int64_t cut;          /* rows of the first of two calls; 0: one call */
    bool exchange;        /* sum gradients and sums over rows over all ranks: collective */
    bool probe;           /* no rows: the layer checks types and shapes, nothing is read */
} run_plan;

/* results: one entry a tensor of the case (NULL if it is not a result), in host memory and the
 * tensor's type, with these rows or, if it has no rows, whole.  NULL: not wanted.  With exchange
 * all ranks return the same code. */
int run_case(validator *v, const subject *s, const run_plan *plan, void **results);
/* Frees the entries of results. */
void run_free(const subject *s, void **results);

/* The first row of a rank.  Uneven on purpose: rank r has r + 1 parts of the rows. */
int64_t run_share(int64_t rows, int rank, int world_size);

#endif
