/* A small sum over the ranks of one host in one hop: each rank writes its values into the memory of
 * every other one and adds what arrives in its own, in rank order, so that all get the same bits.
 *
 * It is the protocol LL of NCCL (src/device/prims_ll.h): 8 bytes of data travel as a line of 16,
 * two words of data each followed by a flag, written by one vector store.  Eight aligned bytes are
 * written at once, so data whose flag has arrived are there, too: no fence, no second message.  The
 * receiver polls the lines themselves.
 *
 * The flag is an epoch, the number of sums that a block has done, which it keeps in device memory:
 * so a captured launch can be replayed.  A block always has the same lines; the counts are the same
 * on all ranks, and so are the epochs of blocks with one number, which know of no others.
 *
 * Two buffers in turn suffice.  A block writes those of epoch e when it begins e + 2.  It has then
 * completed e + 1 and had a line of that epoch from each other rank, whose block sent it in a later
 * launch than the one in which it read e: all of e has been read.  A block sends all of its lines,
 * those behind the end of the data, too.  So a line's flag is always the block's epoch two sums
 * ago, also when epochs wrap around, and 0 before the first, of which there is 1. */
#include <type_traits>

#include "kernels/cuda/device.cuh"

enum {
    HOP_LINES = TUTTI__HOP_BYTES / 8, /* of a rank in a buffer */
    HOP_THREADS = HOP_LINES / TUTTI__HOP_BLOCKS,
    HOP_TRIES = 512 /* between two looks at host memory: about 0.2 ms */
};

struct alignas(16) hop_line {
    uint32_t data0, flag0, data1, flag1;
};

template<class T>
struct alignas(8) hop_values {
    T value[8 / sizeof(T)];
};

template<class T>
static __device__ void send(hop_line *to, const hop_values<T> &values, uint32_t epoch)
{
    uint32_t word[2];
    memcpy(word, &values, sizeof word);
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(to), "r"(word[0]),
                 "r"(epoch), "r"(word[1])
                 : "memory");
}

/* False: stopped. */
template<class T>
static __device__ bool receive(const hop_line *from, uint32_t epoch, const uint32_t *stop,
                               hop_values<T> *values)
{
    uint32_t word[2], flag[2];
    for (int tries = 1;; tries++) {
        asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(word[0]), "=r"(flag[0]), "=r"(word[1]), "=r"(flag[1])
                     : "l"(from)
                     : "memory");
        if (flag[0] == epoch && flag[1] == epoch) break;
        if (tries % HOP_TRIES == 0 && *(const volatile uint32_t *)stop) return false;
    }
    memcpy(values, word, sizeof word);
    return true;
}

template<class T>
static __global__ void __launch_bounds__(HOP_THREADS)
    hop_kernel(const __grid_constant__ tutti__hop_memory hop, const T *from, T *to, int count)
{
    using A = std::conditional_t<std::is_same<T, double>::value, double, float>;
    constexpr int N = 8 / sizeof(T);
    const int world = hop.world_size, line = blockIdx.x * HOP_THREADS + threadIdx.x;
    hop_line *inbox = (hop_line *)hop.inbox[hop.rank];
    uint32_t *epochs = (uint32_t *)(inbox + 2 * world * HOP_LINES);
    const uint32_t epoch = epochs[blockIdx.x] + 1;
    const int at = (int)(epoch & 1) * world * HOP_LINES + line; /* of rank 0's values */
    hop_values<T> own = {};
#pragma unroll
    for (int e = 0; e < N; e++)
        if (N * line + e < count) own.value[e] = from[N * line + e];
    for (int k = 1; k < world; k++) {
        const int peer = (hop.rank + k) % world;
        send((hop_line *)hop.inbox[peer] + at + hop.rank * HOP_LINES, own, epoch);
    }
    __syncthreads(); /* all threads have read the epoch */
    if (threadIdx.x == 0) epochs[blockIdx.x] = epoch;
    if (N * line >= count) return;
    A sum[N];
    for (int rank = 0; rank < world; rank++) {
        hop_values<T> values = own;
        if (rank != hop.rank && !receive(inbox + at + rank * HOP_LINES, epoch, hop.stop, &values))
            return;
#pragma unroll
        for (int e = 0; e < N; e++) {
            const A value = widen<A>(values.value[e]);
            sum[e] = rank ? sum[e] + value : value;
        }
    }
#pragma unroll
    for (int e = 0; e < N; e++)
        if (N * line + e < count) to[N * line + e] = narrow<T>::of(sum[e]);
}

tutti_status tutti__cuda_hop(int device, tutti__stream stream, const tutti__hop_memory *memory,
                             const void *from, void *to, int64_t count, tutti_dtype dtype)
{
    TUTTI_TRY(tutti__cuda_use(device, "hop"));
    return tutti__cuda_dispatch(dtype, [&](auto type) -> tutti_status {
        using T = typename decltype(type)::type;
        constexpr int each = HOP_THREADS * 8 / (int)sizeof(T);
        TUTTI_ASSERT(count > 0 && count <= TUTTI__HOP_BYTES / (int)sizeof(T));
        hop_kernel<T><<<((int)count + each - 1) / each, HOP_THREADS, 0, (cudaStream_t)stream>>>(
            *memory, (const T *)from, (T *)to, (int)count);
        TUTTI_CUDA_LAUNCHED("hop");
        return TUTTI_OK;
    });
}
