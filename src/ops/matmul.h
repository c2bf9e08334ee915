/* Batched matrix product; include/tutti/matmul.h has the mathematics. */
#ifndef TUTTI_OPS_MATMUL_H
#define TUTTI_OPS_MATMUL_H

#include "ops/gemm.h"

/* A matrix of each item: stride from line to line, apart from item to item. */
typedef struct tutti__items {
    tutti__matrix matrix;
    int64_t apart;
} tutti__items;

typedef struct tutti__matmul_args {
    int64_t batch, m, n, k;
    bool transpose_a, transpose_b;
    tutti_dtype dtype;
    bool allow_tf32;
    tutti__items a, b, c;    /* c: forward only */
    tutti__items dc, da, db; /* da, db optional, each */
} tutti__matmul_args;

static inline tutti__gemm tutti__matmul_gemm(const tutti__matmul_args *args, int64_t m, int64_t n,
                                             int64_t k, const tutti__items *a, bool transpose_a,
                                             const tutti__items *b, bool transpose_b,
                                             const tutti__items *c)
{
    tutti__gemm gemm = tutti__gemm_of("matmul", m, n, k, &a->matrix, transpose_a, &b->matrix,
                                      transpose_b, &c->matrix);
    gemm.tf32 = args->allow_tf32;
    gemm.batch[1] = args->batch;
    gemm.a.apart[1] = a->apart;
    gemm.b.apart[1] = b->apart;
    gemm.c_apart[1] = c->apart;
    return gemm;
}

/* c = op(a) op(b) */
static inline tutti__gemm tutti__matmul_c(const tutti__matmul_args *args)
{
    return tutti__matmul_gemm(args, args->m, args->n, args->k, &args->a, args->transpose_a,
                              &args->b, args->transpose_b, &args->c);
}

/* da = dc op(b)^T, or its transpose op(b) dc^T */
static inline tutti__gemm tutti__matmul_da(const tutti__matmul_args *args)
{
    if (args->transpose_a)
        return tutti__matmul_gemm(args, args->k, args->m, args->n, &args->b, args->transpose_b,
                                  &args->dc, true, &args->da);
    return tutti__matmul_gemm(args, args->m, args->k, args->n, &args->dc, false, &args->b,
                              !args->transpose_b, &args->da);
}

/* db = op(a)^T dc, or its transpose dc^T op(a) */
static inline tutti__gemm tutti__matmul_db(const tutti__matmul_args *args)
{
    if (args->transpose_b)
        return tutti__matmul_gemm(args, args->n, args->k, args->m, &args->dc, true, &args->a,
                                  args->transpose_a, &args->db);
    return tutti__matmul_gemm(args, args->k, args->n, args->m, &args->a, !args->transpose_a,
                              &args->dc, false, &args->db);
}

#endif
