/* Rows on their way to shared memory.  Each thread fetches its own vectors of the rows to come with
 * cp.async and reads them back itself, as often as it likes: no barrier stands between, and a row
 * costs no registers.  A stage is one row of each of a few tensors; a ring of stages is filled in
 * turn. */
#ifndef TUTTI_KERNELS_CUDA_ROW_RING_CUH
#define TUTTI_KERNELS_CUDA_ROW_RING_CUH

#include "kernels/cuda/rows.cuh"

/* Copies the first `bytes` (0 to 16) of 16 and sets the rest to 0. */
__device__ __forceinline__ void fetch_part(uint32_t to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}
/* Predicated, not a branch: if `wanted`. */
__device__ __forceinline__ void fetch16(uint32_t to, const void *from, bool wanted)
{
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0;\n"
                 "@p cp.async.cg.shared.global [%0], [%1], 16; }" ::"r"(to),
                 "l"(from), "r"((int)wanted)
                 : "memory");
}
__device__ __forceinline__ void fetches_end()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Until all groups but the last `pending`, 0 to 3, have arrived. */
__device__ __forceinline__ void fetches_wait(int pending)
{
    if (pending == 3)
        asm volatile("cp.async.wait_group 3;" ::: "memory");
    else if (pending == 2)
        asm volatile("cp.async.wait_group 2;" ::: "memory");
    else if (pending == 1)
        asm volatile("cp.async.wait_group 1;" ::: "memory");
    else
        asm volatile("cp.async.wait_group 0;" ::: "memory");
}
__device__ __forceinline__ uint4 read16(uint32_t at)
{
    uint4 raw;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w)
                 : "r"(at));
    return raw;
}

/* Of each block's shared memory: what a kernel declares itself, and what the system keeps. */
enum { RING_SPARE = 10 << 10 };

/* 16-byte words that the threads of a block need for one vector each; skewed: rows need not begin
 * on a 16-byte boundary nor end with a whole vector, and each group of up to 32 lanes has one word
 * more.  The words of a warp begin on a 128-byte boundary, as the memory must: on others, fetching
 * takes longer. */
__host__ __device__ constexpr int ring_warp_words(int lanes, bool skewed)
{
    return skewed ? 32 + (32 / lanes + 7) / 8 * 8 : 32;
}
__host__ __device__ constexpr int ring_words(int threads, int lanes, bool skewed)
{
    return threads / 32 * ring_warp_words(lanes, skewed);
}

/* Stages of one word a tensor and thread, of which the next DEPTH - 1 are on their way. */
template<int TENSORS, int DEPTH>
struct word_ring {
    uint32_t tensor, first, to, from; /* bytes; shared addresses of this thread's words */

    /* shared: word_ring::words(threads) */
    __device__ __forceinline__ word_ring(uint4 *shared, int threads)
        : tensor((uint32_t)threads * sizeof *shared)
    {
        first = to = from = (uint32_t)__cvta_generic_to_shared(shared + threadIdx.x);
    }
    static __host__ __device__ constexpr int words(int threads)
    {
        return DEPTH * TENSORS * threads;
    }
    /* The first `bytes` of a word of tensor t; the others become 0. */
    __device__ __forceinline__ void fetch(int t, const void *word, int bytes) const
    {
        fetch_part(to + (uint32_t)t * tensor, word, bytes);
    }
    /* The stage is complete, with or without words. */
    __device__ __forceinline__ void send()
    {
        fetches_end();
        to = after(to);
    }
    /* Once another DEPTH - 1 have been sent: until the stage is there that was sent first. */
    __device__ __forceinline__ void wait() const { fetches_wait(DEPTH - 1); }
    __device__ __forceinline__ uint4 read(int t) const
    {
        return read16(from + (uint32_t)t * tensor);
    }
    __device__ __forceinline__ void release() { from = after(from); }

  private:
    __device__ __forceinline__ uint32_t after(uint32_t at) const
    {
        const uint32_t stage = TENSORS * tensor;
        return at == first + (DEPTH - 1) * stage ? first : at + stage;
    }
};

template<class T, int VECS, bool SKEWED>
struct row_ring {
    row_place place;
    uint32_t vector, stage, first, end; /* bytes; shared addresses of this thread's words */
    uint32_t to, from;                  /* the stage to be filled next, to be read next */
    uint32_t skews = 0;                 /* of the row in `from`, a byte each tensor */
    uint32_t group;                     /* the warp's lanes that have this thread's row */
    bool last;                          /* of its group: fetches the word more */

    /* shared: depth * tensors * VECS * ring_words(…) words */
    __device__ __forceinline__ row_ring(void *shared, row_place where, int tensors, int depth)
        : place(where)
    {
        const int lanes = place.lanes, lane = (int)threadIdx.x % 32;
        const int word =
            SKEWED ? (int)threadIdx.x / 32 * ring_warp_words(lanes, true) + lane + lane / lanes
                   : (int)threadIdx.x;
        group = lanes < 32 ? ((1u << lanes) - 1) << lane / lanes * lanes : ~0u;
        last = SKEWED && lane % lanes == lanes - 1;
        vector = (uint32_t)ring_words((int)blockDim.x, lanes, SKEWED) * 16;
        stage = vector * VECS * (uint32_t)tensors;
        first = to = from = (uint32_t)__cvta_generic_to_shared(shared) + (uint32_t)word * 16;
        end = first + stage * (uint32_t)depth;
    }

    /* Vectors beyond the row are never fetched: they are set to 0 once, in all stages. */
    __device__ __forceinline__ void clear_beyond(int cols)
    {
        if constexpr (!SKEWED) {
#pragma unroll
            for (int k = 0; k < VECS; k++)
                if (place.column<T>(k) >= cols)
                    for (uint32_t at = first; at != end; at += VECS * vector)
                        asm volatile(
                            "st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(at + k * vector),
                            "r"(0)
                            : "memory");
        }
    }

    __device__ __forceinline__ unsigned skew(int t) const
    {
        return SKEWED ? skews >> 8 * t & 15 : 0;
    }

    /* A row of tensor t for the stage `to`; not SKEWED: from this thread's first vector on. */
    __device__ __forceinline__ void request(int t, const char *row, int cols)
    {
        const uint32_t at = to + (uint32_t)t * (VECS * vector);
        const unsigned skew = skew_of(row);
        const int bytes = cols * (int)sizeof(T) + (int)skew;
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            if constexpr (SKEWED) {
                const int j = (place.first + k * place.step) * 16;
                fetch_word(at + k * vector, row - skew, j, bytes);
                if (last) fetch_word(at + k * vector + 16, row - skew, j + 16, bytes);
            } else
                fetch16(at + k * vector, row + k * place.step * 16, place.column<T>(k) < cols);
        }
    }
    /* The stage is complete. */
    __device__ __forceinline__ void send()
    {
        fetches_end();
        to = to + stage == end ? first : to + stage;
    }

    /* Until the stage `from` is there, with `pending` others on their way. */
    __device__ __forceinline__ void wait(int pending) const
    {
        fetches_wait(pending);
        if (SKEWED) __syncwarp();
    }
    /* Vector k of tensor t, whose row has the given skew; 0 from the row's end on. */
    __device__ __forceinline__ uint4 take(int t, int k, unsigned skew) const
    {
        const uint32_t at = from + (uint32_t)t * (VECS * vector) + k * vector;
        if (!SKEWED) return read16(at);
        return bytes_from(read16(at), read16(at + 16), skew);
    }
    /* Puts it where the thread's own word of it was: from then on its skew is 0.  The group's lanes
     * call it together, for they read each other's words; other groups may have no row. */
    __device__ __forceinline__ void settle(int t, int k, const uint4 &vector_read) const
    {
        const uint32_t at = from + (uint32_t)t * (VECS * vector) + k * vector;
        __syncwarp(group);
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(vector_read.x),
                     "r"(vector_read.y), "r"(vector_read.z), "r"(vector_read.w)
                     : "memory");
    }
    __device__ __forceinline__ uint4 settled(int t, int k) const
    {
        return read16(from + (uint32_t)t * (VECS * vector) + k * vector);
    }
    /* The stage `from` has been read for the last time; step: of skews to the next row. */
    __device__ __forceinline__ void release(uint32_t step)
    {
        if (SKEWED) __syncwarp();
        from = from + stage == end ? first : from + stage;
        if (SKEWED) skews = (skews + step) & 0x0f0f0f;
    }

  private:
    static __device__ __forceinline__ void fetch_word(uint32_t to, const char *words, int at,
                                                      int bytes)
    {
        const int left = bytes - at;
        fetch_part(to, words + (left > 0 ? at : 0), left <= 0 ? 0 : left < 16 ? left : 16);
    }
};

#endif
