/* z = A B^T + bias and y = act(z) in one kernel; product.cuh has how. */
#include "kernels/cuda/sm90a/product_launch.cuh"

struct forward_args : product_args {
    const void *bias; /* or NULL */
    void *y, *z;      /* z or NULL */
    int64_t y_stride;
    activation_constants<float> constants;
};

/* A thread's z of a tile that has been multiplied, but not yet stored; and of the next one where it
 * is and what is added to it. */
template<class Type, tutti_activation act>
struct forward_epilogue {
    using T = Type;
    using args = forward_args;
    struct shared {
    };
    static constexpr bool b_transposed = true, sums_a = false, early = false;

    uint32_t z[vectors][4];
    int row, col; /* of the first vector */
    char *to_z, *to_y;
    uint32_t bias[vectors / 2][4];
    int next_row, next_col;

    __device__ __forceinline__ explicit forward_epilogue(const args &g)
        : row(g.rows), col(0), to_z((char *)g.z), to_y((char *)g.y) /* nothing is stored */
    {
#pragma unroll
        for (int i = 0; i < vectors * 4; i++) z[i / 4][i % 4] = 0;
    }

    /* When half of z's registers are free. */
    __device__ __forceinline__ void expect(const args &g, int tile_row, int tile_col, int group)
    {
        next_row = tile_row + thread_row(group);
        next_col = tile_col + thread_col();
#pragma unroll
        for (int i = 0; i < vectors / 2; i++) {
            const int at = next_col + col_of(2 * i);
            uint4 word = make_uint4(0, 0, 0, 0);
            if (g.bias && at < g.cols) word = *(const uint4 *)((const T *)g.bias + at);
            memcpy(bias[i], &word, sizeof word);
        }
    }

    __device__ __forceinline__ void take(const args &g, shared &, float (&sum)[sums])
    {
#pragma unroll
        for (int v = 0; v < vectors; v += 2)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 add = unpack_pair<T>(bias[v / 2][i]);
                /* as products leave them, with B's rows as copied */
                float *from = &sum[(v / 8 * 16 + i * 4 + v / 2 % 4) * 4];
                /* after the wait */
                asm volatile("" : "+f"(from[0]), "+f"(from[1]), "+f"(from[2]), "+f"(from[3]));
                z[v][i] = pack_pair<T>(from[0] + add.x, from[1] + add.y);
                z[v + 1][i] = pack_pair<T>(from[2] + add.x, from[3] + add.y);
            }
        row = next_row;
        col = next_col;
        to_z = (char *)((T *)g.z + (int64_t)g.cols * row + col);
        to_y = (char *)((T *)g.y + g.y_stride * row + col);
    }

    __device__ __forceinline__ void finish_all(const args &g, shared &own, int group) const
    {
        each(up_to<vectors>{}, [&](auto v) { finish<decltype(v)::value>(g, own, group); });
    }

    template<int v>
    __device__ __forceinline__ void finish(const args &g, shared &, int) const
    {
        const bool inside = row + row_of(v) < g.rows && col + col_of(v) < g.cols;
        if (g.z && inside)
            store_vector(to_z + (int64_t)g.cols * (row_of(v) * 2) + col_of(v) * 2, z[v]);
        uint32_t y[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 at = unpack_pair<T>(z[v][i]);
            y[i] = pack_pair<T>(activate_shortly<T, act>(at.x, g.constants),
                                activate_shortly<T, act>(at.y, g.constants));
        }
        if (inside) store_vector(to_y + g.y_stride * (row_of(v) * 2) + col_of(v) * 2, y);
    }
};

template<class F>
static tutti_status with_forward(const tutti__gemm *g, tutti_status otherwise, F &&f)
{
    return with_epilogue<forward_epilogue, true>(g->c.dtype, g->activation.kind, otherwise, f);
}

tutti_status tutti__cuda_product_plan(int device, const tutti__gemm *g, bool *can, bool *better)
{
    if (!g->b.transposed) return tutti__cuda_product_plain_plan(device, g, can, better);
    *can = *better = false;
    return with_forward(g, TUTTI_OK, [&](auto type) {
        using Epilogue = typename decltype(type)::type;
        return product_plan<Epilogue>(device, g, product_kernel<Epilogue>, can, better);
    });
}

bool tutti__cuda_product_takes(const tutti__gemm *g)
{
    return factors_lie_well(g) && tutti__cuda_aligned(g->bias) && tutti__cuda_aligned(g->z);
}

tutti_status tutti__cuda_product(tutti_context *ctx, const tutti__gemm *g)
{
    if (!g->b.transposed) return tutti__cuda_product_plain(ctx, g);
    const forward_args args = {args_of(g), g->bias,     g->c.data,
                               g->z,       g->c.stride, activation_constants<float>(g->activation)};
    return with_forward(g, TUTTI_ERR_INTERNAL, [&](auto type) {
        using Epilogue = typename decltype(type)::type;
        return product_launch<Epilogue>(ctx, g, product_kernel<Epilogue>, args);
    });
}
