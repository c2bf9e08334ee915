/* Products of 16-bit matrices on Hopper's asynchronous units, with epilogues that cost nothing
 * beside them [PTX ISA, wgmma and cp.async.bulk.tensor].
 *
 * A block computes tiles of 128 x 256 of the result, one after another.  One thread of its first
 * warpgroup copies slices of A and B, 64 deep, to a ring of stages in shared memory; each of the
 * other two multiplies half of the tile's rows, with f32 sums in registers.  When a tile is
 * complete they only round it: 64 registers hold what a thread has, and the next tile begins.  The
 * epilogue is made during its first 16 steps, a vector of 8 columns in each, while the tensor cores
 * work on what they have been given.
 *
 * The tile is as large as registers allow, since the tensor cores read both factors from shared
 * memory, and that limits them: at 128 x 128 they and the copies need 160 bytes a cycle where
 * there are 128.  That leaves nothing for results on their way out.  So they go straight to memory.
 *
 * Two neighbouring blocks form a cluster: their tiles have the same columns, and each copies one
 * half of B's slice to both.
 *
 * Sums are in the order of k, whatever the number of rows: a row's bits depend on nothing else.
 * What lies beyond a matrix is read as 0 by the copy engine, and not written.
 *
 * An epilogue is a class: `T`, the matrices' type; `b_transposed`, whether B is [n, k]; `sums_a`,
 * whether A's columns are summed too; `early`, whether the kernel is started before the one before
 * it ends, and lets the next one; `unrolled`, of the steps above as many as the code has; `args`, a
 * product's with what it needs; `shared`, memory of its own; `vector`, what the parts of a vector
 * share; `apart`, whether they stay behind a product each; and what a thread does, below. */
#ifndef TUTTI_KERNELS_CUDA_SM90A_PRODUCT_CUH
#define TUTTI_KERNELS_CUDA_SM90A_PRODUCT_CUH

#include <utility>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/product.h"
#include "kernels/cuda/sm90a/units.cuh"

constexpr int tile_rows = 128, tile_cols = 256, depth = 64; /* of a block's tile, of a step */
constexpr int multipliers = 2, threads = 128 * (1 + multipliers);
constexpr int cluster_rows = 2 * tile_rows;
constexpr int stages = 4;
constexpr int a_bytes = tile_rows * depth * 2, b_bytes = tile_cols * depth * 2;
constexpr int stage_bytes = a_bytes + b_bytes;
constexpr int sums = tile_rows * tile_cols / (128 * multipliers); /* of a thread */
constexpr int vectors = sums / 8;
constexpr int busy_steps = vectors; /* which finish the tile before, a vector each */
constexpr int parts = depth / 16;   /* of a step and of its vector: a product, two columns */
static_assert(parts == 4, "a vector's words");
constexpr int summers = 2; /* warps of the first warpgroup that sum A's columns */
constexpr int strips = 8;
static_assert(TUTTI__CUDA_PRODUCT_RUN * summers == tile_rows, "rows of a partial sum");

template<class Epilogue>
struct shared_memory {
    alignas(1024) char stage[stages][stage_bytes];
    uint64_t full[stages], empty[stages];
    typename Epilogue::shared own;
};

struct product_args {
    int tiles_down, tiles_across; /* of a cluster, of a block */
    int steps;
    int rows, cols;
};

/* Where a tile begins.  Tiles are computed in bands of a few rows of tiles, column by column, so
 * that those computed at the same time read little and share it in the L2 cache. */
constexpr int band = 8;
static __device__ __forceinline__ void find_tile(const product_args &g, int tile, int *row,
                                                 int *col)
{
    const int first = tile / (band * g.tiles_across) * band;
    const int in_band = tile - first * g.tiles_across, high = min(band, g.tiles_down - first);
    *row = (first + in_band % high) * cluster_rows + int(blockIdx.x % 2) * tile_rows;
    *col = in_band / high * tile_cols;
}

/* A place in the ring of stages, and the parity of its barriers. */
struct place {
    int stage = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void next()
    {
        if (++stage == stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/* A tile's sums, rounded, in pairs of columns: of B's that were not reordered (see describe_b). */
template<class T>
__device__ __forceinline__ void take_pairs(float (&from)[sums], uint32_t (&to)[vectors][4])
{
#pragma unroll
    for (int v = 0; v < vectors; v += 2)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float *at = &from[(v * 2 + i) * 4];
            /* after the wait */
            asm volatile("" : "+f"(at[0]), "+f"(at[1]), "+f"(at[2]), "+f"(at[3]));
            to[v][i] = pack_pair<T>(at[0], at[1]);
            to[v + 1][i] = pack_pair<T>(at[2], at[3]);
        }
}

/* A slice of a matrix [k, n] is copied in boxes of 64 columns, a row of which is 128 bytes. */
constexpr int box_cols = 64, box_bytes = box_cols * depth * 2;

template<class Epilogue>
__device__ __forceinline__ void feed(const product_args &g, shared_memory<Epilogue> &shared,
                                     const CUtensorMap *a, const CUtensorMap *b)
{
    const int half = int(blockIdx.x % 2);
    place to;
    if constexpr (Epilogue::early) { /* others wait for what comes here */
        wait_for_previous();
        start_next();
    }
    for (int tile = blockIdx.x / 2; tile < g.tiles_down * g.tiles_across; tile += gridDim.x / 2) {
        int row, col;
        find_tile(g, tile, &row, &col);
        col += half * (tile_cols / 2);
#pragma unroll 1
        for (int step = 0; step < g.steps; step++, to.next()) {
            barrier_wait(shared_address(&shared.empty[to.stage]), to.parity ^ 1);
            const uint32_t at = shared_address(shared.stage[to.stage]),
                           full = shared_address(&shared.full[to.stage]);
            const uint32_t to_b = at + a_bytes + half * (b_bytes / 2);
            barrier_expect(full, stage_bytes);
            copy_in(at, a, step * depth, row, full);
            if constexpr (Epilogue::b_transposed) {
                copy_rows_in_both(to_b, b, step * depth, col / 8, full);
            } else {
#pragma unroll
                for (int i = 0; i < tile_cols / 2 / box_cols; i++)
                    copy_box_in_both(to_b + i * box_bytes, b, col + i * box_cols, step * depth,
                                     full);
            }
        }
    }
}

/* A's columns, summed by warps that have nothing else to do, from the slices that are multiplied:
 * each sums half of the rows, a lane two columns.  Tiles beside each other have the same slices and
 * take turns: the tensor cores leave little of shared memory's bandwidth.  args has `partial`, a
 * row of sums for each warp's rows, or NULL, and `depth`, its columns.
 *
 * The order is that of the pass that sums where there is no such kernel (column_sums.cuh): strips
 * of every eighth row, one after another. */
template<class Epilogue>
__device__ __forceinline__ void sum_columns(const typename Epilogue::args &g,
                                            shared_memory<Epilogue> &shared, int half)
{
    using T = typename Epilogue::T;
    const int lane = threadIdx.x % 32;
    const uint32_t first = shared_address(shared.stage) + half * (a_bytes / summers) + lane % 4 * 4;
    place from;
    for (int tile = blockIdx.x / 2; tile < g.tiles_down * g.tiles_across; tile += gridDim.x / 2) {
        int row, col;
        find_tile(g, tile, &row, &col);
        const int run = row / TUTTI__CUDA_PRODUCT_RUN + half;
        float *to = g.partial + (int64_t)run * g.depth + lane * 2;
        const int end = run * TUTTI__CUDA_PRODUCT_RUN < g.rows ? g.depth - lane * 2 : 0;
        int mine = g.partial ? col / tile_cols : g.steps; /* the next step that is summed here */
#pragma unroll 1
        for (int step = 0; step < g.steps; step++, from.next()) {
            barrier_wait(shared_address(&shared.full[from.stage]), from.parity);
            if (step == mine) {
                const uint32_t at = first + from.stage * stage_bytes;
                float2 sum[strips] = {};
#pragma unroll
                for (int i = 0; i < TUTTI__CUDA_PRODUCT_RUN; i++) {
                    uint32_t word; /* rows of 128 bytes, swizzled */
                    asm volatile("ld.shared.b32 %0, [%1];"
                                 : "=r"(word)
                                 : "r"(at + (lane / 4 ^ i % 8) * 16 + i * 128));
                    const float2 pair = unpack_pair<T>(word);
                    sum[i % strips].x += pair.x;
                    sum[i % strips].y += pair.y;
                }
#pragma unroll
                for (int i = 1; i < strips; i++) {
                    sum[0].x += sum[i].x;
                    sum[0].y += sum[i].y;
                }
                if (step * depth < end) *(float2 *)(to + step * depth) = sum[0];
                mine += g.tiles_across;
            }
            __syncwarp();
            if (lane == 0) barrier_arrive_in_cluster(shared_address(&shared.empty[from.stage]));
        }
    }
}

/* A thread's vectors of 8 columns: rows alternate between its two, which are 8 apart, then come the
 * columns. */
static __device__ constexpr int row_of(int vector)
{
    return vector % 2 * 8;
}
static __device__ constexpr int col_of(int vector)
{
    return vector / 2 * 32;
}
/* Where they begin in a tile; group: the warpgroup's number among the multipliers. */
static __device__ __forceinline__ int thread_row(int group)
{
    return group * 64 + int(threadIdx.x / 32 % 4) * 16 + int(threadIdx.x % 32 / 4);
}
static __device__ __forceinline__ int thread_col()
{
    return int(threadIdx.x % 4) * 8;
}

/* Large lambdas are not inlined by themselves, and what they use has to stay in registers. */
#define INLINED __attribute__((always_inline))
template<class F, int... i>
__device__ __forceinline__ void each(std::integer_sequence<int, i...>, F &&f)
{
    (f(std::integral_constant<int, i>{}), ...);
}
template<int n>
using up_to = std::make_integer_sequence<int, n>;

/* Brings the vectors after the first `passed` to the front: registers have to be moved where code
 * is the same for all of them. */
template<int passed>
__device__ __forceinline__ void move_up(uint32_t (&of)[vectors][4])
{
#pragma unroll
    for (int i = 0; i < (vectors - passed) * 4; i++) of[i / 4][i % 4] = of[i / 4 + passed][i % 4];
}

/* f(kind_of<…>) of an activation that is known at run time, the same in all threads. */
template<tutti_activation act>
using kind_of = std::integral_constant<tutti_activation, act>;
template<class F>
__device__ __forceinline__ void with_kind(tutti_activation kind, F &&f)
{
    switch (kind) {
#define ACTIVATION(name, text, from)    \
    case TUTTI_ACT_##name:              \
        f(kind_of<TUTTI_ACT_##name>{}); \
        break;
        TUTTI_ACTIVATION_LIST(ACTIVATION)
#undef ACTIVATION
    case TUTTI_ACT_ZERO:
        break;
    }
}

/* The epilogue of a tile during the steps of the next one, `unrolled` steps in the code for each
 * activation, which branch chooses.  finish: a part of vector v of those that come after the first
 * `passed`; pass: `unrolled` of them, which are finished; finish_all: the last tile's.  expect: the
 * next tile, some steps before its last one; begin: nothing is left to finish, but the next tile's
 * sums may not be complete, of the thread's first row and the tile's first column; take: they
 * are. */
template<class Epilogue>
__device__ __forceinline__ void multiply_and_finish(const typename Epilogue::args &g,
                                                    shared_memory<Epilogue> &shared, int group)
{
    using T = typename Epilogue::T;
    constexpr bool b_transposed = Epilogue::b_transposed;
    constexpr int unrolled = Epilogue::unrolled;
    static_assert(busy_steps / 2 % unrolled == 0, "where expect is called");
    const int thread = threadIdx.x % 128;
    const uint64_t first_a = matrix_at(shared_address(shared.stage) + group * (a_bytes / 2));
    const uint64_t first_b =
        matrix_at(shared_address(shared.stage) + a_bytes, b_transposed ? 16 : box_bytes);
    constexpr int next_b = (b_transposed ? 16 * 2 : 16 * 128) / 16; /* 16 of k further on */
    const uint32_t full = shared_address(shared.full),
                   empty = address_in(shared_address(shared.empty), thread % 2);
    /* in both blocks */
    auto release = [&](int stage) {
        if (thread < 2) barrier_arrive_in_cluster(empty + stage * 8);
    };
    float sum[sums];
    Epilogue before(g);
    place from;
    int last = 0;
#pragma unroll 1
    for (int tile = blockIdx.x / 2; tile < g.tiles_down * g.tiles_across; tile += gridDim.x / 2) {
        auto step = [&](bool first, auto &&finish) INLINED {
            barrier_wait(full + from.stage * 8, from.parity);
            /* advances in units of 16 bytes */
            const uint64_t a = first_a + from.stage * (stage_bytes / 16);
            const uint64_t b = first_b + from.stage * (stage_bytes / 16);
            products_begin();
            each(up_to<parts>{}, [&](auto part) INLINED {
                constexpr int i = decltype(part)::value;
                multiply<T, !b_transposed>(sum, a + 2 * i, b + next_b * i, !first || i > 0);
                if constexpr (i == parts - 1) products_end();
                finish(part);
            });
            if (!first) {
                products_wait<1>();
                release(last);
            }
            last = from.stage;
            from.next();
        };
        /* with branches for each vector the steps would be longer than their products */
        Epilogue::branch(g, [&](auto kind) INLINED {
#pragma unroll 1
            for (int i = 0; i < busy_steps; i += unrolled) {
                each(up_to<unrolled>{}, [&](auto number) INLINED {
                    constexpr int v = decltype(number)::value;
                    typename Epilogue::vector now;
                    step(v == 0 && i == 0, [&](auto part) INLINED {
                        before.template finish<v>(g, shared.own, group, i, now, part, kind);
                        if constexpr (Epilogue::apart(kind) && part < parts - 1)
                            keep_order(g.steps < busy_steps);
                    });
                });
                before.pass(g, shared.own, group, i);
                if (i == busy_steps / 2) before.expect(g, shared.own, tile);
            }
        });
#pragma unroll 1
        for (int i = busy_steps; i < g.steps; i++) step(false, [](auto) {});
        int row, col;
        find_tile(g, tile, &row, &col);
        before.begin(g, shared.own, row + thread_row(group), col);
        products_wait<0>();
        release(last);
        before.take(sum);
    }
    before.finish_all(g, shared.own, group);
}

template<class Epilogue>
__global__ void __launch_bounds__(threads, 1) __cluster_dims__(2, 1, 1)
    product_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                   const __grid_constant__ typename Epilogue::args g)
{
    extern __shared__ __align__(1024) char raw[];
    shared_memory<Epilogue> &shared = *(shared_memory<Epilogue> *)raw;
    if (threadIdx.x == 0) {
        for (int i = 0; i < stages; i++) {
            barrier_init(shared_address(&shared.full[i]), 1);
            /* the multipliers of either block */
            barrier_init(shared_address(&shared.empty[i]),
                         2 * multipliers + Epilogue::sums_a * summers);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    cluster_sync();
    /* the registers that the first warpgroup leaves are the others' */
    constexpr int left = Epilogue::sums_a ? 40 : 24, taken = Epilogue::sums_a ? 232 : 240;
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(left));
        if (threadIdx.x == 0) feed<Epilogue>(g, shared, &a, &b);
        if constexpr (Epilogue::sums_a) {
            const int warp = __shfl_sync(~0u, int(threadIdx.x / 32), 0);
            if (warp >= 1 && warp <= summers) sum_columns<Epilogue>(g, shared, warp - 1);
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(taken));
        multiply_and_finish<Epilogue>(g, shared, __shfl_sync(~0u, int(threadIdx.x / 128), 0) - 1);
    }
    __syncwarp();
    cluster_sync(); /* the other block may still arrive at this one's barriers */
}

#endif
