/* LayerNorm and RMSNorm, backward, of any types and any length: first the two means of each row,
 * then blocks that own a slice of the columns read x and dy again. */
#include "kernels/cuda/norm_backward.cuh"

enum {
    ANY_WIDTH = BACKWARD_ANY_WIDTH,
    ANY_THREADS = BACKWARD_ANY_THREADS,
    SUMS_THREADS = 512,
};

/* First: for each row the means of g * n and of g. */
template<class A>
struct any_row {
    A x[ANY_WIDTH], dy[ANY_WIDTH], gamma[ANY_WIDTH];

    __device__ __forceinline__ void load_gamma(const tutti__norm_args &args, bool even, int col)
    {
#pragma unroll
        for (int i = 0; i < ANY_WIDTH; i++) gamma[i] = 1;
        if (!args.gamma) return;
        load_any(gamma, args.gamma, args.param_dtype, col, (int)args.cols - col, even);
#pragma unroll
        for (int i = 0; i < ANY_WIDTH; i++)
            if (args.zero_centered) gamma[i] += 1;
    }

    __device__ __forceinline__ void load(const tutti__norm_args &args,
                                         const norm_backward_even &even, int64_t row, int col)
    {
        int count = (int)args.cols - col;
        load_any(x, args.x.data, args.x.dtype, row * args.x.stride + col, count, even.x);
        load_any(dy, args.dy.data, args.dy.dtype, row * args.dy.stride + col, count, even.dy);
    }
};

template<class A>
__global__ void __launch_bounds__(SUMS_THREADS)
    norm_backward_sums_kernel(tutti__norm_args args, norm_backward_even even,
                              backward_scratch<A> scratch)
{
    __shared__ block_team_slots<A, 2> slots;
    block_team<A, 2> team(slots, 1);
    int cols = (int)args.cols, step = blockDim.x * ANY_WIDTH, first = threadIdx.x * ANY_WIDTH;
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        A mean = args.centered ? ((const A *)args.mean)[row] : (A)0;
        A rstd = ((const A *)args.rstd)[row];
        row_total<A> total_gn, total_g;
        for (int col = first; col < cols; col += step) {
            any_row<A> part;
            part.load(args, even, row, col);
            part.load_gamma(args, even.gamma, col);
            A gn = 0, all = 0;
#pragma unroll
            for (int i = 0; i < ANY_WIDTH; i++) {
                A g = part.dy[i] * part.gamma[i];
                gn += g * ((part.x[i] - mean) * rstd);
                all += g;
            }
            total_gn.add(gn);
            total_g.add(all);
        }
        A sums[2] = {total_gn.value(), total_g.value()};
        team.template reduce<row_add>(sums);
        if (threadIdx.x < 2)
            scratch.sums[row * 2 + threadIdx.x] = sums[threadIdx.x == 0 ? 0 : 1] / (A)cols;
    }
}

/* Second: a block has ANY_WIDTH columns per thread and every partials-th row. */
template<class A>
__global__ void __launch_bounds__(ANY_THREADS)
    norm_backward_slices_kernel(tutti__norm_args args, norm_backward_even even,
                                backward_scratch<A> scratch, int slices)
{
    int slice = blockIdx.x % slices, cols = (int)args.cols;
    int64_t chunk = blockIdx.x / slices, chunks = gridDim.x / slices;
    int col = (slice * blockDim.x + threadIdx.x) * ANY_WIDTH, count = cols - col;
    if (count <= 0) return;
    any_row<A> part;
    part.load_gamma(args, even.gamma, col);
    A dgamma[ANY_WIDTH] = {}, dbeta[ANY_WIDTH] = {};
    for (int64_t row = chunk; row < args.rows; row += chunks) {
        A mean = args.centered ? ((const A *)args.mean)[row] : (A)0;
        A rstd = ((const A *)args.rstd)[row];
        A mean_gn = scratch.sums[row * 2];
        A mean_g = args.centered ? scratch.sums[row * 2 + 1] : (A)0;
        part.load(args, even, row, col);
        A dx[ANY_WIDTH];
#pragma unroll
        for (int i = 0; i < ANY_WIDTH; i++) {
            A n = (part.x[i] - mean) * rstd;
            dgamma[i] += part.dy[i] * n;
            dbeta[i] += part.dy[i];
            dx[i] = rstd * (part.dy[i] * part.gamma[i] - mean_g - n * mean_gn);
        }
        if (!args.dx.data) continue;
        if (args.dsum.data) {
            A dsum[ANY_WIDTH];
            load_any(dsum, args.dsum.data, args.dsum.dtype, row * args.dsum.stride + col, count,
                     even.dsum);
#pragma unroll
            for (int i = 0; i < ANY_WIDTH; i++) dx[i] += dsum[i];
        }
        store_any(args.dx.data, args.dx.dtype, row * args.dx.stride + col, dx, count, even.dx);
    }
    /* the pitch has room for the last vector */
    if (args.dgamma) store_elements(scratch.row(chunk, 0) + col, dgamma, ANY_WIDTH, true);
    if (args.dbeta) store_elements(scratch.row(chunk, 1) + col, dbeta, ANY_WIDTH, true);
}

template<class A>
tutti_status tutti__cuda_norm_backward_sliced(tutti_context *ctx, const tutti__norm_args *args,
                                              const backward_plan &plan,
                                              const backward_scratch<A> &scratch)
{
    norm_backward_even even = find_even(args, ANY_WIDTH);
    cudaStream_t stream = tutti__cuda_stream(ctx);
    int threads = 32;
    while (threads < SUMS_THREADS && threads * ANY_WIDTH < args->cols) threads *= 2;
    if (args->dx.data)
        TUTTI_TRY(row_launch("norm_backward", norm_backward_sums_kernel<A>,
                             row_grid(args->rows, 1, 1), threads, 1, 0, stream, *args, even,
                             scratch));
    return row_launch("norm_backward", norm_backward_slices_kernel<A>,
                      (unsigned)(plan.partials * plan.slices), plan.threads, 1, 0, stream, *args,
                      even, scratch, plan.slices);
}

template tutti_status tutti__cuda_norm_backward_sliced(tutti_context *, const tutti__norm_args *,
                                                       const backward_plan &,
                                                       const backward_scratch<float> &);
template tutti_status tutti__cuda_norm_backward_sliced(tutti_context *, const tutti__norm_args *,
                                                       const backward_plan &,
                                                       const backward_scratch<double> &);
