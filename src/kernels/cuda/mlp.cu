/* MLP: two calls of FusedLinear; in backward, where product.h has a kernel for it, the product for
 * dh forms dz and sums its columns, so that what is left of up's call is its products.  The second
 * steps of both sums run beside products: db2's beside that one, db1's beside dx's. */
#include "ops/mlp.h"

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/passes.h"
#include "kernels/cuda/product.h"

/* dh = dy W2, of all leaves, to where dz is wanted. */
static tutti__gemm dh_of(const tutti__mlp_args *args)
{
    tutti__linear_args all = args->down;
    all.leaves = 1;
    all.dx = args->up.dy;
    return tutti__linear_dx(&all, &args->down.dy);
}

static int64_t partial_rows(int64_t rows)
{
    return (rows + TUTTI__CUDA_PRODUCT_RUN - 1) / TUTTI__CUDA_PRODUCT_RUN;
}

static tutti__matrix v_of(const tutti__linear_args *up)
{
    return up->saved ? tutti__matrix{up->saved, up->shape.dtype, up->shape.out} : up->y;
}

static bool forms_dz(const tutti__mlp_args *args)
{
    const tutti__gemm dh = dh_of(args);
    const tutti__matrix v = v_of(&args->up);
    return args->up.shape.rows > 0 && tutti__cuda_product_slope_takes(&dh, &v);
}

static tutti_status form_dz(tutti_context *ctx, const void *untyped)
{
    const tutti__mlp_args *args = (const tutti__mlp_args *)untyped;
    const tutti__linear_args *up = &args->up;
    const tutti__gemm dh = dh_of(args);
    const tutti__matrix v = v_of(up);
    return tutti__cuda_product_slope(ctx, &dh, up->shape.activation, &v,
                                     up->dbias ? up->dbias_partial : NULL);
}

static tutti_status mlp_plan(tutti_context *ctx, const void *untyped, bool backward,
                             tutti__plan *plan)
{
    TUTTI_TRY(tutti__mlp_plan(ctx, untyped, backward, plan));
    tutti__mlp_args args = *(const tutti__mlp_args *)untyped;
    tutti__linear_shape *shape = &args.down.shape;
    const int64_t rows = shape->rows;
    /* partial sums are of one leaf */
    if (!backward || rows == 0 ||
        (args.up.in_leaves && rows / args.up.leaves % TUTTI__CUDA_PRODUCT_RUN != 0))
        return TUTTI_OK;
    /* as linear.cu has it: bits of leaves must not depend on how many rows a call has */
    if (args.up.in_leaves) shape->rows = TUTTI__CUDA_GEMM_USUAL_ROWS;
    args.up.dy.dtype = shape->dtype;
    const tutti__gemm dh = dh_of(&args);
    bool better;
    TUTTI_TRY(
        tutti__cuda_product_slope_plan(ctx->device, &dh, args.up.shape.activation.kind, &better));
    if (!better) return TUTTI_OK;
    tutti__mlp_plans *plans = (tutti__mlp_plans *)plan->data;
    plans->forms_dz = forms_dz;
    plans->form_dz = form_dz;
    plans->partial = plan->scratch;
    plan->scratch += (size_t)(partial_rows(rows) * shape->in) * sizeof(float);
    return TUTTI_OK;
}

extern "C" const tutti__op tutti__cuda_mlp = {mlp_plan, tutti__mlp_forward, tutti__mlp_backward};
