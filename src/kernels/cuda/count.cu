/* The number of labels that count, and the loss weight that it makes.
 *
 * Fewest bytes: the labels read once.  One block reads them all, so that neither a second kernel
 * nor atomics are needed: a few microseconds for the labels of a training step, of which a block
 * has eight loads a thread in flight. */
#include "kernels/cuda/rows.cuh"

enum { COUNT_THREADS = 1024 };

__global__ void __launch_bounds__(COUNT_THREADS)
    count_labels_kernel(const int32_t *labels, int64_t rows, int32_t ignored, int64_t below,
                        double *count, bool accumulate)
{
    __shared__ block_team_slots<double, 1> slots;
    block_team<double, 1> team(slots, 1);
    int64_t mine = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < rows; i += COUNT_THREADS) {
        int32_t label = labels[i];
        mine += label != ignored && label >= 0 && label < below;
    }
    double sum[1] = {(double)mine}; /* whole numbers: exact in any order */
    team.reduce<row_add>(sum);
    if (threadIdx.x == 0) *count = accumulate ? *count + sum[0] : sum[0];
}

tutti_status tutti__cuda_count_labels(tutti_context *ctx, const int32_t *labels, int64_t rows,
                                      int32_t ignored, int64_t below, double *count,
                                      bool accumulate)
{
    TUTTI_TRY(tutti__cuda_use(ctx->device, "count_labels"));
    return row_launch("count_labels", count_labels_kernel, 1, COUNT_THREADS, 1, 0,
                      tutti__cuda_stream(ctx), labels, rows, ignored, below, count, accumulate);
}

__global__ void weigh_kernel(const double *count, double *weight)
{
    *weight = *count > 0 ? 1 / *count : *count == 0 ? 0 : CUDART_NAN;
}

tutti_status tutti__cuda_weigh(tutti_context *ctx, const double *count, double *weight)
{
    TUTTI_TRY(tutti__cuda_use(ctx->device, "weigh"));
    return row_launch("weigh", weigh_kernel, 1, 1, 1, 0, tutti__cuda_stream(ctx), count, weight);
}
