/* BiasDropoutActivation on the GPU: one pass over the elements.
 *
 * Forward reads x and writes y, backward reads dy and x and writes dx: 2 and 3 rows cols elements;
 * the mask is computed again instead of stored, a Philox block for 8 neighbouring columns.  A
 * thread has such 8 columns of every strips-th row of its block's run of rows, and adds up their
 * dbias, in f32 (f64 for f64); column_sums.cuh adds threads and blocks in a fixed order.  Not
 * tuned. */
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/rows.cuh"
#include "ops/dropout.h"

constexpr int group = 8; /* columns whose random bits come together */

/* Backward: partial is NULL where dbias is not wanted.  even: rows can be accessed in whole
 * groups. */
template<class T, tutti_activation act, bool backward>
__global__ void __launch_bounds__(threads)
    dropout_kernel(tutti__dropout_args args, int64_t run, bool even, real_of<T> *partial)
{
    typedef real_of<T> real;
    const int64_t col = (int64_t(blockIdx.x) * lanes + threadIdx.x) * group;
    const int64_t left = args.cols - col, begin = blockIdx.y * run;
    const int64_t end = begin + run < args.rows ? begin + run : args.rows;
    const int count = left < 0 ? 0 : left < group ? int(left) : group;
    const real slope = real(args.activation.slope), p_keep = tutti__dropout_p_keep(&args);
    real bias[group] = {}, z[group] = {}, v[group], sum[group] = {};
    if (args.bias) load_elements(bias, (const T *)args.bias + col, count, false);
    for (int64_t row = begin + threadIdx.y; row < end && count > 0; row += strips) {
        const uint32_t kept = tutti__dropout_kept(&args, row, col / group);
        if constexpr (!backward || act != TUTTI_ACT_NONE)
            load_elements(z, (const T *)args.x.data + row * args.x.stride + col, count, even);
        if constexpr (backward)
            load_elements(v, (const T *)args.dy.data + row * args.dy.stride + col, count, even);
#pragma unroll
        for (int i = 0; i < group; i++) {
            if (args.bias) z[i] += bias[i];
            /* by the arithmetic's own functions, whatever is stored: z is not rounded */
            if constexpr (!backward) v[i] = activate<real, act>(z[i], slope);
            if constexpr (backward && act != TUTTI_ACT_NONE)
                v[i] *= slope_at<real, act>(z[i], slope);
            v[i] = kept >> i & 1 ? v[i] / p_keep : real(0);
            sum[i] += v[i];
        }
        if (!backward && args.residual.data) {
            real r[group];
            load_elements(r, (const T *)args.residual.data + row * args.residual.stride + col,
                          count, even);
#pragma unroll
            for (int i = 0; i < group; i++) v[i] += r[i];
        }
        const tutti__matrix &to = backward ? args.dx : args.y;
        if (to.data) store_elements((T *)to.data + row * to.stride + col, v, count, even);
    }
    if constexpr (backward)
        if (partial) write_partial<group, 1>(sum, int(threadIdx.x) * group, args.cols, partial);
}

static tutti_status dropout_plan(tutti_context *ctx, const void *untyped, bool backward,
                                 tutti__plan *plan)
{
    (void)ctx;
    const tutti__dropout_args *args = (const tutti__dropout_args *)untyped;
    const int64_t run = column_run(args->rows, args->cols, args->dtype);
    if (backward && args->bias)
        plan->scratch = size_t(div_up(args->rows, run) * args->cols) *
                        (args->dtype == TUTTI_F64 ? sizeof(double) : sizeof(float));
    return TUTTI_OK;
}

template<bool backward>
static tutti_status dropout_run(const tutti__job *job, const void *untyped)
{
    const tutti__dropout_args &args = *(const tutti__dropout_args *)untyped;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, "dropout"));
    const cudaStream_t stream = tutti__cuda_stream(job->ctx);
    const int64_t run = column_run(args.rows, args.cols, args.dtype), runs = div_up(args.rows, run);
    return with_activation(args.dtype, args.activation.kind, [&](auto type, auto act) {
        using T = typename decltype(type)::type;
        using real = real_of<T>;
        real *partial = args.dbias ? (real *)job->scratch : NULL;
        bool even = true; /* of what is there; absent tensors are at NULL */
        for (const tutti__matrix &m : {args.x, args.residual, args.y, args.dy, args.dx})
            even = even && (!m.data || row_even(m, args.rows, group));
        const dim3 grid((unsigned)div_up(args.cols, lanes * group), (unsigned)runs);
        if (runs > 0)
            dropout_kernel<T, decltype(act)::value, backward>
                <<<grid, dim3(lanes, strips), 0, stream>>>(args, run, even, partial);
        TUTTI_CUDA_LAUNCHED("dropout");
        if (!backward || !args.dbias) return TUTTI_OK;
        return column_sums_finish("dropout", stream, runs, args.cols, (const real *)partial,
                                  (real *)args.dbias, args.accumulate);
    });
}

extern "C" const tutti__op tutti__cuda_dropout = {dropout_plan, dropout_run<false>,
                                                  dropout_run<true>};
