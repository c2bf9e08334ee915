/* Comparing numbers over ranks. */
#ifndef TUTTI_COMM_AGREE_H
#define TUTTI_COMM_AGREE_H

#include "comm/comm.h"

/* Compares 64-bit numbers over ranks.  *differ: -1 if all are equal, otherwise the first index
 * where a rank differs from rank 0; ranks: the ranks that differ, "rank 2" or "ranks 1, 3". */
tutti_status tutti__comm_compare(tutti_comm *comm, const uint64_t *values, int count,
                                 const char *operation, int *differ, int *first_rank, char *ranks,
                                 size_t size);

/* Memory, zero, for what a rank learns of the others; the caller frees it.  Without it the rank
 * cannot take part, so it gives up the communicator, and the others do not wait. */
void *tutti__comm_room(tutti_comm *comm, size_t bytes, const char *operation);

/* *all: every rank's `mine` is true. */
tutti_status tutti__comm_all(tutti_comm *comm, bool mine, const char *operation, bool *all);

#endif
