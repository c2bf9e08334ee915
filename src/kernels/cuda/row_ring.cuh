/* Rows on their way to shared memory.  Each thread fetches its own vectors of the rows to come with
 * cp.async and reads them back itself, as often as it likes: no barrier stands between (of skewed
 * rows it reads a word of its neighbour's, in the same warp, too), and a row costs no registers.  A
 * stage is one row of each of a few tensors; a ring of stages is filled in turn. */
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
/* Until all that this thread fetched has arrived. */
static __device__ __forceinline__ void await_fetches()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}
__device__ __forceinline__ uint4 read16(uint32_t at)
{
    uint4 raw;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w)
                 : "r"(at));
    return raw;
}
__device__ __forceinline__ float read4(uint32_t at)
{
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(at));
    return value;
}
__device__ __forceinline__ void write16(uint32_t at, const uint4 &raw)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(raw.x), "r"(raw.y),
                 "r"(raw.z), "r"(raw.w)
                 : "memory");
}

/* Of each block's shared memory: what a kernel declares itself, and what the system keeps. */
enum { RING_SPARE = 10 << 10 };

/* 16-byte words that the threads of a block need for `vecs` vectors each; up to 32 lanes have
 * neighbouring ones.  Skewed: rows need not begin on a 16-byte boundary nor end with a whole
 * vector, and each group of lanes has one word more.  The words of a warp begin on a 128-byte
 * boundary, as the memory must: on others, fetching takes longer. */
__host__ __device__ constexpr int ring_warp_words(int lanes, int vecs, bool skewed)
{
    return skewed ? (32 / lanes * (lanes * vecs + 1) + 7) / 8 * 8 : 32 * vecs;
}
__host__ __device__ constexpr int ring_words(int threads, int lanes, int vecs, bool skewed)
{
    return threads / 32 * ring_warp_words(lanes, vecs, skewed);
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

/* Skewed: a row's memory is divided into words as they lie, from the 16-byte boundary at or below
 * its first element on: word j begins `skew` bytes before vector j.  All tensors' rows have the
 * same skew, or else are `apart`: fetched element by element, as if their skew were 0. */
template<class T, int VECS, bool SKEWED>
struct row_ring {
    row_place place;
    uint32_t vector, tensor, stage, end; /* bytes */
    uint32_t first;                      /* shared address of this thread's words */
    uint32_t to = 0, from = 0;           /* bytes to the stage to be filled, to be read next */
    uint32_t skew = 0;                   /* of the row in `from`: bytes */
    bool last;                           /* of its group: fetches the word more */
    bool inside;                         /* all words of the warp lie within any row */
    bool apart;

    /* shared: depth * tensors * ring_words(…) words */
    __device__ __forceinline__ row_ring(void *shared, row_place where, int tensors, int depth)
        : place(where)
    {
        const int lanes = place.lanes, lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
        const int word = warp * ring_warp_words(lanes, VECS, SKEWED) + lane % lanes +
                         lane / lanes * (lanes * VECS + SKEWED);
        last = SKEWED && lane % lanes == lanes - 1;
        vector = (uint32_t)lanes * 16;
        tensor = (uint32_t)ring_words((int)blockDim.x, lanes, VECS, SKEWED) * 16;
        stage = tensor * (uint32_t)tensors;
        first = (uint32_t)__cvta_generic_to_shared(shared) + (uint32_t)word * 16;
        end = stage * (uint32_t)depth;
        if (SKEWED) asm volatile("" : "+r"(first)); /* or it is computed again for each row */
    }
    /* SKEWED: before the first request, by whole warps. */
    __device__ __forceinline__ void set_rows(int cols, bool rows_apart)
    {
        apart = rows_apart;
        inside =
            !apart && __all_sync(0xffffffffu, (place.first + (VECS - 1) * place.step + 2) * 16 <=
                                                  cols * (int)sizeof(T));
    }

    /* Vectors beyond the row are never fetched: they are set to 0 once, in all stages. */
    __device__ __forceinline__ void clear_beyond(int cols)
    {
        if constexpr (!SKEWED) {
#pragma unroll
            for (int k = 0; k < VECS; k++)
                if (place.column<T>(k) >= cols)
                    for (uint32_t at = first; at != first + end; at += tensor)
                        write16(at + k * vector, make_uint4(0, 0, 0, 0));
        }
    }

    /* A row of tensor t for the stage `to`; from: this thread's first vector of it. */
    __device__ __forceinline__ void request(int t, const char *from, int cols)
    {
        const uint32_t at = first + to + (uint32_t)t * tensor;
        if constexpr (!SKEWED) {
#pragma unroll
            for (int k = 0; k < VECS; k++)
                fetch16(at + k * vector, from + k * place.step * 16, place.column<T>(k) < cols);
        } else if (inside) {
            const char *word = from - skew_of(from);
#pragma unroll
            for (int k = 0; k < VECS; k++)
                fetch16(at + k * vector, word + k * place.step * 16, true);
            fetch16(at + (VECS - 1) * vector + 16, word + ((VECS - 1) * place.step + 1) * 16, last);
        } else if (apart) {
#pragma unroll 1
            for (int k = 0; k < VECS; k++)
                write16(at + k * vector,
                        gather((const T *)(from + k * place.step * 16), cols - place.column<T>(k)));
        } else {
            const char *word = from - skew_of(from);
            const int left = cols * (int)sizeof(T) + (int)skew_of(from) - place.first * 16;
#pragma unroll
            for (int k = 0; k <= VECS; k++)
                if (k < VECS || last) {
                    const int by = (k < VECS ? k * place.step : (VECS - 1) * place.step + 1) * 16;
                    const int bytes = left - by < 16 ? left - by : 16;
                    fetch_part(at + (k < VECS ? k * vector : (VECS - 1) * vector + 16),
                               word + (bytes > 0 ? by : -place.first * 16), bytes > 0 ? bytes : 0);
                }
        }
    }
    /* The stage is complete. */
    __device__ __forceinline__ void send()
    {
        fetches_end();
        to = to + stage == end ? 0 : to + stage;
    }

    /* Until the stage `from` is there, with `pending` others on their way. */
    __device__ __forceinline__ void wait(int pending) const
    {
        fetches_wait(pending);
        if (SKEWED) __syncwarp();
    }
    /* This thread's word k of tensor t as it lies; k = VECS: the word beyond its last. */
    __device__ __forceinline__ uint4 word(int t, int k) const
    {
        return read16(word_at(t, k));
    }
    /* Vector k, 0 from the row's end on.  QUARTER: skew / 4, if all of the warp have it. */
    template<int QUARTER = -1>
    __device__ __forceinline__ uint4 take(int t, int k) const
    {
        const uint4 mine = word(t, k);
        if (!SKEWED) return mine;
        const uint4 next = read16(word_at(t, k) + 16);
        return bytes_from(mine, next, QUARTER < 0 ? skew : QUARTER * 4 + skew % 4);
    }
    /* The stage `from` has been read for the last time; step: of skews to the next row. */
    __device__ __forceinline__ void release(uint32_t step)
    {
        if (SKEWED) __syncwarp();
        from = from + stage == end ? 0 : from + stage;
        if (SKEWED) skew = (skew + step) & 15;
    }

  private:
    __device__ __forceinline__ uint32_t word_at(int t, int k) const
    {
        const uint32_t row = first + from + (uint32_t)t * tensor;
        return k < VECS ? row + k * vector : row + (VECS - 1) * vector + 16;
    }
};

#endif
