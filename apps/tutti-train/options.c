/* The command line of tutti-train. */
#include "options.h"

#include <stdio.h>
#include <string.h>

#include "task.h"

static const char *const progress_names[] = {"plain", "bar", "none", NULL};
static const char *const nonfinite_names[] = {"stop", "skip", NULL};
#define ACTIVATION_NAME(name, text, from) text,
#define ACTIVATION_WORD(name, text, from) " " text
static const char *const activation_names[] = {TUTTI_ACTIVATION_LIST(ACTIVATION_NAME) NULL};
static const char *const optimizer_names[] = {"adamw", "sgd", NULL};
static const char *const dtype_names[] = {"f32", "f64", "f16", "bf16", NULL};
static const char *const wire_names[] = {"f32", "bf16", NULL};
static const char *const engine_names[] = {"auto", "transport", "copy", NULL};

static bool parse_task(const app_option *option, void *options, const char *text,
                       char wanted[APP_WANTED_MAX])
{
    (void)option;
    const char *names[8] = {NULL};
    int place;
    for (int i = 0; task_classes[i]; i++) names[i] = task_classes[i]->name;
    if (!app_word_find(names, text, &place, wanted)) return false;
    ((train_options *)options)->task = task_classes[place];
    return true;
}

static const char *print_task(const void *options)
{
    return ((const train_options *)options)->task->name;
}

static bool parse_norm(const app_option *option, void *options, const char *text,
                       char wanted[APP_WANTED_MAX])
{
    (void)option;
    train_options *o = options;
    int place;
    if (!app_word_find(o->task->norms, text, &place, wanted)) return false;
    o->norm = o->task->norms[place];
    return true;
}

static const char *print_norm(const void *options)
{
    return ((const train_options *)options)->norm;
}

static bool parse_resume(const app_option *option, void *options, const char *text,
                         char wanted[APP_WANTED_MAX])
{
    (void)option;
    ((train_options *)options)->resume = text ? TRAIN_RESUME_AUTO : TRAIN_RESUME_WANTED;
    snprintf(wanted, APP_WANTED_MAX, "auto or no value");
    return !text || strcmp(text, "auto") == 0;
}

#define AT(field) .at = offsetof(train_options, field)
#define INT(field, low, high) .kind = APP_INT, AT(field), .least = low, .most = high
#define REAL(form, field, high) .kind = form, AT(field), .most = high
#define WORD(field, names) .kind = APP_WORD, AT(field), .words = names
#define TEXT(field) .kind = APP_TEXT, AT(field)
#define KEPT(name, how) .key = "config/" name, .mark = TRAIN_##how
static const double many = 1e9;
enum { TO_TRAIN_ON = 1, MODEL, HOW, CHECKPOINTS, WHERE, TO_SEE };

/* The options that a checkpoint saves come first, in its order. */
static const app_option table[] = {
    {"task", "NAME", .group = TO_TRAIN_ON, .kind = APP_OTHER, .parse = parse_task,
     .print = print_task, .initial = "fashion", KEPT("task", FIXED),
     .help =
         "fashion: classify the 28 x 28 images of Fashion-MNIST into ten kinds of clothing; "
         "bytes: predict the next byte of the FILEs, or, without any, of the licence texts that "
         "every Debian has"},
    {"data", "DIR", .group = TO_TRAIN_ON, TEXT(data), KEPT("data", FIXED | TRAIN_OF_TASK),
     .help = "folder of the four IDX files, gzip or not"},
    {"width", "N", .group = MODEL, INT(width, 1, 1 << 20), KEPT("width", FIXED),
     .help = "outputs of each block"},
    {"depth", "N", .group = MODEL, INT(depth, 1, 1000), .initial = "2", KEPT("depth", FIXED),
     .help = "number of blocks"},
    {"embedding", "N", .group = MODEL, INT(embedding, 1, 1 << 20),
     KEPT("embedding", FIXED | TRAIN_OF_TASK), .help = "bytes: how many numbers represent a byte"},
    {"context", "N", .group = MODEL, INT(context, 1, 1 << 20),
     KEPT("context", FIXED | TRAIN_OF_TASK),
     .help = "bytes: number of preceding bytes that predict the next one"},
    {"norm", "KIND", .group = MODEL, .kind = APP_OTHER, .parse = parse_norm, .print = print_norm,
     KEPT("norm", FIXED),
     .help =
         "kind of the norm layers, of those that the task's model has: another word names them"},
    {"activation", "NAME", .group = MODEL, WORD(activation, activation_names), .initial = "relu",
     KEPT("activation", FIXED), .help = "one of" TUTTI_ACTIVATION_LIST(ACTIVATION_WORD)},
    {"dtype", "TYPE", .group = WHERE, .kind = APP_DTYPE, AT(dtype), .words = dtype_names,
     .initial = "f32", KEPT("dtype", FIXED), .help = "f32, f64, bf16 or f16"},
    {"batch", "N", .group = HOW, INT(batch, 1, many), KEPT("batch", FIXED),
     .help =
         "samples a step, over all ranks together: results do not depend on the number of ranks"},
    {"reproducible", "L", .group = HOW, INT(leaves, 1, TUTTI_LEAVES_MAX), KEPT("leaves", REPORTED),
     .help =
         "the same bits on any number of ranks up to L, a power of two that divides the batch: "
         "gradients are always formed of the same L parts of the batch, and added in a fixed order "
         "(costs time and memory)"},
    {"seed", "N", .group = HOW, .kind = APP_UNSIGNED, AT(seed), .initial = "1", KEPT("seed", FIXED),
     .help = "of the initial weights and the order of the samples"},
    {"epochs", "N", .group = HOW, INT(epochs, 1, many), KEPT("epochs", LENGTH),
     .help = "passes over the training samples"},
    {"optimizer", "NAME", .group = HOW, WORD(optimizer, optimizer_names), .initial = "adamw",
     KEPT("optimizer", FIXED | TRAIN_UNLESS_0),
     .help = "adamw, or sgd: stochastic gradient descent with momentum"},
    {"momentum", "M", .group = HOW, REAL(APP_REAL, momentum, 0.9999),
     KEPT("momentum", FIXED | TRAIN_UNLESS_0), .help = "of sgd alone, 0 for none"},
    {"warmup", "STEPS", .group = HOW, INT(warmup, 0, many), .initial = "-1",
     .unset = "a tenth of the run", KEPT("warmup", REPORTED),
     .help = "steps over which the learning rate rises, before it falls along a cosine"},
    {"lr", "X", .group = HOW, REAL(APP_POSITIVE, lr, 1000), KEPT("lr", REPORTED),
     .help = "highest learning rate; of adamw in bytes the default falls in proportion beyond a "
             "width of 512"},
    {"weight-decay", "X", .group = HOW, REAL(APP_REAL, weight_decay, 1000), .initial = "0.01",
     KEPT("weight_decay", REPORTED),
     .help = "the optimizer's, on weights but not on biases and norms: adamw subtracts it from "
             "weights, sgd adds it to gradients"},
    {"clip", "X", .group = HOW, REAL(APP_REAL, clip, 1e30), .initial = "0", KEPT("clip", REPORTED),
     .help = "largest norm of the gradients, 0 for none"},
    {"dropout", "P", .group = HOW, REAL(APP_REAL, dropout, 0.99), .initial = "0",
     KEPT("dropout", REPORTED | TRAIN_UNLESS_0),
     .help = "probability of dropping an element in training: after the activation of each block, "
             "in bytes from what a block adds"},

    {.group = TO_TRAIN_ON, .help = "What to train on:"},
    {"hold-out", "N", .group = TO_TRAIN_ON, INT(hold_out, 0, many),
     .help = "exclude the last N training samples from training and evaluate on them: for choosing "
             "options without using the test data"},
    {.group = MODEL, .help = "The model, of DEPTH blocks:"},
    {.group = HOW, .help = "How to train:"},
    {"accumulate", "N", .group = HOW, INT(accumulate, 1, many), .initial = "1",
     .help = "micro-steps: the gradients of a batch are computed in N parts, one after the other, "
             "and exchanged once; N times less memory, and the same results to rounding; with "
             "--reproducible up to N parts, of whole leaves, and the same to the bit"},
    {"shard", .group = HOW, AT(shard),
     .help = "each rank keeps masters and optimizer state of a part of the parameters only, and "
             "updates that part; results and files are the same as without"},
    {"wire", "TYPE", .group = HOW, .kind = APP_DTYPE, AT(wire), .words = wire_names,
     .initial = "f32",
     .help = "what travels of gradients: f32 (themselves) or bf16, half the bytes, added in f32"},
    {"tune", .group = HOW, AT(tune),
     .help = "rank 0 measures the algorithms for matrix products of the training's shapes, and all "
             "ranks take the fastest; results then depend on what was measured, to rounding (the "
             "host has nothing to measure); --timeout must cover it"},
    {"engine", "NAME", .group = HOW, WORD(engine, engine_names), .initial = "auto",
     .help =
         "what moves gradients: copy (the GPUs' copy engines), transport (its messages) or auto "
         "(copy engines where that is proven); does not change results with --shard or "
         "--reproducible, others only to rounding"},
    {"check-replicas", "N", .group = HOW, INT(check_replicas, 1, many),
     .help = "every N steps compare the ranks' parameters and optimizer states by hashes"},
    {"loss-scale", "X", .group = HOW, REAL(APP_POWER, loss_scale, 0x1p100), .initial = "65536",
     .help = "first loss scale of f16, a power of two; halved when gradients overflow"},
    {"on-nonfinite", "WHAT", .group = HOW, WORD(nonfinite, nonfinite_names), .initial = "stop",
     .help = "when a loss or gradient is NaN or infinite: stop, or skip the update and continue"},

    {.group = CHECKPOINTS, .help = "Checkpoints:"},
    {"checkpoint", "FILE", .group = CHECKPOINTS, TEXT(checkpoint),
     .help = "save the run in FILE: at the end, and when a signal stops it"},
    {"save-every", "STEPS", .group = CHECKPOINTS, INT(save_every, 1, many),
     .help = "also save every STEPS steps"},
    {"keep", "K", .group = CHECKPOINTS, INT(keep, 0, 1000), .initial = "0",
     .help = "keep the K previous files as FILE.1 to FILE.K"},
    {"resume", "auto", .group = CHECKPOINTS, .kind = APP_OTHER, .optional = true,
     .parse = parse_resume,
     .help = "continue from FILE, which must exist; --resume=auto: start afresh if it does not"},
    {"evaluate", .group = CHECKPOINTS, AT(evaluate),
     .help = "with --resume: only evaluate the model in FILE"},

    {.group = WHERE, .help = "Where to train:"},
    {"threads", "N", .group = WHERE, INT(threads, 1, 4096),
     .unset = "OMP_NUM_THREADS, otherwise its share of the cores",
     .help = "host threads of a rank; does not change results"},

    {.group = TO_SEE, .help = "Output:"},
    {"log-every", "STEPS", .group = TO_SEE, INT(log_every, 1, many),
     .unset = "ten lines an epoch or a few more", .help = "steps between lines"},
    {"losses", "FILE", .group = TO_SEE, TEXT(losses),
     .help = "also write 'epoch step loss' of each line to FILE, with all digits"},
    {"log-json", "FILE", .group = TO_SEE, TEXT(log_json),
     .help = "also write each line to FILE as a JSON object; a resumed run appends"},
    {"plot", "FILE.svg", .group = TO_SEE, TEXT(plot),
     .help = "draw loss and accuracy at the end, by gnuplot"},
    {"sample", "N", .group = TO_SEE, INT(sample, 1, many), .mark = TRAIN_OF_TASK,
     .help = "at the end, print N characters generated by the model (bytes)"},
    {"progress", "KIND", .group = TO_SEE, WORD(progress, progress_names), .initial = "plain",
     .help = "plain: lines; bar: a bar under them, for a terminal; none: epochs only"},
    {"dry-run", .group = TO_SEE, AT(dry_run),
     .help = "set everything up, print the configuration and stop"},
};

static const char doc[] =
    "Trains a model with Tutti's layers, on one process or on several that share the work.\v"
    "Examples:\n"
    "  tutti-train                              one process, default options\n"
    "  launch/tutti-run -np 2 tutti-train       two ranks on this machine\n"
    "  tutti-train --dtype bf16 --width 512 --epochs 3\n"
    "  tutti-train --optimizer sgd --momentum 0.8 --lr 0.05\n"
    "  tutti-train --task bytes --sample 300 *.txt\n"
    "  tutti-train --checkpoint run.h5 --save-every 100 --keep 2 --resume=auto\n"
    "  tutti-train --hold-out 10000 --lr 0.004  try a learning rate without the test images\n"
    "\n"
    "Exit codes: 0 good, 1 the replicas differ, 2 the run failed, 64 wrong command line, 75 "
    "stopped by SIGTERM, SIGINT or SIGUSR1.";

/* In place of the task's. */
static const train_default sgd_defaults[] = {
    {"momentum", "0.9"}, {"lr", "0.1"}, {"weight-decay", "0.0005"}, {NULL, NULL}};

static const train_default *find_default(const train_default *list, const app_option *option)
{
    for (const train_default *own = list; own->name; own++)
        if (option->name && strcmp(own->name, option->name) == 0) return own;
    return NULL;
}

/* "256; bytes: 128; sgd: 100" */
static const char *list_defaults(const app_option *option)
{
    static char text[96];
    size_t used = 0;
    for (int i = 0, last = 0; !last; i++) {
        last = !task_classes[i];
        const train_default *own =
            find_default(last ? sgd_defaults : task_classes[i]->options, option);
        if (!own || !own->value || used >= sizeof text) continue;
        if (i > 0 && used == 0 && option->initial)
            used = (size_t)snprintf(text, sizeof text, "%s", option->initial);
        const char *name = last ? optimizer_names[TRAIN_SGD] : task_classes[i]->name;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%s%s", used ? "; " : "",
                                 used ? name : "", used ? ": " : "", own->value);
    }
    return used ? text : NULL;
}

static void set_defaults(train_options *o, const train_default *list)
{
    for (const train_default *own = list; own->name; own++)
        if (own->value) app_option_set(app_option_find(&train_command, own->name), o, own->value);
}

/* Applies the task's own defaults after the common ones, and then the optimizer's. */
static void settle(void *options)
{
    train_options *o = options;
    const task_class *task = o->task;
    const train_optimizer optimizer = o->optimizer;
    const int64_t width = o->width;
    app_options_reset(&train_command, o);
    o->task = task;
    o->norm = task->norms[0];
    o->optimizer = optimizer;
    set_defaults(o, task->options);
    if (optimizer == TRAIN_SGD)
        set_defaults(o, sgd_defaults);
    else if (task->lr_width && width > task->lr_width)
        o->lr *= (double)task->lr_width / (double)width;
}

/* An option that was given but does not apply to the task. */
static const char *find_foreign(const train_options *o)
{
    for (int i = 0; i < train_command.count; i++)
        if ((table[i].mark & TRAIN_OF_TASK) && app_option_given(&train_command, o, table[i].name) &&
            !find_default(o->task->options, &table[i]))
            return table[i].name;
    return NULL;
}

static error_t check_all(struct argp_state *state, void *options)
{
    const train_options *o = options;
    if (o->common.arg_count > 0 && !o->task->takes_files)
        return app_usage_error(state, "'%s' is not an option, and --task %s reads no files",
                               o->common.args[0], o->task->name);
    const char *foreign = find_foreign(o);
    if (foreign)
        return app_usage_error(state, "--%s does not apply to --task %s", foreign, o->task->name);
    if (!o->leaves && o->batch % o->accumulate)
        return app_usage_error(state, "--accumulate is %lld, want a divisor of --batch, %lld",
                               (long long)o->accumulate, (long long)o->batch);
    if (o->leaves & (o->leaves - 1))
        return app_usage_error(state, "--reproducible is %lld, want a power of two",
                               (long long)o->leaves);
    if (o->leaves && o->batch % o->leaves)
        return app_usage_error(state, "--batch is %lld, want a multiple of --reproducible, %lld",
                               (long long)o->batch, (long long)o->leaves);
    if (o->tune && o->leaves)
        return app_usage_error(state, "--tune does not go with --reproducible, whose bits must not "
                                      "depend on measurements");
    if (o->wire == TUTTI_BF16 && (o->leaves || o->dtype == TUTTI_F64))
        return app_usage_error(state, "--wire bf16 does not go with %s",
                               o->leaves ? "--reproducible" : "--dtype f64");
    if (o->leaves && o->accumulate > o->leaves)
        return app_usage_error(state,
                               "--accumulate is %lld, want at most --reproducible, %lld: a "
                               "micro-step holds whole leaves",
                               (long long)o->accumulate, (long long)o->leaves);
    if (app_option_given(&train_command, o, "momentum") && o->optimizer != TRAIN_SGD)
        return app_usage_error(state, "--momentum does not apply to --optimizer %s",
                               optimizer_names[o->optimizer]);
    const char *dependent = o->resume       ? "resume"
                            : o->save_every ? "save-every"
                            : o->keep       ? "keep"
                                            : NULL;
    if (dependent && !o->checkpoint)
        return app_usage_error(state, "--%s requires --checkpoint FILE", dependent);
    if (o->evaluate && !o->resume)
        return app_usage_error(state, "--evaluate requires --resume and --checkpoint FILE");
    const size_t plot_length = o->plot ? strlen(o->plot) : 0;
    if (o->plot && (plot_length < 5 || strcmp(o->plot + plot_length - 4, ".svg") != 0))
        return app_usage_error(state, "--plot is '%s', want a name that ends in .svg", o->plot);
    if (app_option_given(&train_command, o, "loss-scale") && o->dtype != TUTTI_F16)
        return app_usage_error(state, "--loss-scale does not apply to --dtype %s",
                               tutti_dtype_name(o->dtype));
    return 0;
}

const app_command train_command = {.program = "tutti-train",
                                   .args_doc = "[FILE …]",
                                   .doc = doc,
                                   .options = table,
                                   .count = sizeof table / sizeof table[0],
                                   .ranks = WHERE,
                                   .size = sizeof(train_options),
                                   .settle = settle,
                                   .initial = list_defaults,
                                   .check = check_all,
                                   .run = train_main};

const char *train_text(const train_options *options, const char *name)
{
    static char text[APP_WANTED_MAX];
    const app_option *o = app_option_find(&train_command, name);
    app_option_print(o, (const char *)options + o->at, text, sizeof text);
    return text;
}
