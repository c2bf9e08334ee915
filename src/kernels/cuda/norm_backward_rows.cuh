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

/* A row's threads (Team) and what they keep from row to row. */
template<class T, int ELEMENTS, bool CENTERED, bool SKEWED, bool TIGHT = SKEWED>
struct backward_rows {
    static constexpr int N = vector16<T>::N, VECS = ELEMENTS / N;
    const tutti__norm_args &args;
    row_ring<T, VECS, SKEWED> ring;
    uint32_t gamma, words; /* this thread's, N / 4 words a vector; bytes between two */
    int cols;
    float dgamma[VECS][N] = {}, dbeta[CENTERED ? VECS : 1][N] = {};
    float mean = 0, rstd = 0, next_mean = 0, next_rstd = 0;

    __device__ __forceinline__ backward_rows(const tutti__norm_args &a, void *shared,
                                             row_place place, int depth)
        : args(a), ring(shared, place, a.dsum.data ? 3 : 2, depth), cols((int)a.cols)
    {
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

    template<class U>
    static __device__ __forceinline__ const T *row_of(const U &matrix, int64_t row)
    {
        return (const T *)matrix.data + row * matrix.stride;
    }

    __device__ __forceinline__ void request(int64_t row)
    {
        if (row < args.rows) {
            ring.request(0, row_of(args.x, row), cols);
            ring.request(1, row_of(args.dy, row), cols);
            if (args.dsum.data) ring.request(2, row_of(args.dsum, row), cols);
        }
        ring.send();
    }
    /* Those of the row that was asked for before; asks for the next row's. */
    __device__ __forceinline__ void load_statistics(int64_t next)
    {
        rstd = next_rstd, mean = next_mean;
        /* which ptxas does not know: it would move a number that all lanes load to a uniform
         * register, and wait for it */
        const unsigned zero = __shfl_sync(0xffffffffu, 0u, 0);
        if (next >= args.rows) return;
        next_rstd = ((const float *)args.rstd + next)[zero];
        if (CENTERED) next_mean = ((const float *)args.mean + next)[zero];
    }

    struct vectors {
        float n[N], dy[N], gamma[N]; /* n: the normalised x */
    };
    __device__ __forceinline__ vectors take(int k, unsigned x_skew, unsigned dy_skew) const
    {
        vectors v;
        unpack(ring.take(0, k, x_skew), v.n);
        unpack(ring.take(1, k, dy_skew), v.dy);
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
    __device__ __forceinline__ void add_up(int64_t row, float (&sums)[CENTERED ? 2 : 1])
    {
        const unsigned x_skew = skew_in(args.x, row), dy_skew = skew_in(args.dy, row);
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            const vectors v = take(k, x_skew, dy_skew);
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

    /* Writes dx of the row in stage `from`, of whose columns `count` are written, from the sums of
     * all its threads.  Of skewed rows whole warps call it. */
    __device__ __forceinline__ void
    finish(int64_t row, int count, const float (&sums)[CENTERED ? 2 : 1], float inverse_cols)
    {
        const float mean_gn = sums[0] * inverse_cols;
        const float mean_g = CENTERED ? sums[CENTERED] * inverse_cols : 0;
        if (TIGHT || args.dsum.data) /* two would need more registers */
            write<true>(row, count, mean_gn, mean_g);
        else
            write<false>(row, count, mean_gn, mean_g);
    }

    /* Both; with `there` false there is no row, but its threads take part in the sums. */
    template<class Team>
    __device__ __forceinline__ void run(Team &team, int64_t row, bool there, float inverse_cols)
    {
        float sums[CENTERED ? 2 : 1] = {};
        if (there) add_up(row, sums);
        if (!args.dx.data) return;
        team.template reduce<row_add>(sums);
        if (!SKEWED && !there) return;
        finish(there ? row : 0, there ? cols : 0, sums, inverse_cols);
    }

  private:
    static __device__ __forceinline__ unsigned skew_in(const tutti__matrix &matrix, int64_t row)
    {
        return SKEWED ? skew_of(row_of(matrix, row)) : 0;
    }

    template<bool DSUM>
    __device__ __forceinline__ void write(int64_t row, int count, float mean_gn, float mean_g)
    {
        T *dx = (T *)args.dx.data + row * args.dx.stride;
        const unsigned x_skew = skew_in(args.x, row), dy_skew = skew_in(args.dy, row);
        const unsigned sum_skew = args.dsum.data ? skew_in(args.dsum, row) : 0;
        uint4 out[SKEWED ? VECS : 1];
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            vectors v = take(k, x_skew, dy_skew);
#pragma unroll
            for (int i = 0; i < N; i++)
                v.dy[i] = rstd * fmaf(-v.n[i], mean_gn, __fmul_rn(v.dy[i], v.gamma[i]) - mean_g);
            if (DSUM && (!TIGHT || args.dsum.data)) {
                unpack(ring.take(2, k, sum_skew), v.n);
#pragma unroll
                for (int i = 0; i < N; i++) v.dy[i] = __fadd_rn(v.dy[i], v.n[i]);
            }
            if constexpr (SKEWED)
                out[k] = pack<T>(v.dy);
            else if (ring.place.template column<T>(k) < count)
                store_pack(dx + ring.place.template column<T>(k), v.dy);
        }
        if constexpr (SKEWED) store_row(dx, out, ring.place, count);
    }
};

#endif
