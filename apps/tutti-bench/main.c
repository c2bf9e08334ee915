/* tutti-bench: times the layers, checks what they computed, prints a table. */
#include <stdio.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/files.h"
#include "common/output.h"
#include "common/report.h"
#include "common/signals.h"
#include "compare.h"
#include "options.h"

typedef struct output {
    FILE *json;
    const bench_machine *machine;
    bench_earlier *earlier;
    double fail_over; /* percent; negative: nothing fails */
    int results, wrong, slower;
} output;

/* "12.3 us -4.5 %", or what is missing for it. */
static void set_beside(char *text, size_t size, double now, double before)
{
    if (now > 0 && before > 0)
        snprintf(text, size, "%.1f us %+.1f %%", before * 1e6, 100 * (now / before - 1));
    else
        snprintf(text, size, "-");
}

static void judge(output *o, const bench_result *r, const char *what, double now, double before)
{
    if (o->fail_over < 0 || !(now > 0 && before > 0) || now <= before * (1 + o->fail_over / 100))
        return;
    o->slower++;
    app_warn("%s %s %s %s: the %s is %.2f us, was %.2f us: %+.1f %%, want at most %g %%", r->layer,
             r->pass, r->variant, r->shape, what, now * 1e6, before * 1e6, 100 * (now / before - 1),
             o->fail_over);
}

/* Ends a row of the table with what the earlier run has. */
static void compare(output *o, const bench_result *r, char *text, size_t size)
{
    char time[48], call[48];
    text[0] = 0;
    if (!o->earlier) return;
    const bench_times *before = bench_earlier_find(o->earlier, r);
    if (!before) {
        snprintf(text, size, "  not in the earlier file");
        return;
    }
    set_beside(time, sizeof time, r->seconds, before->seconds);
    set_beside(call, sizeof call, r->call_seconds, before->call_seconds);
    snprintf(text, size, "  %20s %20s", time, call);
    if (r->seconds != r->call_seconds) judge(o, r, "time", r->seconds, before->seconds);
    judge(o, r, "host cost of a call", r->call_seconds, before->call_seconds);
}

static void report(void *user, const bench_result *r)
{
    output *o = user;
    bool right = r->error <= r->tolerance; /* false for NaN */
    double rate = r->amount / r->seconds;
    double percent = r->reference > 0 ? 100 * r->reference / r->seconds : 0;
    /* a GPU's products in TFLOP/s, a laptop's in GFLOP/s */
    double unit = r->product && rate > 1e12 ? 1e-12 : 1e-9;
    const char *unit_name = !r->product ? "GB/s" : unit < 1e-10 ? "TFLOP/s" : "GFLOP/s";
    char reference[32] = "-", share[32] = "-", call[32] = "-", earlier[128];
    if (r->call_seconds > 0) snprintf(call, sizeof call, "%.2f", r->call_seconds * 1e6);
    compare(o, r, earlier, sizeof earlier);
    if (r->reference > 0) {
        snprintf(reference, sizeof reference, "%.1f", r->amount / r->reference * unit);
        snprintf(share, sizeof share, "%.1f %%", percent);
    }
    app_say("%-14s %-10s %-13s %-17s %-5s %11.1f %9.1f %-8s %9s %9s %9s  %s%s", r->layer, r->pass,
            r->variant, r->shape, tutti_dtype_name(r->dtype), r->seconds * 1e6, rate * unit,
            unit_name, reference, share, call, right ? "right" : "WRONG", earlier);
    if (!right)
        app_warn("%s %s %s %s: the error is %.3g of the largest value, want at most %.3g", r->layer,
                 r->pass, r->variant, r->shape, r->error, r->tolerance);
    if (o->json)
        fprintf(
            o->json,
            "%s\n  {\"backend\": \"%s\", \"device\": \"%s\", \"repeats\": %d, \"layer\": \"%s\", "
            "\"pass\": \"%s\", \"variant\": \"%s\", \"shape\": "
            "\"%s\", \"dtype\": \"%s\", \"seconds\": %.9g, \"call_seconds\": %.9g, \"%s\": %.17g, "
            "\"reference_seconds\": %.9g, \"error\": %.6g, \"right\": %s}",
            o->results ? "," : "", o->machine->backend, o->machine->device, o->machine->repeats,
            r->layer, r->pass, r->variant, r->shape, tutti_dtype_name(r->dtype), r->seconds,
            r->call_seconds, r->product ? "operations" : "bytes", r->amount, r->reference,
            r->error < 1e300 ? r->error : 1e300, right ? "true" : "false");
    o->results++;
    o->wrong += !right;
}

/* Rows x sizes: of a kind that has no shapes of its own. */
static bench_shape make_shape(int ndim, int64_t rows, int64_t size)
{
    bench_shape shape = {ndim, {rows}};
    for (int i = 1; i < ndim; i++) shape.dims[i] = size;
    return shape;
}

/* One shape of a layer, in all variants. */
static int run_shape(bench_machine *machine, const bench_options *options, int kind,
                     const bench_layer *own, tutti_dtype dtype, const bench_shape *shape,
                     output *to)
{
    bench_run run = {.machine = machine,
                     .type = tutti_layer_type_get(kind),
                     .own = own,
                     .variant = "",
                     .shape = *shape,
                     .dtype = dtype,
                     .rounded = dtype};
    char variants[BENCH_VARIANTS_MAX], *rest = NULL;
    APP_TRY(signals_check("the next shape"));
    if (!own->variant) return bench_layer_run(&run, report, to);
    snprintf(variants, sizeof variants, "%s",
             options->variants[kind] ? options->variants[kind] : own->variants);
    for (char *word = strtok_r(variants, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        run.variant = word;
        APP_TRY(bench_layer_run(&run, report, to));
    }
    return APP_OK;
}

static int run_layer(bench_machine *machine, const bench_options *options, int kind,
                     tutti_dtype dtype, output *to)
{
    const bool gpu = tutti_context_backend(machine->ctx) == TUTTI_BACKEND_CUDA;
    const tutti_layer_type *type = tutti_layer_type_get(kind);
    const bench_layer *own = options->plain ? &bench_layer_plain : bench_layer_find(type->name);
    const char *names[BENCH_DIMS_MAX];
    const int ndim = 1 + bench_shape_options(type, names);
    const bench_shape *shapes = options->shape_count ? options->shapes : gpu ? own->gpu : own->host;
    const bench_shape any = make_shape(ndim, gpu ? 8192 : 1024, gpu ? 1024 : 256);
    const bench_shape one_row = make_shape(ndim, 1, 8);
    int count = options->shape_count ? options->shape_count : BENCH_DEFAULT_SHAPES;
    if (shapes->ndim == 0) {
        shapes = &any;
        count = 1;
    }
    for (int i = 0; i < count; i++)
        if (shapes[i].ndim == ndim)
            APP_TRY(run_shape(machine, options, kind, own, dtype, &shapes[i], to));
    return gpu ? APP_OK : run_shape(machine, options, kind, own, dtype, &one_row, to);
}

static int run(bench_machine *machine, const bench_options *options, output *to)
{
    const bool gpu = tutti_context_backend(machine->ctx) == TUTTI_BACKEND_CUDA;
    const tutti_dtype dtype = options->dtype ? options->dtype : gpu ? TUTTI_BF16 : TUTTI_F32;
    app_say_lines(tutti_build_info());
    app_say("%-14s %-10s %-13s %-17s %-5s %11s %9s %-8s %9s %9s %9s%s", "layer", "pass", "variant",
            "shape", "type", "time us", "rate", "unit", "reference", "share", "call us",
            to->earlier ? "              time before          call before" : "");
    for (int kind = 0; kind < tutti_layer_type_count(); kind++)
        if (!options->layers || (options->layers >> kind & 1))
            APP_TRY(run_layer(machine, options, kind, dtype, to));
    return APP_OK;
}

/* All results, in a file too. */
static int measure(bench_machine *machine, const bench_options *options, app_output *json,
                   output *to)
{
    APP_TRY(bench_open(options->backend, options->device, options->repeats, machine));
    APP_TRY(bench_earlier_check(to->earlier, machine));
    to->machine = machine;
    if (!json) return run(machine, options, to);
    APP_TRY(signals_check("anything was written"));
    APP_TRY(app_output_begin(json, false));
    to->json = app_output_stream(json);
    fputs("[", to->json);
    const int code = run(machine, options, to);
    fputs("\n]\n", to->json);
    return code;
}

static int check_files(const bench_options *options, app_output **json)
{
    app_files *files = app_files_create();
    app_files_reads(files, options->compare);
    app_files_writes(files, "--json", options->json, "");
    APP_TRY(app_files_check(files));
    return app_output_open(options->json, json);
}

int main(int argc, char **argv)
{
    bench_options options;
    signals_watch();
    bench_options_parse(argc, argv, &options);
    app_report_start("tutti-bench", 0, 1);
    signals_keep_files(options.json);
    output to = {.fail_over = options.fail_over};
    bench_machine machine = {0};
    app_output *json = NULL;
    int code = check_files(&options, &json);
    if (code == APP_OK) code = bench_earlier_read(options.compare, &to.earlier);
    if (code == APP_OK) code = measure(&machine, &options, json, &to);
    if (code == APP_OK || code == APP_PREEMPTED) {
        const int closed = app_output_close(&json);
        if (closed != APP_OK) code = closed;
    }
    if (code == APP_OK) code = bench_earlier_rest(to.earlier);
    if (code == APP_OK) code = app_said();
    if (code != APP_OK) app_warn("%s", app_failure());
    app_output_close(&json);
    bench_close(&machine);
    bench_earlier_free(&to.earlier);
    if (code == APP_OK && to.results == 0) {
        app_warn("no shape of the list fits a wanted layer");
        code = APP_USAGE;
    }
    return code == APP_OK && (to.wrong || to.slower) ? APP_MISMATCH : code;
}
