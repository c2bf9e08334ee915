/* The training loop: steps, and after some of them a line, an evaluation or a checkpoint. */
#include "train.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint.h"
#include "common/device.h"
#include "common/exit_code.h"
#include "common/report.h"
#include "common/signals.h"
#include "faults.h"
#include "nonfinite.h"
#include "plot.h"

/* State of the loop. */
typedef struct loop {
    int64_t shuffled;   /* the epoch of the current order; 0: none */
    double epoch_begin; /* when the epoch began, or was resumed */
    log_score score;    /* of the last evaluation */
    char stop[160];     /* why to stop after this step; empty: continue */
} loop;

/* Counts how long the previous step waited for its sums, if not done yet.  A GPU has this step's
 * forward pass to compute meanwhile. */
static int count_waiting(trainer *t)
{
    const bool made = t->uncounted;
    t->uncounted = false;
    return made && t->group->world_size > 1 ? laps_waited(&t->laps, t->sync) : APP_OK;
}

static bool is_on_gpu(const trainer *t)
{
    return tutti_context_backend(t->ctx) == TUTTI_BACKEND_CUDA;
}

/* Checks the previous step, and loads the rows of the first pass if they are not yet. */
static int begin_step(trainer *t)
{
    int code = t->state.step == FAULT_STEP ? FAULT_HERE("step", t->group->rank) : APP_OK;
    const int checked = nonfinite_check(t); /* collective, so even after a failure */
    if (code == APP_OK) code = checked;
    if (code == APP_OK && !t->loaded) code = trainer_load(t, t->state.epoch_step, t->part);
    t->loaded = false;
    return code;
}

static int begin_leaves(trainer *t, int64_t m, int64_t parts)
{
    if (!t->options->leaves) return APP_OK;
    return app_check(tutti_grad_sync_leaves_begin(t->sync, t->ctx, (int)m, (int)parts));
}

/* Forward of a pass of a step, whose values are set before the first; its losses. */
static int forward_pass(trainer *t, int64_t step, int64_t m, int64_t parts, int code)
{
    if (code == APP_OK && m == t->part) code = trainer_set_values(t, step);
    if (code == APP_OK) code = t->task->class->forward(t->task, parts * t->rows, t->step);
    if (code == APP_OK)
        code = app_check(
            tutti_copy(t->ctx, t->losses + m, t->task->loss_sum, (size_t)parts * sizeof(double)));
    if (code == APP_OK && step == FAULT_STEP && FAULT_ASKED("loss", "step", t->group->rank))
        code = FAULT_LOSS(t->losses + m, t->ctx);
    return code;
}

/* One pass: parts m to m + parts - 1 of the batch.  Micro-steps accumulate one gradient, exchanged
 * during the last; leaves have each their own, which the exchange adds. */
static int compute_pass(trainer *t, int64_t m, int64_t parts, int code)
{
    const bool leaf = t->options->leaves > 0, first = m == t->part;
    const bool last = m + parts == t->part + t->part_count;
    const int64_t rows = parts * t->rows;
    const bool mute = t->state.step == FAULT_STEP && FAULT_ASKED("mute", "step", t->group->rank);
    if (!t->begun) {
        APP_TRY(begin_leaves(t, m, parts));
        code = forward_pass(t, t->state.step, m, parts, code);
    } else if (code == APP_OK)
        code = t->begun_code;
    t->begun = false;
    if (code == APP_OK) code = count_waiting(t);
    code = t->task->class->backward(t->task, rows, code, leaf || first ? 0 : TUTTI_GRAD_ACCUMULATE,
                                    (leaf || last) && !mute ? t->sync : NULL);
    if (leaf && (code == APP_OK || parts == 1))
        APP_CHECK(tutti_grad_sync_leaves_end(t->sync, t->ctx));
    t->laps.rows += rows;
    return code;
}

/* Computes this rank's gradients; their exchange starts during the last pass.  After a failure the
 * layers are declared ready all the same, which is possible one leaf at a time; a failure among
 * several leaves ends the exchange. */
static int compute(trainer *t)
{
    int code = begin_step(t);
    for (int64_t m = t->part, parts; m < t->part + t->part_count; m += parts) {
        if (code == APP_OK && m > t->part) code = trainer_load(t, t->state.epoch_step, m);
        parts = code == APP_OK || t->begun ? trainer_pass(t, m) : 1;
        code = compute_pass(t, m, parts, code);
        if (code != APP_OK && parts > 1) return code;
    }
    return code;
}

/* app_group_agree, whose wait for the other ranks counts as part of the lap. */
static int agree(trainer *t, int code)
{
    const double begin = app_now();
    code = app_group_agree(t->group, code);
    if (t->group->world_size > 1) t->laps.agreed += app_now() - begin;
    return code;
}

/* Waits for the sums.  A rank that could not declare all its layers ready aborts the communicator,
 * or the others would wait for it until the deadline. */
static int finish_exchange(trainer *t, int code)
{
    char why[APP_MESSAGE_MAX];
    snprintf(why, sizeof why, "%s", code == APP_OK ? "" : app_failure());
    const int finish = app_check(tutti_grad_sync_finish(t->sync, t->ctx));
    if (finish == APP_OK) return code;
    if (!tutti_comm_lost()) (void)tutti_comm_abort(t->comm, why[0] ? why : app_failure());
    return code == APP_OK ? finish : app_fail(code, "%s", why);
}

static bool is_due(int64_t every, int64_t step)
{
    return every && step > 0 && step % every == 0;
}

/* Has a GPU begin the next step before the result of this one is known, or, if that can change the
 * next step's values or it has leaves, before this one's line is written, unless something else
 * comes first.  What fails here is a failure of that step. */
static void begin_next(trainer *t, const loop *loop)
{
    const train_options *o = t->options;
    const int64_t step = t->state.step;
    if (!is_on_gpu(t) || !t->loaded || t->begun || loop->stop[0] || is_due(o->save_every, step) ||
        is_due(o->check_replicas, step) || (t->unchecked && (o->dtype == TUTTI_F16 || o->leaves)))
        return;
    const int64_t parts = trainer_pass(t, t->part);
    if (begin_leaves(t, t->part, parts) != APP_OK) return; /* the step will try again */
    t->begun_code = forward_pass(t, step + 1, t->part, parts, APP_OK);
    t->begun = true;
}

/* Where this fails, the next step tries again, and then all ranks agree.  An epoch's first step
 * loads its own rows, after the evaluation and in a new order. */
static void load_next(trainer *t)
{
    const run_state *state = &t->state;
    if (state->epoch_step < t->steps)
        t->loaded = trainer_load(t, state->epoch_step + 1, t->part) == APP_OK;
}

/* Behind backward, where a GPU waits for the sums: the losses go to the host, and the next step's
 * rows to the GPU. */
static int copy_beside_sums(trainer *t)
{
    APP_CHECK(tutti_copy(t->ctx, t->losses_host, t->losses, (size_t)t->parts * sizeof *t->losses));
    if (is_on_gpu(t)) load_next(t);
    return APP_OK;
}

/* One step on all ranks; the next one's rows are loaded while the device works on it.  A signal to
 * any rank fills in loop->stop on all. */
static int train_step(trainer *t, loop *loop)
{
    run_state *state = &t->state;
    state->step++;
    state->epoch_step++;
    t->changed = true;
    int code = compute(t);
    if (code == APP_OK) code = copy_beside_sums(t);
    code = finish_exchange(t, code);
    if (code == APP_OK) code = optimizer_update(&t->optimizer, t->ctx, t->step);
    if (code == APP_OK && state->step == FAULT_STEP &&
        FAULT_ASKED("corrupt", "step", t->group->rank))
        code = FAULT_CORRUPT(t->params, t->ctx);
    if (code == APP_OK && signals_seen())
        code =
            app_fail(APP_PREEMPTED, "stopped by SIG%s after step %lld/%lld of epoch %lld/%lld",
                     sigabbrev_np(signals_seen()), (long long)state->epoch_step,
                     (long long)t->steps, (long long)state->epoch, (long long)t->options->epochs);
    if (code == APP_OK && state->step == FAULT_STEP) code = FAULT_HERE("agree", t->group->rank);
    code = agree(t, code);
    t->laps.steps++;
    if (code != APP_OK && code != APP_PREEMPTED) return code;
    t->unchecked = state->epoch_step;
    t->uncounted = true;
    if (code == APP_PREEMPTED)
        snprintf(loop->stop, sizeof loop->stop, "%s", app_failure());
    else if (!is_on_gpu(t))
        load_next(t);
    begin_next(t, loop);
    return APP_OK;
}

/* Waits for the last step's result and checks it; also what kernels found in the data, unless the
 * next step has begun.  Collective. */
static int settle(trainer *t)
{
    int code = nonfinite_check(t);
    if (code == APP_OK && !t->begun) code = app_check(tutti_context_check(t->ctx));
    return agree(t, code);
}

/* Evaluates this rank's share; in reproducible mode, each of its leaves. */
static int evaluate_share(trainer *t, task_score *scores)
{
    const int64_t count = t->task->test_count, leaves = t->options->leaves;
    if (!leaves) {
        const int rank = t->group->rank, world = t->group->world_size;
        return t->task->class->evaluate(t->task, trainer_share(count, rank, world),
                                        trainer_share(count, rank + 1, world), scores);
    }
    for (int64_t m = t->part; m < t->part + t->part_count; m++)
        APP_TRY(t->task->class->evaluate(t->task, count * m / leaves, count * (m + 1) / leaves,
                                         &scores[m]));
    return APP_OK;
}

/* The score of all samples of the evaluation.  Collective. */
static int evaluate(trainer *t, log_score *score)
{
    enum { FIELDS = sizeof(task_score) / sizeof(double) };
    app_group *group = t->group;
    const task_class *class = t->task->class;
    const int64_t parts = t->options->leaves ? t->options->leaves : 1;
    task_score scores[TUTTI_LEAVES_MAX] = {{0}};
    APP_TRY(app_group_agree(group, evaluate_share(t, scores)));
    APP_TRY(app_group_agree(
        group, app_check(tutti_comm_all_reduce(group->control, group->host, scores, scores,
                                               parts * FIELDS, TUTTI_F64, TUTTI_SUM))));
    const task_score all = {trainer_tree_sum(&scores[0].samples, parts, FIELDS),
                            trainer_tree_sum(&scores[0].loss, parts, FIELDS),
                            trainer_tree_sum(&scores[0].correct, parts, FIELDS)};
    score->loss = all.loss / all.samples;
    score->accuracy = class->has_accuracy ? all.correct / all.samples : NAN;
    class->report(t->task, &all, score->report, sizeof score->report);
    return APP_OK;
}

static int end_epoch(trainer *t, loop *loop)
{
    APP_TRY(evaluate(t, &loop->score));
    t->state.evaluated = t->state.epoch;
    t->changed = true;
    history_evaluation(&t->history, loop->score.loss, loop->score.accuracy);
    const log_place place = trainer_place(t);
    return app_group_agree(t->group, log_evaluated(&t->log, &place, &loop->score,
                                                   app_now() - loop->epoch_begin, true));
}

/* The batch's mean loss by the tree over its leaves.  The sum over the ranks is exact, as one rank
 * has a leaf's sum and the others 0. */
static int reproducible_loss(trainer *t, double *loss)
{
    APP_CHECK(tutti_comm_all_reduce(t->group->control, t->group->host, t->losses_host,
                                    t->losses_host, t->parts, TUTTI_F64, TUTTI_SUM));
    *loss = trainer_tree_sum(t->losses_host, t->parts, 1) / trainer_batch_tokens(t);
    return APP_OK;
}

/* Prints a line about the last step, after settle.  Collective. */
static int say_step(trainer *t)
{
    const log_place place = trainer_place(t);
    lap lap;
    const int counted = count_waiting(t);
    /* collective, so even after a failure */
    APP_TRY(laps_gather(&t->laps, t->group, t->sync, !is_on_gpu(t), t->loss, &lap));
    APP_TRY(counted);
    if (t->options->leaves) APP_TRY(reproducible_loss(t, &lap.loss));
    history_step(&t->history, t->state.step, lap.loss);
    APP_TRY(log_step(&t->log, &place, &lap, t->grad_norm, trainer_learning_rate(t, t->state.step),
                     1e3 * trainer_batch_tokens(t) / lap.ms,
                     t->options->dtype == TUTTI_F16 ? t->state.scale.value : 0.0));
    return laps_begin(&t->laps, t->sync, t->begun ? t->laps.end : app_now());
}

/* Shuffles the epoch of the next step, unless that has been done. */
static int begin_epoch(trainer *t, loop *loop)
{
    run_state *state = &t->state;
    if (state->epoch == 0 || state->epoch_step == t->steps) {
        state->epoch++;
        state->epoch_step = 0;
    }
    if (loop->shuffled == state->epoch) return APP_OK;
    loop->shuffled = state->epoch;
    loop->epoch_begin = app_now();
    APP_TRY(app_group_agree(t->group, t->task->class->shuffle(t->task, state->epoch)));
    return app_group_agree(t->group, laps_begin(&t->laps, t->sync, app_now()));
}

static bool has_line(const trainer *t)
{
    const int64_t step = t->state.epoch_step;
    return step == 1 || step == t->steps || step % t->log_every == 0;
}

/* Excludes the time since `begin` from the lap. */
static void exclude_time(trainer *t, double begin)
{
    t->laps.begin += app_now() - begin;
}

/* Ends the run if the ranks' weights or optimizer states differ.  Collective. */
static int check_replicas(trainer *t)
{
    tutti_state_tensor states[OPTIMIZER_STATES_MAX];
    int count;
    if (!is_due(t->options->check_replicas, t->state.step)) return APP_OK;
    APP_TRY(settle(t));
    const double begin = app_now();
    APP_TRY(optimizer_states(&t->optimizer, states, &count));
    const tutti_status status = tutti_comm_check_params(t->comm, t->ctx, t->params, states, count);
    int code = app_check(status);
    if (status == TUTTI_ERR_DATA)
        code = app_fail(APP_MISMATCH, "after step %lld: %s", (long long)t->state.step,
                        tutti_last_error());
    code = app_group_agree(t->group, code);
    exclude_time(t, begin);
    return code;
}

static int save(trainer *t)
{
    const double begin = app_now();
    APP_TRY(checkpoint_save(t));
    exclude_time(t, begin);
    return APP_OK;
}

/* Stops after a signal. */
static int stop(trainer *t, const loop *loop)
{
    const char *file = t->options->checkpoint;
    APP_TRY(settle(t));
    APP_TRY(save(t));
    const log_place place = trainer_place(t);
    APP_TRY(app_group_agree(t->group, log_stopped(&t->log, &place, loop->stop)));
    return app_fail(APP_PREEMPTED, "%s%s%s", loop->stop, file ? "; --resume continues from " : "",
                    file ? file : "");
}

static int make_steps(trainer *t, loop *loop)
{
    const run_state *state = &t->state;
    for (;;) {
        if (state->epoch_step == t->steps && state->evaluated < state->epoch)
            APP_TRY(end_epoch(t, loop));
        const bool last = state->step == t->total;
        if (last || is_due(t->options->save_every, state->step)) {
            APP_TRY(settle(t));
            APP_TRY(save(t));
        }
        if (last) return APP_OK;
        APP_TRY(begin_epoch(t, loop));
        APP_TRY(train_step(t, loop));
        if (has_line(t)) {
            APP_TRY(settle(t));
            t->laps.end = app_now();
            begin_next(t, loop);
            APP_TRY(app_group_agree(t->group, say_step(t)));
        }
        APP_TRY(check_replicas(t));
        progress_bar(&t->log.progress, state->step, t->total);
        if (loop->stop[0]) return stop(t, loop);
    }
}

/* Draws the plot, once.  Not collective. */
static int draw(trainer *t)
{
    if (!t->plot) return APP_OK;
    const int code = plot_draw(t->plot, &t->history, t->task->test_name);
    const int closed = app_output_close(&t->plot);
    return code == APP_OK ? closed : code;
}

/* From here on there is nothing to save, so a signal ends the program at once; an earlier one does
 * so now.  Collective. */
static int nothing_to_save(const trainer *t, const char *what)
{
    signals_leave_at_once();
    return app_group_agree(t->group, signals_check(what));
}

static int sample(trainer *t)
{
    if (!t->options->sample) return APP_OK;
    APP_TRY(nothing_to_save(t, "the sample"));
    return t->group->rank == 0 ? t->task->class->sample(t->task, t->options->sample) : APP_OK;
}

/* Begins the log and the clock of this part of the run.  Collective. */
static int start(trainer *t)
{
    const log_place place = trainer_place(t);
    const int code =
        log_start(&t->log, t->options, &place, t->resumed, t->task->data_name,
                  app_backend_name(t->ctx), app_transport_name(tutti_comm_transport(t->comm)));
    t->begin = app_now();
    t->first_step = t->state.step;
    return app_group_agree(t->group, code);
}

static log_total total_of(const trainer *t)
{
    const laps *laps = &t->laps;
    const int64_t steps = t->state.step - t->first_step;
    const bool any = laps->stepping > 0.0;
    return (log_total){.steps = steps,
                       .samples = steps * t->options->batch,
                       .skipped = t->state.skipped,
                       .seconds = app_now() - t->begin,
                       .rate = any ? (double)steps * trainer_batch_tokens(t) / laps->stepping : 0.0,
                       .waiting_share = any ? laps->waiting / laps->stepping : 0.0};
}

static int finish(trainer *t, const loop *loop)
{
    const log_place place = trainer_place(t);
    const log_total total = total_of(t);
    log_summary(&t->log, &total);
    APP_TRY(app_group_agree(t->group, draw(t)));
    APP_TRY(app_group_agree(t->group, sample(t)));
    APP_TRY(app_group_agree(t->group, FAULT_HERE("end", t->group->rank)));
    APP_TRY(app_group_agree(t->group, log_end(&t->log, &place, &total, &loop->score)));
    return app_group_agree(t->group, log_complete(&t->log));
}

int train_run(trainer *t)
{
    loop loop = {.epoch_begin = app_now()};
    APP_TRY(app_group_agree(t->group, signals_check("anything was written")));
    APP_TRY(start(t));
    if (t->state.step == t->total && t->state.evaluated == t->state.epoch)
        APP_TRY(evaluate(t, &loop.score)); /* the run had ended; its result is printed again */
    int code = make_steps(t, &loop);
    if (code == APP_OK) code = finish(t, &loop);
    progress_end(&t->log.progress);
    if (code == APP_PREEMPTED && draw(t) != APP_OK) {
        app_warn("%s", app_failure());
        app_fail(code, "%s", loop.stop);
    }
    return code;
}

int train_evaluate(trainer *t)
{
    const log_place place = trainer_place(t);
    log_score score;
    APP_TRY(nothing_to_save(t, "the evaluation"));
    APP_TRY(start(t));
    APP_TRY(evaluate(t, &score));
    APP_TRY(app_group_agree(t->group, draw(t)));
    APP_TRY(app_group_agree(t->group, sample(t)));
    APP_TRY(app_group_agree(t->group,
                            log_evaluated(&t->log, &place, &score, app_now() - t->begin, false)));
    return app_group_agree(t->group, log_complete(&t->log));
}
