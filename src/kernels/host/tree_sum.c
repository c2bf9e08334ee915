/* Sums of gradients as a binary tree over their inputs, element by element. */
#include <string.h>

#include "core/half.h"
#include "kernels/host/host.h"
#include "ops/tree_sum.h"

enum { TREE_BLOCK = 256, TREE_DEPTH = 10 /* for 256 inputs, and the one being pushed */ };

/* Elements of an input or of dst as those of the sums, and back. */
#define COPY_ROWS(real)                                                                            \
    static void load_##real(tutti_dtype dtype, const void *from, int64_t at, int64_t n, real *to)  \
    {                                                                                              \
        if (dtype != TUTTI_BF16) {                                                                 \
            memcpy(to, (const real *)from + at, (size_t)n * sizeof(real));                         \
            return;                                                                                \
        }                                                                                          \
        const uint16_t *narrow = (const uint16_t *)from + at;                                      \
        for (int64_t i = 0; i < n; i++) to[i] = (real)tutti__bf16_to_float(narrow[i]);             \
    }                                                                                              \
    static void store_##real(tutti_dtype dtype, void *to, int64_t at, int64_t n, const real *from) \
    {                                                                                              \
        if (dtype != TUTTI_BF16) {                                                                 \
            memcpy((real *)to + at, from, (size_t)n * sizeof(real));                               \
            return;                                                                                \
        }                                                                                          \
        uint16_t *narrow = (uint16_t *)to + at;                                                    \
        for (int64_t i = 0; i < n; i++) narrow[i] = tutti__float_to_bf16((float)from[i]);          \
    }

#define TREE_BLOCKS(real)                                                                  \
    TUTTI__VECTORISED                                                                      \
    static void tree_block_##real(const tutti__tree_sum_args *args, int64_t at, int64_t n) \
    {                                                                                      \
        real stack[TREE_DEPTH][TREE_BLOCK];                                                \
        int depth = 0;                                                                     \
        for (int k = 0; k < args->inputs; k++) {                                           \
            load_##real(args->in_dtype, args->in[k], at, n, stack[depth++]);               \
            for (int p = 0; p < args->pops[k]; p++) {                                      \
                depth--;                                                                   \
                real *restrict left = stack[depth - 1];                                    \
                const real *restrict right = stack[depth];                                 \
                for (int64_t i = 0; i < n; i++) left[i] += right[i];                       \
            }                                                                              \
        }                                                                                  \
        store_##real(args->to_dtype, args->dst, at, n, stack[0]);                          \
    }
COPY_ROWS(float)
COPY_ROWS(double)
TREE_BLOCKS(float)
TREE_BLOCKS(double)

tutti_status tutti__host_tree_sum(int device, tutti__stream stream,
                                  const tutti__tree_sum_args *args)
{
    (void)device, (void)stream;
    TUTTI_ASSERT(args->more == 0 && !args->rounds);
    const int64_t blocks = (args->count + TREE_BLOCK - 1) / TREE_BLOCK;
    const int threads = tutti__threads_here(blocks > 64 ? args->threads : 1);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t at = b * TREE_BLOCK;
        const int64_t n = args->count - at < TREE_BLOCK ? args->count - at : TREE_BLOCK;
        if (args->dtype == TUTTI_F64)
            tree_block_double(args, at, n);
        else
            tree_block_float(args, at, n);
    }
    return TUTTI_OK;
}
