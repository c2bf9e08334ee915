/* What the blocks of a cluster need to send each other sums: barriers that count the bytes that
 * arrive [PTX ISA, mbarrier].  Code for GPUs without clusters does nothing. */
#ifndef TUTTI_KERNELS_CUDA_CLUSTER_CUH
#define TUTTI_KERNELS_CUDA_CLUSTER_CUH

#include "kernels/cuda/mbarrier.cuh"
#include "kernels/cuda/rows.cuh"

/* By all threads: readies this block's barriers and tells the others that it is there; its rank. */
static __device__ __forceinline__ int cluster_join(const uint64_t *barriers, int count)
{
    unsigned rank = 0;
#ifdef TUTTI_ROW_CLUSTERS
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) {
        for (int i = 0; i < count; i++) barrier_init(shared_address(&barriers[i]), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
    return (int)rank;
}
/* Until all blocks have joined: their shared memory may be written then. */
static __device__ __forceinline__ void cluster_is_there()
{
#ifdef TUTTI_ROW_CLUSTERS
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
/* Until the bytes that a barrier expects have arrived, from any block. */
static __device__ __forceinline__ void cluster_await(uint32_t barrier, uint32_t parity)
{
#ifdef TUTTI_ROW_CLUSTERS
    uint32_t done = 0;
    while (!done)
        asm volatile("{\n"
                     ".reg .pred done;\n"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, done;\n"
                     "}\n"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
#endif
}

#endif
