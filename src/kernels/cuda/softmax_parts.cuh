/* The exponentials of vectors that a thread has at hand, and how the parts of a row are reduced. */
#ifndef TUTTI_KERNELS_CUDA_SOFTMAX_PARTS_CUH
#define TUTTI_KERNELS_CUDA_SOFTMAX_PARTS_CUH

#include "kernels/cuda/exp.cuh"

template<int N>
__device__ __forceinline__ float tree_sum(const float (&values)[N])
{
    float part[N];
#pragma unroll
    for (int i = 0; i < N; i++) part[i] = values[i];
#pragma unroll
    for (int width = N / 2; width > 0; width /= 2) {
#pragma unroll
        for (int i = 0; i < width; i++) part[i] += part[i + width];
    }
    return part[0];
}

/* Maximum of lead x over vectors, at least the lowest finite number; NaN is ignored, as in row_max.
 * lead: as in running_sum. */
template<class T>
struct highest {
    float top;
    __device__ __forceinline__ highest() : top(-FLT_MAX) {}
    __device__ __forceinline__ void add(const uint4 &raw, float lead)
    {
        constexpr int N = vector16<T>::N;
        float v[N];
        vector16<T>::unpack(raw, v);
#pragma unroll
        for (int i = 0; i < N; i++) top = fmaxf(top, v[i] * lead);
    }
    __device__ __forceinline__ float value(float) const
    {
        return top;
    }
};

/* 16-bit elements are compared in pairs, where they are. */
template<class T, class Two>
struct highest_of_pairs {
    Two top;
    __device__ __forceinline__ highest_of_pairs()
        : top(two(std::is_same<T, __half>::value ? 0xfbfffbffu : 0xff7fff7fu))
    {
    }
    static __device__ __forceinline__ Two two(uint32_t word)
    {
        Two pair;
        memcpy(&pair, &word, sizeof pair);
        return pair;
    }
    __device__ __forceinline__ void add(const uint4 &raw, float lead)
    {
        uint32_t signs = lead < 0 ? 0x80008000u : 0;
        Two low = __hmax2(two(raw.x ^ signs), two(raw.y ^ signs));
        Two high = __hmax2(two(raw.z ^ signs), two(raw.w ^ signs));
        top = __hmax2(top, __hmax2(low, high));
    }
    __device__ __forceinline__ float value(float lead) const
    {
        return fmaxf(widen<float>(top.x), widen<float>(top.y)) * fabsf(lead);
    }
};
template<>
struct highest<__half> : highest_of_pairs<__half, __half2> {
};
template<>
struct highest<__nv_bfloat16> : highest_of_pairs<__nv_bfloat16, __nv_bfloat162> {
};

template<class T, int N>
__device__ __forceinline__ void exponentials_of(float (&e)[N], const uint4 &raw, float lead,
                                                float size, float pivot)
{
    vector16<T>::unpack(raw, e);
#pragma unroll
    for (int i = 0; i < N; i++) e[i] = exp_for<T>(e[i] * lead - pivot, size);
}

/* A thread's maximum of lead x, and its sum of exponentials from it, of vectors that come one or
 * two at a time.  Vectors that come apart in one kernel must not come together in another: that
 * would change bits. */
template<class T>
struct thread_sum {
    highest<T> most;
    float top = -FLT_MAX, sum = 0;

    template<int COUNT>
    __device__ __forceinline__ void add(const uint4 (&raw)[COUNT], float lead, float size)
    {
        float e[vector16<T>::N], part = 0;
#pragma unroll
        for (int i = 0; i < COUNT; i++) most.add(raw[i], lead);
        const float before = top;
        top = most.value(lead);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            exponentials_of<T>(e, raw[i], lead, size, top);
            part = i == 0 ? tree_sum(e) : __fadd_rn(part, tree_sum(e));
        }
        join(part, before, size);
    }
    /* Behind the vectors. */
    __device__ __forceinline__ void add_element(float x, float lead, float size)
    {
        const float before = top;
        top = fmaxf(top, x * lead);
        join(exp_for<T>(x * lead - top, size), before, size);
    }

  private:
    __device__ __forceinline__ void join(float part, float before, float size)
    {
        /* the first time before - top may be -inf, whose product with a size of 0 is NaN */
        sum = sum == 0 ? part : fmaf(sum, exp_for<T>(before - top, size), part);
    }
};

/* Reductions over lanes, for parked_team. */

struct plain_sum {
    static __device__ __forceinline__ void identity(float (&values)[1]) { values[0] = 0; }
    static __device__ __forceinline__ void lanes(float (&values)[1], int count)
    {
        reduce_lanes<row_add>(values, count);
    }
};

/* A maximum, and the sum of the exponentials from it.  A sum of 0 stays 0, whatever it came from:
 * a maximum of -inf, or a size of 0. */
template<class T>
struct softmax_pair {
    float size;
    static __device__ __forceinline__ void identity(float (&values)[2])
    {
        values[0] = row_max::identity();
        values[1] = 0;
    }
    __device__ __forceinline__ void lanes(float (&values)[2], int count) const
    {
        float top[1] = {values[0]};
        reduce_lanes<row_max>(top, count);
        float sum[1] = {values[1]};
        if (sum[0] != 0) sum[0] *= exp_for<T>(values[0] - top[0], size);
        reduce_lanes<row_add>(sum, count);
        values[0] = top[0];
        values[1] = sum[0];
    }
};

#endif
