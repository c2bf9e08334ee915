/* A task: its data, its model and its measure.  The trainer knows tasks through this table only, so
 * a new task is a few files of its own and one line in task.c. */
#ifndef TUTTI_TRAIN_TASK_H
#define TUTTI_TRAIN_TASK_H

#include <stddef.h>

#include "common/files.h"
#include "common/group.h"
#include "options.h"
#include "tutti/tutti.h"

typedef struct task task;

/* Sums of an evaluation, of one rank or of all: predictions made, their losses, and how many were
 * right. */
typedef struct task_score {
    double samples, loss, correct;
} task_score;

typedef struct task_class {
    const char *name;    /* "fashion" */
    const char *samples; /* what a row of a batch is, in the plural: "images" */
    const char *rate;    /* of the step lines: "samples/s", "tokens/s" */
    bool takes_files;    /* FILE … on the command line; refused where it is false */
    bool has_accuracy;   /* evaluate counts what was right */
    /* kinds of layer that its norms may be, NULL last; the first is the default */
    const char *const *norms;

    const train_default *options; /* a NULL name ends them */
    /* Names the files that open will read. */
    void (*list_files)(const train_options *options, app_files *files);
    /* Reads or maps the data and fills in the second half of the task's struct; not collective.  On
     * failure, here and below, close cleans up. */
    int (*open)(task *task);
    /* Makes the layers and the buffers for training calls of up to `capacity` rows, at least 1 (how
     * many an evaluation takes at a time is the task's affair), and loss_sum; adds the parameters
     * to a store. */
    int (*create)(task *task, tutti_params *params, int64_t capacity);
    /* A new order of the training samples, which depends on seed and epoch and nothing else. */
    int (*shuffle)(task *task, int64_t epoch);
    /* Brings `rows` training samples, from place `first` of the epoch's order, to the device. */
    int (*bring)(task *task, int64_t first, int64_t rows);
    /* Forward, the sum of the losses into *task->loss_sum, and the gradient of the logits, of the
     * rows brought. */
    int (*forward)(task *task, int64_t rows, const tutti_step_block *step);
    /* Gradients of all parameters; flags: 0 or TUTTI_GRAD_ACCUMULATE.  sync: NULL in all
     * micro-steps but the last.  code: of this step so far.  Whatever it is, each layer is declared
     * ready to the exchange: the other ranks wait for it, and are told of this rank's fault at the
     * next agreement. */
    int (*backward)(task *task, int64_t rows, int code, unsigned flags, tutti_grad_sync *sync);
    /* Adds the score of test samples first to end - 1. */
    int (*evaluate)(task *task, int64_t first, int64_t end, task_score *score);
    /* What the score says, at the end of the epoch and done lines: "test loss 0.3012 | test
     * accuracy 88.21 %" */
    void (*report)(const task *task, const task_score *score, char *text, size_t size);
    /* --sample, on rank 0: writes `count` characters that the model continues with; NULL where a
     * task cannot. */
    int (*sample)(task *task, int64_t count);
    /* Lines "task", "data" and "model" of the configuration. */
    void (*describe)(const task *task);
    void (*close)(task *task);
    size_t size; /* of the task's own struct, which begins with a task */
} task_class;

struct task {
    /* the trainer's */
    const task_class *class;
    const train_options *options;
    app_group *group;
    tutti_context *ctx;

    /* what open finds */
    int64_t train_count, test_count; /* samples an epoch goes through, and an evaluation */
    const char *test_name;           /* "test", "validation", "held-out" */
    int64_t tokens_per_sample;       /* for the rate and the mean loss: 1 for images */
    /* which data these are, by their sizes and never by a path: a run resumes on the same only */
    char data_name[128];

    /* what create makes */
    double *loss_sum; /* [1] on the device */
};

extern const task_class fashion_task, bytes_task;

/* The classes, NULL last; the first is the default. */
extern const task_class *const task_classes[];

#endif
