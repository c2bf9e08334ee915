/* Sets up a run.  All ranks agree after each phase, so that a failure of one rank stops all of them
 * before they wait for each other. */
#include "trainer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"
#include "common/device.h"
#include "common/exit_code.h"
#include "common/report.h"
#include "common/signals.h"
#include "faults.h"
#include "plot.h"

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Ends a phase.  A signal stops the run here, as nothing has been written yet. */
static int agree(app_group *group, int code)
{
    return app_group_agree(group, code == APP_OK ? signals_check("anything was written") : code);
}

static int open_comm(trainer *t)
{
    APP_TRY(FAULT_HERE("comm", t->group->rank));
    return app_device_connect(t->group, t->ctx, t->options->common.transport, &t->comm);
}

int64_t trainer_share(int64_t total, int rank, int world_size)
{
    return total * rank / world_size;
}

int64_t trainer_pass(const trainer *t, int64_t part)
{
    const int64_t left = t->part + t->part_count - part;
    return left < t->at_once ? left : t->at_once;
}

int trainer_load(trainer *t, int64_t epoch_step, int64_t part)
{
    const int64_t first = (epoch_step - 1) * t->options->batch + part * t->micro_batch + t->row;
    const int64_t parts = trainer_pass(t, part);
    return t->task->class->load(t->task, first, parts * t->rows,
                                t->options->leaves ? (int)parts : 0);
}

double trainer_tree_sum(const double *values, int64_t count, int64_t stride)
{
    if (count == 1) return values[0];
    const int64_t half = count / 2;
    return trainer_tree_sum(values, half, stride) +
           trainer_tree_sum(values + half * stride, half, stride);
}

log_place trainer_place(const trainer *t)
{
    const run_state *s = &t->state;
    return (log_place){s->step, s->epoch, s->epoch_step, t->steps, t->options->epochs};
}

/* Rows that a call of training needs room for: rank 0 rehearses what the others have, too. */
static int64_t most_rows(const trainer *t)
{
    const int world = t->group->world_size;
    return t->options->tune ? (t->micro_batch + world - 1) / world : t->at_once * t->rows;
}

/* Assigns this rank its rows of a batch: a share of each micro-step, or whole leaves, which
 * micro-steps share. */
static int assign_rows(trainer *t)
{
    const train_options *o = t->options;
    const int rank = t->group->rank, world = t->group->world_size;
    t->parts = o->leaves ? o->leaves : o->accumulate;
    t->micro_batch = o->batch / t->parts;
    if (!o->leaves) {
        t->part_count = t->parts;
        t->at_once = 1;
        t->row = trainer_share(t->micro_batch, rank, world);
        t->rows = trainer_share(t->micro_batch, rank + 1, world) - t->row;
        return APP_OK;
    }
    if (o->leaves < world)
        return app_fail(APP_USAGE, "--reproducible is %lld, want at least the %d ranks",
                        (long long)o->leaves, world);
    /* the same shares as tutti_grad_sync_own_leaves */
    t->part = trainer_share(t->parts, rank, world);
    t->part_count = trainer_share(t->parts, rank + 1, world) - t->part;
    t->at_once = (t->part_count + o->accumulate - 1) / o->accumulate;
    t->rows = t->micro_batch;
    return APP_OK;
}

static int open_task(trainer *t)
{
    const train_options *o = t->options;
    t->task = calloc(1, o->task->size);
    if (!t->task) return app_fail(APP_FAILED, "no memory for the task");
    t->task->class = o->task;
    t->task->options = o;
    t->task->group = t->group;
    t->task->ctx = t->ctx;
    APP_TRY(history_create(&t->history));
    APP_TRY(o->task->open(t->task));
    const int64_t count = t->task->train_count;
    if (o->batch > count)
        return app_fail(APP_USAGE, "--batch is %lld, want at most the %lld training %s",
                        (long long)o->batch, (long long)count, o->task->samples);

    t->steps = count / o->batch;
    t->total = t->steps * o->epochs;
    t->warmup = o->warmup >= 0 ? o->warmup : t->total / 10;
    if (t->group->rank == 0 && t->warmup > t->total)
        app_warn("--warmup is %lld, more than the %lld steps of the run: the rate never reaches %g",
                 (long long)t->warmup, (long long)t->total, o->lr);
    t->log_every = o->log_every ? o->log_every : largest(1, t->steps / 10);
    return assign_rows(t);
}

static int create_model(trainer *t)
{
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    desc.master_dtype = t->options->dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    /* NCCL's all-reduces gain by it, but copy engines, which sum where they can, cannot have it */
    const bool one_host = t->group->local_size == t->group->world_size;
    if (!t->options->shard && (t->options->engine == TUTTI_ENGINE_TRANSPORT || !one_host))
        desc.gradient_memory = tutti_comm_allocator(t->comm);
    desc.shards = t->options->shard ? t->group->world_size : 0;
    desc.shard = t->options->shard ? t->group->rank : 0;
    APP_CHECK(tutti_params_create(t->ctx, &desc, &t->params));
    const size_t bytes = (size_t)t->parts * sizeof(double);
    void *losses = NULL;
    APP_CHECK(tutti_alloc(t->ctx, bytes, &losses));
    t->losses = losses;
    APP_CHECK(tutti_zero(t->ctx, losses, bytes));
    void *losses_host = NULL;
    APP_CHECK(tutti_alloc_host(t->ctx, bytes, &losses_host));
    t->losses_host = losses_host;
    return t->task->class->create(t->task, t->params, largest(most_rows(t), 1));
}

static int create_optimizer(trainer *t)
{
    const train_options *o = t->options;
    APP_CHECK(tutti_params_init(t->params, t->ctx, o->seed));
    APP_TRY(optimizer_create(&t->optimizer, o, t->ctx, t->params));
    APP_CHECK(tutti_step_block_create(t->ctx, &t->step));
    t->state.scale.value = o->dtype == TUTTI_F16 ? o->loss_scale : 1.0;
    return FAULT_HERE("setup", t->group->rank);
}

static int create_exchange(trainer *t)
{
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.leaves = (int)t->options->leaves;
    desc.wire = t->options->wire == TUTTI_BF16 ? TUTTI_BF16 : 0;
    desc.engine = t->options->engine;
    desc.exclusive = 1;
    APP_TRY(FAULT_HERE("exchange", t->group->rank));
    desc.timeline = t->group->world_size > 1;
    return app_check(tutti_grad_sync_create(t->ctx, t->comm, t->params, &desc, &t->sync));
}

/* With --tune: rank 0 rehearses a pass of as many rows as any rank has, which measures its
 * products; the gradients are overwritten by the first step's. */
static int rehearse(trainer *t)
{
    const int64_t most = most_rows(t), rows[] = {t->rows, most};
    const task_class *class = t->task->class;
    const tutti_step_values values = {
        .step = 1, .loss_weight = 1, .loss_scale = t->state.scale.value, .seed = t->options->seed};
    APP_CHECK(tutti_context_tune(t->ctx, 1));
    APP_TRY(class->shuffle(t->task, 1));
    APP_CHECK(tutti_step_block_set(t->step, t->ctx, &values));
    for (int i = t->rows == 0 || t->rows == most; i < 2; i++) {
        APP_TRY(class->load(t->task, 0, rows[i], 0));
        int code = class->forward(t->task, rows[i], t->step);
        code = class->backward(t->task, rows[i], code, 0, NULL);
        if (code != APP_OK) return code;
    }
    return app_check(tutti_context_synchronize(t->ctx));
}

/* Collective. */
static int tune(trainer *t)
{
    if (!t->options->tune || t->options->evaluate) return APP_OK;
    APP_TRY(agree(t->group, t->group->rank == 0 ? rehearse(t) : APP_OK));
    return agree(t->group, app_check(tutti_comm_broadcast_tuning(t->comm, t->ctx)));
}

/* Opens the run's output files early, so that it does not fail at its end. */
static int open_files(trainer *t)
{
    APP_TRY(log_open(&t->log, t->options, t->group));
    APP_TRY(laps_create(&t->laps, t->group));
    if (!t->options->plot || t->group->rank != 0) return APP_OK;
    APP_TRY(app_output_open(t->options->plot, &t->plot));
    return plot_check();
}

int trainer_create(trainer *t, const train_options *options, app_group *group)
{
    *t = (trainer){.options = options, .group = group};
    APP_TRY(
        agree(group, app_device_open(group, options->common.backend, options->threads, &t->ctx)));
    APP_TRY(agree(group, open_comm(t)));
    APP_TRY(agree(group, open_task(t)));
    APP_TRY(checkpoint_open(t));
    APP_TRY(agree(group, open_files(t)));
    APP_TRY(agree(group, create_model(t)));
    APP_TRY(agree(group, app_check(tutti_params_build(t->params, t->ctx))));
    APP_TRY(agree(group, create_optimizer(t)));
    APP_TRY(agree(group, create_exchange(t)));
    APP_TRY(checkpoint_load(t));
    APP_TRY(agree(group, app_check(tutti_comm_broadcast_params(t->comm, t->ctx, t->params))));
    return tune(t);
}

void trainer_destroy(trainer *t)
{
    log_close(&t->log);
    laps_free(&t->laps);
    app_output_close(&t->plot);
    checkpoint_close(t);
    history_free(&t->history);
    tutti_grad_sync_destroy(&t->sync);
    optimizer_destroy(&t->optimizer);
    tutti_step_block_destroy(&t->step);
    tutti_params_destroy(&t->params);
    if (t->task) t->task->class->close(t->task);
    free(t->task);
    void *losses = t->losses, *losses_host = t->losses_host;
    if (losses) (void)tutti_free(t->ctx, &losses);
    if (losses_host) (void)tutti_free_host(t->ctx, &losses_host);
    tutti_comm_destroy(&t->comm);
    tutti_context_destroy(&t->ctx);
}

double trainer_batch_tokens(const trainer *t)
{
    return (double)(t->options->batch * t->task->tokens_per_sample);
}

double trainer_learning_rate(const trainer *t, int64_t step)
{
    return schedule_lr(step, t->warmup, t->total, t->options->lr);
}

int trainer_set_values(trainer *t, int64_t step)
{
    const int rank = t->group->rank;
    tutti_step_values values = {.step = 1, .loss_weight = 1};
    values.step = step;
    values.learning_rate = trainer_learning_rate(t, step);
    values.loss_weight = 1.0 / trainer_batch_tokens(t);
    values.loss_scale = t->state.scale.value;
    values.seed = t->options->seed;
    if (FAULT_ASKED("scale", "step", rank)) values.loss_weight *= 2.0;
    if (step == FAULT_STEP && FAULT_ASKED("overflow", "step", rank)) values.loss_weight = 1e300;
    return app_check(tutti_step_block_set(t->step, t->ctx, &values));
}

static int64_t parameter_count(const trainer *t)
{
    int64_t count = 0;
    for (int i = 0; i < tutti_params_count(t->params); i++)
        count += tutti_tensor_count(&tutti_params_get(t->params, i)->value);
    return count;
}

static int64_t bytes_of(const tutti_tensor *tensor)
{
    return tutti_tensor_count(tensor) * (int64_t)tutti_dtype_size(tensor->dtype);
}

/* Of parameters, gradients, optimizer and exchange, on this rank. */
static int64_t memory_of(const trainer *t)
{
    static const tutti_params_buffer buffers[] = {TUTTI_PARAMS_MASTER, TUTTI_PARAMS_GRAD,
                                                  TUTTI_PARAMS_WORKING};
    tutti_grad_sync_info info;
    int64_t bytes = tutti_grad_sync_get_info(t->sync, &info) == TUTTI_OK ? info.bytes_held : 0;
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        tutti_tensor flat;
        if (tutti_params_flat(t->params, buffers[i], &flat) == TUTTI_OK && flat.data)
            bytes += bytes_of(&flat);
    }
    tutti_state_tensor states[OPTIMIZER_STATES_MAX];
    int count;
    if (optimizer_states(&t->optimizer, states, &count) == APP_OK)
        for (int i = 0; i < count; i++) bytes += bytes_of(&states[i].tensor);
    return bytes;
}

static void describe_device(const trainer *t)
{
    const int device = tutti_context_device(t->ctx),
              threads = app_device_threads(t->group, t->options->threads);
    if (tutti_context_backend(t->ctx) == TUTTI_BACKEND_CUDA)
        app_say("  backend       cuda (rank 0 on device %d)", device);
    else if (threads > 0)
        app_say("  backend       host, %d thread%s a rank", threads, threads == 1 ? "" : "s");
    else
        app_say("  backend       host, threads by OMP_NUM_THREADS=%s", getenv("OMP_NUM_THREADS"));
}

static void describe_checkpoint(const trainer *t)
{
    const train_options *o = t->options;
    if (!o->checkpoint) return;
    char every[64] = "";
    if (o->save_every)
        snprintf(every, sizeof every, "every %lld steps and ", (long long)o->save_every);
    if (!o->evaluate)
        app_say("  checkpoint    %s, saved %sat the end; %lld older ones are kept", o->checkpoint,
                every, (long long)o->keep);
    if (t->resumed)
        app_say("  resumed       after step %lld, %lld/%lld of epoch %lld/%lld",
                (long long)t->state.step, (long long)t->state.epoch_step, (long long)t->steps,
                (long long)t->state.epoch, (long long)o->epochs);
    else
        app_say("  resumed       no: a fresh start");
}

void trainer_describe(const trainer *t)
{
    const train_options *o = t->options;
    const int64_t dropped = t->task->train_count - t->steps * o->batch;
    app_say("configuration");
    o->task->describe(t->task);
    const int64_t count = parameter_count(t), bytes = memory_of(t);
    app_say("  parameters    %lld", (long long)count);
    app_say("  memory        %.1f MB a rank for them, %.1f bytes each%s", (double)bytes * 1e-6,
            (double)bytes / (double)count, o->shard ? ", sharded" : "");
    describe_device(t);
    app_say("  ranks         %d, transport %s, at most %g s a wait%s", t->group->world_size,
            app_transport_name(tutti_comm_transport(t->comm)), o->common.timeout,
            o->wire == TUTTI_BF16 ? "; gradients travel in bf16" : "");
    tutti_grad_sync_info info;
    if (tutti_grad_sync_get_info(t->sync, &info) == TUTTI_OK && info.engine == TUTTI_ENGINE_COPY)
        app_say("  engine        copies between the GPUs");
    app_say("  dtype         %s", tutti_dtype_name(o->dtype));
    if (o->tune)
        app_say("  products      %s", tutti_context_backend(t->ctx) == TUTTI_BACKEND_CUDA
                                          ? "by the fastest algorithms that rank 0 has measured"
                                          : "nothing to measure on the host");
    if (o->dtype == TUTTI_F16)
        app_say("  loss scale    %g, doubled after %d good steps", t->state.scale.value,
                LOSS_SCALE_GROWTH);
    app_say("  epochs        %lld of %lld steps, %lld in all", (long long)o->epochs,
            (long long)t->steps, (long long)t->total);
    char micro[64] = "", leaves[64] = "", rest[96] = "";
    if (o->accumulate > 1)
        snprintf(micro, sizeof micro, " in %s%lld micro-steps", o->leaves ? "up to " : "",
                 (long long)o->accumulate);
    if (o->leaves)
        snprintf(leaves, sizeof leaves, ", reproducible in %lld leaves", (long long)o->leaves);
    if (dropped)
        snprintf(rest, sizeof rest, "; each epoch drops its last %lld %s", (long long)dropped,
                 o->task->samples);
    app_say("  batch         %lld over all ranks%s%s%s", (long long)o->batch, micro, leaves, rest);
    app_say("  learning rate %g at most, %lld steps of warm-up, then cosine", o->lr,
            (long long)t->warmup);
    optimizer_describe(o);
    app_say("  seed          %llu", (unsigned long long)o->seed);
    describe_checkpoint(t);
}
