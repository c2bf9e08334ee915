/* Sums of squares of runs of gradients, in f64: a block adds a run, and each of its threads every
 * SQUARES_THREADS-th 16 bytes in their order.  So they have the same bits whichever kernel has the
 * elements at hand. */
#ifndef TUTTI_KERNELS_CUDA_SQUARES_CUH
#define TUTTI_KERNELS_CUDA_SQUARES_CUH

#include "core/params.h"
#include "kernels/cuda/rows.cuh"

enum { SQUARES_THREADS = 256 };

struct run_squares {
    block_team_slots<double, 1> &slots;
    double sum[1] = {0};

    __device__ __forceinline__ explicit run_squares(block_team_slots<double, 1> &shared)
        : slots(shared)
    {
    }
    template<class T>
    __device__ __forceinline__ void add(T element)
    {
        sum[0] = fma((double)element, (double)element, sum[0]);
    }
    /* All threads of the block, which have had all elements of the run. */
    __device__ __forceinline__ void write(double *to)
    {
        block_team<double, 1> team(slots, 1);
        team.reduce<row_add>(sum);
        if (threadIdx.x == 0) *to = sum[0];
    }
};

#endif
