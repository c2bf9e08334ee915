/* Timing on the host, and the choice between host and GPU. */
#include "machine.h"

#include <stdlib.h>

#include "common/exit_code.h"
#include "common/report.h"

#ifndef TUTTI_BENCH_CUDA
/* Never reached: without CUDA bench_open makes no machine with `cuda` set. */
int bench_cuda_open(int device, bench_machine *machine)
{
    (void)device, (void)machine;
    return app_check(TUTTI_ERR_UNSUPPORTED);
}
void bench_cuda_close(bench_machine *machine)
{
    (void)machine;
}
int bench_cuda_time(bench_machine *machine, bench_work work, void *self, double *seconds)
{
    (void)machine, (void)work, (void)self, (void)seconds;
    return APP_FAILED;
}
int bench_cuda_time_copy(bench_machine *machine, size_t bytes, double *seconds)
{
    (void)machine, (void)bytes, (void)seconds;
    return APP_FAILED;
}
int bench_cuda_time_product(bench_machine *machine, tutti_dtype dtype, int64_t rows, int64_t in,
                            int64_t out, int backward, double *seconds)
{
    (void)machine, (void)dtype, (void)rows, (void)in, (void)out, (void)backward, (void)seconds;
    return APP_FAILED;
}
#endif

int bench_open(tutti_backend backend, int device, int repeats, bench_machine *machine)
{
    *machine = (bench_machine){.repeats = repeats};
    tutti_context_desc desc = TUTTI_CONTEXT_DESC_INIT;
    desc.backend = backend;
    desc.device = device;
    APP_CHECK(tutti_context_create(&desc, &machine->ctx));
    if (tutti_context_backend(machine->ctx) == TUTTI_BACKEND_HOST) return APP_OK;
    /* timing wants a stream of our own */
    tutti_context_destroy(&machine->ctx);
    return bench_cuda_open(device, machine);
}

void bench_close(bench_machine *machine)
{
    if (machine->cuda)
        bench_cuda_close(machine);
    else
        tutti_context_destroy(&machine->ctx);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int bench_time(bench_machine *machine, bench_work work, void *self, double *seconds)
{
    if (machine->cuda) return bench_cuda_time(machine, work, self, seconds);
    double *times = malloc((size_t)machine->repeats * sizeof *times);
    if (!times) return app_fail(APP_FAILED, "no memory for the times");
    int code = work(self); /* the first touch of the memory does not count */
    for (int i = 0; i < machine->repeats && code == APP_OK; i++) {
        double start = app_now();
        code = work(self);
        times[i] = app_now() - start;
    }
    if (code == APP_OK) {
        qsort(times, (size_t)machine->repeats, sizeof *times, ascending);
        *seconds = times[machine->repeats / 2];
    }
    free(times);
    return code;
}

typedef struct copy {
    tutti_context *ctx;
    void *from, *to;
    size_t bytes;
} copy;

static int run_copy(void *self)
{
    copy *c = self;
    return app_check(tutti_copy(c->ctx, c->to, c->from, c->bytes));
}

int bench_time_copy(bench_machine *machine, size_t bytes, double *seconds)
{
    if (machine->cuda) return bench_cuda_time_copy(machine, bytes, seconds);
    copy c = {machine->ctx, NULL, NULL, bytes / 2};
    int code = app_check(tutti_alloc(machine->ctx, c.bytes, &c.from));
    if (code == APP_OK) code = app_check(tutti_alloc(machine->ctx, c.bytes, &c.to));
    if (code == APP_OK) code = app_check(tutti_zero(machine->ctx, c.from, c.bytes));
    if (code == APP_OK) code = bench_time(machine, run_copy, &c, seconds);
    (void)tutti_free(machine->ctx, &c.from);
    (void)tutti_free(machine->ctx, &c.to);
    return code;
}

int bench_time_product(bench_machine *machine, tutti_dtype dtype, int64_t rows, int64_t in,
                       int64_t out, int backward, double *seconds)
{
    *seconds = 0;
    if (machine->cuda)
        return bench_cuda_time_product(machine, dtype, rows, in, out, backward, seconds);
    return APP_OK;
}
