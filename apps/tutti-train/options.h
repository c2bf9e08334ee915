/* The command line of tutti-train. */
#ifndef TUTTI_TRAIN_OPTIONS_H
#define TUTTI_TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/options.h"
#include "tutti/tutti.h"

struct task_class;

/* the folder of Debian's package dataset-fashion-mnist */
#define TRAIN_DATA_DIR "/usr/share/datasets/fashion-mnist"

typedef enum train_progress {
    TRAIN_PROGRESS_PLAIN,
    TRAIN_PROGRESS_BAR,
    TRAIN_PROGRESS_NONE
} train_progress;

typedef enum train_nonfinite { TRAIN_NONFINITE_STOP, TRAIN_NONFINITE_SKIP } train_nonfinite;
typedef enum train_optimizer { TRAIN_ADAMW, TRAIN_SGD } train_optimizer;
typedef enum train_resume {
    TRAIN_RESUME_NO,
    TRAIN_RESUME_WANTED, /* the file must exist */
    TRAIN_RESUME_AUTO    /* a fresh start if it does not */
} train_resume;

typedef struct train_options {
    app_common common; /* its args: FILE … */
    bool dry_run, evaluate, shard, tune;
    const struct task_class *task;
    const char *data; /* folder of the four files; NULL if the task reads none */
    int64_t hold_out; /* training images kept for validation; 0: test instead */
    int64_t sample;   /* characters at the end; 0: none */

    int64_t width, depth, embedding, context;
    const char *norm; /* a kind of layer, one of the task's norms */
    tutti_activation activation;
    double dropout; /* probability, in training; 0: no such layers */

    int64_t epochs, batch, accumulate;
    int64_t leaves;         /* reproducible mode; 0: fast mode */
    int64_t check_replicas; /* steps; 0: never */
    train_optimizer optimizer;
    double momentum; /* SGD's; 0 of another optimizer */
    double lr, weight_decay, clip;
    int64_t warmup;    /* steps; -1: a tenth of the run */
    double loss_scale; /* f16's first */
    uint64_t seed;
    train_nonfinite nonfinite;

    const char *checkpoint; /* file, or NULL */
    int64_t save_every;     /* steps; 0: at the end only */
    int64_t keep;           /* older files */
    train_resume resume;

    tutti_dtype dtype, wire;
    tutti_engine engine; /* with shard */
    int64_t threads;
    int64_t log_every;  /* steps; 0: ten times an epoch */
    const char *losses; /* files to write, or NULL */
    const char *log_json;
    const char *plot;
    train_progress progress;
} train_options;

/* Defaults that differ from the common ones: an optimizer's, or a task's, which also lists its own
 * options; value NULL: an option without a default. */
typedef struct train_default {
    const char *name, *value;
} train_default;

/* app_option's mark: how a resumed run treats another value than the one saved under config/. */
enum {
    TRAIN_SAVED = 3,    /* mask of the following three */
    TRAIN_FIXED = 1,    /* the run is refused */
    TRAIN_REPORTED = 2, /* the change is reported */
    TRAIN_LENGTH = 3,   /* the change and its consequence are reported */
    TRAIN_OF_TASK = 4,  /* only for the tasks that list it */
    TRAIN_UNLESS_0 = 8  /* a file lacks it if it is 0, or the first word */
};

extern const app_command train_command;
/* The command's run function, in main.c. */
int train_main(void *options, app_group *group);

/* The text of an option's value, "gelu"; valid until the next call. */
const char *train_text(const train_options *options, const char *name);

#endif
