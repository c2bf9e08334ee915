/* A command's rows. */
#include "results.h"

#include <math.h>
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

/* In the order of bench_fault, from 1. */
static const char *const faults[] = {"last", "inside", "unwritten", "sums", NULL};

bool bench_parse_fault(const app_option *option, void *options, const char *text,
                       char wanted[APP_WANTED_MAX])
{
    int place = 0;
    (void)option;
    if (text && !app_word_find(faults, text, &place, wanted)) return false;
    ((bench_options *)options)->fault = place + BENCH_FAULT_LAST;
    return true;
}

error_t bench_check_options(struct argp_state *state, void *given)
{
    const bench_options *options = given;
    if (options->limit > 0 && !options->compare)
        return app_usage_error(state, "--fail-over requires --compare FILE");
    if (options->json && strcmp(options->json, "-") == 0)
        return app_usage_error(state, "--json is '-', want a file, such as /dev/stdout");
    return 0;
}

int bench_results_open(bench_results *results, const bench_options *options, const app_group *group)
{
    *results = (bench_results){.options = options};
    signals_keep_files(options->json || options->plot);
    if (group->rank != 0) return APP_OK;
    app_files *files = app_files_create();
    app_files_reads(files, options->compare);
    app_files_writes(files, "--json", options->json, "");
    app_files_writes(files, "--plot", options->plot, "");
    APP_TRY(app_files_check(files));
    APP_TRY(app_output_open(options->json, &results->output));
    APP_TRY(app_output_open(options->plot, &results->plot_output));
    if (options->plot) APP_TRY(bench_plot_create(&results->plot));
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
    const double least = results->options->share, share = r->reference / r->times.median;
    if (!(least > 0) || !r->product || r->added) return;
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
    const bench_before *before = bench_earlier_find(results->earlier, r);
    if (!before) {
        snprintf(text, size, "  not in the earlier file");
        return;
    }
    const double now = r->times.median;
    print_change(time, sizeof time, now, before->median);
    print_change(call, sizeof call, r->call_seconds, before->call);
    snprintf(text, size, "  %20s %20s", time, call);
    if (now != r->call_seconds) judge(results, r, "time", now, before->median);
    judge(results, r, "host cost of a call", r->call_seconds, before->call);
}

/* What was not measured is null. */
static void write_json(bench_results *results, const bench_result *r, bool right)
{
    app_json *json = &results->json;
    const double rate = r->amount / r->times.median;
    app_json_open(json, NULL, '{');
    app_json_text(json, "op", r->layer);
    app_json_text(json, "pass", r->pass);
    app_json_text(json, "variant", r->variant);
    app_json_text(json, "dtype", tutti_dtype_name(r->dtype));
    app_json_text(json, "param_dtype", tutti_dtype_name(r->param_dtype));
    app_json_text(json, "shape", r->shape);
    app_json_real(json, "us_median", r->times.median * 1e6);
    app_json_real(json, "us_p10", r->times.p10 * 1e6);
    app_json_real(json, "us_p90", r->times.p90 * 1e6);
    app_json_real(json, r->product ? "tflops" : "gbps", rate * (r->product ? 1e-12 : 1e-9));
    if (r->exchange) app_json_real(json, "bus_gbps", rate * r->bus_factor * 1e-9);
    if (r->exchange)
        app_json_real(json, "device_us",
                      r->device_seconds > 0 ? r->device_seconds * 1e6 : (double)NAN);
    app_json_real(json, "pct_roof",
                  r->reference > 0 ? 100 * r->reference / r->times.median : (double)NAN);
    app_json_real(json, "host_us", r->call_seconds > 0 ? r->call_seconds * 1e6 : (double)NAN);
    app_json_bool(json, "checked", right);
    app_json_real(json, r->product ? "operations" : "bytes", r->amount);
    app_json_real(json, "elements_checked", (double)r->elements);
    app_json_real(json, "error", r->error);
    app_json_text(json, "backend", results->machine->backend);
    app_json_text(json, "device", results->machine->device);
    app_json_int(json, "repeats", results->machine->repeats);
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
    if (results->plot && results->code == APP_OK) results->code = bench_plot_add(results->plot, r);
    results->count++;
    results->wrong += !right;
    results->noisy += r->times.p90 > 2 * r->times.p10;
    results->faulty += r->faulty;
    results->missed += r->faulty && right;
}

static int draw(bench_results *results)
{
    if (!results->plot) return APP_OK;
    APP_TRY(results->code);
    APP_TRY(app_output_begin(results->plot_output, false));
    APP_TRY(
        bench_plot_write(results->plot, results->machine, app_output_stream(results->plot_output)));
    return app_output_close(&results->plot_output);
}

/* The verdict on a run that went through. */
static int judge_all(const bench_results *results)
{
    const bench_options *o = results->options;
    if (o->fault && results->faulty == 0)
        return app_fail(APP_FAILED, "--inject-fault: no result has such an element");
    if (results->missed)
        return app_fail(APP_FAILED, "--inject-fault: %d of %d faults were not found",
                        results->missed, results->faulty);
    if (results->wrong && !(o->limit > 0))
        return app_fail(APP_MISMATCH, "%d of %d results are wrong", results->wrong, results->count);
    if (results->wrong || results->slower)
        return app_fail(APP_MISMATCH,
                        "%d of %d results are wrong; %d times are longer than --fail-over allows",
                        results->wrong, results->count, results->slower);
    if (results->behind)
        return app_fail(APP_MISMATCH, "%d of %d times are longer than --least-share allows",
                        results->behind, results->shares);
    return APP_OK;
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
    if (code == APP_OK) code = draw(results);
    app_output_close(&results->plot_output);
    bench_plot_destroy(&results->plot);
    if (code == APP_OK) code = bench_earlier_rest(results->earlier);
    if (4 * results->noisy > results->count)
        app_warn("%d of %d rows have a p90 of more than twice the p10, as when other programs use "
                 "the machine: their times mean little",
                 results->noisy, results->count);
    bench_earlier_free(&results->earlier);
    return code == APP_OK ? judge_all(results) : code;
}
