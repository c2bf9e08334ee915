/* FusedLinear on the GPU: cuBLASLt products, and elementwise passes of our own round them.
 *
 * Forward reads x and W, writes y: 2 rows in out operations.  The bias (but f64's) rides in the
 * product's epilogue, and so does relu where a trial at planning shows that NaN stays NaN.  The
 * other activations are a second pass over y (2 rows out e bytes): cuBLASLt's GELU epilogue,
 * keeping z, is no faster than that, and for the rest it has none.
 *
 * Backward is one pass (dy, and z or y) -> dz that also sums db's columns (3 rows out e bytes),
 * then two plain products, dx = dz W and dW = dz^T x.  With activation none dz is dy and the
 * pass only sums.  db is summed in two steps of fixed order: each block sums a run of rows in
 * f32 (f64 for f64), then one kernel adds the blocks.
 *
 * cuBLASLt thinks in columns: a row-major [r, c] matrix with row stride s is its c x r matrix
 * with leading dimension s.  All products are therefore written transposed:
 * y^T = W x^T, dx^T = W^T dz^T, dW^T = x^T dz.
 *
 * Algorithms are chosen when a shape is planned, among those that sum in a fixed order, so the
 * bits of a product depend on the shape only.  Each product has two: one for operands aligned as
 * a contiguous tensor is, and one for any address and stride.  Descriptors live on the stack, a
 * call searches and allocates nothing. */
#include <cublasLt.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/device.cuh"

#define TRY_CUBLAS(call)                                                     \
    do {                                                                     \
        cublasStatus_t status_ = (call);                                     \
        if (status_ != CUBLAS_STATUS_SUCCESS)                                \
            return tutti__fail(TUTTI_ERR_DEVICE, "linear: cuBLASLt says %s", \
                               cublasLtGetStatusString(status_));            \
    } while (0)

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
    if constexpr (act == TUTTI_ACT_GELU)
        return m::divide(z,
                         1 + m::exponential(-z * (real(gelu_linear) + real(gelu_cubic) * z * z)));
    if constexpr (act == TUTTI_ACT_GELU_ERF)
        return real(0.5) * z * m::complement(-real(sqrt_half) * z);
    if constexpr (act == TUTTI_ACT_SILU) return m::divide(z, 1 + m::exponential(-z));
    return z;
}

/* s = 1 / (1 + exp(-x)) and its slope q = s (1 - s), without cancellation or overflow. */
template<class T>
__device__ __forceinline__ void sigmoid(real_of<T> x, real_of<T> &s, real_of<T> &q)
{
    real_of<T> e = maths<T>::exponential(x < 0 ? x : -x);
    real_of<T> r = maths<T>::divide(1, 1 + e);
    q = e * r * r;
    s = x < 0 ? e * r : r;
}

/* act'(z), from y where y determines it and from z otherwise.  Where the smooth ones have become
 * flat the term with z is left out: at infinite z they give their limits, as on the host, and at
 * finite z no overflow of an intermediate result shows. */
template<class T, tutti_activation act>
__device__ real_of<T> slope_at(real_of<T> v, real_of<T> slope)
{
    typedef real_of<T> real;
    typedef maths<T> m;
    if constexpr (act == TUTTI_ACT_RELU) return v > 0 ? real(1) : v <= 0 ? real(0) : v;
    if constexpr (act == TUTTI_ACT_LEAKY_RELU) return v > 0 ? real(1) : v <= 0 ? slope : v;
    if constexpr (act == TUTTI_ACT_SQUARED_RELU) return 2 * m::root(v);
    if constexpr (act == TUTTI_ACT_GELU) {
        real square = v * v, s, q;
        sigmoid<T>(v * (real(gelu_linear) + real(gelu_cubic) * square), s, q);
        real du = real(gelu_linear) + real(3 * gelu_cubic) * square;
        return s + (q == 0 ? real(0) : v * q * du);
    }
    if constexpr (act == TUTTI_ACT_GELU_ERF) {
        real density = real(inverse_sqrt_two_pi) * m::exponential(real(-0.5) * v * v);
        real cumulative = real(0.5) * m::complement(-real(sqrt_half) * v);
        return cumulative + (density == 0 ? real(0) : v * density);
    }
    if constexpr (act == TUTTI_ACT_SILU) {
        real s, q;
        sigmoid<T>(v, s, q);
        return s + (q == 0 ? real(0) : v * q);
    }
    return 1;
}

/* Kernels */

constexpr int threads = 256;
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

constexpr int lanes = 32; /* threads side by side along a row */
constexpr int strips = threads / lanes;
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
                for (int k = 0; k < width; k++) d[k] *= slope_at<T, act>(where[k], slope);
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

/* sum[c] (+)= partial[0][c] + partial[1][c] + …: strip s of a block adds rows s, s + strips, …,
 * then the strips are added in order. */
template<class R>
__global__ void __launch_bounds__(threads)
    dbias_finish_kernel(int64_t count, int64_t cols, const R *partial, R *sum, bool accumulate)
{
    __shared__ R sums[strips][lanes];
    int64_t col = int64_t(blockIdx.x) * lanes + threadIdx.x;
    R mine = 0;
    if (col < cols) {
#pragma unroll 8
        for (int64_t i = threadIdx.y; i < count; i += strips) mine += partial[i * cols + col];
    }
    sums[threadIdx.y][threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.y || col >= cols) return;
    R total = sums[0][threadIdx.x];
#pragma unroll
    for (int s = 1; s < strips; s++) total += sums[s][threadIdx.x];
    sum[col] = accumulate ? sum[col] + total : total;
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
static int64_t div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
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

/* How many rows a block of dz_kernel sums: at least 4 a thread, and about 1024 blocks, two waves
 * or more on any GPU of today.  A function of the shape only, so that the order of the sum is
 * too. */
static int64_t rows_per_run(const tutti__linear_shape *shape)
{
    int64_t tile = lanes * (16 / (int64_t)tutti_dtype_size(shape->dtype));
    int64_t runs = 1024 / div_up(shape->out, tile);
    int64_t most = div_up(shape->rows, 4 * strips);
    if (runs > most) runs = most;
    if (runs < 1) runs = 1;
    return div_up(div_up(shape->rows, runs), strips) * strips;
}

/* dz = dy act'(v) and dbias from it; dz and dbias may each be absent.  partial: rows /
 * rows_per_run rows of sums. */
static tutti_status compute_dz(cudaStream_t stream, const tutti__linear_args *args,
                               const tutti__matrix *v, const tutti__matrix *dz, void *partial)
{
    const tutti__linear_shape *shape = &args->shape;
    int64_t run = rows_per_run(shape), runs = div_up(shape->rows, run);
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
        if (args->dbias) {
            dbias_finish_kernel<real>
                <<<(unsigned)div_up(shape->out, lanes), dim3(lanes, strips), 0, stream>>>(
                    runs, shape->out, (const real *)partial, (real *)args->dbias, args->accumulate);
            TUTTI_CUDA_LAUNCHED("linear: dbias");
        }
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
        touch(dbias_finish_kernel<real_of<T>>);
        touch(bias_rows_kernel<T>);
        return tutti__cuda_status(error, "linear: loading kernels");
    });
}

/* Products */

enum { FORWARD_BIAS, FORWARD, DGRAD, WGRAD, PRODUCTS };

/* What the algorithm of a product may count on: AS_PLANNED, pointers of 16 bytes and strides
 * aligned at least as in the plan; ANY, elements. */
enum { AS_PLANNED, ANY, ALIGNMENTS };

/* d = op(a) op(b) in cuBLASLt's column-major view: d is [m, n], op(a) [m, k], op(b) [k, n]. */
struct product {
    cublasOperation_t op_a, op_b;
    uint64_t m, n, k;
    cudaDataType type, d_type, scale_type;
    cublasComputeType_t compute;
    bool bias;
    int64_t lda, ldb, ldd;                  /* as planned: what contiguous tensors have */
    bool has[ALIGNMENTS], relu[ALIGNMENTS]; /* relu: the epilogue does the activation */
    bool adds[ALIGNMENTS];                  /* it may be added to what is there, rounding once */
    cublasLtMatmulAlgo_t algorithm[ALIGNMENTS];
};

struct tutti__linear_plan {
    product products[PRODUCTS];
};

struct operands {
    const void *a;
    int64_t lda;
    const void *b;
    int64_t ldb;
    void *d;
    int64_t ldd;
    const void *bias;
};

struct descriptors {
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t a, b, d;
};

constexpr size_t workspace_bytes = (size_t)32 << 20;
constexpr size_t probe_bytes = (size_t)8 << 20; /* of a probe's matrices */

static tutti_status describe(const product *p, const operands *o, bool relu, descriptors *to)
{
    TRY_CUBLAS(cublasLtMatmulDescInit(&to->op, p->compute, p->scale_type));
    TRY_CUBLAS(cublasLtMatmulDescSetAttribute(&to->op, CUBLASLT_MATMUL_DESC_TRANSA, &p->op_a,
                                              sizeof p->op_a));
    TRY_CUBLAS(cublasLtMatmulDescSetAttribute(&to->op, CUBLASLT_MATMUL_DESC_TRANSB, &p->op_b,
                                              sizeof p->op_b));
    cublasLtEpilogue_t epilogue = p->bias && relu ? CUBLASLT_EPILOGUE_RELU_BIAS
                                  : relu          ? CUBLASLT_EPILOGUE_RELU
                                  : p->bias       ? CUBLASLT_EPILOGUE_BIAS
                                                  : CUBLASLT_EPILOGUE_DEFAULT;
    TRY_CUBLAS(cublasLtMatmulDescSetAttribute(&to->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                              sizeof epilogue));
    if (p->bias)
        TRY_CUBLAS(cublasLtMatmulDescSetAttribute(&to->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                  &o->bias, sizeof o->bias));
    bool ta = p->op_a == CUBLAS_OP_T, tb = p->op_b == CUBLAS_OP_T;
    TRY_CUBLAS(
        cublasLtMatrixLayoutInit(&to->a, p->type, ta ? p->k : p->m, ta ? p->m : p->k, o->lda));
    TRY_CUBLAS(
        cublasLtMatrixLayoutInit(&to->b, p->type, tb ? p->n : p->k, tb ? p->k : p->n, o->ldb));
    TRY_CUBLAS(cublasLtMatrixLayoutInit(&to->d, p->d_type, p->m, p->n, o->ldd));
    return TUTTI_OK;
}

static size_t type_size(cudaDataType type)
{
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

static tutti_dtype type_of(cudaDataType type)
{
    return type == CUDA_R_64F   ? TUTTI_F64
           : type == CUDA_R_32F ? TUTTI_F32
           : type == CUDA_R_16F ? TUTTI_F16
                                : TUTTI_BF16;
}

/* cuBLASLt's first choice; has[] stays false where it knows none. */
static tutti_status choose(cublasLtHandle_t handle, product *p, int alignment, bool relu)
{
    /* an odd leading dimension is the least that an algorithm for any can be asked for */
    int64_t odd = alignment == ANY;
    operands o = {NULL, p->lda | odd, NULL, p->ldb | odd, NULL, p->ldd | odd, NULL};
    /* only the alignment of this address counts */
    if (p->bias) o.bias = (const void *)(uintptr_t)256;
    descriptors d;
    TUTTI_TRY(describe(p, &o, relu, &d));
    cublasLtMatmulPreferenceOpaque_t preference;
    TRY_CUBLAS(cublasLtMatmulPreferenceInit(&preference));
    /* split sums only by way of the workspace, added in a second step: their order does not
     * depend on timing */
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint32_t in = alignment == ANY ? (uint32_t)type_size(p->type) : 16;
    uint32_t out = alignment == ANY ? (uint32_t)type_size(p->d_type) : 16;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t size;
    } attributes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof workspace_bytes},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme, sizeof scheme},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &in, sizeof in},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &in, sizeof in},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out, sizeof out},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out, sizeof out},
    };
    for (const auto &attribute : attributes)
        TRY_CUBLAS(cublasLtMatmulPreferenceSetAttribute(&preference, attribute.name,
                                                        attribute.value, attribute.size));
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, &d.op, &d.a, &d.b, &d.d, &d.d,
                                                           &preference, 1, &result, &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0))
        return TUTTI_OK;
    TRY_CUBLAS(status);
    TRY_CUBLAS(result.state);
    p->algorithm[alignment] = result.algo;
    p->has[alignment] = true;
    p->relu[alignment] = relu;
    return TUTTI_OK;
}

/* The largest power of two up to 16 that divides a stride in bytes. */
static int64_t alignment_of(int64_t ld, cudaDataType type)
{
    int64_t bytes = (ld * (int64_t)type_size(type)) | 16;
    return bytes & -bytes;
}

static cublasStatus_t run(tutti_context *ctx, const product *p, int alignment, const operands *o,
                          const descriptors *d, bool add, void *workspace)
{
    const double one = 1, beta = add;
    const float one_f = 1, beta_f = add;
    bool f64 = p->scale_type == CUDA_R_64F;
    return cublasLtMatmul((cublasLtHandle_t)ctx->backend_data, (cublasLtMatmulDesc_t)&d->op,
                          f64 ? (const void *)&one : &one_f, o->a, (cublasLtMatrixLayout_t)&d->a,
                          o->b, (cublasLtMatrixLayout_t)&d->b, f64 ? (const void *)&beta : &beta_f,
                          o->d, (cublasLtMatrixLayout_t)&d->d, o->d, (cublasLtMatrixLayout_t)&d->d,
                          &p->algorithm[alignment], workspace, workspace_bytes,
                          tutti__cuda_stream(ctx));
}

/* A small forward product with the chosen algorithm: x and W hold x and w in their first column and 0 elsewhere, and
 * `bias` is added: by the epilogue where the product has one, otherwise (add) to what is in y.  *as_wanted: it
 * ran, and every result is `want` (NaN is NaN). */
static tutti_status probe(tutti_context *ctx, const product *p, int alignment, double x, double w,
                          double bias, bool add, double want, char *scratch, bool *as_wanted)
{
    constexpr uint64_t most = 512; /* of m, n, k, each: a few tiles */
    constexpr size_t each = most * most * sizeof(double);
    static_assert(4 * each <= probe_bytes, "the probe's matrices");
    *as_wanted = false;
    product small = *p;
    small.m = p->m < most ? p->m : most;
    small.n = p->n < most ? p->n : most;
    small.k = p->k < most ? p->k : most;
    char *base = scratch + workspace_bytes;
    operands o = {base, most, base + each, most, base + 2 * each, most, base + 3 * each};
    descriptors d;
    TUTTI_TRY(describe(&small, &o, p->relu[alignment], &d));
    cudaStream_t stream = tutti__cuda_stream(ctx);
    tutti_dtype dtype = type_of(p->type);
    size_t size = tutti_dtype_size(dtype), count = most * most;
    char *host = (char *)malloc(count * size);
    if (!host) return tutti__fail(TUTTI_ERR_MEMORY, "linear: no memory for a plan");
    tutti_status status = TUTTI_OK;
    auto copy = [&](void *to, const void *from) {
        if (status == TUTTI_OK)
            status = tutti__cuda_status(
                cudaMemcpyAsync(to, from, count * size, cudaMemcpyDefault, stream), "linear_plan");
        if (status == TUTTI_OK)
            status = tutti__cuda_status(cudaStreamSynchronize(stream), "linear_plan");
    };
    /* value at every step-th element */
    auto fill = [&](void *to, double value, size_t step) {
        double bits = 0; /* holds a value of any type */
        (void)tutti_convert(&bits, dtype, &value, TUTTI_F64, 1);
        memset(host, 0, count * size);
        for (size_t i = 0; i < count; i += step) memcpy(host + i * size, &bits, size);
        copy(to, host);
    };
    fill(base, w, most);
    fill(base + each, x, most);
    fill(base + 2 * each, add ? bias : 0, 1);
    fill(base + 3 * each, bias, 1);
    if (status == TUTTI_OK &&
        run(ctx, &small, alignment, &o, &d, add, scratch) == CUBLAS_STATUS_SUCCESS) {
        copy(host, o.d);
        *as_wanted = status == TUTTI_OK;
        for (size_t i = 0; i < most * small.n && *as_wanted; i++) {
            double got = want;
            if (i % most < small.m) (void)tutti_convert(&got, TUTTI_F64, host + i * size, dtype, 1);
            *as_wanted = got == want || (std::isnan(want) && std::isnan(got));
        }
    }
    free(host);
    return status;
}

/* Whether a 16-bit product with the chosen algorithm is rounded once, after the bias has been added.  Some round before, too,
 * and lose what the bias leaves of the product: some with a bias epilogue, others when they add to y. */
static tutti_status rounds_once(tutti_context *ctx, const product *p, int alignment, bool add,
                                char *scratch, bool *good)
{
    tutti_dtype dtype = type_of(p->type);
    *good = true;
    if (tutti_dtype_size(dtype) > 2) return TUTTI_OK;
    /* (1 + e)^2 - (1 + 2e) = e^2, exact in f32 */
    double e = dtype == TUTTI_F16 ? 0x1p-10 : 0x1p-7;
    return probe(ctx, p, alignment, 1 + e, 1 + e, -(1 + 2 * e), add, e * e, scratch, good);
}

/* What a chosen algorithm must do: with relu let NaN through (some return 0), and round once. */
static tutti_status check_epilogue(tutti_context *ctx, product *p, int alignment, bool forward,
                                   char *scratch, bool *good)
{
    *good = true;
    if (p->relu[alignment])
        TUTTI_TRY(probe(ctx, p, alignment, NAN, 0, 0, false, NAN, scratch, good));
    if (*good && p->bias) TUTTI_TRY(rounds_once(ctx, p, alignment, false, scratch, good));
    if (*good && forward && !p->bias)
        TUTTI_TRY(rounds_once(ctx, p, alignment, true, scratch, &p->adds[alignment]));
    return TUTTI_OK;
}

/* An algorithm that does relu in its epilogue if that is asked for and one does it right; else one that does not.  None
 * (has[] false) where cuBLASLt has none that is right. */
static tutti_status choose_checked(tutti_context *ctx, product *p, int alignment, bool forward,
                                   bool relu, char *scratch)
{
    for (int with_relu = relu; with_relu >= 0; with_relu--) {
        bool good = false;
        TUTTI_TRY(choose((cublasLtHandle_t)ctx->backend_data, p, alignment, with_relu));
        if (p->has[alignment])
            TUTTI_TRY(check_epilogue(ctx, p, alignment, forward, scratch, &good));
        if (good) return TUTTI_OK;
        p->has[alignment] = p->relu[alignment] = false;
    }
    return TUTTI_OK;
}

/* Which of a product's algorithms these operands allow. */
static int alignment_for(const product *p, const operands *o)
{
    bool as_planned = p->has[AS_PLANNED] && aligned(o->a) && aligned(o->b) && aligned(o->d) &&
                      alignment_of(o->lda, p->type) >= alignment_of(p->lda, p->type) &&
                      alignment_of(o->ldb, p->type) >= alignment_of(p->ldb, p->type) &&
                      alignment_of(o->ldd, p->d_type) >= alignment_of(p->ldd, p->d_type);
    return as_planned ? AS_PLANNED : ANY;
}

static tutti_status multiply(tutti_context *ctx, const product *p, int alignment, const operands *o,
                             bool add, void *workspace)
{
    if (!p->has[alignment])
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "linear: cuBLASLt has no algorithm for the product [%llu, %llu, %llu]",
                           (unsigned long long)p->n, (unsigned long long)p->k,
                           (unsigned long long)p->m);
    descriptors d;
    TUTTI_TRY(describe(p, o, p->relu[alignment], &d));
    TRY_CUBLAS(run(ctx, p, alignment, o, &d, add, workspace));
    return TUTTI_OK;
}

/* Scratch of a call: the products' workspace, db's partial sums, dz. */

struct scratch_layout {
    size_t partial, dz, total;
    int64_t dz_stride; /* padded to 16 bytes */
};

static size_t padded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static scratch_layout lay_out(const tutti__linear_shape *shape, bool backward)
{
    size_t size = tutti_dtype_size(shape->dtype);
    int64_t width = 16 / (int64_t)size;
    scratch_layout to;
    to.dz_stride = div_up(shape->out, width) * width;
    to.partial = to.dz = to.total = workspace_bytes;
    if (!backward || shape->rows == 0) return to;
    int64_t runs = div_up(shape->rows, rows_per_run(shape));
    if (shape->has_bias) to.dz += padded((size_t)runs * (size_t)shape->out * (size < 8 ? 4 : 8));
    to.total = to.dz;
    if (shape->activation != TUTTI_ACT_NONE)
        to.total += padded((size_t)shape->rows * (size_t)to.dz_stride * size);
    return to;
}

/* The context's cuBLASLt handle is its backend_data, made with the first plan on it. */

static void destroy_handle(void *data)
{
    (void)cublasLtDestroy((cublasLtHandle_t)data);
}

static tutti_status ensure_handle(tutti_context *ctx)
{
    if (ctx->backend_data) return TUTTI_OK;
    bool capturing;
    TUTTI_TRY(tutti__cuda_stream_capturing(ctx->device, ctx->stream, &capturing));
    if (capturing)
        return tutti__fail(TUTTI_ERR_STATE, "linear: the stream is being captured: plan a linear "
                                            "layer on this context before");
    cublasLtHandle_t handle;
    TRY_CUBLAS(cublasLtCreate(&handle));
    ctx->backend_data = handle;
    ctx->backend_data_free = destroy_handle;
    return TUTTI_OK;
}

/* Entries of the table */

extern "C" tutti_status tutti__cuda_linear_plan(tutti_context *ctx,
                                                const tutti__linear_shape *shape,
                                                tutti__linear_plan **plan)
{
    TUTTI_TRY(tutti__cuda_use(ctx->device, "linear_plan"));
    TUTTI_TRY(ensure_handle(ctx));
    scratch_layout layout = lay_out(shape, true);
    void *scratch;
    size_t probed = workspace_bytes + probe_bytes;
    TUTTI_TRY(tutti__scratch(ctx, layout.total > probed ? layout.total : probed, &scratch));
    TUTTI_TRY(load_kernels(shape));

    tutti__linear_plan *made = (tutti__linear_plan *)calloc(1, sizeof *made);
    if (!made) return tutti__fail(TUTTI_ERR_MEMORY, "linear: no memory for a plan");
    product base = {};
    base.type = shape->dtype == TUTTI_F64   ? CUDA_R_64F
                : shape->dtype == TUTTI_F32 ? CUDA_R_32F
                : shape->dtype == TUTTI_F16 ? CUDA_R_16F
                                            : CUDA_R_16BF;
    base.d_type = base.type;
    base.scale_type = shape->dtype == TUTTI_F64 ? CUDA_R_64F : CUDA_R_32F;
    base.compute = shape->dtype == TUTTI_F64                        ? CUBLAS_COMPUTE_64F
                   : shape->dtype == TUTTI_F32 && shape->allow_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                    : CUBLAS_COMPUTE_32F;
    uint64_t rows = (uint64_t)shape->rows, in = (uint64_t)shape->in, out = (uint64_t)shape->out;
    int64_t dz_stride = shape->activation == TUTTI_ACT_NONE ? shape->out : layout.dz_stride;
    for (int i = 0; i < PRODUCTS; i++) {
        product *p = &made->products[i];
        *p = base;
        if (i == DGRAD) {
            p->op_a = p->op_b = CUBLAS_OP_N;
            p->m = in, p->n = rows, p->k = out;
            p->lda = shape->in, p->ldb = dz_stride, p->ldd = shape->in;
        } else if (i == WGRAD) {
            p->op_a = CUBLAS_OP_N, p->op_b = CUBLAS_OP_T;
            p->m = in, p->n = out, p->k = rows;
            p->lda = shape->in, p->ldb = dz_stride, p->ldd = shape->in;
            p->d_type = p->scale_type;
        } else {
            p->op_a = CUBLAS_OP_T, p->op_b = CUBLAS_OP_N;
            p->m = out, p->n = rows, p->k = in;
            p->lda = shape->in, p->ldb = shape->in, p->ldd = shape->out;
            p->bias = i == FORWARD_BIAS;
        }
        /* f64 goes without epilogues: with the bias in it a product ran at half speed (29 of 57
         * TFLOP/s at 4096, 1024, 1024 on an H200) */
        bool epilogues = shape->dtype != TUTTI_F64;
        if (rows == 0 || (p->bias && !(shape->has_bias && epilogues))) continue;
        bool forward = i == FORWARD || i == FORWARD_BIAS;
        bool relu = shape->activation == TUTTI_ACT_RELU && epilogues && forward;
        for (int alignment = 0; alignment < ALIGNMENTS; alignment++) {
            tutti_status status = choose_checked(ctx, p, alignment, forward, relu, (char *)scratch);
            if (status != TUTTI_OK) {
                free(made);
                return status;
            }
        }
    }
    const product *fused = &made->products[FORWARD_BIAS], *plain = &made->products[FORWARD];
    bool once = (fused->has[AS_PLANNED] || plain->adds[AS_PLANNED] || plain->adds[ANY]) &&
                (fused->has[ANY] || plain->adds[ANY]);
    if (rows > 0 && shape->has_bias && !once)
        tutti__log(TUTTI_LOG_WARN,
                   "linear: cuBLASLt rounds x W^T before it adds the bias in [%lld, %lld, %lld] %s",
                   (long long)rows, (long long)in, (long long)out, tutti_dtype_name(shape->dtype));
    *plan = made;
    return TUTTI_OK;
}

extern "C" void tutti__cuda_linear_plan_destroy(tutti__linear_plan *plan)
{
    free(plan);
}

/* A tensor of one row may have any stride. */
static int64_t leading(int64_t stride, int64_t rows, int64_t cols)
{
    return rows > 1 ? stride : cols;
}

extern "C" tutti_status tutti__cuda_linear_forward(tutti_context *ctx,
                                                   const tutti__linear_args *args)
{
    const tutti__linear_shape *shape = &args->shape;
    if (shape->rows == 0) return TUTTI_OK;
    TUTTI_TRY(tutti__cuda_use(ctx->device, "linear_forward"));
    TUTTI_TRY(ensure_handle(ctx));
    void *workspace;
    TUTTI_TRY(tutti__scratch(ctx, lay_out(shape, false).total, &workspace));
    cudaStream_t stream = tutti__cuda_stream(ctx);

    tutti__matrix z = args->y;
    if (args->saved && keeps_z(shape->activation))
        z = tutti__matrix{args->saved, shape->dtype, shape->out};
    z.stride = leading(z.stride, shape->rows, shape->out);
    operands o = {
        args->weight, shape->in, args->x.data, leading(args->x.stride, shape->rows, shape->in),
        z.data,       z.stride,  args->bias};
    const product *fused = &args->plan->products[FORWARD_BIAS];
    const product *plain = &args->plan->products[FORWARD];
    int with = alignment_for(fused, &o), without = alignment_for(plain, &o);
    bool activated = plain->relu[without];
    if (!args->bias)
        TUTTI_TRY(multiply(ctx, plain, without, &o, false, workspace));
    else if (aligned(args->bias) && fused->has[with]) {
        activated = fused->relu[with];
        TUTTI_TRY(multiply(ctx, fused, with, &o, false, workspace));
    } else {
        if (!plain->adds[without] && plain->adds[ANY]) without = ANY;
        activated = plain->relu[without];
        TUTTI_TRY(fill_with_bias(stream, args, &z));
        TUTTI_TRY(multiply(ctx, plain, without, &o, true, workspace));
    }
    if (shape->activation != TUTTI_ACT_NONE && !activated)
        TUTTI_TRY(apply_activation(stream, shape, &z, &args->y));
    return TUTTI_OK;
}

extern "C" tutti_status tutti__cuda_linear_backward(tutti_context *ctx,
                                                    const tutti__linear_args *args)
{
    const tutti__linear_shape *shape = &args->shape;
    TUTTI_TRY(tutti__cuda_use(ctx->device, "linear_backward"));
    cudaStream_t stream = tutti__cuda_stream(ctx);
    if (shape->rows == 0) {
        size_t size = shape->dtype == TUTTI_F64 ? 8 : 4;
        if (args->dweight && !args->accumulate)
            TUTTI_CUDA(cudaMemsetAsync(args->dweight, 0,
                                       (size_t)shape->in * (size_t)shape->out * size, stream),
                       "linear_backward");
        if (args->dbias && !args->accumulate)
            TUTTI_CUDA(cudaMemsetAsync(args->dbias, 0, (size_t)shape->out * size, stream),
                       "linear_backward");
        return TUTTI_OK;
    }
    TUTTI_TRY(ensure_handle(ctx));
    scratch_layout layout = lay_out(shape, true);
    void *scratch;
    TUTTI_TRY(tutti__scratch(ctx, layout.total, &scratch));
    char *base = (char *)scratch;

    bool products = args->dx.data || args->dweight, identity = shape->activation == TUTTI_ACT_NONE;
    tutti__matrix dz = args->dy, v = {};
    dz.stride = leading(dz.stride, shape->rows, shape->out);
    tutti__matrix written = {};
    if (!identity) {
        dz = tutti__matrix{base + layout.dz, shape->dtype, layout.dz_stride};
        if (products) written = dz;
        v = args->y;
        if (keeps_z(shape->activation)) v = tutti__matrix{args->saved, shape->dtype, shape->out};
    }
    if (args->dbias || (!identity && products))
        TUTTI_TRY(compute_dz(stream, args, &v, &written, base + layout.partial));
    if (args->dx.data) {
        operands o = {args->weight, shape->in,     dz.data,
                      dz.stride,    args->dx.data, leading(args->dx.stride, shape->rows, shape->in),
                      NULL};
        const product *p = &args->plan->products[DGRAD];
        TUTTI_TRY(multiply(ctx, p, alignment_for(p, &o), &o, false, base));
    }
    if (args->dweight) {
        operands o = {args->x.data,  leading(args->x.stride, shape->rows, shape->in),
                      dz.data,       dz.stride,
                      args->dweight, shape->in,
                      NULL};
        const product *p = &args->plan->products[WGRAD];
        TUTTI_TRY(multiply(ctx, p, alignment_for(p, &o), &o, args->accumulate, base));
    }
    return TUTTI_OK;
}
