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

/* What this rank does before backward. */
static int forward(trainer *t, const place *at)
{
    const int rank = t->group->rank;
    if (run_step(t, at) == FAULT_STEP) APP_TRY(FAULT_HERE("step", rank));
    const int64_t row = (at->step - 1) * t->options->batch + t->row;
    APP_TRY(loader_bring(&t->train, t->ctx, row, t->rows, t->model.images, t->model.labels));
    if (FAULT_ASKED("nan", "step", rank)) {
        const double nan_value = NAN;
        APP_CHECK(tutti_convert(t->train.images, t->options->dtype, &nan_value, TUTTI_F64, 1));
        APP_CHECK(tutti_copy(t->ctx, t->model.images, t->train.images,
                             tutti_dtype_size(t->options->dtype)));
    }

    tutti_step_values values = TUTTI_STEP_VALUES_INIT;
    values.step = run_step(t, at);
    values.learning_rate = at->lr;
    values.loss_weight = 1.0 / (double)t->options->batch;
    values.loss_scale = t->scale.value;
    values.seed = t->options->seed;
    if (FAULT_ASKED("scale", "step", rank)) values.loss_weight *= 2.0;
    APP_CHECK(tutti_step_set(t->step, t->ctx, &values));

    APP_TRY(model_forward(&t->model, t->rows, true));
    return model_loss(&t->model, t->rows, t->step);
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
    int code = forward(t, at);
    code = model_backward(&t->model, t->rows, code, t->sync);
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
    APP_CHECK(tutti_comm_all_reduce(t->comm, t->ctx, t->model.loss_sum, t->model.loss_sum, 1,
                                    TUTTI_F64, TUTTI_SUM));
    APP_CHECK(tutti_copy(t->ctx, loss, t->model.loss_sum, sizeof *loss));
    APP_CHECK(tutti_context_check(t->ctx));
    *loss /= (double)t->options->batch;
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
    const double steps = (double)at->lap_steps;
    progress_step(&at->progress,
                  "step %lld/%lld | loss %.6f | norm %.4f | lr %.3e | %.2f ms | %.0f samples/s",
                  (long long)at->step, (long long)t->steps, loss, stats.grad_norm, at->lr,
                  1e3 * seconds / steps, steps * (double)t->options->batch / seconds);
    if (t->losses) {
        fprintf(t->losses, "%lld %lld %.17g\n", (long long)at->epoch, (long long)at->step, loss);
        if (fflush(t->losses) != 0)
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

/* How many of `rows` logits have their largest value where the label is. */
static int count_correct(trainer *t, int64_t rows, double *correct)
{
    const int64_t count = rows * DATA_CLASSES;
    const size_t bytes = (size_t)count * tutti_dtype_size(t->options->dtype);
    APP_CHECK(tutti_copy(t->ctx, t->logits_raw, t->model.logits, bytes));
    APP_CHECK(tutti_context_check(t->ctx));
    APP_CHECK(tutti_convert(t->logits, TUTTI_F64, t->logits_raw, t->options->dtype, count));
    for (int64_t i = 0; i < rows; i++) {
        const double *row = t->logits + i * DATA_CLASSES;
        int best = 0;
        for (int k = 1; k < DATA_CLASSES; k++)
            if (row[k] > row[best]) best = k;
        *correct += best == t->test.labels[i];
    }
    return APP_OK;
}

/* This rank's share of the evaluation: sums of {images, correct, loss}. */
static int evaluate_share(trainer *t, double sums[3])
{
    const app_group *group = t->group;
    int64_t row = loader_share(t->test.count, group->rank, group->world_size);
    const int64_t end = loader_share(t->test.count, group->rank + 1, group->world_size);
    while (row < end) {
        const int64_t rows = end - row < t->test.capacity ? end - row : t->test.capacity;
        double loss;
        APP_TRY(loader_bring(&t->test, t->ctx, row, rows, t->model.images, t->model.labels));
        APP_TRY(model_forward(&t->model, rows, false));
        APP_TRY(model_loss(&t->model, rows, NULL));
        APP_CHECK(tutti_copy(t->ctx, &loss, t->model.loss_sum, sizeof loss));
        APP_TRY(count_correct(t, rows, &sums[1]));
        sums[0] += (double)rows;
        sums[2] += loss;
        row += rows;
    }
    return APP_OK;
}

/* Accuracy in percent and mean loss on all images of the evaluation.  Collective. */
static int evaluate(trainer *t, double *accuracy, double *loss)
{
    app_group *group = t->group;
    double sums[3] = {0};
    APP_TRY(app_group_agree(group, evaluate_share(t, sums)));
    APP_TRY(
        app_group_agree(group, app_check(tutti_comm_all_reduce(group->control, group->host, sums,
                                                               sums, 3, TUTTI_F64, TUTTI_SUM))));
    *accuracy = 100.0 * sums[1] / sums[0];
    *loss = sums[2] / sums[0];
    return APP_OK;
}

static int train_epoch(trainer *t, place *at)
{
    APP_TRY(app_group_agree(t->group, loader_shuffle(&t->train, t->options->seed, at->epoch)));
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
    double accuracy = 0.0, loss = 0.0;
    for (at->epoch = 1; at->epoch <= o->epochs; at->epoch++) {
        const double epoch_begin = app_now();
        APP_TRY(train_epoch(t, at));
        APP_TRY(evaluate(t, &accuracy, &loss));
        progress_line(&at->progress,
                      "epoch %lld/%lld | %.2f s | %s loss %.4f | %s accuracy %.2f %%",
                      (long long)at->epoch, (long long)o->epochs, app_now() - epoch_begin,
                      t->test_name, loss, t->test_name, accuracy);
    }
    const double seconds = app_now() - begin;
    APP_TRY(app_group_agree(t->group, FAULT_HERE("end", t->group->rank)));
    progress_line(&at->progress, "done | %lld steps on %d rank%s in %.2f s | %s accuracy %.2f %%",
                  (long long)t->total, t->group->world_size, t->group->world_size == 1 ? "" : "s",
                  seconds, t->test_name, accuracy);
    return APP_OK;
}

int train_run(trainer *t)
{
    place at = {.progress = {.kind = t->options->progress, .root = t->group->rank == 0}};
    const int code = train_epochs(t, &at);
    progress_end(&at.progress);
    return code;
}
