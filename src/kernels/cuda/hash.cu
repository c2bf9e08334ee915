/* A hash of a buffer, for comparing replicas: each word is read once, and the order of the integer
 * sums does not matter. */
#include "kernels/cuda/rows.cuh"
#include "ops/hash.h"

enum { HASH_THREADS = 256, HASH_WORDS = 16 /* a thread */ };

__global__ void __launch_bounds__(HASH_THREADS)
    hash_kernel(const uint32_t *words, int64_t count, unsigned long long *hash)
{
    const int64_t step = (int64_t)gridDim.x * HASH_THREADS;
    unsigned long long sum = 0;
    for (int64_t i = (int64_t)blockIdx.x * HASH_THREADS + threadIdx.x; i < count; i += step)
        sum += tutti__mix(words[i], i);
    for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_down_sync(~0u, sum, lane);
    if (threadIdx.x % 32 == 0) atomicAdd(hash, sum);
}

tutti_status tutti__cuda_hash(tutti_context *ctx, const uint32_t *words, int64_t count,
                              uint64_t *hash)
{
    cudaStream_t stream = tutti__cuda_stream(ctx);
    TUTTI_TRY(tutti__cuda_use(ctx->device, "hash"));
    TUTTI_CUDA(cudaMemsetAsync(hash, 0, sizeof *hash, stream), "hash: cudaMemsetAsync");
    if (count == 0) return TUTTI_OK;
    return row_launch("hash", hash_kernel, row_grid(count, HASH_THREADS * HASH_WORDS, 1),
                      HASH_THREADS, 1, 0, stream, words, count, (unsigned long long *)hash);
}
