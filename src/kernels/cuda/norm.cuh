/* Shared by the two files of the norms: the entries of their operation. */
#ifndef TUTTI_KERNELS_CUDA_NORM_CUH
#define TUTTI_KERNELS_CUDA_NORM_CUH

#include "kernels/cuda/rows.cuh"
#include "ops/norm.h"

/* norm_forward.cu */
void tutti__cuda_norm_forward_plan(const tutti_context *ctx, const tutti__norm_args *args,
                                   tutti__plan *plan);
tutti_status tutti__cuda_norm_forward(const tutti__job *job, const void *args);

#endif
