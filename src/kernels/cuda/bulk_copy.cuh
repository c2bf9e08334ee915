/* Copies to shared memory that count on an mbarrier [PTX ISA, cp.async.bulk], and elements there by
 * shared addresses. */
#ifndef TUTTI_KERNELS_CUDA_BULK_COPY_CUH
#define TUTTI_KERNELS_CUDA_BULK_COPY_CUH

#include "kernels/cuda/mbarrier.cuh"
#include "kernels/cuda/row_ring.cuh"

__device__ __forceinline__ void fetch4(uint32_t to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
/* One arrival, once what this thread fetched is there. */
__device__ __forceinline__ void barrier_arrive_fetched(uint32_t barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void bulk_copy(uint32_t to, const void *from, uint32_t bytes,
                                          uint32_t barrier)
{
#ifdef TUTTI_ROW_CLUSTERS
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                 "%2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
#endif
}
template<class T>
__device__ __forceinline__ T read_element(uint32_t at)
{
    T value;
    if constexpr (sizeof(T) == 2) {
        uint16_t raw;
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(raw) : "r"(at) : "memory");
        memcpy(&value, &raw, sizeof raw);
    } else {
        const float raw = read4(at);
        memcpy(&value, &raw, sizeof raw);
    }
    return value;
}
template<class T>
__device__ __forceinline__ void write_element(uint32_t at, T value)
{
    if constexpr (sizeof(T) == 2) {
        uint16_t raw;
        memcpy(&raw, &value, sizeof raw);
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"(raw) : "memory");
    } else {
        uint32_t raw;
        memcpy(&raw, &value, sizeof raw);
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(raw) : "memory");
    }
}

#endif
