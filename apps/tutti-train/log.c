/* The output of a run. */
#include "log.h"

#include <math.h>
#include <stdio.h>

#include "common/exit_code.h"
#include "task.h"

int log_open(train_log *log, const train_options *o, const app_group *group)
{
    *log = (train_log){.progress = {.kind = o->progress, .root = group->rank == 0},
                       .ranks = group->world_size,
                       .samples = o->task->samples,
                       .rate = o->task->rate};
    if (group->rank != 0 || o->dry_run) return APP_OK;
    APP_TRY(app_output_open(o->losses, &log->losses));
    return app_output_open(o->log_json, &log->json_output);
}

void log_close(train_log *log)
{
    app_output_close(&log->losses);
    app_output_close(&log->json_output);
}

/* Flushes a file.  If its reader has gone, or its disk is full, it gets no more lines, and the run
 * continues. */
static int flush(train_log *log, app_output **output)
{
    const int code = app_output_flush(*output);
    if (code == APP_OK || !app_output_lost(*output)) return code;
    snprintf(log->lost, sizeof log->lost, "%s", app_failure());
    app_warn("%s: no more lines are written", log->lost);
    app_output_close(output);
    return APP_OK;
}

/* One object a line. */
static app_json *begin_json(train_log *log, const char *event)
{
    app_json_open(&log->json, NULL, '{');
    app_json_text(&log->json, "event", event);
    return &log->json;
}

static app_json *begin_json_at(train_log *log, const char *event, const log_place *place)
{
    app_json *json = begin_json(log, event);
    app_json_int(json, "step", place->step);
    app_json_int(json, "epoch", place->epoch);
    app_json_int(json, "epoch_step", place->epoch_step);
    return json;
}

static int end_json(train_log *log)
{
    if (!log->json_output) return APP_OK;
    app_json_close(&log->json, '}');
    fputc('\n', log->json.file);
    APP_TRY(flush(log, &log->json_output));
    if (!log->json_output) log->json.file = NULL;
    return APP_OK;
}

int log_complete(const train_log *log)
{
    return log->lost[0] ? app_fail(APP_FAILED, "%s", log->lost) : APP_OK;
}

int log_start(train_log *log, const train_options *o, const log_place *place, bool resumed,
              const char *data, const char *backend, const char *transport)
{
    if (log->losses) APP_TRY(app_output_begin(log->losses, resumed));
    if (log->json_output) {
        APP_TRY(app_output_begin(log->json_output, resumed));
        log->json = (app_json){.file = app_output_stream(log->json_output)};
    }
    app_json *json = begin_json(log, "start");
    app_json_text(json, "version", tutti_version());
    app_json_text(json, "task", o->task->name);
    app_json_text(json, "data", data);
    app_json_text(json, "backend", backend);
    app_json_int(json, "ranks", log->ranks);
    app_json_text(json, "transport", transport);
    app_json_text(json, "dtype", tutti_dtype_name(o->dtype));
    app_json_text(json, "optimizer", train_text(o, "optimizer"));
    app_json_int(json, "epochs", o->epochs);
    app_json_int(json, "steps_per_epoch", place->steps);
    app_json_int(json, "batch", o->batch);
    app_json_int(json, "accumulate", o->accumulate);
    app_json_int(json, "leaves", o->leaves);
    app_json_text(json, "wire", o->wire == TUTTI_BF16 ? "bf16" : "f32");
    app_json_text(json, "rate_unit", log->rate);
    app_json_int(json, "resumed_from_step", place->step);
    return end_json(log);
}

static int write_losses(train_log *log, const log_place *place, double loss)
{
    if (!log->losses) return APP_OK;
    fprintf(app_output_stream(log->losses), "%lld %lld %.17g\n", (long long)place->epoch,
            (long long)place->epoch_step, loss);
    return flush(log, &log->losses);
}

int log_step(train_log *log, const log_place *place, const lap *lap, double grad_norm, double lr,
             double rate, double loss_scale)
{
    char ranks[64] = "";
    if (log->ranks > 1)
        snprintf(ranks, sizeof ranks, " | ranks %.2f-%.2f ms", lap->fastest_ms, lap->slowest_ms);
    progress_step(&log->progress,
                  "step %lld/%lld | loss %.6f | norm %.4f | lr %.3e | %.2f ms | %.0f %s%s",
                  (long long)place->epoch_step, (long long)place->steps, lap->loss, grad_norm, lr,
                  lap->ms, rate, log->rate, ranks);
    APP_TRY(write_losses(log, place, lap->loss));
    app_json *json = begin_json_at(log, "step", place);
    app_json_real(json, "loss", lap->loss);
    app_json_real(json, "grad_norm", grad_norm);
    app_json_real(json, "learning_rate", lr);
    app_json_real(json, "ms", lap->ms);
    app_json_real(json, "rate", rate);
    app_json_real(json, "fastest_rank_ms", lap->fastest_ms);
    app_json_real(json, "slowest_rank_ms", lap->slowest_ms);
    app_json_reals(json, "rank_ms", lap->ranks + LAP_OWN, log->ranks, LAP_PARTS);
    app_json_reals(json, "rank_waiting_ms", lap->ranks + LAP_WAITING, log->ranks, LAP_PARTS);
    app_json_reals(json, "rank_rows", lap->ranks + LAP_ROWS, log->ranks, LAP_PARTS);
    app_json_reals(json, "rank_bytes_sent", lap->ranks + LAP_SENT, log->ranks, LAP_PARTS);
    if (loss_scale > 0.0) app_json_real(json, "loss_scale", loss_scale);
    return end_json(log);
}

static void json_score(app_json *json, const log_score *score)
{
    app_json_real(json, "evaluation_loss", score->loss);
    if (!isnan(score->accuracy)) app_json_real(json, "accuracy", score->accuracy);
}

int log_evaluated(train_log *log, const log_place *place, const log_score *score, double seconds,
                  bool epoch)
{
    if (epoch)
        progress_line(&log->progress, "epoch %lld/%lld | %.2f s | %s", (long long)place->epoch,
                      (long long)place->epochs, seconds, score->report);
    else
        progress_line(&log->progress, "evaluated | after step %lld | %s", (long long)place->step,
                      score->report);
    app_json *json = begin_json_at(log, "evaluation", place);
    app_json_real(json, "seconds", seconds);
    json_score(json, score);
    return end_json(log);
}

void log_summary(train_log *log, const log_total *total)
{
    progress_line(
        &log->progress,
        "summary | %lld %s in %.2f s | %.0f %s in the steps, %.1f %% of their time waiting "
        "for the exchange | %lld skipped",
        (long long)total->samples, log->samples, total->seconds, total->rate, log->rate,
        100.0 * total->waiting_share, (long long)total->skipped);
}

int log_end(train_log *log, const log_place *place, const log_total *total, const log_score *score)
{
    progress_line(&log->progress, "done | %lld steps on %d rank%s in %.2f s | %s",
                  (long long)total->steps, log->ranks, log->ranks == 1 ? "" : "s", total->seconds,
                  score->report);
    app_json *json = begin_json_at(log, "end", place);
    app_json_int(json, "steps", total->steps);
    app_json_real(json, "seconds", total->seconds);
    app_json_real(json, "rate", total->rate);
    app_json_real(json, "waiting_share", total->waiting_share);
    app_json_int(json, "skipped", total->skipped);
    json_score(json, score);
    return end_json(log);
}

int log_skipped(train_log *log, const log_place *place, int64_t epoch_step, const char *why)
{
    progress_line(&log->progress, "skipped step %lld/%lld: %s", (long long)epoch_step,
                  (long long)place->steps, why);
    app_json *json = begin_json(log, "skipped");
    app_json_int(json, "step", place->step - place->epoch_step + epoch_step);
    app_json_text(json, "why", why);
    return end_json(log);
}

int log_saved(train_log *log, const log_place *place, double seconds)
{
    app_json_real(begin_json_at(log, "saved", place), "seconds", seconds);
    return end_json(log);
}

int log_stopped(train_log *log, const log_place *place, const char *why)
{
    app_json_text(begin_json_at(log, "stopped", place), "why", why);
    return end_json(log);
}
