/* Timing on the host, and the choice between host and GPU. */
#include "machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "common/statistics.h"

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
int bench_cuda_time(bench_machine *machine, bench_work work, void *self,
                    const bench_reference *reference, bench_times *times, double *reference_seconds)
{
    (void)machine, (void)work, (void)self, (void)reference, (void)times, (void)reference_seconds;
    return APP_FAILED;
}
int bench_graph_open(tutti_context *ctx, bench_work work, void *self, bench_graph **graph)
{
    (void)ctx, (void)work, (void)self, (void)graph;
    return app_fail(APP_FAILED, "graphs need a GPU");
}
int bench_graph_replay(const bench_graph *graph)
{
    (void)graph;
    return APP_FAILED;
}
void bench_graph_close(bench_graph **graph)
{
    (void)graph;
}
int bench_multiply(bench_machine *machine, const bench_product *of, bool add, const double *a,
                   const double *b, double *c)
{
    (void)machine, (void)of, (void)add, (void)a, (void)b, (void)c;
    return APP_FAILED;
}
int bench_cuda_replays(bench_machine *machine, bench_work work, bench_work before, void *self,
                       double *seconds)
{
    (void)machine, (void)work, (void)before, (void)self, (void)seconds;
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
    if (tutti_context_backend(machine->ctx) == TUTTI_BACKEND_HOST) {
        machine->backend = "host";
        const char *line = strstr(tutti_build_info(), "host: ");
        snprintf(machine->device, sizeof machine->device, "%.*s",
                 line ? (int)strcspn(line, "\n") : 0, line ? line : "");
        return APP_OK;
    }
    /* timing needs a stream of its own */
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

bench_times bench_times_of(double *seconds, int count)
{
    const double median = app_median(seconds, count); /* sorts */
    return (bench_times){median, app_quantile(seconds, count, 0.1),
                         app_quantile(seconds, count, 0.9)};
}

typedef struct copy {
    tutti_context *ctx;
    void *from, *to;
    size_t bytes;
} copy;

static int run_copy(void *self)
{
    copy *c = self;
    return c->to ? app_check(tutti_copy(c->ctx, c->to, c->from, c->bytes)) : APP_OK;
}

static int timed(bench_work work, void *self, double *seconds)
{
    double start = app_now();
    int code = work(self);
    *seconds = app_now() - start;
    return code;
}

static int host_time(bench_machine *machine, bench_work work, void *self, copy *c,
                     bench_times *times, double *reference_seconds)
{
    double *all = malloc(2 * (size_t)machine->repeats * sizeof *all);
    if (!all) return app_fail(APP_FAILED, "no memory for the times");
    int code = work(self); /* the first touch of the memory does not count */
    if (code == APP_OK) code = run_copy(c);
    for (int i = 0; i < machine->repeats && code == APP_OK; i++) {
        code = timed(work, self, &all[i]);
        if (code == APP_OK) code = timed(run_copy, c, &all[machine->repeats + i]);
    }
    if (code == APP_OK) {
        *times = bench_times_of(all, machine->repeats);
        *reference_seconds = c->to ? app_median(all + machine->repeats, machine->repeats) : 0;
    }
    free(all);
    return code;
}

int bench_time(bench_machine *machine, bench_work work, void *self,
               const bench_reference *reference, bench_times *times, double *reference_seconds)
{
    if (machine->cuda)
        return bench_cuda_time(machine, work, self, reference, times, reference_seconds);
    copy c = {machine->ctx, NULL, NULL, reference->bytes / 2};
    int code = APP_OK;
    if (reference->product_count == 0) {
        code = app_check(tutti_alloc(machine->ctx, c.bytes, &c.from));
        if (code == APP_OK) code = app_check(tutti_alloc(machine->ctx, c.bytes, &c.to));
        if (code == APP_OK) code = app_check(tutti_zero(machine->ctx, c.from, c.bytes));
    }
    if (code == APP_OK) code = host_time(machine, work, self, &c, times, reference_seconds);
    (void)tutti_free(machine->ctx, &c.from);
    (void)tutti_free(machine->ctx, &c.to);
    return code;
}

/* Calls are timed in groups, as one may be as short as reading the clock.  The stream is drained
 * after each group: it queues about a thousand launches, and a call may be a dozen.  Where their
 * work is long there are fewer groups, as many as fit in half a second.  A GPU has at least 16 of
 * them, as its calls return before their work is done; on the host they are all of the time. */
enum { CALL_GROUPS = 128, CALL_GROUPS_LEAST = 16, CALL_GROUPS_LEAST_HOST = 3, CALLS = 8 };

int bench_time_call(bench_machine *machine, bench_work work, void *self, int64_t rows,
                    bench_times *times, double *call_seconds)
{
    double groups[CALL_GROUPS];
    *call_seconds = 0;
    if (!machine->cuda && rows != 1) return APP_OK;
    const double begin = app_now();
    const int least = machine->cuda ? CALL_GROUPS_LEAST : CALL_GROUPS_LEAST_HOST;
    int count = 0;
    while (count < CALL_GROUPS && (count < least || app_now() - begin < 0.5)) {
        const double start = app_now();
        for (int i = 0; i < CALLS; i++) APP_TRY(work(self));
        groups[count++] = (app_now() - start) / CALLS;
        APP_CHECK(tutti_context_synchronize(machine->ctx));
    }
    const bench_times calls = bench_times_of(groups, count);
    *call_seconds = calls.median;
    if (!machine->cuda) *times = calls;
    return APP_OK;
}

/* What a copy is timed beside where nothing else is: a graph may not be empty. */
static int zero_little(void *self)
{
    copy *c = self;
    return app_check(tutti_zero(c->ctx, c->to, c->bytes));
}

int bench_copy_rate(bench_machine *machine, double *rate)
{
    const bench_reference reference = {.bytes = (size_t)512 << 20};
    copy little = {machine->ctx, NULL, NULL, 256};
    bench_times nothing;
    double seconds = 0;
    *rate = 0;
    int code = app_check(tutti_alloc(machine->ctx, little.bytes, &little.to));
    for (int i = 0; code == APP_OK && i < 3; i++) {
        code = bench_time(machine, zero_little, &little, &reference, &nothing, &seconds);
        if (code == APP_OK) *rate = fmax(*rate, (double)reference.bytes / seconds);
    }
    (void)tutti_free(machine->ctx, &little.to);
    return code;
}
