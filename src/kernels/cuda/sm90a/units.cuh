/* Hopper's asynchronous units, the copy engine and the tensor cores [PTX ISA, cp.async.bulk.tensor
 * and wgmma], and what goes with them: barriers, and values of 16 bits. */
#ifndef TUTTI_KERNELS_CUDA_SM90A_UNITS_CUH
#define TUTTI_KERNELS_CUDA_SM90A_UNITS_CUH

#include <cuda.h>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/mbarrier.cuh"

/* At a barrier of any block of the cluster. */
static __device__ __forceinline__ void barrier_arrive_in_cluster(uint32_t in_cluster)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(in_cluster) : "memory");
}
static __device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

/* The copy engine */

static __device__ __forceinline__ void copy_in(uint32_t to, const CUtensorMap *from, int col,
                                               int row, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(from), "r"(col), "r"(row), "r"(barrier)
                 : "memory");
}
/* To the same place in both blocks: rows of a matrix in the order of the kernel's map, or a box of
 * one. */
static __device__ __forceinline__ void copy_rows_in_both(uint32_t to, const CUtensorMap *from,
                                                         int col, int eight, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, 0, %3, 0}], [%4], %5;" ::"r"(to),
                 "l"(from), "r"(col), "r"(eight), "r"(barrier), "h"((uint16_t)3)
                 : "memory");
}
static __device__ __forceinline__ void copy_box_in_both(uint32_t to, const CUtensorMap *from,
                                                        int col, int row, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(from), "r"(col), "r"(row), "r"(barrier), "h"((uint16_t)3)
                 : "memory");
}

/* Copies of 16 bytes by each thread, or of zeros, to its next group. */
static __device__ __forceinline__ void fetch16(void *to, const void *from, bool is)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(is ? 16 : 0)
                 : "memory");
}
static __device__ __forceinline__ void fetches_end()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Until all groups but the last `pending` are there. */
template<int pending>
__device__ __forceinline__ void fetches_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/* The tensor cores */

/* A matrix in shared memory as the copy engine leaves rows of 128 bytes: swizzled, 8 rows in 1024
 * bytes; if it has more columns than a row holds, the next ones are `apart` bytes further on.  An
 * address's bits from 18 on are its block's number in the cluster. */
static __device__ __forceinline__ uint64_t matrix_at(uint32_t at, uint32_t apart = 16)
{
    return (uint64_t)(at % (1 << 18) >> 4) | (uint64_t)(apart >> 4) << 16 | (uint64_t)64 << 32 |
           (uint64_t)1 << 62;
}

/* d (+)= a b, [64, 16] by [16, 256]; b's rows in memory are its columns, or (whole_rows) its
 * rows. */
#define OUT8(i)                                                                         \
    "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), \
        "+f"(d[(i) + 5]), "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define OUT64(i)                                                                            \
    OUT8(i), OUT8((i) + 8), OUT8((i) + 16), OUT8((i) + 24), OUT8((i) + 32), OUT8((i) + 40), \
        OUT8((i) + 48), OUT8((i) + 56)
#define MULTIPLY(type, rows)                                                                      \
    asm volatile("{ .reg .pred add; setp.ne.b32 add, %130, 0;\n"                                  \
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " "                 \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "        \
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "    \
                 "%31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "    \
                 "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, "    \
                 "%61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, "    \
                 "%76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, "    \
                 "%91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, "    \
                 "%105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, " \
                 "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "                  \
                 "%128, %129, add, 1, 1, 0, " rows "; }"                                          \
                 : OUT64(0), OUT64(64)                                                            \
                 : "l"(a), "l"(b), "r"((int)add))

template<class T, bool whole_rows>
__device__ __forceinline__ void multiply(float (&d)[128], uint64_t a, uint64_t b, bool add)
{
    if constexpr (std::is_same_v<T, __half>) {
        if constexpr (whole_rows)
            MULTIPLY("f16", "1");
        else
            MULTIPLY("f16", "0");
    } else {
        if constexpr (whole_rows)
            MULTIPLY("bf16", "1");
        else
            MULTIPLY("bf16", "0");
    }
}
#undef MULTIPLY
#undef OUT64
#undef OUT8

static __device__ __forceinline__ void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void products_end()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Until all groups but the last `pending` are complete. */
template<int pending>
__device__ __forceinline__ void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

/* For the compiler: the word is complete here, and what is made of it comes later; both stay where
 * they are among the products. */
static __device__ __forceinline__ void stay(uint32_t &word)
{
    asm volatile("" : "+r"(word));
}
/* The assembler moves arithmetic past products, but not past an event of the performance monitors.
 * This one never happens; one that does takes some 10 cycles. */
static __device__ __forceinline__ void keep_order(bool never)
{
    asm volatile("{ .reg .pred is; setp.ne.s32 is, %0, 0; @is pmevent 7; }" ::"r"((int)never)
                 : "memory");
}

/* Pairs of 16-bit values */

template<class T>
__device__ __forceinline__ float2 unpack_pair(uint32_t word)
{
    if constexpr (std::is_same_v<T, __half>) {
        __half2 pair;
        memcpy(&pair, &word, sizeof pair);
        return __half22float2(pair);
    } else {
        return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
    }
}
template<class T>
__device__ __forceinline__ uint32_t pack_pair(float a, float b)
{
    uint32_t word;
    if constexpr (std::is_same_v<T, __half>)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(b), "f"(a));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(b), "f"(a));
    return word;
}

/* Thread i of four gets word i of each. */
static __device__ __forceinline__ void transpose(uint32_t (&word)[4])
{
    const int lane = threadIdx.x;
#pragma unroll
    for (int apart = 1; apart <= 2; apart *= 2) {
        const bool upper = lane & apart;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i & apart) continue;
            const uint32_t given = upper ? word[i] : word[i + apart];
            const uint32_t got = __shfl_xor_sync(~0u, given, apart);
            if (upper)
                word[i] = got;
            else
                word[i + apart] = got;
        }
    }
}

static __device__ __forceinline__ void store_vector(void *to, const uint32_t (&word)[4])
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(word[0]), "r"(word[1]),
                 "r"(word[2]), "r"(word[3])
                 : "memory");
}

#endif
