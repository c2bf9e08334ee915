/* The bare products on the host: calls of OpenBLAS, which the host backend computes with, too. */
#include "products.h"

#include <cblas.h>
#include <omp.h>
#include <stdlib.h>

#include "common/exit_code.h"
#include "common/report.h"

/* Of the operand's number, over all products that have it. */
static int64_t count_of(const bench_reference *of, int operand)
{
    int64_t count = 0;
    for (int i = 0; i < of->product_count; i++) {
        const bench_product *p = &of->products[i];
        if (p->a == operand) count = p->batch * p->m * p->k;
        if (p->b == operand) count = p->batch * p->k * p->n;
        if (p->c == operand) count = p->batch * p->m * p->n;
    }
    return count;
}

bool bench_products_have(tutti_dtype dtype)
{
    return dtype == TUTTI_F64 || dtype == TUTTI_F32;
}

int bench_products_open(const bench_reference *of, bench_products *made)
{
    const size_t size = tutti_dtype_size(of->dtype);
    *made = (bench_products){.of = of, .before = openblas_get_num_threads()};
    for (int i = 0; i < BENCH_OPERANDS; i++) {
        const int64_t count = count_of(of, i);
        if (count == 0) continue;
        made->operands[i] = aligned_alloc(64, ((size_t)count * size + 63) / 64 * 64);
        if (!made->operands[i]) return app_fail(APP_FAILED, "no memory for the bare products");
        for (int64_t j = 0; j < count; j++) {
            const double value = 1 / (double)(1 + j % 7);
            if (of->dtype == TUTTI_F64)
                ((double *)made->operands[i])[j] = value;
            else
                ((float *)made->operands[i])[j] = (float)value;
        }
    }
    const int threads = omp_get_max_threads();
    made->threads = of->products[0].batch >= threads ? threads : 1;
    openblas_set_num_threads(threads / made->threads);
    return APP_OK;
}

void bench_products_close(bench_products *made)
{
    openblas_set_num_threads(made->before);
    for (int i = 0; i < BENCH_OPERANDS; i++) free(made->operands[i]);
}

static void multiply(const bench_products *products, const bench_product *p, int64_t item)
{
    const blasint m = (blasint)p->m, n = (blasint)p->n, k = (blasint)p->k;
    const enum CBLAS_TRANSPOSE op_a = p->transpose_a ? CblasTrans : CblasNoTrans;
    const enum CBLAS_TRANSPOSE op_b = p->transpose_b ? CblasTrans : CblasNoTrans;
    const blasint lda = p->transpose_a ? m : k, ldb = p->transpose_b ? k : n;
    const int64_t a = item * p->m * p->k, b = item * p->k * p->n, c = item * p->m * p->n;
    void *const *const x = products->operands;
    if (products->of->dtype == TUTTI_F64)
        cblas_dgemm(CblasRowMajor, op_a, op_b, m, n, k, 1, (const double *)x[p->a] + a, lda,
                    (const double *)x[p->b] + b, ldb, 0, (double *)x[p->c] + c, n);
    else
        cblas_sgemm(CblasRowMajor, op_a, op_b, m, n, k, 1, (const float *)x[p->a] + a, lda,
                    (const float *)x[p->b] + b, ldb, 0, (float *)x[p->c] + c, n);
}

int bench_products_run(void *self)
{
    const bench_products *products = self;
    for (int i = 0; i < products->of->product_count; i++) {
        const bench_product *p = &products->of->products[i];
#pragma omp parallel for schedule(static) num_threads(products->threads)
        for (int64_t item = 0; item < p->batch; item++) multiply(products, p, item);
    }
    return APP_OK;
}
