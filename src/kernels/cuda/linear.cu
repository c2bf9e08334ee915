/* FusedLinear on the GPU: matrix products, and an elementwise pass of our own in backward.
 *
 * Forward reads x and W, writes y: 2 rows in out operations; it is a product with its epilogue.
 *
 * Backward is one pass (dy, and z or y) -> dz that also sums db's columns (3 rows out e bytes),
 * then two plain products, dx = dz W and dW = dz^T x.  With activation none dz is dy and the
 * pass only sums.  db is summed in two steps of fixed order: each block sums a run of rows in
 * f32 (f64 for f64), then one kernel adds the blocks. */
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/passes.h"
#include "ops/linear.h"

/* The products of a backward's plan; a forward's has one. */
enum { DX, DWEIGHT };

/* Scratch of a call: the products' workspace, db's partial sums, dz. */
struct scratch_layout {
    size_t partial, dz, total;
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
    to.partial = to.dz = to.total = TUTTI__CUDA_GEMM_WORKSPACE;
    if (!backward) return to;
    int64_t runs = div_up(shape->rows, column_run(shape->rows, shape->out, shape->dtype));
    if (args->bias) to.dz += padded((size_t)runs * (size_t)shape->out * (size < 8 ? 4 : 8));
    to.total = to.dz;
    if (shape->activation.kind != TUTTI_ACT_NONE)
        to.total += padded((size_t)shape->rows * (size_t)to.dz_stride * size);
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
        const tutti__gemm y = tutti__linear_y(&args);
        return tutti__cuda_gemm_plan(ctx, &y, 1, plan);
    }
    const bool identity = shape->activation.kind == TUTTI_ACT_NONE;
    const tutti__matrix dz = {NULL, shape->dtype, identity ? shape->out : layout.dz_stride};
    const tutti__gemm gemms[] = {tutti__linear_dx(&args, &dz), tutti__linear_dweight(&args, &dz)};
    TUTTI_TRY(tutti__cuda_gemm_plan(ctx, gemms, 2, plan));
    return tutti__cuda_load_passes("linear", shape->dtype, shape->activation);
}

static tutti_status linear_forward(const tutti__job *job, const void *untyped)
{
    const tutti__linear_args *args = (const tutti__linear_args *)untyped;
    if (args->shape.rows == 0) return TUTTI_OK;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, "linear_forward"));
    const tutti__gemm y = tutti__linear_y(args);
    return tutti__cuda_gemm(job->ctx, job->plan, 0, &y, job->scratch);
}

static tutti_status linear_backward(const tutti__job *job, const void *untyped)
{
    tutti_context *ctx = job->ctx;
    const tutti__linear_args *args = (const tutti__linear_args *)untyped;
    const tutti__linear_shape *shape = &args->shape;
    TUTTI_TRY(tutti__cuda_use(ctx->device, "linear_backward"));
    cudaStream_t stream = tutti__cuda_stream(ctx);
    if (shape->rows == 0) {
        size_t size = shape->dtype == TUTTI_F64 ? 8 : 4;
        if (args->dweight && !args->accumulate)
            TUTTI_CUDA(cudaMemsetAsync(args->dweight, 0,
                                       (size_t)shape->in * (size_t)shape->out * size, stream),
                       "linear_backward");
        if (args->dbias && !args->accumulate)
            TUTTI_CUDA(cudaMemsetAsync(args->dbias, 0, (size_t)shape->out * size, stream),
                       "linear_backward");
        return TUTTI_OK;
    }
    const scratch_layout layout = lay_out(args, true);
    char *base = (char *)job->scratch;

    const bool products = args->dx.data || args->dweight;
    tutti__matrix dz = args->dy, v = {}, written = {};
    if (shape->activation.kind != TUTTI_ACT_NONE) {
        dz = tutti__matrix{base + layout.dz, shape->dtype, layout.dz_stride};
        if (products) written = dz;
        v = args->saved ? tutti__matrix{args->saved, shape->dtype, shape->out} : args->y;
    }
    if (args->dbias || written.data)
        TUTTI_TRY(tutti__cuda_activate_backward(
            "linear", stream, shape->rows, shape->out, shape->activation, &args->dy, &v, &written,
            base + layout.partial, args->dbias, args->accumulate));
    if (args->dx.data) {
        const tutti__gemm dx = tutti__linear_dx(args, &dz);
        TUTTI_TRY(tutti__cuda_gemm(ctx, job->plan, DX, &dx, base));
    }
    if (args->dweight) {
        const tutti__gemm dweight = tutti__linear_dweight(args, &dz);
        TUTTI_TRY(tutti__cuda_gemm(ctx, job->plan, DWEIGHT, &dweight, base));
    }
    return TUTTI_OK;
}

extern "C" const tutti__op tutti__cuda_linear = {linear_plan, linear_forward, linear_backward};
