/* C = A B, and the sums of A's columns in the same kernel; product.cuh has how. */
#include "kernels/cuda/sm90a/product_launch.cuh"

struct plain_args : product_args {
    void *c;
    int64_t c_stride;
    float *partial; /* or NULL */
    int depth;
};

/* What a thread has of a tile that has been multiplied, but not yet stored. */
template<class Type>
struct plain_epilogue {
    using T = Type;
    using args = plain_args;
    struct shared {
    };
    static constexpr bool b_transposed = false, sums_a = true, early = true;
    static constexpr int unrolled = 4;

    struct vector { /* the first part is all of it */
    };
    static constexpr bool apart(tutti_activation) { return false; }

    uint32_t c[vectors][4];
    int row, col; /* of the first vector */
    char *to;

    __device__ __forceinline__ explicit plain_epilogue(const args &g)
        : row(g.rows), col(0), to((char *)g.c) /* nothing is stored */
    {
#pragma unroll
        for (int i = 0; i < vectors * 4; i++) c[i / 4][i % 4] = 0;
    }

    template<class F>
    static __device__ __forceinline__ void branch(const args &, F &&f)
    {
        f(kind_of<TUTTI_ACT_NONE>{});
    }

    __device__ __forceinline__ void expect(const args &, shared &, int) {}

    __device__ __forceinline__ void begin(const args &g, shared &, int first_row, int tile_col)
    {
        row = first_row;
        col = tile_col + thread_col();
        to = (char *)((T *)g.c + g.c_stride * row + col);
    }

    __device__ __forceinline__ void take(float (&from)[sums])
    {
        take_pairs<T>(from, c);
    }

    __device__ __forceinline__ void finish_all(const args &g, shared &own, int group)
    {
#pragma unroll 1
        for (int i = 0; i < vectors; i += unrolled) {
            each(up_to<unrolled>{}, [&](auto v) { store<decltype(v)::value>(g); });
            pass(g, own, group, i);
        }
    }

    template<int v, int part>
    __device__ __forceinline__ void finish(const args &g, shared &, int, int, vector,
                                           std::integral_constant<int, part>,
                                           kind_of<TUTTI_ACT_NONE>)
    {
        if (part == 0) store<v>(g);
    }

    template<int v>
    __device__ __forceinline__ void store(const args &g)
    {
        transpose(c[v]);
        if (row + row_of(v) < g.rows && col + col_of(v) < g.cols)
            store_vector(to + g.c_stride * (row_of(v) * 2) + col_of(v) * 2, c[v]);
    }

    __device__ __forceinline__ void pass(const args &, shared &, int, int)
    {
        move_up<unrolled>(c);
        col += col_of(unrolled);
        to += col_of(unrolled) * 2;
    }
};

tutti_status tutti__cuda_product_plain_plan(int device, const tutti__gemm *g, bool *can,
                                            bool *better)
{
    *can = *better = false;
    if (g->bias || g->z || g->activation.kind != TUTTI_ACT_NONE) return TUTTI_OK;
    return with_epilogue<plain_epilogue>(g->c.dtype, TUTTI_OK, [&](auto type) {
        using Epilogue = typename decltype(type)::type;
        return product_plan<Epilogue>(device, g, product_kernel<Epilogue>, can, better);
    });
}

tutti_status tutti__cuda_product_plain(tutti_context *ctx, const tutti__gemm *g)
{
    const plain_args args = {args_of(g), g->c.data, g->c.stride, g->a_sums, (int)g->k};
    return with_epilogue<plain_epilogue>(g->c.dtype, TUTTI_ERR_INTERNAL, [&](auto type) {
        using Epilogue = typename decltype(type)::type;
        return product_launch<Epilogue>(ctx, g, product_kernel<Epilogue>, args);
    });
}
