/* A task: its data, model and metric.  The trainer uses tasks only through this table, so a new
 * task is a few files of its own and a line in task.c. */
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
    const char *samples; /* the rows of a batch: "images" */
    const char *rate;    /* unit in the step lines: "samples/s", "tokens/s" */
    bool takes_files;    /* accepts FILE … on the command line */
    bool has_accuracy;   /* evaluate counts right predictions */
    /* the kinds of norm layers, NULL last; the first is the default */
    const char *const *norms;

    const train_default *options; /* a NULL name ends them */
    /* AdamW's default of --lr is for widths up to this, beyond which it falls in proportion; 0: for
     * all */
    int64_t lr_width;
    /* Adds the files that open will read to the list. */
    void (*list_files)(const train_options *options, app_files *files);
    /* Reads or maps the data and fills in the second half of the task's struct; not collective.  On
     * failure, here and below, close cleans up. */
    int (*open)(task *task);
    /* Creates layers, loss_sum and buffers for training calls of up to `capacity` rows, at least 1
     * (the task chooses the rows of an evaluation's calls); adds the parameters to a store. */
    int (*create)(task *task, tutti_params *params, int64_t capacity);
    /* A new order of the training samples, by seed and epoch alone. */
    int (*shuffle)(task *task, int64_t epoch);
    /* Copies `rows` training samples, from place `first` of the epoch's order, to the device; they
     * are this many equal leaves; 0: of none. */
    int (*load)(task *task, int64_t first, int64_t rows, int leaves);
    /* Forward of the loaded rows, with the sums of the leaves' losses in task->loss_sum and the
     * gradient of the logits. */
    int (*forward)(task *task, int64_t rows, const tutti_step_block *step);
    /* Gradients of all parameters; flags: 0 or TUTTI_GRAD_ACCUMULATE.  sync: NULL in all
     * micro-steps but the last.  code: of this step so far; after a failure each layer is still
     * declared ready, as the other ranks wait for it until the next agreement; of several leaves
     * it cannot be. */
    int (*backward)(task *task, int64_t rows, int code, unsigned flags, tutti_grad_sync *sync);
    /* Adds the score of test samples first to end - 1. */
    int (*evaluate)(task *task, int64_t first, int64_t end, task_score *score);
    /* Prints a score: "test loss 0.3012 | test accuracy 88.21 %" */
    void (*report)(const task *task, const task_score *score, char *text, size_t size);
    /* --sample, on rank 0: prints `count` generated characters; NULL if the task cannot. */
    int (*sample)(task *task, int64_t count);
    /* Prints the lines "task", "data" and "model" of the configuration. */
    void (*describe)(const task *task);
    void (*close)(task *task);
    size_t size; /* of the task's own struct, which begins with a task */
} task_class;

struct task {
    /* set by the trainer */
    const task_class *class;
    const train_options *options;
    app_group *group;
    tutti_context *ctx;

    /* set by open */
    int64_t train_count, test_count; /* samples of an epoch, and of an evaluation */
    const char *test_name;           /* "test", "validation", "held-out" */
    int64_t tokens_per_sample;       /* for the rate and the mean loss: 1 for images */
    /* identifies the data by their sizes, not by a path: a run resumes only on the same data */
    char data_name[128];

    /* set by create */
    double *loss_sum; /* [leaves] on the device */
};

extern const task_class fashion_task, bytes_task;

/* The classes, NULL last; the first is the default. */
extern const task_class *const task_classes[];

#endif
