/* LayerNorm and RMSNorm, backward: rows that do not all begin on a 16-byte boundary, from device
 * memory by bulk copies [PTX ISA, cp.async.bulk].
 *
 * A row comes as the aligned words that contain it.  One thread asks for it, so that the others
 * have no instructions for it; they wait on an mbarrier.  As in backward_rows the sums are added up
 * from vectors, shifted out of two words each, with the same bits; dx is written in whole words,
 * and the elements at the row's ends that no whole word has by one lane each. */
#ifndef TUTTI_KERNELS_CUDA_NORM_BACKWARD_SKEWED_CUH
#define TUTTI_KERNELS_CUDA_NORM_BACKWARD_SKEWED_CUH

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/norm_backward_rows.cuh"

enum {
    SKEWED_STAGES = 4,       /* at most: rows of a group of threads; five were no faster */
    SKEWED_STAGES_LEAST = 3, /* with two it would be slower than a ring (row_ring.cuh) */
    SKEWED_SPARE = 4096,     /* bytes of shared memory for all else */
    SKEWED_LINE = 128        /* rows begin at the same byte of so many in both memories */
};

/* Shared memory of a block, in this order: gamma, in vectors; the same from any column on; for each
 * group of threads its stages, each of them a row of each tensor.  Pieces have gamma once, with a
 * gap of one value after each vector, so that lanes of a warp can read it at once from any column
 * on, and room for a vector before the first. */
struct skewed_space {
    int depth, vectors, windows, tensor, stage, group; /* bytes, but the first */
    int bytes;                                         /* all */

    template<int N>
    static skewed_space of(const tutti__norm_args *args, const backward_plan &plan, int depth)
    {
        /* a word more than vectors, of which all lanes of a warp read some, or those that a tail
         * reaches, and the beginning of a line */
        const int cols = (int)args->cols;
        const int words = plan.piece > 0  ? plan.lanes * (plan.elements / N) + 1
                          : plan.tail > 0 ? cols / N + 2
                                          : ((cols + N - 1) / N + 31) / 32 * 32 + 1;
        skewed_space space;
        space.depth = depth;
        if (plan.piece > 0) {
            space.vectors = 0;
            space.windows = row_round_up((plan.lanes * (plan.elements / N) + 1) * (N + 1) * 4, 128);
        } else {
            space.vectors = gamma_words<N>(plan.lanes, plan.elements, false) * 16;
            space.windows = gamma_words<N>(plan.lanes, plan.elements, true) * 16;
        }
        space.tensor = words * 16 / SKEWED_LINE * SKEWED_LINE + 2 * SKEWED_LINE;
        space.stage = (args->dsum.data ? 3 : 2) * space.tensor;
        space.group = depth * space.stage;
        const int merged = plan.threads * plan.elements * (int)sizeof(float);
        space.bytes = space.vectors + space.windows + plan.threads / plan.lanes * space.group;
        if (space.bytes < merged) space.bytes = merged;
        return space;
    }
    /* With as many stages as there is room for, from `least` to `most`.  limit: bytes. */
    static bool find(const tutti__norm_args *args, const backward_plan &plan, int least, int most,
                     int limit, skewed_space *space)
    {
        for (int depth = most; depth >= least; depth--) {
            *space = tutti_dtype_size(args->x.dtype) == 2 ? of<8>(args, plan, depth)
                                                          : of<4>(args, plan, depth);
            if (space->bytes <= limit) return true;
        }
        return false;
    }
};

/* A stage's barrier, and its row's statistics. */
struct skewed_stage {
    uint64_t arrived;
    float mean, rstd;
};

/* What the thread that asks for a group's rows keeps, for which the others need no registers: the
 * next row, where it begins, and what it is to fill. */
struct alignas(16) skewed_queue {
    const char *x, *dy;
    int64_t row;
    uint32_t to, stage; /* shared addresses; of the first stage's: */
    uint32_t first, first_stage;
};

/* Where a thread has its part of a row in shared and device memory, and the row's statistics. */
struct skewed_place {
    uint32_t from;
    uint32_t begin; /* the row's address mod SKEWED_LINE */
    char *dx;       /* the thread's first vector */
    float mean, rstd;
};

/* A thread's part of the rows of its group.  TAIL: the last columns are a lane's each.  PIECES: a
 * block has a piece of each row, and writes the words that begin with its vectors.  APART, of
 * pieces: the tensors' rows begin at different bytes of 16; elements are read and written one by
 * one. */
template<class T, int ELEMENTS, bool CENTERED, bool TAIL = false, bool PIECES = false,
         bool APART = false>
struct skewed_rows {
    static constexpr int N = vector16<T>::N, VECS = ELEMENTS / N,
                         WINDOW = PIECES ? N + 1 : 2 * N - 1;
    enum { WHOLE = -1 }; /* instead of a skew in words: all rows begin on a boundary of 16 bytes */
    static constexpr uint32_t CHUNK = 32 * 16; /* bytes of a warp's neighbouring words */
    const tutti__norm_args &args;
    const backward_steps &steps;
    const skewed_space &space;
    int cols, vector_cols;
    int before = 0; /* PIECES: vectors of other blocks before this one's; */
    int beyond = 0; /* the vector behind this one's, if that is not the row's last block */
    int word;       /* this thread's first one */
    int in_warp;    /* of VECS, those that some lane of the warp has in the row */
    int part;       /* the first of VECS that not all of the warp's lanes have whole */
    /* asks for the rows, but for PIECES; of the warp that writes the row's ends, the last one, as
     * it mostly has the fewest vectors */
    bool leads, ends;
    /* shared addresses: of gamma for this thread, of the group's rows */
    uint32_t gamma, window, ring, stages; /* the last two before the first row only */
    uint32_t stage, parity;               /* to be read */
    int until_first;                      /* stages to read until the first one's turn */
    skewed_place place = {};              /* of the row that is read */
    int64_t row;                          /* APART: which */
    float dgamma[VECS][N] = {}, dbeta[CENTERED ? VECS : 1][N] = {};
    tail_sums *tails = NULL; /* TAIL: of the group */

    /* which: its lanes are the group's; of_group: its stages. */
    __device__ __forceinline__ skewed_rows(const tutti__norm_args &a, const backward_steps &way,
                                           const skewed_space &sizes, void *shared,
                                           skewed_stage *of_group, backward_lane which, int group,
                                           int64_t first, int piece = 0)
        : args(a), steps(way), space(sizes)
    {
        cols = (int)a.cols;
        vector_cols = TAIL ? cols - cols % N : cols;
        const int in_block = which.first(VECS);
        int vectors = (vector_cols + N - 1) / N, whole = vector_cols / N;
        word = in_block;
        if constexpr (PIECES) {
            before = which.before, word += before;
            if (before + piece < vectors) beyond = vectors = whole = before + piece;
        }
        const int warp_word = word - (int)threadIdx.x % 32;
        in_warp = (vectors - warp_word + 31) / 32;
        part = whole <= warp_word ? 0 : (whole - warp_word) / 32;
        leads = which.lane == which.lanes - 32;
        ends = which.lane >= which.lanes - 32;
        gamma = (uint32_t)__cvta_generic_to_shared(shared);
        ring = gamma + (uint32_t)(space.vectors + space.windows + group * space.group);
        window =
            gamma + (uint32_t)(space.vectors + (in_block * WINDOW + (PIECES ? WINDOW : N - 1)) * 4);
        gamma += (uint32_t)which.first(ELEMENTS / 4) * 16;
        stages = (uint32_t)__cvta_generic_to_shared(of_group);
        /* or they are computed again for each row */
        asm volatile("" : "+r"(gamma), "+r"(window));
        place.from = ring + (uint32_t)in_block * 16;
        stage = stages, parity = 0, until_first = space.depth, row = first;
        place.dx = place_of(a.dx, first, word * N);
        asm volatile("" : "+l"(place.dx));
        place.begin = (uint32_t)(uintptr_t)place_of(a.x, first, 0) % SKEWED_LINE;
    }
    __device__ __forceinline__ char *place_of(const tutti__matrix &matrix, int64_t at,
                                              int col) const
    {
        return (char *)((T *)matrix.data + at * matrix.stride + col);
    }
    /* Both forms of gamma, of PIECES the one, which all groups share: by one of them. */
    __device__ __forceinline__ void store_gamma(bool even) const
    {
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            if (PIECES && k > 0 && !(k < in_warp)) break;
            const int at = word + k * 32;
            float values[N];
            load_gamma(values, at * N, even);
            const uint32_t to = window + (uint32_t)(k * 32 * WINDOW) * 4;
#pragma unroll
            for (int i = 0; i < N; i++) write_element(to + (uint32_t)i * 4, values[i]);
            if constexpr (!PIECES) {
#pragma unroll
                for (int q = 0; q < N / 4; q++) {
                    uint4 raw;
                    memcpy(&raw, &values[4 * q], sizeof raw);
                    write16(gamma + (uint32_t)(k * (N / 4) + q) * CHUNK, raw);
                }
            } else if (at != before)
                continue;
            load_gamma(values, at * N - N, even);
            const uint32_t ahead = to - (uint32_t)WINDOW * 4;
#pragma unroll
            for (int i = 1; i < N; i++)
                write_element((PIECES ? ahead : to - N * 4) + (uint32_t)i * 4, values[i]);
        }
        if (TAIL && ends) { /* the vector beyond all threads' */
            float values[N];
            load_gamma(values, vector_cols, false);
            const int lane = (int)threadIdx.x % 32;
#pragma unroll
            for (int i = 0; i < N; i++)
                if (lane == i) write_element(tail_gamma(), values[i]);
        }
    }
    __device__ __forceinline__ void load_gamma(float (&values)[N], int col, bool even) const
    {
#pragma unroll
        for (int i = 0; i < N; i++) values[i] = 1;
        const int end =
            PIECES && beyond ? beyond * N : cols; /* what is beyond must not meet zeros */
        if (!args.gamma || col < 0 || col >= end) return;
        load_param(values, args.gamma, args.param_dtype, col, end - col, even);
        if (args.zero_centered) {
#pragma unroll
            for (int i = 0; i < N; i++) values[i] += 1;
        }
    }

    /* By the thread that leads, or asks for PIECES: asks for rows, as many as there are stages, or
     * one less.  last: the end of the group's. */
    __device__ __forceinline__ void start(skewed_queue *queue, int64_t first, int64_t last) const
    {
        for (int d = 0; d < space.depth; d++)
            barrier_init(stages + d * (int)sizeof(skewed_stage), 2);
#ifdef TUTTI_ROW_CLUSTERS
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
        *queue = {place_of(args.x, first, before * N),
                  place_of(args.dy, first, before * N),
                  first,
                  ring,
                  stages,
                  ring,
                  stages};
        for (int d = PIECES ? 0 : 1; d < space.depth; d++) request(queue, last);
    }
    /* The next row, if it is before `last`, into the stage that was free first. */
    __device__ __forceinline__ void request(skewed_queue *queue, int64_t last) const
    {
        skewed_queue q = *queue;
        if (q.row >= last) return;
        if constexpr (APART) {
            request_apart(q);
        } else {
            const uint32_t skew = (uint32_t)(uintptr_t)q.x % 16;
            const uint32_t to = q.to + ((uint32_t)(uintptr_t)q.x & (SKEWED_LINE - 16));
            const uint32_t left = bytes_left(skew);
            const char *x = q.x - skew, *dy = q.dy - skew;
            const char *dsum =
                args.dsum.data ? place_of(args.dsum, q.row, before * N) - skew : NULL;
            uint32_t bytes = (left + 15) & ~15u;
            if (q.row == args.rows - 1) { /* memory may end with the row */
                bytes = left & ~15u;
#pragma unroll 1
                for (uint32_t at = bytes > skew ? bytes : skew; at < left; at += sizeof(T)) {
                    write_element(to + at, *(const T *)(x + at));
                    write_element(to + space.tensor + at, *(const T *)(dy + at));
                    if (args.dsum.data)
                        write_element(to + 2 * space.tensor + at, *(const T *)(dsum + at));
                }
            }
            fetch_statistics(q);
            barrier_expect(q.stage, bytes * (args.dsum.data ? 3 : 2));
            bulk_copy(to, x, bytes, q.stage);
            bulk_copy(to + space.tensor, dy, bytes, q.stage);
            if (args.dsum.data) bulk_copy(to + 2 * space.tensor, dsum, bytes, q.stage);
        }
        q.x += steps.x, q.dy += steps.dy, q.row += steps.rows;
        q.to += space.stage, q.stage += (uint32_t)sizeof(skewed_stage);
        if (q.to == q.first + space.group) q.to = q.first, q.stage = q.first_stage;
        *queue = q;
    }

    /* Until the row is there. */
    __device__ __forceinline__ void wait()
    {
        barrier_wait(stage, parity);
        place.rstd = read4(stage + offsetof(skewed_stage, rstd));
        if (CENTERED) place.mean = read4(stage + offsetof(skewed_stage, mean));
    }
    /* The row is done with. */
    __device__ __forceinline__ void release()
    {
        place.from += (uint32_t)space.stage, stage += sizeof(skewed_stage);
        if (--until_first == 0) {
            until_first = space.depth, parity ^= 1;
            place.from -= (uint32_t)space.group;
            stage -= (uint32_t)space.depth * (uint32_t)sizeof(skewed_stage);
        }
        place.begin = (place.begin + (uint32_t)steps.x) % SKEWED_LINE;
        place.dx += steps.dx;
        if (APART) row += steps.rows;
    }
    /* To a row that was read some turns ago, fewer than there are stages, and from there. */
    __device__ __forceinline__ skewed_place go_back(int turns)
    {
        const skewed_place now = place;
        uint32_t statistics = stage - (uint32_t)turns * (uint32_t)sizeof(skewed_stage);
        place.from -= (uint32_t)(turns * space.stage);
        if (space.depth - until_first < turns) {
            statistics += (uint32_t)space.depth * (uint32_t)sizeof(skewed_stage);
            place.from += (uint32_t)space.group;
        }
        place.rstd = read4(statistics + offsetof(skewed_stage, rstd));
        if (CENTERED) place.mean = read4(statistics + offsetof(skewed_stage, mean));
        place.begin = (place.begin - (uint32_t)turns * (uint32_t)steps.x) % SKEWED_LINE;
        place.dx -= turns * steps.dx;
        if (APART) row -= turns * steps.rows;
        return now;
    }
    __device__ __forceinline__ void return_to(const skewed_place &now, int turns)
    {
        place = now;
        if (APART) row += turns * steps.rows;
    }

    /* Adds to dgamma and dbeta, and to sums of g * n, and of g.  WORDS: of the skew. */
    template<int WORDS>
    __device__ __forceinline__ void add_up(float (&sums)[CENTERED ? 2 : 1])
    {
        const uint32_t of_x = first_word(), of_dy = of_x + space.tensor;
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            if (k > 0 && !(k < in_warp)) break;
            float n[N], d[N], g[N];
            if constexpr (APART) {
                read_elements(n, args.x, 0, k);
                read_elements(d, args.dy, 1, k);
            } else {
                uint4 x = take<WORDS>(of_x + k * CHUNK), dy = take<WORDS>(of_dy + k * CHUNK);
                if (k >= part) clear_beyond(x, k), clear_beyond(dy, k);
                vector16<T>::unpack(x, n);
                vector16<T>::unpack(dy, d);
            }
            if constexpr (PIECES) {
#pragma unroll
                for (int i = 0; i < N; i++)
                    g[i] = read4(window + (uint32_t)(k * 32 * WINDOW + i) * 4);
            } else {
#pragma unroll
                for (int q = 0; q < N / 4; q++) {
                    const uint4 raw = read16(gamma + (uint32_t)(k * (N / 4) + q) * CHUNK);
                    memcpy(&g[4 * q], &raw, sizeof raw);
                }
            }
#pragma unroll
            for (int i = 0; i < N; i++) {
                n[i] = normalised<CENTERED>(n[i], place.mean, place.rstd);
                g[i] = __fmul_rn(d[i], g[i]);
                sums[0] = fmaf(g[i], n[i], sums[0]);
                dgamma[k][i] = fmaf(d[i], n[i], dgamma[k][i]);
                if constexpr (CENTERED) {
                    sums[1] += g[i];
                    dbeta[k][i] += d[i];
                }
            }
        }
    }

    /* A copy of the loop for each skew in words, from LOW to before HIGH. */
    template<int LOW = 0, int HIGH = 4>
    __device__ __forceinline__ void add_up_known(float (&sums)[CENTERED ? 2 : 1])
    {
        constexpr int MIDDLE = (LOW + HIGH) / 2;
        if constexpr (PIECES && !APART && LOW == 0 && HIGH == 4)
            if (((place.begin | (uint32_t)steps.x) & 15) == 0) {
                add_up<WHOLE>(sums);
                return;
            }
        if constexpr (MIDDLE == LOW || APART)
            add_up<LOW>(sums);
        else if (place.begin % 16 < MIDDLE * 4)
            add_up_known<LOW, MIDDLE>(sums);
        else
            add_up_known<MIDDLE, HIGH>(sums);
    }

    __device__ __forceinline__ tail_column tail() const
    {
        return {tails, ends ? (int)threadIdx.x % 32 : -1, cols - vector_cols};
    }
    __device__ __forceinline__ void add_tail(float (&sums)[CENTERED ? 2 : 1]) const
    {
        const tail_column mine = tail();
        if (!mine.is_mine()) return;
        const uint32_t at = place.from + place.begin +
                            (uint32_t)(((vector_cols / N - word) * N + mine.lane) * (int)sizeof(T));
        const float n = widen<float>(read_element<T>(at));
        mine.add<CENTERED>(sums, normalised<CENTERED>(n, place.mean, place.rstd),
                           widen<float>(read_element<T>(at + space.tensor)), read4(tail_gamma()));
    }

    /* Writes dx from the sums of all threads of the row. */
    __device__ __forceinline__ void finish(const float (&sums)[CENTERED ? 2 : 1],
                                           float inverse_cols) const
    {
        const dx_formula<CENTERED> formula(sums, place.rstd, inverse_cols);
        if constexpr (APART) {
            write_elements(formula);
            return;
        }
        const uint32_t skew = place.begin % 16, back = skew / sizeof(T), at = first_word();
        const uint32_t of_gamma = window - back * (uint32_t)sizeof(float);
        const int cut = skew > 0; /* the first word is not whole */
        const int end = PIECES && beyond ? beyond : (vector_cols + (int)back) / N;
        const int left = end - word + (int)threadIdx.x % 32;
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            if (left <= k * 32 || (PIECES && !(k < in_warp)))
                break; /* the warp has no whole word */
            float n[N], d[N];
            vector16<T>::unpack(read16(at + k * CHUNK), n);
            vector16<T>::unpack(read16(at + space.tensor + k * CHUNK), d);
#pragma unroll
            for (int i = 0; i < N; i++) {
                const uint32_t gap = PIECES && i < (int)back ? 4 : 0;
                const float g = read4(of_gamma - gap + (uint32_t)(k * 32 * WINDOW + i) * 4);
                d[i] = formula.of(normalised<CENTERED>(n[i], place.mean, place.rstd), d[i], g);
            }
            if (args.dsum.data) {
                vector16<T>::unpack(read16(at + 2 * space.tensor + k * CHUNK), n);
#pragma unroll
                for (int i = 0; i < N; i++) d[i] = __fadd_rn(d[i], n[i]);
            }
            if (word + k * 32 >= cut && word + k * 32 < end)
                store_pack((T *)(place.dx - skew + k * CHUNK), d);
        }
        if (ends) write_ends(formula);
    }

  private:
    /* From the boundary of 16 bytes at or below the block's piece, which is `skew` away, to the end
     * of what the block reads. */
    __device__ __forceinline__ uint32_t bytes_left(uint32_t skew) const
    {
        const uint32_t left = skew + (uint32_t)(cols - before * N) * (uint32_t)sizeof(T);
        return PIECES && beyond ? min(left, (uint32_t)(beyond + 1 - before) * 16) : left;
    }
    /* And arrives. */
    __device__ __forceinline__ void fetch_statistics(const skewed_queue &q) const
    {
        fetch4(q.stage + offsetof(skewed_stage, rstd), (const float *)args.rstd + q.row);
        if (CENTERED)
            fetch4(q.stage + offsetof(skewed_stage, mean), (const float *)args.mean + q.row);
        barrier_arrive_fetched(q.stage);
    }
    /* APART */
    __device__ __forceinline__ uint32_t begin_of(const tutti__matrix &matrix) const
    {
        return (uint32_t)(uintptr_t)place_of(matrix, row, 0) % SKEWED_LINE;
    }
    struct apart_words {
        const char *from;
        uint32_t to, bytes, skew, left;
    };
    __device__ __forceinline__ apart_words words_of(const skewed_queue &q, int tensor) const
    {
        const tutti__matrix &matrix = tensor == 0 ? args.x : tensor == 1 ? args.dy : args.dsum;
        const char *from = place_of(matrix, q.row, before * N);
        const uint32_t skew = (uint32_t)(uintptr_t)from % 16, left = bytes_left(skew);
        const uint32_t line = (uint32_t)(uintptr_t)from & (SKEWED_LINE - 16);
        const bool last = q.row == args.rows - 1; /* memory may end with the row */
        return {from - skew, q.to + (uint32_t)(tensor * space.tensor) + line,
                last ? left & ~15u : (left + 15) & ~15u, skew, left};
    }
    __device__ __forceinline__ void request_apart(const skewed_queue &q) const
    {
        const int count = args.dsum.data ? 3 : 2;
        uint32_t all = 0;
#pragma unroll 1
        for (int tensor = 0; tensor < count; tensor++) {
            const apart_words words = words_of(q, tensor);
            all += words.bytes;
            for (uint32_t at = max(words.bytes, words.skew); at < words.left; at += sizeof(T))
                write_element(words.to + at, *(const T *)(words.from + at));
        }
        fetch_statistics(q);
        barrier_expect(q.stage, all);
#pragma unroll 1
        for (int tensor = 0; tensor < count; tensor++) {
            const apart_words words = words_of(q, tensor);
            bulk_copy(words.to, words.from, words.bytes, q.stage);
        }
    }
    __device__ __forceinline__ void read_elements(float (&values)[N], const tutti__matrix &matrix,
                                                  int tensor, int k) const
    {
        const uint32_t at =
            place.from + (uint32_t)(tensor * space.tensor) + begin_of(matrix) + k * CHUNK;
        const int end = beyond ? beyond * N : cols, left = end - (word + k * 32) * N;
#pragma unroll
        for (int i = 0; i < N; i++)
            values[i] = i < left ? widen<float>(read_element<T>(at + i * (int)sizeof(T))) : 0;
    }
    __device__ __forceinline__ void write_elements(const dx_formula<CENTERED> &formula) const
    {
        const int end = beyond ? beyond * N : cols;
#pragma unroll 1
        for (int k = 0; k < VECS; k++) {
            float n[N], d[N], sum[N] = {};
            read_elements(n, args.x, 0, k);
            read_elements(d, args.dy, 1, k);
            if (args.dsum.data) read_elements(sum, args.dsum, 2, k);
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float g = read4(window + (uint32_t)(k * 32 * WINDOW + i) * 4);
                d[i] = formula.of(normalised<CENTERED>(n[i], place.mean, place.rstd), d[i], g);
                if (args.dsum.data) d[i] = __fadd_rn(d[i], sum[i]);
                if ((word + k * 32) * N + i < end)
                    ((T *)place.dx)[k * 32 * N + i] = narrow<T>::of(d[i]);
            }
        }
    }

    /* This thread's first word of x. */
    __device__ __forceinline__ uint32_t first_word() const
    {
        return place.from + (place.begin & (SKEWED_LINE - 16));
    }
    template<int WORDS>
    __device__ __forceinline__ uint4 take(uint32_t at) const
    {
        if constexpr (WORDS == WHOLE) return read16(at);
        return bytes_of < T, WORDS < 0 ? 0 : WORDS > (read16(at), read16(at + 16), place.begin);
    }
    __device__ __forceinline__ void clear_beyond(uint4 &raw, int k) const
    {
        const int end = PIECES && beyond ? beyond * N : cols;
        const int left = (end - (word + k * 32) * N) * (int)sizeof(T);
        uint32_t *words[4] = {&raw.x, &raw.y, &raw.z, &raw.w};
#pragma unroll
        for (int i = 0; i < 4; i++)
            *words[i] = left >= 4 * i + 4 ? *words[i] : left > 4 * i ? *words[i] & 0xffff : 0;
    }
    /* Of the tail's column of this lane: a shared address. */
    __device__ __forceinline__ uint32_t tail_gamma() const
    {
        return window + (uint32_t)((vector_cols / N - word) * WINDOW + (int)threadIdx.x % 32) * 4;
    }
    /* The elements of the row's first and last word, if they are not whole, and the tail's: a lane
     * each. */
    __device__ __forceinline__ void write_ends(const dx_formula<CENTERED> &formula) const
    {
        const int back = (int)(place.begin % 16 / sizeof(T)), lane = (int)threadIdx.x % 32;
        const int ahead = back > 0 && !(PIECES && before) ? N - back : 0;
        const int after = PIECES && beyond ? 0 : (vector_cols + back) % N + cols - vector_cols;
        if (lane >= ahead + after) return;
        const int col = lane < ahead ? lane : cols - after + lane - ahead;
        const int by = col - word * N; /* from this thread's first vector */
        const uint32_t at = place.from + place.begin + (uint32_t)(by * (int)sizeof(T));
        const float n = widen<float>(read_element<T>(at));
        const float d = widen<float>(read_element<T>(at + space.tensor));
        const float g = read4(window + (uint32_t)((col / N - word) * WINDOW + col % N) * 4);
        float value = formula.of(normalised<CENTERED>(n, place.mean, place.rstd), d, g);
        if (args.dsum.data)
            value = __fadd_rn(value, widen<float>(read_element<T>(at + 2 * space.tensor)));
        ((T *)place.dx)[by] = narrow<T>::of(value);
    }
};

#endif
