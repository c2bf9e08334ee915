/* tutti-bench exchange: the sum of a store's gradients over the ranks, for several sizes. Algorithm
 * bandwidth is bytes / time, bus bandwidth 2 (n - 1) / n of that on n ranks: what a ring moves over
 * each link, so that figures of different n compare. [nccl-tests, doc/PERFORMANCE.md] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/device.h"
#include "common/exit_code.h"
#include "common/report.h"
#include "common/signals.h"
#include "common/statistics.h"
#include "pattern.h"
#include "results.h"

enum { SIZES_MAX = 32, WARM_UP = 3, PIECE = 1 << 20, PERIOD = 251 };
/* a graph to time: of so many exchanges, or as many as take about this long one by one */
enum { IN_GRAPH_MIN = 4, IN_GRAPH_MAX = 256 };
#define GRAPH_SECONDS 10e-3

typedef struct exchange_options {
    bench_options bench;
    int64_t sizes[SIZES_MAX]; /* bytes */
    int count;                /* 0: the device's own */
    int engine;               /* a tutti_engine */
} exchange_options;

/* A store of one parameter. */
typedef struct exchange {
    const exchange_options *options;
    app_group *group;
    bench_machine machine;
    tutti_comm *comm;
    bench_results results;
    /* of a size */
    tutti_param param;
    tutti_params *params;
    tutti_grad_sync *sync;
    int64_t count;
    void *source; /* this rank's gradients, on the device */
    int in_graph;
} exchange;

/* "4K,1M" */
static bool parse_sizes(const app_option *option, void *given, const char *text,
                        char wanted[APP_WANTED_MAX])
{
    exchange_options *o = given;
    (void)option;
    snprintf(wanted, APP_WANTED_MAX, "at most %d multiples of 4 bytes up to 64G, as 4K,1M",
             SIZES_MAX);
    for (const char *at = text;; at++) {
        char *end;
        const long long number = strtoll(at, &end, 10);
        const char *unit = *end ? strchr("KMG", *end) : NULL;
        const int shift = unit ? 10 * (int)(unit - "KMG" + 1) : 0;
        if (end == at || number < 1 || number > INT64_C(64) << 30 >> shift || o->count == SIZES_MAX)
            return false;
        o->sizes[o->count] = (int64_t)number << shift;
        if (o->sizes[o->count++] % 4) return false;
        at = unit ? end + 1 : end;
        if (!*at) return true;
        if (*at != ',') return false;
    }
}

/* Whole numbers, so that every order of summation gives the same bits. */
static double value_of(int64_t i, int rank)
{
    return (double)(i % PERIOD + rank);
}

static int fill(exchange *e)
{
    static float values[PERIOD * 4096];
    const int64_t part = sizeof values / sizeof values[0];
    for (int64_t i = 0; i < part; i++) values[i] = (float)value_of(i, e->group->rank);
    APP_CHECK(tutti_alloc(e->machine.ctx, (size_t)e->count * sizeof(float), &e->source));
    for (int64_t at = 0; at < e->count; at += part)
        APP_CHECK(
            tutti_copy(e->machine.ctx, (float *)e->source + at, values,
                       (size_t)(e->count - at < part ? e->count - at : part) * sizeof(float)));
    return app_check(tutti_context_synchronize(e->machine.ctx));
}

static int prepare(exchange *e)
{
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    desc.gradient_memory = tutti_comm_allocator(e->comm);
    e->param = (tutti_param){.name = "gradients",
                             .value = tutti_tensor_1d(NULL, TUTTI_F32, e->count),
                             .weight_decay = 1,
                             .lr_scale = 1};
    APP_CHECK(tutti_params_create(e->machine.ctx, &desc, &e->params));
    APP_CHECK(tutti_params_add_param(e->params, &e->param));
    APP_CHECK(tutti_params_build(e->params, e->machine.ctx));
    return fill(e);
}

static void release(exchange *e)
{
    tutti_grad_sync_destroy(&e->sync);
    tutti_params_destroy(&e->params);
    (void)tutti_free(e->machine.ctx, &e->source);
}

static int exchange_only(exchange *e)
{
    APP_CHECK(tutti_grad_sync_ready_param(e->sync, e->machine.ctx, &e->param));
    return app_check(tutti_grad_sync_finish(e->sync, e->machine.ctx));
}

/* One exchange: the slowest rank's time, and the host's time in the calls. */
static int exchange_once(exchange *e, double *seconds, double *call_seconds)
{
    tutti_context *ctx = e->machine.ctx;
    APP_CHECK(tutti_copy(ctx, e->param.grad.data, e->source, (size_t)e->count * sizeof(float)));
    APP_CHECK(tutti_comm_barrier(e->comm, ctx));
    APP_CHECK(tutti_context_synchronize(ctx));
    const double start = app_now();
    APP_TRY(exchange_only(e));
    double times[2] = {0, app_now() - start};
    APP_CHECK(tutti_context_synchronize(ctx));
    times[0] = app_now() - start;
    APP_TRY(app_group_largest(e->group, times, 2));
    *seconds = times[0];
    *call_seconds = times[1];
    return APP_OK;
}

static int exchange_many(void *given)
{
    exchange *e = given;
    for (int i = 0; i < e->in_graph; i++) APP_TRY(exchange_only(e));
    return APP_OK;
}

/* Zeros: sums of sums would grow beyond all bounds. */
static int start_together(void *given)
{
    exchange *e = given;
    APP_CHECK(tutti_zero(e->machine.ctx, e->param.grad.data, (size_t)e->count * sizeof(float)));
    APP_CHECK(tutti_comm_barrier(e->comm, e->machine.ctx));
    return app_check(tutti_context_synchronize(e->machine.ctx));
}

/* The device's part: exchanges that follow each other in a graph. */
static int time_device(exchange *e, bench_result *result)
{
    const double many = GRAPH_SECONDS / result->times.median;
    if (!e->machine.cuda || tutti_comm_transport(e->comm) != TUTTI_TRANSPORT_NCCL) return APP_OK;
    e->in_graph = (int)fmin(fmax(many, IN_GRAPH_MIN), IN_GRAPH_MAX);
    APP_TRY(
        bench_cuda_replays(&e->machine, exchange_many, start_together, e, &result->device_seconds));
    result->device_seconds /= e->in_graph;
    return app_group_largest(e->group, &result->device_seconds, 1);
}

static int time_size(exchange *e, bench_result *result)
{
    const int repeats = (int)e->options->bench.repeats;
    double *times = malloc(2 * (size_t)repeats * sizeof *times);
    if (!times) return app_fail(APP_FAILED, "no memory for the times");
    double *calls = times + repeats;
    int code = APP_OK;
    for (int i = -WARM_UP; i < repeats && code == APP_OK; i++)
        code = exchange_once(e, &times[i < 0 ? 0 : i], &calls[i < 0 ? 0 : i]);
    if (code == APP_OK) {
        result->times = bench_times_of(times, repeats);
        result->call_seconds = app_median(calls, repeats);
    }
    free(times);
    return code;
}

/* All sums of the last exchange, on every rank. */
static int check(exchange *e, double *error)
{
    static double got[PIECE], expected[PIECE];
    const int ranks = e->group->world_size;
    const double of_ranks = 0.5 * ranks * (ranks - 1);
    for (int64_t at = 0; at < e->count; at += PIECE) {
        const int64_t part = e->count - at < PIECE ? e->count - at : PIECE;
        for (int64_t i = 0; i < part; i++) expected[i] = ranks * value_of(at + i, 0) + of_ranks;
        APP_TRY(bench_read(e->machine.ctx, e->param.grad.data, TUTTI_F32, at, part, got));
        *error = fmax(*error, bench_error(got, expected, part, 0));
    }
    return app_group_largest(e->group, error, 1);
}

static int measure(exchange *e, int64_t bytes)
{
    const int ranks = e->group->world_size;
    tutti_grad_sync_desc sync = TUTTI_GRAD_SYNC_DESC_INIT;
    const char *transport = app_transport_name(tutti_comm_transport(e->comm));
    char variant[32], row[192], device[16] = "-";
    snprintf(variant, sizeof variant, "%d rank%s", ranks, ranks == 1 ? "" : "s");
    bench_result result = {.layer = "exchange",
                           .pass = transport,
                           .variant = variant,
                           .dtype = TUTTI_F32,
                           .param_dtype = TUTTI_F32,
                           .amount = (double)bytes,
                           .exchange = true,
                           .bus_factor = 2.0 * (ranks - 1) / ranks};
    snprintf(result.shape, sizeof result.shape, "%lld", (long long)bytes);
    e->count = result.elements = bytes / (int64_t)sizeof(float);
    APP_TRY(app_group_agree(e->group, prepare(e)));
    sync.engine = (tutti_engine)e->options->engine;
    APP_TRY(app_group_agree(e->group, app_check(tutti_grad_sync_create(
                                          e->machine.ctx, e->comm, e->params, &sync, &e->sync))));
    APP_TRY(app_group_agree(e->group, time_size(e, &result)));
    APP_TRY(app_group_agree(e->group, check(e, &result.error)));
    APP_TRY(app_group_agree(e->group, time_device(e, &result)));
    const double rate = 1e-9 * result.amount / result.times.median;
    if (result.device_seconds > 0)
        snprintf(device, sizeof device, "%.2f", result.device_seconds * 1e6);
    snprintf(row, sizeof row, "%-9s %-9s %12s %12.2f %9.2f %9.2f %9.3f %9.3f %12.2f %12s",
             transport, variant, result.shape, result.times.median * 1e6, result.times.p10 * 1e6,
             result.times.p90 * 1e6, rate, rate * result.bus_factor, result.call_seconds * 1e6,
             device);
    bench_results_add(&e->results, &result, row);
    return APP_OK;
}

static int measure_all(exchange *e)
{
    static const int64_t on_gpu[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20, 128 << 20, 512 << 20};
    const exchange_options *o = e->options;
    const bool gpu = tutti_context_backend(e->machine.ctx) == TUTTI_BACKEND_CUDA;
    const int64_t *sizes = o->count ? o->sizes : on_gpu;
    const int count = o->count ? o->count : gpu ? 6 : 4;
    char head[128];
    snprintf(head, sizeof head, "%-9s %-9s %12s %12s %9s %9s %9s %9s %12s %12s", "transport",
             "ranks", "bytes", "time us", "p10", "p90", "alg GB/s", "bus GB/s", "call us",
             "device us");
    APP_TRY(app_group_agree(e->group, bench_results_begin(&e->results, &e->machine, head)));
    for (int i = 0; i < count; i++) {
        APP_TRY(app_group_agree(e->group, signals_check("the next size")));
        const int code = measure(e, sizes[i]);
        release(e);
        APP_TRY(code);
    }
    return APP_OK;
}

static int run(void *given, app_group *group)
{
    exchange e = {.options = given, .group = group};
    const bench_options *o = given;
    const tutti_backend backend = o->common.backend;
    int code = app_group_agree(group, bench_results_open(&e.results, o, group));
    if (code == APP_OK)
        code = app_group_agree(group, bench_open(backend, app_device_number(group, backend),
                                                 (int)o->repeats, &e.machine));
    if (code == APP_OK)
        code = app_group_agree(
            group, app_device_connect(group, e.machine.ctx, o->common.transport, &e.comm));
    if (code == APP_OK) code = measure_all(&e);
    code = app_group_agree(group, bench_results_end(&e.results, code));
    tutti_comm_destroy(&e.comm);
    bench_close(&e.machine);
    return code;
}

static const char *const engines[] = {"auto", "transport", NULL};

static const app_option table[] = {
    BENCH_TABLE,
    {"engine", "NAME",
     "what sums: transport, or auto, which sums up to 64 KiB in one hop between GPUs where it can",
     "auto", .kind = APP_WORD, .at = offsetof(exchange_options, engine), .words = engines},
    {"sizes", "LIST", "bytes of gradients, with K, M or G", .kind = APP_OTHER, .parse = parse_sizes,
     .unset = "4K,64K,1M,16M, on GPUs 128M,512M too"},
};

const app_command bench_exchange_command = {
    .program = "tutti-bench exchange",
    .doc = "Times the sum of a store's f32 gradients over the ranks, and checks the sums.\v"
           "\"alg\" is bytes / time, \"bus\" 2 (n - 1) / n of that on n ranks, as nccl-tests "
           "define them; \"call us\" is the host's "
           "time in the calls, \"device us\", over nccl, that of one of many exchanges "
           "that follow each other in a CUDA graph. Times are the slowest "
           "rank's.\n\n" BENCH_EXIT_CODES,
    .options = table,
    .count = sizeof table / sizeof table[0],
    .ranks = 1,
    .size = sizeof(exchange_options),
    .check = bench_check_options,
    .run = run};
