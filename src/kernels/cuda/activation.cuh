/* Activations and their derivatives on the GPU; include/tutti/activation.h has the mathematics. */
#ifndef TUTTI_KERNELS_CUDA_ACTIVATION_CUH
#define TUTTI_KERNELS_CUDA_ACTIVATION_CUH

#include <type_traits>

#include "kernels/cuda/device.cuh"
#include "ops/activation.h"

/* The type of the arithmetic. */
template<class T>
using real_of = std::conditional_t<std::is_same_v<T, double>, double, float>;

/* Elementary functions: f32 and f64 from the CUDA library, the 16-bit types with the hardware's
 * approximations (2^-18 and better, far below their rounding). */
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
    /* erfc(x) exp(x^2) as a polynomial in t = 1/(1 + 0.4 x), fitted on [0, 11] with a relative
     * error below 4e-6. */
    static __device__ __forceinline__ real tail(real t)
    {
        real p = -0.0803539693f;
        p = fmaf(p, t, 0.134337165f);
        p = fmaf(p, t, 0.141101188f);
        p = fmaf(p, t, 0.130966753f);
        p = fmaf(p, t, 0.225812497f);
        p = fmaf(p, t, 0.222217004f);
        p = fmaf(p, t, 0.225917378f);
        return p * t;
    }
    /* erfc(x), whose tail keeps the digits that 1 + erf would lose. */
    static __device__ real complement(real x)
    {
        real right = tail(__fdividef(1.0f, fmaf(0.4f, fabsf(x), 1.0f))) * __expf(-x * x);
        return x < 0 ? 2.0f - right : right;
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

/* Below -flat smooth activations are -0, beyond ±flat their derivatives are 0 or 1, also at
 * infinite z: avoids Inf times 0 and overflow of intermediate results.  Keeps NaN. */
template<tutti_activation act>
constexpr int flat = act == TUTTI_ACT_GELU       ? 30
                     : act == TUTTI_ACT_GELU_ERF ? 40
                                                 : 800;

/* max, and min and max, that keep NaN */
template<class R>
__device__ __forceinline__ R above(R z, R bound)
{
    return z < bound ? bound : z;
}
template<>
__device__ __forceinline__ float above(float z, float bound)
{
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(z), "f"(bound));
    return y;
}
template<class R>
__device__ __forceinline__ R within(R z, R bound)
{
    return -above(-above(z, -bound), -bound);
}

/* Beyond this a logistic function is exp(a), computed as exp(a + from) exp(-from), which stays
 * accurate where exp(a) is subnormal. */
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

/* An activation's constants in the arithmetic's type. */
template<class R>
struct activation_constants {
    R slope, beta, quarter, scale, bias; /* quarter: 1 / (4 beta) */
    __host__ __device__ explicit activation_constants(const tutti__activation &activation)
        : slope(R(activation.slope)), beta(R(activation.smelu_beta)), quarter(R(0.25) / beta),
          scale(R(activation.star_scale)), bias(R(activation.star_bias))
    {
    }
};

/* act(z) */
template<class T, tutti_activation act>
__device__ real_of<T> activate(real_of<T> z, const activation_constants<real_of<T>> &constants)
{
    typedef real_of<T> real;
    typedef maths<T> m;
    if constexpr (act == TUTTI_ACT_RELU) return z <= 0 ? real(0) : z; /* 0 for -0, as of cuBLASLt */
    if constexpr (act == TUTTI_ACT_LEAKY_RELU) return z > 0 ? z : constants.slope * z;
    if constexpr (act == TUTTI_ACT_SQUARED_RELU) {
        real r = above(z, real(0));
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
    if constexpr (act == TUTTI_ACT_SMELU) {
        real t = z + constants.beta, middle = t * (t * constants.quarter);
        return z <= -constants.beta ? real(0) : z >= constants.beta ? z : middle;
    }
    if constexpr (act == TUTTI_ACT_STAR_RELU) {
        real r = z < 0 ? real(0) : z;
        return constants.scale * r * r + constants.bias;
    }
    return z;
}

/* act'(z) */
template<class T, tutti_activation act>
__device__ real_of<T> slope_at(real_of<T> v, const activation_constants<real_of<T>> &constants)
{
    typedef real_of<T> real;
    typedef maths<T> m;
    if constexpr (act == TUTTI_ACT_RELU) return v > 0 ? real(1) : v <= 0 ? real(0) : v;
    if constexpr (act == TUTTI_ACT_LEAKY_RELU) { /* without a branch, which would cost more */
        const real slope = v > 0 ? real(1) : constants.slope;
        return v == v ? slope : v;
    }
    if constexpr (act == TUTTI_ACT_SQUARED_RELU) return 2 * above(v, real(0));
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
        return fma(v, density, cumulative); /* the same product fused in all kernels */
    }
    if constexpr (act == TUTTI_ACT_SILU) {
        v = within(v, real(flat<act>));
        return gated_slope<T>(v, v, real(1));
    }
    if constexpr (act == TUTTI_ACT_SMELU) {
        real middle = (v + constants.beta) * (2 * constants.quarter);
        return v <= -constants.beta ? real(0) : v >= constants.beta ? real(1) : middle;
    }
    if constexpr (act == TUTTI_ACT_STAR_RELU) return 2 * (constants.scale * (v < 0 ? real(0) : v));
    return 1;
}

/* The same with two instructions for the logistic function, for gelu and silu of the 16-bit types.
 * Where the hardware flushes that to 0, below 2^-160, act' is less than half of f32's smallest
 * number: for that, exponentials are 2^34 times as small. */
template<class T, tutti_activation act>
constexpr bool has_short_way = sizeof(T) == 2 && (act == TUTTI_ACT_GELU || act == TUTTI_ACT_SILU);

template<tutti_activation act>
struct short_way {
    float da, r; /* the derivative of a; 2^34 / (1 + exp(-a)) */

    __device__ __forceinline__ explicit short_way(float z)
    {
        constexpr double log2_e = 1.4426950408889634073599246810019;
        float square = z * z, by = float(log2_e), e;
        da = 1;
        if (act == TUTTI_ACT_GELU) {
            by = fmaf(float(gelu_cubic * log2_e), square, float(gelu_linear * log2_e));
            da = fmaf(float(3 * gelu_cubic), square, float(gelu_linear));
        }
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(fmaf(-z, by, -34.0f)));
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(0x1p-34f + e));
    }
};

/* act(z) / p_keep from 2^-SHIFT z, in which neither factor takes an instruction: it is 2^-SHIFT z /
 * (k + k exp(-a)) with k = 2^-SHIFT p_keep, and the exponential's argument takes up log k.  The
 * hardware flushes the logistic function to 0 below 2^(-126 - SHIFT): with a SHIFT of 16 every
 * result that bf16 can hold survives, subnormal ones too. */
template<tutti_activation act, int SHIFT>
struct short_scaled {
    static constexpr double up = 1 << SHIFT;
    static constexpr float down = float(1 / up);
    float k, log2_k;

    __device__ __forceinline__ explicit short_scaled(float p_keep) : k(p_keep * down)
    {
        asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log2_k) : "f"(p_keep));
        log2_k -= SHIFT;
    }
    __device__ __forceinline__ float operator()(float z) const
    {
        constexpr double log2_e = 1.4426950408889634073599246810019;
        float by = float(log2_e * up), e, r;
        z = above(z, -float(flat<act>) * down);
        if (act == TUTTI_ACT_GELU)
            by = float(gelu_linear * log2_e * up) +
                 float(gelu_cubic * log2_e * up * up * up) * (z * z);
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(log2_k - z * by));
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(k + e));
        return z * r;
    }
};

/* gelu_erf(z) = max(z, 0) - m erfc(m / sqrt(2)) / 2 with m = |z|, for the 16-bit types, as
 * max(z, 0) - m exp2(p(m)).  The polynomial p is fitted on [0, 14], with a relative error of that
 * term below 8e-6 at 0, 2e-5 to 10.5, as rounding p's value costs as much there, 1e-4 at 12.5 and
 * 1e-3 at 13, where bf16 has 8 digits; beyond, p falls.  s is 2^-12 m, at most 1, and the
 * exponential is 2^12 times as large, as the hardware flushes it to 0 below 2^-126. */
static __device__ __forceinline__ float short_gelu_erf(float z)
{
    const float s = __saturatef(fabsf(z) * 0x1p-12f);
    float p = fmaf(-2.47805376e-09f * 0x1p108f, s, 1.70706002e-07f * 0x1p96f), e;
    p = fmaf(p, s, -5.19537662e-06f * 0x1p84f);
    p = fmaf(p, s, 9.26244757e-05f * 0x1p72f);
    p = fmaf(p, s, -0.00108526379f * 0x1p60f);
    p = fmaf(p, s, 0.00893872418f * 0x1p48f);
    p = fmaf(p, s, -0.0546074063f * 0x1p36f);
    p = fmaf(p, s, -0.457994521f * 0x1p24f);
    p = fmaf(p, s, -1.15137768f * 0x1p12f);
    p = fmaf(p, s, 12 - 0.999989867f);
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(p));
    return fmaf(-s, e, above(z, -0.0f)); /* -0 far left */
}

/* act(z), the short way if there is one. */
template<class T, tutti_activation act>
__device__ __forceinline__ real_of<T>
activate_shortly(real_of<T> z, const activation_constants<real_of<T>> &constants)
{
    if constexpr (has_short_way<T, act>) return short_scaled<act, 16>(1)(0x1p-16f * z);
    if constexpr (sizeof(T) == 2 && act == TUTTI_ACT_GELU_ERF) return short_gelu_erf(z);
    return activate<T, act>(z, constants);
}

/* scale act'(z) */
template<class T, tutti_activation act>
__device__ __forceinline__ real_of<T>
scaled_slope(real_of<T> z, const activation_constants<real_of<T>> &constants, real_of<T> scale)
{
    if constexpr (has_short_way<T, act>) {
        z = within(z, real_of<T>(flat<act>));
        const short_way<act> at(z);
        const float part = 0x1p-34f * scale;
        const float q = fmaf(-0x1p-34f * part, at.r, part); /* 0 where the logistic function is 1 */
        return at.r * fmaf(z * at.da, q, part);
    }
    return slope_at<T, act>(z, constants) * scale;
}

/* The same from what is kept for backward: z if it is needed, otherwise y = act(z). */
template<class T, tutti_activation act>
__device__ real_of<T> slope_from_kept(real_of<T> v,
                                      const activation_constants<real_of<T>> &constants)
{
    if constexpr (act == TUTTI_ACT_SQUARED_RELU) return 2 * maths<T>::root(v);
    return slope_at<T, act>(v, constants);
}

/* gelu_erf'(z) = w if z < 0, otherwise 1 - w, with m = |z| and w = erfc(m / sqrt(2)) / 2 - m
 * exp(-m^2 / 2) / sqrt(2 pi), for the 16-bit types: both terms have the same exponential.  The
 * first one's factor is a polynomial in t = 1 / (1 + 0.35 m) without a constant, fitted on [0, 15]
 * with a relative error of w below 1e-5 far left, and an absolute one below 2e-6; 1/2 at 0. */
static __device__ __forceinline__ float short_gelu_erf_slope(float z)
{
    constexpr double log2_e = 1.4426950408889634073599246810019;
    const float m = -above(-fabsf(z), -float(flat<TUTTI_ACT_GELU_ERF>)); /* keeps NaN */
    float t, e, one;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(fmaf(0.35f, m, 1.0f)));
    float p = fmaf(-0.0983512433f * 0x1p-24f, t, 0.277562536f * 0x1p-24f);
    p = fmaf(p, t, 0.0165422264f * 0x1p-24f);
    p = fmaf(p, t, 0.167377498f * 0x1p-24f);
    p = fmaf(p, t, 0.136869006f * 0x1p-24f);
    /* times 2^24, as the hardware flushes it to 0 below 2^-126, and the rest times 2^-24 */
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(fmaf(float(-0.5 * log2_e) * m, m, 24.0f)));
    p = fmaf(float(-inverse_sqrt_two_pi * 0x1p-24), m, p * t);
    /* w or 1 - w by one fma: 2^8 times the bits of 1 are those of a sign */
    asm("set.ge.f32.f32 %0, %1, 0f00000000;" : "=f"(one) : "f"(z));
    e = __uint_as_float(__float_as_uint(e) + (__float_as_uint(one) << 8));
    return fmaf(e, p, one);
}

/* act'(v) from what is kept for backward, the short way if there is one: accurate down to f32's
 * smallest number, as sums of it are f32. */
template<class T, tutti_activation act>
__device__ __forceinline__ real_of<T>
slope_shortly(real_of<T> v, const activation_constants<real_of<T>> &constants)
{
    if constexpr (has_short_way<T, act>) return scaled_slope<T, act>(v, constants, 1);
    if constexpr (sizeof(T) == 2 && act == TUTTI_ACT_GELU_ERF) return short_gelu_erf_slope(v);
    if constexpr (sizeof(T) == 2 && act == TUTTI_ACT_SMELU)
        return -above(-above(fmaf(v, 2 * constants.quarter, 0.5f), 0.0f), -1.0f);
    return slope_from_kept<T, act>(v, constants);
}

/* Calls f(tutti__type<T>{}, std::integral_constant<tutti_activation, kind>{}). */
template<class F>
static tutti_status with_activation(tutti_dtype dtype, tutti_activation kind, F &&f)
{
    return tutti__cuda_dispatch(dtype, [&](auto type) {
        switch (kind) {
#define ACTIVATION(name, text, from) \
    case TUTTI_ACT_##name:           \
        return f(type, std::integral_constant<tutti_activation, TUTTI_ACT_##name>{});
            TUTTI_ACTIVATION_LIST(ACTIVATION)
#undef ACTIVATION
        case TUTTI_ACT_ZERO:
            break;
        }
        return tutti__fail(TUTTI_ERR_INTERNAL, "cuda: there is no activation %d", (int)kind);
    });
}

#endif
