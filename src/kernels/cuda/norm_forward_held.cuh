/* LayerNorm and RMSNorm, forward: rows in registers.  A thread has the same vectors as in a parked
 * row (parked.cuh) of as many threads and vectors, and adds them in the same order. */
#ifndef TUTTI_KERNELS_CUDA_NORM_FORWARD_HELD_CUH
#define TUTTI_KERNELS_CUDA_NORM_FORWARD_HELD_CUH

#include "kernels/cuda/norm_forward_parked.cuh"

/* Some lanes of a warp for a row. */
struct held_lanes {
    int lanes;
    template<int VALUES>
    __device__ __forceinline__ void reduce(float (&values)[VALUES])
    {
        if (lanes == 32)
            reduce_lanes<row_add>(values, 32); /* without branches */
        else
            reduce_lanes<row_add>(values, lanes);
    }
    __device__ __forceinline__ bool any(bool so) const { return __any_sync(0xffffffffu, so); }
};

/* What a kernel may know of the rows of all tensors. */
enum held_fit {
    HELD_ANY,
    HELD_WHOLE, /* whole aligned vectors */
    HELD_FULL   /* and as many as the threads hold */
};

/* A row, divided over a team. */
template<class T, int VECS, bool CENTERED, held_fit FIT, bool RESIDUAL>
struct held_row {
    static constexpr int N = vector16<T>::N, VALUES = CENTERED ? 2 : 1;
    static constexpr bool WHOLE = FIT != HELD_ANY, FULL = FIT == HELD_FULL;
    const tutti__norm_args &args;
    const norm_forward_even &even;
    int64_t row;
    int cols; /* 0 without a row */
    row_place place;
    uint4 raw[VECS];

    __device__ __forceinline__ held_row(const tutti__norm_args &call, const norm_forward_even &more,
                                        int64_t which, row_place where)
        : args(call), even(more), place(where)
    {
        const bool exists = which < call.rows;
        row = exists ? which : 0;
        cols = exists ? (int)call.cols : 0;
    }
    __device__ __forceinline__ T *row_of(const tutti__matrix &matrix) const
    {
        return (T *)matrix.data + row * matrix.stride;
    }
    __device__ __forceinline__ bool exists() const { return cols > 0; }
    __device__ __forceinline__ void load(uint4 (&to)[VECS], const tutti__matrix &matrix) const
    {
        const T *from = row_of(matrix);
        if constexpr (!WHOLE)
            load_row<T>(to, from, place, cols);
        else {
#pragma unroll
            for (int k = 0; k < VECS; k++) {
                const int col = place.column<T>(k);
                if (!FULL) to[k] = make_uint4(0, 0, 0, 0);
                if (FULL || col < cols) to[k] = *(const uint4 *)(from + col);
            }
        }
    }
    __device__ __forceinline__ void store(const tutti__matrix &matrix) const
    {
        store_row(row_of(matrix), raw, place, cols);
    }
    __device__ __forceinline__ void fetch()
    {
        load(raw, args.x);
        if constexpr (RESIDUAL) {
            uint4 other[VECS];
            load(other, args.residual);
#pragma unroll
            for (int k = 0; k < VECS; k++) raw[k] = sum_of_both<T>(raw[k], other[k]);
            if (args.sum.data) store(args.sum);
        }
        if (!FULL) forget(place, cols);
    }
    /* Columns from vector k to the row's end. */
    __device__ __forceinline__ int left(int k) const
    {
        return FULL ? N : cols - place.column<T>(k);
    }

    __device__ __forceinline__ float squares(float about, float *moved)
    {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            hold_packed<T>(raw[k]);
            sum += squares_of<T, WHOLE>(raw[k], left(k), about, moved);
        }
        return sum;
    }
    /* reduce(values): the first reduction */
    template<class Team, class Reduce>
    __device__ __forceinline__ row_statistics statistics(Team &team, float pivot, Reduce &&reduce)
    {
        float both[VALUES], moved = 0;
        both[0] = squares(pivot, CENTERED ? &moved : nullptr);
        if constexpr (CENTERED) both[1] = moved;
        reduce(both);
        return statistics_from<CENTERED>(team, both, pivot, even,
                                         [&](float about, float *m) { return squares(about, m); });
    }

    template<class Scale>
    __device__ __forceinline__ void scale(Scale, const row_statistics &found)
    {
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            const int col = place.column<T>(k);
            float gamma[N], beta[N];
            Scale::load(args, even, col, left(k), gamma, beta);
            hold_packed<T>(raw[k]);
            raw[k] = scaled<T, CENTERED, Scale::EXACT>(raw[k], found, gamma, beta);
            if (WHOLE && left(k) > 0 && exists()) *(uint4 *)(row_of(args.y) + col) = raw[k];
        }
    }
    __device__ __forceinline__ void write(const row_statistics &found)
    {
        if (!FULL) forget(place, cols);
        with_scale<T, CENTERED, WHOLE>(args, even, found, [&](auto type) { scale(type, found); });
        if (!WHOLE) store(args.y);
    }
};

#endif
