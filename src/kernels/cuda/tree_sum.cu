/* Sums of gradients as a binary tree over their inputs, element by element: each input read once,
 * the result written once. A thread keeps the trees' stacks of 16-byte vectors in registers; all
 * threads do the same pushes and pops.  Low trees, as that of a sum in order, leave registers for
 * several vectors.  Further sums of the same kind are further rows of blocks. */
#include "kernels/cuda/squares.cuh"
#include "ops/tree_sum.h"

enum {
    TREE_THREADS = SQUARES_THREADS,
    TREE_DEPTH = 10 /* for 256 inputs, and the one being pushed */
};

template<class T, int N>
struct alignas(N * sizeof(T)) tree_vector {
    T value[N];
};

/* T: of the sums; I, O: of the inputs and of dst, to which near inputs and dst are only rounded if
 * ROUNDS; DEPTH: of the stack; U: vectors of a thread.  SQUARED: with the squares of the sums, of
 * which a block has a run. */
template<class T, class I, class O, bool ROUNDS, int N, int DEPTH, int U, bool SQUARED>
__global__ void __launch_bounds__(TREE_THREADS)
    tree_sum_kernel(const __grid_constant__ tutti__tree_sum_args args)
{
    typedef tree_vector<I, N> in_vector;
    typedef tree_vector<std::conditional_t<ROUNDS, T, O>, N> out_vector;
    /* how often a block's threads all read before it goes on to other elements */
    constexpr int LAPS = SQUARED ? TUTTI__NORM_RUN / (N * TREE_THREADS * U) : 1;
    __shared__ block_team_slots<double, 1> slots;
    const int64_t own = (int64_t)TREE_THREADS * U * LAPS, count = args.count / N;
    start_next();
    if (!args.beside) wait_for_previous();
    for (int64_t first = blockIdx.x * own; first < count; first += gridDim.x * own) {
        run_squares squares(slots);
#pragma unroll 1
        for (int lap = 0; lap < LAPS; lap++) {
            const int64_t i = first + (int64_t)lap * TREE_THREADS * U + threadIdx.x;
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
                if (i + u * TREE_THREADS >= count) continue;
                out_vector out;
#pragma unroll
                for (int e = 0; e < N; e++) {
                    if constexpr (SQUARED) squares.add(stack[u][0].value[e]);
                    const O rounded = narrow<O>::of(stack[u][0].value[e]);
                    if constexpr (ROUNDS)
                        out.value[e] = widen<T>(rounded);
                    else
                        out.value[e] = rounded;
                }
                to[u * TREE_THREADS] = out;
            }
        }
        if constexpr (SQUARED) {
            squares.write(args.squares + blockIdx.y * args.squares_apart + first / own);
            __syncthreads();
        }
    }
    wait_for_previous(); /* what follows this one follows that one, too */
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
    auto start = [&](auto kernel, int64_t elements) {
        return launch_early("tree_sum", device, kernel,
                            dim3(row_grid(args.count, elements, 1), 1 + (unsigned)args.more),
                            dim3(TREE_THREADS), stream, args);
    };
    if constexpr (N > 1) {
        const int depth = depth_of(args);
        constexpr int U = ROUNDS ? 2 : 4;
        if constexpr (std::is_same_v<T, I> && std::is_same_v<T, O>)
            if (args.squares) {
                constexpr int64_t run = TUTTI__NORM_RUN;
                if (depth <= 2) return start(tree_sum_kernel<T, I, O, false, N, 2, U, true>, run);
                if (depth <= 4) return start(tree_sum_kernel<T, I, O, false, N, 4, 2, true>, run);
                return start(tree_sum_kernel<T, I, O, false, N, TREE_DEPTH, 1, true>, run);
            }
        constexpr int64_t each = TREE_THREADS * N;
        if (depth <= 2) return start(tree_sum_kernel<T, I, O, ROUNDS, N, 2, U, false>, U * each);
        if (depth <= 4) return start(tree_sum_kernel<T, I, O, ROUNDS, N, 4, 2, false>, 2 * each);
    }
    return start(tree_sum_kernel<T, I, O, ROUNDS, N, TREE_DEPTH, 1, false>, TREE_THREADS * N);
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
    TUTTI_ASSERT(!args->squares || (aligned && args->count % N == 0));
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
