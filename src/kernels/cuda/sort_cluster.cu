/* A stable sort of up to 131072 rows by their tokens (65536 where clusters have at most 8 blocks),
 * by one cluster of blocks: a radix sort of pairs that stay in the blocks' registers and shared
 * memory.  A sort of several kernels takes most of its time to start and end them.
 *
 * A pass sorts by a digit of the keys.  Each warp counts its pairs' digits in their order, so a
 * pair knows how many before it in the warp have its digit; sums over the warps of a block, the
 * blocks and the digits make that its place.  A block orders its own pairs first: those of one
 * digit then travel side by side. */
#include <cooperative_groups.h>

#include "kernels/cuda/tokens.cuh"

/* SORT_BLOCKS: what every device with clusters has; SORT_BLOCKS_MAX: some have */
enum { SORT_BLOCKS = 8, SORT_BLOCKS_MAX = 16 };
/* SORT_BOUND: threads that registers are for, more than there are, so that blocks beside find
 * room */
enum { SORT_THREADS = 512, SORT_BOUND = 640, SORT_WARPS = SORT_THREADS / 32, SORT_ITEMS = 16 };
enum { SORT_BITS = 9, SORT_DIGITS = 1 << SORT_BITS }; /* of a pass, at most */

/* Of a block. */
struct sort_space {
    /* of each digit: a warp's pairs, then those of the warps before; all pairs; the first one's
     * place in the block, and in the list */
    uint16_t before[SORT_WARPS][SORT_DIGITS];
    uint32_t count[SORT_DIGITS], inside[SORT_DIGITS], first[SORT_DIGITS];
    uint32_t sums[SORT_WARPS];
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
/* The lanes that have the same digit.  (__match_any_sync takes twice as long.) */
static __device__ __forceinline__ uint32_t lanes_with(uint32_t digit, int digit_bits)
{
    uint32_t peers = 0xffffffffu;
    for (int bit = 0; bit < digit_bits; bit++) {
        const bool set = digit >> bit & 1;
        const uint32_t others = __ballot_sync(0xffffffffu, set);
        peers &= set ? others : ~others;
    }
    return peers;
}

/* The sum of the values of all threads before this one. */
static __device__ __forceinline__ uint32_t sum_before(uint32_t value, uint32_t *sums)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t sum = value;
    for (int apart = 1; apart < 32; apart *= 2) {
        const uint32_t other = __shfl_up_sync(0xffffffffu, sum, apart);
        if (lane >= apart) sum += other;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    sum -= value;
    for (int w = 0; w < warp; w++) sum += sums[w];
    return sum;
}

#endif

/* A block has ITEMS * SORT_THREADS pairs, each warp some in a row, each lane every 32nd of them. */
template<int ITEMS>
__global__ void __launch_bounds__(SORT_BOUND, 1)
    sort_cluster_kernel(token_list list, uint32_t *tokens, int32_t *row_of, int bits,
                        int digit_bits)
{
#if __CUDA_ARCH__ >= 900
    constexpr int EACH = ITEMS * SORT_THREADS;
    static_assert(SORT_DIGITS <= SORT_THREADS, "a thread has a digit at most");
    __shared__ sort_space space;
    extern __shared__ uint2 ordered[]; /* [EACH], then those that arrive, [EACH] */
    uint2 *arrived = ordered + EACH;
    const auto cluster = cooperative_groups::this_cluster();
    const int blocks = (int)cluster.num_blocks(), block = (int)cluster.block_rank();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, digits = 1 << digit_bits;
    const int place = warp * 32 * ITEMS + lane, base = block * EACH;
    uint16_t *own = space.before[warp];
    uint2 pair[ITEMS]; /* token, row; those past the last row stay behind all others */
    if (block == 0 && threadIdx.x == 0) *list.runs = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) pair[i].x = (uint32_t)list.token(base + place + 32 * i);
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const int at = base + place + 32 * i;
        pair[i] = list.entry(at, (int32_t)pair[i].x);
        if (at >= list.rows) pair[i].x = 0xffffffffu;
    }
    for (int shift = 0;; shift += digit_bits) {
        auto digit_of = [&](const uint2 &of) { return of.x >> shift & (uint32_t)(digits - 1); };
        for (int k = lane; k < digits / 2; k += 32) ((uint32_t *)own)[k] = 0;
        __syncwarp();
        int rank[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            const uint32_t digit = digit_of(pair[i]), peers = lanes_with(digit, digit_bits);
            rank[i] = own[digit] + __popc(peers & ((1u << lane) - 1));
            __syncwarp();
            if (peers >> lane == 1) own[digit] = (uint16_t)(rank[i] + 1); /* the last of them */
            __syncwarp();
        }
        __syncthreads();
        const int mine = threadIdx.x; /* a digit */
        uint32_t in_block = 0;
        if (mine < digits) {
            uint16_t counts[SORT_WARPS];
#pragma unroll
            for (int w = 0; w < SORT_WARPS; w++) counts[w] = space.before[w][mine];
#pragma unroll
            for (int w = 0; w < SORT_WARPS; w++) {
                space.before[w][mine] = (uint16_t)in_block;
                in_block += counts[w];
            }
            space.count[mine] = in_block;
        }
        cluster.sync(); /* also: what arrived is in registers */
        uint32_t in_all = 0, in_blocks_before = 0;
        if (mine < digits)
#pragma unroll 8
            for (int b = 0; b < blocks; b++) {
                const uint32_t its = cluster.map_shared_rank(space.count, b)[mine];
                in_all += its;
                if (b < block) in_blocks_before += its;
            }
        /* two sums at once: up to 2^13 and 2^17 */
        static_assert(EACH <= 1 << 13 && SORT_BLOCKS_MAX * EACH <= 1 << 17, "room for both");
        const uint32_t both = sum_before(in_all << 14 | in_block, space.sums);
        if (mine < digits) {
            space.inside[mine] = both & 0x3fff;
            space.first[mine] = (both >> 14) + in_blocks_before - (both & 0x3fff);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            const uint32_t digit = digit_of(pair[i]);
            ordered[space.inside[digit] + own[digit] + rank[i]] = pair[i];
        }
        __syncthreads();
        const bool last = shift + digit_bits >= bits;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            const int at = i * SORT_THREADS + (int)threadIdx.x;
            const uint2 moved = ordered[at];
            const int to = (int)space.first[digit_of(moved)] + at;
            if (!last) {
                cluster.map_shared_rank(arrived, to / EACH)[to % EACH] = moved;
            } else if (to < list.room) {
                tokens[to] = to < list.rows ? moved.x : 0;
                row_of[to] = (int32_t)moved.y;
            }
        }
        cluster.sync(); /* a block that ends takes its counts with it */
        if (last) return;
        /* not at the beginning: what waits takes room that other kernels are about to take */
        cudaTriggerProgrammaticLaunchCompletion();
#pragma unroll
        for (int i = 0; i < ITEMS; i++) pair[i] = arrived[place + 32 * i];
    }
#endif
}

/* f(kernel, the bytes of shared memory that it takes), for as many rows. */
template<int ITEMS, class F>
static tutti_status with_kernel(int64_t rows, int blocks, F &&f)
{
    if constexpr (ITEMS < SORT_ITEMS)
        if (rows > (int64_t)blocks * SORT_THREADS * ITEMS)
            return with_kernel<2 * ITEMS>(rows, blocks, f);
    constexpr int bytes = 2 * ITEMS * SORT_THREADS * (int)sizeof(uint2);
    auto kernel = sort_cluster_kernel<ITEMS>;
    /* always the same values: contexts of other threads launch it */
    TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
               "sort");
    TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
               "sort");
    return f(kernel, bytes);
}

struct sort_launch {
    cudaLaunchAttribute cluster = {};
    cudaLaunchConfig_t config = {};

    sort_launch(int blocks, int bytes, cudaStream_t stream)
    {
        cluster.id = cudaLaunchAttributeClusterDimension;
        cluster.val.clusterDim = {(unsigned)blocks, 1, 1};
        config.gridDim = dim3((unsigned)blocks);
        config.blockDim = dim3(SORT_THREADS);
        config.dynamicSmemBytes = (size_t)bytes;
        config.stream = stream;
        config.attrs = &cluster;
        config.numAttrs = 1;
    }
};

tutti_status tutti__cuda_sort_blocks(const tutti_context *ctx, int64_t rows, int *blocks)
{
    constexpr int64_t each = SORT_THREADS * SORT_ITEMS;
    const bool may =
        tutti__cuda_has_clusters(ctx->device) &&
        tutti__cuda_shared_limit(ctx->device) >=
            (int)sizeof(sort_space) + 2 * SORT_THREADS * SORT_ITEMS * (int)sizeof(uint2);
    *blocks = may && rows <= SORT_BLOCKS * each ? SORT_BLOCKS : 0;
    if (!may || rows <= SORT_BLOCKS * SORT_THREADS || rows > SORT_BLOCKS_MAX * each)
        return TUTTI_OK;
    return with_kernel<1>(rows, SORT_BLOCKS_MAX, [&](auto kernel, int bytes) {
        const sort_launch launch(SORT_BLOCKS_MAX, bytes, NULL);
        int clusters = 0;
        /* an error: such clusters are not for this device */
        const bool asked =
            cudaOccupancyMaxActiveClusters(&clusters, kernel, &launch.config) == cudaSuccess;
        if (!asked) (void)cudaGetLastError();
        if (asked && clusters > 0) *blocks = SORT_BLOCKS_MAX;
        return TUTTI_OK;
    });
}

tutti_status tutti__cuda_sort_tokens(tutti_context *ctx, const token_list &list, int blocks,
                                     int bits, uint32_t *tokens, int32_t *row_of)
{
    const int passes = (bits + SORT_BITS - 1) / SORT_BITS,
              digit_bits = (bits + passes - 1) / passes;
    return with_kernel<1>(list.rows, blocks, [&](auto kernel, int bytes) {
        const sort_launch launch(blocks, bytes, tutti__cuda_stream(ctx));
        TUTTI_CUDA(
            cudaLaunchKernelEx(&launch.config, kernel, list, tokens, row_of, bits, digit_bits),
            "sort");
        return TUTTI_OK;
    });
}
