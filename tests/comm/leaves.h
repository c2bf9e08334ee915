/* What the tests of leaves share. */
#ifndef TUTTI_TESTS_COMM_LEAVES_H
#define TUTTI_TESTS_COMM_LEAVES_H

#include "rig.h"

enum { LEAVES = 8 };

/* Random f32 values in device memory. */
void *rows_alloc(tutti_context *ctx, int64_t count, uint64_t seed);

/* leaves_anywhere.c: run by all ranks with every transport */
void anywhere(tutti_context *ctx, tutti_comm *comm);

#endif
