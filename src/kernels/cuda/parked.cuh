/* Rows parked in shared memory, for kernels that pass over a row more than once.
 *
 * Each thread fetches its vectors of a row with cp.async into shared memory and reads them there in
 * every pass.  That takes few registers, so several rows are under way on a multiprocessor: the
 * memory stays busy while some of them are being reduced.  A block, or a cluster of up to 8, has
 * one row and ends with it: blocks that start and end overlap better than blocks that loop.
 *
 * Lanes of a warp have neighbouring vectors, and a warp all those between its first and its last:
 * rows that are not aligned are fetched as the aligned words that contain them, a few more a warp,
 * and a warp needs no other warp's words.  Which thread has a vector depends only on the number of
 * columns and the type.  What must not depend on where a row lies, its sums, is computed from
 * vectors, shifted out of the words (take); the columns behind the last whole vector are a lane's
 * each (tail_of).  What has no order is computed and written in words as they lie: write_words;
 * write, where a warp has a whole row; write_inside, which leaves the row's ends to others. */
#ifndef TUTTI_KERNELS_CUDA_PARKED_CUH
#define TUTTI_KERNELS_CUDA_PARKED_CUH

#include "kernels/cuda/parked_team.cuh"
#include "kernels/cuda/row_ring.cuh"

enum {
    PARKED_PLANNED = 352, /* the most that parked_plan_for takes */
    PARKED_BLOCKS = 3,    /* on a multiprocessor, at least, as far as registers go */
    /* Of a lane, at most, in short rows that begin anywhere, which cost a warp more than its
     * vectors do. */
    PARKED_WARP_VECS = 17,
    PARKED_SPARE = 2048, /* bytes of shared memory for all else */
    PARKED_AHEAD = 2048, /* bytes that prefetch asks for */
    /* Of what a warp fetches at once, in shared memory and, in a row with EDGES, in global memory;
     * without it a fetch of a row takes up to a third longer. */
    PARKED_ALIGNMENT = 128,
    PARKED_GAP = PARKED_ALIGNMENT / 16 /* so many more words a warp may have to fetch for it */
};

/* Host side */

struct parked_plan {
    int threads, vecs; /* vectors a thread has */
    int cluster;       /* 0: the row does not fit */
    int bytes;         /* of shared memory, of all tensors, with EDGES */
};

static inline int parked_bytes(const parked_plan &plan, int tensors)
{
    const int last = 16; /* which take may read, and not use */
    return tensors * (plan.threads / 32) * (plan.vecs * 32 + PARKED_GAP) * 16 + last;
}

/* tensors: how many rows a block parks; usual: vectors that a thread should have, of short rows:
 * the more of them, the fewer warps reduce a row. */
static inline parked_plan parked_plan_for(int vectors, int tensors, int usual, int device)
{
    /* measured on an H200: up to 96 KiB of one tensor or 64 KiB of two in a block alone, beyond
     * that clusters of blocks of 32 KiB, as far as 8 of them go */
    const int alone = tensors == 1 ? 6336 : 2112, together = 2048 / tensors, most = 20;
    const int blocks = tutti__cuda_has_clusters(device) ? ROW_CLUSTER_MAX : 1;
    parked_plan plan = {0, 0, 1, 0};
    while (vectors > alone && plan.cluster < blocks && vectors > plan.cluster * together)
        plan.cluster *= 2;
    const int each = (vectors + plan.cluster - 1) / plan.cluster;
    const int threads = each <= 2048 ? 256 : PARKED_PLANNED;
    plan.threads = row_round_up((each + usual - 1) / usual, 32);
    if (plan.threads > threads) plan.threads = threads;
    plan.vecs = (each + plan.threads - 1) / plan.threads;
    plan.bytes = parked_bytes(plan, tensors);
    if (plan.vecs > most || plan.bytes > tutti__cuda_shared_limit(device) - PARKED_SPARE)
        plan.cluster = 0;
    return plan;
}

template<class... P, class... Q>
static inline tutti_status parked_launch(const char *what, void (*kernel)(P...),
                                         const parked_plan &plan, unsigned grid, int device,
                                         cudaStream_t stream, Q &&...args)
{
    /* always the same value: contexts of other threads launch it too */
    if (plan.bytes > 40 << 10)
        TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        tutti__cuda_shared_limit(device) - PARKED_SPARE),
                   what);
    return row_launch(what, kernel, grid, plan.threads, plan.cluster, (size_t)plan.bytes, stream,
                      std::forward<Q>(args)...);
}

/* Whose a row is; a warp's are those with EDGES and all columns visible, in blocks of one warp. */
enum parked_span { PARKED_WARP, PARKED_BLOCK, PARKED_CLUSTER };
constexpr int parked_threads(parked_span span, int most = PARKED_THREADS)
{
    return span == PARKED_WARP ? 32 : most;
}
constexpr int parked_blocks(parked_span span)
{
    return span == PARKED_WARP ? 32 : PARKED_BLOCKS;
}

/* Device side: a row in shared memory */

/* The elements of a vector from `left` on become `value`. */
template<class T>
__device__ __forceinline__ void blank_from(uint4 &raw, int left, T value)
{
    constexpr int N = vector16<T>::N;
    T part[N];
    memcpy(part, &raw, sizeof part);
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i >= left) part[i] = value;
    memcpy(&raw, part, sizeof raw);
}

/* Whether two rows begin at different bytes of 16. */
static __device__ __forceinline__ bool are_apart(const void *a, const void *b)
{
    return skew_of(a) != skew_of(b);
}

/* EDGES: rows of any alignment and length.  Otherwise they begin on a 16-byte boundary and end with
 * a whole vector, or `cols` does. */
template<class T, bool EDGES>
struct parked_row {
    static constexpr int N = vector16<T>::N;
    uint4 *slots; /* vector k is slots[32 k] */
    uint32_t at;  /* the same, in shared memory */
    int first;    /* vector 0 covers the columns from here times N on */
    int vecs;

    /* which: of the rows that the block parks; rank: of the block in its cluster. */
    __device__ __forceinline__ parked_row(uint4 *shared, int which, int rank, int count)
        : vecs(count)
    {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
        slots = shared + (which * warps + warp) * (vecs * 32 + (EDGES ? PARKED_GAP : 0)) + lane;
        first = (rank * warps + warp) * vecs * 32 + lane;
        at = (uint32_t)__cvta_generic_to_shared(slots);
        asm volatile("" : "+r"(at)); /* the compiler would compute it wherever it is used */
    }

    /* Columns from vector k to the end of a row of `cols`; at most 0: no vector of the row. */
    __device__ __forceinline__ int left(int k, int cols) const
    {
        return cols - (first + k * 32) * N;
    }
    /* Which of the thread's, if it has it, is vector or word `at` of the row; -1: none. */
    __device__ __forceinline__ int index_of(int at) const
    {
        const int after = at - first;
        return after >= 0 && after % 32 == 0 ? after / 32 : -1;
    }
    /* Columns of whole vectors. */
    static __device__ __forceinline__ int whole_of(int cols) { return EDGES ? cols / N * N : cols; }
    /* How many of the thread's vectors are in a row of `cols`. */
    __device__ __forceinline__ int held(int cols) const
    {
        return min((int)((unsigned)max(left(0, cols) + 32 * N - 1, 0) / (32 * N)), vecs);
    }

    /* Bytes from the boundary at or below a row. */
    static __device__ __forceinline__ unsigned line_skew(const T *row)
    {
        return (unsigned)(uintptr_t)row & (PARKED_ALIGNMENT - 1);
    }
    /* From a row to the boundary at or behind it, of 16 bytes or of a line. */
    static __device__ __forceinline__ unsigned ahead_of(const T *row, bool of_line)
    {
        return -(unsigned)(uintptr_t)row & (of_line ? PARKED_ALIGNMENT - 1 : 15);
    }
    /* Of a row that is written to one that is `apart`: at least 16, the skew of any other. */
    static __device__ __forceinline__ unsigned skew_beside(const T *row, bool apart)
    {
        return !EDGES ? 0 : apart ? max(line_skew(row), skew_of(row) + 16) : line_skew(row);
    }
    /* Of a row that is written by write, whose words the warp's slots hold. */
    static __device__ __forceinline__ unsigned skew_inside(const T *row, bool apart)
    {
        return apart ? skew_of(row) : line_skew(row);
    }
    /* Asks for the beginning of the block's part before it is known whether it will be fetched: so
     * that the memory is at work while what decides that is on its way. */
    __device__ __forceinline__ void prefetch(const T *row, int cols) const
    {
#ifdef TUTTI_ROW_CLUSTERS
        const int64_t bytes = (int64_t)left(0, cols) * (int)sizeof(T) / 16 * 16;
        if (threadIdx.x != 0 || bytes <= 0) return;
        const char *word = (const char *)(row + first * N);
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(word - skew_of(word)),
                     "r"((int)min(bytes, (int64_t)PARKED_AHEAD))
                     : "memory");
#endif
    }
    /* The words begin `skew` bytes before the row. */
    __device__ __forceinline__ void fetch(const T *row, int cols) const
    {
        fetch(row, cols, EDGES ? line_skew(row) : 0);
    }
    __device__ __forceinline__ void fetch(const T *row, int cols, unsigned skew) const
    {
        const char *word = (const char *)row - skew + (int64_t)first * 16;
        uint32_t to = at;
        if constexpr (EDGES) {
            int own = words(true), bytes = (int)skew + cols * (int)sizeof(T) - first * 16;
            if (first < (int)(skew / 16)) /* no element of the row */
                to += 512, word += 512, bytes -= 512, own--;
            const int whole = min((int)((unsigned)max(bytes + 512 - 16, 0) / 512), own);
            for (int k = 0; k < whole; k++, to += 512, word += 512) fetch_part(to, word, 16);
            if (whole < own && bytes > whole * 512) fetch_part(to, word, bytes - whole * 512);
        } else {
            const int count = held(cols);
            for (int k = 0; k < count; k++, to += 512, word += 512) fetch_part(to, word, 16);
        }
    }

    /* After await_fetches: the rows' words are used where they lie. */

    /* 16 bytes of the row's memory from `skew` bytes behind the beginning of word k on.  QUARTER:
     * skew / 4 mod 4; ANY: not known; EVEN: skew is a multiple of 16. */
    enum { ANY = -1, EVEN = -2 };
    static constexpr int even_or(int quarter)
    {
        return quarter == ANY ? ANY : EVEN;
    }
    template<int QUARTER>
    __device__ __forceinline__ uint4 take(int k, unsigned skew) const
    {
        const uint32_t word = at + (uint32_t)k * 512 + skew / 16 * 16;
        const uint4 raw = read16(word);
        if constexpr (!EDGES || QUARTER == EVEN) return raw;
        if constexpr (QUARTER == ANY) /* there may be no other */
            return skew % 16 == 0 ? raw : bytes_from(raw, read16(word + 16), skew % 16);
        constexpr int WORDS = QUARTER < 0 ? 0 : QUARTER;
        return bytes_of<T, WORDS>(raw, read16(word + 16), skew);
    }
    /* f(quarter, pair, k): of the thread's whole vectors in a row of `cols` k and, if pair, k + 1;
     * pair and quarter, for take, are constants.  alike: all that f takes has this skew, mod 16. */
    template<class F>
    __device__ __forceinline__ void for_vectors(int cols, unsigned skew, bool alike, F &&f) const
    {
        const int count = held(whole_of(cols));
        auto go = [&](auto quarter) {
            int k = 0;
#pragma unroll 1
            for (; k + 2 <= count; k += 2) f(quarter, std::true_type{}, k);
            if (k < count) f(quarter, std::false_type{}, k);
        };
        if constexpr (EDGES) {
            __syncwarp();
            if (alike)
                with_words(skew, go);
            else
                go(std::integral_constant<int, ANY>{});
        } else
            go(std::integral_constant<int, 0>{});
    }
    /* One of the row's elements, the number `i` of what take gives. */
    __device__ __forceinline__ float element(int k, int i, unsigned skew) const
    {
        return widen<float>(((const T *)((const char *)(slots + k * 32) + skew))[i]);
    }
    /* Of a column whose vector is one of the warp's. */
    __device__ __forceinline__ float column(int col, unsigned skew) const
    {
        return element(0, col - first * N, skew);
    }
    /* The columns of a row behind its last whole vector have a lane each of the warp that would
     * have the next one: this lane's, or -1. */
    __device__ __forceinline__ int tail_of(int cols) const
    {
        if (!EDGES) return -1;
        const int lane = (int)threadIdx.x % 32, col = whole_of(cols) + lane;
        const int vector = cols / N - (first - lane);
        return col < cols && (unsigned)vector < (unsigned)(vecs * 32) ? col : -1;
    }
    __device__ __forceinline__ bool has_word(int k, bool ends) const
    {
        return k >= 0 && k < words(ends);
    }
    /* Writes a row in words as they lie, the first of which begins `skew` bytes before it:
     * word(quarter, k) up to column `visible`, and beyond it `hidden`.  alike: all that word takes
     * is taken from `shift` bytes behind a word, mod 16.  ends: no other warp has words of the row
     * behind this one's. */
    template<class F>
    __device__ __forceinline__ void write_words(T *row, int cols, int visible, unsigned skew,
                                                bool alike, unsigned shift, T hidden, bool ends,
                                                F &&word) const
    {
        const int before = (int)(skew / sizeof(T)), start = first * N - before;
        auto words_of = [&](int upto) {
            return min((int)((unsigned)max(upto - start, 0) / (32 * N)), words(ends));
        };
        const int from = EDGES && start < 0, all = words_of(cols + 32 * N - 1);
        const int whole = EDGES && !alike ? from : max(words_of(visible + 31 * N), from);
        auto go = [&](auto quarter) {
#pragma unroll 2
            for (int k = from; k < whole; k++)
                __stwb((uint4 *)(row + start + k * 32 * N), word(quarter, k));
        };
        if constexpr (EDGES) {
            if (shift % 16 == 0)
                go(std::integral_constant<int, EVEN>{});
            else
                with_words(shift, go);
        } else {
            go(std::integral_constant<int, EVEN>{});
        }
        /* those at the ends, and those that are hidden */
#pragma unroll 1
        for (int k = from > 0 ? 0 : whole; k < all; k = max(k + 1, whole)) {
            const int col = start + k * 32 * N;
            uint4 raw = make_uint4(0, 0, 0, 0);
            if (EDGES && col < visible) raw = word(std::integral_constant<int, ANY>{}, k);
            blank_from(raw, visible - col, hidden);
            if (!EDGES || (col >= 0 && col + N <= cols))
                __stwb((uint4 *)(row + col), raw);
            else
                write_part(row + col, raw, -col, cols - col);
        }
    }

    /* The columns of a row, of 32 or more, that write_inside leaves have a lane each of a warp that
     * has all of it: this lane's, or -1. */
    static __device__ __forceinline__ int end_of(const T *row, int cols)
    {
        const int lane = (int)threadIdx.x % 32, col = lane < 16 ? lane : cols - 32 + lane;
        const int from = (int)(ahead_of(row, false) / sizeof(T)), to = from + whole_of(cols) - N;
        return col < from || col >= to ? col : -1;
    }
    /* Writes the words of a row that lie in its first `cols` columns, which are whole vectors, all
     * but the last word: word(quarter, k, vector), the 16 bytes from `ahead` bytes behind vector k
     * of the thread on, which are ahead mod 16 bytes behind that vector of the row.  Where ahead is
     * 16 or more, the first warp begins with the words before, k = -1.  quarter: of ahead, or ANY,
     * if not KNOWN or not `known`.  PAIRS: two are formed at a time, which hides latencies and
     * takes registers; the last pair may be one word twice. */
    template<bool KNOWN, bool PAIRS, class F>
    __device__ __forceinline__ void write_inside(T *row, int cols, unsigned ahead, bool known,
                                                 F &&word) const
    {
        const int words = (int)(ahead / 16), count = held(cols - N - words * N);
        const int vector = first + words;
        uint4 *to = (uint4 *)((char *)row + ahead) + first;
        auto go = [&](auto quarter) {
            if constexpr (PAIRS) {
                if (first < 32 && vector >= 32) __stwb(to - 32, word(quarter, -1, vector - 32));
#pragma unroll 1
                for (int k = 0; k < count; k += 2) {
                    const int j = min(k + 1, count - 1);
                    const uint4 a = word(quarter, k, vector + k * 32);
                    const uint4 b = word(quarter, j, vector + j * 32);
                    __stwb(to + k * 32, a);
                    __stwb(to + j * 32, b);
                }
            } else {
#pragma unroll 1
                for (int k = 0; k < count; k++)
                    __stwb(to + k * 32, word(quarter, k, vector + k * 32));
            }
        };
        if constexpr (KNOWN) {
            if (known) {
                with_words(ahead, go);
                return;
            }
        }
        go(std::integral_constant<int, ANY>{});
    }
    /* By a warp that has all of a row: of words as they lie and of the elements at the row's ends,
     * result(raw), which computes element by element.  skew: skew_inside. */
    template<class F>
    __device__ __forceinline__ void write(T *row, int cols, unsigned skew, bool apart,
                                          F &&result) const
    {
        /* where the words in shared memory have the first whole word of `row` */
        const unsigned behind = skew + ahead_of(row, false);
        auto words = [&](auto shift) {
            write_inside<false, true>(
                row, whole_of(cols), behind - skew, false,
                [&](auto, int k, int) { return result(take<decltype(shift)::value>(k, behind)); });
        };
        if (apart)
            words(std::integral_constant<int, ANY>{});
        else
            words(std::integral_constant<int, EVEN>{});
        const int col = end_of(row, cols);
        if (col < 0) return;
        T part[N] = {narrow<T>::of(column(col, skew))};
        uint4 raw;
        memcpy(&raw, part, sizeof raw);
        raw = result(raw);
        memcpy(part, &raw, sizeof raw);
        row[col] = part[0];
    }

  private:
    /* Words that a thread has, with those beyond its vectors or not. */
    __device__ __forceinline__ int words(bool beyond) const
    {
        return vecs + (EDGES && beyond && threadIdx.x % 32 < (unsigned)PARKED_GAP);
    }
    /* f(whole words of 4 bytes in skew mod 16, as a constant) */
    template<class F>
    static __device__ __forceinline__ void with_words(unsigned skew, F &&f)
    {
        switch (skew / 4 % 4) {
        case 0:
            return f(std::integral_constant<int, 0>{});
        case 1:
            return f(std::integral_constant<int, 1>{});
        case 2:
            return f(std::integral_constant<int, 2>{});
        default:
            return f(std::integral_constant<int, 3>{});
        }
    }
    static __device__ __forceinline__ void write_part(T *at, const uint4 &raw, int from, int to)
    {
        T part[N];
        memcpy(part, &raw, sizeof part);
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i >= from && i < to) at[i] = part[i];
    }
};

#endif
