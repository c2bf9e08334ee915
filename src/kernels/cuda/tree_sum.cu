/* Sums of gradients as a binary tree over their inputs, element by element: each input read once,
 * the result written once. A thread keeps the trees' stacks of 16-byte vectors in registers; all
 * threads do the same pushes and pops.  Low trees, as that of a sum in order, leave registers for
 * several vectors.  Further sums of the same kind are further rows of blocks. */
#include "kernels/cuda/rows.cuh"
#include "ops/tree_sum.h"

enum { TREE_THREADS = 256, TREE_DEPTH = 10 /* for 256 inputs, and the one being pushed */ };

template<class T, int N>
struct alignas(N * sizeof(T)) tree_vector {
    T value[N];
};

/* T: of the sums; I, O: of the inputs and of dst, to which near inputs and dst are only rounded if
 * ROUNDS; DEPTH: of the stack; U: vectors of a thread. */
template<class T, class I, class O, bool ROUNDS, int N, int DEPTH, int U>
__global__ void __launch_bounds__(TREE_THREADS)
    tree_sum_kernel(const __grid_constant__ tutti__tree_sum_args args)
{
    typedef tree_vector<I, N> in_vector;
    typedef tree_vector<std::conditional_t<ROUNDS, T, O>, N> out_vector;
    const int64_t step = (int64_t)gridDim.x * TREE_THREADS * U, count = args.count / N;
    start_next();
    wait_for_previous();
    for (int64_t i = (int64_t)blockIdx.x * TREE_THREADS * U + threadIdx.x; i < count; i += step) {
        tree_vector<T, N> stack[U][DEPTH]; /* [0] is the top; shifted: it stays in registers */
        in_vector next[U] = {};
        auto read = [&](int k) {
            const bool near = (unsigned)(k - args.near) < (unsigned)args.near_inputs;
            const char *in =
                (const char *)args.in[k] + blockIdx.y * (near ? args.apart : args.far_apart);
#pragma unroll
            for (int u = 0; u < U; u++) {
                const int64_t at = i + u * TREE_THREADS;
                if (at >= count) continue;
                if (ROUNDS && near) {
                    const tree_vector<T, N> wide = ((const tree_vector<T, N> *)in)[at];
#pragma unroll
                    for (int e = 0; e < N; e++) next[u].value[e] = narrow<I>::of(wide.value[e]);
                } else
                    next[u] = ((const in_vector *)in)[at];
            }
        };
        read(0);
        for (int k = 0; k < args.inputs; k++) {
#pragma unroll
            for (int u = 0; u < U; u++) {
#pragma unroll
                for (int d = DEPTH - 1; d > 0; d--) stack[u][d] = stack[u][d - 1];
#pragma unroll
                for (int e = 0; e < N; e++) stack[u][0].value[e] = widen<T>(next[u].value[e]);
            }
            if (k + 1 < args.inputs) read(k + 1);
            for (int p = 0; p < args.pops[k]; p++) {
#pragma unroll
                for (int u = 0; u < U; u++) {
#pragma unroll
                    for (int e = 0; e < N; e++)
                        stack[u][0].value[e] = stack[u][1].value[e] + stack[u][0].value[e];
#pragma unroll
                    for (int d = 1; d < DEPTH - 1; d++) stack[u][d] = stack[u][d + 1];
                }
            }
        }
        out_vector *to = (out_vector *)((char *)args.dst + blockIdx.y * args.apart) + i;
#pragma unroll
        for (int u = 0; u < U; u++) {
            out_vector out;
#pragma unroll
            for (int e = 0; e < N; e++) {
                const O rounded = narrow<O>::of(stack[u][0].value[e]);
                if constexpr (ROUNDS)
                    out.value[e] = widen<T>(rounded);
                else
                    out.value[e] = rounded;
            }
            if (i + u * TREE_THREADS < count) to[u * TREE_THREADS] = out;
        }
    }
}

static int depth_of(const tutti__tree_sum_args &args)
{
    int depth = 0, most = 0;
    for (int k = 0; k < args.inputs; k++) {
        if (++depth > most) most = depth;
        depth -= args.pops[k];
    }
    return most;
}

template<class T, class I, class O, bool ROUNDS, int N>
static tutti_status launch(int device, cudaStream_t stream, const tutti__tree_sum_args &args)
{
    if (args.count < N) return TUTTI_OK;
    auto start = [&](auto kernel, int vectors) {
        const int64_t count = args.count / N;
        return launch_early(
            "tree_sum", device, kernel,
            dim3(row_grid(count, TREE_THREADS * vectors, 1), 1 + (unsigned)args.more),
            dim3(TREE_THREADS), stream, args);
    };
    if constexpr (N > 1) {
        const int depth = depth_of(args);
        constexpr int U = ROUNDS ? 2 : 4;
        if (depth <= 2) return start(tree_sum_kernel<T, I, O, ROUNDS, N, 2, U>, U);
        if (depth <= 4) return start(tree_sum_kernel<T, I, O, ROUNDS, N, 4, 2>, 2);
    }
    return start(tree_sum_kernel<T, I, O, ROUNDS, N, TREE_DEPTH, 1>, 1);
}

/* Whole vectors where everything is aligned, then the rest one by one. */
template<class T, class I, class O, bool ROUNDS = false>
static tutti_status sum(int device, cudaStream_t stream, const tutti__tree_sum_args *args)
{
    constexpr int N = 16 / sizeof(T);
    auto size_of = [&](int k) {
        const bool near = k >= args->near && k < args->near + args->near_inputs;
        return ROUNDS && near ? sizeof(T) : sizeof(I);
    };
    const size_t size = ROUNDS ? sizeof(T) : sizeof(O);
    bool aligned = (uintptr_t)args->dst % (N * size) == 0;
    for (int k = 0; k < args->inputs; k++)
        aligned = aligned && (uintptr_t)args->in[k] % (N * size_of(k)) == 0;
    if (!aligned) return launch<T, I, O, ROUNDS, 1>(device, stream, *args);
    TUTTI_TRY((launch<T, I, O, ROUNDS, N>(device, stream, *args)));
    const int64_t done = args->count / N * N;
    if (done == args->count) return TUTTI_OK;
    tutti__tree_sum_args rest = *args;
    rest.count -= done;
    rest.dst = (char *)rest.dst + (size_t)done * size;
    for (int k = 0; k < rest.inputs; k++)
        rest.in[k] = (const char *)rest.in[k] + (size_t)done * size_of(k);
    return launch<T, I, O, ROUNDS, 1>(device, stream, rest);
}

tutti_status tutti__cuda_tree_sum(int device, tutti__stream stream,
                                  const tutti__tree_sum_args *args)
{
    using bf16 = __nv_bfloat16;
    cudaStream_t on = (cudaStream_t)stream;
    TUTTI_TRY(tutti__cuda_use(device, "tree_sum"));
    if (args->dtype == TUTTI_F64) return sum<double, double, double>(device, on, args);
    if (args->rounds) return sum<float, bf16, bf16, true>(device, on, args);
    const bool in = args->in_dtype == TUTTI_BF16, to = args->to_dtype == TUTTI_BF16;
    return in   ? to ? sum<float, bf16, bf16>(device, on, args)
                     : sum<float, bf16, float>(device, on, args)
             : to ? sum<float, float, bf16>(device, on, args)
                : sum<float, float, float>(device, on, args);
}
