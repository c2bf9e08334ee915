/* Batched matrix product on the GPU: strided batches of cuBLASLt, one launch of them for c, and one
 * for each of da and db.
 *
 * Forward reads a and b and writes c, in 2 m n k operations an item; backward does twice that, and
 * its products are plain ones too, with other transposes.  Items whose lines interleave (heads of
 * one sequence) need no copy: cuBLASLt takes any stride between matrices.
 *
 * A batch of more than BATCH_MOST items is several launches: all but the last are of BATCH_MOST,
 * and the last has an algorithm of its own, since cuBLASLt chooses by the number, too. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm.h"
#include "ops/matmul.h"

/* What the second and third dimension of a CUDA grid can count. */
constexpr int64_t BATCH_MOST = 65535;

/* A product's places in a plan: of whole launches, and of the rest of the batch. */
enum { WHOLE, REST, PLACES };
/* The products of a backward's plan; a forward's has one. */
enum { DA, DB, PRODUCTS };

/* As a number of whole launches (batch[0]) of BATCH_MOST items; batch[0] is 0 if there are none. */
static tutti__gemm whole_of(const tutti__gemm *gemm)
{
    tutti__gemm whole = *gemm;
    whole.batch[0] = gemm->batch[1] / BATCH_MOST;
    whole.batch[1] = BATCH_MOST;
    whole.a.apart[0] = BATCH_MOST * gemm->a.apart[1];
    whole.b.apart[0] = BATCH_MOST * gemm->b.apart[1];
    whole.c_apart[0] = BATCH_MOST * gemm->c_apart[1];
    return whole;
}

static void advance(tutti__matrix *matrix, int64_t elements)
{
    if (matrix->data) matrix->data = tutti__cuda_at(matrix->data, matrix->dtype, elements);
}

/* The items after those; batch[1] is 0 if there are none. */
static tutti__gemm rest_of(const tutti__gemm *gemm)
{
    tutti__gemm rest = *gemm;
    rest.batch[1] = gemm->batch[1] % BATCH_MOST;
    const int64_t before = gemm->batch[1] - rest.batch[1];
    advance(&rest.a.in, before * gemm->a.apart[1]);
    advance(&rest.b.in, before * gemm->b.apart[1]);
    advance(&rest.c, before * gemm->c_apart[1]);
    return rest;
}

/* Lines and items without gaps. */
static void make_contiguous(tutti__items *items, const tutti__matmul_args *args, int64_t lines,
                            int64_t cols)
{
    items->matrix = tutti__matrix{NULL, args->dtype, cols};
    items->apart = args->batch > 1 ? lines * cols : 0;
}

/* Whatever the strides of a call, contiguous tensors should be the fast ones. */
static tutti__matmul_args contiguous(const tutti__matmul_args *args)
{
    tutti__matmul_args as = *args;
    const bool ta = args->transpose_a, tb = args->transpose_b;
    for (tutti__items *a : {&as.a, &as.da})
        make_contiguous(a, args, ta ? args->k : args->m, ta ? args->m : args->k);
    for (tutti__items *b : {&as.b, &as.db})
        make_contiguous(b, args, tb ? args->n : args->k, tb ? args->k : args->n);
    for (tutti__items *c : {&as.c, &as.dc}) make_contiguous(c, args, args->m, args->n);
    return as;
}

static tutti_status matmul_plan(tutti_context *ctx, const void *untyped, bool backward,
                                tutti__plan *plan)
{
    const tutti__matmul_args args = contiguous((const tutti__matmul_args *)untyped);
    if (args.batch == 0) return TUTTI_OK;
    TUTTI_TRY(tutti__cuda_use(ctx->device, "matmul_plan"));
    plan->scratch = TUTTI__CUDA_GEMM_WORKSPACE;
    const tutti__gemm c = tutti__matmul_c(&args), da = tutti__matmul_da(&args),
                      db = tutti__matmul_db(&args);
    const tutti__gemm products[PRODUCTS] = {backward ? da : c, db};
    /* where there is one kind of launch only, it takes both places */
    const bool whole = args.batch >= BATCH_MOST, rest = args.batch % BATCH_MOST != 0;
    tutti__gemm gemms[PRODUCTS * PLACES];
    int count = 0;
    for (int i = 0; i < (backward ? PRODUCTS : 1); i++) {
        gemms[count++] = whole ? whole_of(&products[i]) : rest_of(&products[i]);
        if (whole && rest) gemms[count++] = rest_of(&products[i]);
    }
    return tutti__cuda_gemm_plan(ctx, gemms, count, plan);
}

/* Product number `which` of the direction. */
static tutti_status multiply(const tutti__job *job, int which, const tutti__gemm *gemm)
{
    const tutti__gemm whole = whole_of(gemm), rest = rest_of(gemm);
    const bool both = whole.batch[0] > 0 && rest.batch[1] > 0;
    const int at = both ? which * PLACES : which;
    if (whole.batch[0] > 0)
        TUTTI_TRY(tutti__cuda_gemm(job->ctx, job->plan, at, &whole, job->scratch));
    if (rest.batch[1] == 0) return TUTTI_OK;
    return tutti__cuda_gemm(job->ctx, job->plan, both ? at + REST : at, &rest, job->scratch);
}

static tutti_status matmul_forward(const tutti__job *job, const void *untyped)
{
    const tutti__matmul_args *args = (const tutti__matmul_args *)untyped;
    if (args->batch == 0) return TUTTI_OK;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, "matmul_forward"));
    const tutti__gemm c = tutti__matmul_c(args);
    return multiply(job, 0, &c);
}

static tutti_status matmul_backward(const tutti__job *job, const void *untyped)
{
    const tutti__matmul_args *args = (const tutti__matmul_args *)untyped;
    if (args->batch == 0) return TUTTI_OK;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, "matmul_backward"));
    const tutti__gemm da = tutti__matmul_da(args), db = tutti__matmul_db(args);
    if (args->da.matrix.data) TUTTI_TRY(multiply(job, DA, &da));
    if (args->db.matrix.data) TUTTI_TRY(multiply(job, DB, &db));
    return TUTTI_OK;
}

extern "C" const tutti__op tutti__cuda_matmul = {matmul_plan, matmul_forward, matmul_backward};
