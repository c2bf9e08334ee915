/* The command line of tutti-train, by argp. */
#include "options.h"

#include <argp.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "common/usage.h"
#include "parse.h"
#include "task.h"

static const char *const progress_names[] = {"plain", "bar", "none", NULL};
static const char *const nonfinite_names[] = {"stop", "skip", NULL};
static const char *const backend_names[] = {"auto", "host", "cuda", NULL};
static const char *const transport_names[] = {"auto", "self", "mpi", "nccl", NULL};
static const char *const activation_names[] = {"none",     "relu",         "leaky_relu", "gelu",
                                               "gelu_erf", "squared_relu", "silu",       NULL};
static const char *const dtype_names[] = {"f32", "f64", "f16", "bf16", NULL};

const char *train_activation_name(tutti_activation activation)
{
    return activation_names[activation];
}
const char *train_transport_name(tutti_transport transport)
{
    return transport_names[transport];
}

enum {
    KEY_TASK = 0x100,
    KEY_DATA,
    KEY_HOLD_OUT,
    KEY_WIDTH,
    KEY_DEPTH,
    KEY_NORM,
    KEY_ACTIVATION,
    KEY_EMBEDDING,
    KEY_CONTEXT,
    KEY_EPOCHS,
    KEY_BATCH,
    KEY_ACCUMULATE,
    KEY_REPRODUCIBLE,
    KEY_CHECK_REPLICAS,
    KEY_LR,
    KEY_WARMUP,
    KEY_WEIGHT_DECAY,
    KEY_CLIP,
    KEY_LOSS_SCALE,
    KEY_SEED,
    KEY_NONFINITE,
    KEY_CHECKPOINT,
    KEY_SAVE_EVERY,
    KEY_KEEP,
    KEY_RESUME,
    KEY_EVALUATE,
    KEY_BACKEND,
    KEY_DTYPE,
    KEY_TRANSPORT,
    KEY_THREADS,
    KEY_TIMEOUT,
    KEY_LOG_EVERY,
    KEY_LOSSES,
    KEY_LOG_JSON,
    KEY_PLOT,
    KEY_SAMPLE,
    KEY_PROGRESS,
    KEY_DRY_RUN,
    KEY_USAGE
};

static const struct argp_option argp_options[] = {
    {NULL, 0, NULL, 0, "What to train on:", 1},
    {"task", KEY_TASK, "NAME", 0,
     "fashion (default): classify the 28 x 28 images of Fashion-MNIST into ten kinds of clothing; "
     "bytes: predict the next byte of the FILEs (default: the licence texts that every Debian has)",
     1},
    {"data", KEY_DATA, "DIR", 0,
     "folder of the four IDX files, gzip or not (default " TRAIN_DATA_DIR ")", 1},
    {"hold-out", KEY_HOLD_OUT, "N", 0,
     "keep the last N training samples out and evaluate those: for choosing options without "
     "looking at the test",
     1},

    {NULL, 0, NULL, 0, "The model, of DEPTH blocks:", 2},
    {"width", KEY_WIDTH, "N", 0, "outputs of each block (default 256; bytes: 128)", 2},
    {"depth", KEY_DEPTH, "N", 0, "number of blocks (default 2)", 2},
    {"norm", KEY_NORM, "KIND", 0, "which layer the norms are, of those that the task's model takes",
     2},
    {"activation", KEY_ACTIVATION, "NAME", 0,
     "none, relu (default), leaky_relu, gelu, gelu_erf, squared_relu or silu", 2},
    {"context", KEY_CONTEXT, "N", 0,
     "bytes: how many bytes before it a byte is predicted from (default 16)", 2},
    {"embedding", KEY_EMBEDDING, "N", 0, "bytes: how many numbers stand for a byte (default 16)",
     2},

    {NULL, 0, NULL, 0, "How to train:", 3},
    {"epochs", KEY_EPOCHS, "N", 0, "passes over the training samples (default 6; bytes: 4)", 3},
    {"batch", KEY_BATCH, "N", 0,
     "samples a step, over all ranks together: results do not depend on the number of ranks "
     "(default 256; bytes: 512)",
     3},
    {"accumulate", KEY_ACCUMULATE, "N", 0,
     "micro-steps: the gradients of a batch are computed in N parts, one after the other, and "
     "exchanged once; N times less memory, and the same results to rounding (default 1)",
     3},
    {"reproducible", KEY_REPRODUCIBLE, "L", 0,
     "the same bits on any number of ranks up to L, a power of two that divides the batch: it is "
     "always computed in L parts, whose gradients are added in one order (costs time and memory)",
     3},
    {"check-replicas", KEY_CHECK_REPLICAS, "N", 0,
     "every N steps compare the ranks' parameters and optimizer states by hashes", 3},
    {"lr", KEY_LR, "X", 0, "highest learning rate (default 0.003; bytes: 0.004)", 3},
    {"warmup", KEY_WARMUP, "STEPS", 0,
     "steps over which the learning rate rises, before it falls along a cosine (default: a tenth "
     "of "
     "the run)",
     3},
    {"weight-decay", KEY_WEIGHT_DECAY, "X", 0,
     "AdamW's, on weights but not on biases and norms (default 0.01; bytes: 1)", 3},
    {"clip", KEY_CLIP, "X", 0, "largest norm of the gradients, 0 for none (default 0)", 3},
    {"loss-scale", KEY_LOSS_SCALE, "X", 0,
     "first loss scale of f16, a power of two (default 65536); halved when gradients overflow", 3},
    {"seed", KEY_SEED, "N", 0, "of the initial weights and the order of the samples (default 1)",
     3},

    {"on-nonfinite", KEY_NONFINITE, "WHAT", 0,
     "when a loss or gradient is NaN or infinite: stop (default), or skip the update and go on", 3},

    {NULL, 0, NULL, 0, "Checkpoints:", 4},
    {"checkpoint", KEY_CHECKPOINT, "FILE", 0,
     "save the run in FILE: at the end, and when a signal stops it", 4},
    {"save-every", KEY_SAVE_EVERY, "STEPS", 0, "save as often as that too", 4},
    {"keep", KEY_KEEP, "K", 0, "keep the K files before FILE as FILE.1 to FILE.K (default 0)", 4},
    {"resume", KEY_RESUME, "auto", OPTION_ARG_OPTIONAL,
     "go on from FILE, which must be there; --resume=auto: start afresh if it is not", 4},
    {"evaluate", KEY_EVALUATE, NULL, 0, "with --resume: only evaluate what is in FILE", 4},

    {NULL, 0, NULL, 0, "Where to train:", 5},
    {"backend", KEY_BACKEND, "NAME", 0, "auto (default: cuda where there is a GPU), cuda or host",
     5},
    {"dtype", KEY_DTYPE, "TYPE", 0, "f32 (default), f64, bf16 or f16", 5},
    {"transport", KEY_TRANSPORT, "NAME", 0,
     "how ranks exchange gradients: auto (default), self (one rank), mpi, or nccl (one GPU a rank)",
     5},
    {"threads", KEY_THREADS, "N", 0,
     "host threads a rank (default: OMP_NUM_THREADS, otherwise its share of the cores); changes no "
     "result",
     5},
    {"timeout", KEY_TIMEOUT, "SECONDS", 0,
     "longest wait for another rank before the run fails (default 60); MPI may take 120 to start",
     5},

    {NULL, 0, NULL, 0, "What to see:", 6},
    {"log-every", KEY_LOG_EVERY, "STEPS", 0,
     "steps between lines (default: ten lines an epoch or a few more)", 6},
    {"losses", KEY_LOSSES, "FILE", 0,
     "also write 'epoch step loss' of each line to FILE, with all digits", 6},
    {"log-json", KEY_LOG_JSON, "FILE", 0,
     "also write each line to FILE as a JSON object; a resumed run appends", 6},
    {"plot", KEY_PLOT, "FILE.svg", 0, "draw loss and accuracy at the end, by gnuplot", 6},
    {"sample", KEY_SAMPLE, "N", 0, "N characters that the model continues with, at the end (bytes)",
     6},
    {"progress", KEY_PROGRESS, "KIND", 0,
     "plain (default): lines; bar: a bar under them, for a terminal; none: epochs only", 6},
    {"dry-run", KEY_DRY_RUN, NULL, 0, "set everything up, print the configuration and stop", 6},
    {"version", 'V', NULL, 0, "what this was built with and what it finds now", 6},
    {"help", 'h', NULL, 0, "this text", 6},
    {"usage", KEY_USAGE, NULL, 0, "the options in short", 6},
    {0},
};

static const char doc[] =
    "Trains a model with Tutti's layers, on one process or on several that share the work.\v"
    "Examples:\n"
    "  tutti-train                              one process, default options\n"
    "  launch/tutti-run -np 2 tutti-train       two ranks on this machine\n"
    "  tutti-train --dtype bf16 --width 512 --epochs 3\n"
    "  tutti-train --task bytes --sample 300 *.txt\n"
    "  tutti-train --checkpoint run.h5 --save-every 100 --keep 2 --resume=auto\n"
    "  tutti-train --hold-out 10000 --lr 0.004  try a learning rate without the test images\n"
    "\n"
    "Exit codes: 0 good, 1 the replicas differ, 2 the run failed, 64 wrong command line, 75 "
    "stopped by SIGTERM, SIGINT or "
    "SIGUSR1.";

static const char *option_name(int key)
{
    for (const struct argp_option *option = argp_options;; option++)
        if (option->key == key && option->name) return option->name;
}

/* Where an option's value goes and what it may be. */
typedef struct spec {
    int key;
    enum { FLAG, TEXT, INT, REAL, POSITIVE, WORD } kind;
    size_t at; /* in train_options */
    double least, most;
    const char *const *names;
} spec;

#define AT(field) offsetof(train_options, field)
static const double many = 1e9;

static const spec specs[] = {
    {'h', FLAG, AT(help), 0, 0, NULL},
    {'V', FLAG, AT(version), 0, 0, NULL},
    {KEY_USAGE, FLAG, AT(usage), 0, 0, NULL},
    {KEY_DRY_RUN, FLAG, AT(dry_run), 0, 0, NULL},
    {KEY_DATA, TEXT, AT(data), 0, 0, NULL},
    {KEY_LOSSES, TEXT, AT(losses), 0, 0, NULL},
    {KEY_HOLD_OUT, INT, AT(hold_out), 0, many, NULL},
    {KEY_WIDTH, INT, AT(width), 1, 1 << 20, NULL},
    {KEY_DEPTH, INT, AT(depth), 1, 1000, NULL},
    {KEY_ACTIVATION, WORD, AT(activation), 0, 0, activation_names},
    {KEY_EMBEDDING, INT, AT(embedding), 1, 1 << 20, NULL},
    {KEY_CONTEXT, INT, AT(context), 1, 1 << 20, NULL},
    {KEY_EPOCHS, INT, AT(epochs), 1, many, NULL},
    {KEY_BATCH, INT, AT(batch), 1, many, NULL},
    {KEY_ACCUMULATE, INT, AT(accumulate), 1, many, NULL},
    {KEY_REPRODUCIBLE, INT, AT(leaves), 1, TUTTI_LEAVES_MAX, NULL},
    {KEY_CHECK_REPLICAS, INT, AT(check_replicas), 1, many, NULL},
    {KEY_LR, POSITIVE, AT(lr), 0, 1000, NULL},
    {KEY_WARMUP, INT, AT(warmup), 0, many, NULL},
    {KEY_WEIGHT_DECAY, REAL, AT(weight_decay), 0, 1000, NULL},
    {KEY_CLIP, REAL, AT(clip), 0, 1e30, NULL},
    {KEY_NONFINITE, WORD, AT(nonfinite), 0, 0, nonfinite_names},
    {KEY_CHECKPOINT, TEXT, AT(checkpoint), 0, 0, NULL},
    {KEY_SAVE_EVERY, INT, AT(save_every), 1, many, NULL},
    {KEY_KEEP, INT, AT(keep), 0, 1000, NULL},
    {KEY_EVALUATE, FLAG, AT(evaluate), 0, 0, NULL},
    {KEY_LOG_JSON, TEXT, AT(log_json), 0, 0, NULL},
    {KEY_PLOT, TEXT, AT(plot), 0, 0, NULL},
    {KEY_SAMPLE, INT, AT(sample), 1, many, NULL},
    {KEY_BACKEND, WORD, AT(backend), 0, 0, backend_names},
    {KEY_TRANSPORT, WORD, AT(transport), 0, 0, transport_names},
    {KEY_THREADS, INT, AT(threads), 1, 4096, NULL},
    {KEY_TIMEOUT, POSITIVE, AT(timeout), 0, 1e6, NULL},
    {KEY_LOG_EVERY, INT, AT(log_every), 1, many, NULL},
    {KEY_PROGRESS, WORD, AT(progress), 0, 0, progress_names},
};

static error_t parse_spec(const spec *s, char *text, struct argp_state *state)
{
    void *at = (char *)state->input + s->at;
    const char *name = option_name(s->key);
    switch (s->kind) {
    case FLAG:
        *(bool *)at = true;
        return 0;
    case TEXT:
        if (!text[0]) return app_usage_error(state, "--%s is empty, want a name", name);
        *(const char **)at = text;
        return 0;
    case INT:
        return parse_int(state, name, text, (int64_t)s->least, (int64_t)s->most, at);
    case REAL:
    case POSITIVE:
        return parse_real(state, name, text, s->kind == POSITIVE, s->most, at);
    case WORD:
        break;
    }
    int choice;
    const error_t error = parse_word(state, name, text, s->names, &choice);
    if (!error) memcpy(at, &choice, sizeof choice); /* an enum: as wide as an int */
    return error;
}

static error_t parse_task(struct argp_state *state, const char *text, const task_class **task)
{
    const char *names[8] = {NULL};
    int choice;
    for (int i = 0; task_classes[i]; i++) names[i] = task_classes[i]->name;
    const error_t error = parse_word(state, "task", text, names, &choice);
    if (!error) *task = task_classes[choice];
    return error;
}

/* What each option allows, but not together. */
static error_t check_all(struct argp_state *state, const train_options *o)
{
    if (o->file_count > 0 && !o->task->takes_files)
        return app_usage_error(state, "'%s' is not an option, and --task %s reads no files",
                               o->files[0], o->task->name);
    if (o->data && o->task->takes_files)
        return app_usage_error(state, "--data: --task %s reads the FILEs that are named after it",
                               o->task->name);
    const char *foreign = o->task->takes_files ? NULL
                          : o->context         ? "context"
                          : o->embedding       ? "embedding"
                                               : NULL;
    if (foreign) return app_usage_error(state, "--%s: --task %s has none", foreign, o->task->name);
    if (o->batch % o->accumulate)
        return app_usage_error(state, "--accumulate is %lld, want a divisor of --batch, %lld",
                               (long long)o->accumulate, (long long)o->batch);
    if (o->leaves & (o->leaves - 1))
        return app_usage_error(state, "--reproducible is %lld, want a power of two",
                               (long long)o->leaves);
    if (o->leaves && o->batch % o->leaves)
        return app_usage_error(state, "--batch is %lld, want a multiple of --reproducible, %lld",
                               (long long)o->batch, (long long)o->leaves);
    if (o->leaves && o->accumulate > 1)
        return app_usage_error(state,
                               "--accumulate and --reproducible do not go together: the parts of a "
                               "reproducible batch are micro-steps already");
    const char *lonely = o->resume       ? "resume"
                         : o->save_every ? "save-every"
                         : o->keep       ? "keep"
                                         : NULL;
    if (lonely && !o->checkpoint)
        return app_usage_error(state, "--%s wants --checkpoint FILE", lonely);
    if (o->evaluate && !o->resume)
        return app_usage_error(state, "--evaluate wants --resume and --checkpoint FILE");
    const size_t plot_length = o->plot ? strlen(o->plot) : 0;
    if (o->plot && (plot_length < 5 || strcmp(o->plot + plot_length - 4, ".svg") != 0))
        return app_usage_error(state, "--plot is '%s', want a name that ends in .svg", o->plot);
    if (o->loss_scale > 0 && o->dtype != TUTTI_F16)
        return app_usage_error(state, "--loss-scale: --dtype %s has none",
                               tutti_dtype_name(o->dtype));
    if (o->sample && !o->task->sample)
        return app_usage_error(state, "--sample: --task %s has nothing to write", o->task->name);
    return 0;
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    train_options *o = state->input;
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
        if (specs[i].key == key) return parse_spec(&specs[i], text, state);
    int choice;
    switch (key) {
    case KEY_TASK:
        return parse_task(state, text, &o->task);
    case KEY_NORM:
        if (parse_word(state, "norm", text, o->task->norms, &choice)) return EINVAL;
        o->norm = o->task->norms[choice];
        return 0;
    case KEY_LOSS_SCALE:
        return parse_power_of_two(state, "loss-scale", text, 0x1p100, &o->loss_scale);
    case KEY_SEED:
        return parse_u64(state, "seed", text, &o->seed);
    case KEY_DTYPE:
        if (parse_word(state, "dtype", text, dtype_names, &choice)) return EINVAL;
        tutti_dtype_parse(text, &o->dtype);
        return 0;
    case KEY_RESUME:
        if (text && strcmp(text, "auto") != 0)
            return app_usage_error(state, "--resume is '%s', want auto or no value", text);
        o->resume = text ? TRAIN_RESUME_AUTO : TRAIN_RESUME_WANTED;
        return 0;
    case ARGP_KEY_ARGS:
        o->files = (const char *const *)(state->argv + state->next);
        o->file_count = state->argc - state->next;
        return 0;
    case ARGP_KEY_END:
        return check_all(state, o);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = argp_options, .parser = parse_option, .args_doc = "[FILE …]", .doc = doc};

/* What all tasks share, then what the task has of its own. */
static void set_defaults(train_options *options, const task_class *task)
{
    *options = (train_options){
        .task = task,
        .norm = task->norms[0],
        .accumulate = 1,
        .weight_decay = 0.01,
        .warmup = -1,
        .seed = 1,
        .dtype = TUTTI_F32,
        .timeout = 60.0,
    };
    task->defaults(options);
}

int train_options_parse(train_options *options, int argc, char **argv, bool quiet)
{
    const unsigned flags = ARGP_NO_EXIT | ARGP_NO_HELP;
    /* a first time only for --task, which the others' defaults depend on */
    set_defaults(options, task_classes[0]);
    argp_parse(&parser, argc, argv, flags | ARGP_NO_ERRS, NULL, options);
    set_defaults(options, options->task);
    app_fail(APP_USAGE, "the command line is wrong");
    if (argp_parse(&parser, argc, argv, flags | (quiet ? ARGP_NO_ERRS : 0u), NULL, options))
        return APP_USAGE;
    return APP_OK;
}

void train_options_help(bool usage)
{
    const unsigned flags = usage ? ARGP_HELP_USAGE : ARGP_HELP_STD_HELP;
    argp_help(&parser, stdout, flags & ~(unsigned)(ARGP_HELP_EXIT_OK | ARGP_HELP_EXIT_ERR),
              "tutti-train");
}
