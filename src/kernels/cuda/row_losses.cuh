/* The losses of rows, for every loss: their sum, in an order that depends only on the number of
 * rows. */
#ifndef TUTTI_KERNELS_CUDA_ROW_LOSSES_CUH
#define TUTTI_KERNELS_CUDA_ROW_LOSSES_CUH

#include "kernels/cuda/rows.cuh"

enum { SUM_THREADS = 1024 };

static __global__ void __launch_bounds__(SUM_THREADS)
    sum_in_order_kernel(const double *values, int64_t count, double *total)
{
    __shared__ block_team_slots<double, 1> slots;
    block_team<double, 1> team(slots, 1);
    row_total<double> mine;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < count; i += SUM_THREADS) mine.add(values[i]);
    double sum[1] = {mine.value()};
    team.reduce<row_add>(sum);
    if (threadIdx.x == 0) *total = sum[0];
}

/* losses: [rows], in f64; for no rows the sum is 0. */
static inline tutti_status sum_losses(const char *what, cudaStream_t stream, const double *losses,
                                      int64_t rows, double *sum)
{
    return row_launch(what, sum_in_order_kernel, 1, SUM_THREADS, 1, 0, stream, losses, rows, sum);
}

#endif
