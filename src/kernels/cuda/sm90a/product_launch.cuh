/* The host's part of the kernel in product.cuh: how the copy engine sees the factors, whether the
 * kernel can compute a product and should, and its launch. */
#ifndef TUTTI_KERNELS_CUDA_SM90A_PRODUCT_LAUNCH_CUH
#define TUTTI_KERNELS_CUDA_SM90A_PRODUCT_LAUNCH_CUH

#include <cudaTypedefs.h>

#include <atomic>

#include "kernels/cuda/passes.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/sm90a/product.cuh"

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

/* Calls f(epilogue), or returns `otherwise` where there is none. */
template<template<class> class Epilogue, class F>
static tutti_status with_epilogue(tutti_dtype dtype, tutti_status otherwise, F &&f)
{
    if (dtype == TUTTI_F16) return f(tutti__type<Epilogue<__half>>{});
    if (dtype == TUTTI_BF16) return f(tutti__type<Epilogue<__nv_bfloat16>>{});
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
