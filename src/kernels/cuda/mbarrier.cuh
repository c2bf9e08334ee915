/* Barriers in shared memory, by their addresses there [PTX ISA, mbarrier].  Kernels that wait at
 * one are only launched on GPUs of compute capability 9.0 and newer. */
#ifndef TUTTI_KERNELS_CUDA_MBARRIER_CUH
#define TUTTI_KERNELS_CUDA_MBARRIER_CUH

#include <stdint.h>

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
/* One arrival, and so many bytes to come. */
static __device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
#endif
}

#endif
