/* The training loop: steps, the lines about them, and the accuracy after each epoch. */
#include "train.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "faults.h"
#include "progress.h"

static volatile sig_atomic_t signal_seen;

static void on_signal(int number)
{
    signal_seen = number;
}

void train_watch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
}

/* Where the run is. */
typedef struct place {
    int64_t epoch, step; /* from 1; the step within its epoch */
    double lr;
    progress progress;
    double lap_begin; /* since the last line about a step */
    int64_t lap_steps;
} place;

static int64_t run_step(const trainer *t, const place *at)
{
    return (at->epoch - 1) * t->steps + at->step;
}

/* The micro-steps of a step: this rank's gradients, which go out to the others with the last of them. */
static int compute(trainer *t, const place *at)
{
    const train_options *o = t->options;
    const task_class *class = t->task->class;
    const int rank = t->group->rank;
    int code = run_step(t, at) == FAULT_STEP ? FAULT_HERE("step", rank) : APP_OK;

    tutti_step_values values = TUTTI_STEP_VALUES_INIT;
    values.step = run_step(t, at);
    values.learning_rate = at->lr;
    values.loss_weight = 1.0 / (double)(o->batch * t->task->tokens_per_sample);
    values.loss_scale = t->scale.value;
    values.seed = o->seed;
    if (FAULT_ASKED("scale", "step", rank)) values.loss_weight *= 2.0;
    if (code == APP_OK) code = app_check(tutti_step_set(t->step, t->ctx, &values));

    for (int64_t m = 0; m < o->accumulate; m++) {
        const int64_t first = (at->step - 1) * o->batch + m * t->micro_batch + t->row;
        if (code == APP_OK) code = class->bring(t->task, first, t->rows);
        if (code == APP_OK) code = class->forward(t->task, t->rows, t->step);
        if (code == APP_OK)
            code = app_check(tutti_copy(t->ctx, t->losses + m, t->task->loss_sum, sizeof(double)));
        code = class->backward(t->task, t->rows, code, m > 0 ? TUTTI_GRAD_ACCUMULATE : 0,
                               m == o->accumulate - 1 ? t->sync : NULL);
    }
    return code;
}

/* f16: every rank sees the same sums, so all skip and halve together. */
static int adapt_scale(trainer *t, place *at)
{
    if (t->options->dtype != TUTTI_F16) return APP_OK;
    tutti_adamw_stats stats;
    APP_CHECK(tutti_adamw_get_stats(t->adamw, t->ctx, &stats));
    const double before = t->scale.value;
    const bool usable = loss_scale_adapt(&t->scale, stats.skipped);
    if (stats.skipped)
        progress_line(&at->progress,
                      "skipped step %lld/%lld: the gradients overflow; loss scale %g -> %g",
                      (long long)at->step, (long long)t->steps, before, t->scale.value);
    if (!usable)
        return app_fail(APP_FAILED,
                        "the gradients of step %lld of epoch %lld are not finite at any loss "
                        "scale; try a lower --lr",
                        (long long)at->step, (long long)at->epoch);
    return APP_OK;
}

static int train_step(trainer *t, place *at)
{
    app_group *group = t->group;
    at->lr = schedule_lr(run_step(t, at), t->warmup, t->total, t->options->lr);
    int code = compute(t, at);
    const int finish = app_check(tutti_grad_sync_finish(t->sync, t->ctx));
    if (finish != APP_OK) code = finish;
    if (code == APP_OK) code = app_check(tutti_adamw_update(t->adamw, t->ctx, t->step));
    if (code == APP_OK) code = adapt_scale(t, at);
    if (code == APP_OK && signal_seen)
        code = app_fail(APP_PREEMPTED, "stopped by SIG%s after step %lld/%lld of epoch %lld/%lld",
                        sigabbrev_np(signal_seen), (long long)at->step, (long long)t->steps,
                        (long long)at->epoch, (long long)t->options->epochs);
    return app_group_agree(group, code);
}

/* The mean loss of the step's global batch, as it was before the update. */
static int read_loss(trainer *t, double *loss)
{
    const int64_t parts = t->options->accumulate;
    APP_CHECK(
        tutti_comm_all_reduce(t->comm, t->ctx, t->losses, t->losses, parts, TUTTI_F64, TUTTI_SUM));
    APP_CHECK(tutti_copy(t->ctx, t->losses_host, t->losses, (size_t)parts * sizeof *t->losses));
    APP_CHECK(tutti_context_check(t->ctx));
    *loss = 0.0;
    for (int64_t i = 0; i < parts; i++) *loss += t->losses_host[i];
    *loss /= (double)(t->options->batch * t->task->tokens_per_sample);
    return APP_OK;
}

/* A line about the step just made.  Collective. */
static int log_step(trainer *t, place *at)
{
    double loss;
    tutti_adamw_stats stats;
    APP_TRY(read_loss(t, &loss));
    APP_CHECK(tutti_adamw_get_stats(t->adamw, t->ctx, &stats));
    const double now = app_now(), seconds = now - at->lap_begin;
    const double samples = (double)(at->lap_steps * t->options->batch * t->task->tokens_per_sample);
    progress_step(&at->progress,
                  "step %lld/%lld | loss %.6f | norm %.4f | lr %.3e | %.2f ms | %.0f %s",
                  (long long)at->step, (long long)t->steps, loss, stats.grad_norm, at->lr,
                  1e3 * seconds / (double)at->lap_steps, samples / seconds, t->task->class->rate);
    if (t->losses_file) {
        fprintf(t->losses_file, "%lld %lld %.17g\n", (long long)at->epoch, (long long)at->step,
                loss);
        if (fflush(t->losses_file) != 0)
            return app_fail(APP_FAILED, "%s: cannot be written: %s", t->options->losses,
                            strerror(errno));
    }
    at->lap_begin = now;
    at->lap_steps = 0;
    if (!isfinite(loss))
        return app_fail(APP_FAILED, "the loss is %f at step %lld of epoch %lld; try a lower --lr",
                        loss, (long long)at->step, (long long)at->epoch);
    return APP_OK;
}

/* This rank's share of the evaluation. */
static int evaluate_share(trainer *t, task_score *score)
{
    const app_group *group = t->group;
    const int64_t count = t->task->test_count;
    const int64_t first = trainer_share(count, group->rank, group->world_size);
    const int64_t end = trainer_share(count, group->rank + 1, group->world_size);
    return t->task->class->evaluate(t->task, first, end, score);
}

/* The score of all samples of the evaluation.  Collective. */
static int evaluate(trainer *t, task_score *score)
{
    app_group *group = t->group;
    *score = (task_score){0};
    APP_TRY(app_group_agree(group, evaluate_share(t, score)));
    return app_group_agree(group,
                           app_check(tutti_comm_all_reduce(group->control, group->host, score,
                                                           score, 3, TUTTI_F64, TUTTI_SUM)));
}

static int train_epoch(trainer *t, place *at)
{
    APP_TRY(app_group_agree(t->group, t->task->class->shuffle(t->task, at->epoch)));
    at->lap_begin = app_now();
    at->lap_steps = 0;
    for (at->step = 1; at->step <= t->steps; at->step++) {
        APP_TRY(train_step(t, at));
        at->lap_steps++;
        const bool line = at->step == 1 || at->step == t->steps || at->step % t->log_every == 0;
        if (line) APP_TRY(app_group_agree(t->group, log_step(t, at)));
        progress_bar(&at->progress, run_step(t, at), t->total);
    }
    return APP_OK;
}

static int train_epochs(trainer *t, place *at)
{
    const train_options *o = t->options;
    const double begin = app_now();
    task_score score;
    char report[128] = "";
    for (at->epoch = 1; at->epoch <= o->epochs; at->epoch++) {
        const double epoch_begin = app_now();
        APP_TRY(train_epoch(t, at));
        APP_TRY(evaluate(t, &score));
        t->task->class->report(t->task, &score, report, sizeof report);
        progress_line(&at->progress, "epoch %lld/%lld | %.2f s | %s", (long long)at->epoch,
                      (long long)o->epochs, app_now() - epoch_begin, report);
    }
    const double seconds = app_now() - begin;
    APP_TRY(app_group_agree(t->group, FAULT_HERE("end", t->group->rank)));
    progress_line(&at->progress, "done | %lld steps on %d rank%s in %.2f s | %s",
                  (long long)t->total, t->group->world_size, t->group->world_size == 1 ? "" : "s",
                  seconds, report);
    return APP_OK;
}

int train_run(trainer *t)
{
    place at = {.progress = {.kind = t->options->progress, .root = t->group->rank == 0}};
    const int code = train_epochs(t, &at);
    progress_end(&at.progress);
    return code;
}
