/* Where the benchmark runs: a context, and ways to time work on it. */
#ifndef TUTTI_BENCH_MACHINE_H
#define TUTTI_BENCH_MACHINE_H

#include <stdbool.h>

#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bench_machine {
    tutti_context *ctx;
    const char *backend; /* host or cuda */
    int repeats;
    char device[160]; /* a name that distinguishes the machines of two measurements */
    void *cuda;       /* machine_cuda.cu's; NULL on the host */
} bench_machine;

/* Enqueues the timed work on the machine's context; an exit code of common/exit_code.h. */
typedef int (*bench_work)(void *self);

/* All return an exit code and leave the message with app_fail. */
int bench_open(tutti_backend backend, int device, int repeats, bench_machine *machine);
void bench_close(bench_machine *machine);

/* A bare product, C = op(A) op(B) of each item of a batch, row by row and without gaps.  op is the
 * transpose where asked for; op(A) is [m, k], op(B) [k, n]. */
typedef struct bench_product {
    int64_t batch, m, n, k;
    int transpose_a, transpose_b;
    int a, b, c; /* numbers of operands: those of one number are the same memory */
    int sums;    /* C has the type in which gradients of parameters are summed */
} bench_product;
enum { BENCH_PRODUCTS = 4, BENCH_OPERANDS = 9 };

/* What work is compared with: a copy that reads bytes / 2 and writes as many, on a GPU the faster
 * of cudaMemcpyAsync and a plain kernel; or, if there are any, bare products. */
typedef struct bench_reference {
    size_t bytes;
    tutti_dtype dtype; /* of the products' operands */
    int product_count;
    bench_product products[BENCH_PRODUCTS];
} bench_reference;

/* Of repeated runs, in seconds: a tenth of them took less than p10, a tenth more than p90. */
typedef struct bench_times {
    double median, p10, p90;
} bench_times;

/* Times of `repeats` runs of the work, and the median of its reference's, in turn, so that both see
 * the same clocks.  On a GPU: replays of captured graphs, 256 MiB overwritten before each.  On the
 * host, ten calls of the work and ten of its bare products in turn, whose threads differ; in 16-bit
 * types it has none: 0. */
int bench_time(bench_machine *machine, bench_work work, void *self,
               const bench_reference *reference, bench_times *times, double *reference_seconds);

/* Median time of the host in a layer's call; 0 if not timed.  On a GPU that is the cost of
 * launching: the queue is drained after every eight calls.  On the host a call includes its work:
 * only calls of one row are timed, and *times is replaced by what was measured here. */
int bench_time_call(bench_machine *machine, bench_work work, void *self, int64_t rows,
                    bench_times *times, double *call_seconds);

/* Bytes read and written a second by a copy of 256 MiB to as many: the best of three medians, as
 * clocks may still rise. */
int bench_copy_rate(bench_machine *machine, double *rate);

/* Sorts the seconds.  count > 0. */
bench_times bench_times_of(double *seconds, int count);

/* Work that has been captured on a context's stream, which it keeps to.  APP_FAILED on the host. */
typedef struct bench_graph bench_graph;
int bench_graph_open(tutti_context *ctx, bench_work work, void *self, bench_graph **graph);
int bench_graph_replay(const bench_graph *graph); /* enqueues it */
void bench_graph_close(bench_graph **graph);

/* C = op(A) op(B), or C += where asked for, in f64: of matrices in host memory, by cuBLASLt on the
 * machine's GPU.  For checks.  APP_FAILED on the host. */
int bench_multiply(bench_machine *machine, const bench_product *of, bool add, const double *a,
                   const double *b, double *c);

/* machine_cuda.cu */
int bench_cuda_open(int device, bench_machine *machine);
void bench_cuda_close(bench_machine *machine);
int bench_cuda_time(bench_machine *machine, bench_work work, void *self,
                    const bench_reference *reference, bench_times *times,
                    double *reference_seconds);
/* Median time on the device of replays of the work as a captured graph, each after a call of
 * `before`; waits with the context's deadline. */
int bench_cuda_replays(bench_machine *machine, bench_work work, bench_work before, void *self,
                       double *seconds);

#ifdef __cplusplus
}
#endif
#endif
