/* FusedLinear on the GPU: cuBLASLt products, and elementwise passes of our own round them.
 *
 * Forward reads x and W, writes y: 2 rows in out operations.  The bias rides in the product's
 * epilogue where a trial at planning shows that it is added before y is rounded; otherwise, and
 * for f64, y is filled with it and the product is added.  relu rides along where a trial shows
 * that NaN stays NaN.  The other activations are a second pass over y (2 rows out e bytes):
 * cuBLASLt's GELU epilogue, keeping z, is no faster than that, and for the rest it has none.
 *
 * Backward is one pass (dy, and z or y) -> dz that also sums db's columns (3 rows out e bytes),
 * then two plain products, dx = dz W and dW = dz^T x.  With activation none dz is dy and the
 * pass only sums.  db is summed in two steps of fixed order: each block sums a run of rows in
 * f32 (f64 for f64), then one kernel adds the blocks.
 *
 * cuBLASLt thinks in columns: a row-major [r, c] matrix with row stride s is its c x r matrix
 * with leading dimension s.  All products are therefore written transposed:
 * y^T = W x^T, dx^T = W^T dz^T, dW^T = x^T dz.
 *
 * Algorithms are chosen when a shape is planned, among those that sum in a fixed order, so the
 * bits of a product depend on the shape and on how operands are aligned only.  Each product has two: one for operands aligned as
 * a contiguous tensor is, and one for any address and stride.  Descriptors live on the stack, a
 * call searches and allocates nothing. */
#include "kernels/cuda/linear_products.cuh"

/* Scratch of a call: the products' workspace, db's partial sums, dz. */

struct scratch_layout {
    size_t partial, dz, total;
    int64_t dz_stride; /* padded to 16 bytes */
};

static size_t padded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static scratch_layout lay_out(const tutti__linear_shape *shape, bool backward)
{
    size_t size = tutti_dtype_size(shape->dtype);
    int64_t width = 16 / (int64_t)size;
    scratch_layout to;
    to.dz_stride = div_up(shape->out, width) * width;
    to.partial = to.dz = to.total = workspace_bytes;
    if (!backward || shape->rows == 0) return to;
    int64_t runs = div_up(shape->rows, column_run(shape->rows, shape->out, shape->dtype));
    to.dz += padded((size_t)runs * (size_t)shape->out * (size < 8 ? 4 : 8));
    to.total = to.dz;
    if (shape->activation.kind != TUTTI_ACT_NONE)
        to.total += padded((size_t)shape->rows * (size_t)to.dz_stride * size);
    return to;
}

/* The context's cuBLASLt handle is its backend_data, made with the first plan on it. */

static void destroy_handle(void *data)
{
    (void)cublasLtDestroy((cublasLtHandle_t)data);
}

static tutti_status ensure_handle(tutti_context *ctx)
{
    if (ctx->backend_data) return TUTTI_OK;
    cublasLtHandle_t handle;
    TRY_CUBLAS(cublasLtCreate(&handle));
    ctx->backend_data = handle;
    ctx->backend_data_free = destroy_handle;
    return TUTTI_OK;
}

/* Entries of the table */

static void describe_product(const tutti__linear_shape *shape, int which, int64_t dz_stride,
                             product *p)
{
    *p = {};
    p->type = shape->dtype == TUTTI_F64   ? CUDA_R_64F
              : shape->dtype == TUTTI_F32 ? CUDA_R_32F
              : shape->dtype == TUTTI_F16 ? CUDA_R_16F
                                          : CUDA_R_16BF;
    p->d_type = p->type;
    p->scale_type = shape->dtype == TUTTI_F64 ? CUDA_R_64F : CUDA_R_32F;
    p->compute = shape->dtype == TUTTI_F64                        ? CUBLAS_COMPUTE_64F
                 : shape->dtype == TUTTI_F32 && shape->allow_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                  : CUBLAS_COMPUTE_32F;
    uint64_t rows = (uint64_t)shape->rows, in = (uint64_t)shape->in, out = (uint64_t)shape->out;
    if (which == DGRAD) {
        p->op_a = p->op_b = CUBLAS_OP_N;
        p->m = in, p->n = rows, p->k = out;
        p->lda = shape->in, p->ldb = dz_stride, p->ldd = shape->in;
    } else if (which == WGRAD) {
        p->op_a = CUBLAS_OP_N, p->op_b = CUBLAS_OP_T;
        p->m = in, p->n = out, p->k = rows;
        p->lda = shape->in, p->ldb = dz_stride, p->ldd = shape->in;
        p->d_type = p->scale_type;
    } else {
        p->op_a = CUBLAS_OP_T, p->op_b = CUBLAS_OP_N;
        p->m = out, p->n = rows, p->k = in;
        p->lda = shape->in, p->ldb = shape->in, p->ldd = shape->out;
        p->bias = which == FORWARD_BIAS;
    }
}

static void warn_if_rounded_early(const tutti__linear_shape *shape, const linear_products *made)
{
    const product *fused = &made->products[FORWARD_BIAS], *plain = &made->products[FORWARD];
    bool once = (fused->has[AS_PLANNED] || plain->adds[AS_PLANNED] || plain->adds[ANY]) &&
                (fused->has[ANY] || plain->adds[ANY]);
    if (!once)
        tutti__log(TUTTI_LOG_WARN,
                   "linear: cuBLASLt rounds x W^T before it adds the bias in [%lld, %lld, %lld] %s",
                   (long long)shape->rows, (long long)shape->in, (long long)shape->out,
                   tutti_dtype_name(shape->dtype));
}

static tutti_status linear_plan(tutti_context *ctx, const void *args, bool backward,
                                tutti__plan *plan)
{
    const tutti__linear_shape *shape = &((const tutti__linear_args *)args)->shape;
    if (shape->rows == 0) return TUTTI_OK;
    TUTTI_TRY(tutti__cuda_use(ctx->device, "linear_plan"));
    bool capturing;
    TUTTI_TRY(tutti__cuda_stream_capturing(ctx->device, ctx->stream, &capturing));
    if (capturing)
        return tutti__fail(TUTTI_ERR_STATE,
                           "linear: a call of %lld rows is captured before it was planned",
                           (long long)shape->rows);
    TUTTI_TRY(ensure_handle(ctx));
    scratch_layout layout = lay_out(shape, backward);
    plan->scratch = layout.total;
    void *scratch;
    TUTTI_TRY(tutti__scratch(ctx, workspace_bytes + probe_bytes, &scratch));
    TUTTI_TRY(load_kernels(shape));

    linear_products *made = (linear_products *)calloc(1, sizeof *made);
    if (!made) return tutti__fail(TUTTI_ERR_MEMORY, "linear: no memory for a plan");
    plan->data = made;
    plan->drop = free;
    int64_t dz_stride = shape->activation.kind == TUTTI_ACT_NONE ? shape->out : layout.dz_stride;
    for (int i = 0; i < PRODUCTS; i++) {
        bool forward = i == FORWARD || i == FORWARD_BIAS;
        if (forward == backward) continue;
        product *p = &made->products[i];
        describe_product(shape, i, dz_stride, p);
        /* f64 goes without epilogues: with the bias in it a product ran at half speed (29 of 57
         * TFLOP/s at 4096, 1024, 1024 on an H200) */
        bool epilogues = shape->dtype != TUTTI_F64;
        if (p->bias && !(((const tutti__linear_args *)args)->bias && epilogues)) continue;
        bool relu = shape->activation.kind == TUTTI_ACT_RELU && epilogues && forward;
        for (int alignment = 0; alignment < ALIGNMENTS; alignment++)
            TUTTI_TRY(choose_checked(ctx, p, alignment, forward, relu, (char *)scratch));
    }
    if (!backward && ((const tutti__linear_args *)args)->bias) warn_if_rounded_early(shape, made);
    return TUTTI_OK;
}

/* A tensor of one row may have any stride. */
static int64_t leading(int64_t stride, int64_t rows, int64_t cols)
{
    return rows > 1 ? stride : cols;
}

static tutti_status linear_forward(const tutti__job *job, const void *untyped)
{
    tutti_context *ctx = job->ctx;
    const tutti__linear_args *args = (const tutti__linear_args *)untyped;
    const tutti__linear_shape *shape = &args->shape;
    if (shape->rows == 0) return TUTTI_OK;
    TUTTI_TRY(tutti__cuda_use(ctx->device, "linear_forward"));
    const linear_products *chosen = (const linear_products *)job->plan->data;
    void *workspace = job->scratch;
    cudaStream_t stream = tutti__cuda_stream(ctx);

    tutti__matrix z = args->y;
    if (args->saved && keeps_z(shape->activation.kind))
        z = tutti__matrix{args->saved, shape->dtype, shape->out};
    z.stride = leading(z.stride, shape->rows, shape->out);
    operands o = {
        args->weight, shape->in, args->x.data, leading(args->x.stride, shape->rows, shape->in),
        z.data,       z.stride,  args->bias};
    const product *fused = &chosen->products[FORWARD_BIAS];
    const product *plain = &chosen->products[FORWARD];
    int with = alignment_for(fused, &o), without = alignment_for(plain, &o);
    bool activated = plain->relu[without];
    if (!args->bias)
        TUTTI_TRY(multiply(ctx, plain, without, &o, false, workspace));
    else if (aligned(args->bias) && fused->has[with] &&
             /* rather y filled first than a product for any alignment */
             (with == AS_PLANNED || without == ANY || !plain->adds[AS_PLANNED])) {
        activated = fused->relu[with];
        TUTTI_TRY(multiply(ctx, fused, with, &o, false, workspace));
    } else {
        if (!plain->adds[without] && plain->adds[ANY]) without = ANY;
        activated = plain->relu[without];
        TUTTI_TRY(fill_with_bias(stream, args, &z));
        TUTTI_TRY(multiply(ctx, plain, without, &o, true, workspace));
    }
    if (shape->activation.kind != TUTTI_ACT_NONE && !activated)
        TUTTI_TRY(apply_activation(stream, shape, &z, &args->y));
    return TUTTI_OK;
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
    const linear_products *chosen = (const linear_products *)job->plan->data;
    scratch_layout layout = lay_out(shape, true);
    char *base = (char *)job->scratch;

    bool products = args->dx.data || args->dweight,
         identity = shape->activation.kind == TUTTI_ACT_NONE;
    tutti__matrix dz = args->dy, v = {};
    dz.stride = leading(dz.stride, shape->rows, shape->out);
    tutti__matrix written = {};
    if (!identity) {
        dz = tutti__matrix{base + layout.dz, shape->dtype, layout.dz_stride};
        if (products) written = dz;
        v = args->y;
        if (keeps_z(shape->activation.kind))
            v = tutti__matrix{args->saved, shape->dtype, shape->out};
    }
    if (args->dbias || (!identity && products))
        TUTTI_TRY(compute_dz(stream, args, &v, &written, base + layout.partial));
    if (args->dx.data) {
        operands o = {args->weight, shape->in,     dz.data,
                      dz.stride,    args->dx.data, leading(args->dx.stride, shape->rows, shape->in),
                      NULL};
        const product *p = &chosen->products[DGRAD];
        TUTTI_TRY(multiply(ctx, p, alignment_for(p, &o), &o, false, base));
    }
    if (args->dweight) {
        operands o = {args->x.data,  leading(args->x.stride, shape->rows, shape->in),
                      dz.data,       dz.stride,
                      args->dweight, shape->in,
                      NULL};
        const product *p = &chosen->products[WGRAD];
        TUTTI_TRY(multiply(ctx, p, alignment_for(p, &o), &o, args->accumulate, base));
    }
    return TUTTI_OK;
}

extern "C" const tutti__op tutti__cuda_linear = {linear_plan, linear_forward, linear_backward};
