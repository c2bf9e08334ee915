/* tutti-bench adamw: an update of a store of f32 masters, with the norm of the gradients, beside a
 * copy of as many bytes: gradients read twice, masters, m and v read and written, working values
 * written.  Every element of every result is compared with the formula of tutti/adamw.h in f64. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/device.h"
#include "common/exit_code.h"
#include "common/report.h"
#include "pattern.h"
#include "results.h"

enum { PARAMS = 24, PIECE = 1 << 20 };
static const double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0.1, rate = 1e-2, scale = 4;

typedef struct adamw_options {
    bench_options bench;
    int64_t device, count; /* 0: the device's own */
    tutti_dtype dtype;     /* of working values; 0: bf16 */
} adamw_options;

/* What an update reads and writes; the working values are only written. */
enum { GRAD, MASTER, M, V, FLAT, WORKING = FLAT };

typedef struct adamw {
    bench_machine machine;
    tutti_dtype dtype;
    int64_t count; /* of elements; each parameter has as many */
    tutti_param param[PARAMS];
    double decays[PARAMS]; /* in the order in which the parameters lie in memory */
    tutti_params *params;
    tutti_adamw *optimizer;
    tutti_step_block *step;
    tutti_tensor flat[FLAT + 1];
    void *updates; /* f64: how many there were */
    bench_pattern pattern[FLAT];
    double *room; /* of FLAT + 2 pieces */
} adamw;

static int update(void *given)
{
    adamw *a = given;
    return app_check(tutti_adamw_update(a->optimizer, a->machine.ctx, a->step));
}

static int build(adamw *a)
{
    tutti_context *ctx = a->machine.ctx;
    const int64_t each = a->count / PARAMS;
    APP_CHECK(tutti_params_create(ctx, NULL, &a->params));
    for (int i = 0; i < PARAMS; i++) {
        tutti_param *param = &a->param[i];
        snprintf(param->name, sizeof param->name, "block%d/weight", i);
        param->value = tutti_tensor_1d(NULL, a->dtype, each);
        param->lr_scale = 1;
        param->weight_decay = i % 2; /* biases have none */
        APP_CHECK(tutti_params_add_param(a->params, param));
    }
    APP_CHECK(tutti_params_build(a->params, ctx));
    const tutti_adamw_desc desc = {
        .beta1 = beta1, .beta2 = beta2, .eps = eps, .weight_decay = decay, .clip_norm = 1e9};
    APP_CHECK(tutti_adamw_create(ctx, a->params, &desc, &a->optimizer));
    APP_CHECK(tutti_step_block_create(ctx, &a->step));
    APP_CHECK(tutti_step_block_set(
        a->step, ctx,
        &(tutti_step_values){
            .step = 1, .learning_rate = rate, .loss_weight = 1, .loss_scale = scale}));
    APP_CHECK(tutti_params_flat(a->params, TUTTI_PARAMS_GRAD, &a->flat[GRAD]));
    APP_CHECK(tutti_params_flat(a->params, TUTTI_PARAMS_MASTER, &a->flat[MASTER]));
    for (int i = 0; i < PARAMS; i++) {
        const float *own = a->param[i].master.data;
        a->decays[(own - (float *)a->flat[MASTER].data) / each] = decay * a->param[i].weight_decay;
    }
    if (a->dtype != TUTTI_F32)
        APP_CHECK(tutti_params_flat(a->params, TUTTI_PARAMS_WORKING, &a->flat[WORKING]));
    for (int i = 0; i < tutti_adamw_state_count(a->optimizer); i++) {
        tutti_state_tensor state;
        APP_CHECK(tutti_adamw_state_get(a->optimizer, i, &state));
        if (i < 2)
            a->flat[M + i] = state.tensor;
        else
            a->updates = state.tensor.data;
    }
    return APP_OK;
}

/* The state before the first update. */
static int fill(adamw *a)
{
    static const struct {
        double offset, scale;
    } of[FLAT] = {{0, 1}, {0, 1}, {0, 0.1}, {0.5, 0.4}};
    for (int i = 0; i < FLAT; i++) {
        if (!a->pattern[i].values)
            APP_TRY(bench_pattern_make(TUTTI_F32, TUTTI_F32, a->count, (uint64_t)i + 1,
                                       of[i].offset, of[i].scale, &a->pattern[i]));
        APP_TRY(bench_fill(a->machine.ctx, &a->pattern[i], TUTTI_F32, a->count, a->flat[i].data));
    }
    return app_check(tutti_zero(a->machine.ctx, a->updates, sizeof(double)));
}

/* Of the patterns. */
static double norm_of_gradients(const adamw *a)
{
    double squares = 0;
    for (int64_t at = 0; at < a->count; at += PIECE) {
        const int64_t part = a->count - at < PIECE ? a->count - at : PIECE;
        bench_pattern_read(&a->pattern[GRAD], at, part, a->room);
        for (int64_t i = 0; i < part; i++) squares += a->room[i] * a->room[i];
    }
    return sqrt(squares);
}

/* The largest error of the elements from `at` on, each over its size; infinite for a working value
 * that is not the master's rounding. */
static int check_piece(adamw *a, int64_t at, int64_t part, double *error)
{
    double *have[FLAT], *got = a->room + FLAT * PIECE, *rounded = got + PIECE;
    for (int i = 0; i < FLAT; i++) {
        have[i] = a->room + i * PIECE;
        bench_pattern_read(&a->pattern[i], at, part, have[i]);
    }
    for (int64_t i = 0; i < part; i++) {
        const double g = have[GRAD][i] / scale, p = have[MASTER][i];
        const double own = a->decays[(at + i) / (a->count / PARAMS)];
        const double m = have[M][i] = beta1 * have[M][i] + (1 - beta1) * g;
        const double v = have[V][i] = beta2 * have[V][i] + (1 - beta2) * g * g;
        const double step = m / (1 - beta1) / (sqrt(v / (1 - beta2)) + eps);
        have[MASTER][i] = p - rate * (step + own * p);
        have[GRAD][i] = fabs(p) + rate * fabs(step); /* the size of what is added */
    }
    for (int k = M; k <= V + 1; k++) {
        const int which = k > V ? MASTER : k; /* last, to stay in `got` */
        APP_TRY(bench_read(a->machine.ctx, a->flat[which].data, TUTTI_F32, at, part, got));
        for (int64_t i = 0; i < part; i++) {
            const double size = which == MASTER ? have[GRAD][i] : which == M ? 0.2 : have[V][i];
            const double off = fabs(got[i] - have[which][i]) / size;
            if (!(off <= *error)) *error = isnan(off) ? INFINITY : off;
        }
    }
    if (!a->flat[WORKING].data) return APP_OK;
    APP_CHECK(tutti_convert(have[GRAD], a->dtype, got, TUTTI_F64, part));
    APP_CHECK(tutti_convert(rounded, TUTTI_F64, have[GRAD], a->dtype, part));
    APP_TRY(bench_read(a->machine.ctx, a->flat[WORKING].data, a->dtype, at, part, got));
    for (int64_t i = 0; i < part; i++)
        if (got[i] != rounded[i]) *error = INFINITY;
    return APP_OK;
}

/* Working values become NaN. */
static int spoil(adamw *a)
{
    if (!a->flat[WORKING].data) return APP_OK;
    bench_pattern nan;
    int code = bench_pattern_make(a->dtype, a->dtype, a->count, 1, 0, 0, &nan);
    const int64_t period = a->count < BENCH_PERIOD ? a->count : BENCH_PERIOD;
    if (code == APP_OK) {
        memset(nan.typed, 0xff, (size_t)period * tutti_dtype_size(a->dtype));
        code = bench_fill(a->machine.ctx, &nan, a->dtype, a->count, a->flat[WORKING].data);
    }
    if (code == APP_OK) code = app_check(tutti_context_synchronize(a->machine.ctx));
    bench_pattern_free(&nan);
    return code;
}

static int check(adamw *a, bench_result *result)
{
    tutti_adamw_stats stats;
    APP_TRY(fill(a));
    APP_TRY(spoil(a));
    APP_TRY(update(a));
    APP_CHECK(tutti_adamw_get_stats(a->optimizer, a->machine.ctx, &stats));
    if (!(fabs(stats.grad_norm * scale / norm_of_gradients(a) - 1) <= 1e-9))
        result->error = INFINITY;
    for (int64_t at = 0; at < a->count; at += PIECE)
        APP_TRY(check_piece(a, at, a->count - at < PIECE ? a->count - at : PIECE, &result->error));
    result->tolerance = 4e-6;
    result->elements = a->count * (a->flat[WORKING].data ? 4 : 3);
    return APP_OK;
}

static int measure(adamw *a, bench_results *results)
{
    const size_t working = a->flat[WORKING].data ? tutti_dtype_size(a->dtype) : 0;
    bench_result result = {.layer = "adamw",
                           .pass = "update",
                           .variant = "",
                           .dtype = a->dtype,
                           .param_dtype = TUTTI_F32,
                           .amount = (double)a->count * (double)(8 * sizeof(float) + working)};
    const bench_reference copy = {.bytes = (size_t)result.amount};
    char row[192];
    snprintf(result.shape, sizeof result.shape, "%lld", (long long)a->count);
    APP_TRY(fill(a));
    APP_TRY(bench_time(&a->machine, update, a, &copy, &result.times, &result.reference));
    APP_TRY(check(a, &result));
    snprintf(row, sizeof row, "%-12lld %-8s %11.1f %9.1f %9.1f %9.1f %9.1f %7.1f %%",
             (long long)a->count, tutti_dtype_name(a->dtype), result.times.median * 1e6,
             result.times.p10 * 1e6, result.times.p90 * 1e6,
             1e-9 * result.amount / result.times.median, 1e-9 * result.amount / result.reference,
             100 * result.reference / result.times.median);
    bench_results_add(results, &result, row);
    return APP_OK;
}

static int time_updates(adamw *a, const adamw_options *o, bench_results *results)
{
    char head[128];
    const bool gpu = tutti_context_backend(a->machine.ctx) == TUTTI_BACKEND_CUDA;
    const int64_t align = (int64_t)PARAMS * TUTTI_PARAM_ALIGN; /* no gaps between parameters */
    const int64_t count = o->count ? o->count : gpu ? 200000000 : 10000000;
    a->count = (count + align - 1) / align * align;
    a->dtype = o->dtype ? o->dtype : TUTTI_BF16;
    a->room = malloc((FLAT + 2) * (size_t)PIECE * sizeof(double));
    if (!a->room) return app_fail(APP_FAILED, "no memory for the check");
    snprintf(head, sizeof head, "%-12s %-8s %11s %9s %9s %9s %9s %9s", "elements", "working",
             "time us", "p10", "p90", "GB/s", "copy", "share");
    APP_TRY(bench_results_begin(results, &a->machine, head));
    APP_TRY(build(a));
    return measure(a, results);
}

static void release(adamw *a)
{
    for (int i = 0; i < FLAT; i++) bench_pattern_free(&a->pattern[i]);
    free(a->room);
    tutti_step_block_destroy(&a->step);
    tutti_adamw_destroy(&a->optimizer);
    tutti_params_destroy(&a->params);
    bench_close(&a->machine);
}

static int run(void *given, app_group *group)
{
    const adamw_options *o = given;
    bench_results results;
    adamw a = {0};
    if (group->world_size > 1)
        return app_fail(APP_USAGE, "an update is timed on one rank, but there are %d",
                        group->world_size);
    int code = bench_results_open(&results, &o->bench, group);
    if (code == APP_OK)
        code =
            bench_open(o->bench.common.backend, (int)o->device, (int)o->bench.repeats, &a.machine);
    if (code == APP_OK) code = time_updates(&a, o, &results);
    code = bench_results_end(&results, code);
    release(&a);
    return code;
}

static const char *const dtypes[] = {"f32", "f16", "bf16", NULL};
static const app_option table[] = {
    BENCH_TABLE,
    {"backend", "NAME", "auto, host or cuda", "auto", .letter = 'b', .kind = APP_WORD,
     .at = offsetof(app_common, backend), .words = app_backends},
    {"dtype", "TYPE", "of the working values: f32, f16 or bf16", "bf16", .letter = 'd',
     .kind = APP_DTYPE, .at = offsetof(adamw_options, dtype), .words = dtypes},
    {"elements", "N", "of the store, rounded up to a multiple of its alignment",
     "200000000 on a GPU, 10000000 on the host", .kind = APP_INT,
     .at = offsetof(adamw_options, count), .least = 1, .most = 1e12},
    {"device", "N", "CUDA device", "0", .kind = APP_INT, .at = offsetof(adamw_options, device),
     .most = 1023},
};

const app_command bench_adamw_command = {
    .program = "tutti-bench adamw",
    .doc =
        "Times an update of AdamW's over a store of f32 masters, with the norm of the gradients, "
        "beside a copy of as many bytes, and checks every element.\v" BENCH_EXIT_CODES,
    .options = table,
    .count = sizeof table / sizeof table[0],
    .size = sizeof(adamw_options),
    .check = bench_check_options,
    .run = run};
