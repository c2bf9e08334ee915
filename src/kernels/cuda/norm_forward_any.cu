/* LayerNorm and RMSNorm, forward, of any types and any length: a kernel that loads and stores by
 * run-time type.  A block per row; with `staged` the row is kept in shared memory as arithmetic
 * values, otherwise it is read again for each of the sums and for y. */
#include "kernels/cuda/norm_forward.cuh"

enum { ANY_THREADS = 512 };

/* WIDTH: a thread's neighbouring columns. */
template<class A, int WIDTH>
struct norm_forward_reader {
    const tutti__norm_args &args;
    const norm_forward_even &even;
    int64_t row;

    /* the values to be normalised; `again`: the sum has been written */
    __device__ __forceinline__ void operator()(A (&v)[WIDTH], int col, bool again) const
    {
        int cols = (int)args.cols, count = cols - col;
        if (again && args.sum.data) {
            load_any(v, args.sum.data, args.sum.dtype, row * args.sum.stride + col, count,
                     even.sum);
            return;
        }
        load_any(v, args.x.data, args.x.dtype, row * args.x.stride + col, count, even.x);
        if (args.residual.data) {
            A r[WIDTH];
            load_any(r, args.residual.data, args.residual.dtype, row * args.residual.stride + col,
                     count, even.residual);
#pragma unroll
            for (int i = 0; i < WIDTH; i++) v[i] = round_to(v[i] + r[i]);
        }
    }

    __device__ __forceinline__ A round_to(A value) const
    {
        switch (args.x.dtype) {
        case TUTTI_F32:
            return widen<A>(narrow<float>::of(value));
        case TUTTI_F16:
            return widen<A>(narrow<__half>::of(value));
        case TUTTI_BF16:
            return widen<A>(narrow<__nv_bfloat16>::of(value));
        default:
            return value;
        }
    }
};

template<class A, int WIDTH>
__global__ void __launch_bounds__(ANY_THREADS, WIDTH == 2       ? 3
                                               : sizeof(A) == 8 ? 1
                                                                : 2)
    norm_forward_any_kernel(tutti__norm_args args, norm_forward_even even, bool staged)
{
    extern __shared__ __align__(16) unsigned char dynamic_shared[];
    A *stage = (A *)dynamic_shared;
    __shared__ block_team_slots<A, 2> slots;
    block_team<A, 2> team(slots, 1);
    int cols = (int)args.cols, step = blockDim.x * WIDTH, first = threadIdx.x * WIDTH;
    A count = (A)cols;

    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        norm_forward_reader<A, WIDTH> read = {args, even, row};
        A v[WIDTH], mean = 0;
        row_total<A> total;
        for (int col = first; col < cols; col += step) {
            A part = 0;
            read(v, col, false);
            if (args.sum.data)
                store_any(args.sum.data, args.sum.dtype, row * args.sum.stride + col, v, cols - col,
                          even.sum);
#pragma unroll
            for (int i = 0; i < WIDTH; i++)
                if (col + i < cols) {
                    part += args.centered ? v[i] : v[i] * v[i];
                    if (staged) stage[col + i] = v[i];
                }
            total.add(part);
        }
        A sums[2] = {total.value(), 0};
        /* from here on a thread reads only what it has staged or written itself */
        auto reread = [&](int col) {
            if (!staged)
                read(v, col, true);
            else
#pragma unroll
                for (int i = 0; i < WIDTH; i++) v[i] = col + i < cols ? stage[col + i] : (A)0;
        };
        /* sums over the row of (x - mean)^2 and of x - mean */
        auto sum_centred = [&]() {
            row_total<A> squares, moved;
            for (int col = first; col < cols; col += step) {
                reread(col);
                A part = 0, part_moved = 0;
#pragma unroll
                for (int i = 0; i < WIDTH; i++)
                    if (col + i < cols) {
                        A centred = v[i] - mean;
                        part += centred * centred;
                        part_moved += centred;
                    }
                squares.add(part);
                moved.add(part_moved);
            }
            sums[0] = squares.value();
            sums[1] = moved.value();
            team.template reduce<row_add>(sums);
        };
        team.template reduce<row_add>(sums);
        if (args.centered) {
            mean = sums[0] / count;
            int passes = 1; /* and more for a delicate row */
#pragma unroll 1
            for (int pass = 0; pass < passes; pass++) {
                sum_centred();
                if (pass == 0 && is_delicate(mean, sums[0] / count)) passes += DELICATE_PASSES;
                if (pass > 0) correct_mean(mean, sums[0], sums[1], sums[1] / count);
            }
        }
        A rstd = isfinite(sums[0]) ? (A)1 / sqrt(sums[0] / count + (A)args.eps) : (A)CUDART_NAN;
        if (args.rstd && threadIdx.x == 0) {
            ((A *)args.rstd)[row] = rstd;
            if (args.centered) ((A *)args.mean)[row] = mean;
        }
        for (int col = first; col < cols; col += step) {
            reread(col);
#pragma unroll
            for (int i = 0; i < WIDTH; i++) v[i] = (v[i] - mean) * rstd;
            if (args.gamma) {
                A p[WIDTH];
                load_any(p, args.gamma, args.param_dtype, col, cols - col, even.gamma);
#pragma unroll
                for (int i = 0; i < WIDTH; i++) v[i] *= args.zero_centered ? p[i] + (A)1 : p[i];
                if (args.beta) {
                    load_any(p, args.beta, args.param_dtype, col, cols - col, even.beta);
#pragma unroll
                    for (int i = 0; i < WIDTH; i++) v[i] += p[i];
                }
            }
            store_any(args.y.data, args.y.dtype, row * args.y.stride + col, v, cols - col, even.y);
        }
    }
}

template<class A>
static tutti_status forward_any(tutti_context *ctx, const tutti__norm_args *args)
{
    int threads = 32;
    while (threads < ANY_THREADS && threads * 8 < args->cols) threads *= 2;
    /* at least two blocks per SM, otherwise the row is read again from the cache */
    size_t shared = (size_t)args->cols * sizeof(A);
    const size_t most = (size_t)tutti__cuda_shared_limit(ctx->device) / 2;
    const bool staged = shared <= most;
    if (!staged) shared = 0;
    auto launch = [&](auto kernel, int width) {
        if (shared > 40 << 10) /* always the same value: contexts of other threads launch it too */
            TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            (int)most),
                       "norm_forward");
        return row_launch("norm_forward", kernel, row_grid(args->rows, 1, 1), threads, 1, shared,
                          tutti__cuda_stream(ctx), *args, find_even(args, width), staged);
    };
    /* f64 that is read once: 16 bytes, so that a warp's accesses are whole lines */
    if constexpr (sizeof(A) == 8)
        if (staged) return launch(norm_forward_any_kernel<A, 2>, 2);
    return launch(norm_forward_any_kernel<A, 8>, 8);
}

tutti_status tutti__cuda_norm_forward_any(tutti_context *ctx, const tutti__norm_args *args,
                                          bool wide)
{
    return wide ? forward_any<double>(ctx, args) : forward_any<float>(ctx, args);
}
