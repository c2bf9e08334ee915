/* LayerNorm and RMSNorm, backward: a thread's part of the rows that it goes through. */
#ifndef TUTTI_KERNELS_CUDA_NORM_BACKWARD_ROWS_CUH
#define TUTTI_KERNELS_CUDA_NORM_BACKWARD_ROWS_CUH

#include "kernels/cuda/norm_backward.cuh"
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/row_ring.cuh"

/* Of gamma in shared memory, ahead of the ring. */
__host__ __device__ constexpr int gamma_words(int threads, int elements)
{
    return (threads * elements / 4 + 7) / 8 * 8;
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

/* The way from a row to the next one of the same threads: rows; bytes of each tensor; skews of x,
 * dy and dsum.  Known on the host: pointers that go along take fewer instructions than products of
 * the row. */
struct backward_steps {
    int64_t rows, x, dy, dx;
    uint32_t skews;

    template<class T>
    static backward_steps of(const tutti__norm_args *args, int64_t rows)
    {
        const int64_t bytes = rows * (int64_t)sizeof(T), x = bytes * args->x.stride,
                      dy = bytes * args->dy.stride, dsum = bytes * args->dsum.stride;
        return {rows, x, dy, bytes * args->dx.stride,
                (uint32_t)((x & 15) | (dy & 15) << 8 | (dsum & 15) << 16)};
    }
};

/* A row's threads (Team) and what they keep from row to row. */
template<class T, int ELEMENTS, bool CENTERED, bool SKEWED, bool TIGHT = SKEWED>
struct backward_rows {
    static constexpr int N = vector16<T>::N, VECS = ELEMENTS / N;
    const tutti__norm_args &args;
    const backward_steps &steps;
    row_ring<T, VECS, SKEWED> ring;
    uint32_t gamma, words; /* this thread's, N / 4 words a vector; bytes between two */
    int cols;
    int coming;        /* rows to be asked for; below 0: asked for in vain */
    int64_t statistic; /* the row whose statistics are asked for next */
    /* of the rows that are next; SKEWED: the row, otherwise this thread's first vector of it */
    const char *next_x, *next_dy;
    char *next_dx;
    float dgamma[VECS][N] = {}, dbeta[CENTERED ? VECS : 1][N] = {};
    float mean = 0, rstd = 0, next_mean = 0, next_rstd = 0;

    __device__ __forceinline__ backward_rows(const tutti__norm_args &a, const backward_steps &way,
                                             void *shared, row_place place, int depth,
                                             int64_t first)
        : args(a), steps(way), ring(shared, place, a.dsum.data ? 3 : 2, depth), cols((int)a.cols),
          statistic(first)
    {
        const int64_t more = a.rows - first;
        coming = more > 0 ? (int)((more + way.rows - 1) / way.rows) : 0;
        next_x = place_of(a.x, first), next_dy = place_of(a.dy, first);
        next_dx = place_of(a.dx, first);
        if (SKEWED)
            ring.skews =
                skew_of(next_x) | skew_of(next_dy) << 8 | skew_of(place_of(a.dsum, first)) << 16;
    }
    __device__ __forceinline__ char *place_of(const tutti__matrix &matrix, int64_t row) const
    {
        const int col = SKEWED ? 0 : ring.place.template column<T>(0);
        return (char *)((T *)matrix.data + row * matrix.stride + col);
    }
    /* The same columns' gamma of all rows of a block: `first` one of them stores it. */
    __device__ __forceinline__ void store_gamma(float4 *shared, bool leads, bool even)
    {
        const int apart = ring.place.step;
        float4 *to = shared + ring.place.first % apart;
        words = (uint32_t)apart * 16;
        gamma = (uint32_t)__cvta_generic_to_shared(to);
        if (!leads) return;
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            const int col = ring.place.template column<T>(k);
            float values[N];
#pragma unroll
            for (int i = 0; i < N; i++) values[i] = 1;
            if (args.gamma && col < cols) {
                load_param(values, args.gamma, args.param_dtype, col, cols - col, even);
                if (args.zero_centered) {
#pragma unroll
                    for (int i = 0; i < N; i++) values[i] += 1;
                }
            }
#pragma unroll
            for (int q = 0; q < N / 4; q++)
                to[(k * (N / 4) + q) * apart] = make_float4(values[4 * q], values[4 * q + 1],
                                                            values[4 * q + 2], values[4 * q + 3]);
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
    /* FIRST: from words as they came; they are settled then. */
    template<bool FIRST>
    __device__ __forceinline__ vectors take(int k) const
    {
        vectors v;
        if constexpr (SKEWED && FIRST) {
            const uint4 x = ring.take(0, k, ring.skew(0)), dy = ring.take(1, k, ring.skew(1));
            ring.settle(0, k, x);
            ring.settle(1, k, dy);
            unpack(x, v.n);
            unpack(dy, v.dy);
        } else {
            unpack(ring.settled(0, k), v.n);
            unpack(ring.settled(1, k), v.dy);
        }
#pragma unroll
        for (int q = 0; q < N / 4; q++) {
            const uint4 raw = read16(gamma + (k * (N / 4) + q) * words);
            memcpy(&v.gamma[4 * q], &raw, sizeof raw);
        }
#pragma unroll
        for (int i = 0; i < N; i++) v.n[i] = (CENTERED ? v.n[i] - mean : v.n[i]) * rstd;
        return v;
    }
    static __device__ __forceinline__ void unpack(const uint4 &raw, float (&values)[N])
    {
        ::unpack<T>(raw, values);
    }

    /* The row in stage `from`: adds to dgamma and dbeta, and to sums of g * n, and of g. */
    __device__ __forceinline__ void add_up(float (&sums)[CENTERED ? 2 : 1])
    {
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            const vectors v = take<true>(k);
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

    /* Writes dx of the row in stage `from`, if there is one, from the sums of all its threads.  Of
     * skewed rows whole warps call it. */
    __device__ __forceinline__ void finish(bool exists, const float (&sums)[CENTERED ? 2 : 1],
                                           float inverse_cols)
    {
        const float by_n = -rstd * (sums[0] * inverse_cols);
        const float shift = CENTERED ? -rstd * (sums[CENTERED] * inverse_cols) : 0;
        const int count = exists ? cols : 0;
        if (TIGHT || args.dsum.data) /* two would need more registers */
            write<true>(count, by_n, shift);
        else
            write<false>(count, by_n, shift);
        next_dx += steps.dx;
    }

    /* Both; a group without a row takes part in the sums. */
    template<class Team>
    __device__ __forceinline__ void run(Team &team, bool exists, float inverse_cols)
    {
        float sums[CENTERED ? 2 : 1] = {};
        if (exists) add_up(sums);
        if (!args.dx.data) return;
        team.reduce(sums);
        if (SKEWED || exists) finish(exists, sums, inverse_cols);
    }

  private:
    template<bool DSUM>
    __device__ __forceinline__ void write(int count, float by_n, float shift)
    {
        uint4 out[SKEWED ? VECS : 1];
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            vectors v = take<false>(k);
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float rest = CENTERED ? fmaf(v.n[i], by_n, shift) : __fmul_rn(v.n[i], by_n);
                v.dy[i] = fmaf(__fmul_rn(v.dy[i], v.gamma[i]), rstd, rest);
            }
            if (DSUM && (!TIGHT || args.dsum.data)) {
                unpack(ring.take(2, k, ring.skew(2)), v.n);
#pragma unroll
                for (int i = 0; i < N; i++) v.dy[i] = __fadd_rn(v.dy[i], v.n[i]);
            }
            if constexpr (SKEWED)
                out[k] = pack<T>(v.dy);
            else if (ring.place.template column<T>(k) < count)
                store_pack((T *)(next_dx + k * ring.place.step * 16), v.dy);
        }
        if constexpr (SKEWED) store_row((T *)next_dx, out, ring.place, count);
    }
};

#endif
