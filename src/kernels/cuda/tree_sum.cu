/* Sums of gradients as a binary tree over their inputs, element by element: each input read once,
 * the result written once. A thread keeps the tree's stack of 16-byte vectors in registers; all
 * threads do the same pushes and pops. */
#include "kernels/cuda/rows.cuh"
#include "ops/tree_sum.h"

enum { TREE_THREADS = 256, TREE_DEPTH = 10 /* for 256 inputs, and the one being pushed */ };

template<class T, int N>
struct alignas(N * sizeof(T)) tree_vector {
    T value[N];
};

template<class T, int N>
__global__ void __launch_bounds__(TREE_THREADS)
    tree_sum_kernel(const __grid_constant__ tutti__tree_sum_args args)
{
    using vector = tree_vector<T, N>;
    const int64_t step = (int64_t)gridDim.x * TREE_THREADS, count = args.count / N;
    for (int64_t i = (int64_t)blockIdx.x * TREE_THREADS + threadIdx.x; i < count; i += step) {
        vector stack[TREE_DEPTH]; /* [0] is the top; shifted, so that it stays in registers */
        for (int k = 0; k < args.inputs; k++) {
#pragma unroll
            for (int d = TREE_DEPTH - 1; d > 0; d--) stack[d] = stack[d - 1];
            stack[0] = ((const vector *)args.in[k])[i];
            for (int p = 0; p < args.pops[k]; p++) {
#pragma unroll
                for (int e = 0; e < N; e++)
                    stack[0].value[e] = stack[1].value[e] + stack[0].value[e];
#pragma unroll
                for (int d = 1; d < TREE_DEPTH - 1; d++) stack[d] = stack[d + 1];
            }
        }
        ((vector *)args.dst)[i] = stack[0];
    }
}

template<class T, int N>
static tutti_status launch(cudaStream_t stream, const tutti__tree_sum_args &args)
{
    if (args.count < N) return TUTTI_OK;
    return row_launch("tree_sum", tree_sum_kernel<T, N>, row_grid(args.count / N, TREE_THREADS, 1),
                      TREE_THREADS, 1, 0, stream, args);
}

/* Whole vectors where everything is aligned, then the rest one by one. */
template<class T>
static tutti_status sum(cudaStream_t stream, const tutti__tree_sum_args *args)
{
    constexpr int N = 16 / sizeof(T);
    bool aligned = (uintptr_t)args->dst % 16 == 0;
    for (int k = 0; k < args->inputs; k++) aligned = aligned && (uintptr_t)args->in[k] % 16 == 0;
    if (!aligned) return launch<T, 1>(stream, *args);
    TUTTI_TRY((launch<T, N>(stream, *args)));
    const int64_t done = args->count / N * N;
    if (done == args->count) return TUTTI_OK;
    tutti__tree_sum_args rest = *args;
    rest.count -= done;
    rest.dst = (T *)rest.dst + done;
    for (int k = 0; k < rest.inputs; k++) rest.in[k] = (const T *)rest.in[k] + done;
    return launch<T, 1>(stream, rest);
}

tutti_status tutti__cuda_tree_sum(int device, tutti__stream stream,
                                  const tutti__tree_sum_args *args)
{
    TUTTI_TRY(tutti__cuda_use(device, "tree_sum"));
    return args->dtype == TUTTI_F64 ? sum<double>((cudaStream_t)stream, args)
                                    : sum<float>((cudaStream_t)stream, args);
}
