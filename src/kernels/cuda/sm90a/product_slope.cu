/* dz = (A B) act'(v) and its column sums in one kernel, the product rounded before it is
 * multiplied; product.cuh has how.
 *
 * v is copied to shared memory three steps before it is needed, to places that are a thread's own:
 * a read from memory takes longer than a step, and no register is left to wait in.  Four
 * neighbouring threads, each of which holds two of every eight columns, exchange what they have, so
 * that each has eight neighbours.  A warp's 16 rows of a column are summed in registers, its four
 * warps' sums by way of shared memory: a row of partial sums for each 64 rows. */
#include "kernels/cuda/sm90a/product_launch.cuh"

constexpr int warps = 4;  /* of a multiplier */
constexpr int places = 4; /* a thread's vectors of v: one is read, the others are on their way */
static_assert(TUTTI__CUDA_PRODUCT_RUN == tile_rows / multipliers, "rows of a partial sum");

struct slope_args : product_args {
    const void *v;
    void *dz;
    int64_t v_stride, dz_stride;
    float *partial; /* or NULL */
    tutti_activation kind;
    activation_constants<float> constants;
};

/* Sums eight numbers each over the eight threads of a column of the warp's: in the end thread
 * 16 i + 8 j + 4 k + … has that of number 4 i + 2 j + k. */
static __device__ __forceinline__ float sum_eighths(float (&of)[8])
{
    const int lane = threadIdx.x;
#pragma unroll
    for (int left = 4; left > 0; left /= 2) {
        const bool upper = lane & 4 * left;
#pragma unroll
        for (int i = 0; i < left; i++) {
            const float given = upper ? of[i] : of[i + left];
            of[i] = (upper ? of[i + left] : of[i]) + __shfl_xor_sync(~0u, given, 4 * left);
        }
    }
    return of[0];
}

/* What a thread has of a tile's product, of which dz is not formed yet. */
template<class Type>
struct slope_epilogue {
    using T = Type;
    using args = slope_args;
    /* of two tiles in turn: one is read while the next one's are written */
    struct shared {
        float sum[2][multipliers][warps][tile_cols];
        uint4 v[places][multipliers * 128];
    };
    static constexpr bool b_transposed = false, sums_a = false, early = true;
    static constexpr int unrolled = 4;
    static_assert(unrolled % places == 0, "a vector's place is known in the code");

    struct vector {
        uint32_t v[parts], dz[parts]; /* dh before it is dz */
    };
    static constexpr bool apart(tutti_activation) { return false; }

    uint32_t dh[vectors][parts];
    float sum[8];             /* of two rows */
    int row, col, tile, turn; /* of the first vector; the tile's first column */
    const char *from_v;
    char *to_dz;

    __device__ __forceinline__ explicit slope_epilogue(const args &g)
        : row(g.rows + thread_row(0)), col(thread_col()), tile(0), turn(0),
          from_v((const char *)g.v), to_dz((char *)g.dz) /* nothing is read or stored */
    {
#pragma unroll
        for (int i = 0; i < vectors * 4; i++) dh[i / 4][i % 4] = 0;
    }

    template<class F>
    static __device__ __forceinline__ void branch(const args &g, F &&f)
    {
        with_kind(g.kind, f);
    }

    __device__ __forceinline__ void expect(const args &, shared &, int) {}

    template<int v>
    __device__ __forceinline__ bool inside(const args &g) const
    {
        return row + row_of(v) < g.rows && col + col_of(v) < g.cols;
    }

    static __device__ __forceinline__ uint4 *place_of(shared &own, int v)
    {
        return &own.v[v % places][threadIdx.x - 128];
    }

    /* Zeros where there is nothing to read, and nothing beyond the last vector. */
    template<int v>
    __device__ __forceinline__ void load(const args &g, shared &own, int passed) const
    {
        const bool is = inside<v>(g);
        if (passed + v < vectors)
            fetch16(place_of(own, v),
                    is ? from_v + g.v_stride * (row_of(v) * 2) + col_of(v) * 2 : g.v, is);
        fetches_end();
    }

    __device__ __forceinline__ void begin(const args &g, shared &own, int first_row, int tile_col)
    {
        row = first_row;
        tile = tile_col;
        col = tile + thread_col();
        turn ^= 1;
        from_v = (const char *)((const T *)g.v + g.v_stride * row + col);
        to_dz = (char *)((T *)g.dz + g.dz_stride * row + col);
        each(up_to<places - 1>{}, [&](auto v) { load<decltype(v)::value>(g, own, 0); });
    }

    __device__ __forceinline__ void take(float (&from)[sums])
    {
        take_pairs<T>(from, dh);
    }

    template<int v, int part, tutti_activation act>
    __device__ __forceinline__ void finish(const args &g, shared &own, int group, int passed,
                                           vector &now, std::integral_constant<int, part> number,
                                           kind_of<act> kind)
    {
        if constexpr (part == 0) {
            load<v + places - 1>(g, own, passed);
            fetches_wait<places - 1>();
            const uint4 at = *place_of(own, v);
            start<v>({at.x, at.y, at.z, at.w}, now);
        }
        form<v>(g, own, group, now, number, kind);
    }

    /* Without steps that would hide it, all of v is read at once. */
    __device__ __forceinline__ void finish_all(const args &g, shared &own, int group)
    {
        uint32_t at[vectors][4] = {};
        each(up_to<vectors>{}, [&](auto number) {
            constexpr int v = decltype(number)::value;
            uint32_t(&to)[4] = at[v];
            if (inside<v>(g))
                asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                             : "l"(from_v + g.v_stride * (row_of(v) * 2) + col_of(v) * 2));
        });
#pragma unroll 1
        for (int i = 0; i < vectors; i += unrolled) {
            each(up_to<unrolled>{}, [&](auto number) INLINED {
                constexpr int v = decltype(number)::value;
                vector now;
                start<v>(at[v], now);
                branch(g, [&](auto kind) INLINED {
                    each(up_to<parts>{},
                         [&](auto part) INLINED { form<v>(g, own, group, now, part, kind); });
                });
            });
            move_up<unrolled>(at);
            pass(g, own, group, i);
        }
    }

    __device__ __forceinline__ void pass(const args &g, shared &own, int group, int passed)
    {
        move_up<unrolled>(dh);
        col += col_of(unrolled);
        from_v += col_of(unrolled) * 2;
        to_dz += col_of(unrolled) * 2;
        if (g.partial && passed + unrolled == vectors) write_partial(g, own, group);
    }

    template<int v>
    __device__ __forceinline__ void start(const uint32_t (&at)[parts], vector &now) const
    {
#pragma unroll
        for (int i = 0; i < parts; i++) {
            now.v[i] = at[i];
            now.dz[i] = dh[v][i];
        }
        transpose(now.dz);
    }

    template<int v, int part, tutti_activation act>
    __device__ __forceinline__ void form(const args &g, shared &own, int group, vector &now,
                                         std::integral_constant<int, part>, kind_of<act>)
    {
        uint32_t &word = now.dz[part];
        stay(now.v[part]);
        const float2 at = unpack_pair<T>(now.v[part]);
        /* rows beyond the last one have products of 0, except where B is not finite */
        if (row + row_of(v) >= g.rows) word = 0;
        const float2 d = unpack_pair<T>(word);
        const float a = __fmul_rn(d.x, slope_shortly<T, act>(at.x, g.constants));
        const float b = __fmul_rn(d.y, slope_shortly<T, act>(at.y, g.constants));
        word = pack_pair<T>(a, b);
        stay(word);
        sum[2 * part] = v % 2 == 0 ? a : sum[2 * part] + a;
        sum[2 * part + 1] = v % 2 == 0 ? b : sum[2 * part + 1] + b;
        if (part < parts - 1) return;
        if (inside<v>(g))
            store_vector(to_dz + g.dz_stride * (row_of(v) * 2) + col_of(v) * 2, now.dz);
        if (v % 2 == 1 && g.partial) {
            const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % warps;
            const int number = lane / 16 * 4 + lane / 8 % 2 * 2 + lane / 4 % 2;
            own.sum[turn][group][warp][col - tile + col_of(v) + number] = sum_eighths(sum);
        }
    }

    __device__ __forceinline__ void write_partial(const args &g, const shared &own, int group) const
    {
        asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
        const int from = row - thread_row(0), mine = threadIdx.x % 128 * 2;
        const float(&sum_of)[warps][tile_cols] = own.sum[turn][group];
        float2 total[warps];
#pragma unroll
        for (int i = 0; i < warps; i++) total[i] = *(const float2 *)&sum_of[i][mine];
        if (from < g.rows && tile + mine < g.cols)
            *(float2 *)(g.partial + (int64_t)(from / TUTTI__CUDA_PRODUCT_RUN) * g.cols + tile +
                        mine) = make_float2((total[0].x + total[1].x) + (total[2].x + total[3].x),
                                            (total[0].y + total[1].y) + (total[2].y + total[3].y));
    }
};

tutti_status tutti__cuda_product_slope_plan(int device, const tutti__gemm *g,
                                            tutti_activation activation, bool *better)
{
    *better = false;
    if (activation == TUTTI_ACT_NONE) return TUTTI_OK; /* dz is the product */
    return with_epilogue<slope_epilogue>(g->c.dtype, TUTTI_OK, [&](auto type) {
        using Epilogue = typename decltype(type)::type;
        bool can;
        return product_plan<Epilogue>(device, g, product_kernel<Epilogue>, &can, better);
    });
}

bool tutti__cuda_product_slope_takes(const tutti__gemm *g, const tutti__matrix *v)
{
    return factors_lie_well(g) && lies_well(v, g->m);
}

tutti_status tutti__cuda_product_slope(tutti_context *ctx, const tutti__gemm *g,
                                       tutti__activation activation, const tutti__matrix *v,
                                       float *partial)
{
    const slope_args args = {
        args_of(g),  v->data, g->c.data,       v->stride,
        g->c.stride, partial, activation.kind, activation_constants<float>(activation)};
    return with_epilogue<slope_epilogue>(g->c.dtype, TUTTI_ERR_INTERNAL, [&](auto type) {
        using Epilogue = typename decltype(type)::type;
        return product_launch<Epilogue>(ctx, g, product_kernel<Epilogue>, args);
    });
}
