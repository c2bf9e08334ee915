/* Elementwise passes around matrix products: act(z), dz with its column sums, a bias in rows. */
#include "kernels/cuda/passes.h"

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/row_ring.cuh"

/* Kernels */

constexpr int vectors = 4; /* loads in flight per thread, 16 bytes each */

/* y = act(z).  y may be z.  16-byte accesses where `wide` (both aligned), otherwise element by
 * element. */
template<class T, tutti_activation act, bool wide>
__global__ void __launch_bounds__(threads)
    activation_kernel(int64_t rows, int64_t cols, const T *z, int64_t z_stride, T *y,
                      int64_t y_stride, activation_constants<real_of<T>> constants)
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
                for (int k = 0; k < width; k++)
                    value[k] = activate_shortly<T, act>(value[k], constants);
                store_pack(to + first + (i * threads + int(threadIdx.x)) * width, value);
            }
        } else {
#pragma unroll 4
            for (int i = 0; i < vectors * width; i++) {
                int64_t col = first + i * threads + threadIdx.x;
                if (col < cols)
                    to[col] = narrow<T>::of(
                        activate_shortly<T, act>(widen<real_of<T>>(from[col]), constants));
            }
        }
    }
}

constexpr int dz_depth = 4; /* rows of a thread: three on their way, one that it works on */
/* Blocks of a multiprocessor: as many as its registers hold. */
template<class T, bool wide>
constexpr int dz_blocks = sizeof(T) == 8            ? 2
                          : sizeof(T) == 2 && !wide ? 3
                                                    : 4;

/* dz = dy act'(v), and each block's column sums of dz over its run of rows to
 * partial[blockIdx.y][cols].  v is y or z (see slope_from_kept), unused for activation none; dz and
 * partial may each be NULL.  A block has lanes * width columns.  Strip s of it takes rows s, s +
 * strips, … of the run, and the strips' sums are added in order: wide or not, every column is
 * summed in the same order.  Each leaf of `rows` rows has as many runs.  Wide, rows come by way of
 * shared memory. */
template<class T, tutti_activation act, bool wide>
__global__ void __launch_bounds__(threads, bound_blocks(dz_blocks<T, wide>))
    dz_kernel(int64_t rows, int64_t cols, int64_t run, const T *dy, int64_t dy_stride, const T *v,
              int64_t v_stride, T *dz, int64_t dz_stride, real_of<T> *partial,
              activation_constants<real_of<T>> constants)
{
    start_next(); /* which sums the partial sums */
    typedef real_of<T> real;
    constexpr int width = width_of<T>;
    constexpr bool reads_v = act != TUTTI_ACT_NONE;
    /* a thread's columns: neighbours if wide, otherwise a warp apart, so that a warp always reads
     * whole lines */
    constexpr int apart = wide ? 1 : lanes;
    const int lane = wide ? int(threadIdx.x) * width : int(threadIdx.x);
    const int64_t first = int64_t(blockIdx.x) * (lanes * width) + lane;
    const int64_t leaf_end = (int64_t(blockIdx.z) + 1) * rows;
    const int64_t begin = leaf_end - rows + int64_t(blockIdx.y) * run + threadIdx.y;
    const int64_t end = min(leaf_end - rows + (int64_t(blockIdx.y) + 1) * run, leaf_end);
    int left = begin < end ? int((end - begin + strips - 1) / strips) : 0; /* rows */

    int bytes = first >= cols ? 0 : int(min(cols - first, int64_t(width)) * (int)sizeof(T));
    asm("" : "+r"(bytes)); /* or it is computed again for each row */
    /* the next rows; wide: to be fetched, and a thread without columns does not */
    const int64_t from = wide && bytes == 0 ? 0 : first;
    const T *next_dy = dy + begin * dy_stride + from, *next_v = v + begin * v_stride + from;
    T *to = dz + begin * dz_stride + first;
    auto advance = [&] {
        next_dy += strips * dy_stride;
        next_v += strips * v_stride;
    };
    auto load = [&](const T *at, real(&values)[width]) {
#pragma unroll
        for (int k = 0; k < width; k++)
            values[k] = first + k * apart < cols ? widen<real>(at[k * apart]) : real(0);
    };

    using ring_of = word_ring<1 + reads_v, dz_depth>;
    __shared__ uint4 shared[wide ? ring_of::words(threads) : 1];
    ring_of ring(shared + (wide ? threadIdx.y * lanes : 0), threads);
    int unfetched = left;
    auto fetch = [&] {
        if (unfetched > 0) {
            ring.fetch(0, next_dy, bytes);
            if constexpr (reads_v) ring.fetch(1, next_v, bytes);
            advance();
            unfetched--;
        }
        ring.send();
    };
    if constexpr (wide) {
#pragma unroll
        for (int i = 1; i < dz_depth; i++) fetch();
    }

    real sum[width] = {};
#pragma unroll(wide ? 1 : 2)
    for (; left > 0; left--) {
        real d[width];
        [[maybe_unused]] real at[width];
        if constexpr (wide) {
            fetch();
            ring.wait();
            unpack<T>(ring.read(0), d);
            if constexpr (reads_v) unpack<T>(ring.read(1), at);
            ring.release();
        } else {
            load(next_dy, d);
            if constexpr (reads_v) load(next_v, at);
            advance();
        }
        if constexpr (reads_v) {
#pragma unroll
            for (int k = 0; k < width; k++)
                d[k] = rounded_product(d[k], slope_shortly<T, act>(at[k], constants));
            if (dz && wide && bytes == 16) {
                store_pack(to, d);
            } else if (dz) {
#pragma unroll
                for (int k = 0; k < width; k++)
                    if (first + k * apart < cols) to[k * apart] = narrow<T>::of(d[k]);
            }
            to += strips * dz_stride;
        }
#pragma unroll
        for (int k = 0; k < width; k++) sum[k] += d[k];
    }
    if (partial)
        write_partial<width, apart>(sum, lane, cols,
                                    partial + int64_t(blockIdx.z) * gridDim.y * cols);
}

/* Sets every row of y to the bias, for a product that adds to it.  T is any type of that size. */
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

/* Whether rows can be accessed by 16 bytes. */
static bool aligned(const tutti__matrix *matrix)
{
    return tutti__cuda_aligned(matrix->data) &&
           matrix->stride * (int64_t)tutti_dtype_size(matrix->dtype) % 16 == 0;
}
static unsigned grid_rows(int64_t rows)
{
    return (unsigned)(rows < 65535 ? rows : 65535);
}

tutti_status tutti__cuda_activate(const char *name, cudaStream_t stream, int64_t rows, int64_t cols,
                                  tutti__activation activation, const tutti__matrix *z,
                                  const tutti__matrix *y)
{
    if (z->stride == cols && y->stride == cols) {
        cols *= rows;
        rows = 1;
    }
    return with_activation(y->dtype, activation.kind, [&](auto type, auto act) {
        using T = typename decltype(type)::type;
        bool wide = rows == 1 ? tutti__cuda_aligned(z->data) && tutti__cuda_aligned(y->data)
                              : aligned(z) && aligned(y);
        dim3 grid((unsigned)div_up(cols, threads * vectors * width_of<T>), grid_rows(rows));
        auto kernel = wide ? activation_kernel<T, decltype(act)::value, true>
                           : activation_kernel<T, decltype(act)::value, false>;
        kernel<<<grid, threads, 0, stream>>>(rows, cols, (const T *)z->data, z->stride,
                                             (T *)y->data, y->stride,
                                             activation_constants<real_of<T>>(activation));
        return tutti__cuda_status(cudaGetLastError(), name);
    });
}

template<class R>
static tutti_status add_partial(const char *name, cudaStream_t stream, const R *partial,
                                int64_t runs, int64_t cols, const tutti__cuda_sums &sums)
{
    const column_parts<R, R> parts = {partial,    runs,         cols,      cols,
                                      0,          (R *)sums.to, NULL,      runs * cols,
                                      sums.apart, sums.span,    sums.later};
    return column_sums_finish(name, stream, parts, sums.accumulate, (unsigned)sums.leaves);
}

tutti_status tutti__cuda_activate_backward(const char *name, cudaStream_t stream, int64_t rows,
                                           int64_t cols, tutti__activation activation,
                                           const tutti__matrix *dy, const tutti__matrix *v,
                                           const tutti__matrix *dz, void *partial,
                                           const tutti__cuda_sums &sums)
{
    const int64_t leaf_rows = rows / sums.leaves;
    const int64_t run = sums.run ? sums.run : column_run(leaf_rows, cols, dy->dtype);
    const int64_t runs = div_up(leaf_rows, run);
    return with_activation(dy->dtype, activation.kind, [&](auto type, auto act) {
        using T = typename decltype(type)::type;
        using real = real_of<T>;
        bool wide = aligned(dy) && (!v->data || aligned(v));
        dim3 grid((unsigned)div_up(cols, lanes * width_of<T>), (unsigned)runs,
                  (unsigned)sums.leaves);
        auto kernel = wide ? dz_kernel<T, decltype(act)::value, true>
                           : dz_kernel<T, decltype(act)::value, false>;
        kernel<<<grid, dim3(lanes, strips), 0, stream>>>(
            leaf_rows, cols, run, (const T *)dy->data, dy->stride, (const T *)v->data, v->stride,
            (T *)dz->data, dz->stride, sums.to ? (real *)partial : NULL,
            activation_constants<real>(activation));
        TUTTI_CUDA_LAUNCHED(name);
        if (!sums.to || sums.later) return TUTTI_OK;
        return add_partial(name, stream, (const real *)partial, runs, cols, sums);
    });
}

tutti_status tutti__cuda_add_partial(const char *name, cudaStream_t stream, tutti_dtype real,
                                     const void *partial, int64_t runs, int64_t cols,
                                     const tutti__cuda_sums &sums)
{
    if (real == TUTTI_F64)
        return add_partial(name, stream, (const double *)partial, runs, cols, sums);
    return add_partial(name, stream, (const float *)partial, runs, cols, sums);
}

tutti_status tutti__cuda_fill_rows(const char *name, cudaStream_t stream, int64_t rows,
                                   int64_t cols, const void *bias, const tutti__matrix *y)
{
    int64_t across = div_up(cols, threads);
    dim3 grid((unsigned)(across < 1024 ? across : 1024), grid_rows(rows));
    return tutti__cuda_dispatch(y->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        bias_rows_kernel<T>
            <<<grid, threads, 0, stream>>>(rows, cols, (const T *)bias, (T *)y->data, y->stride);
        return tutti__cuda_status(cudaGetLastError(), name);
    });
}

tutti_status tutti__cuda_load_passes(const char *name, tutti_dtype dtype,
                                     tutti__activation activation)
{
    return with_activation(dtype, activation.kind, [&](auto type, auto act) {
        using T = typename decltype(type)::type;
        cudaFuncAttributes attributes;
        cudaError_t error = cudaSuccess;
        auto touch = [&](auto kernel) {
            if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, kernel);
        };
        touch(bias_rows_kernel<T>);
        touch(activation_kernel<T, decltype(act)::value, true>);
        touch(activation_kernel<T, decltype(act)::value, false>);
        touch(dz_kernel<T, decltype(act)::value, true>);
        touch(dz_kernel<T, decltype(act)::value, false>);
        for (bool even : {false, true})
            for (column_shape shape : {FEW_COLUMNS, FEW_ROWS_OF_MANY, OTHER_COLUMNS})
                touch(column_sums_kernel_of<real_of<T>, real_of<T>>(even, shape));
        return tutti__cuda_status(error, name);
    });
}
