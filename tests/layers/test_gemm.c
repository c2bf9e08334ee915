/* Tests of the backends' gemm itself: all transposes, batches of any strides, alpha and beta; no
 * layer uses all of them.  All numbers are small integers or halves, exact in every type, so
 * results must be exact too.  Its epilogue is tested with FusedLinear, and here for products so
 * large that a GPU may have a kernel of its own for them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "core/context.h"
#include "kernels/host/gemm.h"
#include "reference/activations.h"
#ifdef TESTS_WITH_CUDA
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/product.h"
#endif

typedef struct problem {
    int64_t m, n, k, batch[2];
    bool ta, tb;
    tutti_dtype dtype, c_dtype;
    double alpha, beta;
} problem;

/* A matrix [rows, cols] of each product: those along batch[1] lie side by side, as heads do, those
 * along batch[0] one below another. */
static harness_buffer batch_make(tutti_context *ctx, harness_rng *rng, const problem *p,
                                 tutti_dtype dtype, int64_t rows, int64_t cols, int pad,
                                 double **values)
{
    const int64_t high = p->batch[0] * rows, wide = p->batch[1] * cols;
    harness_buffer buffer = harness_buffer_make(ctx, dtype, high, wide, wide + pad, pad);
    *values = harness_calloc((size_t)(high * wide), sizeof(double));
    for (int64_t i = 0; i < high * wide; i++) (*values)[i] = (double)(harness_random(rng) % 3) - 1;
    harness_buffer_put(ctx, &buffer, *values);
    return buffer;
}

static int64_t place(const problem *p, const int64_t *batch, int64_t rows, int64_t cols,
                     int64_t row, int64_t col)
{
    return (batch[0] * rows + row) * p->batch[1] * cols + batch[1] * cols + col;
}

/* c becomes the expected result */
static void reference(const problem *p, const double *a, const double *b, double *c)
{
    int64_t at[2];
    for (at[0] = 0; at[0] < p->batch[0]; at[0]++)
        for (at[1] = 0; at[1] < p->batch[1]; at[1]++)
            for (int64_t i = 0; i < p->m; i++)
                for (int64_t j = 0; j < p->n; j++) {
                    double sum = 0;
                    for (int64_t l = 0; l < p->k; l++)
                        sum += a[p->ta ? place(p, at, p->k, p->m, l, i)
                                       : place(p, at, p->m, p->k, i, l)] *
                               b[p->tb ? place(p, at, p->n, p->k, j, l)
                                       : place(p, at, p->k, p->n, l, j)];
                    double *to = &c[place(p, at, p->m, p->n, i, j)];
                    *to = p->alpha * sum + p->beta * *to;
                }
}

static tutti__matrix matrix_of(const harness_buffer *buffer, int pad)
{
    return (tutti__matrix){buffer->data, buffer->dtype, buffer->stride - pad};
}

/* With the buffers' strides, or (pad) as if without gaps. */
static tutti__gemm gemm_of(const problem *p, const harness_buffer *a, const harness_buffer *b,
                           const harness_buffer *c, int pad)
{
    const tutti__matrix in_a = matrix_of(a, pad), in_b = matrix_of(b, pad),
                        in_c = matrix_of(c, pad);
    tutti__gemm gemm = tutti__gemm_of("gemm", p->m, p->n, p->k, &in_a, p->ta, &in_b, p->tb, &in_c);
    gemm.alpha = p->alpha;
    gemm.beta = p->beta;
    gemm.a.apart[1] = p->ta ? p->m : p->k;
    gemm.b.apart[1] = p->tb ? p->k : p->n;
    gemm.c_apart[1] = p->n;
    gemm.a.apart[0] = (p->ta ? p->k : p->m) * gemm.a.in.stride;
    gemm.b.apart[0] = (p->tb ? p->n : p->k) * gemm.b.in.stride;
    gemm.c_apart[0] = p->m * gemm.c.stride;
    gemm.batch[0] = p->batch[0];
    gemm.batch[1] = p->batch[1];
    return gemm;
}

static void run(tutti_context *ctx, const tutti__gemm *planned, const tutti__gemm *gemm)
{
    void *scratch;
#ifdef TESTS_WITH_CUDA
    if (harness_backend() == TUTTI_BACKEND_CUDA) {
        tutti__plan plan = {0};
        CHECK_OK(tutti__cuda_gemm_plan(ctx, planned, 1, &plan));
        CHECK_OK(tutti__scratch(ctx, TUTTI__CUDA_GEMM_WORKSPACE, &scratch));
        CHECK_OK(tutti__cuda_gemm(ctx, &plan, 0, gemm, scratch));
        plan.drop(plan.data);
        return;
    }
#endif
    CHECK_OK(tutti__scratch(ctx, tutti__host_gemm_scratch(ctx, planned), &scratch));
    tutti__host_gemm(ctx, gemm, scratch);
}

static void check(const problem *p, int pad)
{
    tutti_context *ctx = harness_context();
    harness_rng rng = {11};
    double *a_values, *b_values, *want;
    harness_buffer a = batch_make(ctx, &rng, p, p->dtype, p->ta ? p->k : p->m, p->ta ? p->m : p->k,
                                  pad, &a_values);
    harness_buffer b = batch_make(ctx, &rng, p, p->dtype, p->tb ? p->n : p->k, p->tb ? p->k : p->n,
                                  pad, &b_values);
    harness_buffer c = batch_make(ctx, &rng, p, p->c_dtype, p->m, p->n, pad, &want);
    const int64_t count = p->batch[0] * p->m * p->batch[1] * p->n;
    double *got = harness_calloc((size_t)count, sizeof *got);
    double *exact = harness_calloc((size_t)count, sizeof *exact);
    harness_where("%s %s, [%lld x %lld] of [%lld, %lld, %lld]%s%s, alpha %g, beta %g, pad %d",
                  tutti_dtype_name(p->dtype), tutti_dtype_name(p->c_dtype), (long long)p->batch[0],
                  (long long)p->batch[1], (long long)p->m, (long long)p->n, (long long)p->k,
                  p->ta ? ", A transposed" : "", p->tb ? ", B transposed" : "", p->alpha, p->beta,
                  pad);
    if (p->beta == 0) harness_buffer_poison(ctx, &c); /* and is not read */
    reference(p, a_values, b_values, want);
    const tutti__gemm planned = gemm_of(p, &a, &b, &c, pad), gemm = gemm_of(p, &a, &b, &c, 0);
    run(ctx, &planned, &gemm);
    harness_buffer_get(ctx, &c, got);
    CHECK_CLOSE("c", got, want, exact, count);
    CHECK(harness_buffer_intact(ctx, &c), "memory around c was written");
    harness_where(NULL);
    harness_buffer_free(ctx, &a);
    harness_buffer_free(ctx, &b);
    harness_buffer_free(ctx, &c);
    free(a_values);
    free(b_values);
    free(want);
    free(got);
    free(exact);
}

static void each(const int64_t batch[2])
{
    static const int64_t shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {16, 32, 64}, {130, 257, 33}};
    for (int i = 0; i < 4 * 4 * 4 && harness_failures() == 0; i++) {
        const int64_t *shape = shapes[i / 16];
        problem p = {.m = shape[0],
                     .n = shape[1],
                     .k = shape[2],
                     .batch = {batch[0], batch[1]},
                     .ta = i & 1,
                     .tb = i & 2,
                     .dtype = float_dtypes[i / 4 % 4],
                     .alpha = 2};
        p.c_dtype = p.dtype;
        check(&p, 0);
        p.beta = 0.5;
        p.c_dtype = p.dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
        check(&p, 3);
    }
}

static void test_single(void)
{
    each((int64_t[]){1, 1});
}
static void test_batch(void)
{
    each((int64_t[]){1, 3});
    each((int64_t[]){2, 3});
}

/* z = A B^T + bias and y = act(z).  The rows of A repeat, all but one, which has a NaN: the first
 * ones are compared with z from the definition, the others with them. */
enum { PERIOD = 37, NAN_ROW = 3001 };

typedef struct epilogue {
    problem p;
    tutti_context *ctx;
    harness_buffer a, b, bias, y, z;
    double *a_values, *b_values, *bias_values, *y_values, *z_values;
} epilogue;

static harness_buffer drawn(const epilogue *e, harness_rng *rng, int64_t rows, int64_t cols,
                            double **values)
{
    const problem one = {.batch = {1, 1}};
    return batch_make(e->ctx, rng, &one, e->p.dtype, rows, cols, 0, values);
}

static epilogue epilogue_make(const problem *p)
{
    epilogue e = {.p = *p, .ctx = harness_context()};
    harness_rng rng = {5};
    e.a = drawn(&e, &rng, p->m, p->k, &e.a_values);
    e.b = drawn(&e, &rng, p->n, p->k, &e.b_values);
    e.bias = drawn(&e, &rng, 1, p->n, &e.bias_values);
    /* with room to lie 2 bytes on */
    e.y = drawn(&e, &rng, p->m + 1, p->n, &e.y_values);
    e.z = drawn(&e, &rng, p->m + 1, p->n, &e.z_values);
    for (int64_t i = PERIOD * p->k; i < p->m * p->k; i++)
        e.a_values[i] = e.a_values[i - PERIOD * p->k];
    if (p->m > NAN_ROW) e.a_values[NAN_ROW * p->k + 9] = NAN;
    harness_buffer_put(e.ctx, &e.a, e.a_values);
    return e;
}

static void epilogue_free(epilogue *e)
{
    harness_buffer *buffers[] = {&e->a, &e->b, &e->bias, &e->y, &e->z};
    double *values[] = {e->a_values, e->b_values, e->bias_values, e->y_values, e->z_values};
    for (int i = 0; i < HARNESS_COUNT(buffers); i++) {
        harness_buffer_free(e->ctx, buffers[i]);
        free(values[i]);
    }
}

/* The first rows, with y as it should lie, or `apart` elements further. */
static void epilogue_run(epilogue *e, int64_t rows, tutti__activation activation, bool bias,
                         bool keeps_z, int64_t apart)
{
    const problem *p = &e->p;
    const int64_t bytes = apart * (int64_t)tutti_dtype_size(p->dtype);
    const tutti__matrix a = matrix_of(&e->a, 0), b = matrix_of(&e->b, 0),
                        y = {(char *)e->y.data + bytes, p->dtype, p->n};
    tutti__gemm planned = tutti__gemm_of("gemm", rows, p->n, p->k, &a, false, &b, true, &y), gemm;
    planned.bias = bias ? e->bias.data : NULL;
    planned.z = keeps_z ? e->z.data : NULL;
    planned.activation = activation;
    gemm = planned;
    planned.c.data = e->y.data;
    harness_buffer_poison(e->ctx, &e->y);
    harness_buffer_poison(e->ctx, &e->z);
    run(e->ctx, &planned, &gemm);
    harness_buffer_get(e->ctx, &e->y, e->y_values);
    harness_buffer_get(e->ctx, &e->z, e->z_values);
    memmove(e->y_values, e->y_values + apart, (size_t)(rows * p->n) * sizeof(double));
}

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* The activations for which z is not kept. */
static double act_of(tutti__activation activation, double z)
{
    switch (activation.kind) {
    case TUTTI_ACT_RELU:
        return z < 0 ? 0 : z;
    case TUTTI_ACT_LEAKY_RELU:
        return z > 0 ? z : activation.slope * z;
    case TUTTI_ACT_SQUARED_RELU:
        return z < 0 ? 0 : z * z;
    default:
        return z;
    }
}

/* act(z), or z if that is kept */
static void check_values(const epilogue *e, const double *got, tutti__activation activation,
                         bool bias)
{
    const problem *p = &e->p;
    for (int64_t i = 0; i < p->m * p->n && harness_failures() == 0; i++) {
        const int64_t row = i / p->n, col = i % p->n;
        double want = row == NAN_ROW ? NAN : row >= PERIOD ? got[i - PERIOD * p->n] : 0;
        if (row == NAN_ROW + PERIOD) want = got[i - 2 * PERIOD * p->n];
        if (row < PERIOD) {
            for (int64_t l = 0; l < p->k; l++)
                want += e->a_values[row * p->k + l] * e->b_values[col * p->k + l];
            want = act_of(activation, want + (bias ? e->bias_values[col] : 0));
            want = harness_round(p->dtype, want);
        }
        CHECK(same(got[i], want), "[%lld, %lld] is %g, want %g", (long long)row, (long long)col,
              got[i], want);
    }
}

static void test_epilogue(void)
{
#define KIND(name, text, from) TUTTI_ACT_##name,
    static const tutti_activation kinds[] = {TUTTI_ACTIVATION_LIST(KIND)};
#undef KIND
    /* ways to the same bits; another address asks for another kernel, which agrees on z here */
    static const struct {
        bool keeps_z, fewer;
        int64_t apart;
        const char *text;
    } ways[] = {{false, false, 0, "without z"},
                {true, true, 0, "of fewer rows"},
                {true, false, 1, "at another address"}};
    const bool large = harness_backend() == TUTTI_BACKEND_CUDA;
    for (int type = 0; type < 4; type++) {
        const problem p = {.m = large ? 4591 : 131,
                           .n = large ? 1560 : 24,
                           .k = large ? 1032 : 40,
                           .dtype = float_dtypes[type]};
        if (large && tutti_dtype_size(p.dtype) > 2) continue; /* no such kernels */
        epilogue e = epilogue_make(&p);
        double *y = harness_calloc((size_t)(p.m * p.n), sizeof *y);
        for (int i = 0; i < HARNESS_COUNT(kinds); i++) {
            if (large && (i % 2 != type % 2 || (harness_quick() && i > 4))) continue;
            const tutti__activation activation = {kinds[i], 0.5, 0.75, 1.5, -0.25};
            const bool bias = i % 3 != 1;
            harness_where("%s, activation %d", tutti_dtype_name(p.dtype), i);
            const bool keeps_z = tutti__activation_wants_z(kinds[i]);
            epilogue_run(&e, p.m, activation, bias, keeps_z, 0);
            check_values(&e, keeps_z ? e.z_values : e.y_values, activation, bias);
            memcpy(y, e.y_values, (size_t)(p.m * p.n) * sizeof *y);
            for (int way = 0; way < HARNESS_COUNT(ways); way++) {
                const int64_t rows = ways[way].fewer ? p.m - p.m / 23 : p.m;
                epilogue_run(&e, rows, activation, bias, ways[way].keeps_z && keeps_z,
                             ways[way].apart);
                for (int64_t j = 0; j < rows * p.n && harness_failures() == 0; j++)
                    CHECK(same(e.y_values[j], y[j]), "y[%lld, %lld] is %.9g, but %.9g %s",
                          (long long)(j / p.n), (long long)(j % p.n), y[j], e.y_values[j],
                          ways[way].text);
            }
        }
        harness_where(NULL);
        free(y);
        epilogue_free(&e);
    }
}

#ifdef TESTS_WITH_CUDA
/* dz = (A B, rounded) act'(v) in one kernel, and its column sums: beside the product, which the
 * epilogue's z gets, the definition of act', and the sums of what was written. */
static void check_dz(const epilogue *e, const activation *act, const double *v)
{
    const problem *p = &e->p;
    const double ulp = p->dtype == TUTTI_F16 ? 0x1p-10 : 0x1p-7;
    for (int64_t i = 0; i < p->m * p->n && harness_failures() == 0; i++) {
        const int64_t row = i / p->n;
        if (row >= 130 && row < p->m - 130 && i % 11 > 0) continue; /* takes long */
        const double dh = e->z_values[i];
        const inexact at = {.value = v[i]};
        const double want = (double)activation_gradient(act, at, &v[i], dh).value;
        CHECK(same(e->y_values[i], want) ||
                  fabs(e->y_values[i] - want) <= ulp * fabs(want) + 1e-5 * fabs(dh),
              "[%lld, %lld] is %.9g, want %.9g", (long long)row, (long long)(i % p->n),
              e->y_values[i], want);
    }
}

/* Sums of runs of rows of [m, n], which may have been added before they were rounded. */
static void check_partial(const problem *p, int64_t n, const double *values, const double *partial)
{
    const double ulp = p->dtype == TUTTI_F16 ? 0x1p-10 : 0x1p-7;
    double *sum = harness_calloc((size_t)n, sizeof *sum);
    double *size = harness_calloc((size_t)n, sizeof *size);
    for (int64_t row = 0; row < p->m; row++) {
        const double *dz = &values[row * n];
        const int64_t run = row / TUTTI__CUDA_PRODUCT_RUN;
        const bool first = row % TUTTI__CUDA_PRODUCT_RUN == 0;
        const bool last = row + 1 == p->m || (row + 1) % TUTTI__CUDA_PRODUCT_RUN == 0;
        for (int64_t col = 0; col < n && harness_failures() == 0; col++) {
            sum[col] = (first ? 0 : sum[col]) + dz[col];
            size[col] = (first ? 0 : size[col]) + fabs(dz[col]);
            const double got = partial[run * n + col];
            CHECK(!last || same(got, sum[col]) || fabs(got - sum[col]) <= ulp * size[col],
                  "the sum of column %lld of run %lld is %.9g, want %.9g", (long long)col,
                  (long long)run, got, sum[col]);
        }
    }
    free(sum);
    free(size);
}

static void slope_check(epilogue *e, const harness_buffer *v, const double *v_values,
                        const activation *act, tutti__activation kind)
{
    const problem *p = &e->p;
    tutti_context *ctx = e->ctx;
    const int64_t runs = (p->m + TUTTI__CUDA_PRODUCT_RUN - 1) / TUTTI__CUDA_PRODUCT_RUN;
    const tutti__matrix a = matrix_of(&e->a, 0), b = {e->b.data, p->dtype, p->n}; /* as [k, n] */
    const tutti__matrix at = matrix_of(v, 0), dh = matrix_of(&e->z, 0), dz = matrix_of(&e->y, 0);
    harness_buffer partial = harness_buffer_make(ctx, TUTTI_F32, runs, p->n, p->n, 0);
    double *sums = harness_calloc((size_t)(runs * p->n), sizeof *sums);
    bool better = false;
    tutti__gemm gemm = tutti__gemm_of("gemm", p->m, p->n, p->k, &a, false, &b, false, &dh);
    harness_buffer_poison(ctx, &e->y);
    harness_buffer_poison(ctx, &partial);
    run(ctx, &gemm, &gemm);
    gemm.c = dz;
    CHECK_OK(tutti__cuda_product_slope_plan(ctx->device, &gemm, kind.kind, &better));
    if (!better) {
        harness_skip("the GPU has no such kernel");
    } else if (CHECK(tutti__cuda_product_slope_takes(&gemm, &at), "the operands are not taken")) {
        CHECK_OK(tutti__cuda_product_slope(ctx, &gemm, kind, &at, partial.data));
        harness_buffer_get(ctx, &e->y, e->y_values);
        harness_buffer_get(ctx, &e->z, e->z_values);
        harness_buffer_get(ctx, &partial, sums);
        check_dz(e, act, v_values);
        check_partial(p, p->n, e->y_values, sums);
        CHECK(harness_buffer_intact(ctx, &e->y) && harness_buffer_intact(ctx, &partial),
              "memory around results was written");
    }
    harness_buffer_free(ctx, &partial);
    free(sums);
}

/* C = A B, [k, n], in the library's kernel beside cuBLASLt's, and the sums of A's columns. */
static void sums_check(epilogue *e)
{
    const problem *p = &e->p;
    tutti_context *ctx = e->ctx;
    const int64_t runs = (p->m + TUTTI__CUDA_PRODUCT_RUN - 1) / TUTTI__CUDA_PRODUCT_RUN;
    const tutti__matrix a = matrix_of(&e->a, 0), b = {e->b.data, p->dtype, p->n};
    const tutti__matrix c = matrix_of(&e->y, 0);
    harness_buffer partial = harness_buffer_make(ctx, TUTTI_F32, runs, p->k, p->k, 0);
    double *sums = harness_calloc((size_t)(runs * p->k), sizeof *sums);
    tutti__gemm gemm = tutti__gemm_of("gemm", p->m, p->n, p->k, &a, false, &b, false, &c), other;
    gemm.a_sums = partial.data;
    tutti__plan plan = {0};
    void *workspace;
    harness_buffer_poison(ctx, &e->y);
    harness_buffer_poison(ctx, &e->z);
    harness_buffer_poison(ctx, &partial);
    CHECK_OK(tutti__cuda_gemm_plan(ctx, &gemm, 1, &plan));
    CHECK_OK(tutti__scratch(ctx, TUTTI__CUDA_GEMM_WORKSPACE, &workspace));
    other = gemm;
    other.a_sums = NULL;
    other.c.data = (char *)e->z.data + tutti_dtype_size(p->dtype); /* not for this kernel */
    if (!tutti__cuda_gemm_sums(&plan, 0)) {
        if (!ctx->tunes) harness_skip("the GPU has no such kernel");
    } else if (CHECK(tutti__cuda_product_takes(&gemm), "the operands are not taken") &&
               CHECK(!tutti__cuda_product_takes(&other), "the kernel takes any address")) {
        CHECK_OK(tutti__cuda_gemm(ctx, &plan, 0, &gemm, workspace));
        CHECK_OK(tutti__cuda_gemm(ctx, &plan, 0, &other, workspace));
        harness_buffer_get(ctx, &e->y, e->y_values);
        harness_buffer_get(ctx, &e->z, e->z_values);
        harness_buffer_get(ctx, &partial, sums);
        for (int64_t i = 0; i < p->m * p->n && harness_failures() == 0; i++)
            CHECK(same(e->y_values[i], e->z_values[i + 1]), "[%lld, %lld] is %.9g, want %.9g",
                  (long long)(i / p->n), (long long)(i % p->n), e->y_values[i], e->z_values[i + 1]);
        check_partial(p, p->k, e->a_values, sums);
        CHECK(harness_buffer_intact(ctx, &e->y) && harness_buffer_intact(ctx, &partial),
              "memory around results was written");
    }
    plan.drop(plan.data);
    harness_buffer_free(ctx, &partial);
    free(sums);
}

/* What the library's own kernels take; skipped where there are none. */
static const tutti_dtype own_dtypes[] = {TUTTI_F16, TUTTI_BF16};
static problem own_problem(tutti_dtype dtype)
{
    return (problem){.m = 4591, .n = 1560, .k = 1032, .dtype = dtype};
}
static bool has_own_kernels(void)
{
    if (harness_backend() == TUTTI_BACKEND_CUDA) return true;
    harness_skip("for kernels of the GPU's");
    return false;
}

static void test_sums(void)
{
    if (!has_own_kernels()) return;
    for (int type = 0; type < HARNESS_COUNT(own_dtypes); type++) {
        const problem p = own_problem(own_dtypes[type]);
        if (harness_quick() && p.dtype != TUTTI_BF16) continue;
        harness_where("%s", tutti_dtype_name(p.dtype));
        epilogue e = epilogue_make(&p);
        sums_check(&e);
        epilogue_free(&e);
        harness_where(NULL);
    }
}

static void test_slope(void)
{
#define KIND(name, text, from) TUTTI_ACT_##name,
    static const tutti_activation kinds[] = {TUTTI_ACTIVATION_LIST(KIND)};
#undef KIND
    if (!has_own_kernels()) return;
    for (int type = 0; type < HARNESS_COUNT(own_dtypes); type++) {
        const problem p = own_problem(own_dtypes[type]);
        epilogue e = epilogue_make(&p);
        harness_rng rng = {7};
        double *values = harness_calloc((size_t)(p.m * p.n), sizeof *values);
        harness_buffer v =
            harness_buffer_make(e.ctx, p.dtype, p.m, p.n, p.n + 8, 8); /* rows are apart */
        for (int i = 0; i < HARNESS_COUNT(kinds); i++) {
            if (kinds[i] == TUTTI_ACT_NONE) continue;
            if (harness_quick() && (kinds[i] != TUTTI_ACT_GELU || p.dtype != TUTTI_BF16)) continue;
            const bool positive = kinds[i] == TUTTI_ACT_SQUARED_RELU; /* v is y */
            for (int64_t j = 0; j < p.m * p.n; j++)
                values[j] = harness_round(p.dtype, harness_uniform(&rng, positive ? 0 : -4, 4));
            harness_buffer_put(e.ctx, &v, values);
            harness_where("%s, activation %d", tutti_dtype_name(p.dtype), i);
            const activation act = {.kind = (activation_kind)i,
                                    .slope = 0.5,
                                    .beta = 0.75,
                                    .scale = 1.5,
                                    .bias = -0.25,
                                    .dtype = p.dtype,
                                    .computed = TUTTI_F32};
            slope_check(&e, &v, values, &act, (tutti__activation){kinds[i], 0.5, 0.75, 1.5, -0.25});
        }
        harness_where(NULL);
        harness_buffer_free(e.ctx, &v);
        free(values);
        epilogue_free(&e);
    }
}
#endif

/* The same with measured algorithms; every one that is offered has these results. */
static void test_tuned(void)
{
    tutti_context *ctx = harness_context();
    CHECK_OK(tutti_context_tune(ctx, 1));
    each((int64_t[]){1, 1});
    if (!harness_quick()) {
        each((int64_t[]){1, 3});
        test_epilogue();
    }
#ifdef TESTS_WITH_CUDA
    if (harness_backend() == TUTTI_BACKEND_CUDA) test_sums();
#endif
    CHECK_OK(tutti_context_tune(ctx, 0));
    CHECK_OK(tutti_context_tuning_set(ctx, NULL, 0));
}

static const harness_test tests[] = {{"single", test_single},     {"batch", test_batch},
                                     {"epilogue", test_epilogue},
#ifdef TESTS_WITH_CUDA
                                     {"sums", test_sums},         {"slope", test_slope},
#endif
                                     {"tuned", test_tuned}};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, "gemm", tests, HARNESS_COUNT(tests));
}
