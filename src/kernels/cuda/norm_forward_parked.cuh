/* LayerNorm and RMSNorm, forward: rows parked in shared memory (parked.cuh).
 *
 * LayerNorm takes both sums about a pivot that all threads of the row find by themselves, the mean
 * of its first columns, so that they are reduced together.  The pivot is a value of T: it stands in
 * the place of columns beyond the row, which then add nothing. */
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

/* A row, or a block's part of it. */
template<class T, bool CENTERED, bool EDGES, bool RESIDUAL, bool CLUSTER>
struct parked_norm {
    static constexpr int N = vector16<T>::N, VALUES = CENTERED ? 2 : 1;
    const tutti__norm_args &args;
    const norm_forward_even &even;
    const parked_row<T, EDGES> park, other; /* x, then the sum with the residual; the residual */
    int64_t row;
    int cols, held;
    float pivot;

    __device__ __forceinline__ parked_norm(const tutti__norm_args &call,
                                           const norm_forward_even &more, uint4 *shared, int rank,
                                           int vecs, int64_t which)
        : args(call), even(more), park(shared, 0, rank, vecs), other(shared, 1, rank, vecs),
          row(which), cols((int)call.cols), held(park.held((int)call.cols)), pivot(0)
    {
    }
    __device__ __forceinline__ T *row_of(const tutti__matrix &matrix) const
    {
        return (T *)matrix.data + row * matrix.stride;
    }

    __device__ __forceinline__ void fetch()
    {
        park.fetch(row_of(args.x), cols);
        if (RESIDUAL) other.fetch(row_of(args.residual), cols);
        if (CENTERED)
            pivot = pivot_of<T>(row_of(args.x), RESIDUAL ? row_of(args.residual) : nullptr, cols);
        await_fetches();
    }

    /* A thread's first sums, on the only pass that sees the words as they were fetched; x becomes
     * the sum with the residual. */
    __device__ __forceinline__ float first_squares(float *moved) const
    {
        float sum = 0;
        auto add = [&](int k, uint4 &raw) {
            if (RESIDUAL) raw = sum_of_both<T>(raw, other.slots[k * 32]);
            sum += squares_of<T, true>(raw, 1, pivot, moved);
        };
        if (EDGES) {
            if (RESIDUAL) other.settle(row_of(args.residual), cols, T(0.0f));
            park.settle_each(row_of(args.x), cols, narrow<T>::of(pivot), add);
        } else
#pragma unroll 2
            for (int k = 0; k < held; k++) {
                uint4 raw = park.slots[k * 32];
                add(k, raw);
                if (RESIDUAL) park.slots[k * 32] = raw;
            }
        return sum;
    }
    __device__ __forceinline__ float squares(float about, float *moved) const
    {
        float sum = 0;
#pragma unroll 1
        for (int k = 0; k < held; k++)
            sum += squares_of<T, !EDGES>(park.slots[k * 32], park.left(k, cols), about, moved);
        return sum;
    }
    __device__ __forceinline__ row_statistics statistics(norm_team<VALUES, CLUSTER> &team) const
    {
        float both[VALUES], moved = 0;
        both[0] = first_squares(CENTERED ? &moved : nullptr);
        if constexpr (CENTERED) both[1] = moved;
        team.blocks.reduce(norm_sums{}, both);
        return statistics_from<CENTERED>(team, both, pivot, even,
                                         [&](float about, float *m) { return squares(about, m); });
    }

    /* With EDGES the results go to the slots, otherwise to memory, the sum too. */
    template<class Scale>
    __device__ __forceinline__ void scale_vector(int k, const row_statistics &found) const
    {
        float gamma[N], beta[N];
        const int left = park.left(k, cols), col = cols - left;
        Scale::load(args, even, col, left, gamma, beta);
        const uint4 raw = park.slots[k * 32],
                    result = scaled<T, CENTERED, Scale::EXACT>(raw, found, gamma, beta);
        if (EDGES) {
            park.slots[k * 32] = result;
            return;
        }
        if (RESIDUAL && args.sum.data) *(uint4 *)(row_of(args.sum) + col) = raw;
        *(uint4 *)(row_of(args.y) + col) = result;
    }
    template<class Scale>
    __device__ __forceinline__ void scale(Scale, const row_statistics &found) const
    {
        const int whole = EDGES && held > 0 && park.left(held - 1, cols) < N ? held - 1 : held;
#pragma unroll 2
        for (int k = 0; k < whole; k++) scale_vector<typename Scale::whole>(k, found);
        if (EDGES && whole < held) scale_vector<Scale>(whole, found);
    }
    /* After the statistics, whose barriers say that all slots of the block are complete. */
    __device__ __forceinline__ void write(const row_statistics &found) const
    {
        if (EDGES && RESIDUAL && args.sum.data) {
            park.write_slots(row_of(args.sum), cols);
            __syncthreads();
        }
        with_scale<T, CENTERED, !EDGES>(args, even, found, [&](auto type) { scale(type, found); });
        if (EDGES) {
            __syncthreads();
            park.write_slots(row_of(args.y), cols);
        }
    }
};

#endif
