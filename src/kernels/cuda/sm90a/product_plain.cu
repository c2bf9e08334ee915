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

    uint32_t c[vectors][4];
    int row, col; /* of the first vector */
    char *to;
    int next_row, next_col;

    __device__ __forceinline__ explicit plain_epilogue(const args &g)
        : row(g.rows), col(0), to((char *)g.c) /* nothing is stored */
    {
#pragma unroll
        for (int i = 0; i < vectors * 4; i++) c[i / 4][i % 4] = 0;
    }

    __device__ __forceinline__ void expect(const args &, int tile_row, int tile_col, int group)
    {
        next_row = tile_row + thread_row(group);
        next_col = tile_col + thread_col();
    }

    __device__ __forceinline__ void take(const args &g, shared &, float (&from)[sums])
    {
        take_pairs<T>(from, c);
        row = next_row;
        col = next_col;
        to = (char *)((T *)g.c + g.c_stride * row + col);
    }

    __device__ __forceinline__ void finish_all(const args &g, shared &own, int group)
    {
        each(up_to<vectors>{}, [&](auto v) { finish<decltype(v)::value>(g, own, group); });
    }

    template<int v>
    __device__ __forceinline__ void finish(const args &g, shared &, int)
    {
        transpose(c[v]);
        if (row + row_of(v) < g.rows && col + col_of(v) < g.cols)
            store_vector(to + g.c_stride * (row_of(v) * 2) + col_of(v) * 2, c[v]);
    }
};

template<class F>
static tutti_status with_plain(const tutti__gemm *g, tutti_status otherwise, F &&f)
{
    if (g->c.dtype == TUTTI_F16) return f(tutti__type<plain_epilogue<__half>>{});
    if (g->c.dtype == TUTTI_BF16) return f(tutti__type<plain_epilogue<__nv_bfloat16>>{});
    return otherwise;
}

tutti_status tutti__cuda_product_plain_plan(int device, const tutti__gemm *g, bool *can,
                                            bool *better)
{
    *can = *better = false;
    if (g->bias || g->z || g->activation.kind != TUTTI_ACT_NONE) return TUTTI_OK;
    return with_plain(g, TUTTI_OK, [&](auto type) {
        using Epilogue = typename decltype(type)::type;
        return product_plan<Epilogue>(device, g, product_kernel<Epilogue>, can, better);
    });
}

tutti_status tutti__cuda_product_plain(tutti_context *ctx, const tutti__gemm *g)
{
    const plain_args args = {args_of(g), g->c.data, g->c.stride, g->a_sums, (int)g->k};
    return with_plain(g, TUTTI_ERR_INTERNAL, [&](auto type) {
        using Epilogue = typename decltype(type)::type;
        return product_launch<Epilogue>(ctx, g, product_kernel<Epilogue>, args);
    });
}
