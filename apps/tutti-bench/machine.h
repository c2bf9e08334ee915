/* Where the benchmark runs: a context, and ways to time work on it. */
#ifndef TUTTI_BENCH_MACHINE_H
#define TUTTI_BENCH_MACHINE_H

#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bench_machine {
    tutti_context *ctx;
    int repeats;
    void *cuda; /* machine_cuda.cu's; NULL on the host */
} bench_machine;

/* Enqueues the work that is timed on the machine's context; an exit code of common/exit_code.h. */
typedef int (*bench_work)(void *self);

/* All return an exit code and leave the message with app_fail. */
int bench_open(tutti_backend backend, int device, int repeats, bench_machine *machine);
void bench_close(bench_machine *machine);

/* Median time of `repeats` runs, in seconds.  On a GPU: replays of a captured graph, 256 MiB overwritten before each. */
int bench_time(bench_machine *machine, bench_work work, void *self, double *seconds);

/* The same for a copy that reads bytes / 2 and writes as many: on a GPU the faster of cudaMemcpyAsync and a plain
 * kernel. */
int bench_time_copy(bench_machine *machine, size_t bytes, double *seconds);

/* The same for the bare products of a linear layer (y alone, or dx and dW); 0 seconds where there is nothing to compare
 * with. */
int bench_time_product(bench_machine *machine, tutti_dtype dtype, int64_t rows, int64_t in,
                       int64_t out, int backward, double *seconds);

/* machine_cuda.cu */
int bench_cuda_open(int device, bench_machine *machine);
void bench_cuda_close(bench_machine *machine);
int bench_cuda_time(bench_machine *machine, bench_work work, void *self, double *seconds);
int bench_cuda_time_copy(bench_machine *machine, size_t bytes, double *seconds);
int bench_cuda_time_product(bench_machine *machine, tutti_dtype dtype, int64_t rows, int64_t in,
                            int64_t out, int backward, double *seconds);

#ifdef __cplusplus
}
#endif
#endif
