/* LayerNorm and RMSNorm, backward: a thread's part of the rows that it goes through. */
#ifndef TUTTI_KERNELS_CUDA_NORM_BACKWARD_ROWS_CUH
#define TUTTI_KERNELS_CUDA_NORM_BACKWARD_ROWS_CUH

#include "kernels/cuda/norm_backward.cuh"
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/row_ring.cuh"

/* Of gamma in shared memory, ahead of the ring: 16-byte words.  Skewed: vectors of it from any
 * column on, so the N - 1 columns before each vector stand before it; 2N - 1 values a vector, an
 * odd number, let the lanes of a warp read them at once. */
template<int N>
__host__ __device__ constexpr int gamma_words(int threads, int elements, bool skewed)
{
    const int floats = skewed ? (threads * (elements / N) + 1) * (2 * N - 1) : threads * elements;
    return (floats / 4 + 1 + 7) / 8 * 8;
}

/* Sums over groups of lanes, at least as many as values.  Of two values even lanes get the first
 * one's, odd lanes the second one's: that takes half as many shuffles. */
template<int VALUES>
__device__ __forceinline__ float sum_lanes(const float (&values)[VALUES], int lanes)
{
    static_assert(VALUES <= 2, "more values");
    float mine = values[0];
    if constexpr (VALUES == 2) {
        const bool odd = threadIdx.x & 1;
        mine = (odd ? values[1] : mine) + __shfl_xor_sync(0xffffffffu, odd ? mine : values[1], 1);
    }
#pragma unroll
    for (int apart = 16; apart >= VALUES; apart /= 2)
        if (apart < lanes) mine += __shfl_xor_sync(0xffffffffu, mine, apart);
    return mine;
}
/* Lane i has part i / VALUES of value i % VALUES, or 0; all get the sums of `count` parts, the same
 * bits in each. */
template<int VALUES>
__device__ __forceinline__ void share_sums(float (&values)[VALUES], float part, int count)
{
#pragma unroll
    for (int apart = 16; apart >= VALUES; apart /= 2)
        if (apart < count * VALUES) part += __shfl_xor_sync(0xffffffffu, part, apart);
#pragma unroll
    for (int n = 0; n < VALUES; n++) values[n] = __shfl_sync(0xffffffffu, part, n);
}

/* Some lanes of a warp for a row. */
template<int VALUES>
struct lanes_team {
    int lanes;
    __device__ __forceinline__ void reduce(float (&values)[VALUES]) const
    {
        if (lanes == 1) return;
        const float mine = lanes == 32 ? sum_lanes(values, 32) : sum_lanes(values, lanes);
        const float other = VALUES == 1 ? mine : __shfl_xor_sync(0xffffffffu, mine, 1);
        const bool odd = threadIdx.x & 1;
        values[0] = odd ? other : mine;
        values[VALUES - 1] = odd ? mine : other;
    }
};

/* Some warps of a block, up to 32, for a row.  Two alternating places make one barrier a reduction
 * enough.  ALL: the rows of a block are reduced at the same time. */
template<int VALUES, bool ALL = false>
struct warps_team {
    enum { PLACE = 32 * VALUES * (int)sizeof(float) }; /* of one turn: bytes, a power of two */
    uint32_t to, from; /* shared addresses: this lane's value of its warp, a part of the row */
    int warps, barrier;
    bool gives, takes, takes_more;

    /* shared: two places, the first at a multiple of both */
    __device__ __forceinline__ warps_team(float *shared, int threads)
        : warps(threads / 32), barrier(1 + (int)threadIdx.x / threads)
    {
        const int lane = threadIdx.x % 32, first = (int)threadIdx.x / threads * warps;
        to = (uint32_t)__cvta_generic_to_shared(shared + threadIdx.x / 32 * VALUES + lane);
        from = (uint32_t)__cvta_generic_to_shared(shared + first * VALUES + lane);
        gives = lane < VALUES, takes = lane < warps * VALUES;
        takes_more = lane + 32 < warps * VALUES;
    }
    __device__ __forceinline__ void meet() const
    {
        if constexpr (ALL)
            __syncthreads();
        else
            asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(warps * 32) : "memory");
    }
    __device__ __forceinline__ void reduce(float (&values)[VALUES])
    {
        const float mine = sum_lanes(values, 32);
        if (gives) asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(mine) : "memory");
        meet();
        float part = takes ? read(from) : 0;
        if (takes_more) part += read(from + 32 * (int)sizeof(float));
        share_sums(values, part, warps);
        to ^= PLACE, from ^= PLACE;
    }

  private:
    static __device__ __forceinline__ float read(uint32_t at)
    {
        float value;
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(at) : "memory");
        return value;
    }
};

/* What all kernels compute of an element, with the same bits. */
template<bool CENTERED>
__device__ __forceinline__ float normalised(float x, float mean, float rstd)
{
    return (CENTERED ? x - mean : x) * rstd;
}
template<bool CENTERED>
struct dx_formula {
    float rstd, by_n, shift;

    /* sums: of g * n, and of g, over the row */
    __device__ __forceinline__ dx_formula(const float (&sums)[CENTERED ? 2 : 1], float inverse_dev,
                                          float inverse_cols)
        : rstd(inverse_dev), by_n(-rstd * (sums[0] * inverse_cols)),
          shift(CENTERED ? -rstd * (sums[CENTERED] * inverse_cols) : 0)
    {
    }
    __device__ __forceinline__ float of(float n, float dy, float gamma) const
    {
        const float rest = CENTERED ? fmaf(n, by_n, shift) : __fmul_rn(n, by_n);
        return fmaf(__fmul_rn(dy, gamma), rstd, rest);
    }
};

/* Whether the rows of two tensors begin at the same bytes of 16, row by row; one that is not there
 * agrees with any. */
static inline bool are_skewed_alike(const tutti__matrix &a, const tutti__matrix &b, int64_t rows,
                                    int element)
{
    const uintptr_t pitch = rows > 1 ? (uintptr_t)(a.stride - b.stride) * (uintptr_t)element : 0;
    return !b.data || ((((uintptr_t)a.data - (uintptr_t)b.data) | pitch) & 15) == 0;
}

/* All tensors' rows. */
static inline bool are_skewed_alike(const tutti__norm_args *args, int element)
{
    for (const tutti__matrix *other : {&args->dy, &args->dx, &args->dsum})
        if (!are_skewed_alike(args->x, *other, args->rows, element)) return false;
    return true;
}

/* The way from a row to the next one of the same threads: rows; bytes of each tensor; their skew.
 * Known on the host: pointers that go along take fewer instructions than products of the row. */
struct backward_steps {
    int64_t rows, x, dy, dx;
    uint32_t skew;
    bool apart; /* the tensors' skews differ */

    template<class T>
    static backward_steps of(const tutti__norm_args *args, int64_t rows)
    {
        const int64_t bytes = rows * (int64_t)sizeof(T), x = bytes * args->x.stride;
        const bool alike = are_skewed_alike(args, (int)sizeof(T));
        return {rows,
                x,
                bytes * args->dy.stride,
                bytes * args->dx.stride,
                alike ? (uint32_t)(x & 15) : 0,
                !alike};
    }
};

/* The threads of a row, all or those of one of its blocks: this one of how many; those of a warp,
 * which have neighbouring vectors; the row's vectors that other blocks have before them. */
struct backward_lane {
    int lane, lanes, group, before;

    /* Of a thread's so many items in a list in which those of a group come one after another. */
    __device__ __forceinline__ int first(int items) const
    {
        return lane / group * group * items + lane % group;
    }
};

/* The last columns of a row that are no whole vector, fewer than a warp has lanes, if a lane of the
 * row's last warp has one each; its sums over rows are in shared memory, as registers are few. */
struct tail_sums {
    float of[2][8]; /* of dgamma, dbeta */
};
struct tail_column {
    tail_sums *sums;
    int lane, count; /* which of them is this thread's, if it is one */

    __device__ __forceinline__ bool is_mine() const { return lane >= 0 && lane < count; }
    __device__ __forceinline__ void begin() const
    {
        if (is_mine()) sums->of[0][lane] = 0, sums->of[1][lane] = 0;
    }
    /* n: the normalised x */
    template<bool CENTERED>
    __device__ __forceinline__ void add(float (&row)[CENTERED ? 2 : 1], float n, float dy,
                                        float gamma) const
    {
        const float g = __fmul_rn(dy, gamma);
        row[0] = fmaf(g, n, row[0]);
        sums->of[0][lane] = fmaf(dy, n, sums->of[0][lane]);
        if constexpr (CENTERED) row[CENTERED] += g, sums->of[1][lane] += dy;
    }
};
/* Adds those of a block's groups, which are done, and writes them. */
__device__ __forceinline__ void merge_tails(const tail_sums *sums, int groups, int count, int which,
                                            float *to)
{
    if ((int)threadIdx.x >= count) return;
    float sum = sums[0].of[which][threadIdx.x];
    for (int group = 1; group < groups; group++) sum += sums[group].of[which][threadIdx.x];
    to[threadIdx.x] = sum;
}

/* A row's threads (Team) and what they keep from row to row.  SKEWED: the sums are added up from
 * vectors, whose order does not depend on how a row lies; dx is written in words as they lie. */
template<class T, int ELEMENTS, bool CENTERED, bool SKEWED, bool TIGHT = SKEWED>
struct backward_rows {
    static constexpr int N = vector16<T>::N, VECS = ELEMENTS / N, WINDOW = 2 * N - 1;
    const tutti__norm_args &args;
    const backward_steps &steps;
    row_ring<T, VECS, SKEWED> ring;
    uint32_t gamma, words; /* of this thread's first vector; bytes to the next of its values */
    int cols;
    int coming;        /* rows to be asked for; below 0: asked for in vain */
    int64_t statistic; /* the row whose statistics are asked for next */
    /* of the rows that are next: this thread's first vector of it */
    const char *next_x, *next_dy;
    char *next_dx;
    int in_warp;   /* SKEWED: of VECS, those that some lane of the warp has in the row */
    bool ends_row; /* SKEWED: the word beyond this thread's may be the row's last */
    float dgamma[VECS][N] = {}, dbeta[CENTERED ? VECS : 1][N] = {};
    float mean = 0, rstd = 0, next_mean = 0, next_rstd = 0;
    tail_column tail = {}; /* beyond `cols`, by run() */

    /* columns: those of vectors */
    __device__ __forceinline__ backward_rows(const tutti__norm_args &a, int columns,
                                             const backward_steps &way, void *shared,
                                             backward_lane which, int depth, int64_t first,
                                             int64_t last)
        : args(a), steps(way),
          ring(shared, {which.before + which.first(VECS), which.group, which.group},
               a.dsum.data ? 3 : 2, depth),
          cols(columns), statistic(first)
    {
        const int64_t more = last - first;
        coming = more > 0 ? (int)((more + way.rows - 1) / way.rows) : 0;
        next_x = place_of(a.x, first), next_dy = place_of(a.dy, first);
        next_dx = place_of(a.dx, first);
        if constexpr (SKEWED) {
            ring.skew = way.apart ? 0 : skew_of(next_x);
            ring.set_rows(cols, way.apart);
            const int left = cols + N - 1 - (word_of(0) - which.lane % which.group) * N;
            in_warp = (left + which.group * N - 1) / (which.group * N);
            ends_row = which.lane == which.lanes - 1 && word_of(VECS) * N >= cols &&
                       word_of(VECS) * N < cols + N;
        } else
            ring.clear_beyond(cols);
    }
    __device__ __forceinline__ char *place_of(const tutti__matrix &matrix, int64_t row) const
    {
        return (char *)((T *)matrix.data + row * matrix.stride + ring.place.template column<T>(0));
    }
    /* Of this thread in a row; k = VECS: the one beyond its last. */
    __device__ __forceinline__ int word_of(int k) const
    {
        return k < VECS ? ring.place.first + k * ring.place.step
                        : ring.place.first + (VECS - 1) * ring.place.step + 1;
    }
    /* Asks for the first rows, so many, and stores gamma, the same for all rows of a block, if this
     * one leads.  Behind rows, gamma and the statistics would come last, so they are asked for
     * first. */
    __device__ __forceinline__ void begin(void *shared, backward_lane which, bool leads, bool even,
                                          int count)
    {
        load_statistics();
        uint4 raw[VECS][2] = {}; /* of gamma, as it lies */
        const bool early = !SKEWED && even && args.gamma && N * param_size() >= 16;
        if (early && leads) {
#pragma unroll
            for (int k = 0; k < VECS; k++) {
                const uint4 *at =
                    (const uint4 *)((const char *)args.gamma + word_of(k) * N * param_size());
                if (word_of(k) * N < cols) raw[k][0] = at[0];
                if (word_of(k) * N < cols && N * param_size() > 16) raw[k][1] = at[1];
            }
        }
        for (int d = 0; d < count; d++) request(d - 1);

        float *to =
            (float *)shared + (SKEWED ? which.first(VECS) * WINDOW : which.first(ELEMENTS / 4) * 4);
        words = (uint32_t)(which.group * (SKEWED ? WINDOW : 4)) * sizeof(float);
        gamma = (uint32_t)__cvta_generic_to_shared(to);
        if (SKEWED) asm volatile("" : "+r"(gamma)); /* or it is computed again for each row */
        if (!leads) return;
#pragma unroll
        for (int k = 0; k < VECS + SKEWED; k++) {
            if (k == VECS && !ends_row) break;
            const int col = word_of(k) * N;
            float values[N];
            if (early)
                gamma_of(values, raw[k % VECS], 0, N, true);
            else
                load_gamma(values, col, even);
            if constexpr (SKEWED) {
                float *window = to + (word_of(k) - ring.place.first) * WINDOW;
#pragma unroll
                for (int i = 0; i < N; i++) window[N - 1 + i] = values[i];
                load_gamma(values, col - N, even);
#pragma unroll
                for (int i = 1; i < N; i++) window[i - 1] = values[i];
            } else {
#pragma unroll
                for (int q = 0; q < N / 4; q++)
                    ((float4 *)to)[(k * (N / 4) + q) * which.group] = make_float4(
                        values[4 * q], values[4 * q + 1], values[4 * q + 2], values[4 * q + 3]);
            }
        }
    }
    __device__ __forceinline__ int param_size() const
    {
        return args.param_dtype == TUTTI_F32 ? 4 : 2;
    }
    __device__ __forceinline__ void load_gamma(float (&values)[N], int col, bool even) const
    {
#pragma unroll
        for (int i = 0; i < N; i++) values[i] = 1;
        if (args.gamma && col >= 0 && col < cols)
            gamma_of(values, args.gamma, col, cols - col, even);
    }
    __device__ __forceinline__ void gamma_of(float (&values)[N], const void *from, int col,
                                             int count, bool even) const
    {
        load_param(values, from, args.param_dtype, col, count, even);
        if (args.zero_centered) {
#pragma unroll
            for (int i = 0; i < N; i++) values[i] += 1;
        }
    }

    /* The next row, if there is one, which is `ahead` of the one whose statistics are next. */
    __device__ __forceinline__ void request(int ahead)
    {
        if (coming > 0) {
            ring.request(0, next_x, cols);
            ring.request(1, next_dy, cols);
            if (args.dsum.data)
                ring.request(2, place_of(args.dsum, statistic + ahead * steps.rows), cols);
        }
        ring.send();
        coming--;
        next_x += steps.x, next_dy += steps.dy;
    }
    /* Those of the row that was asked for before; asks for the next row's. */
    __device__ __forceinline__ void load_statistics()
    {
        rstd = next_rstd, mean = next_mean;
        /* which ptxas does not know: it would move a number that all lanes load to a uniform
         * register, and wait for it */
        const unsigned zero = __shfl_sync(0xffffffffu, 0u, 0);
        if (statistic < args.rows) {
            next_rstd = ((const float *)args.rstd + statistic)[zero];
            if (CENTERED) next_mean = ((const float *)args.mean + statistic)[zero];
        }
        statistic += steps.rows;
    }

    struct vectors {
        float n[N], dy[N], gamma[N]; /* n: the normalised x */
    };
    /* From words of x and dy, and gamma from a column `back` before that of vector k on. */
    __device__ __forceinline__ vectors unpack(const uint4 &x, const uint4 &dy, int k,
                                              int back) const
    {
        vectors v;
        vector16<T>::unpack(x, v.n);
        vector16<T>::unpack(dy, v.dy);
        if constexpr (SKEWED) {
            const uint32_t at = gamma + place_of_gamma(k) + (uint32_t)(N - 1 - back) * 4;
#pragma unroll
            for (int i = 0; i < N; i++) v.gamma[i] = read4(at + 4 * (uint32_t)i);
        } else {
#pragma unroll
            for (int q = 0; q < N / 4; q++) {
                const uint4 raw = read16(gamma + (k * (N / 4) + q) * words);
                memcpy(&v.gamma[4 * q], &raw, sizeof raw);
            }
        }
#pragma unroll
        for (int i = 0; i < N; i++) v.n[i] = normalised<CENTERED>(v.n[i], mean, rstd);
        return v;
    }

    /* The row in stage `from`: adds to dgamma and dbeta, and to sums of g * n, and of g. */
    template<int QUARTER = -1>
    __device__ __forceinline__ void add_up(float (&sums)[CENTERED ? 2 : 1])
    {
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            if (SKEWED && k > 0 && !(k < in_warp)) break;
            const vectors v =
                unpack(ring.template take<QUARTER>(0, k), ring.template take<QUARTER>(1, k), k, 0);
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float g = __fmul_rn(v.dy[i], v.gamma[i]);
                sums[0] = fmaf(g, v.n[i], sums[0]);
                dgamma[k][i] = fmaf(v.dy[i], v.n[i], dgamma[k][i]);
                if constexpr (CENTERED) {
                    sums[1] += g;
                    dbeta[k][i] += v.dy[i];
                }
            }
        }
    }
    /* The same, of a row that its warps have alone: they know what to shift by. */
    __device__ __forceinline__ void add_up_known(float (&sums)[CENTERED ? 2 : 1])
    {
        if constexpr (!SKEWED)
            add_up(sums);
        else
            switch (ring.skew / 4) {
            case 0:
                add_up<0>(sums);
                break;
            case 1:
                add_up<1>(sums);
                break;
            case 2:
                add_up<2>(sums);
                break;
            default:
                add_up<3>(sums);
            }
    }

    /* Writes dx of the row in stage `from` from the sums of all its threads. */
    __device__ __forceinline__ void finish(const float (&sums)[CENTERED ? 2 : 1],
                                           float inverse_cols)
    {
        const dx_formula<CENTERED> formula(sums, rstd, inverse_cols);
        if (TIGHT || args.dsum.data) /* two would need more registers */
            write<true>(formula);
        else
            write<false>(formula);
        next_dx += steps.dx;
    }

    /* Both; a group without a row takes part in the sums. */
    template<bool KNOWN, class Team>
    __device__ __forceinline__ void run(Team &team, bool exists, float inverse_cols)
    {
        float sums[CENTERED ? 2 : 1] = {};
        if (exists) {
            if constexpr (KNOWN)
                add_up_known(sums);
            else
                add_up(sums);
        }
        constexpr bool TAILS = KNOWN && SKEWED && sizeof(T) == 2 && VECS == 2;
        const bool tails = TAILS && exists && tail.is_mine();
        if (tails) {
            const tail_values t = load_tail();
            tail.add<CENTERED>(sums, t.n, t.dy, t.gamma);
        }
        if (!args.dx.data) return;
        team.reduce(sums);
        if (exists) finish(sums, inverse_cols);
        if (tails) write_tail(dx_formula<CENTERED>(sums, rstd, inverse_cols));
    }

  private:
    struct tail_values {
        float n, dy, gamma;
    };
    template<class M>
    __device__ __forceinline__ T *tail_of(const M &matrix) const
    {
        /* load_statistics() is two rows ahead */
        return (T *)matrix.data + (statistic - 2 * steps.rows) * matrix.stride + cols + tail.lane;
    }
    __device__ __forceinline__ tail_values load_tail() const
    {
        float one[1] = {1};
        if (args.gamma) {
            load_param(one, args.gamma, args.param_dtype, cols + tail.lane, 1, false);
            if (args.zero_centered) one[0] += 1;
        }
        return {normalised<CENTERED>(widen<float>(*tail_of(args.x)), mean, rstd),
                widen<float>(*tail_of(args.dy)), one[0]};
    }
    /* Which no other thread has written: in place, x and dy are still there. */
    __device__ __forceinline__ void write_tail(const dx_formula<CENTERED> &formula) const
    {
        const tail_values t = load_tail();
        float value = formula.of(t.n, t.dy, t.gamma);
        if (args.dsum.data) value = __fadd_rn(value, widen<float>(*tail_of(args.dsum)));
        *tail_of(args.dx) = narrow<T>::of(value);
    }
    /* Of the word k of this thread from `gamma`: bytes. */
    __device__ __forceinline__ uint32_t place_of_gamma(int k) const
    {
        return k < VECS ? k * words : (VECS - 1) * words + WINDOW * (uint32_t)sizeof(float);
    }

    template<bool DSUM>
    __device__ __forceinline__ void write(const dx_formula<CENTERED> &formula)
    {
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            if (SKEWED && k > 0 && !(k < in_warp)) break;
            write_word<DSUM>(k, formula);
        }
        if constexpr (SKEWED)
            if (ends_row) write_word<DSUM>(VECS, formula);
    }
    template<bool DSUM>
    __device__ __forceinline__ void write_word(int k, const dx_formula<CENTERED> &formula)
    {
        const int back = (int)(ring.skew / sizeof(T)), col = word_of(k) * N - (SKEWED ? back : 0);
        vectors v = unpack(ring.word(0, k), ring.word(1, k), k, back);
#pragma unroll
        for (int i = 0; i < N; i++) v.dy[i] = formula.of(v.n[i], v.dy[i], v.gamma[i]);
        if (DSUM && (!TIGHT || args.dsum.data)) {
            vector16<T>::unpack(ring.word(2, k), v.n);
#pragma unroll
            for (int i = 0; i < N; i++) v.dy[i] = __fadd_rn(v.dy[i], v.n[i]);
        }
        T *to = (T *)(next_dx + (word_of(k) - ring.place.first) * 16);
        if constexpr (!SKEWED) {
            if (col < cols) store_pack(to, v.dy);
        } else if (col >= 0 && col + N <= cols && !ring.apart)
            store_pack(to - back, v.dy);
        else if (col < cols)
            store_some(to - back, v.dy, -col, cols - col);
    }
    /* Those from `first` to before `end`. */
    static __device__ __forceinline__ void store_some(T *to, const float (&values)[N], int first,
                                                      int end)
    {
        const uint4 raw = vector16<T>::pack(values);
        T part[N];
        memcpy(part, &raw, sizeof raw);
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i >= first && i < end) to[i] = part[i];
    }
};

/* Adds up what the parts of a block have of a partial row, and writes it: `parts` rows of `pitch`
 * floats in shared memory; gives: this thread has columns of row `part`. */
template<class T, int VECS, int N>
__device__ __forceinline__ void merge_parts(const float (&values)[VECS][N], float *merged,
                                            row_place place, bool gives, int part, int parts,
                                            int pitch, int cols, float *to)
{
    __syncthreads();
    if (gives)
#pragma unroll
        for (int k = 0; k < VECS; k++)
            store_elements(merged + part * pitch + place.column<T>(k), values[k], N, true);
    __syncthreads();
    /* the pitch of `to` has room for the last four */
    for (int col = 4 * threadIdx.x; col < cols; col += 4 * blockDim.x) {
        float4 sum = *(const float4 *)(merged + col);
#pragma unroll 1
        for (int other = 1; other < parts; other++) {
            const float4 more = *(const float4 *)(merged + other * pitch + col);
            sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
        }
        *(float4 *)(to + col) = sum;
    }
}

#endif
