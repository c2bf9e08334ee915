/* What the parts of the tests of nccl share. */
#ifndef TUTTI_TESTS_COMM_NCCL_PARTS_H
#define TUTTI_TESTS_COMM_NCCL_PARTS_H

#include <cuda_runtime_api.h>

#include "rig.h"

enum { PARAMS = 3 };

#define CHECK_CUDA(call) CHECK((call) == cudaSuccess, "%s fails", #call)

/* Values whose sum over ranks is known. */
void fill(tutti_context *ctx, float *data, int count, int seed);

/* nccl_stores.c */
void captured_messages(void);
void captured_copies(void);
void captured_spread(void);

#endif
