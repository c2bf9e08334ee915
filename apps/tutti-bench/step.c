/* tutti-bench step: a training step of a stack of residual blocks
 *
 *     h = h + W2 gelu(W1 rmsnorm(h)),    W1 [4 dim, dim],  W2 [dim, 4 dim]
 *
 * forward, backward, the gradients' norm and AdamW's update, timed without the gradient exchange,
 * with it, with --shard of a sharded store (by --engine both by either engine), and with --leaves
 * in reproducible mode, on the same ranks, in turns.  The learning rate is 0, so that all modes
 * compute the same numbers.  At the end the sums are checked: equal on all ranks, and equal to what
 * a plain all-reduce of the local gradients gives; of a sharded store, whose ranks have only slices
 * of them, their norm. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/device.h"
#include "common/exit_code.h"
#include "common/network.h"
#include "common/report.h"
#include "common/signals.h"
#include "common/statistics.h"
#include "options.h"
#include "pattern.h"

typedef struct step_options {
    app_common common;
    int64_t dim, blocks, rows, steps, range_mib, leaves;
    bool shard, graph;
    tutti_dtype dtype, wire;
    int engine; /* a tutti_engine, or BOTH */
} step_options;

enum { BOTH = TUTTI_ENGINE_COPY + 1 };

/* With --shard reproducible mode is sharded too.  MESSAGES: sharded, by the transport, beside copy
 * engines. */
typedef enum mode { ALONE, FAST, MESSAGES, SHARDED, REPRODUCIBLE, MODES } mode;
static const char *const mode_names[] = {"without exchange", "with exchange",
                                         "sharded by the transport", "sharded", "reproducible"};

typedef struct bench bench;

/* Each mode has a store, activations and an optimizer of its own. */
typedef struct model {
    bench *bench;
    mode how;
    tutti_params *params;
    tutti_grad_sync *sync; /* NULL: ALONE */
    tutti_adamw *adamw;
    network network;
    view x, dh;         /* the input, and the gradient of the stream */
    bench_graph *graph; /* --graph: a step */
} model;

struct bench {
    const step_options *options;
    app_group *group;
    tutti_context *ctx;
    tutti_comm *comm;
    tutti_step_block *step;
    model models[MODES];
};

static bool runs(const step_options *o, mode how)
{
    return how == SHARDED        ? o->shard
           : how == MESSAGES     ? o->shard && o->engine == BOTH
           : how == REPRODUCIBLE ? o->leaves > 0
                                 : true;
}

static bool is_sharded(const model *m)
{
    return m->how == SHARDED || m->how == MESSAGES ||
           (m->how == REPRODUCIBLE && m->bench->options->shard);
}

/* Draws x, which also serves as the upstream gradient. */
static int fill_random(model *m)
{
    bench_pattern pattern;
    const step_options *o = m->bench->options;
    APP_TRY(bench_pattern_make(o->dtype, o->dtype, o->rows * o->dim,
                               (uint64_t)m->bench->group->rank + 1, 0, 1, &pattern));
    const int code = bench_alloc(m->bench->ctx, &pattern, o->dtype, o->rows * o->dim, &m->x.data);
    bench_pattern_free(&pattern);
    return code;
}

/* Residual block b: h and branch are the previous block's on entry and this one's on return. */
static int add_block(model *m, int64_t b, const view *dnarrow, const view *dwide, view *h,
                     view *branch)
{
    network *n = &m->network;
    const int64_t dim = m->bench->options->dim, wide = 4 * dim;
    view sum = *h, normed = {.cols = dim}, inner = {.cols = wide};
    wiring norm = {.in = {*h, *branch}, .upstream = {*dnarrow, m->dh}, .dx = m->dh};
    if (b > 0) APP_TRY(network_buffer(n, dim, &sum.data));
    APP_TRY(network_buffer(n, dim, &normed.data));
    APP_TRY(network_buffer(n, wide, &inner.data));
    APP_TRY(network_buffer(n, branch->cols = dim, &branch->data));
    norm.out[0] = normed;
    if (b > 0) norm.out[1] = sum;
    norm.x = sum;
    const wiring up = {
        .in = {normed}, .out = {inner}, .x = normed, .upstream = {*dwide}, .dx = *dnarrow};
    const wiring down = {
        .in = {inner}, .out = {*branch}, .x = inner, .upstream = {m->dh}, .dx = *dwide};
    APP_TRY(network_add_norm(n, "rmsnorm", dim, &norm, b, "norm"));
    APP_TRY(network_add_linear(n, dim, wide, TUTTI_ACT_GELU, &up, b, "up"));
    APP_TRY(network_add_linear(n, wide, dim, TUTTI_ACT_NONE, &down, b, "down"));
    *h = sum;
    return APP_OK;
}

static int build(model *m)
{
    const step_options *o = m->bench->options;
    tutti_context *ctx = m->bench->ctx;
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    view dnarrow = {.cols = o->dim}, dwide = {.cols = 4 * o->dim}, branch = {0};
    if (o->dtype == TUTTI_F64) desc.master_dtype = TUTTI_F64;
    if (is_sharded(m)) {
        desc.shards = m->bench->group->world_size;
        desc.shard = m->bench->group->rank;
        desc.range_bytes = (size_t)o->range_mib << 20;
    }
    APP_CHECK(tutti_params_create(ctx, &desc, &m->params));
    APP_TRY(network_create(&m->network, ctx, o->dtype, o->blocks, o->rows, m->params));
    m->network.norm_dtype = o->dtype;
    m->x.cols = m->dh.cols = o->dim;
    APP_TRY(fill_random(m));
    APP_TRY(network_buffer(&m->network, o->dim, &m->dh.data));
    APP_TRY(network_buffer(&m->network, o->dim, &dnarrow.data));
    APP_TRY(network_buffer(&m->network, 4 * o->dim, &dwide.data));
    view h = m->x;
    for (int64_t b = 0; b < o->blocks; b++) APP_TRY(add_block(m, b, &dnarrow, &dwide, &h, &branch));
    APP_CHECK(tutti_params_build(m->params, ctx));
    APP_CHECK(tutti_params_init(m->params, ctx, 1));
    return app_check(tutti_adamw_create(ctx, m->params, NULL, &m->adamw));
}

static int open_exchange(model *m)
{
    const step_options *o = m->bench->options;
    tutti_grad_sync_desc sync = TUTTI_GRAD_SYNC_DESC_INIT;
    if (m->how == ALONE) return APP_OK;
    sync.exclusive = 1;
    if (!is_sharded(m)) sync.range_bytes = (size_t)o->range_mib << 20;
    if (m->how == MESSAGES)
        sync.engine = TUTTI_ENGINE_TRANSPORT;
    else
        sync.engine = o->engine == BOTH ? TUTTI_ENGINE_COPY : (tutti_engine)o->engine;
    if (m->how == REPRODUCIBLE)
        sync.leaves = (int)o->leaves;
    else if (o->wire == TUTTI_BF16)
        sync.wire = o->wire;
    return app_check(
        tutti_grad_sync_create(m->bench->ctx, m->bench->comm, m->params, &sync, &m->sync));
}

static void release_model(model *m)
{
    if (m->graph) bench_graph_close(&m->graph);
    tutti_grad_sync_destroy(&m->sync);
    tutti_adamw_destroy(&m->adamw);
    network_free(&m->network);
    if (m->x.data) (void)tutti_free(m->bench->ctx, &m->x.data);
    tutti_params_destroy(&m->params);
}

static void release(bench *b)
{
    for (int how = 0; how < MODES; how++) release_model(&b->models[how]);
    tutti_step_block_destroy(&b->step);
    tutti_comm_destroy(&b->comm);
    tutti_context_destroy(&b->ctx);
}

/* Gradients of all rows, summed over the ranks unless alone. */
static int gradients(model *m)
{
    tutti_context *ctx = m->bench->ctx;
    const int64_t rows = m->bench->options->rows;
    const size_t bytes = (size_t)(rows * m->x.cols) * tutti_dtype_size(m->bench->options->dtype);
    if (m->how == REPRODUCIBLE) {
        int first, count;
        APP_CHECK(tutti_grad_sync_own_leaves(m->sync, &first, &count));
        APP_CHECK(tutti_grad_sync_leaves_begin(m->sync, ctx, first, count));
        network_cut(&m->network, rows, count);
    }
    APP_TRY(network_forward(&m->network, rows, true));
    APP_CHECK(tutti_copy(ctx, m->dh.data, m->x.data, bytes));
    APP_TRY(network_backward(&m->network, rows, APP_OK, 0, m->sync));
    if (m->how == REPRODUCIBLE) APP_CHECK(tutti_grad_sync_leaves_end(m->sync, ctx));
    return m->sync ? app_check(tutti_grad_sync_finish(m->sync, ctx)) : APP_OK;
}

static int step(void *self)
{
    model *m = self;
    APP_TRY(gradients(m));
    return app_check(tutti_adamw_update(m->adamw, m->bench->ctx, m->bench->step));
}

/* Steps are timed as many in a row as training makes without waiting for them: what one leaves to
 * the next is part of the time. */
enum { IN_A_ROW = 4 };

/* The slowest rank's time of a step, and that of the host's calls: of the first one, which waits
 * for none before; of a graph, which waits for none anyway, of those behind it. */
static int step_seconds(model *m, double seconds[2])
{
    tutti_context *ctx = m->bench->ctx;
    APP_CHECK(tutti_comm_barrier(m->bench->comm, ctx));
    const double start = app_now();
    for (int i = 0; i < IN_A_ROW; i++) {
        APP_TRY(m->graph ? bench_graph_replay(m->graph) : step(m));
        if (i == 0) seconds[1] = app_now() - start;
    }
    if (m->graph) seconds[1] = (app_now() - start - seconds[1]) / (IN_A_ROW - 1);
    APP_CHECK(tutti_params_settle(m->params, ctx));
    APP_CHECK(tutti_context_synchronize(ctx));
    seconds[0] = (app_now() - start) / IN_A_ROW;
    return app_group_largest(m->bench->group, seconds, 2);
}

/* How far sums may be apart, of the largest; mixed: one of them may have travelled in bf16, which
 * rounds each rank's part and the sum. */
static double slack(const bench *b, bool mixed)
{
    return mixed && b->options->wire == TUTTI_BF16 ? 0x1p-7 : 1e-5;
}

enum { PIECE = 1 << 20 };

/* Compares a piece of the local sums with the smallest and the largest that the ranks hold. */
static int compare_piece(bench *b, void *const data[3], tutti_dtype dtype, int64_t first,
                         int64_t count, double *worst, double *largest)
{
    static double local[PIECE], low[PIECE], high[PIECE];
    APP_TRY(bench_read(b->ctx, data[0], dtype, first, count, local));
    APP_TRY(bench_read(b->ctx, data[1], dtype, first, count, low));
    APP_TRY(bench_read(b->ctx, data[2], dtype, first, count, high));
    if (memcmp(low, high, (size_t)count * sizeof *low) != 0)
        return app_fail(APP_MISMATCH, "ranks hold different sums");
    for (int64_t i = 0; i < count; i++) {
        const double error = fabs(local[i] - low[i]);
        if (!(error <= *worst)) *worst = isnan(error) ? INFINITY : error;
        *largest = fmax(*largest, fabs(local[i]));
    }
    return APP_OK;
}

/* The exchanged gradients against an all-reduce of the local ones: the same sums up to rounding,
 * and the same bits on all ranks. */
static int check_sums(model *m)
{
    bench *b = m->bench;
    model *const models[] = {&b->models[ALONE], m, m};
    static const tutti_op reduce[] = {TUTTI_SUM, TUTTI_MIN, TUTTI_MAX};
    tutti_tensor flat;
    double worst = 0, largest = 0;
    void *data[3] = {NULL};
    APP_CHECK(tutti_params_flat(m->params, TUTTI_PARAMS_GRAD, &flat));
    const int64_t count = flat.dims[0];
    int code = APP_OK;
    for (int i = 0; i < 3 && code == APP_OK; i++)
        code =
            app_check(tutti_alloc(b->ctx, (size_t)count * tutti_dtype_size(flat.dtype), &data[i]));
    for (int i = 0; i < 3 && code == APP_OK; i++) {
        if (i < 2) code = gradients(models[i]);
        if (code == APP_OK)
            code = app_check(tutti_params_flat(models[i]->params, TUTTI_PARAMS_GRAD, &flat));
        if (code == APP_OK)
            code = app_check(tutti_comm_all_reduce(b->comm, b->ctx, flat.data, data[i], count,
                                                   flat.dtype, reduce[i]));
    }
    for (int64_t at = 0; at < count && code == APP_OK; at += PIECE)
        code = compare_piece(b, data, flat.dtype, at, count - at < PIECE ? count - at : PIECE,
                             &worst, &largest);
    for (int i = 0; i < 3; i++) (void)tutti_free(b->ctx, &data[i]);
    if (code == APP_OK && !(worst <= slack(b, m->how != REPRODUCIBLE) * largest))
        code = app_fail(APP_MISMATCH, "%s: sums differ by %g of %g", mode_names[m->how], worst,
                        largest);
    return code;
}

/* The norm of the last step's gradients against that with the plain exchange, whose sums have been
 * checked, and the values of all ranks. */
static int check_sharded(model *m)
{
    tutti_adamw_stats own, plain;
    tutti_context *ctx = m->bench->ctx;
    APP_CHECK(tutti_adamw_get_stats(m->adamw, ctx, &own));
    APP_CHECK(tutti_adamw_get_stats(m->bench->models[FAST].adamw, ctx, &plain));
    const double bound = slack(m->bench, m->how == REPRODUCIBLE) * plain.grad_norm;
    if (!(fabs(own.grad_norm - plain.grad_norm) <= bound))
        return app_fail(APP_MISMATCH, "%s: the norm of the gradients is %.9g, want %.9g",
                        mode_names[m->how], own.grad_norm, plain.grad_norm);
    const tutti_status status = tutti_comm_check_params(m->bench->comm, ctx, m->params, NULL, 0);
    if (status == TUTTI_ERR_DATA)
        return app_fail(APP_MISMATCH, "%s: %s", mode_names[m->how], tutti_last_error());
    return app_check(status);
}

/* The median of each mode's steps, and of the host's calls. */
static int measure(bench *b, double median[MODES], double calls[MODES])
{
    const int steps = (int)b->options->steps;
    double *times = calloc((size_t)steps * MODES * 2, sizeof *times), seconds[2];
    double *call_times = times + steps * MODES;
    if (!times) return app_fail(APP_FAILED, "no memory for the times");
    int code = APP_OK;
    /* three steps to warm up; modes in turns, so that clock drift affects all alike */
    for (int i = -3; i < steps && code == APP_OK; i++)
        for (int how = 0; how < MODES && code == APP_OK; how++) {
            if (!runs(b->options, (mode)how)) continue;
            code = step_seconds(&b->models[how], seconds);
            if (i >= 0) times[how * steps + i] = seconds[0];
            if (i >= 0) call_times[how * steps + i] = seconds[1];
            if (i == -2 && code == APP_OK && b->options->graph)
                code = app_group_agree(b->group, bench_graph_open(b->ctx, step, &b->models[how],
                                                                  &b->models[how].graph));
        }
    for (int how = 0; how < MODES; how++) {
        if (!runs(b->options, (mode)how)) continue;
        median[how] = app_median(times + how * steps, steps);
        calls[how] = app_median(call_times + how * steps, steps);
    }
    free(times);
    return code;
}

static const char *engine_name(const tutti_grad_sync_info *info)
{
    return info->engine == TUTTI_ENGINE_COPY ? "copy" : "transport";
}

static int report(const bench *b, const double median[MODES], const double calls[MODES], bool good)
{
    const step_options *o = b->options;
    const double flop =
        6.0 * (double)o->rows * 8.0 * (double)o->dim * (double)o->dim * (double)o->blocks;
    char sharded[192] = "", reproducible[96] = "", messages[96] = "";
    const tutti_dtype wire = o->wire == TUTTI_BF16   ? o->wire
                             : o->dtype == TUTTI_F64 ? TUTTI_F64
                                                     : TUTTI_F32;
    tutti_grad_sync_info info, of_shards;
    APP_CHECK(tutti_grad_sync_get_info(b->models[FAST].sync, &info));
    if (runs(o, MESSAGES))
        snprintf(messages, sizeof messages, " | sharded by the transport %.3f ms | kept %.1f %%",
                 1e3 * median[MESSAGES], 100 * median[ALONE] / median[MESSAGES]);
    if (o->shard) {
        APP_CHECK(tutti_grad_sync_get_info(b->models[SHARDED].sync, &of_shards));
        snprintf(sharded, sizeof sharded,
                 "%s | engine %s | sharded %.3f ms | kept %.1f %% | host %+.0f us", messages,
                 engine_name(&of_shards), 1e3 * median[SHARDED],
                 100 * median[ALONE] / median[SHARDED], 1e6 * (calls[SHARDED] - calls[ALONE]));
    }
    if (o->leaves)
        snprintf(reproducible, sizeof reproducible,
                 " | reproducible, %lld leaves %.3f ms (%+.1f %%)", (long long)o->leaves,
                 1e3 * median[REPRODUCIBLE],
                 100 * (median[REPRODUCIBLE] / median[o->shard ? SHARDED : FAST] - 1));
    app_say("ranks %d | transport %s | dim %lld | blocks %lld | rows a rank %lld | %s | parameters "
            "%.1f M | ranges %d | wire %s, %.3f MB a step | without exchange "
            "%.3f ms (%.1f TFLOP/s a rank) | with exchange %.3f ms (by %s) | kept %.1f %% | host "
            "%+.0f us%s%s | sums %s",
            b->group->world_size, app_transport_name(tutti_comm_transport(b->comm)),
            (long long)o->dim, (long long)o->blocks, (long long)o->rows, tutti_dtype_name(o->dtype),
            (double)info.bytes / (o->dtype == TUTTI_F64 ? 8e6 : 4e6), info.ranges,
            tutti_dtype_name(wire), 1e-6 * (double)info.bytes_sent / (double)info.steps,
            1e3 * median[ALONE], 1e-12 * flop / median[ALONE], 1e3 * median[FAST],
            engine_name(&info), 100 * median[ALONE] / median[FAST],
            1e6 * (calls[FAST] - calls[ALONE]), sharded, reproducible, good ? "good" : "WRONG");
    return APP_OK;
}

static int open_models(bench *b)
{
    const tutti_step_values values = {.step = 1, .loss_weight = 1};
    int code = app_check(tutti_step_block_create(b->ctx, &b->step));
    if (code == APP_OK) code = app_check(tutti_step_block_set(b->step, b->ctx, &values));
    APP_TRY(app_group_agree(b->group, code));
    for (int how = 0; how < MODES; how++) {
        model *m = &b->models[how];
        *m = (model){.bench = b, .how = (mode)how};
        if (!runs(b->options, (mode)how)) continue;
        APP_TRY(app_group_agree(b->group, build(m)));
        APP_TRY(app_group_agree(b->group, open_exchange(m)));
    }
    return APP_OK;
}

static int check(bench *b)
{
    for (int how = FAST; how < MODES; how++) {
        model *m = &b->models[how];
        if (!runs(b->options, (mode)how)) continue;
        APP_TRY(app_group_agree(b->group, is_sharded(m) ? check_sharded(m) : check_sums(m)));
    }
    return APP_OK;
}

static int time_steps(bench *b)
{
    double median[MODES] = {0}, calls[MODES] = {0};
    APP_TRY(open_models(b));
    APP_TRY(app_group_agree(b->group, measure(b, median, calls)));
    int code = check(b);
    if (code == APP_OK || code == APP_MISMATCH) {
        const int said = report(b, median, calls, code == APP_OK);
        if (said != APP_OK) code = said;
    }
    return code;
}

static int run(void *given, app_group *group)
{
    const step_options *o = given;
    bench b = {.options = o, .group = group};
    signals_leave_at_once();
    if (o->leaves && (o->leaves % group->world_size || o->rows * group->world_size % o->leaves))
        return app_fail(APP_USAGE,
                        "--leaves is %lld, want a multiple of the ranks (%d) that divides the rows "
                        "of all (%lld)",
                        (long long)o->leaves, group->world_size,
                        (long long)(o->rows * group->world_size));
    int code = app_group_agree(group, app_device_open(group, o->common.backend, 0, &b.ctx));
    if (code == APP_OK)
        code =
            app_group_agree(group, app_device_connect(group, b.ctx, o->common.transport, &b.comm));
    if (code == APP_OK) code = time_steps(&b);
    release(&b);
    return code;
}

#define INT(field, high) \
    .kind = APP_INT, .at = offsetof(step_options, field), .least = 1, .most = high
static const char *const dtypes[] = {"f64", "f32", "f16", "bf16", NULL};
static const char *const wires[] = {"f32", "bf16", NULL};
static const char *const engines[] = {"auto", "transport", "copy", "both", NULL};

static const app_option table[] = {
    {"dim", "N", "columns of the residual stream", "2048", INT(dim, 1 << 20)},
    {"blocks", "N", "residual blocks", "6", INT(blocks, 10000)},
    {"rows", "N", "rows of a rank, the same in all modes: a leaf has ROWS * ranks / LEAVES", "8192",
     INT(rows, 1 << 30)},
    {"dtype", "TYPE", "f64, f32, f16 or bf16", "bf16", .kind = APP_DTYPE,
     .at = offsetof(step_options, dtype), .words = dtypes},
    {"steps", "N", "times of each mode, of four steps in a row, of which the median is taken", "20",
     INT(steps, 1000000)},
    {"wire", "TYPE", "what travels of f32 gradients, not in reproducible mode: f32 or bf16", "f32",
     .kind = APP_DTYPE, .at = offsetof(step_options, wire), .words = wires},
    {"range-mib", "N", "exchange gradients in ranges of about N MiB", .unset = "the library's",
     INT(range_mib, 1 << 20)},
    {"shard", .help = "time a sharded store too", .at = offsetof(step_options, shard)},
    {"engine", "NAME",
     "what moves gradients: auto, transport, copy (copy engines), or, with --shard, both, each "
     "timed with the sharded store",
     "auto", .kind = APP_WORD, .at = offsetof(step_options, engine), .words = engines},
    {"leaves", "N", "time reproducible mode with N leaves too", INT(leaves, TUTTI_LEAVES_MAX)},
    {"graph",
     .help =
         "on GPUs, not over mpi: capture each mode's step in a CUDA graph, and time its replays",
     .at = offsetof(step_options, graph)},
};

static error_t check_options(struct argp_state *state, void *given)
{
    const step_options *o = given;
    if (o->wire == TUTTI_BF16 && o->dtype == TUTTI_F64)
        return app_usage_error(state, "--wire bf16 does not go with --dtype f64");
    if (o->engine == BOTH && !o->shard)
        return app_usage_error(state, "--engine both requires --shard");
    return 0;
}

const app_command bench_step_command = {
    .program = "tutti-bench step",
    .doc = "Times training steps of a stack of residual blocks, AdamW's update included, without "
           "the gradient exchange, with it, with --shard of a sharded store, and with --leaves in "
           "reproducible mode too, in turns, and checks the sums.\v"
           "\"host\" is what the exchange adds to the host's time in a step's "
           "calls.\n\n" BENCH_EXIT_CODES,
    .options = table,
    .count = sizeof table / sizeof table[0],
    .ranks = 1,
    .size = sizeof(step_options),
    .check = check_options,
    .run = run};
