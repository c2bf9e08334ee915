/* A stable sort of up to 65536 pairs by one cluster of blocks: a radix sort whose pairs stay in the
 * blocks' registers and shared memory.  A sort of several kernels takes most of its time to start
 * and end them.
 *
 * A pass sorts by a digit of the keys.  Each warp counts its pairs' digits in their order, so a
 * pair knows how many before it in the warp have its digit; sums over the warps of a block, the
 * blocks and the digits make that its place.  A block orders its own pairs first: those of one
 * digit then travel side by side. */
#include <cooperative_groups.h>

#include "kernels/cuda/cuda.h"

enum { SORT_BLOCKS = 8, SORT_THREADS = 512, SORT_WARPS = SORT_THREADS / 32, SORT_ITEMS = 16 };
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
__global__ void __launch_bounds__(SORT_THREADS, 1)
    sort_cluster_kernel(tutti__cuda_pairs pairs, int count, int bits, int digit_bits)
{
#if __CUDA_ARCH__ >= 900
    constexpr int EACH = ITEMS * SORT_THREADS;
    static_assert(SORT_DIGITS <= SORT_THREADS, "a thread has a digit at most");
    __shared__ sort_space space;
    extern __shared__ uint2 ordered[]; /* [EACH], then those that arrive, [EACH] */
    uint2 *arrived = ordered + EACH;
    const auto cluster = cooperative_groups::this_cluster();
    const int block = (int)cluster.block_rank(), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int digits = 1 << digit_bits, place = warp * 32 * ITEMS + lane, base = block * EACH;
    uint16_t *own = space.before[warp];
    uint2 pair[ITEMS]; /* key, value; those past the last one stay behind all others */
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const int at = base + place + 32 * i;
        pair[i].x = at < count ? pairs.keys[0][at] : 0xffffffffu;
        pair[i].y = at < count ? (uint32_t)pairs.values[0][at] : 0;
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
#pragma unroll
            for (int b = 0; b < SORT_BLOCKS; b++) {
                const uint32_t its = cluster.map_shared_rank(space.count, b)[mine];
                in_all += its;
                if (b < block) in_blocks_before += its;
            }
        /* two sums at once: up to 2^13 and 2^16 */
        static_assert(EACH <= 1 << 13 && SORT_BLOCKS * EACH <= 1 << 16, "room for both");
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
            } else if (to < count) {
                pairs.keys[1][to] = moved.x;
                pairs.values[1][to] = (int32_t)moved.y;
            }
        }
        cluster.sync(); /* a block that ends takes its counts with it */
        if (last) return;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) pair[i] = arrived[place + 32 * i];
    }
#endif
}

bool tutti__cuda_sorts_in_cluster(const tutti_context *ctx, int64_t count)
{
    return count <= SORT_BLOCKS * SORT_THREADS * SORT_ITEMS &&
           tutti__cuda_has_clusters(ctx->device) &&
           tutti__cuda_shared_limit(ctx->device) >=
               (int)sizeof(sort_space) + 2 * SORT_THREADS * SORT_ITEMS * (int)sizeof(uint2);
}

template<int ITEMS>
static tutti_status sort_items(tutti_context *ctx, const tutti__cuda_pairs &pairs, int64_t count,
                               int bits, int digit_bits)
{
    if constexpr (ITEMS < SORT_ITEMS)
        if (count > SORT_BLOCKS * SORT_THREADS * ITEMS)
            return sort_items<2 * ITEMS>(ctx, pairs, count, bits, digit_bits);
    const size_t bytes = 2 * ITEMS * SORT_THREADS * sizeof(uint2);
    TUTTI_CUDA(cudaFuncSetAttribute(sort_cluster_kernel<ITEMS>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
               "sort");
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {SORT_BLOCKS, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(SORT_BLOCKS);
    config.blockDim = dim3(SORT_THREADS);
    config.dynamicSmemBytes = bytes;
    config.stream = tutti__cuda_stream(ctx);
    config.attrs = &cluster;
    config.numAttrs = 1;
    TUTTI_CUDA(cudaLaunchKernelEx(&config, sort_cluster_kernel<ITEMS>, pairs, (int)count, bits,
                                  digit_bits),
               "sort");
    return TUTTI_OK;
}

tutti_status tutti__cuda_sort_in_cluster(tutti_context *ctx, tutti__cuda_pairs *pairs,
                                         int64_t count, int bits)
{
    const int passes = (bits + SORT_BITS - 1) / SORT_BITS;
    TUTTI_TRY(sort_items<1>(ctx, *pairs, count, bits, (bits + passes - 1) / passes));
    pairs->sorted_keys = pairs->keys[1];
    pairs->sorted_values = pairs->values[1];
    return TUTTI_OK;
}
