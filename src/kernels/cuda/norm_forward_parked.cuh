/* LayerNorm and RMSNorm, forward: rows parked in shared memory (parked.cuh).
 *
 * LayerNorm takes both sums about a pivot that all threads of the row find by themselves, the mean
 * of its first columns, so that they are reduced together. */
#ifndef TUTTI_KERNELS_CUDA_NORM_FORWARD_PARKED_CUH
#define TUTTI_KERNELS_CUDA_NORM_FORWARD_PARKED_CUH

#include "kernels/cuda/norm_forward_rows.cuh"
#include "kernels/cuda/parked.cuh"

struct norm_sums {
    template<int VALUES>
    static __device__ __forceinline__ void identity(float (&values)[VALUES])
    {
#pragma unroll
        for (int n = 0; n < VALUES; n++) values[n] = 0;
    }
    template<int VALUES>
    static __device__ __forceinline__ void lanes(float (&values)[VALUES], int count)
    {
        reduce_lanes<row_add>(values, count);
    }
};

/* Of a block or a cluster: the team of correct_delicate. */
template<int VALUES, bool CLUSTER>
struct norm_team {
    parked_team<norm_sums, VALUES, CLUSTER> blocks;
    __device__ __forceinline__ void reduce(float (&values)[VALUES])
    {
        blocks.reduce_again(norm_sums{}, values);
    }
    __device__ __forceinline__ bool any(bool so) const { return so; } /* so in all threads */
};

/* The same in all warps of a row. */
template<class T>
__device__ __forceinline__ float pivot_of(const T *x, const T *residual, int cols)
{
    constexpr int N = vector16<T>::N;
    const int col = min((int)threadIdx.x % (sizeof(T) == 4 ? 32 : N), cols - 1);
    float first[1] = {widen<float>(x[col])};
    if (residual) first[0] += widen<float>(residual[col]);
    const bool near = sizeof(T) == 4 && !is_one_sign(first[0] >= 0, first[0] <= 0, 32);
    reduce_lanes<row_add>(first, N);
    if (sizeof(T) == 4) first[0] = __shfl_sync(0xffffffffu, first[0], 0);
    return near ? 0 : widen<float>(narrow<T>::of(first[0] * (1.0f / N)));
}

/* A row, or a block's part of it.
 *
 * With EDGES the row's whole vectors are summed, and the words that lie inside of it written (all
 * but the last, behind which gamma may end); what is left are up to N - 1 columns at its beginning
 * and up to 2N - 1 at its end.  Those have a lane each, of the warps with the row's first and last
 * vector, which reads it from memory itself. */
template<class T, bool CENTERED, bool EDGES, bool RESIDUAL, bool CLUSTER>
struct parked_norm {
    static constexpr int N = vector16<T>::N, VALUES = CENTERED ? 2 : 1;
    static constexpr bool PAIRS = CLUSTER && !RESIDUAL; /* of words that are written */
    using parked = parked_row<T, EDGES>;
    const tutti__norm_args &args;
    const norm_forward_even &even;
    const parked park, other; /* x, then, without EDGES, the sum with the residual; the residual */
    int64_t row;
    int cols, whole, held; /* the row's columns; those of whole vectors; this thread's vectors */
    float pivot;
    /* EDGES */
    unsigned skew, skew_other; /* of the words in shared memory */
    bool alike;                /* all rows begin at the same bytes of 16 */
    int lane_col;              /* at the row's beginning or end, or -1 */
    T lane_x, lane_residual;

    __device__ __forceinline__ parked_norm(const tutti__norm_args &call,
                                           const norm_forward_even &more, uint4 *shared, int rank,
                                           int vecs, int64_t which)
        : args(call), even(more), park(shared, 0, rank, vecs), other(shared, 1, rank, vecs),
          row(which), cols((int)call.cols), whole(EDGES ? cols / N * N : cols),
          held(park.held(whole)), pivot(0), skew(0), skew_other(0), alike(true), lane_col(-1)
    {
    }
    __device__ __forceinline__ T *row_of(const tutti__matrix &matrix) const
    {
        return (T *)matrix.data + row * matrix.stride;
    }

    __device__ __forceinline__ void fetch()
    {
        const T *x = row_of(args.x), *residual = RESIDUAL ? row_of(args.residual) : nullptr;
        if constexpr (EDGES) {
            alike = !are_apart(x, row_of(args.y));
            if (RESIDUAL)
                alike = alike && !are_apart(x, residual) &&
                        !(args.sum.data && are_apart(x, row_of(args.sum)));
            skew = alike ? parked::line_skew(x) : skew_of(x);
            if (RESIDUAL) skew_other = alike ? parked::line_skew(residual) : skew_of(residual);
        }
        park.fetch(x, whole, skew);
        if (RESIDUAL) other.fetch(residual, whole, skew_other);
        if constexpr (EDGES) fetch_edges(x, residual);
        if constexpr (CENTERED) pivot = pivot_of<T>(x, residual, cols);
        await_fetches();
    }
    __device__ __forceinline__ void fetch_edges(const T *x, const T *residual)
    {
        const int lane = threadIdx.x % 32, begin = park.first - lane;
        const bool ends = (unsigned)(whole / N - 1 - begin) < (unsigned)(park.vecs * 32);
        if (lane < 16 ? begin == 0 : ends) lane_col = lane < 16 ? lane : cols - 32 + lane;
        if (lane_col < 0) return;
        lane_x = x[lane_col];
        if (RESIDUAL) lane_residual = residual[lane_col];
    }

    __device__ __forceinline__ float lane_value() const
    {
        const float x = widen<float>(lane_x);
        return RESIDUAL ? widen<float>(narrow<T>::of(x + widen<float>(lane_residual))) : x;
    }
    /* EDGES: 16 bytes of the row from `ahead` bytes behind vector k on. */
    template<int QUARTER>
    __device__ __forceinline__ uint4 take(int k, unsigned ahead) const
    {
        uint4 raw = park.template take<QUARTER>(k, skew + ahead);
        if constexpr (RESIDUAL)
            raw = sum_of_both<T>(raw, other.template take<QUARTER>(k, skew_other + ahead));
        return raw;
    }
    /* A thread's part of the sums.  FIRST: x becomes its sum with the residual; otherwise rare. */
    template<bool FIRST>
    __device__ __forceinline__ float squares(float about, float *moved) const
    {
        float sum = 0;
        if constexpr (EDGES) {
            if (lane_col >= whole) {
                const float centred = lane_value() - about;
                sum = __fmul_rn(centred, centred);
                if (moved) *moved += centred;
            }
            auto add = [&](auto quarter, auto pair, int k) {
                constexpr int COUNT = decltype(pair)::value ? 2 : 1;
                uint4 raw[COUNT];
#pragma unroll
                for (int i = 0; i < COUNT; i++) raw[i] = take<decltype(quarter)::value>(k + i, 0);
#pragma unroll
                for (int i = 0; i < COUNT; i++) sum += squares_of<T, true>(raw[i], 1, about, moved);
            };
            park.for_vectors(whole, skew, FIRST && alike, add);
        } else if constexpr (FIRST) {
#pragma unroll 2
            for (int k = 0; k < held; k++) {
                uint4 raw = park.slots[k * 32];
                if (RESIDUAL) {
                    raw = sum_of_both<T>(raw, other.slots[k * 32]);
                    park.slots[k * 32] = raw;
                }
                sum += squares_of<T, true>(raw, 1, about, moved);
            }
        } else {
#pragma unroll 1
            for (int k = 0; k < held; k++)
                sum += squares_of<T, true>(park.slots[k * 32], 1, about, moved);
        }
        return sum;
    }
    __device__ __forceinline__ row_statistics statistics(norm_team<VALUES, CLUSTER> &team) const
    {
        float both[VALUES], moved = 0;
        both[0] = squares<true>(pivot, CENTERED ? &moved : nullptr);
        if constexpr (CENTERED) both[1] = moved;
        team.blocks.reduce(norm_sums{}, both);
        return statistics_from<CENTERED>(team, both, pivot, even, [&](float about, float *m) {
            return squares<false>(about, m);
        });
    }

    template<class Scale>
    __device__ __forceinline__ void scale(Scale, const row_statistics &found) const
    {
        float gamma[N], beta[N];
        if constexpr (EDGES) {
            T *y = row_of(args.y);
            /* the words in shared memory go as far */
            const bool of_line = PAIRS && parked::line_skew(y) == skew;
            const unsigned ahead = parked::ahead_of(y, of_line);
            float lane_gamma[1], lane_beta[1];
            Scale::load_one(args, lane_col, lane_gamma, lane_beta);
            write_lane(y, scaled<T, CENTERED, Scale::EXACT>(lane_value(), found, lane_gamma[0],
                                                            lane_beta[0]));
            park.template write_inside<Scale::SHIFTED, PAIRS>(
                y, whole, ahead, alike, [&](auto quarter, int k, int vector) {
                    constexpr int QUARTER = decltype(quarter)::value;
                    Scale::template load_ahead<T, QUARTER>(args, even, vector * N, ahead % 16,
                                                           gamma, beta);
                    return scaled<T, CENTERED, Scale::EXACT>(
                        take<parked::even_or(QUARTER)>(k, ahead), found, gamma, beta);
                });
        } else {
#pragma unroll 2
            for (int k = 0; k < held; k++) {
                const int left = park.left(k, cols), col = cols - left;
                Scale::load(args, even, col, left, gamma, beta);
                const uint4 raw = park.slots[k * 32];
                if (RESIDUAL && args.sum.data) *(uint4 *)(row_of(args.sum) + col) = raw;
                *(uint4 *)(row_of(args.y) + col) =
                    scaled<T, CENTERED, Scale::EXACT>(raw, found, gamma, beta);
            }
        }
    }
    /* EDGES: the columns of a row that write_inside does not write. */
    __device__ __forceinline__ void write_lane(T *to, float value) const
    {
        const int head = (int)(parked::ahead_of(to, false) / sizeof(T));
        if (lane_col >= 0 && (lane_col < head || lane_col >= head + whole - N))
            to[lane_col] = narrow<T>::of(value);
    }
    /* After the statistics, whose barriers say that all slots of the block are complete. */
    __device__ __forceinline__ void write(const row_statistics &found) const
    {
        if constexpr (EDGES && RESIDUAL)
            if (args.sum.data) {
                T *sum = row_of(args.sum);
                const unsigned ahead = parked::ahead_of(sum, false);
                park.template write_inside<false, false>(
                    sum, whole, ahead, false,
                    [&](auto, int k, int) { return take<parked::ANY>(k, ahead); });
                write_lane(sum, lane_value());
            }
        with_scale<T, CENTERED, !EDGES>(args, even, found, [&](auto type) { scale(type, found); });
    }
};

#endif
