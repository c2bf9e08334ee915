/* The bare products on the host, in f64 and f32: one call of OpenBLAS's cblas_dgemm or cblas_sgemm
 * an item, on all threads of OpenMP's; items of a batch of as many or more are shared among the
 * threads instead.  In 16-bit types OpenBLAS has none. */
#ifndef TUTTI_BENCH_PRODUCTS_H
#define TUTTI_BENCH_PRODUCTS_H

#include "machine.h"

typedef struct bench_products {
    const bench_reference *of;
    void *operands[BENCH_OPERANDS];
    int threads; /* that share the items: 1, or OpenMP's number */
    int before;  /* OpenBLAS's number of threads; another is set until bench_products_close */
} bench_products;

/* Whether there are any in the type. */
bool bench_products_have(tutti_dtype dtype);
/* `of` must outlive it.  To be closed also after a failure. */
int bench_products_open(const bench_reference *of, bench_products *made);
int bench_products_run(void *made); /* a bench_work */
void bench_products_close(bench_products *made);

#endif
