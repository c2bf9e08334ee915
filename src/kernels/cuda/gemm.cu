/* Matrix products on cuBLASLt, and elementwise passes of our own after them.
 *
 * A bias is added in the product's epilogue if a trial at planning shows that it is added before C
 * is rounded; otherwise, and for f64, C is filled with it and the product is added.  relu is in the
 * epilogue too if a trial shows that it keeps NaN.  The other activations are a second pass over C:
 * cuBLASLt's GELU epilogue, keeping z, is no faster than that, and for the rest it has none.  Where
 * product.h has a faster kernel for a product and its epilogue, that one is used.
 *
 * Algorithms are chosen among those that sum in a fixed order, so the bits of a product depend on
 * the shape and on how operands are aligned only.  Each product has two: one for operands aligned
 * as those that were planned with, and one for any address and stride.  Descriptors live on the
 * stack, a call searches and allocates nothing.
 *
 * A context that tunes takes the fastest of several algorithms instead (tune.h), among the same.
 *
 * Where bits must not depend on the number of rows or of products (tutti__gemm_keeps), the
 * algorithm is chosen for a fixed number of them and for addresses that are aligned no better than
 * rows, and sums along k in one go: with a given algorithm a row then has the same bits whatever is
 * beside it.  The first one offered is taken that can compute any number of them; of few rows the
 * first one for those, if a trial shows that it has the same bits. */
#include "kernels/cuda/gemm_algorithm.cuh"

#include <cstdlib>

#include "kernels/cuda/passes.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/tune.h"

/* A plan's data of a product. */
struct choice {
    tutti__gemm planned;
    bool own;  /* product.h's kernel, for operands that it takes */
    bool runs; /* A's columns are summed as that kernel does, by whatever does */
    candidate plain, fused;
};

constexpr int offered_most = 16; /* algorithms that are tried */

/* The context's cuBLASLt handle is made with the first plan on it. */

static void destroy_handle(void *data)
{
    (void)cublasLtDestroy((cublasLtHandle_t)data);
}

static tutti_status ensure_handle(tutti_context *ctx, const char *name)
{
    tutti__cuda_own *own = NULL;
    TUTTI_TRY(tutti__cuda_own_get(ctx, &own));
    if (own->products) return TUTTI_OK;
    cublasLtHandle_t handle;
    TRY_CUBLAS(name, cublasLtCreate(&handle));
    own->products = handle;
    own->products_free = destroy_handle;
    return TUTTI_OK;
}

static cublasLtHandle_t handle_of(const tutti_context *ctx)
{
    return (cublasLtHandle_t)((const tutti__cuda_own *)ctx->backend_data)->products;
}

/* The largest power of two up to 16 that divides a stride in bytes. */
static int64_t alignment_of(int64_t ld, tutti_dtype dtype)
{
    int64_t bytes = (ld * (int64_t)tutti_dtype_size(dtype)) | 16;
    return bytes & -bytes;
}

/* The least of a batch's matrices, where the first begins on 16 bytes; or of matrices that begin at
 * any row. */
static uint32_t matrix_alignment(const tutti__gemm *g, const tutti__matrix &matrix,
                                 const int64_t *apart)
{
    return (uint32_t)alignment_of(g->keeps ? matrix.stride : apart[0] | apart[1], matrix.dtype);
}

/* Whether the algorithm can compute this product. */
static tutti_status serves(cublasLtHandle_t handle, const tutti__gemm *g, const candidate *p,
                           int alignment, bool relu, bool *good)
{
    descriptors d;
    TUTTI_TRY(tutti__cuda_gemm_describe(g, p->bias, relu, &d));
    cublasLtMatmulHeuristicResult_t result;
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle, &d.op, &d.a, &d.b, &d.c, &d.c,
                                                          &p->algorithm[alignment], &result);
    *good = status == CUBLAS_STATUS_SUCCESS && result.state == CUBLAS_STATUS_SUCCESS &&
            result.workspaceSize <= TUTTI__CUDA_GEMM_WORKSPACE;
    return TUTTI_OK;
}

/* Sums of so few terms, in a batch, are faster in small tiles, where one is written while the next
 * is computed: dW of 8 leaves of 1024 rows, 2048 x 8192, 8 x 49 us instead of 8 x 55 of an H200,
 * and 59 instead of 72 where it adds to C. */
static bool prefers_small_tiles(const tutti__gemm *gemm)
{
    return gemm->keeps == TUTTI__GEMM_KEEPS_ITEMS && gemm->k <= 2048;
}

static bool has_small_tiles(const cublasLtMatmulAlgo_t *algorithm)
{
    int tile = 0;
    size_t written;
    return cublasLtMatmulAlgoConfigGetAttribute(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile,
                                                sizeof tile, &written) == CUBLAS_STATUS_SUCCESS &&
           (tile == CUBLASLT_MATMUL_TILE_128x128 || tile == CUBLASLT_MATMUL_TILE_128x160);
}

/* cuBLASLt's choice number `which`; *found: there is one; *usable: it can be run, which is an error
 * if the first one cannot where no bits are kept. */
static tutti_status offered(cublasLtHandle_t handle, const tutti__gemm *g, descriptors *d,
                            int which, cublasLtMatmulAlgo_t *algorithm, bool *found, bool *usable)
{
    *usable = false;
    cublasLtMatmulPreferenceOpaque_t preference;
    TRY_CUBLAS(g->name, cublasLtMatmulPreferenceInit(&preference));
    /* split sums only through the workspace, added in a second step, in an order that does not
     * depend on timing */
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (g->keeps) scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
    const size_t workspace = TUTTI__CUDA_GEMM_WORKSPACE;
    uint32_t of_a = matrix_alignment(g, g->a.in, g->a.apart);
    uint32_t of_b = matrix_alignment(g, g->b.in, g->b.apart);
    uint32_t of_c = matrix_alignment(g, g->c, g->c_apart);
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t size;
    } attributes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme, sizeof scheme},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &of_b, sizeof of_b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &of_a, sizeof of_a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &of_c, sizeof of_c},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &of_c, sizeof of_c},
    };
    for (const auto &attribute : attributes)
        TRY_CUBLAS(g->name, cublasLtMatmulPreferenceSetAttribute(&preference, attribute.name,
                                                                 attribute.value, attribute.size));
    cublasLtMatmulHeuristicResult_t results[offered_most];
    int count = 0;
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, &d->op, &d->a, &d->b, &d->c, &d->c, &preference, which + 1, results, &count);
    *found =
        status != CUBLAS_STATUS_NOT_SUPPORTED && (status != CUBLAS_STATUS_SUCCESS || count > which);
    if (!*found) return TUTTI_OK;
    TRY_CUBLAS(g->name, status);
    if (!g->keeps && which == 0) TRY_CUBLAS(g->name, results[which].state);
    *usable = results[which].state == CUBLAS_STATUS_SUCCESS;
    *algorithm = results[which].algo;
    return TUTTI_OK;
}

/* Whether an algorithm that is to keep bits can compute any number of rows or products; it is an
 * error if that is so but for the number of this call, which must not have another one. */
static tutti_status serves_all(cublasLtHandle_t handle, const tutti__gemm *g, int64_t own,
                               const candidate *p, int alignment, bool relu, bool *good)
{
    *good = true;
    for (int64_t many : {1, 2, 3, 8, 100, 256}) {
        const tutti__gemm other = tutti__cuda_gemm_of_many(g, many);
        if (*good) TUTTI_TRY(serves(handle, &other, p, alignment, relu, good));
    }
    if (!*good) return TUTTI_OK;
    const tutti__gemm this_one = tutti__cuda_gemm_of_many(g, own);
    TUTTI_TRY(serves(handle, &this_one, p, alignment, relu, good));
    if (*good) return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                       "%s: the algorithm for any number of leaves' rows in [%lld, %lld] does not "
                       "serve %lld",
                       g->name, (long long)g->k, (long long)g->n, (long long)own);
}

/* How an algorithm is chosen: for how many rows, where their bits are kept; with small tiles. */
struct way {
    bool relu, small;
    int64_t rows = usual_rows;
};

/* Sets a candidate's algorithm to cuBLASLt's choice number `which`; has[] stays false if it has
 * none.  *good: it is as wanted. */
static tutti_status choose(cublasLtHandle_t handle, const tutti__gemm *gemm, candidate *p,
                           int alignment, const way &how, int which, bool *good)
{
    const bool rows = gemm->keeps == TUTTI__GEMM_KEEPS_ROWS, relu = how.relu;
    tutti__gemm g = tutti__cuda_gemm_of_many(gemm, rows ? how.rows : 1);
    /* an odd leading dimension requests an algorithm for any leading dimension */
    if (alignment == ANY)
        for (int64_t *stride : {&g.a.in.stride, &g.b.in.stride, &g.c.stride, &g.a.apart[1],
                                &g.b.apart[1], &g.c_apart[1]})
            *stride |= 1;
    /* only the alignment of this address counts */
    g.bias = (const void *)(uintptr_t)256;
    descriptors d;
    TUTTI_TRY(tutti__cuda_gemm_describe(&g, p->bias, relu, &d));
    bool usable;
    TUTTI_TRY(
        offered(handle, &g, &d, which, &p->algorithm[alignment], &p->has[alignment], &usable));
    p->relu[alignment] = relu;
    *good = usable && (!how.small || has_small_tiles(&p->algorithm[alignment]));
    if (!*good || !g.keeps) return TUTTI_OK;
    return serves_all(handle, &g, rows ? gemm->m : gemm->batch[1], p, alignment, relu, good);
}

/* The first algorithm offered that is as wanted; where no bits are kept, cuBLASLt's first or
 * none. */
static tutti_status choose_first(tutti_context *ctx, const tutti__gemm *gemm, candidate *p,
                                 int alignment, const way &how, char *scratch, bool *good)
{
    *good = false;
    for (int which = 0; which < (gemm->keeps ? offered_most : 1) && !*good; which++) {
        TUTTI_TRY(choose(handle_of(ctx), gemm, p, alignment, how, which, good));
        if (!p->has[alignment]) break;
        if (*good) TUTTI_TRY(tutti__cuda_gemm_try(ctx, gemm, p, alignment, scratch, good));
    }
    if (!*good) p->has[alignment] = p->relu[alignment] = false;
    return TUTTI_OK;
}

/* For each alignment an algorithm with relu in its epilogue if requested and if one does it
 * correctly, otherwise one without.  None (has[] false) if cuBLASLt has no correct one. */
static tutti_status choose_checked(tutti_context *ctx, const tutti__gemm *gemm, candidate *p,
                                   bool relu, char *scratch)
{
    for (int alignment = 0; alignment < ALIGNMENTS; alignment++) {
        bool good = false;
        for (int with_relu = relu; with_relu >= 0 && !good; with_relu--)
            for (int small = prefers_small_tiles(gemm); small >= 0 && !good; small--)
                TUTTI_TRY(choose_first(ctx, gemm, p, alignment, way{with_relu > 0, small > 0},
                                       scratch, &good));
    }
    return TUTTI_OK;
}

static void warn_if_rounded_early(const tutti__gemm *gemm, const choice *made)
{
    const candidate *fused = &made->fused, *plain = &made->plain;
    bool once = (fused->has[AS_PLANNED] || plain->adds[AS_PLANNED] || plain->adds[ANY]) &&
                (fused->has[ANY] || plain->adds[ANY]);
    if (gemm->bias && !once)
        tutti__log(TUTTI_LOG_WARN,
                   "%s: cuBLASLt rounds a product before it adds the bias in [%lld, %lld, %lld] %s",
                   gemm->name, (long long)gemm->m, (long long)gemm->k, (long long)gemm->n,
                   tutti_dtype_name(gemm->a.in.dtype));
}

/* f64 uses no epilogues: with a bias in it a product ran at half speed (29 of 57 TFLOP/s at 4096,
 * 1024, 1024 on an H200) */
static bool has_epilogues(const tutti__gemm *gemm)
{
    return gemm->a.in.dtype != TUTTI_F64;
}

/* What identifies an algorithm; padding does not count. */
static uint64_t algorithm_mark(uint64_t hash, const candidate *p)
{
    static const cublasLtMatmulAlgoConfigAttributes_t attributes[] = {
        CUBLASLT_ALGO_CONFIG_ID,
        CUBLASLT_ALGO_CONFIG_TILE_ID,
        CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
        CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
        CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
        CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION,
        CUBLASLT_ALGO_CONFIG_STAGES_ID,
        CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID,
        CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID};
    const uint8_t how[] = {p->has[AS_PLANNED], p->relu[AS_PLANNED]};
    hash = tutti__hash(hash, how, sizeof how);
    for (int i = 0; p->has[AS_PLANNED] && i < (int)(sizeof attributes / sizeof *attributes); i++) {
        uint64_t value = 0;
        size_t written;
        (void)cublasLtMatmulAlgoConfigGetAttribute(&p->algorithm[AS_PLANNED], attributes[i], &value,
                                                   sizeof value, &written);
        hash = tutti__hash(hash, &value, sizeof value);
    }
    return hash;
}

/* The ways of a product, for operands as planned: way 0 is as it is chosen without a measurement,
 * then come those that cuBLASLt offers, with relu in the epilogue and without, and product.h's. */
struct product_ways final : tutti__cuda_ways {
    enum { USUAL, WITH_RELU, WITHOUT = WITH_RELU + offered_most, OWN = WITHOUT + offered_most };
    tutti_context *ctx;
    const tutti__gemm *gemm;
    char *scratch;
    choice *made, tried;
    bool can; /* product.h's kernel */

    product_ways(tutti_context *on, const tutti__gemm *of, char *with, choice *to, bool own)
        : tutti__cuda_ways{OWN + 1}, ctx(on), gemm(of), scratch(with), made(to), tried(), can(own)
    {
    }

    candidate *varied() { return gemm->bias && has_epilogues(gemm) ? &tried.fused : &tried.plain; }

    tutti_status prepare(int way, bool *there) override
    {
        tried = *made;
        *there = way == USUAL || (way == OWN && can && !made->own);
        if (way == USUAL) return TUTTI_OK;
        tried.own = way == OWN;
        const bool relu = way < WITHOUT;
        if (way == OWN ||
            (relu && !(has_epilogues(gemm) && gemm->activation.kind == TUTTI_ACT_RELU)))
            return TUTTI_OK;
        candidate *p = varied();
        const candidate usual = *p;
        TUTTI_TRY(choose(handle_of(ctx), gemm, p, AS_PLANNED, ::way{relu, false},
                         way - (relu ? WITH_RELU : WITHOUT), there));
        const bool same = !made->own && usual.has[AS_PLANNED] && usual.relu[AS_PLANNED] == relu &&
                          algorithm_mark(0, &usual) == algorithm_mark(0, p);
        *there = *there && !same;
        return TUTTI_OK;
    }
    tutti_status run(const tutti__gemm *trial) override
    {
        tutti__plan plan = {};
        plan.data = &tried;
        if (!trial->a_sums) return tutti__cuda_gemm(ctx, &plan, 0, trial, scratch);
        /* beside a pass that sums A's columns, or with one over partial sums */
        tutti__gemm g = *trial;
        const int64_t runs = (g.m + TUTTI__CUDA_PRODUCT_RUN - 1) / TUTTI__CUDA_PRODUCT_RUN;
        const tutti__cuda_sums sums = {g.a_sums + runs * g.k,  1, 1, 0, false,
                                       TUTTI__CUDA_PRODUCT_RUN};
        const tutti__matrix none = {};
        if (!tried.own) {
            TUTTI_TRY(tutti__cuda_activate_backward(g.name, tutti__cuda_stream(ctx), g.m, g.k,
                                                    g.activation, &g.a.in, &none, &none, g.a_sums,
                                                    sums));
            g.a_sums = NULL;
        }
        TUTTI_TRY(tutti__cuda_gemm(ctx, &plan, 0, &g, scratch));
        if (!tried.own) return TUTTI_OK;
        return tutti__cuda_add_partial(g.name, tutti__cuda_stream(ctx), TUTTI_F32, g.a_sums, runs,
                                       g.k, sums);
    }
    tutti_status check(int way, bool *good) override
    {
        *good = true;
        if (way == USUAL || way == OWN) return TUTTI_OK;
        return tutti__cuda_gemm_try(ctx, gemm, varied(), AS_PLANNED, scratch, good);
    }
    uint64_t mark() override
    {
        const uint64_t hash = tutti__hash(TUTTI__HASH_START, &tried.own, sizeof tried.own);
        return algorithm_mark(algorithm_mark(hash, &tried.fused), &tried.plain);
    }
    void take() override { *made = tried; }
};

tutti_status tutti__cuda_gemm_computes(tutti_context *ctx, const tutti__gemm *g, const choice *made,
                                       bool *good)
{
    const candidate *p = g->bias && has_epilogues(g) ? &made->fused : &made->plain;
    *good = made->own || p->has[AS_PLANNED];
    if (made->own || !*good) return TUTTI_OK;
    return serves(handle_of(ctx), g, p, AS_PLANNED, p->relu[AS_PLANNED], good);
}

/* Where the bits of rows are kept: the way that is the fastest for so few, if it has the same bits
 * as that of any number, with whatever computes operands that product.h's kernel does not take. */
static tutti_status choose_for_few(tutti_context *ctx, const tutti__gemm *gemm, char *scratch,
                                   choice *made)
{
    if (gemm->m >= usual_rows || gemm->k < 16) return TUTTI_OK; /* a trial needs long sums */
    choice few = *made, other = *made;
    bool can, good = false, same;
    TUTTI_TRY(tutti__cuda_product_plan(ctx->device, gemm, &can, &few.own));
    if (few.own) return TUTTI_OK; /* any number's way, or one that would have to be tried, too */
    candidate *varied = gemm->bias && has_epilogues(gemm) ? &few.fused : &few.plain;
    const bool relu = has_epilogues(gemm) && gemm->activation.kind == TUTTI_ACT_RELU;
    for (int with_relu = relu; with_relu >= 0 && !good; with_relu--)
        TUTTI_TRY(choose_first(ctx, gemm, varied, AS_PLANNED, way{with_relu > 0, false, gemm->m},
                               scratch, &good));
    if (!good) return TUTTI_OK;
    TUTTI_TRY(tutti__cuda_gemm_same_bits(ctx, gemm, made, &few, scratch, &same));
    other.own = false;
    if (same && made->own)
        TUTTI_TRY(tutti__cuda_gemm_same_bits(ctx, gemm, &other, &few, scratch, &same));
    if (same) *made = few;
    return TUTTI_OK;
}

static tutti_status choose_all(tutti_context *ctx, const tutti__gemm *gemm, char *scratch,
                               choice *made)
{
    made->planned = *gemm;
    made->fused.bias = true;
    const bool epilogues = has_epilogues(gemm);
    const bool relu = epilogues && gemm->activation.kind == TUTTI_ACT_RELU;
    if (epilogues && gemm->bias) TUTTI_TRY(choose_checked(ctx, gemm, &made->fused, relu, scratch));
    TUTTI_TRY(choose_checked(ctx, gemm, &made->plain, relu, scratch));
    warn_if_rounded_early(gemm, made);
    /* its rows have the same bits whatever their number, but not those of cuBLASLt's: where that
     * must not matter, it must not decide */
    const tutti__gemm usual =
        gemm->keeps == TUTTI__GEMM_KEEPS_ROWS ? tutti__cuda_gemm_of_many(gemm, usual_rows) : *gemm;
    bool can;
    TUTTI_TRY(tutti__cuda_product_plan(ctx->device, &usual, &can, &made->own));
    product_ways ways(ctx, gemm, scratch, made, can);
    if (!gemm->keeps) TUTTI_TRY(tutti__cuda_tune(ctx, gemm, &ways));
    made->runs = made->own && gemm->a_sums;
    TUTTI_TRY(tutti__cuda_load_passes(gemm->name, gemm->c.dtype, gemm->activation));
    return gemm->keeps == TUTTI__GEMM_KEEPS_ROWS ? choose_for_few(ctx, gemm, scratch, made)
                                                 : TUTTI_OK;
}

tutti_status tutti__cuda_gemm_plan(tutti_context *ctx, const tutti__gemm *gemms, int count,
                                   tutti__plan *plan)
{
    const char *name = gemms->name;
    bool capturing;
    TUTTI_TRY(tutti__cuda_stream_capturing(ctx->device, ctx->stream, &capturing));
    if (capturing)
        return tutti__fail(TUTTI_ERR_STATE, "%s: a call is captured before it was planned", name);
    TUTTI_TRY(ensure_handle(ctx, name));
    void *scratch;
    TUTTI_TRY(tutti__scratch(ctx, TUTTI__CUDA_GEMM_WORKSPACE + probe_bytes, &scratch));
    choice *made = (choice *)calloc((size_t)count, sizeof *made);
    if (!made) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory for a plan", name);
    plan->data = made;
    plan->drop = free;
    for (int i = 0; i < count; i++)
        TUTTI_TRY(choose_all(ctx, &gemms[i], (char *)scratch, &made[i]));
    return TUTTI_OK;
}

/* Calls */

bool tutti__cuda_gemm_sums(const tutti__plan *plan, int which)
{
    const choice *made = (const choice *)plan->data + which;
    return made->own && made->planned.a_sums;
}

bool tutti__cuda_gemm_runs(const tutti__plan *plan, int which)
{
    return ((const choice *)plan->data + which)->runs;
}

bool tutti__cuda_gemm_is_early(const tutti__plan *plan, int which, const tutti__gemm *gemm)
{
    const choice *made = (const choice *)plan->data + which;
    return made->own && !gemm->b.transposed && tutti__cuda_product_takes(gemm);
}

static bool as_planned(const tutti__gemm *planned, const tutti__matrix &now, const int64_t *apart,
                       const tutti__matrix &then, const int64_t *apart_then)
{
    const int64_t of_row = alignment_of(then.stride, now.dtype);
    if (alignment_of(now.stride, now.dtype) < of_row) return false;
    /* a batch's matrices are whole rows apart, except those of one row */
    const int64_t items = apart[1] * (int64_t)tutti_dtype_size(now.dtype);
    if (planned->keeps) return ((uintptr_t)now.data | (uintptr_t)items) % (uintptr_t)of_row == 0;
    return tutti__cuda_aligned(now.data) &&
           matrix_alignment(planned, now, apart) >= matrix_alignment(planned, now, apart_then);
}

/* The best of a candidate's algorithms that these operands allow. */
static int alignment_for(const tutti__gemm *planned, const candidate *p, const tutti__gemm *g)
{
    return p->has[AS_PLANNED] &&
                   as_planned(planned, g->a.in, g->a.apart, planned->a.in, planned->a.apart) &&
                   as_planned(planned, g->b.in, g->b.apart, planned->b.in, planned->b.apart) &&
                   as_planned(planned, g->c, g->c_apart, planned->c, planned->c_apart)
               ? AS_PLANNED
               : ANY;
}

static tutti_status multiply(tutti_context *ctx, const tutti__gemm *g, const candidate *p,
                             int alignment, void *workspace)
{
    if (!p->has[alignment])
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "%s: cuBLASLt has no algorithm for the product [%lld, %lld, %lld]",
                           g->name, (long long)g->m, (long long)g->k, (long long)g->n);
    descriptors d;
    TUTTI_TRY(tutti__cuda_gemm_describe(g, p->bias, p->relu[alignment], &d));
    TRY_CUBLAS(g->name, tutti__cuda_gemm_run(ctx, g, p, alignment, &d, workspace));
    return TUTTI_OK;
}

static void advance(tutti__matrix *matrix, int64_t elements)
{
    matrix->data = tutti__cuda_at(matrix->data, matrix->dtype, elements);
}

tutti_status tutti__cuda_gemm(tutti_context *ctx, const tutti__plan *plan, int which,
                              const tutti__gemm *gemm, void *workspace)
{
    const choice *made = (const choice *)plan->data + which;
    TUTTI_ASSERT(!gemm->a_sums || (made->own && tutti__cuda_product_takes(gemm)));
    if (made->own && tutti__cuda_product_takes(gemm)) return tutti__cuda_product(ctx, gemm);
    const tutti__gemm *planned = &made->planned;
    cudaStream_t stream = tutti__cuda_stream(ctx);
    tutti__gemm g = *gemm; /* without the passes */
    if (g.z) g.c = tutti__matrix{g.z, g.c.dtype, g.n};
    /* a matrix of one row may have any stride */
    if ((g.a.transposed ? g.k : g.m) == 1) g.a.in.stride = planned->a.in.stride;
    if ((g.b.transposed ? g.n : g.k) == 1) g.b.in.stride = planned->b.in.stride;
    if (g.m == 1) g.c.stride = planned->c.stride;

    const tutti__matrix z = g.c;
    const candidate *fused = &made->fused, *plain = &made->plain, *chosen = plain;
    int with = alignment_for(planned, fused, &g), alignment = alignment_for(planned, plain, &g);
    if (g.bias) {
        if (tutti__cuda_aligned(g.bias) && fused->has[with] &&
            /* filling C first is preferred to a product for any alignment */
            (with == AS_PLANNED || alignment == ANY || !plain->adds[AS_PLANNED])) {
            chosen = fused;
            alignment = with;
        } else {
            if (!plain->adds[alignment] && plain->adds[ANY]) alignment = ANY;
            TUTTI_TRY(tutti__cuda_fill_rows(g.name, stream, g.m, g.n, g.bias, &g.c));
            g.beta = 1;
        }
    }
    for (int64_t i = 0; i < g.batch[0]; i++) {
        TUTTI_TRY(multiply(ctx, &g, chosen, alignment, workspace));
        advance(&g.a.in, g.a.apart[0]);
        advance(&g.b.in, g.b.apart[0]);
        advance(&g.c, g.c_apart[0]);
    }
    if (g.activation.kind == TUTTI_ACT_NONE || chosen->relu[alignment]) return TUTTI_OK;
    return tutti__cuda_activate(g.name, stream, g.m, g.n, g.activation, &z, &gemm->c);
}
