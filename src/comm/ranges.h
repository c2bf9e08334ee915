/* How the gradients of a list of parameters are cut into ranges of memory that go out together. */
#ifndef TUTTI_COMM_RANGES_H
#define TUTTI_COMM_RANGES_H

#include "core/params.h"

/* One gradient buffer, which several (tied) parameters may share. */
typedef struct tutti__gradient {
    const tutti_param *param; /* names it in messages */
    char *data;
    int64_t count;
    tutti_dtype dtype;
    int users;                   /* parameters that share it */
    int first_range, last_range; /* that contain it */
    char *leaves; /* if shared: a run's, kept apart until the last user has added to each */
    int given;    /* users whose leaves are there, in a run of several */
} tutti__gradient;

typedef struct tutti__range {
    char *data;
    int64_t count;
    tutti_dtype dtype;
    int gradients;     /* that overlap it */
    int last_gradient; /* the last of these to be finished */
    bool whole;        /* of a sharded store: nothing in it is padding */
} tutti__range;

/* A hash of where each gradient lies in its block of neighbours, with at most `gap` elements of
 * padding between two.  Equal hashes on all ranks mean equal cuts. */
tutti_status tutti__ranges_layout(const tutti__gradient *gradients, int count, int64_t gap,
                                  uint64_t *layout);

/* Cuts gradients, given in the order in which backward finishes them, into ranges in that order.
 * Neighbours in memory with at most `gap` elements of padding between them share ranges (gap < 0:
 * none do).  No range exceeds range_bytes, nor the last one last_range_bytes.  *ranges:
 * malloc'd. */
tutti_status tutti__ranges_cut(tutti__gradient *gradients, int count, int64_t gap,
                               size_t range_bytes, size_t last_range_bytes, tutti__range **ranges,
                               int *range_count);

/* The ranges of a sharded store; gradients: all of the store's. */
tutti_status tutti__ranges_of_store(const tutti_params *params, tutti__gradient *gradients,
                                    int count, tutti__range **ranges, int *range_count);

#endif
