/* What a run says and writes while it goes on. */
#include "log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "trainer.h"

/* What ranks tell each other for a line: their part of the mean loss; of each step of the lap, the milliseconds in which it waited
 * for others and those in which it did not, the rows computed and the bytes of gradients sent. */
enum { PART_LOSS, PART_OWN, PART_WAITING, PART_ROWS, PART_SENT, PARTS };

int log_open(trainer *t)
{
    train_log *log = &t->log;
    const train_options *o = t->options;
    log->progress = (progress){.kind = o->progress, .root = t->group->rank == 0};
    log->gathered = calloc((size_t)t->group->world_size * PARTS, sizeof *log->gathered);
    if (!log->gathered) return app_fail(APP_FAILED, "no memory for the log");
    if (t->group->rank != 0 || o->dry_run) return APP_OK;
    APP_TRY(app_output_open(o->losses, &log->losses));
    return jsonl_open(o->log_json, &log->json);
}

void log_close(trainer *t)
{
    train_log *log = &t->log;
    app_output_close(&log->losses);
    jsonl_close(&log->json);
    free(log->gathered);
    free(log->range_ends);
}

/* A file whose reader has gone gets no more lines, and the run goes on. */
static void note_lost(train_log *log)
{
    snprintf(log->lost, sizeof log->lost, "%s", app_failure());
    app_warn("%s: no more lines", log->lost);
}

static int end_json(trainer *t)
{
    const int code = jsonl_end(t->log.json);
    if (code == APP_OK || !jsonl_lost(t->log.json)) return code;
    note_lost(&t->log);
    jsonl_close(&t->log.json);
    return APP_OK;
}

int log_complete(const trainer *t)
{
    return t->log.lost[0] ? app_fail(APP_FAILED, "%s", t->log.lost) : APP_OK;
}

int log_start(trainer *t)
{
    const train_options *o = t->options;
    jsonl *json = t->log.json;
    if (t->log.losses) APP_TRY(app_output_begin(t->log.losses, t->resumed));
    APP_TRY(jsonl_start(json, t->resumed));
    t->log.begin = app_now();
    t->log.first_step = t->state.step;
    jsonl_begin(json, "start");
    jsonl_text(json, "version", tutti_version());
    jsonl_text(json, "task", o->task->name);
    jsonl_text(json, "data", t->task->data_name);
    jsonl_text(json, "backend",
               tutti_context_backend(t->ctx) == TUTTI_BACKEND_CUDA ? "cuda" : "host");
    jsonl_int(json, "ranks", t->group->world_size);
    jsonl_text(json, "transport", train_transport_name(tutti_comm_transport(t->comm)));
    jsonl_text(json, "dtype", tutti_dtype_name(o->dtype));
    jsonl_int(json, "epochs", o->epochs);
    jsonl_int(json, "steps_per_epoch", t->steps);
    jsonl_int(json, "batch", o->batch);
    jsonl_int(json, "accumulate", o->accumulate);
    jsonl_int(json, "leaves", o->leaves);
    jsonl_text(json, "rate_unit", t->task->class->rate);
    jsonl_int(json, "resumed_from_step", t->state.step);
    return end_json(t);
}

/* The time that waiting takes is a part of the step's: on the host it lies within finish, and on a GPU the device has come to the
 * step after the lap began, and has finished it before this rank looked at it. */
int log_waited(trainer *t)
{
    train_log *log = &t->log;
    tutti_grad_sync_info info;
    if (t->group->world_size == 1) return APP_OK;
    APP_CHECK(tutti_grad_sync_get_info(t->sync, &info));
    if (!log->range_ends) log->range_ends = calloc((size_t)info.ranges + 1, sizeof(double));
    if (!log->range_ends) return app_fail(APP_FAILED, "no memory for the log");
    double finish, ms = 0.0;
    APP_CHECK(tutti_grad_sync_get_timeline(t->sync, NULL, NULL, log->range_ends, &finish));
    for (int r = 0; r < info.ranges; r++)
        if (log->range_ends[r] - finish > ms) ms = log->range_ends[r] - finish;
    log->lap_waited += 1e-3 * ms;
    return APP_OK;
}

int log_lap(trainer *t)
{
    train_log *log = &t->log;
    tutti_grad_sync_info info;
    APP_CHECK(tutti_grad_sync_get_info(t->sync, &info));
    log->lap_begin = app_now();
    log->sync_sent = info.bytes_sent;
    log->lap_waited = log->lap_agreed = 0.0;
    log->lap_steps = log->lap_rows = 0;
    return APP_OK;
}

/* What a line is made of. */
typedef struct lap {
    double loss, lr, ms, rate;
    double fastest_ms, slowest_ms; /* of the ranks, without waiting */
} lap;

/* The batch's mean loss by the tree over its leaves.  Of each leaf one rank has the sum and all others 0, so that the sum over
 * the ranks is exact. */
static int reproducible_loss(trainer *t, double *loss)
{
    APP_CHECK(tutti_comm_all_reduce(t->group->control, t->group->host, t->losses_host,
                                    t->losses_host, t->parts, TUTTI_F64, TUTTI_SUM));
    *loss = trainer_tree_sum(t->losses_host, t->parts, 1) /
            (double)(t->options->batch * t->task->tokens_per_sample);
    return APP_OK;
}

/* Brings the ranks' parts together.  Collective. */
static int gather(trainer *t, lap *lap)
{
    train_log *log = &t->log;
    const int ranks = t->group->world_size;
    const double seconds = app_now() - log->lap_begin, steps = (double)log->lap_steps;
    const bool host = tutti_context_backend(t->ctx) != TUTTI_BACKEND_CUDA;
    /* a host that agrees does nothing else; a GPU works on meanwhile, or waits, which is in lap_waited */
    const double waiting = log->lap_waited + (host ? log->lap_agreed : 0.0);
    tutti_grad_sync_info info;
    APP_CHECK(tutti_grad_sync_get_info(t->sync, &info));
    double mine[PARTS] = {
        [PART_LOSS] = t->loss,
        [PART_OWN] = 1e3 * (seconds - waiting) / steps,
        [PART_WAITING] = 1e3 * waiting / steps,
        [PART_ROWS] = (double)(log->lap_rows / log->lap_steps),
        [PART_SENT] = (double)((info.bytes_sent - log->sync_sent) / log->lap_steps),
    };
    APP_CHECK(tutti_comm_all_gather(t->group->control, t->group->host, mine, log->gathered, PARTS,
                                    TUTTI_F64));
    lap->loss = 0.0;
    lap->fastest_ms = lap->slowest_ms = log->gathered[PART_OWN];
    for (int r = 0; r < ranks; r++) {
        const double *part = log->gathered + r * PARTS;
        const double own = part[PART_OWN];
        lap->loss += part[PART_LOSS];
        log->waiting += 1e-3 * steps * part[PART_WAITING] / ranks;
        log->stepping += 1e-3 * steps * (own + part[PART_WAITING]) / ranks;
        if (own < lap->fastest_ms) lap->fastest_ms = own;
        if (own > lap->slowest_ms) lap->slowest_ms = own;
    }
    if (t->options->leaves) APP_TRY(reproducible_loss(t, &lap->loss));
    lap->ms = 1e3 * seconds / steps;
    lap->rate = steps * (double)(t->options->batch * t->task->tokens_per_sample) / seconds;
    return APP_OK;
}

static int write_losses(trainer *t, double loss)
{
    app_output *losses = t->log.losses;
    if (!losses) return APP_OK;
    fprintf(app_output_stream(losses), "%lld %lld %.17g\n", (long long)t->state.epoch,
            (long long)t->state.epoch_step, loss);
    const int code = app_output_flush(losses);
    if (code == APP_OK || !app_output_lost(losses)) return code;
    note_lost(&t->log);
    app_output_close(&t->log.losses);
    return APP_OK;
}

static void json_place(const trainer *t, const char *event)
{
    jsonl *json = t->log.json;
    jsonl_begin(json, event);
    jsonl_int(json, "step", t->state.step);
    jsonl_int(json, "epoch", t->state.epoch);
    jsonl_int(json, "epoch_step", t->state.epoch_step);
}

static int json_step(trainer *t, const lap *lap)
{
    jsonl *json = t->log.json;
    json_place(t, "step");
    jsonl_real(json, "loss", lap->loss);
    jsonl_real(json, "grad_norm", t->stats.grad_norm);
    jsonl_real(json, "learning_rate", lap->lr);
    jsonl_real(json, "ms", lap->ms);
    jsonl_real(json, "rate", lap->rate);
    jsonl_real(json, "fastest_rank_ms", lap->fastest_ms);
    jsonl_real(json, "slowest_rank_ms", lap->slowest_ms);
    const double *parts = t->log.gathered;
    jsonl_reals(json, "rank_ms", parts + PART_OWN, t->group->world_size, PARTS);
    jsonl_reals(json, "rank_waiting_ms", parts + PART_WAITING, t->group->world_size, PARTS);
    jsonl_ints(json, "rank_rows", parts + PART_ROWS, t->group->world_size, PARTS);
    jsonl_ints(json, "rank_bytes_sent", parts + PART_SENT, t->group->world_size, PARTS);
    if (t->options->dtype == TUTTI_F16) jsonl_real(json, "loss_scale", t->state.scale.value);
    return end_json(t);
}

int log_step(trainer *t, double lr)
{
    lap lap = {.lr = lr};
    APP_TRY(gather(t, &lap));
    history_step(&t->history, t->state.step, lap.loss);
    char ranks[64] = "";
    if (t->group->world_size > 1)
        snprintf(ranks, sizeof ranks, " | ranks %.2f-%.2f ms", lap.fastest_ms, lap.slowest_ms);
    progress_step(&t->log.progress,
                  "step %lld/%lld | loss %.6f | norm %.4f | lr %.3e | %.2f ms | %.0f %s%s",
                  (long long)t->state.epoch_step, (long long)t->steps, lap.loss, t->stats.grad_norm,
                  lr, lap.ms, lap.rate, t->task->class->rate, ranks);
    APP_TRY(write_losses(t, lap.loss));
    APP_TRY(json_step(t, &lap));
    return log_lap(t);
}

static void json_score(const trainer *t, const task_score *score)
{
    jsonl *json = t->log.json;
    jsonl_real(json, "evaluation_loss", score->loss / score->samples);
    if (t->task->class->has_accuracy) jsonl_real(json, "accuracy", score->correct / score->samples);
}

int log_epoch(trainer *t, const task_score *score, double seconds)
{
    char report[160];
    jsonl *json = t->log.json;
    t->task->class->report(t->task, score, report, sizeof report);
    progress_line(&t->log.progress, "epoch %lld/%lld | %.2f s | %s", (long long)t->state.epoch,
                  (long long)t->options->epochs, seconds, report);
    json_place(t, "evaluation");
    jsonl_real(json, "seconds", seconds);
    json_score(t, score);
    return end_json(t);
}

int log_evaluated(trainer *t, const task_score *score)
{
    char report[160];
    t->task->class->report(t->task, score, report, sizeof report);
    progress_line(&t->log.progress, "evaluated | after step %lld | %s", (long long)t->state.step,
                  report);
    json_place(t, "evaluation");
    jsonl_real(t->log.json, "seconds", app_now() - t->log.begin);
    json_score(t, score);
    return end_json(t);
}

/* Samples or tokens a second, and the share of that time that went into waiting for the exchange. */
static void rates(const trainer *t, double *rate, double *waiting)
{
    const train_log *log = &t->log;
    const int64_t samples = (t->state.step - log->first_step) * t->options->batch;
    const bool any = log->stepping > 0.0;
    *rate = any ? (double)(samples * t->task->tokens_per_sample) / log->stepping : 0.0;
    *waiting = any ? log->waiting / log->stepping : 0.0;
}

void log_summary(trainer *t)
{
    train_log *log = &t->log;
    const task_class *class = t->task->class;
    double rate, waiting;
    log->seconds = app_now() - log->begin;
    rates(t, &rate, &waiting);
    progress_line(
        &log->progress,
        "summary | %lld %s in %.2f s | %.0f %s in the steps, %.1f %% of their time waiting "
        "for the exchange | %lld skipped",
        (long long)((t->state.step - log->first_step) * t->options->batch), class->samples,
        log->seconds, rate, class->rate, 100.0 * waiting, (long long)t->state.skipped);
}

int log_end(trainer *t, const task_score *score)
{
    jsonl *json = t->log.json;
    const int ranks = t->group->world_size;
    const int64_t steps = t->state.step - t->log.first_step;
    double rate, waiting;
    char report[160];
    rates(t, &rate, &waiting);
    t->task->class->report(t->task, score, report, sizeof report);
    progress_line(&t->log.progress, "done | %lld steps on %d rank%s in %.2f s | %s",
                  (long long)steps, ranks, ranks == 1 ? "" : "s", t->log.seconds, report);
    json_place(t, "end");
    jsonl_int(json, "steps", steps);
    jsonl_real(json, "seconds", t->log.seconds);
    jsonl_real(json, "rate", rate);
    jsonl_real(json, "waiting_share", waiting);
    jsonl_int(json, "skipped", t->state.skipped);
    json_score(t, score);
    return end_json(t);
}

int log_skipped(trainer *t, int64_t epoch_step, const char *why)
{
    jsonl *json = t->log.json;
    progress_line(&t->log.progress, "skipped step %lld/%lld: %s", (long long)epoch_step,
                  (long long)t->steps, why);
    jsonl_begin(json, "skipped");
    jsonl_int(json, "step", t->state.step - t->state.epoch_step + epoch_step);
    jsonl_text(json, "why", why);
    return end_json(t);
}

int log_saved(trainer *t, double seconds)
{
    jsonl *json = t->log.json;
    json_place(t, "saved");
    jsonl_real(json, "seconds", seconds);
    return end_json(t);
}

int log_stopped(trainer *t, const char *why)
{
    json_place(t, "stopped");
    jsonl_text(t->log.json, "why", why);
    return end_json(t);
}
