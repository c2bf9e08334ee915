/* 16 bytes of a type, unpacked for the arithmetic and packed again. */
#ifndef TUTTI_KERNELS_CUDA_PACKS_CUH
#define TUTTI_KERNELS_CUDA_PACKS_CUH

#include "kernels/cuda/activation.cuh"

/* Elements of 16 bytes. */
template<class T>
constexpr int width_of = 16 / (int)sizeof(T);

template<class T>
__device__ __forceinline__ void unpack(const uint4 &raw, real_of<T> (&values)[width_of<T>])
{
    if constexpr (sizeof(T) < 8)
        vector16<T>::unpack(raw, values);
    else {
        T part[width_of<T>];
        memcpy(part, &raw, sizeof part);
#pragma unroll
        for (int i = 0; i < width_of<T>; i++) values[i] = widen<real_of<T>>(part[i]);
    }
}

__device__ __forceinline__ uint32_t pair(float low, float high, __half)
{
    __half2 both = __floats2half2_rn(low, high);
    return *(uint32_t *)&both;
}
__device__ __forceinline__ uint32_t pair(float low, float high, __nv_bfloat16)
{
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *(uint32_t *)&both;
}
template<class T>
__device__ __forceinline__ uint4 pack(const real_of<T> (&values)[width_of<T>])
{
    uint4 raw;
    if constexpr (sizeof(T) == 2) {
        raw.x = pair(values[0], values[1], T());
        raw.y = pair(values[2], values[3], T());
        raw.z = pair(values[4], values[5], T());
        raw.w = pair(values[6], values[7], T());
    } else
        memcpy(&raw, values, sizeof raw);
    return raw;
}
/* Stores 16 bytes by an intrinsic: the compiler splits a plain store next to an elementwise one. */
template<class T>
__device__ __forceinline__ void store_pack(T *at, const real_of<T> (&values)[width_of<T>])
{
    __stwb((uint4 *)at, pack<T>(values));
}

#endif
