/* FusedLinear's elementwise passes: activations and their slopes, dz with db, the bias; and their launchers.  linear.cu says
 * when they run. */
#ifndef TUTTI_KERNELS_CUDA_LINEAR_PASSES_CUH
#define TUTTI_KERNELS_CUDA_LINEAR_PASSES_CUH

#include <type_traits>

#include "kernels/cuda/column_sums.cuh"
#include "ops/linear.h"

/* What a type is computed in. */
template<class T>
using real_of = std::conditional_t<std::is_same_v<T, double>, double, float>;

/* Elements of 16 bytes. */
template<class T>
constexpr int width_of = 16 / (int)sizeof(T);

template<class T>
__device__ __forceinline__ void unpack(const uint4 &raw, real_of<T> (&values)[width_of<T>])
{
    T part[width_of<T>];
    memcpy(part, &raw, sizeof part);
#pragma unroll
    for (int i = 0; i < width_of<T>; i++) values[i] = widen<real_of<T>>(part[i]);
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
/* Stores 16 bytes by an intrinsic: a plain store next to an elementwise one is split up by the
 * compiler. */
template<class T>
__device__ __forceinline__ void store_pack(T *at, const real_of<T> (&values)[width_of<T>])
{
    uint4 raw;
    if constexpr (sizeof(T) == 2) {
        raw.x = pair(values[0], values[1], T());
        raw.y = pair(values[2], values[3], T());
        raw.z = pair(values[4], values[5], T());
        raw.w = pair(values[6], values[7], T());
    } else
        memcpy(&raw, values, sizeof raw);
    __stwb((uint4 *)at, raw);
}

/* Elementary functions: f32 and f64 from the CUDA library, the 16-bit types with the hardware's
 * approximations (2^-21 and better, far below their rounding). */
template<class T>
struct maths {
    typedef float real;
    static __device__ real exponential(real x) { return __expf(x); }
    static __device__ real divide(real a, real b) { return __fdividef(a, b); }
    static __device__ real root(real x)
    {
        real y;
        asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
        return y;
    }
    /* exp(-x^2) times a polynomial in t = 1/(1 + 0.4 |x|), fitted to erfc(x) exp(x^2) / t on
     * [0, 11] with a relative error below 4e-6; so the tail keeps its digits, which 1 + erf would
     * lose. */
    static __device__ real complement(real x)
    {
        real t = __fdividef(1.0f, fmaf(0.4f, fabsf(x), 1.0f));
        real p = -0.0803539693f;
        p = fmaf(p, t, 0.134337165f);
        p = fmaf(p, t, 0.141101188f);
        p = fmaf(p, t, 0.130966753f);
        p = fmaf(p, t, 0.225812497f);
        p = fmaf(p, t, 0.222217004f);
        p = fmaf(p, t, 0.225917378f);
        real tail = p * t * __expf(-x * x);
        return x < 0 ? 2.0f - tail : tail;
    }
};
template<>
struct maths<float> {
    typedef float real;
    static __device__ real exponential(real x) { return expf(x); }
    static __device__ real divide(real a, real b) { return a / b; }
    static __device__ real root(real x) { return sqrtf(x); }
    static __device__ real complement(real x) { return erfcf(x); }
};
template<>
struct maths<double> {
    typedef double real;
    static __device__ real exponential(real x) { return exp(x); }
    static __device__ real divide(real a, real b) { return a / b; }
    static __device__ real root(real x) { return sqrt(x); }
    static __device__ real complement(real x) { return erfc(x); }
};

/* gelu(z) = z sigmoid(2u), u = sqrt(2/pi) (z + 0.044715 z^3): the tanh form rewritten without
 * its cancellation. */
constexpr double gelu_linear = 1.5957691216057307117597842397375; /* 2 sqrt(2/pi) */
constexpr double gelu_cubic = 0.044715 * gelu_linear;
constexpr double sqrt_half = 0.70710678118654752440084436210485;
constexpr double inverse_sqrt_two_pi = 0.39894228040143267793994605993438;

/* Beyond -flat the smooth ones are -0, beyond ±flat their slopes 0 or 1, also where z is infinite: there z times a vanished
 * factor must not become Inf times 0, and no overflow of an intermediate result may show.  A NaN stays. */
template<tutti_activation act>
constexpr int flat = act == TUTTI_ACT_GELU       ? 30
                     : act == TUTTI_ACT_GELU_ERF ? 40
                                                 : 800;

template<class R>
__device__ __forceinline__ R above(R z, R bound)
{
    return z < bound ? bound : z;
}
template<class R>
__device__ __forceinline__ R within(R z, R bound)
{
    return above(z > bound ? bound : z, -bound);
}

/* Where a logistic function goes over into exp(a): there exp(a + from) times exp(-from) stays accurate although exp(a)
 * itself is no normal number. */
template<class R>
struct far_left;
template<>
struct far_left<float> {
    static constexpr float from = 64, factor = 1.60381089054863785298e-28f;
};
template<>
struct far_left<double> {
    static constexpr double from = 512, factor = 4.37749103705305145412e-223;
};

/* z / (1 + exp(-a)) */
template<class T>
__device__ __forceinline__ real_of<T> gated(real_of<T> z, real_of<T> a)
{
    using left = far_left<real_of<T>>;
    bool far = a < -left::from;
    real_of<T> e = maths<T>::exponential(far ? a + left::from : -a);
    return far ? z * e * left::factor : maths<T>::divide(z, 1 + e);
}

/* Its derivative, da being that of a, without cancellation or overflow. */
template<class T>
__device__ __forceinline__ real_of<T> gated_slope(real_of<T> z, real_of<T> a, real_of<T> da)
{
    using left = far_left<real_of<T>>;
    bool far = a < -left::from;
    real_of<T> e = maths<T>::exponential(far ? a + left::from : a < 0 ? a : -a);
    real_of<T> r = maths<T>::divide(1, 1 + e);
    real_of<T> s = far ? e : a < 0 ? e * r : r, q = far ? e : e * r * r;
    return (s + z * q * da) * (far ? left::factor : 1);
}

/* act(z) */
template<class T, tutti_activation act>
__device__ real_of<T> activate(real_of<T> z, real_of<T> slope)
{
    typedef real_of<T> real;
    typedef maths<T> m;
    if constexpr (act == TUTTI_ACT_RELU) return z < 0 ? real(0) : z;
    if constexpr (act == TUTTI_ACT_LEAKY_RELU) return z > 0 ? z : slope * z;
    if constexpr (act == TUTTI_ACT_SQUARED_RELU) {
        real r = z < 0 ? real(0) : z;
        return r * r;
    }
    if constexpr (act == TUTTI_ACT_GELU) {
        z = above(z, -real(flat<act>));
        return gated<T>(z, z * (real(gelu_linear) + real(gelu_cubic) * z * z));
    }
    if constexpr (act == TUTTI_ACT_GELU_ERF) {
        z = above(z, -real(flat<act>));
        return real(0.5) * z * m::complement(-real(sqrt_half) * z);
    }
    if constexpr (act == TUTTI_ACT_SILU) {
        z = above(z, -real(flat<act>));
        return gated<T>(z, z);
    }
    return z;
}

/* act'(z), from y where y determines it and from z otherwise. */
template<class T, tutti_activation act>
__device__ real_of<T> slope_at(real_of<T> v, real_of<T> slope)
{
    typedef real_of<T> real;
    typedef maths<T> m;
    if constexpr (act == TUTTI_ACT_RELU) return v > 0 ? real(1) : v <= 0 ? real(0) : v;
    if constexpr (act == TUTTI_ACT_LEAKY_RELU) return v > 0 ? real(1) : v <= 0 ? slope : v;
    if constexpr (act == TUTTI_ACT_SQUARED_RELU) return 2 * m::root(v);
    if constexpr (act == TUTTI_ACT_GELU) {
        v = within(v, real(flat<act>));
        real square = v * v;
        return gated_slope<T>(v, v * (real(gelu_linear) + real(gelu_cubic) * square),
                              real(gelu_linear) + real(3 * gelu_cubic) * square);
    }
    if constexpr (act == TUTTI_ACT_GELU_ERF) {
        v = within(v, real(flat<act>));
        real density = real(inverse_sqrt_two_pi) * m::exponential(real(-0.5) * v * v);
        real cumulative = real(0.5) * m::complement(-real(sqrt_half) * v);
        return cumulative + v * density;
    }
    if constexpr (act == TUTTI_ACT_SILU) {
        v = within(v, real(flat<act>));
        return gated_slope<T>(v, v, real(1));
    }
    return 1;
}

/* Kernels */

constexpr int vectors = 4; /* loads in flight a thread, 16 bytes each */

/* y = act(z).  y may be z.  16-byte accesses where `wide` (both aligned), otherwise element by
 * element. */
template<class T, tutti_activation act, bool wide>
__global__ void __launch_bounds__(threads)
    activation_kernel(int64_t rows, int64_t cols, const T *z, int64_t z_stride, T *y,
                      int64_t y_stride, real_of<T> slope)
{
    constexpr int width = width_of<T>;
    int64_t first = int64_t(blockIdx.x) * threads * vectors * width;
    for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
        const T *from = z + row * z_stride;
        T *to = y + row * y_stride;
        if (wide && first + threads * vectors * width <= cols) {
            const uint4 *in = (const uint4 *)(from + first) + threadIdx.x;
            uint4 raw[vectors];
#pragma unroll
            for (int i = 0; i < vectors; i++) raw[i] = in[i * threads];
#pragma unroll
            for (int i = 0; i < vectors; i++) {
                real_of<T> value[width];
                unpack<T>(raw[i], value);
#pragma unroll
                for (int k = 0; k < width; k++) value[k] = activate<T, act>(value[k], slope);
                store_pack(to + first + (i * threads + int(threadIdx.x)) * width, value);
            }
        } else {
#pragma unroll 4
            for (int i = 0; i < vectors * width; i++) {
                int64_t col = first + i * threads + threadIdx.x;
                if (col < cols)
                    to[col] = narrow<T>::of(activate<T, act>(widen<real_of<T>>(from[col]), slope));
            }
        }
    }
}

/* A product that is not fused with the sum that follows: db has the same bits whether dz is written or not. */
__device__ __forceinline__ float rounded_product(float a, float b)
{
    return __fmul_rn(a, b);
}
__device__ __forceinline__ double rounded_product(double a, double b)
{
    return __dmul_rn(a, b);
}

constexpr int in_flight = 2; /* rows that a thread has loaded at once */

/* dz = dy act'(v), and each block's column sums of dz over its run of rows to
 * partial[blockIdx.y][cols].  v is y or z (see slope_at), unused for activation none; dz and
 * partial may each be NULL.
 * A block sees lanes * width columns.  Strip s of it takes rows s, s + strips, … of the run, and
 * the strips' sums are added in order: wide or not, every column is summed in the same order.
 * Four blocks of two rows in flight on a multiprocessor keep the memory busier than two blocks
 * of four. */
template<class T, tutti_activation act, bool wide>
__global__ void __launch_bounds__(threads, 4)
    dz_kernel(int64_t rows, int64_t cols, int64_t run, const T *dy, int64_t dy_stride, const T *v,
              int64_t v_stride, T *dz, int64_t dz_stride, real_of<T> *partial, real_of<T> slope)
{
    typedef real_of<T> real;
    constexpr int width = width_of<T>;
    constexpr bool reads_v = act != TUTTI_ACT_NONE;
    /* a thread's columns: neighbours when wide, a warp apart otherwise, so that either way a
     * warp reads whole lines */
    constexpr int apart = wide ? 1 : lanes;
    int lane = wide ? int(threadIdx.x) * width : int(threadIdx.x);
    int64_t first = int64_t(blockIdx.x) * (lanes * width) + lane;
    bool whole = wide && first + width <= cols;
    int64_t begin = int64_t(blockIdx.y) * run, end = begin + run < rows ? begin + run : rows;

    auto load = [&](const T *at) {
        uint4 raw = make_uint4(0, 0, 0, 0);
        if (whole)
            raw = *(const uint4 *)at;
        else {
            T part[width];
            memcpy(part, &raw, sizeof part);
#pragma unroll
            for (int k = 0; k < width; k++)
                if (first + k * apart < cols) part[k] = at[k * apart];
            memcpy(&raw, part, sizeof raw);
        }
        return raw;
    };
    auto store = [&](T *at, const real(&values)[width]) {
        if (whole)
            store_pack(at, values);
        else {
#pragma unroll
            for (int k = 0; k < width; k++)
                if (first + k * apart < cols) at[k * apart] = narrow<T>::of(values[k]);
        }
    };

    real sum[width] = {};
    for (int64_t row = begin + threadIdx.y; row < end; row += strips * in_flight) {
        uint4 upstream[in_flight], at[in_flight];
#pragma unroll
        for (int i = 0; i < in_flight; i++) {
            int64_t r = row + i * strips;
            if (r >= end) continue;
            upstream[i] = load(dy + r * dy_stride + first);
            if constexpr (reads_v) at[i] = load(v + r * v_stride + first);
        }
#pragma unroll
        for (int i = 0; i < in_flight; i++) {
            int64_t r = row + i * strips;
            if (r >= end) continue;
            real d[width];
            unpack<T>(upstream[i], d);
            if constexpr (reads_v) {
                real where[width];
                unpack<T>(at[i], where);
#pragma unroll
                for (int k = 0; k < width; k++)
                    d[k] = rounded_product(d[k], slope_at<T, act>(where[k], slope));
                if (dz) store(dz + r * dz_stride + first, d);
            }
#pragma unroll
            for (int k = 0; k < width; k++) sum[k] += d[k];
        }
    }
    if (!partial) return;

    __shared__ real sums[strips][lanes * width];
#pragma unroll
    for (int k = 0; k < width; k++) sums[threadIdx.y][lane + k * apart] = sum[k];
    __syncthreads();
    int64_t base = int64_t(blockIdx.x) * (lanes * width);
    for (int c = threadIdx.y * lanes + threadIdx.x; c < lanes * width; c += threads) {
        if (base + c >= cols) break;
        real total = sums[0][c];
#pragma unroll
        for (int s = 1; s < strips; s++) total += sums[s][c];
        partial[blockIdx.y * cols + base + c] = total;
    }
}

/* Every row of y becomes the bias, for a product that adds to it.  T is any type of that size. */
template<class T>
__global__ void __launch_bounds__(threads)
    bias_rows_kernel(int64_t rows, int64_t cols, const T *bias, T *y, int64_t stride)
{
    for (int64_t row = blockIdx.y; row < rows; row += gridDim.y)
        for (int64_t col = int64_t(blockIdx.x) * threads + threadIdx.x; col < cols;
             col += int64_t(gridDim.x) * threads)
            y[row * stride + col] = bias[col];
}

/* Launchers */

static bool aligned(const void *data)
{
    return (uintptr_t)data % 16 == 0;
}
static bool aligned(int64_t stride, size_t size)
{
    return stride * (int64_t)size % 16 == 0;
}
static unsigned grid_rows(int64_t rows)
{
    return (unsigned)(rows < 65535 ? rows : 65535);
}
/* Calls f(std::integral_constant<tutti_activation, act>{}). */
template<class F>
static void with_activation(tutti_activation act, F &&f)
{
    switch (act) {
    case TUTTI_ACT_NONE:
        f(std::integral_constant<tutti_activation, TUTTI_ACT_NONE>{});
        break;
    case TUTTI_ACT_RELU:
        f(std::integral_constant<tutti_activation, TUTTI_ACT_RELU>{});
        break;
    case TUTTI_ACT_LEAKY_RELU:
        f(std::integral_constant<tutti_activation, TUTTI_ACT_LEAKY_RELU>{});
        break;
    case TUTTI_ACT_GELU:
        f(std::integral_constant<tutti_activation, TUTTI_ACT_GELU>{});
        break;
    case TUTTI_ACT_GELU_ERF:
        f(std::integral_constant<tutti_activation, TUTTI_ACT_GELU_ERF>{});
        break;
    case TUTTI_ACT_SQUARED_RELU:
        f(std::integral_constant<tutti_activation, TUTTI_ACT_SQUARED_RELU>{});
        break;
    case TUTTI_ACT_SILU:
        f(std::integral_constant<tutti_activation, TUTTI_ACT_SILU>{});
        break;
    }
}

static bool keeps_z(tutti_activation act)
{
    return act == TUTTI_ACT_GELU || act == TUTTI_ACT_GELU_ERF || act == TUTTI_ACT_SILU;
}

/* y = act(z); z may be y. */
static tutti_status apply_activation(cudaStream_t stream, const tutti__linear_shape *shape,
                                     const tutti__matrix *z, const tutti__matrix *y)
{
    TUTTI_TRY(tutti__cuda_dispatch(shape->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        with_activation(shape->activation, [&](auto act) {
            int64_t rows = shape->rows, cols = shape->out;
            if (z->stride == cols && y->stride == cols) {
                cols *= rows;
                rows = 1;
            }
            bool wide =
                aligned(z->data) && aligned(y->data) &&
                (rows == 1 || (aligned(z->stride, sizeof(T)) && aligned(y->stride, sizeof(T))));
            dim3 grid((unsigned)div_up(cols, threads * vectors * width_of<T>), grid_rows(rows));
            auto kernel = wide ? activation_kernel<T, decltype(act)::value, true>
                               : activation_kernel<T, decltype(act)::value, false>;
            kernel<<<grid, threads, 0, stream>>>(rows, cols, (const T *)z->data, z->stride,
                                                 (T *)y->data, y->stride, (real_of<T>)shape->slope);
        });
        return TUTTI_OK;
    }));
    TUTTI_CUDA_LAUNCHED("linear: activation");
    return TUTTI_OK;
}

/* dz = dy act'(v) and dbias from it; dz and dbias may each be absent.  partial: rows /
 * rows_per_run rows of sums. */
static tutti_status compute_dz(cudaStream_t stream, const tutti__linear_args *args,
                               const tutti__matrix *v, const tutti__matrix *dz, void *partial)
{
    const tutti__linear_shape *shape = &args->shape;
    int64_t run = column_run(shape->rows, shape->out, shape->dtype),
            runs = div_up(shape->rows, run);
    TUTTI_TRY(tutti__cuda_dispatch(shape->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        using real = real_of<T>;
        bool wide = aligned(args->dy.data) && aligned(args->dy.stride, sizeof(T)) &&
                    (!v->data || (aligned(v->data) && aligned(v->stride, sizeof(T))));
        dim3 grid((unsigned)div_up(shape->out, lanes * width_of<T>), (unsigned)runs);
        with_activation(shape->activation, [&](auto act) {
            auto kernel = wide ? dz_kernel<T, decltype(act)::value, true>
                               : dz_kernel<T, decltype(act)::value, false>;
            kernel<<<grid, dim3(lanes, strips), 0, stream>>>(
                shape->rows, shape->out, run, (const T *)args->dy.data, args->dy.stride,
                (const T *)v->data, v->stride, (T *)dz->data, dz->stride,
                args->dbias ? (real *)partial : NULL, (real)shape->slope);
        });
        TUTTI_CUDA_LAUNCHED("linear: dz");
        if (args->dbias)
            TUTTI_TRY(column_sums_finish("linear: dbias", stream, runs, shape->out,
                                         (const real *)partial, (real *)args->dbias,
                                         args->accumulate));
        return TUTTI_OK;
    }));
    return TUTTI_OK;
}

static tutti_status fill_with_bias(cudaStream_t stream, const tutti__linear_args *args,
                                   const tutti__matrix *y)
{
    const tutti__linear_shape *shape = &args->shape;
    int64_t across = div_up(shape->out, threads);
    dim3 grid((unsigned)(across < 1024 ? across : 1024), grid_rows(shape->rows));
    TUTTI_TRY(tutti__cuda_dispatch(shape->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        bias_rows_kernel<T><<<grid, threads, 0, stream>>>(
            shape->rows, shape->out, (const T *)args->bias, (T *)y->data, y->stride);
        return TUTTI_OK;
    }));
    TUTTI_CUDA_LAUNCHED("linear: bias");
    return TUTTI_OK;
}

/* Loads the kernels that calls of this shape will launch: loading is not allowed to wait for a
 * capture. */
static tutti_status load_kernels(const tutti__linear_shape *shape)
{
    return tutti__cuda_dispatch(shape->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        cudaFuncAttributes attributes;
        cudaError_t error = cudaSuccess;
        auto touch = [&](auto kernel) {
            if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, kernel);
        };
        with_activation(shape->activation, [&](auto act) {
            touch(activation_kernel<T, decltype(act)::value, true>);
            touch(activation_kernel<T, decltype(act)::value, false>);
            touch(dz_kernel<T, decltype(act)::value, true>);
            touch(dz_kernel<T, decltype(act)::value, false>);
        });
        touch(column_sums_kernel<real_of<T>>);
        touch(bias_rows_kernel<T>);
        return tutti__cuda_status(error, "linear: loading kernels");
    });
}

#endif
