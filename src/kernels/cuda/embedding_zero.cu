/* Embedding's gradient: zeros for the rows of dE whose token does not occur, beside the sort and
 * the sums of the others.
 *
 * Of the tokens each block has every blocks-th, and notes which of them occur; the blocks of a
 * cluster look through a part of the list each.  A block has flags for ZERO_WINDOW tokens, so where
 * there are more than 2^20 the list is looked through more than once.  At most as many blocks as
 * multiprocessors, of 64 registers a thread, so that one finds room beside a block of the sort
 * (SORT_BOUND in sort_cluster.cu), and those of the sums beside one. */
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/tokens.cuh"
#include "ops/embedding.h"

enum { ZERO_THREADS = 256, ZERO_ROWS = 8, ZERO_WINDOW = 1 << 13 };

struct zero_call {
    const int32_t *tokens;
    int rows, vocab;
    int log_blocks, log_cluster;
    int64_t words; /* of a row */
    void *dweight;
};

/* f(token) for all of a list, by a block. */
template<class F>
static __device__ __forceinline__ void for_tokens(const int32_t *tokens, int count, F &&f)
{
    constexpr int AHEAD = 8;
    const int before = min((int)(-(uintptr_t)tokens / sizeof *tokens % 4), count);
    const int whole = (count - before) / 4, behind = before + 4 * whole;
    const uint4 *of_four = (const uint4 *)(tokens + before);
    for (int i = threadIdx.x; i < whole; i += AHEAD * ZERO_THREADS) {
        uint4 four[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) four[k] = of_four[min(i + k * ZERO_THREADS, whole - 1)];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) f(four[k].x), f(four[k].y), f(four[k].z), f(four[k].w);
    }
    if ((int)threadIdx.x < before) f((uint32_t)tokens[threadIdx.x]);
    if ((int)threadIdx.x < count - behind) f((uint32_t)tokens[behind + threadIdx.x]);
}

/* Sets a flag of shared memory, at the same place in a block of the cluster. */
static __device__ __forceinline__ void set_flag(bool *flag, uint32_t rank)
{
#ifdef TUTTI_ROW_CLUSTERS
    asm volatile(
        "st.shared::cluster.u8 [%0], %1;" ::"r"(address_in(shared_address(flag), (int)rank)), "r"(1)
        : "memory");
#else
    (void)rank;
    *flag = true;
#endif
}

template<class W>
__global__ void __launch_bounds__(ZERO_THREADS, 4) embedding_zero_kernel(zero_call call)
{
    __shared__ bool occurs[ZERO_WINDOW]; /* some of the block's tokens */
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t vocab = (uint32_t)call.vocab, block = blockIdx.x;
    const uint32_t blocks = 1u << call.log_blocks, ranks = 1u << call.log_cluster;
    const uint32_t rank = block % ranks, most = (vocab + blocks - 1) >> call.log_blocks;
    const uint32_t own = (vocab - block + blocks - 1) >> call.log_blocks;
    const int part = ((call.rows - 1) >> call.log_cluster) + 1, begin = (int)rank * part;
    for (uint32_t from = 0; from < most; from += ZERO_WINDOW) {
        for (int i = threadIdx.x; i < ZERO_WINDOW; i += ZERO_THREADS) occurs[i] = false;
        __syncthreads();
        cluster_join(NULL, 0);
        cluster_is_there();
        for_tokens(call.tokens + begin, max(min(part, call.rows - begin), 0), [&](uint32_t token) {
            if (token >= vocab) token = 0;
            const uint32_t at = (token >> call.log_blocks) - from;
            if (((token & (blocks - 1)) ^ block) < ranks && at < ZERO_WINDOW)
                set_flag(&occurs[at], token % ranks);
        });
        __syncthreads();
        cluster_join(NULL, 0);
        cluster_is_there();
        const int count = (int)min(own > from ? own - from : 0, (uint32_t)ZERO_WINDOW);
        for (int i = warp * ZERO_ROWS; i < count; i += ZERO_THREADS / 32 * ZERO_ROWS) {
            const bool absent = lane < ZERO_ROWS && i + lane < count && !occurs[i + lane];
            uint32_t rows = __ballot_sync(0xffffffffu, absent);
            for (; rows; rows &= rows - 1) {
                const int64_t at = from + i + __ffs((int)rows) - 1;
                W *row = (W *)call.dweight + ((at << call.log_blocks) + block) * call.words;
                for (int64_t k = lane; k < call.words; k += 32) row[k] = W{};
            }
        }
        __syncthreads();
    }
}

template<class W>
static tutti_status zero_words(tutti_context *ctx, zero_call call, int64_t row_bytes,
                               cudaStream_t stream)
{
    call.words = row_bytes / (int64_t)sizeof(W);
    const int most = tutti__cuda_sm_count(ctx->device);
    while (2 << call.log_blocks <= most && ZERO_ROWS << call.log_blocks < call.vocab)
        call.log_blocks++;
    if (tutti__cuda_has_clusters(ctx->device)) call.log_cluster = min(call.log_blocks, 3);
    return row_launch("embedding_backward", embedding_zero_kernel<W>, dim3(1u << call.log_blocks),
                      ZERO_THREADS, 1 << call.log_cluster, 0, stream, call);
}

tutti_status tutti__cuda_zero_absent(tutti_context *ctx, const tutti__embedding_args *args,
                                     size_t size, cudaStream_t stream)
{
    const zero_call call = {args->tokens, (int)args->rows, (int)args->vocab, 0, 0, 0,
                            args->dweight};
    const int64_t row_bytes = args->cols * (int64_t)size;
    const uint64_t all = (uintptr_t)args->dweight | (uint64_t)row_bytes;
    if (all % 16 == 0) return zero_words<uint4>(ctx, call, row_bytes, stream);
    return zero_words<uint32_t>(ctx, call, row_bytes, stream); /* sums are f32 or f64 */
}
