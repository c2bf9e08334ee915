/* tutti-bench step: forward and backward of a stack of residual blocks
 *
 *     h = h + W2 gelu(W1 rmsnorm(h)),    W1 [4 dim, dim],  W2 [dim, 4 dim]
 *
 * timed without the gradient exchange, with it, and with --leaves in reproducible mode too, on the
 * same ranks, in turns.  After the last exchange the sums are checked: equal on all ranks, and
 * equal to what a plain all-reduce of the local gradients gives. */
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
    tutti_dtype dtype;
} step_options;

typedef enum mode { ALONE, FAST, REPRODUCIBLE, MODES } mode;

typedef struct model {
    const step_options *options;
    app_group *group;
    tutti_context *ctx;
    tutti_comm *comm;
    tutti_params *params;
    tutti_grad_sync *sync[MODES];
    network network;
    view x, dh; /* the input, and the gradient of the stream */
} model;

/* Draws x, which also serves as the upstream gradient. */
static int fill_random(model *m)
{
    bench_pattern pattern;
    const step_options *o = m->options;
    APP_TRY(bench_pattern_make(o->dtype, o->dtype, o->rows * o->dim, (uint64_t)m->group->rank + 1,
                               0, 1, &pattern));
    const int code = bench_alloc(m->ctx, &pattern, o->dtype, o->rows * o->dim, &m->x.data);
    bench_pattern_free(&pattern);
    return code;
}

/* Residual block b: h and branch are the previous block's on entry and this one's on return. */
static int add_block(model *m, int64_t b, const view *dnarrow, const view *dwide, view *h,
                     view *branch)
{
    network *n = &m->network;
    const int64_t dim = m->options->dim, wide = 4 * dim;
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
    const step_options *o = m->options;
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    view dnarrow = {.cols = o->dim}, dwide = {.cols = 4 * o->dim}, branch = {0};
    if (o->dtype == TUTTI_F64) desc.master_dtype = TUTTI_F64;
    APP_CHECK(tutti_params_create(m->ctx, &desc, &m->params));
    APP_TRY(network_create(&m->network, m->ctx, o->dtype, o->blocks, o->rows, m->params));
    m->network.norm_dtype = o->dtype;
    m->x.cols = m->dh.cols = o->dim;
    APP_TRY(fill_random(m));
    APP_TRY(network_buffer(&m->network, o->dim, &m->dh.data));
    APP_TRY(network_buffer(&m->network, o->dim, &dnarrow.data));
    APP_TRY(network_buffer(&m->network, 4 * o->dim, &dwide.data));
    view h = m->x;
    for (int64_t b = 0; b < o->blocks; b++) APP_TRY(add_block(m, b, &dnarrow, &dwide, &h, &branch));
    APP_CHECK(tutti_params_build(m->params, m->ctx));
    return app_check(tutti_params_init(m->params, m->ctx, 1));
}

static int open_exchange(model *m)
{
    const step_options *o = m->options;
    APP_CHECK(tutti_comm_broadcast_params(m->comm, m->ctx, m->params));
    tutti_grad_sync_desc sync = TUTTI_GRAD_SYNC_DESC_INIT;
    sync.range_bytes = (size_t)o->range_mib << 20;
    APP_CHECK(tutti_grad_sync_create(m->ctx, m->comm, m->params, &sync, &m->sync[FAST]));
    if (!o->leaves) return APP_OK;
    sync.leaves = (int)o->leaves;
    return app_check(
        tutti_grad_sync_create(m->ctx, m->comm, m->params, &sync, &m->sync[REPRODUCIBLE]));
}

static void release(model *m)
{
    for (int how = 0; how < MODES; how++) tutti_grad_sync_destroy(&m->sync[how]);
    network_free(&m->network);
    if (m->x.data) (void)tutti_free(m->ctx, &m->x.data);
    tutti_params_destroy(&m->params);
    tutti_comm_destroy(&m->comm);
    tutti_context_destroy(&m->ctx);
}

/* The first block's norm reads the input, and the second's adds to it. */
static void set_input(model *m, void *part)
{
    enum { OF_BLOCK = 3 };
    network_layer *layers = m->network.layers;
    layers[0].wiring.in[0].data = layers[0].wiring.x.data = part;
    if (m->options->blocks > 1) layers[OF_BLOCK].wiring.in[0].data = part;
}

/* Gradients of all rows, summed over the ranks unless alone. */
static int step(model *m, mode how)
{
    tutti_grad_sync *sync = m->sync[how];
    int first = 0, count = 1;
    if (how == REPRODUCIBLE) APP_CHECK(tutti_grad_sync_own_leaves(sync, &first, &count));
    const int64_t rows = m->options->rows / count;
    const size_t bytes = (size_t)(rows * m->x.cols) * tutti_dtype_size(m->options->dtype);
    for (int leaf = first; leaf < first + count; leaf++) {
        void *part = (char *)m->x.data + (size_t)(leaf - first) * bytes;
        set_input(m, part);
        if (how == REPRODUCIBLE) APP_CHECK(tutti_grad_sync_leaf_begin(sync, m->ctx, leaf));
        APP_TRY(network_forward(&m->network, rows, true));
        APP_CHECK(tutti_copy(m->ctx, m->dh.data, part, bytes));
        APP_TRY(network_backward(&m->network, rows, APP_OK, 0, sync));
        if (how == REPRODUCIBLE) APP_CHECK(tutti_grad_sync_leaf_end(sync, m->ctx, leaf));
    }
    return sync ? app_check(tutti_grad_sync_finish(sync, m->ctx)) : APP_OK;
}

/* The slowest rank's time of one step. */
static int step_seconds(model *m, mode how, double *seconds)
{
    APP_CHECK(tutti_comm_barrier(m->comm, m->ctx));
    const double start = app_now();
    APP_TRY(step(m, how));
    APP_CHECK(tutti_context_synchronize(m->ctx));
    *seconds = app_now() - start;
    return app_group_largest(m->group, seconds, 1);
}

enum { PIECE = 1 << 20 };

/* Compares a piece of the local sums with the smallest and the largest that the ranks hold. */
static int compare_piece(model *m, void *const data[3], tutti_dtype dtype, int64_t first,
                         int64_t count, double *worst, double *largest)
{
    static double local[PIECE], low[PIECE], high[PIECE];
    APP_TRY(bench_read(m->ctx, data[0], dtype, first, count, local));
    APP_TRY(bench_read(m->ctx, data[1], dtype, first, count, low));
    APP_TRY(bench_read(m->ctx, data[2], dtype, first, count, high));
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
static int check(model *m, mode how)
{
    tutti_tensor flat;
    double worst = 0, largest = 0;
    void *data[3] = {NULL};
    APP_CHECK(tutti_params_flat(m->params, TUTTI_PARAMS_GRAD, &flat));
    const int64_t count = flat.dims[0];
    int code = APP_OK;
    for (int i = 0; i < 3 && code == APP_OK; i++)
        code =
            app_check(tutti_alloc(m->ctx, (size_t)count * tutti_dtype_size(flat.dtype), &data[i]));
    static const tutti_op reduce[] = {TUTTI_SUM, TUTTI_MIN, TUTTI_MAX};
    for (int i = 0; i < 3 && code == APP_OK; i++) {
        if (i < 2) code = step(m, i == 0 ? ALONE : how);
        if (code == APP_OK)
            code = app_check(tutti_comm_all_reduce(m->comm, m->ctx, flat.data, data[i], count,
                                                   flat.dtype, reduce[i]));
    }
    for (int64_t at = 0; at < count && code == APP_OK; at += PIECE)
        code = compare_piece(m, data, flat.dtype, at, count - at < PIECE ? count - at : PIECE,
                             &worst, &largest);
    for (int i = 0; i < 3; i++) (void)tutti_free(m->ctx, &data[i]);
    if (code == APP_OK && !(worst <= 1e-5 * largest))
        code = app_fail(APP_MISMATCH, "sums differ by %g of %g", worst, largest);
    return code;
}

/* The median of each mode's steps. */
static int measure(model *m, double median[MODES])
{
    const int steps = (int)m->options->steps, modes = m->options->leaves ? MODES : REPRODUCIBLE;
    double *times = calloc((size_t)steps * MODES, sizeof *times), seconds;
    if (!times) return app_fail(APP_FAILED, "no memory for the times");
    int code = APP_OK;
    /* three steps to warm up; modes in turns, so that clock drift affects all alike */
    for (int i = -3; i < steps && code == APP_OK; i++)
        for (int how = 0; how < modes && code == APP_OK; how++) {
            code = step_seconds(m, (mode)how, &seconds);
            if (i >= 0) times[how * steps + i] = seconds;
        }
    for (int how = 0; how < modes; how++) median[how] = app_median(times + how * steps, steps);
    free(times);
    return code;
}

static int report(const model *m, const double median[MODES], bool good)
{
    const step_options *o = m->options;
    const double flop =
        6.0 * (double)o->rows * 8.0 * (double)o->dim * (double)o->dim * (double)o->blocks;
    char reproducible[96] = "";
    tutti_grad_sync_info info;
    APP_CHECK(tutti_grad_sync_get_info(m->sync[FAST], &info));
    if (o->leaves)
        snprintf(reproducible, sizeof reproducible,
                 " | reproducible, %lld leaves %.3f ms (%+.1f %%)", (long long)o->leaves,
                 1e3 * median[REPRODUCIBLE], 100 * (median[REPRODUCIBLE] / median[FAST] - 1));
    app_say("ranks %d | transport %s | dim %lld | blocks %lld | rows a rank %lld | %s | parameters "
            "%.1f M | ranges %d | without exchange "
            "%.3f ms (%.1f TFLOP/s a rank) | with exchange %.3f ms | kept %.1f %%%s | sums %s",
            m->group->world_size, app_transport_name(tutti_comm_transport(m->comm)),
            (long long)o->dim, (long long)o->blocks, (long long)o->rows, tutti_dtype_name(o->dtype),
            (double)info.bytes / (o->dtype == TUTTI_F64 ? 8e6 : 4e6), info.ranges,
            1e3 * median[ALONE], 1e-12 * flop / median[ALONE], 1e3 * median[FAST],
            100 * median[ALONE] / median[FAST], reproducible, good ? "good" : "WRONG");
    return APP_OK;
}

static int time_steps(model *m)
{
    double median[MODES] = {0};
    app_group *group = m->group;
    APP_TRY(app_group_agree(group, build(m)));
    APP_TRY(app_group_agree(group, open_exchange(m)));
    APP_TRY(app_group_agree(group, measure(m, median)));
    int code = app_group_agree(group, check(m, FAST));
    if (code == APP_OK && m->options->leaves) code = app_group_agree(group, check(m, REPRODUCIBLE));
    if (code == APP_OK || code == APP_MISMATCH) {
        const int said = report(m, median, code == APP_OK);
        if (said != APP_OK) code = said;
    }
    return code;
}

static int run(void *given, app_group *group)
{
    const step_options *o = given;
    model m = {.options = o, .group = group};
    signals_leave_at_once();
    if (o->leaves && (o->leaves % group->world_size || o->rows * group->world_size % o->leaves))
        return app_fail(
            APP_USAGE,
            "--leaves must be a multiple of the ranks that divides the rows of all ranks");
    int code = app_group_agree(group, app_device_open(group, o->common.backend, 0, &m.ctx));
    if (code == APP_OK)
        code =
            app_group_agree(group, app_device_connect(group, m.ctx, o->common.transport, &m.comm));
    if (code == APP_OK) code = time_steps(&m);
    release(&m);
    return code;
}

#define INT(field, high) \
    .kind = APP_INT, .at = offsetof(step_options, field), .least = 1, .most = high
static const char *const dtypes[] = {"f64", "f32", "f16", "bf16", NULL};

static const app_option table[] = {
    {"dim", "N", "columns of the residual stream", "2048", INT(dim, 1 << 20)},
    {"blocks", "N", "residual blocks", "6", INT(blocks, 10000)},
    {"rows", "N", "rows of a rank, the same in all modes: a leaf has ROWS * ranks / LEAVES", "8192",
     INT(rows, 1 << 30)},
    {"dtype", "TYPE", "f64, f32, f16 or bf16", "bf16", .kind = APP_DTYPE,
     .at = offsetof(step_options, dtype), .words = dtypes},
    {"steps", "N", "steps of each mode, of which the median is taken", "20", INT(steps, 1000000)},
    {"range-mib", "N", "exchange gradients in ranges of about N MiB", "32",
     INT(range_mib, 1 << 20)},
    {"leaves", "N", "time reproducible mode with N leaves too", INT(leaves, TUTTI_LEAVES_MAX)},
};

const app_command bench_step_command = {
    .program = "tutti-bench step",
    .doc = "Times forward and backward of a stack of residual blocks without the gradient "
           "exchange, with it, and with --leaves in reproducible mode too, in turns, and checks "
           "the sums.\v" BENCH_EXIT_CODES,
    .options = table,
    .count = sizeof table / sizeof table[0],
    .ranks = 1,
    .size = sizeof(step_options),
    .run = run};
