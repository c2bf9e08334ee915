/* z = A B^T + bias and y = act(z) in one kernel; product.cuh has how. */
#include "kernels/cuda/sm90a/product_launch.cuh"

constexpr int warps = 4 * multipliers;
static_assert(tile_cols / 8 == 32, "each lane copies a vector of the bias");

struct forward_args : product_args {
    const void *bias; /* or NULL */
    void *y, *z;      /* z or NULL */
    int64_t y_stride;
    tutti_activation kind;
    activation_constants<float> constants;
};

/* A thread's z of a tile that has been multiplied, but not yet stored.  What is added to the next
 * one is copied to shared memory: no register is left to wait in. */
template<class Type>
struct forward_epilogue {
    using T = Type;
    using args = forward_args;
    struct shared {
        uint4 bias[warps][tile_cols / 8]; /* of the next tile's columns, for each warp */
    };
    static constexpr bool b_transposed = true, sums_a = false, early = false;
    static constexpr int unrolled = 4;

    struct vector {
        uint32_t y[parts];
    };

    /* The assembler puts all of a vector behind the first product of its step, which is faster than
     * a part behind each, but for the longest one. */
    static constexpr bool apart(tutti_activation act) { return act == TUTTI_ACT_GELU_ERF; }

    uint32_t z[vectors][parts];
    int row, col; /* of the first vector */
    char *to_z, *to_y;
    uint32_t bias[vectors / 2][4]; /* from begin to take */

    __device__ __forceinline__ explicit forward_epilogue(const args &g)
        : row(g.rows), col(0), to_z((char *)g.z), to_y((char *)g.y) /* nothing is stored */
    {
#pragma unroll
        for (int i = 0; i < vectors * 4; i++) z[i / 4][i % 4] = 0;
    }

    template<class F>
    static __device__ __forceinline__ void branch(const args &g, F &&f)
    {
        with_kind(g.kind, f);
    }

    __device__ __forceinline__ void expect(const args &g, shared &own, int tile)
    {
        int tile_row, tile_col;
        find_tile(g, tile, &tile_row, &tile_col);
        const int lane = threadIdx.x % 32, at = tile_col + lane * 8;
        const bool inside = g.bias && at < g.cols;
        __syncwarp(); /* the one before has been read */
        fetch16(&own.bias[warp()][lane], inside ? (const T *)g.bias + at : g.y, inside);
        fetches_end();
    }

    static __device__ __forceinline__ int warp()
    {
        return int(threadIdx.x / 32) - 4;
    }

    __device__ __forceinline__ void begin(const args &g, const shared &own, int first_row,
                                          int tile_col)
    {
        fetches_wait<0>();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < vectors / 2; i++)
            memcpy(bias[i], &own.bias[warp()][(thread_col() + col_of(2 * i)) / 8], sizeof bias[i]);
        row = first_row;
        col = tile_col + thread_col();
        to_z = (char *)((T *)g.z + (int64_t)g.cols * row + col);
        to_y = (char *)((T *)g.y + g.y_stride * row + col);
    }

    __device__ __forceinline__ void take(float (&sum)[sums])
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
    }

    __device__ __forceinline__ void finish_all(const args &g, shared &own, int group)
    {
#pragma unroll 1
        for (int i = 0; i < vectors; i += unrolled) {
            branch(g, [&](auto kind) INLINED {
                each(up_to<unrolled>{}, [&](auto number) INLINED {
                    constexpr int v = decltype(number)::value;
                    vector now;
                    each(up_to<parts>{},
                         [&](auto part) INLINED { finish<v>(g, own, group, i, now, part, kind); });
                });
            });
            pass(g, own, group, i);
        }
    }

    template<int v, int part, tutti_activation act>
    __device__ __forceinline__ void finish(const args &g, shared &, int, int, vector &now,
                                           std::integral_constant<int, part>, kind_of<act>) const
    {
        const bool inside = row + row_of(v) < g.rows && col + col_of(v) < g.cols;
        if (part == 0 && g.z && inside)
            store_vector(to_z + (int64_t)g.cols * (row_of(v) * 2) + col_of(v) * 2, z[v]);
        uint32_t word = z[v][part];
        stay(word);
        const float2 at = unpack_pair<T>(word);
        now.y[part] = pack_pair<T>(activate_shortly<T, act>(at.x, g.constants),
                                   activate_shortly<T, act>(at.y, g.constants));
        stay(now.y[part]);
        if (part == parts - 1 && inside)
            store_vector(to_y + g.y_stride * (row_of(v) * 2) + col_of(v) * 2, now.y);
    }

    __device__ __forceinline__ void pass(const args &, shared &, int, int)
    {
        move_up<unrolled>(z);
        col += col_of(unrolled);
        to_z += col_of(unrolled) * 2;
        to_y += col_of(unrolled) * 2;
    }
};

tutti_status tutti__cuda_product_plan(int device, const tutti__gemm *g, bool *can, bool *better)
{
    if (!g->b.transposed) return tutti__cuda_product_plain_plan(device, g, can, better);
    *can = *better = false;
    return with_epilogue<forward_epilogue>(g->c.dtype, TUTTI_OK, [&](auto type) {
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
    const forward_args args = {args_of(g),
                               g->bias,
                               g->c.data,
                               g->z,
                               g->c.stride,
                               g->activation.kind,
                               activation_constants<float>(g->activation)};
    return with_epilogue<forward_epilogue>(g->c.dtype, TUTTI_ERR_INTERNAL, [&](auto type) {
        using Epilogue = typename decltype(type)::type;
        return product_launch<Epilogue>(ctx, g, product_kernel<Epilogue>, args);
    });
}
