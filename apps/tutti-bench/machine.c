/* Timing on the host, and the choice between host and GPU. */
#include "machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "common/statistics.h"
#include "products.h"

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
    int32_t nothing; /* 0, which no compiler knows */
} copy;

/* A plain loop on all threads; memcpy has one, and stores past the caches. */
static int run_copy(void *self)
{
    const copy *c = self;
    const int32_t *from = c->from, nothing = c->nothing;
    int32_t *to = c->to;
    const int64_t count = (int64_t)(c->bytes / sizeof *to);
#pragma omp parallel for simd schedule(static) if (count > 1 << 16)
    for (int64_t i = 0; i < count; i++) to[i] = from[i] | nothing;
    return APP_OK;
}

static int timed(bench_work work, void *self, double *seconds)
{
    double start = app_now();
    int code = work(self);
    *seconds = app_now() - start;
    return code;
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* OpenMP's threads spin for a millisecond behind a parallel loop, OpenBLAS's own for about 30: they
 * would keep the cores from each other.  Waits, a tenth of a second at most, until none does. */
static void let_threads_sleep(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    double before = 0, now = cpu_seconds();
    for (int i = 0; i < 100 && now - before > 1e-4; i++) {
        before = now;
        nanosleep(&pause, NULL);
        now = cpu_seconds();
    }
}

/* The work that is timed, what it is compared with, if anything, and how many calls of each are
 * timed in a row.  If that is more than one, their threads are not the same ones. */
typedef struct turns {
    bench_work work, other;
    void *self, *its_self;
    int calls;
} turns;

static int time_turn(const turns *t, bench_work work, void *self, int count, double *seconds)
{
    if (!work) return APP_OK;
    if (t->calls > 1) {
        let_threads_sleep();
        APP_TRY(work(self)); /* wakes its own */
    }
    for (int i = 0; i < count; i++) APP_TRY(timed(work, self, &seconds[i]));
    return APP_OK;
}

/* The reference's seconds are 0 where there is none. */
static int host_time(bench_machine *machine, const turns *t, bench_times *times,
                     double *reference_seconds)
{
    const int repeats = machine->repeats;
    double *all = calloc(2 * (size_t)repeats, sizeof *all);
    if (!all) return app_fail(APP_FAILED, "no memory for the times");
    int code = t->work(t->self); /* the first touch of the memory does not count */
    if (code == APP_OK && t->other) code = t->other(t->its_self);
    for (int i = 0; i < repeats && code == APP_OK; i += t->calls) {
        const int count = repeats - i < t->calls ? repeats - i : t->calls;
        code = time_turn(t, t->work, t->self, count, &all[i]);
        if (code == APP_OK) code = time_turn(t, t->other, t->its_self, count, &all[repeats + i]);
    }
    if (code == APP_OK) {
        *times = bench_times_of(all, repeats);
        *reference_seconds = app_median(all + repeats, repeats);
    }
    free(all);
    return code;
}

static int time_with_copy(bench_machine *machine, bench_work work, void *self, size_t bytes,
                          bench_times *times, double *reference_seconds)
{
    copy c = {.bytes = (bytes / 2 + 3) / 4 * 4};
    const turns t = {work, run_copy, self, &c, 1};
    int code = app_check(tutti_alloc(machine->ctx, c.bytes, &c.from));
    if (code == APP_OK) code = app_check(tutti_alloc(machine->ctx, c.bytes, &c.to));
    if (code == APP_OK) code = app_check(tutti_zero(machine->ctx, c.from, c.bytes));
    if (code == APP_OK) code = host_time(machine, &t, times, reference_seconds);
    (void)tutti_free(machine->ctx, &c.from);
    (void)tutti_free(machine->ctx, &c.to);
    return code;
}

static int time_with_products(bench_machine *machine, bench_work work, void *self,
                              const bench_reference *reference, bench_times *times,
                              double *reference_seconds)
{
    bench_products products;
    const turns t = {work, bench_products_run, self, &products, 10};
    int code = bench_products_open(reference, &products);
    if (code == APP_OK) code = host_time(machine, &t, times, reference_seconds);
    bench_products_close(&products);
    return code;
}

int bench_time(bench_machine *machine, bench_work work, void *self,
               const bench_reference *reference, bench_times *times, double *reference_seconds)
{
    if (machine->cuda)
        return bench_cuda_time(machine, work, self, reference, times, reference_seconds);
    if (reference->product_count == 0)
        return time_with_copy(machine, work, self, reference->bytes, times, reference_seconds);
    if (bench_products_have(reference->dtype))
        return time_with_products(machine, work, self, reference, times, reference_seconds);
    const turns alone = {.work = work, .self = self, .calls = 1};
    return host_time(machine, &alone, times, reference_seconds);
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
    copy little = {.ctx = machine->ctx, .bytes = 256};
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
