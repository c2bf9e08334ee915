/* FusedLinear on the GPU: matrix products, and an elementwise pass of our own in backward.
 *
 * Forward reads x and W, writes y: 2 rows in out operations; it is a product with its epilogue.
 *
 * Backward is one pass (dy, and z or y) -> dz that also sums db's columns (3 rows out e bytes),
 * then two plain products, dx = dz W and dW = dz^T x.  With activation none dz is dy, and dx's
 * product sums its columns where it can (product.h); otherwise the pass does, in the same order.
 * With recompute z comes from a product before the pass.  db is summed in two steps of fixed order:
 * each block sums a run of rows in f32 (f64 for f64), then one kernel adds the blocks.  After the
 * pass it does so beside dx's product, if that is our own, whose last round leaves multiprocessors
 * idle.
 *
 * In two stages dx's product is the rest, unless it sums for db: a pass that reads dz for that
 * would take longer than an exchange gains.
 *
 * A call's leaves are one pass, one product for y and one for dx, whose rows have the same bits
 * whatever their number, and a batch of products for the leaves' dW. Where dW of two leaves is
 * wanted as one, the odd leaf's product adds to the even one's, and the kernel that adds partial
 * sums of db does so for both. */
#include <algorithm>

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/passes.h"
#include "kernels/cuda/product.h"
#include "ops/linear.h"

constexpr int64_t product_run = TUTTI__CUDA_PRODUCT_RUN;

/* The products of a backward's plan, the last one with recompute alone; a forward's has one. */
enum { DX, DWEIGHT, Z, PRODUCTS };

/* Scratch of a call: the products' workspace, db's partial sums, dz, z if it is computed again. */
struct scratch_layout {
    size_t partial, dz, z, total;
    int64_t dz_stride; /* padded to 16 bytes */
};

static size_t padded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static scratch_layout lay_out(const tutti__linear_args *args, bool backward)
{
    const tutti__linear_shape *shape = &args->shape;
    size_t size = tutti_dtype_size(shape->dtype);
    int64_t width = 16 / (int64_t)size;
    scratch_layout to;
    to.dz_stride = div_up(shape->out, width) * width;
    to.partial = to.dz = to.z = to.total = TUTTI__CUDA_GEMM_WORKSPACE;
    if (!backward) return to;
    const int64_t leaf_rows = shape->rows / args->leaves;
    int64_t run = column_run(leaf_rows, shape->out, shape->dtype);
    if (shape->activation.kind == TUTTI_ACT_NONE && size == 2) run = std::min(run, product_run);
    const int64_t runs = args->leaves * div_up(leaf_rows, run);
    if (args->bias) to.dz += padded((size_t)runs * (size_t)shape->out * (size < 8 ? 4 : 8));
    to.z = to.dz;
    if (shape->activation.kind != TUTTI_ACT_NONE)
        to.z += padded((size_t)shape->rows * (size_t)to.dz_stride * size);
    to.total = to.z;
    if (tutti__linear_recomputes(shape))
        to.total += padded((size_t)shape->rows * (size_t)shape->out * size);
    return to;
}

/* Whatever the strides of a call, contiguous tensors should be the fast ones. */
static tutti__linear_args contiguous(const tutti__linear_args *args)
{
    tutti__linear_args as = *args;
    as.x.stride = as.dx.stride = args->shape.in;
    as.y.stride = as.dy.stride = args->shape.out;
    as.dx.dtype = as.y.dtype = args->shape.dtype;
    return as;
}

/* The products.  Only leaves' dW is one for each leaf. */
static tutti__gemm y_of(const tutti__linear_args *args)
{
    tutti__linear_args all = *args;
    all.leaves = 1;
    tutti__gemm y = tutti__linear_y(&all);
    y.keeps = args->in_leaves ? TUTTI__GEMM_KEEPS_ROWS : TUTTI__GEMM_KEEPS_NOTHING;
    return y;
}

static tutti__gemm dx_of(const tutti__linear_args *args, const tutti__matrix *dz)
{
    tutti__linear_args all = *args;
    all.leaves = 1;
    tutti__gemm dx = tutti__linear_dx(&all, dz);
    dx.keeps = args->in_leaves ? TUTTI__GEMM_KEEPS_ROWS : TUTTI__GEMM_KEEPS_NOTHING;
    return dx;
}

static tutti__gemm dweight_of(const tutti__linear_args *args, const tutti__matrix *dz)
{
    tutti__gemm dweight = tutti__linear_dweight(args, dz);
    dweight.keeps = args->in_leaves ? TUTTI__GEMM_KEEPS_ITEMS : TUTTI__GEMM_KEEPS_NOTHING;
    return dweight;
}

/* dW of the even or the odd leaves, of which the first come first in memory. */
static tutti__gemm every_other(const tutti__gemm *dweight, bool odd)
{
    tutti__gemm half = *dweight;
    half.batch[1] /= 2;
    for (tutti__factor *factor : {&half.a, &half.b}) {
        if (odd)
            factor->in.data = tutti__cuda_at(factor->in.data, factor->in.dtype, factor->apart[1]);
        factor->apart[1] *= 2;
    }
    half.beta = odd ? 1 : dweight->beta;
    return half;
}

static tutti_status linear_plan(tutti_context *ctx, const void *untyped, bool backward,
                                tutti__plan *plan)
{
    const tutti__linear_args args = contiguous((const tutti__linear_args *)untyped);
    const tutti__linear_shape *shape = &args.shape;
    if (shape->rows == 0) return TUTTI_OK;
    TUTTI_TRY(tutti__cuda_use(ctx->device, "linear_plan"));
    const scratch_layout layout = lay_out(&args, backward);
    plan->scratch = layout.total;
    if (!backward) {
        const tutti__gemm y = y_of(&args);
        return tutti__cuda_gemm_plan(ctx, &y, 1, plan);
    }
    const bool identity = shape->activation.kind == TUTTI_ACT_NONE;
    const tutti__matrix dz = {NULL, shape->dtype, identity ? shape->out : layout.dz_stride};
    const tutti__linear_args again = tutti__linear_again(&args, NULL);
    tutti__gemm gemms[PRODUCTS] = {dx_of(&args, &dz), dweight_of(&args, &dz), y_of(&again)};
    /* partial sums are of one leaf, and a grid has a limit */
    const int64_t leaf_rows = shape->rows / args.leaves;
    if (identity && args.bias && leaf_rows <= 32768 * product_run &&
        (!args.in_leaves || leaf_rows % product_run == 0))
        gemms[DX].a_sums = (float *)(uintptr_t)256; /* wanted */
    TUTTI_TRY(
        tutti__cuda_gemm_plan(ctx, gemms, tutti__linear_recomputes(shape) ? PRODUCTS : Z, plan));
    return tutti__cuda_load_passes("linear", shape->dtype, shape->activation);
}

static tutti_status linear_forward(const tutti__job *job, const void *untyped)
{
    const tutti__linear_args *args = (const tutti__linear_args *)untyped;
    if (args->shape.rows == 0) return TUTTI_OK;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, "linear_forward"));
    const tutti__gemm y = y_of(args);
    return tutti__cuda_gemm(job->ctx, job->plan, 0, &y, job->scratch);
}

/* Gradients of leaves without rows. */
static tutti_status clear_sums(const tutti__linear_args *args, cudaStream_t stream)
{
    const tutti_dtype real = args->shape.dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    const size_t row = (size_t)args->shape.out * tutti_dtype_size(real);
    for (int leaf = 0; leaf < args->leaves && !args->accumulate; leaf++) {
        if (args->dweight && leaf % args->dweight_span == 0)
            TUTTI_CUDA(
                cudaMemsetAsync(tutti__cuda_at(args->dweight, real,
                                               leaf / args->dweight_span * args->dweight_apart),
                                0, (size_t)args->shape.in * row, stream),
                "linear_backward");
        if (args->dbias && leaf % args->dbias_span == 0)
            TUTTI_CUDA(cudaMemsetAsync(tutti__cuda_at(args->dbias, real,
                                                      leaf / args->dbias_span * args->dbias_apart),
                                       0, row, stream),
                       "linear_backward");
    }
    return TUTTI_OK;
}

/* The gradients of parameters and, if it is not left to the rest of a call, dx. */
static tutti_status begin_backward(const tutti__job *job, const tutti__linear_args *args,
                                   const scratch_layout &layout, const tutti__matrix &dz,
                                   const tutti__gemm &dx, bool with_dx)
{
    tutti_context *ctx = job->ctx;
    const tutti__linear_shape *shape = &args->shape;
    cudaStream_t stream = tutti__cuda_stream(ctx);
    char *base = (char *)job->scratch;
    const bool products = args->dx.data || args->dweight;
    tutti__matrix v = {}, written = {};
    if (shape->activation.kind != TUTTI_ACT_NONE) {
        if (products) written = dz;
        v = args->saved ? tutti__matrix{args->saved, shape->dtype, shape->out} : args->y;
    }
    if (tutti__linear_recomputes(shape) && (args->dbias || products)) {
        const tutti__linear_args again = tutti__linear_again(args, base + layout.z);
        const tutti__gemm z = y_of(&again);
        TUTTI_TRY(tutti__cuda_gemm(ctx, job->plan, Z, &z, base));
        v = again.y;
    }
    tutti__cuda_sums sums = {args->dbias,
                             args->dbias ? args->leaves : 1,
                             args->dbias ? args->dbias_span : 1,
                             args->dbias_apart,
                             args->accumulate,
                             0};
    const bool summed = dx.a_sums || args->dbias_partial;
    if (args->dbias && (args->dbias_partial || tutti__cuda_gemm_runs(job->plan, DX)))
        sums.run = product_run;
    sums.later = args->dbias && !dx.a_sums &&
                 (args->form_dx || (with_dx && tutti__cuda_gemm_is_early(job->plan, DX, &dx)));
    if ((args->dbias && !summed) || written.data)
        TUTTI_TRY(tutti__cuda_activate_backward("linear", stream, shape->rows, shape->out,
                                                shape->activation, &args->dy, &v, &written,
                                                base + layout.partial, sums));
    if (args->form_dx) TUTTI_TRY(args->form_dx(ctx, args->form_dx_args));
    if (with_dx) TUTTI_TRY(tutti__cuda_gemm(ctx, job->plan, DX, &dx, base));
    if (args->dbias && (summed || sums.later)) {
        const int64_t leaf_rows = shape->rows / args->leaves;
        const int64_t run = sums.run ? sums.run : column_run(leaf_rows, shape->out, shape->dtype);
        const float *partial =
            args->dbias_partial ? args->dbias_partial : (const float *)(base + layout.partial);
        TUTTI_TRY(tutti__cuda_add_partial("linear", stream, TUTTI_F32, partial,
                                          div_up(leaf_rows, run), shape->out, sums));
    }
    if (!args->dweight) return TUTTI_OK;
    const tutti__gemm dweight = dweight_of(args, &dz);
    if (args->dweight_span < 2) return tutti__cuda_gemm(ctx, job->plan, DWEIGHT, &dweight, base);
    const tutti__gemm even = every_other(&dweight, false), odd = every_other(&dweight, true);
    TUTTI_TRY(tutti__cuda_gemm(ctx, job->plan, DWEIGHT, &even, base));
    return tutti__cuda_gemm(ctx, job->plan, DWEIGHT, &odd, base);
}

static tutti_status linear_backward(const tutti__job *job, const void *untyped)
{
    const tutti__linear_args *args = (const tutti__linear_args *)untyped;
    const tutti__linear_shape *shape = &args->shape;
    const bool rest = job->stage == TUTTI__STAGE_REST;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, "linear_backward"));
    if (shape->rows == 0) return rest ? TUTTI_OK : clear_sums(args, tutti__cuda_stream(job->ctx));
    const scratch_layout layout = lay_out(args, true);
    char *base = (char *)job->scratch;
    const tutti__matrix dz = shape->activation.kind == TUTTI_ACT_NONE
                                 ? args->dy
                                 : tutti__matrix{base + layout.dz, shape->dtype, layout.dz_stride};
    tutti__gemm dx = dx_of(args, &dz);
    if (args->dx.data && args->dbias && tutti__cuda_gemm_sums(job->plan, DX) &&
        tutti__cuda_product_takes(&dx))
        dx.a_sums = (float *)(base + layout.partial);
    /* db wants a product that sums for it at once */
    const bool left = job->stage != TUTTI__STAGE_ALL && !dx.a_sums;
    if (rest)
        return left && args->dx.data ? tutti__cuda_gemm(job->ctx, job->plan, DX, &dx, base)
                                     : TUTTI_OK;
    return begin_backward(job, args, layout, dz, dx, args->dx.data && !left);
}

extern "C" const tutti__op tutti__cuda_linear = {linear_plan, linear_forward, linear_backward};
