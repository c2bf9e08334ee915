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
 * it ends, and lets the next one; `args`, a product's with what it needs; `shared`, memory of
 * its own; and what a thread does, below. */
#ifndef TUTTI_KERNELS_CUDA_SM90A_PRODUCT_CUH
#define TUTTI_KERNELS_CUDA_SM90A_PRODUCT_CUH

#include <cuda.h>
#include <cudaTypedefs.h>

#include <atomic>
#include <utility>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/passes.h"
#include "kernels/cuda/product.h"

constexpr int tile_rows = 128, tile_cols = 256, depth = 64; /* of a block's tile, of a step */
constexpr int multipliers = 2, threads = 128 * (1 + multipliers);
constexpr int cluster_rows = 2 * tile_rows;
constexpr int stages = 4;
constexpr int a_bytes = tile_rows * depth * 2, b_bytes = tile_cols * depth * 2;
constexpr int stage_bytes = a_bytes + b_bytes;
constexpr int sums = tile_rows * tile_cols / (128 * multipliers); /* of a thread */
constexpr int vectors = sums / 8;
constexpr int busy_steps = vectors; /* which finish the tile before, a vector each */
constexpr int summers = 2;          /* warps of the first warpgroup that sum A's columns */
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

/* Shared memory's addresses and barriers [PTX ISA, mbarrier] */

static __device__ __forceinline__ uint32_t here(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}
static __device__ __forceinline__ void barrier_init(uint32_t barrier, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
static __device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{ .reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again; }" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}
/* Arrives, and announces what copies will bring. */
static __device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
/* At a barrier of any block of the cluster. */
static __device__ __forceinline__ void barrier_arrive(uint32_t in_cluster)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(in_cluster) : "memory");
}
static __device__ __forceinline__ uint32_t in_block(uint32_t at, uint32_t block)
{
    uint32_t in_cluster;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(in_cluster) : "r"(at), "r"(block));
    return in_cluster;
}
static __device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

/* The copy engine */

static __device__ __forceinline__ void copy_in(uint32_t to, const CUtensorMap *from, int col,
                                               int row, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(from), "r"(col), "r"(row), "r"(barrier)
                 : "memory");
}
/* To the same place in both blocks: rows of a matrix in the order of the kernel's map, or a box of
 * one. */
static __device__ __forceinline__ void copy_rows_in_both(uint32_t to, const CUtensorMap *from,
                                                         int col, int eight, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, 0, %3, 0}], [%4], %5;" ::"r"(to),
                 "l"(from), "r"(col), "r"(eight), "r"(barrier), "h"((uint16_t)3)
                 : "memory");
}
static __device__ __forceinline__ void copy_box_in_both(uint32_t to, const CUtensorMap *from,
                                                        int col, int row, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(from), "r"(col), "r"(row), "r"(barrier), "h"((uint16_t)3)
                 : "memory");
}

/* The tensor cores */

/* A matrix in shared memory as the copy engine leaves rows of 128 bytes: swizzled, 8 rows in 1024
 * bytes; if it has more columns than a row holds, the next ones are `apart` bytes further on.  An
 * address's bits from 18 on are its block's number in the cluster. */
static __device__ __forceinline__ uint64_t matrix_at(uint32_t at, uint32_t apart = 16)
{
    return (uint64_t)(at % (1 << 18) >> 4) | (uint64_t)(apart >> 4) << 16 | (uint64_t)64 << 32 |
           (uint64_t)1 << 62;
}

/* d (+)= a b, [64, 16] by [16, 256]; b's rows in memory are its columns, or (whole_rows) its
 * rows. */
#define OUT8(i)                                                                         \
    "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), \
        "+f"(d[(i) + 5]), "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define OUT64(i)                                                                            \
    OUT8(i), OUT8((i) + 8), OUT8((i) + 16), OUT8((i) + 24), OUT8((i) + 32), OUT8((i) + 40), \
        OUT8((i) + 48), OUT8((i) + 56)
#define MULTIPLY(type, rows)                                                                      \
    asm volatile("{ .reg .pred add; setp.ne.b32 add, %130, 0;\n"                                  \
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " "                 \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "        \
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "    \
                 "%31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "    \
                 "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, "    \
                 "%61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, "    \
                 "%76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, "    \
                 "%91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, "    \
                 "%105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, " \
                 "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "                  \
                 "%128, %129, add, 1, 1, 0, " rows "; }"                                          \
                 : OUT64(0), OUT64(64)                                                            \
                 : "l"(a), "l"(b), "r"((int)add))

template<class T, bool whole_rows>
__device__ __forceinline__ void multiply(float (&d)[sums], uint64_t a, uint64_t b, bool add)
{
    if constexpr (std::is_same_v<T, __half>) {
        if constexpr (whole_rows)
            MULTIPLY("f16", "1");
        else
            MULTIPLY("f16", "0");
    } else {
        if constexpr (whole_rows)
            MULTIPLY("bf16", "1");
        else
            MULTIPLY("bf16", "0");
    }
}
#undef MULTIPLY
#undef OUT64
#undef OUT8

static __device__ __forceinline__ void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void products_end()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Until all groups but the last `pending` are complete. */
template<int pending>
__device__ __forceinline__ void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

/* Pairs of 16-bit values */

template<class T>
__device__ __forceinline__ float2 unpack_pair(uint32_t word)
{
    if constexpr (std::is_same_v<T, __half>) {
        __half2 pair;
        memcpy(&pair, &word, sizeof pair);
        return __half22float2(pair);
    } else {
        return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
    }
}
template<class T>
__device__ __forceinline__ uint32_t pack_pair(float a, float b)
{
    uint32_t word;
    if constexpr (std::is_same_v<T, __half>)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(b), "f"(a));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(b), "f"(a));
    return word;
}

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

/* Thread i of four gets word i of each. */
static __device__ __forceinline__ void transpose(uint32_t (&word)[4])
{
    const int lane = threadIdx.x;
#pragma unroll
    for (int apart = 1; apart <= 2; apart *= 2) {
        const bool upper = lane & apart;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i & apart) continue;
            const uint32_t given = upper ? word[i] : word[i + apart];
            const uint32_t got = __shfl_xor_sync(~0u, given, apart);
            if (upper)
                word[i] = got;
            else
                word[i + apart] = got;
        }
    }
}

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
            barrier_wait(here(&shared.empty[to.stage]), to.parity ^ 1);
            const uint32_t at = here(shared.stage[to.stage]), full = here(&shared.full[to.stage]);
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
    const uint32_t first = here(shared.stage) + half * (a_bytes / summers) + lane % 4 * 4;
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
            barrier_wait(here(&shared.full[from.stage]), from.parity);
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
            if (lane == 0) barrier_arrive(here(&shared.empty[from.stage]));
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

static __device__ __forceinline__ void store_vector(void *to, const uint32_t (&word)[4])
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(word[0]), "r"(word[1]),
                 "r"(word[2]), "r"(word[3])
                 : "memory");
}

template<class F, int... i>
__device__ __forceinline__ void each(std::integer_sequence<int, i...>, F &&f)
{
    (f(std::integral_constant<int, i>{}), ...);
}
template<int n>
using up_to = std::make_integer_sequence<int, n>;

/* The epilogue of a tile during the steps of the next one.  expect: in the middle of its steps,
 * says where the tile begins; take: all its sums; finish: a vector of those taken; finish_all: the
 * last tile's. */
template<class Epilogue>
__device__ __forceinline__ void multiply_and_finish(const typename Epilogue::args &g,
                                                    shared_memory<Epilogue> &shared, int group)
{
    using T = typename Epilogue::T;
    constexpr bool b_transposed = Epilogue::b_transposed;
    const int thread = threadIdx.x % 128;
    const uint64_t first_a = matrix_at(here(shared.stage) + group * (a_bytes / 2));
    const uint64_t first_b = matrix_at(here(shared.stage) + a_bytes, b_transposed ? 16 : box_bytes);
    constexpr int next_b = (b_transposed ? 16 * 2 : 16 * 128) / 16; /* 16 of k further on */
    const uint32_t full = here(shared.full), empty = in_block(here(shared.empty), thread % 2);
    /* in both blocks */
    auto release = [&](int stage) {
        if (thread < 2) barrier_arrive(empty + stage * 8);
    };
    float sum[sums];
    Epilogue before(g);
    place from;
    int last = 0;
#pragma unroll 1
    for (int tile = blockIdx.x / 2; tile < g.tiles_down * g.tiles_across; tile += gridDim.x / 2) {
        /* number: of a busy step, otherwise busy_steps */
        auto step = [&](auto number) {
            constexpr int n = decltype(number)::value;
            barrier_wait(full + from.stage * 8, from.parity);
            /* advances in units of 16 bytes */
            const uint64_t a = first_a + from.stage * (stage_bytes / 16);
            const uint64_t b = first_b + from.stage * (stage_bytes / 16);
            products_begin();
#pragma unroll
            for (int i = 0; i < depth / 16; i++)
                multiply<T, !b_transposed>(sum, a + 2 * i, b + next_b * i, n > 0 || i > 0);
            products_end();
            if constexpr (n < busy_steps) before.template finish<n>(g, shared.own, group);
            if constexpr (n == busy_steps / 2) {
                int row, col;
                find_tile(g, tile, &row, &col);
                before.expect(g, row, col, group);
            }
            if (n > 0) {
                products_wait<1>();
                release(last);
            }
            last = from.stage;
            from.next();
        };
        each(up_to<busy_steps>{}, step);
#pragma unroll 1
        for (int i = busy_steps; i < g.steps; i++) step(std::integral_constant<int, busy_steps>{});
        products_wait<0>();
        release(last);
        before.take(g, shared.own, sum);
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
            barrier_init(here(&shared.full[i]), 1);
            /* the multipliers of either block */
            barrier_init(here(&shared.empty[i]), 2 * multipliers + Epilogue::sums_a * summers);
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

/* Launching */

static inline int64_t count(int64_t whole, int of)
{
    return (whole + of - 1) / of;
}

/* The driver's function: the library is not linked to the driver. */
static inline tutti_status find_encoder(PFN_cuTensorMapEncodeTiled_v12000 *encode, const char *name)
{
    static std::atomic<void *> found;
    void *at = found.load(std::memory_order_relaxed);
    if (!at) {
        cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
        TUTTI_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &at, 12000,
                                                    cudaEnableDefault, &result),
                   name);
#else
        TUTTI_CUDA(
            cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &at, cudaEnableDefault, &result),
            name);
#endif
        if (!at) return tutti__fail(TUTTI_ERR_DEVICE, "%s: the driver has no tensor maps", name);
        found.store(at, std::memory_order_relaxed);
    }
    *encode = (PFN_cuTensorMapEncodeTiled_v12000)at;
    return TUTTI_OK;
}

/* How the copy engine sees a matrix: dimensions (the innermost one contiguous), their strides in
 * elements, and what one copy brings. */
struct view {
    int rank;
    cuuint64_t dims[4], strides[3];
    cuuint32_t box[4];
};

static inline tutti_status describe(const char *name, const tutti__matrix *matrix, view of,
                                    CUtensorMap *map)
{
    PFN_cuTensorMapEncodeTiled_v12000 encode = NULL;
    TUTTI_TRY(find_encoder(&encode, name));
    const cuuint32_t steps[] = {1, 1, 1, 1};
    for (cuuint64_t &stride : of.strides) stride *= 2; /* bytes */
    const CUresult result =
        encode(map,
               matrix->dtype == TUTTI_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                          : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
               of.rank, matrix->data, of.dims, of.strides, of.box, steps,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        return tutti__fail(TUTTI_ERR_DEVICE, "%s: no tensor map of [%lld, %lld]: error %d", name,
                           (long long)of.dims[1], (long long)of.dims[0], (int)result);
    return TUTTI_OK;
}

static inline tutti_status describe_a(const tutti__gemm *g, CUtensorMap *map)
{
    const cuuint64_t rows = (cuuint64_t)g->m, cols = (cuuint64_t)g->k;
    const cuuint64_t stride = g->m == 1 ? (cols + 7) / 8 * 8 : (cuuint64_t)g->a.in.stride;
    return describe(g->name, &g->a.in, {2, {cols, rows}, {stride}, {depth, tile_rows}}, map);
}

/* Half a slice of B.  Of [n, k] 128 rows: each is row 8i + 2j + k of the matrix, of which i is 0 to
 * 15, j 0 to 3, k 0 or 1; they are copied in the order of j, then i, then k, so that a thread,
 * which holds two of every eight columns of the result, has eight neighbours.  Of [k, n] a box. */
static inline tutti_status describe_b(const tutti__gemm *g, CUtensorMap *map)
{
    const cuuint64_t stride = (cuuint64_t)g->b.in.stride;
    if (!g->b.transposed)
        return describe(g->name, &g->b.in,
                        {2, {(cuuint64_t)g->n, (cuuint64_t)g->k}, {stride}, {box_cols, depth}},
                        map);
    const cuuint64_t rows = (cuuint64_t)g->n, cols = (cuuint64_t)g->k;
    return describe(
        g->name, &g->b.in,
        {4, {cols, 2, rows / 8, 4}, {stride, 8 * stride, 2 * stride}, {depth, 2, 16, 4}}, map);
}

/* Calls f(epilogue), or returns `otherwise` where there is none: of other types, and unless NONE of
 * none. */
template<template<class, tutti_activation> class Epilogue, bool NONE, class F>
static tutti_status with_epilogue(tutti_dtype dtype, tutti_activation kind, tutti_status otherwise,
                                  F &&f)
{
    auto of_type = [&](auto type) {
        using T = typename decltype(type)::type;
        switch (kind) {
        case TUTTI_ACT_NONE:
            if constexpr (NONE) return f(tutti__type<Epilogue<T, TUTTI_ACT_NONE>>{});
            return otherwise;
#define ACTIVATION(name)   \
    case TUTTI_ACT_##name: \
        return f(tutti__type<Epilogue<T, TUTTI_ACT_##name>>{});
            ACTIVATION(RELU)
            ACTIVATION(LEAKY_RELU)
            ACTIVATION(GELU)
            ACTIVATION(GELU_ERF)
            ACTIVATION(SQUARED_RELU)
            ACTIVATION(SILU)
            ACTIVATION(SMELU)
            ACTIVATION(STAR_RELU)
#undef ACTIVATION
        default:
            return otherwise;
        }
    };
    if (dtype == TUTTI_F16) return of_type(tutti__type<__half>{});
    if (dtype == TUTTI_BF16) return of_type(tutti__type<__nv_bfloat16>{});
    return otherwise;
}

/* *can: this kernel computes such products on this device, which is prepared for it; *better: it
 * should do so faster than cuBLASLt and a pass. */
template<class Epilogue>
static tutti_status product_plan(int device, const tutti__gemm *g,
                                 void (*kernel)(CUtensorMap, CUtensorMap, typename Epilogue::args),
                                 bool *can, bool *better)
{
    constexpr int64_t most = INT32_MAX - cluster_rows; /* coordinates are 32 bits wide */
    constexpr int bytes = (int)sizeof(shared_memory<Epilogue>);
    *can = *better = false;
    if (g->a.in.dtype != g->c.dtype || g->a.transposed ||
        g->b.transposed != Epilogue::b_transposed || g->batch[0] != 1 || g->batch[1] != 1 ||
        g->alpha != 1 || g->beta != 0)
        return TUTTI_OK;
    /* deep enough to finish a tile during the next one */
    if (g->m > most || g->n > most || g->k > most || g->n % 8 != 0 || g->k % 8 != 0 ||
        count(g->k, depth) < busy_steps)
        return TUTTI_OK;
    cudaFuncAttributes attributes;
    if (tutti__cuda_shared_limit(device) < bytes ||
        cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) {
        (void)cudaGetLastError(); /* there is no code for this device */
        return TUTTI_OK;
    }
    TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
               g->name);
    *can = true;
    /* blocks have at least two tiles each, and few of them nothing to do beside the last ones */
    const int64_t tiles = count(g->m, cluster_rows) * count(g->n, tile_cols);
    const int at_once = tutti__cuda_sm_count(device) / 2;
    const int64_t rounds = count(tiles, at_once);
    *better = rounds >= 2 && tiles * 16 >= rounds * at_once * 15;
    return TUTTI_OK;
}

static inline bool lies_well(const tutti__matrix *matrix, int64_t rows)
{
    return tutti__cuda_aligned(matrix->data) && (rows == 1 || matrix->stride % 8 == 0);
}
static inline bool factors_lie_well(const tutti__gemm *g)
{
    return lies_well(&g->a.in, g->m) && lies_well(&g->b.in, g->b.transposed ? g->n : g->k) &&
           lies_well(&g->c, g->m);
}

static inline product_args args_of(const tutti__gemm *g)
{
    return {(int)count(g->m, cluster_rows), (int)count(g->n, tile_cols), (int)count(g->k, depth),
            (int)g->m, (int)g->n};
}

template<class Epilogue>
static tutti_status product_launch(tutti_context *ctx, const tutti__gemm *g,
                                   void (*kernel)(CUtensorMap, CUtensorMap,
                                                  typename Epilogue::args),
                                   const typename Epilogue::args &args)
{
    CUtensorMap a, b;
    TUTTI_TRY(describe_a(g, &a));
    TUTTI_TRY(describe_b(g, &b));
    const int64_t tiles = (int64_t)args.tiles_down * args.tiles_across;
    const int at_once = tutti__cuda_sm_count(ctx->device) / 2;
    const unsigned blocks = 2 * (unsigned)(tiles < at_once ? tiles : at_once);
    constexpr size_t bytes = sizeof(shared_memory<Epilogue>);
    cudaStream_t stream = tutti__cuda_stream(ctx);
    if (Epilogue::early)
        return launch_early_with(bytes, g->name, ctx->device, kernel, dim3(blocks), dim3(threads),
                                 stream, a, b, args);
    kernel<<<blocks, threads, bytes, stream>>>(a, b, args);
    return tutti__cuda_status(cudaGetLastError(), g->name);
}

#endif
