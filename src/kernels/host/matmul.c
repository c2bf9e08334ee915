/* Batched matrix product: products of the host's gemm, whose tiles are cut by m and n alone, so an
 * item's bits do not depend on the batch.  include/tutti/matmul.h has the mathematics. */
#include "ops/matmul.h"

#include "kernels/host/gemm.h"

/* The scratch depends on a product's sizes and types, which every call like this one has. */
static tutti_status plan(tutti_context *ctx, const void *untyped, bool backward, tutti__plan *plan)
{
    tutti__matmul_args args = *(const tutti__matmul_args *)untyped;
    args.a.matrix.dtype = args.b.matrix.dtype = args.dc.matrix.dtype = args.dtype;
    const tutti__gemm gemms[] = {tutti__matmul_c(&args), tutti__matmul_da(&args),
                                 tutti__matmul_db(&args)};
    for (int i = backward; i < (backward ? 3 : 1); i++) {
        const size_t bytes = tutti__host_gemm_scratch(ctx, &gemms[i]);
        plan->scratch = bytes > plan->scratch ? bytes : plan->scratch;
    }
    return TUTTI_OK;
}

static tutti_status forward(const tutti__job *job, const void *args)
{
    const tutti__gemm c = tutti__matmul_c(args);
    tutti__host_gemm(job->ctx, &c, job->scratch);
    return TUTTI_OK;
}

static tutti_status backward(const tutti__job *job, const void *untyped)
{
    const tutti__matmul_args *args = untyped;
    const tutti__gemm da = tutti__matmul_da(args), db = tutti__matmul_db(args);
    if (args->da.matrix.data) tutti__host_gemm(job->ctx, &da, job->scratch);
    if (args->db.matrix.data) tutti__host_gemm(job->ctx, &db, job->scratch);
    return TUTTI_OK;
}

const tutti__op tutti__host_matmul = {plan, forward, backward};
