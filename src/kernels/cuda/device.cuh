/* Device helpers: values of every type as the type of the arithmetic, and rows of a matrix as
 * 16-byte vectors.
 *
 * A row is divided into vectors of consecutive columns.  A vector belongs to one thread, whether it
 * is read in one access or, if misaligned, element by element.  So the order of every sum depends
 * only on the shape and the type. */
#ifndef TUTTI_KERNELS_CUDA_DEVICE_CUH
#define TUTTI_KERNELS_CUDA_DEVICE_CUH

#include <stdint.h>
#include <type_traits>
#include <utility>

#include "kernels/cuda/cuda.h"

/* Bounds that were found on sm_90.  Code for others may need a few registers more, which it would
 * spill. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 900
constexpr bool BOUNDS_ARE_TIGHT = true;
#else
constexpr bool BOUNDS_ARE_TIGHT = false;
#endif
constexpr int bound_registers(int most)
{
    return BOUNDS_ARE_TIGHT ? most : most + 16;
}
/* Blocks on a multiprocessor, at least. */
constexpr int bound_blocks(int least)
{
    return BOUNDS_ARE_TIGHT || least == 1 ? least : least - (least + 3) / 4;
}

/* Two kernels in turn [CUDA C++ Programming Guide, programmatic dependent launch].  The first one's
 * beginning: the next may be started on multiprocessors that this one no longer fills. */
__device__ __forceinline__ void start_next()
{
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}
/* The second one, before it reads: waits for the end of the first. */
__device__ __forceinline__ void wait_for_previous()
{
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}
/* Launches a second one, with so many bytes of shared memory. */
template<class... P, class... Q>
static inline tutti_status launch_early_with(size_t bytes, const char *what, int device,
                                             void (*kernel)(P...), dim3 grid, dim3 block,
                                             cudaStream_t stream, Q &&...args)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = stream;
    config.dynamicSmemBytes = bytes;
    config.attrs = &early;
    config.numAttrs = tutti__cuda_has_clusters(device); /* code of 9.0, which waits by itself */
    return tutti__cuda_status(
        cudaLaunchKernelEx(&config, kernel, static_cast<P>(std::forward<Q>(args))...), what);
}
template<class... P, class... Q>
static inline tutti_status launch_early(const char *what, int device, void (*kernel)(P...),
                                        dim3 grid, dim3 block, cudaStream_t stream, Q &&...args)
{
    return launch_early_with(0, what, device, kernel, grid, block, stream,
                             std::forward<Q>(args)...);
}

/* One value */

template<class A>
__device__ __forceinline__ A widen(float value)
{
    return (A)value;
}
template<class A>
__device__ __forceinline__ A widen(double value)
{
    return (A)value;
}
template<class A>
__device__ __forceinline__ A widen(__half value)
{
    return (A)__half2float(value);
}
template<class A>
__device__ __forceinline__ A widen(__nv_bfloat16 value)
{
    return (A)__bfloat162float(value);
}

/* Rounds to nearest even, once. */
template<class T>
struct narrow;
template<>
struct narrow<float> {
    static __device__ __forceinline__ float of(float value) { return value; }
    static __device__ __forceinline__ float of(double value) { return (float)value; }
};
template<>
struct narrow<double> {
    static __device__ __forceinline__ double of(float value) { return value; }
    static __device__ __forceinline__ double of(double value) { return value; }
};
template<>
struct narrow<__half> {
    static __device__ __forceinline__ __half of(float value) { return __float2half_rn(value); }
    static __device__ __forceinline__ __half of(double value) { return __double2half(value); }
};
template<>
struct narrow<__nv_bfloat16> {
    static __device__ __forceinline__ __nv_bfloat16 of(float value)
    {
        return __float2bfloat16_rn(value);
    }
    static __device__ __forceinline__ __nv_bfloat16 of(double value)
    {
        return __double2bfloat16(value);
    }
};

/* N consecutive elements as arithmetic values */

/* Bytes of one access to `bytes` bytes that are aligned to themselves or to 16. */
__host__ __device__ constexpr int access_bytes(int bytes)
{
    return bytes < 16 ? bytes : 16;
}

template<int BYTES>
struct access;
template<>
struct access<16> {
    using type = uint4;
};
template<>
struct access<8> {
    using type = uint2;
};
template<>
struct access<4> {
    using type = uint32_t;
};
template<>
struct access<2> {
    using type = uint16_t;
};

/* even: may be read in whole accesses if count >= N.  Elements from `count` on read as 0. */
template<class T, int N, class A>
__device__ __forceinline__ void load_elements(A (&values)[N], const T *at, int count, bool even)
{
    if (even && count >= N) {
        constexpr int BYTES = access_bytes(N * (int)sizeof(T)), EACH = BYTES / (int)sizeof(T);
        using word = typename access<BYTES>::type;
#pragma unroll
        for (int k = 0; k < N / EACH; k++) {
            word raw = ((const word *)at)[k];
            T part[EACH];
            memcpy(part, &raw, sizeof part);
#pragma unroll
            for (int i = 0; i < EACH; i++) values[k * EACH + i] = widen<A>(part[i]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) values[i] = i < count ? widen<A>(at[i]) : (A)0;
    }
}

template<class T, int N, class A>
__device__ __forceinline__ void store_elements(T *at, const A (&values)[N], int count, bool even)
{
    if (even && count >= N) {
        constexpr int BYTES = access_bytes(N * (int)sizeof(T)), EACH = BYTES / (int)sizeof(T);
        using word = typename access<BYTES>::type;
#pragma unroll
        for (int k = 0; k < N / EACH; k++) {
            T part[EACH];
#pragma unroll
            for (int i = 0; i < EACH; i++) part[i] = narrow<T>::of(values[k * EACH + i]);
            word raw;
            memcpy(&raw, part, sizeof raw);
            ((word *)at)[k] = raw;
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i < count) at[i] = narrow<T>::of(values[i]);
    }
}

/* The same for a type known at run time only; `data` is element 0, `at` the first wanted. */
template<int N, class A>
__device__ __forceinline__ void load_any(A (&values)[N], const void *data, tutti_dtype dtype,
                                         int64_t at, int count, bool even)
{
    switch (dtype) {
    case TUTTI_F32:
        load_elements(values, (const float *)data + at, count, even);
        break;
    case TUTTI_F16:
        load_elements(values, (const __half *)data + at, count, even);
        break;
    case TUTTI_BF16:
        load_elements(values, (const __nv_bfloat16 *)data + at, count, even);
        break;
    default:
        load_elements(values, (const double *)data + at, count, even);
        break;
    }
}

/* Without f64, for kernels whose arithmetic is f32. */
template<int N>
__device__ __forceinline__ void load_param(float (&values)[N], const void *data, tutti_dtype dtype,
                                           int at, int count, bool even)
{
    if (dtype == TUTTI_F32)
        load_elements(values, (const float *)data + at, count, even);
    else if (dtype == TUTTI_BF16)
        load_elements(values, (const __nv_bfloat16 *)data + at, count, even);
    else
        load_elements(values, (const __half *)data + at, count, even);
}

template<int N, class A>
__device__ __forceinline__ void store_any(void *data, tutti_dtype dtype, int64_t at,
                                          const A (&values)[N], int count, bool even)
{
    switch (dtype) {
    case TUTTI_F32:
        store_elements((float *)data + at, values, count, even);
        break;
    case TUTTI_F16:
        store_elements((__half *)data + at, values, count, even);
        break;
    case TUTTI_BF16:
        store_elements((__nv_bfloat16 *)data + at, values, count, even);
        break;
    default:
        store_elements((double *)data + at, values, count, even);
        break;
    }
}

/* 16-byte vectors of a known type, kept packed until they are used */

template<class T>
struct vector16 {
    static constexpr int N = 16 / (int)sizeof(T);

    static __device__ __forceinline__ void unpack(const uint4 &raw, float (&values)[N])
    {
        if constexpr (std::is_same_v<T, __nv_bfloat16>) { /* one instruction each */
            const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
            for (int i = 0; i < N; i++)
                values[i] =
                    __uint_as_float(i % 2 ? words[i / 2] & 0xffff0000u : words[i / 2] << 16);
            return;
        }
        T part[N];
        memcpy(part, &raw, sizeof part);
#pragma unroll
        for (int i = 0; i < N; i++) values[i] = widen<float>(part[i]);
    }

    static __device__ __forceinline__ uint4 pack(const float (&values)[N])
    {
        T part[N];
#pragma unroll
        for (int i = 0; i < N; i++) part[i] = narrow<T>::of(values[i]);
        uint4 raw;
        memcpy(&raw, part, sizeof raw);
        return raw;
    }
};

/* Makes the compiler unpack a vector again at its next use instead of keeping its values: those of
 * a row of 16-bit elements would take twice the registers. */
template<class T>
__device__ __forceinline__ void hold_packed(uint4 &raw)
{
    if (sizeof(T) < 4) asm volatile("" : "+r"(raw.x), "+r"(raw.y), "+r"(raw.z), "+r"(raw.w));
}

/* f(i) for the elements of a vector with `left` columns from its first to the end of the row. */
template<int N, class F>
__device__ __forceinline__ void for_elements(int left, F &&f)
{
    if (left >= N) {
#pragma unroll
        for (int i = 0; i < N; i++) f(i);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i < left) f(i);
    }
}

/* The positions of a thread's vectors in a row: vector k covers N columns from (first + k * step) *
 * N on.  In a warp, `lanes` neighbouring lanes have neighbouring vectors of one row. */
struct row_place {
    int first, step, lanes;
    template<class T>
    __device__ __forceinline__ int column(int k) const
    {
        return (first + k * step) * vector16<T>::N;
    }
};

/* Bytes from the 16-byte boundary at or below an address. */
static __device__ __forceinline__ unsigned skew_of(const void *at)
{
    return (unsigned)(uintptr_t)at & 15;
}

/* Bytes `skew` to skew + 15 of the 32 bytes a, b. */
static __device__ __forceinline__ uint4 bytes_from(const uint4 &a, const uint4 &b, unsigned skew)
{
    uint32_t w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 6; i++) w[i] = skew & 8 ? w[i + 2] : w[i];
#pragma unroll
    for (int i = 0; i < 5; i++) w[i] = skew & 4 ? w[i + 1] : w[i];
    unsigned bits = skew % 4 * 8;
    return make_uint4(__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
                      __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits));
}

/* The same for elements of T, WORDS = skew / 4 mod 4. */
template<class T, int WORDS>
__device__ __forceinline__ uint4 bytes_of(const uint4 &a, const uint4 &b, unsigned skew)
{
    const uint32_t w[9] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w, 0};
    uint32_t found[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        found[i] = sizeof(T) == 4 ? w[WORDS + i]
                                  : __funnelshift_rc(w[WORDS + i], w[WORDS + i + 1], skew % 4 * 8);
    return make_uint4(found[0], found[1], found[2], found[3]);
}

/* The first `count` elements of a vector, one by one; the others are 0. */
template<class T>
__device__ __forceinline__ uint4 gather(const T *at, int count)
{
    constexpr int N = vector16<T>::N;
    T part[N];
#pragma unroll
    for (int i = 0; i < N; i++) part[i] = i < count ? at[i] : T(0.0f);
    uint4 raw;
    memcpy(&raw, part, sizeof raw);
    return raw;
}

/* Reads a thread's vectors of a row; columns from `cols` on read as 0.  If the row does not begin
 * on a 16-byte boundary, a vector is extracted from the two aligned words that contain it; the ends
 * of the row, whose words extend beyond it, are read element by element. */
template<class T, int VECS>
__device__ __forceinline__ void load_row(uint4 (&raw)[VECS], const T *row, row_place place,
                                         int cols)
{
    constexpr int N = vector16<T>::N;
    unsigned skew = skew_of(row);
    int past = skew == 0 ? N : 2 * N; /* columns that the words of a vector may reach */
    const uint4 *words = (const uint4 *)((const char *)row - skew);
#pragma unroll
    for (int k = 0; k < VECS; k++) {
        bool inside = place.column<T>(k) + past <= cols && (skew == 0 || place.first + k > 0);
        raw[k] = inside ? words[place.first + k * place.step] : make_uint4(0, 0, 0, 0);
    }
    if (skew != 0) {
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            bool inside = place.column<T>(k) + past <= cols;
            uint4 next = inside ? words[place.first + k * place.step + 1] : make_uint4(0, 0, 0, 0);
            raw[k] = bytes_from(raw[k], next, skew);
        }
    }
    if (skew == 0 && cols % N == 0) return;
#pragma unroll
    for (int k = 0; k < VECS; k++) {
        int col = place.column<T>(k);
        bool inside = col + past <= cols && (skew == 0 || place.first + k > 0);
        if (!inside && col < cols) raw[k] = gather(row + col, cols - col);
    }
}

/* Whether all rows of a warp, one per lane, begin on a 16-byte boundary and end with a whole
 * vector. */
template<class T>
__device__ __forceinline__ bool stores_whole(const T *row, int cols)
{
    return !__any_sync(0xffffffffu, skew_of(row) != 0 || cols % vector16<T>::N != 0);
}

/* If so, each vector can be written as soon as it is complete. */
template<class T>
__device__ __forceinline__ void store_whole(T *row, int col, const uint4 &raw, int cols)
{
    if (col < cols) *(uint4 *)(row + col) = raw;
}

/* Writes a thread's vectors of a row.  Called by whole warps; a lane without a row passes cols = 0.
 * If the row does not begin on a 16-byte boundary, each lane writes the aligned word that holds the
 * end of its left neighbour's vector and the beginning of its own. */
template<class T, int VECS>
__device__ __forceinline__ void store_row(T *row, const uint4 (&raw)[VECS], row_place place,
                                          int cols)
{
    constexpr int N = vector16<T>::N;
    unsigned skew = skew_of(row);
    if (stores_whole(row, cols)) {
#pragma unroll
        for (int k = 0; k < VECS; k++) store_whole(row, place.column<T>(k), raw[k], cols);
        return;
    }
    int lane = threadIdx.x % place.lanes;
    int held =
        (int)(skew / sizeof(T)); /* elements of a vector that lie in the next vector's word */
#pragma unroll
    for (int k = 0; k < VECS; k++) {
        uint4 left;
        left.x = __shfl_up_sync(0xffffffffu, raw[k].x, 1);
        left.y = __shfl_up_sync(0xffffffffu, raw[k].y, 1);
        left.z = __shfl_up_sync(0xffffffffu, raw[k].z, 1);
        left.w = __shfl_up_sync(0xffffffffu, raw[k].w, 1);
        int col = place.column<T>(k);
        if (col >= cols) continue;
        int from = 0, to = cols - col < N ? cols - col : N; /* to be written one by one */
        if (skew == 0) {
            if (to == N) {
                *(uint4 *)(row + col) = raw[k];
                continue;
            }
        } else {
            if (lane > 0 && to == N) {
                *(uint4 *)(row + col - held) = bytes_from(left, raw[k], 16 - skew);
                from = N - held;
            }
            if (lane < place.lanes - 1 && col + 2 * N <= cols) to = N - held;
        }
        T part[N];
        memcpy(part, &raw[k], sizeof part);
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i >= from && i < to) row[col + i] = part[i];
    }
}

#endif
