/* A command's rows. */
#include "results.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/files.h"
#include "common/report.h"
#include "common/signals.h"

/* "5" or "5%" */
static bool parse_percent(const char *text, double *percent, double least, double most,
                          char wanted[APP_WANTED_MAX])
{
    char *end;
    *percent = strtod(text, &end);
    snprintf(wanted, APP_WANTED_MAX, "%g%% to %g%%", least, most);
    return end != text && strcmp(*end == '%' ? end + 1 : end, "") == 0 && *percent >= least &&
           *percent <= most;
}

bool bench_parse_limit(const app_option *option, void *options, const char *text,
                       char wanted[APP_WANTED_MAX])
{
    double percent;
    (void)option;
    const bool good = parse_percent(text, &percent, 0, 1000, wanted);
    ((bench_options *)options)->limit = 1 + percent / 100;
    return good;
}

bool bench_parse_share(const app_option *option, void *options, const char *text,
                       char wanted[APP_WANTED_MAX])
{
    double percent;
    (void)option;
    const bool good = parse_percent(text, &percent, 1, 1000, wanted);
    ((bench_options *)options)->share = percent / 100;
    return good;
}

error_t bench_check_options(struct argp_state *state, void *given)
{
    const bench_options *options = given;
    if (options->limit > 0 && !options->compare)
        return app_usage_error(state, "--fail-over requires --compare FILE");
    return 0;
}

int bench_results_open(bench_results *results, const bench_options *options, const app_group *group)
{
    *results = (bench_results){.options = options};
    signals_keep_files(options->json);
    if (group->rank != 0) return APP_OK;
    app_files *files = app_files_create();
    app_files_reads(files, options->compare);
    app_files_writes(files, "--json", options->json, "");
    APP_TRY(app_files_check(files));
    APP_TRY(app_output_open(options->json, &results->output));
    return bench_earlier_read(options->compare, &results->earlier);
}

int bench_results_begin(bench_results *results, const bench_machine *machine, const char *head)
{
    results->machine = machine;
    APP_TRY(bench_earlier_check(results->earlier, machine));
    APP_TRY(signals_check("anything was written"));
    app_say_lines(tutti_build_info());
    app_say("%s%s", head, results->earlier ? "              time before          call before" : "");
    if (!results->output) return APP_OK;
    APP_TRY(app_output_begin(results->output, false));
    results->json =
        (app_json){.file = app_output_stream(results->output), .lines = 1, .spaced = true};
    app_json_open(&results->json, NULL, '[');
    return APP_OK;
}

/* "12.3 us -4.5 %", or "-" where one of the times is missing. */
static void print_change(char *text, size_t size, double now, double before)
{
    if (now > 0 && before > 0)
        snprintf(text, size, "%.1f us %+.1f %%", before * 1e6, 100 * (now / before - 1));
    else
        snprintf(text, size, "-");
}

static void judge(bench_results *results, const bench_result *r, const char *what, double now,
                  double before)
{
    const bench_options *o = results->options;
    if (!(o->limit > 0) || !(now > 0 && before > 0) || now <= before * o->limit) return;
    results->slower++;
    app_warn("%s %s %s %s: the %s is %.2f us, was %.2f us: %+.1f %%, want at most %g %%", r->layer,
             r->pass, r->variant, r->shape, what, now * 1e6, before * 1e6, 100 * (now / before - 1),
             100 * (o->limit - 1));
}

/* Compares a layer with its bare products. */
static void judge_share(bench_results *results, const bench_result *r)
{
    const double least = results->options->share, share = r->reference / r->seconds;
    if (!(least > 0) || !r->product || !(r->reference > 0)) return;
    results->shares++;
    if (share >= least) return;
    results->behind++;
    app_warn("%s %s %s %s: %.1f %% of the bare products' speed, want at least %g %%", r->layer,
             r->pass, r->variant, r->shape, 100 * share, 100 * least);
}

/* Appends the earlier run's times to a row of the table. */
static void compare(bench_results *results, const bench_result *r, char *text, size_t size)
{
    char time[48], call[48];
    text[0] = 0;
    if (!results->earlier) return;
    const bench_times *before = bench_earlier_find(results->earlier, r);
    if (!before) {
        snprintf(text, size, "  not in the earlier file");
        return;
    }
    print_change(time, sizeof time, r->seconds, before->seconds);
    print_change(call, sizeof call, r->call_seconds, before->call_seconds);
    snprintf(text, size, "  %20s %20s", time, call);
    if (r->seconds != r->call_seconds) judge(results, r, "time", r->seconds, before->seconds);
    judge(results, r, "host cost of a call", r->call_seconds, before->call_seconds);
}

static void write_json(bench_results *results, const bench_result *r, bool right)
{
    app_json *json = &results->json;
    app_json_open(json, NULL, '{');
    app_json_text(json, "backend", results->machine->backend);
    app_json_text(json, "device", results->machine->device);
    app_json_int(json, "repeats", results->machine->repeats);
    app_json_text(json, "layer", r->layer);
    app_json_text(json, "pass", r->pass);
    app_json_text(json, "variant", r->variant);
    app_json_text(json, "shape", r->shape);
    app_json_text(json, "dtype", tutti_dtype_name(r->dtype));
    app_json_real(json, "seconds", r->seconds);
    app_json_real(json, "call_seconds", r->call_seconds);
    app_json_real(json, r->product ? "operations" : "bytes", r->amount);
    if (r->exchange) {
        app_json_real(json, "algorithm_bandwidth", r->amount / r->seconds);
        app_json_real(json, "bus_bandwidth", r->amount / r->seconds * r->bus_factor);
    }
    app_json_real(json, "reference_seconds", r->reference);
    app_json_real(json, "error", r->error < 1e300 ? r->error : 1e300);
    app_json_bool(json, "right", right);
    app_json_close(json, '}');
}

void bench_results_add(bench_results *results, const bench_result *r, const char *row)
{
    bool right = r->error <= r->tolerance; /* false for NaN */
    char earlier[128];
    compare(results, r, earlier, sizeof earlier);
    app_say("%s  %s%s", row, right ? "right" : "WRONG", earlier);
    if (!right)
        app_warn("%s %s %s %s: the error is %.3g of the largest value, want at most %.3g", r->layer,
                 r->pass, r->variant, r->shape, r->error, r->tolerance);
    judge_share(results, r);
    write_json(results, r, right);
    results->count++;
    results->wrong += !right;
}

int bench_results_end(bench_results *results, int code)
{
    if (results->json.file) {
        app_json_close(&results->json, ']');
        fputc('\n', results->json.file);
    }
    if (code == APP_OK || code == APP_PREEMPTED) {
        const int closed = app_output_close(&results->output);
        if (closed != APP_OK) code = closed;
    }
    app_output_close(&results->output);
    if (code == APP_OK) code = bench_earlier_rest(results->earlier);
    bench_earlier_free(&results->earlier);
    if (code == APP_OK && results->options->share > 0 && results->shares == 0)
        code = app_fail(APP_FAILED, "--least-share: nothing was timed beside bare products");
    if (code == APP_OK && (results->wrong || results->slower))
        code = app_fail(APP_MISMATCH,
                        "%d of %d results are wrong; %d times are longer than --fail-over allows",
                        results->wrong, results->count, results->slower);
    if (code == APP_OK && results->behind)
        code = app_fail(APP_MISMATCH, "%d of %d times are longer than --least-share allows",
                        results->behind, results->shares);
    return code;
}
