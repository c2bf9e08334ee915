/* BiasDropoutActivation on the GPU: one elementwise pass each way.
 *
 * Forward reads x and writes y, backward reads dy and x and writes dx: 2 and 3 rows cols e bytes at
 * the least; the mask is made anew each time and moves none.  A thread has 8 neighbouring columns of
 * a row, those of one call of Philox.  In backward a block also sums its run of rows for dbias, strip
 * by strip, and column_sums.cuh adds the runs in order.  Not tuned. */
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/column_sums.cuh"
#include "ops/dropout.h"

constexpr int group = 8;

template<class T>
__device__ __forceinline__ void load_group(real_of<T> (&values)[group], const T *at, int count)
{
    load_elements(values, at, count, skew_of(at) == 0);
}

/* z = x + bias of the columns from `first` on */
template<class T>
__device__ __forceinline__ void load_z(real_of<T> (&z)[group], const tutti__dropout_args &args,
                                       int64_t row, int64_t first, int count)
{
    load_group(z, (const T *)args.x.data + row * args.x.stride + first, count);
    if (!args.bias) return;
    real_of<T> bias[group];
    load_group(bias, (const T *)args.bias + first, count);
#pragma unroll
    for (int i = 0; i < group; i++) z[i] += bias[i];
}

/* v = keep ? v / (1 - p) : 0 */
template<class R>
__device__ __forceinline__ void drop(R (&v)[group], const tutti__dropout_args &args, int64_t row,
                                     int64_t first)
{
    if (args.dropped == 0) return;
    const R kept = tutti__dropout_kept(&args);
    const tutti__random bits =
        tutti__dropout_bits(&args, args.step->seed, args.step->step, row, first / group);
#pragma unroll
    for (int i = 0; i < group; i++)
        v[i] = tutti__dropout_goes(&args, &bits, i) ? R(0) : v[i] / kept;
}

template<class T, tutti_activation act>
__global__ void __launch_bounds__(threads) dropout_group_kernel(tutti__dropout_args args)
{
    typedef real_of<T> real;
    const int64_t first = (int64_t(blockIdx.x) * threads + threadIdx.x) * group;
    if (first >= args.cols) return;
    const int count = args.cols - first < group ? int(args.cols - first) : group;
    for (int64_t row = blockIdx.y; row < args.rows; row += gridDim.y) {
        real z[group];
        load_z<T>(z, args, row, first, count);
#pragma unroll
        for (int i = 0; i < group; i++)
            z[i] = activate<real, act>(z[i], real(args.activation.slope));
        drop(z, args, row, first);
        T *y = (T *)args.y.data + row * args.y.stride + first;
        store_elements(y, z, count, skew_of(y) == 0);
    }
}

/* Block (x, y) has lanes groups of columns and the y-th run of rows; its sums go to partial[y][cols],
 * where partial is not NULL. */
template<class T, tutti_activation act>
__global__ void __launch_bounds__(threads)
    dropout_backward_strips_kernel(tutti__dropout_args args, int64_t run, real_of<T> *partial)
{
    typedef real_of<T> real;
    const int64_t first = int64_t(blockIdx.x) * lanes * group + threadIdx.x * group;
    const int64_t left = args.cols - first;
    const int count = left < 0 ? 0 : left < group ? int(left) : group;
    const int64_t begin = int64_t(blockIdx.y) * run,
                  end = begin + run < args.rows ? begin + run : args.rows;
    real sum[group] = {};
    for (int64_t row = begin + threadIdx.y; count > 0 && row < end; row += strips) {
        real d[group];
        load_group(d, (const T *)args.dy.data + row * args.dy.stride + first, count);
        if constexpr (act != TUTTI_ACT_NONE) {
            real z[group];
            load_z<T>(z, args, row, first, count);
#pragma unroll
            for (int i = 0; i < group; i++)
                d[i] *= slope_at<real, act>(z[i], real(args.activation.slope));
        }
        drop(d, args, row, first);
#pragma unroll
        for (int i = 0; i < group; i++) sum[i] += d[i];
        if (!args.dx.data) continue;
        T *dx = (T *)args.dx.data + row * args.dx.stride + first;
        store_elements(dx, d, count, skew_of(dx) == 0);
    }
    if (partial) write_partial<group, 1>(sum, int(threadIdx.x) * group, args.cols, partial);
}

static tutti_status dropout_plan(tutti_context *, const void *untyped, bool backward,
                                 tutti__plan *plan)
{
    const tutti__dropout_args *args = (const tutti__dropout_args *)untyped;
    if (!backward) return TUTTI_OK;
    const int64_t runs = div_up(args->rows, column_run(args->rows, args->cols, args->dtype));
    plan->scratch = (size_t)(runs * args->cols) * (args->dtype == TUTTI_F64 ? 8 : 4);
    return TUTTI_OK;
}

static tutti_status dropout_forward(const tutti__job *job, const void *untyped)
{
    const tutti__dropout_args *args = (const tutti__dropout_args *)untyped;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, "dropout_forward"));
    if (args->rows == 0) return TUTTI_OK;
    const dim3 grid((unsigned)div_up(args->cols, threads * group),
                    (unsigned)(args->rows < 65535 ? args->rows : 65535));
    return with_activation(args->dtype, args->activation.kind, [&](auto type, auto act) {
        using T = typename decltype(type)::type;
        dropout_group_kernel<T, decltype(act)::value>
            <<<grid, threads, 0, tutti__cuda_stream(job->ctx)>>>(*args);
        return tutti__cuda_status(cudaGetLastError(), "dropout_forward");
    });
}

static tutti_status dropout_backward(const tutti__job *job, const void *untyped)
{
    const tutti__dropout_args *args = (const tutti__dropout_args *)untyped;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, "dropout_backward"));
    const cudaStream_t stream = tutti__cuda_stream(job->ctx);
    const int64_t run = column_run(args->rows, args->cols, args->dtype);
    const int64_t runs = div_up(args->rows, run); /* without rows none: dbias is a sum of nothing */
    const dim3 grid((unsigned)div_up(args->cols, lanes * group), (unsigned)runs);
    return with_activation(args->dtype, args->activation.kind, [&](auto type, auto act) {
        using T = typename decltype(type)::type;
        using real = real_of<T>;
        real *partial = args->dbias ? (real *)job->scratch : NULL;
        if (runs > 0)
            dropout_backward_strips_kernel<T, decltype(act)::value>
                <<<grid, dim3(lanes, strips), 0, stream>>>(*args, run, partial);
        TUTTI_CUDA_LAUNCHED("dropout_backward");
        if (!args->dbias) return TUTTI_OK;
        return column_sums_finish("dropout_backward", stream, runs, args->cols,
                                  (const real *)partial, (real *)args->dbias, args->accumulate);
    });
}

extern "C" const tutti__op tutti__cuda_dropout = {dropout_plan, dropout_forward, dropout_backward};
