/* Addresses in shared memory, and barriers there by theirs [PTX ISA, mapa and mbarrier].  Kernels
 * that wait at one are only launched on GPUs of compute capability 9.0 and newer. */
#ifndef TUTTI_KERNELS_CUDA_MBARRIER_CUH
#define TUTTI_KERNELS_CUDA_MBARRIER_CUH

#include <stdint.h>

static __device__ __forceinline__ uint32_t shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}
/* The same address in another block of the cluster. */
static __device__ __forceinline__ uint32_t address_in(uint32_t mine, int block)
{
    uint32_t at = 0;
#if __CUDA_ARCH__ >= 900
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(mine), "r"(block));
#endif
    return at;
}

static __device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}
static __device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again; }" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
#endif
}
static __device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
#endif
}
/* One arrival, and so many bytes to come. */
static __device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
#endif
}

#endif
