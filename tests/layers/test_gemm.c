/* Tests of the backends' gemm itself: all transposes, batches of any strides, alpha and beta; no
 * layer uses all of them.  Its epilogue is tested with FusedLinear.  All numbers are small integers
 * or halves, exact in every type, so results must be exact too. */
#include <stdlib.h>

#include "common.h"
#include "core/context.h"
#include "kernels/host/gemm.h"
#ifdef TESTS_WITH_CUDA
#include "kernels/cuda/gemm.h"
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

static const harness_test tests[] = {{"single", test_single}, {"batch", test_batch}};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, "gemm", tests, HARNESS_COUNT(tests));
}
