/* Embedding's tokens, as the sorts take them: of each row its token, or for a token out of range,
 * which is reported, token 0 and no row. */
#ifndef TUTTI_KERNELS_CUDA_TOKENS_CUH
#define TUTTI_KERNELS_CUDA_TOKENS_CUH

#include "kernels/cuda/cuda.h"

/* Where findings are written, and their code. */
struct findings {
    tutti__finding *finding;
    int32_t code;
};

static __device__ void report_token(const findings &to, int32_t token, int64_t row, int64_t vocab)
{
    if (atomicCAS(&to.finding->code, 0, to.code) != 0) return;
    to.finding->value = token;
    to.finding->row = row;
    to.finding->limit = vocab;
}

struct token_list {
    const int32_t *tokens;
    int rows, vocab;
    int64_t room; /* a sorted list's entries; those behind the rows have token 0 and no row */
    int *runs;    /* becomes 0 */
    findings found;

    /* Any token behind the rows. */
    __device__ __forceinline__ int32_t token(int64_t at) const
    {
        return tokens[min(at, (int64_t)rows - 1)];
    }
    /* Of an entry, its token and its row or -1. */
    __device__ __forceinline__ uint2 entry(int64_t at, int32_t token) const
    {
        if (at >= rows) return make_uint2(0, 0xffffffffu);
        if (token >= 0 && token < vocab) return make_uint2((uint32_t)token, (uint32_t)at);
        report_token(found, token, at, vocab);
        return make_uint2(0, 0xffffffffu);
    }
};

/* sort_cluster.cu: a sort by the tokens' last `bits` bits, in the order of the rows where they are
 * equal.  blocks: of the cluster that does it; 0: there are too many rows, or no clusters. */
tutti_status tutti__cuda_sort_blocks(const tutti_context *ctx, int64_t rows, int *blocks);
tutti_status tutti__cuda_sort_tokens(tutti_context *ctx, const token_list &list, int blocks,
                                     int bits, uint32_t *tokens, int32_t *row_of);

/* embedding_zero.cu: zeros in the rows of args->dweight, of elements of so many bytes, whose token
 * does not occur. */
tutti_status tutti__cuda_zero_absent(tutti_context *ctx, const struct tutti__embedding_args *args,
                                     size_t size, cudaStream_t stream);

#endif
