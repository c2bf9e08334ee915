/* The task fashion: classify the 28 x 28 images of Fashion-MNIST into ten kinds of clothing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "fashion_data.h"
#include "fashion_loader.h"
#include "fashion_model.h"
#include "faults.h"
#include "task.h"

enum { EVALUATION_ROWS = 1024 };

typedef struct fashion {
    task task;
    dataset train_set, test_set; /* with --hold-out, test_set stays empty */
    loader train, test;          /* test: what is evaluated, held out or not */
    model model;
    void *logits_raw; /* of one call, on the host, in the model's type */
    double *logits;   /* the same in f64 */
} fashion;

/* Chosen with --hold-out 10000, by the accuracy on the training images held out; the test images
 * were not used. */
static const train_default options[] = {
    {"data", TRAIN_DATA_DIR}, {"width", "256"}, {"epochs", "6"},
    {"batch", "256"},         {"lr", "0.003"},  {NULL, NULL},
};

static void list_files(const train_options *o, app_files *files)
{
    dataset_list(o->data, "train", files);
    if (o->hold_out == 0) dataset_list(o->data, "t10k", files);
}

static int open_data(task *task)
{
    fashion *f = (fashion *)task;
    const train_options *o = task->options;
    APP_TRY(dataset_load(&f->train_set, o->data, "train"));
    if (o->hold_out == 0) APP_TRY(dataset_load(&f->test_set, o->data, "t10k"));
    if (o->hold_out >= f->train_set.count)
        return app_fail(APP_USAGE, "--hold-out is %lld, want fewer than the %lld training images",
                        (long long)o->hold_out, (long long)f->train_set.count);
    task->train_count = f->train_set.count - o->hold_out;
    task->test_count = o->hold_out ? o->hold_out : f->test_set.count;
    task->test_name = o->hold_out ? "validation" : "test";
    task->tokens_per_sample = 1;
    snprintf(task->data_name, sizeof task->data_name, "%lld training and %lld %s images",
             (long long)task->train_count, (long long)task->test_count, task->test_name);
    return APP_OK;
}

static int create(task *task, tutti_params *params, int64_t capacity)
{
    fashion *f = (fashion *)task;
    const train_options *o = task->options;
    const int64_t rows = capacity > EVALUATION_ROWS ? capacity : EVALUATION_ROWS;
    f->logits_raw = malloc(EVALUATION_ROWS * DATA_CLASSES * sizeof(double));
    f->logits = malloc(EVALUATION_ROWS * DATA_CLASSES * sizeof(double));
    if (!f->logits_raw || !f->logits) return app_fail(APP_FAILED, "no memory for the logits");
    APP_TRY(loader_create(&f->train, &f->train_set, 0, task->train_count, capacity, o->dtype));
    APP_TRY(loader_create(&f->test, o->hold_out ? &f->train_set : &f->test_set,
                          o->hold_out ? task->train_count : 0, task->test_count, EVALUATION_ROWS,
                          o->dtype));
    APP_TRY(model_create(&f->model, task->ctx, o, rows, params));
    task->loss_sum = f->model.network.loss_sum;
    return APP_OK;
}

static int shuffle(task *task, int64_t epoch)
{
    return loader_shuffle(&((fashion *)task)->train, task->options->seed, epoch);
}

static int load(task *task, int64_t first, int64_t rows, int leaves)
{
    fashion *f = (fashion *)task;
    f->model.network.first_row = first;
    network_cut(&f->model.network, rows, leaves);
    APP_TRY(
        loader_load(&f->train, task->ctx, first, rows, f->model.images, f->model.network.labels));
    if (first / task->options->batch + 1 == FAULT_STEP &&
        FAULT_ASKED("nan", "step", task->group->rank)) {
        const double nan_value = NAN;
        APP_CHECK(tutti_convert(f->train.images, task->options->dtype, &nan_value, TUTTI_F64, 1));
        APP_CHECK(tutti_copy(task->ctx, f->model.images, f->train.images,
                             tutti_dtype_size(task->options->dtype)));
    }
    return APP_OK;
}

static int forward(task *task, int64_t rows, const tutti_step_block *step)
{
    fashion *f = (fashion *)task;
    f->model.network.step = step;
    APP_TRY(network_forward(&f->model.network, rows, true));
    return network_loss(&f->model.network, rows, step);
}

static int backward(task *task, int64_t rows, int code, unsigned flags, tutti_grad_sync *sync)
{
    return network_backward(&((fashion *)task)->model.network, rows, code, flags, sync);
}

/* Adds the rows whose largest logit is that of the label. */
static int count_correct(fashion *f, int64_t rows, double *correct)
{
    const tutti_dtype dtype = f->task.options->dtype;
    const int64_t count = rows * DATA_CLASSES;
    APP_CHECK(tutti_copy(f->task.ctx, f->logits_raw, f->model.network.logits,
                         (size_t)count * tutti_dtype_size(dtype)));
    APP_CHECK(tutti_context_check(f->task.ctx));
    APP_CHECK(tutti_convert(f->logits, TUTTI_F64, f->logits_raw, dtype, count));
    for (int64_t i = 0; i < rows; i++) {
        const double *row = f->logits + i * DATA_CLASSES;
        int best = 0;
        for (int k = 1; k < DATA_CLASSES; k++)
            if (row[k] > row[best]) best = k;
        *correct += best == f->test.labels[i];
    }
    return APP_OK;
}

static int evaluate(task *task, int64_t first, int64_t end, task_score *score)
{
    fashion *f = (fashion *)task;
    while (first < end) {
        const int64_t rows = end - first < EVALUATION_ROWS ? end - first : EVALUATION_ROWS;
        double loss;
        APP_TRY(loader_load(&f->test, task->ctx, first, rows, f->model.images,
                            f->model.network.labels));
        APP_TRY(network_forward(&f->model.network, rows, false));
        APP_TRY(network_loss(&f->model.network, rows, NULL));
        APP_CHECK(tutti_copy(task->ctx, &loss, f->model.network.loss_sum, sizeof loss));
        APP_TRY(count_correct(f, rows, &score->correct));
        score->samples += (double)rows;
        score->loss += loss;
        first += rows;
    }
    return APP_OK;
}

static void report(const task *task, const task_score *score, char *text, size_t size)
{
    snprintf(text, size, "%s loss %.4f | %s accuracy %.2f %%", task->test_name,
             score->loss / score->samples, task->test_name,
             100.0 * score->correct / score->samples);
}

static void describe(const task *task)
{
    const train_options *o = task->options;
    app_say("  task          fashion: %s", task->data_name);
    app_say("  data          %s", o->data);
    model_describe(o);
}

static void close_data(task *task)
{
    fashion *f = (fashion *)task;
    network_free(&f->model.network);
    loader_free(&f->train);
    loader_free(&f->test);
    free(f->logits_raw);
    free(f->logits);
    dataset_free(&f->train_set);
    dataset_free(&f->test_set);
}

const task_class fashion_task = {
    .name = "fashion",
    .samples = "images",
    .rate = "samples/s",
    .has_accuracy = true,
    .norms = model_norms,
    .options = options,
    .list_files = list_files,
    .open = open_data,
    .create = create,
    .shuffle = shuffle,
    .load = load,
    .forward = forward,
    .backward = backward,
    .evaluate = evaluate,
    .report = report,
    .describe = describe,
    .close = close_data,
    .size = sizeof(fashion),
};
