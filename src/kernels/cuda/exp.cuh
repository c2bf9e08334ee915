/* Exponentials of a row, for softmax and cross-entropy. */
#ifndef TUTTI_KERNELS_CUDA_EXP_CUH
#define TUTTI_KERNELS_CUDA_EXP_CUH

#include <float.h>
#include <math_constants.h>

#include "kernels/cuda/rows.cuh"

/* exp(x size) of a difference x that is at most 0 is exp_of(x exp_factor(size)).  f32 and f64 in
 * full accuracy; for 16-bit results the hardware's 2^x, whose error is far below their rounding and
 * which flushes f32 subnormals to 0. */
template<class T>
__device__ __forceinline__ float exp_factor(float size)
{
    return sizeof(T) == 4 ? size : fminf(size * 1.4426950408889634f, FLT_MAX);
}
template<class T>
__device__ __forceinline__ float exp_of(float x)
{
    if (sizeof(T) == 4) return expf(x);
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}
template<class T>
__device__ __forceinline__ float exp_for(float x, float size = 1)
{
    return exp_of<T>(x * exp_factor<T>(size));
}

/* The same for all types. */
template<class T>
struct exponential {
    static __device__ __forceinline__ float of(float d, float size = 1)
    {
        return exp_for<T>(d, size);
    }
};
template<>
struct exponential<double> {
    static __device__ __forceinline__ double of(double d, double size = 1) { return exp(d * size); }
};

static __device__ __forceinline__ float logarithm(float x)
{
    return logf(x);
}
static __device__ __forceinline__ double logarithm(double x)
{
    return log(x);
}

/* For rows that are read more than once: the arithmetic, and the columns that a thread reads at a
 * time. */
template<class T>
struct wide_row {
    using A = typename std::conditional<sizeof(T) == 8, double, float>::type;
    static constexpr int N = 16 / (int)sizeof(T);
};

static inline int row_long_threads(int64_t cols, int width)
{
    int threads = 32;
    while (threads < 1024 && threads * width < cols) threads *= 2;
    return threads;
}

/* Maximum of lead x, and sum of exp((lead x - maximum) size), of the columns seen so far.  lead is
 * ±1 or ±1/2, so that lead x is exact and may be fused with the difference. */
template<class T>
struct running_sum {
    using A = typename wide_row<T>::A;
    A top, sum;

    /* Merges it over the whole row, in every thread. */
    template<class Team>
    __device__ __forceinline__ void merge(Team &team, A size)
    {
        A all[1] = {top};
        team.template reduce<row_max>(all);
        /* a sum of 0, of -inf only, stays 0 even if size is 0 */
        if (top != all[0] && sum != 0) sum *= exponential<T>::of(top - all[0], size);
        top = all[0];
        /* a row of -inf only is NaN */
        if (top == -(A)CUDART_INF) sum = (A)CUDART_NAN;
        A total[1] = {sum};
        team.template reduce<row_add>(total);
        sum = total[0];
    }
};

/* A thread's part of the first `count` columns of a row; load(v, col) reads N of them. */
template<class T, class A, class F>
__device__ __forceinline__ running_sum<T> running_sum_of(F &&load, int count, A lead, A size,
                                                         int first, int step)
{
    constexpr int N = wide_row<T>::N;
    A top = -(A)CUDART_INF;
    row_total<A> sum;
#pragma unroll 2
    for (int col = first; col < count; col += step) {
        A v[N];
        load(v, col);
        A most = top;
#pragma unroll
        for (int i = 0; i < N; i++) {
            v[i] *= lead;
            if (col + i < count) most = row_max::of(most, v[i]);
        }
        if (most != top && sum.value() != 0) sum.scale(exponential<T>::of(top - most, size));
        top = most;
        A part = 0;
        /* -inf adds 0, but times a size of 0 it is NaN */
#pragma unroll
        for (int i = 0; i < N; i++)
            if (col + i < count && (v[i] != -(A)CUDART_INF || size == 0))
                part += exponential<T>::of(v[i] - top, size);
        sum.add(part);
    }
    return {top, sum.value()};
}

template<class T, class A>
__device__ __forceinline__ running_sum<T>
running_sum_of_row(const T *x, int count, A lead, A size, bool even, int first, int step, int cols)
{
    constexpr int N = wide_row<T>::N;
    return running_sum_of<T>(
        [&](A(&v)[N], int col) { load_elements(v, x + col, cols - col, even); }, count, lead, size,
        first, step);
}

#endif
