/* Sums of gradients as a binary tree over their inputs, element by element: each input read once,
 * the result written once. A thread keeps the tree's stack of 16-byte vectors in registers; all
 * threads do the same pushes and pops.  Further sums of the same kind are further rows of blocks. */
#include "kernels/cuda/rows.cuh"
#include "ops/tree_sum.h"

enum { TREE_THREADS = 256, TREE_DEPTH = 10 /* for 256 inputs, and the one being pushed */ };

template<class T, int N>
struct alignas(N * sizeof(T)) tree_vector {
    T value[N];
};

/* T: of the sums; I, O: of the inputs and of dst. */
template<class T, class I, class O, int N>
__global__ void __launch_bounds__(TREE_THREADS)
    tree_sum_kernel(const __grid_constant__ tutti__tree_sum_args args)
{
    const int64_t step = (int64_t)gridDim.x * TREE_THREADS, count = args.count / N;
    auto input = [&](int k, int64_t i) {
        const bool near = (unsigned)(k - args.near) < (unsigned)args.near_inputs;
        const char *in = (const char *)args.in[k];
        return (
            (const tree_vector<I, N> *)(in + blockIdx.y * (near ? args.apart : args.far_apart)))[i];
    };
    for (int64_t i = (int64_t)blockIdx.x * TREE_THREADS + threadIdx.x; i < count; i += step) {
        tree_vector<T, N> stack[TREE_DEPTH]; /* [0] is the top; shifted: it stays in registers */
        tree_vector<I, N> next = input(0, i);
        for (int k = 0; k < args.inputs; k++) {
            const tree_vector<I, N> in = next;
            if (k + 1 < args.inputs) next = input(k + 1, i);
#pragma unroll
            for (int d = TREE_DEPTH - 1; d > 0; d--) stack[d] = stack[d - 1];
#pragma unroll
            for (int e = 0; e < N; e++) stack[0].value[e] = widen<T>(in.value[e]);
            for (int p = 0; p < args.pops[k]; p++) {
#pragma unroll
                for (int e = 0; e < N; e++)
                    stack[0].value[e] = stack[1].value[e] + stack[0].value[e];
#pragma unroll
                for (int d = 1; d < TREE_DEPTH - 1; d++) stack[d] = stack[d + 1];
            }
        }
        tree_vector<O, N> out;
#pragma unroll
        for (int e = 0; e < N; e++) out.value[e] = narrow<O>::of(stack[0].value[e]);
        ((tree_vector<O, N> *)((char *)args.dst + blockIdx.y * args.apart))[i] = out;
    }
}

template<class T, class I, class O, int N>
static tutti_status launch(cudaStream_t stream, const tutti__tree_sum_args &args)
{
    if (args.count < N) return TUTTI_OK;
    return row_launch("tree_sum", tree_sum_kernel<T, I, O, N>,
                      dim3(row_grid(args.count / N, TREE_THREADS, 1), 1 + (unsigned)args.more),
                      TREE_THREADS, 1, 0, stream, args);
}

/* Whole vectors where everything is aligned, then the rest one by one. */
template<class T, class I, class O>
static tutti_status sum(cudaStream_t stream, const tutti__tree_sum_args *args)
{
    constexpr int N = 16 / sizeof(T);
    bool aligned = (uintptr_t)args->dst % (N * sizeof(O)) == 0;
    for (int k = 0; k < args->inputs; k++)
        aligned = aligned && (uintptr_t)args->in[k] % (N * sizeof(I)) == 0;
    if (!aligned) return launch<T, I, O, 1>(stream, *args);
    TUTTI_TRY((launch<T, I, O, N>(stream, *args)));
    const int64_t done = args->count / N * N;
    if (done == args->count) return TUTTI_OK;
    tutti__tree_sum_args rest = *args;
    rest.count -= done;
    rest.dst = (O *)rest.dst + done;
    for (int k = 0; k < rest.inputs; k++) rest.in[k] = (const I *)rest.in[k] + done;
    return launch<T, I, O, 1>(stream, rest);
}

tutti_status tutti__cuda_tree_sum(int device, tutti__stream stream,
                                  const tutti__tree_sum_args *args)
{
    using bf16 = __nv_bfloat16;
    cudaStream_t on = (cudaStream_t)stream;
    TUTTI_TRY(tutti__cuda_use(device, "tree_sum"));
    if (args->dtype == TUTTI_F64) return sum<double, double, double>(on, args);
    const bool in = args->in_dtype == TUTTI_BF16, to = args->to_dtype == TUTTI_BF16;
    return in   ? to ? sum<float, bf16, bf16>(on, args) : sum<float, bf16, float>(on, args)
             : to ? sum<float, float, bf16>(on, args)
                : sum<float, float, float>(on, args);
}
