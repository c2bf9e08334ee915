/* What is timed: each layer's forward and backward. */
#ifndef TUTTI_BENCH_CASES_H
#define TUTTI_BENCH_CASES_H

#include "machine.h"

typedef struct bench_result {
    char layer[16], pass[12], variant[16], shape[48];
    tutti_dtype dtype;
    double seconds;
    double amount;       /* bytes, or operations where `product` */
    int product;         /* compared with the bare products, otherwise with a copy */
    double reference;    /* seconds of what it is compared with; 0: nothing */
    double call_seconds; /* bench_time_call's */
    double error, tolerance;
} bench_result;

/* Called for each result. */
typedef void (*bench_sink)(void *user, const bench_result *result);

/* layernorm, rmsnorm, softmax, cross_entropy.  An exit code; a wrong result is the sink's
 * business. */
int bench_rowwise(bench_machine *machine, const char *layer, tutti_dtype dtype, int64_t rows,
                  int64_t cols, bench_sink sink, void *user);

int bench_linear(bench_machine *machine, tutti_dtype dtype, const char *activation, int64_t rows,
                 int64_t in, int64_t out, bench_sink sink, void *user);

int bench_embedding(bench_machine *machine, tutti_dtype dtype, int64_t rows, int64_t vocab,
                    int64_t cols, bench_sink sink, void *user);

/* One call of a layer, as bench_work. */
typedef struct bench_call {
    tutti_context *ctx;
    tutti_layer *layer;
    tutti_call call;
    int backward;
} bench_call;
int bench_run_call(void *self);

#endif
