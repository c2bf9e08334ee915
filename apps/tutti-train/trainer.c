/* How a run is set up.  Each phase is followed by an agreement, so that a fault on one rank
 * stops all of them before they wait for each other. */
#include "trainer.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "faults.h"

enum { EVALUATION_ROWS = 1024 };

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* OpenMP's own choice where the user made one; otherwise this rank's share of the cores it may
 * use. */
static int choose_threads(const train_options *options, const app_group *group)
{
    if (options->threads > 0 || getenv("OMP_NUM_THREADS")) return options->threads;
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 0;
    return (int)largest(1, CPU_COUNT(&cores) / group->local_size);
}

static int open_device(trainer *t)
{
    tutti_context_desc desc = TUTTI_CONTEXT_DESC_INIT;
    desc.backend = t->options->backend;
    desc.threads = choose_threads(t->options, t->group);
    int devices = 0;
    if (desc.backend != TUTTI_BACKEND_HOST &&
        tutti_device_count(TUTTI_BACKEND_CUDA, &devices) == TUTTI_OK && devices > 0)
        desc.device = t->group->local_rank % devices;
    return app_check(tutti_context_create(&desc, &t->ctx));
}

static int open_comm(trainer *t)
{
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    desc.transport = t->options->transport;
    desc.timeout = t->options->timeout;
    if (desc.transport == TUTTI_TRANSPORT_SELF && t->group->world_size > 1)
        return app_fail(APP_USAGE, "--transport is self, but there are %d ranks",
                        t->group->world_size);
    return app_check(tutti_comm_create(t->ctx, &desc, &t->comm));
}

static int load_data(trainer *t)
{
    const train_options *o = t->options;
    APP_TRY(dataset_load(&t->train_set, o->data, "train"));
    if (o->hold_out == 0) APP_TRY(dataset_load(&t->test_set, o->data, "t10k"));
    if (o->hold_out >= t->train_set.count)
        return app_fail(APP_USAGE, "--hold-out is %lld, want fewer than the %lld training images",
                        (long long)o->hold_out, (long long)t->train_set.count);
    const int64_t count = t->train_set.count - o->hold_out;
    if (o->batch > count)
        return app_fail(APP_USAGE, "--batch is %lld, want at most the %lld training images",
                        (long long)o->batch, (long long)count);

    t->steps = count / o->batch;
    t->total = t->steps * o->epochs;
    t->warmup = o->warmup >= 0 ? o->warmup : t->total / 10;
    t->log_every = o->log_every ? o->log_every : largest(1, t->steps / 10);
    t->row = loader_share(o->batch, t->group->rank, t->group->world_size);
    t->rows = loader_share(o->batch, t->group->rank + 1, t->group->world_size) - t->row;

    t->logits_raw = malloc(EVALUATION_ROWS * DATA_CLASSES * sizeof(double));
    t->logits = malloc(EVALUATION_ROWS * DATA_CLASSES * sizeof(double));
    if (!t->logits_raw || !t->logits) return app_fail(APP_FAILED, "no memory for the logits");
    APP_TRY(loader_create(&t->train, &t->train_set, 0, count, t->rows, o->dtype));
    if (o->hold_out) {
        t->test_name = "validation";
        return loader_create(&t->test, &t->train_set, count, o->hold_out, EVALUATION_ROWS,
                             o->dtype);
    }
    t->test_name = "test";
    return loader_create(&t->test, &t->test_set, 0, t->test_set.count, EVALUATION_ROWS, o->dtype);
}

static int create_model(trainer *t)
{
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    desc.master_dtype = t->options->dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    desc.gradient_memory = tutti_comm_allocator(t->comm);
    APP_CHECK(tutti_params_create(t->ctx, &desc, &t->params));
    return model_create(&t->model, t->ctx, t->options, largest(t->rows, EVALUATION_ROWS),
                        t->params);
}

static int create_optimizer(trainer *t)
{
    const train_options *o = t->options;
    APP_CHECK(tutti_params_init(t->params, t->ctx, o->seed));
    APP_TRY(model_plan(&t->model, t->rows));
    tutti_adamw_desc desc = TUTTI_ADAMW_DESC_INIT;
    desc.weight_decay = o->weight_decay;
    desc.clip_norm = o->clip;
    desc.skip_nonfinite = o->dtype == TUTTI_F16;
    APP_CHECK(tutti_adamw_create(t->ctx, t->params, &desc, &t->adamw));
    APP_CHECK(tutti_step_create(t->ctx, &t->step));
    t->scale.value = o->dtype == TUTTI_F16 ? o->loss_scale : 1.0;
    if (o->losses && t->group->rank == 0 && !o->dry_run) {
        t->losses = fopen(o->losses, "w");
        if (!t->losses)
            return app_fail(APP_FAILED, "%s: cannot be written: %s", o->losses, strerror(errno));
    }
    return FAULT_HERE("setup", t->group->rank);
}

static int exchange(trainer *t)
{
    APP_CHECK(tutti_comm_broadcast_params(t->comm, t->ctx, t->params));
    return app_check(tutti_grad_sync_create(t->comm, t->ctx, t->params, NULL, &t->sync));
}

int trainer_create(trainer *t, const train_options *options, app_group *group)
{
    *t = (trainer){.options = options, .group = group};
    APP_TRY(app_group_agree(group, open_device(t)));
    APP_TRY(app_group_agree(group, open_comm(t)));
    APP_TRY(app_group_agree(group, load_data(t)));
    APP_TRY(app_group_agree(group, create_model(t)));
    APP_TRY(app_group_agree(group, app_check(tutti_params_build(t->params, t->ctx))));
    APP_TRY(app_group_agree(group, create_optimizer(t)));
    return app_group_agree(group, exchange(t));
}

void trainer_destroy(trainer *t)
{
    if (t->losses) fclose(t->losses);
    tutti_grad_sync_destroy(&t->sync);
    tutti_adamw_destroy(&t->adamw);
    tutti_step_destroy(&t->step);
    tutti_params_destroy(&t->params);
    model_free(&t->model);
    loader_free(&t->train);
    loader_free(&t->test);
    free(t->logits_raw);
    free(t->logits);
    dataset_free(&t->train_set);
    dataset_free(&t->test_set);
    tutti_comm_destroy(&t->comm);
    tutti_context_destroy(&t->ctx);
}

static int64_t parameter_count(const trainer *t)
{
    int64_t count = 0;
    for (int i = 0; i < tutti_params_count(t->params); i++)
        count += tutti_tensor_count(&tutti_params_get(t->params, i)->value);
    return count;
}

static void describe_device(const trainer *t)
{
    const int device = tutti_context_device(t->ctx), threads = choose_threads(t->options, t->group);
    if (tutti_context_backend(t->ctx) == TUTTI_BACKEND_CUDA)
        app_say("  backend       cuda (rank 0 on device %d)", device);
    else if (threads > 0)
        app_say("  backend       host, %d thread%s a rank", threads, threads == 1 ? "" : "s");
    else
        app_say("  backend       host, threads by OMP_NUM_THREADS=%s", getenv("OMP_NUM_THREADS"));
}

void trainer_describe(const trainer *t)
{
    const train_options *o = t->options;
    const int64_t dropped = t->train.count - t->steps * o->batch;
    app_say("configuration");
    app_say("  task          fashion: %lld training and %lld %s images", (long long)t->train.count,
            (long long)t->test.count, t->test_name);
    app_say("  data          %s", o->data);
    app_say("  model         784 -> %lld x [%s, linear %lld, %s] -> 10, %lld parameters",
            (long long)o->depth, train_norm_name(o->norm), (long long)o->width,
            train_activation_name(o->activation), (long long)parameter_count(t));
    describe_device(t);
    app_say("  ranks         %d, transport %s, at most %g s a wait", t->group->world_size,
            train_transport_name(tutti_comm_transport(t->comm)), o->timeout);
    app_say("  dtype         %s", tutti_dtype_name(o->dtype));
    if (o->dtype == TUTTI_F16)
        app_say("  loss scale    %g, doubled after %d good steps", t->scale.value,
                LOSS_SCALE_GROWTH);
    app_say("  epochs        %lld of %lld steps, %lld in all", (long long)o->epochs,
            (long long)t->steps, (long long)t->total);
    if (dropped)
        app_say("  batch         %lld over all ranks; each epoch drops its last %lld images",
                (long long)o->batch, (long long)dropped);
    else
        app_say("  batch         %lld over all ranks", (long long)o->batch);
    app_say("  learning rate %g at most, %lld steps of warm-up, then cosine", o->lr,
            (long long)t->warmup);
    if (o->clip > 0.0)
        app_say("  optimizer     AdamW, weight decay %g, gradients clipped to norm %g",
                o->weight_decay, o->clip);
    else
        app_say("  optimizer     AdamW, weight decay %g, no clipping", o->weight_decay);
    app_say("  seed          %llu", (unsigned long long)o->seed);
}
