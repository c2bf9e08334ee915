/* The command line of tutti-train, by argp. */
#include "options.h"

#include <argp.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"

static const char *const norm_names[] = {"layernorm", "rmsnorm", NULL};
static const char *const progress_names[] = {"plain", "bar", "none", NULL};
static const char *const backend_names[] = {"auto", "host", "cuda", NULL};
static const char *const transport_names[] = {"auto", "self", "mpi", "nccl", NULL};
static const char *const activation_names[] = {"none",     "relu",         "leaky_relu", "gelu",
                                               "gelu_erf", "squared_relu", "silu",       NULL};
static const char *const dtype_names[] = {"f32", "f64", "f16", "bf16", NULL};
static const char *const task_names[] = {"fashion", NULL};

const char *train_norm_name(train_norm norm)
{
    return norm_names[norm];
}
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
    KEY_EPOCHS,
    KEY_BATCH,
    KEY_LR,
    KEY_WARMUP,
    KEY_WEIGHT_DECAY,
    KEY_CLIP,
    KEY_LOSS_SCALE,
    KEY_SEED,
    KEY_BACKEND,
    KEY_DTYPE,
    KEY_TRANSPORT,
    KEY_THREADS,
    KEY_TIMEOUT,
    KEY_LOG_EVERY,
    KEY_LOSSES,
    KEY_PROGRESS,
    KEY_DRY_RUN,
    KEY_USAGE
};

static const struct argp_option argp_options[] = {
    {NULL, 0, NULL, 0, "What to train on:", 1},
    {"task", KEY_TASK, "NAME", 0,
     "fashion: classify the 28 x 28 images of Fashion-MNIST into ten kinds of clothing (default)",
     1},
    {"data", KEY_DATA, "DIR", 0,
     "folder of the four IDX files, gzip or not (default " TRAIN_DATA_DIR ")", 1},
    {"hold-out", KEY_HOLD_OUT, "N", 0,
     "keep the last N training images out and report the accuracy on them instead of the test "
     "images: for choosing options without looking at the test",
     1},

    {NULL, 0, NULL, 0,
     "The model: DEPTH blocks of norm, linear layer and activation, then ten outputs:", 2},
    {"width", KEY_WIDTH, "N", 0, "outputs of each block (default 256)", 2},
    {"depth", KEY_DEPTH, "N", 0, "number of blocks (default 2)", 2},
    {"norm", KEY_NORM, "KIND", 0, "layernorm (default) or rmsnorm", 2},
    {"activation", KEY_ACTIVATION, "NAME", 0,
     "none, relu (default), leaky_relu, gelu, gelu_erf, squared_relu or silu", 2},

    {NULL, 0, NULL, 0, "How to train:", 3},
    {"epochs", KEY_EPOCHS, "N", 0, "passes over the training images (default 6)", 3},
    {"batch", KEY_BATCH, "N", 0,
     "images a step, over all ranks together: results do not depend on the number of ranks "
     "(default 256)",
     3},
    {"lr", KEY_LR, "X", 0, "highest learning rate (default 0.003)", 3},
    {"warmup", KEY_WARMUP, "STEPS", 0,
     "steps over which the learning rate rises, before it falls along a cosine (default: a tenth "
     "of "
     "the run)",
     3},
    {"weight-decay", KEY_WEIGHT_DECAY, "X", 0,
     "AdamW's, on weights but not on biases and norms (default 0.01)", 3},
    {"clip", KEY_CLIP, "X", 0, "largest norm of the gradients, 0 for none (default 0)", 3},
    {"loss-scale", KEY_LOSS_SCALE, "X", 0,
     "first loss scale of f16, a power of two (default 65536); halved when gradients overflow", 3},
    {"seed", KEY_SEED, "N", 0, "of the initial weights and the order of the images (default 1)", 3},

    {NULL, 0, NULL, 0, "Where to train:", 4},
    {"backend", KEY_BACKEND, "NAME", 0, "auto (default: cuda where there is a GPU), cuda or host",
     4},
    {"dtype", KEY_DTYPE, "TYPE", 0, "f32 (default), f64, bf16 or f16", 4},
    {"transport", KEY_TRANSPORT, "NAME", 0,
     "how ranks exchange gradients: auto (default), self (one rank), mpi, or nccl (one GPU a rank)",
     4},
    {"threads", KEY_THREADS, "N", 0,
     "host threads a rank (default: OMP_NUM_THREADS, otherwise its share of the cores); changes no "
     "result",
     4},
    {"timeout", KEY_TIMEOUT, "SECONDS", 0,
     "longest wait for another rank before the run fails (default 60)", 4},

    {NULL, 0, NULL, 0, "What to see:", 5},
    {"log-every", KEY_LOG_EVERY, "STEPS", 0,
     "steps between lines (default: ten lines an epoch or a few more)", 5},
    {"losses", KEY_LOSSES, "FILE", 0,
     "also write 'epoch step loss' of each line to FILE, with all digits", 5},
    {"progress", KEY_PROGRESS, "KIND", 0,
     "plain (default): lines; bar: a bar under them, for a terminal; none: epochs only", 5},
    {"dry-run", KEY_DRY_RUN, NULL, 0, "set everything up, print the configuration and stop", 5},
    {"version", 'V', NULL, 0, "what this was built with and what it finds now", 5},
    {"help", 'h', NULL, 0, "this text", 5},
    {"usage", KEY_USAGE, NULL, 0, "the options in short", 5},
    {0},
};

static const char doc[] =
    "Trains a classifier with Tutti's layers, on one process or on several that share the work.\v"
    "Examples:\n"
    "  tutti-train                              one process, default options\n"
    "  launch/tutti-run -np 2 tutti-train       two ranks on this machine\n"
    "  tutti-train --dtype bf16 --width 512 --epochs 3\n"
    "  tutti-train --hold-out 10000 --lr 0.004  try a learning rate without the test images\n"
    "\n"
    "Exit codes: 0 good, 2 the run failed, 64 wrong command line, 75 stopped by SIGTERM, SIGINT or "
    "SIGUSR1.";

/* Notes what is wrong, for argp to print (unless it was told to be quiet). */
static error_t refuse(struct argp_state *state, const char *option, const char *given,
                      const char *wanted)
{
    app_fail(APP_USAGE, "--%s is '%s', want %s", option, given, wanted);
    argp_error(state, "%s", app_failure());
    return EINVAL;
}

static const char *option_name(int key)
{
    for (const struct argp_option *option = argp_options;; option++)
        if (option->key == key && option->name) return option->name;
}

static error_t parse_int(struct argp_state *state, int key, const char *text, int64_t least,
                         int64_t most, int64_t *value)
{
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && errno == 0 && number >= least && number <= most) {
        *value = number;
        return 0;
    }
    char wanted[96];
    snprintf(wanted, sizeof wanted, "a whole number from %lld to %lld", (long long)least,
             (long long)most);
    return refuse(state, option_name(key), text, wanted);
}

/* A finite number, at least 0, and above it if `positive`. */
static error_t parse_real(struct argp_state *state, int key, const char *text, bool positive,
                          double most, double *value)
{
    char *end;
    errno = 0;
    const double number = strtod(text, &end);
    if (end != text && *end == '\0' && isfinite(number) && number <= most &&
        (positive ? number > 0.0 : number >= 0.0)) {
        *value = number;
        return 0;
    }
    char wanted[96];
    snprintf(wanted, sizeof wanted, "a number %s 0 and at most %g",
             positive ? "above" : "not below", most);
    return refuse(state, option_name(key), text, wanted);
}

/* The place of a word in a list. */
static error_t parse_choice(struct argp_state *state, int key, const char *text,
                            const char *const *names, int *value)
{
    char wanted[160] = "";
    size_t used = 0;
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], text) == 0) {
            *value = i;
            return 0;
        }
        used += (size_t)snprintf(wanted + used, sizeof wanted - used, "%s%s",
                                 i == 0         ? ""
                                 : names[i + 1] ? ", "
                                                : " or ",
                                 names[i]);
    }
    return refuse(state, option_name(key), text, wanted);
}

static error_t parse_loss_scale(struct argp_state *state, const char *text, double *value)
{
    int exponent;
    double scale;
    if (parse_real(state, KEY_LOSS_SCALE, text, true, 0x1p100, &scale)) return EINVAL;
    if (frexp(scale, &exponent) != 0.5) return refuse(state, "loss-scale", text, "a power of two");
    *value = scale;
    return 0;
}

static error_t parse_seed(struct argp_state *state, const char *text, uint64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    if (end == text || *end || errno || text[0] == '-')
        return refuse(state, "seed", text, "a whole number from 0 to 2^64 - 1");
    return 0;
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    train_options *o = state->input;
    const int64_t many = INT64_C(1000000000);
    int choice = 0;
    int64_t number = 0;
    error_t error = 0;
    switch (key) {
    case 'h':
        o->help = true;
        break;
    case 'V':
        o->version = true;
        break;
    case KEY_DRY_RUN:
        o->dry_run = true;
        break;
    case KEY_TASK:
        error = parse_choice(state, key, text, task_names, &choice);
        break;
    case KEY_DATA:
        o->data = text;
        break;
    case KEY_LOSSES:
        o->losses = text;
        break;
    case KEY_HOLD_OUT:
        error = parse_int(state, key, text, 0, many, &o->hold_out);
        break;
    case KEY_WIDTH:
        error = parse_int(state, key, text, 1, 1 << 20, &o->width);
        break;
    case KEY_DEPTH:
        error = parse_int(state, key, text, 1, 1000, &o->depth);
        break;
    case KEY_NORM:
        error = parse_choice(state, key, text, norm_names, &choice);
        o->norm = (train_norm)choice;
        break;
    case KEY_ACTIVATION:
        error = parse_choice(state, key, text, activation_names, &choice);
        o->activation = (tutti_activation)choice;
        break;
    case KEY_EPOCHS:
        error = parse_int(state, key, text, 1, many, &o->epochs);
        break;
    case KEY_BATCH:
        error = parse_int(state, key, text, 1, many, &o->batch);
        break;
    case KEY_LR:
        error = parse_real(state, key, text, true, 1000.0, &o->lr);
        break;
    case KEY_WARMUP:
        error = parse_int(state, key, text, 0, many, &o->warmup);
        break;
    case KEY_WEIGHT_DECAY:
        error = parse_real(state, key, text, false, 1000.0, &o->weight_decay);
        break;
    case KEY_CLIP:
        error = parse_real(state, key, text, false, 1e30, &o->clip);
        break;
    case KEY_LOSS_SCALE:
        error = parse_loss_scale(state, text, &o->loss_scale);
        break;
    case KEY_SEED:
        error = parse_seed(state, text, &o->seed);
        break;
    case KEY_BACKEND:
        error = parse_choice(state, key, text, backend_names, &choice);
        o->backend = (tutti_backend)choice;
        break;
    case KEY_DTYPE:
        error = parse_choice(state, key, text, dtype_names, &choice);
        if (!error) tutti_dtype_parse(text, &o->dtype);
        break;
    case KEY_TRANSPORT:
        error = parse_choice(state, key, text, transport_names, &choice);
        o->transport = (tutti_transport)choice;
        break;
    case KEY_THREADS:
        error = parse_int(state, key, text, 1, 4096, &number);
        o->threads = (int)number;
        break;
    case KEY_TIMEOUT:
        error = parse_real(state, key, text, true, 1e6, &o->timeout);
        break;
    case KEY_LOG_EVERY:
        error = parse_int(state, key, text, 1, many, &o->log_every);
        break;
    case KEY_PROGRESS:
        error = parse_choice(state, key, text, progress_names, &choice);
        o->progress = (train_progress)choice;
        break;
    case ARGP_KEY_ARG:
        app_fail(APP_USAGE, "'%s' is not an option", text);
        argp_error(state, "%s", app_failure());
        error = EINVAL;
        break;
    default:
        error = ARGP_ERR_UNKNOWN;
    }
    return error;
}

static const struct argp parser = {.options = argp_options, .parser = parse_option, .doc = doc};

int train_options_parse(train_options *options, int argc, char **argv, bool quiet)
{
    /* The defaults of the model and the training were chosen with --hold-out 10000, by the
     * accuracy on the training images held out; the test images had no part in it. */
    *options = (train_options){
        .data = TRAIN_DATA_DIR,
        .width = 256,
        .depth = 2,
        .norm = TRAIN_NORM_LAYERNORM,
        .activation = TUTTI_ACT_RELU,
        .epochs = 6,
        .batch = 256,
        .lr = 0.003,
        .weight_decay = 0.01,
        .warmup = -1,
        .loss_scale = 65536.0,
        .seed = 1,
        .dtype = TUTTI_F32,
        .timeout = 60.0,
    };
    app_fail(APP_USAGE, "the command line is wrong");
    const unsigned flags = ARGP_NO_EXIT | ARGP_NO_HELP | (quiet ? ARGP_NO_ERRS : 0u);
    if (argp_parse(&parser, argc, argv, flags, NULL, options)) return APP_USAGE;
    return APP_OK;
}

void train_options_help(bool usage)
{
    const unsigned flags = usage ? ARGP_HELP_USAGE : ARGP_HELP_STD_HELP;
    argp_help(&parser, stdout, flags & ~(unsigned)(ARGP_HELP_EXIT_OK | ARGP_HELP_EXIT_ERR),
              "tutti-train");
}
