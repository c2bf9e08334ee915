/* The command line of tutti-validate, by argp. */
#include "options.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/usage.h"

enum {
    KEY_FILTER = 0x100,
    KEY_LIST,
    KEY_LAYERS,
    KEY_QUIET,
    KEY_CHECKPOINT,
    KEY_ROWS,
    KEY_SEED,
    KEY_BACKEND,
    KEY_TRANSPORT,
    KEY_TIMEOUT,
    KEY_JSON,
    KEY_JUNIT,
    KEY_EMIT,
    KEY_RECORD
};

static const double DEFAULT_TIMEOUT = 60;

static const struct argp_option arguments[] = {
    {NULL, 0, NULL, 0, "What to check:", 1},
    {"filter", KEY_FILTER, "TEXT", 0, "only cases whose name contains TEXT", 1},
    {"list", KEY_LIST, NULL, 0, "list the cases, and check nothing", 1},
    {"layers", KEY_LAYERS, NULL, 0,
     "list the kinds of layer with their options, tensors and parameters, and check nothing", 1},
    {"checkpoint", KEY_CHECKPOINT, "FILE", 0,
     "make a case of each layer of a checkpoint, with its trained weights and random inputs; the "
     "reference is computed in f64",
     1},
    {"rows", KEY_ROWS, "N", 0, "rows of these inputs (default 64)", 1},
    {"seed", KEY_SEED, "N", 0, "of these inputs (default 1)", 1},

    {NULL, 0, NULL, 0, "Where:", 2},
    {"backend", KEY_BACKEND, "NAME", 0, "auto (default: cuda where there is a GPU), cuda or host",
     2},
    {"transport", KEY_TRANSPORT, "NAME", 0,
     "how ranks exchange gradients: auto (default), self (one rank), mpi, or nccl (one GPU a rank)",
     2},
    {"timeout", KEY_TIMEOUT, "SECONDS", 0,
     "how long any wait may last (default 60); MPI may take 120 to start", 2},

    {NULL, 0, NULL, 0, "What to write:", 3},
    {"json", KEY_JSON, "FILE", 0, "the table as JSON", 3},
    {"junit", KEY_JUNIT, "FILE", 0, "a report in JUnit's form, a test a case", 3},
    {"emit", KEY_EMIT, "FILE", 0,
     "an HDF5 file of what failed: actual, expected, difference of each tensor", 3},
    {"record", KEY_RECORD, "FILE", 0,
     "a case file with the results of this run as what is expected, if all of them held", 3},
    {"quiet", KEY_QUIET, NULL, 0, "no lines for tensors that hold", 3},

    {"help", 'h', NULL, 0, "show this and leave", -1},
    {"version", 'V', NULL, 0, "show the version and leave", -1},
    {0},
};

static const char description[] =
    "Checks the layers against reference cases, on one or several ranks.\v"
    "CASES.h5 is a case file (docs/case-files.md says what is in one).  Under tutti-run -np N each "
    "rank computes its own rows of every case, forward and backward, and the gradients of weights "
    "are "
    "exchanged. What came out is compared with the file's reference and with the same computed by "
    "one "
    "rank alone.\n\n"
    "Exit code: 0 if every tensor of every case held on every rank, 1 if one did not, 2 if "
    "something "
    "kept the program from checking, 64 for a wrong command line, 75 stopped by "
    "SIGTERM, SIGINT or SIGUSR1.";

/* argp goes on after an error that it may not leave for. */
#define WRONG(state, ...)                                   \
    do {                                                    \
        app_usage_error(state, __VA_ARGS__);                \
        ((validate_options *)(state)->input)->wrong = true; \
    } while (0)

static int word_of(const char *const *words, const char *word, const char *what,
                   struct argp_state *state)
{
    for (int i = 0; words[i]; i++)
        if (strcmp(words[i], word) == 0) return i;
    WRONG(state, "--%s is %s, want one of --help's", what, word);
    return 0;
}

static int64_t number_of(const char *text, int64_t least, int64_t most, const char *what,
                         struct argp_state *state)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || value < least || value > most)
        WRONG(state, "--%s is %s, want %lld to %lld", what, text, (long long)least,
              (long long)most);
    return value;
}

static double seconds_of(const char *text, struct argp_state *state)
{
    char *end;
    double value = strtod(text, &end);
    if (end != text && !*end && value > 0 && value <= 1e6) return value;
    WRONG(state, "--timeout is %s, want more than 0 and at most 1000000", text);
    return DEFAULT_TIMEOUT; /* for the ranks to agree on that */
}

static const char *file_of(const char *text, const char *what, struct argp_state *state)
{
    if (!*text) WRONG(state, "--%s is empty, want a file's name", what);
    return text;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    static const char *const backends[] = {"auto", "host", "cuda", NULL};
    static const char *const transports[] = {"auto", "self", "mpi", "nccl", NULL};
    validate_options *o = state->input;
    switch (key) {
    case KEY_FILTER:
        o->filter = arg;
        break;
    case KEY_LIST:
        o->list = true;
        break;
    case KEY_LAYERS:
        o->layers = true;
        break;
    case KEY_QUIET:
        o->quiet = true;
        break;
    case KEY_CHECKPOINT:
        o->checkpoint = file_of(arg, "checkpoint", state);
        break;
    case KEY_ROWS:
        o->rows = number_of(arg, 0, 1 << 24, "rows", state);
        o->of_checkpoint = "rows";
        break;
    case KEY_SEED:
        o->seed = number_of(arg, 0, INT64_MAX, "seed", state);
        o->of_checkpoint = "seed";
        break;
    case KEY_BACKEND:
        o->backend = (tutti_backend)word_of(backends, arg, "backend", state);
        break;
    case KEY_TRANSPORT:
        o->transport = (tutti_transport)word_of(transports, arg, "transport", state);
        break;
    case KEY_TIMEOUT:
        o->timeout = seconds_of(arg, state);
        break;
    case KEY_JSON:
        o->json = file_of(arg, "json", state);
        break;
    case KEY_JUNIT:
        o->junit = file_of(arg, "junit", state);
        break;
    case KEY_EMIT:
        o->emit = file_of(arg, "emit", state);
        break;
    case KEY_RECORD:
        o->record = file_of(arg, "record", state);
        break;
    case 'h':
        o->help = true;
        break;
    case 'V':
        o->version = true;
        break;
    case ARGP_KEY_ARG:
        o->files[o->file_count++] = arg;
        break;
    case ARGP_KEY_END:
        if (o->file_count == 0 && !o->checkpoint && !o->layers && !o->help && !o->version)
            WRONG(state, "there is no file of cases");
        if (o->layers && (o->file_count > 0 || o->checkpoint))
            WRONG(state, "--layers lists what the library has, and takes no file");
        if (o->of_checkpoint && !o->checkpoint)
            WRONG(state, "--%s wants --checkpoint FILE", o->of_checkpoint);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return o->wrong ? EINVAL : 0;
}

static const struct argp argp = {
    .options = arguments, .parser = parse, .args_doc = "[CASES.h5 …]", .doc = description};

int validate_options_parse(validate_options *options, int argc, char **argv, bool silent)
{
    *options = (validate_options){.timeout = DEFAULT_TIMEOUT, .rows = 64, .seed = 1};
    options->files = calloc((size_t)argc + 1, sizeof *options->files);
    if (!options->files) return APP_FAILED;
    argp_err_exit_status = APP_USAGE;
    unsigned flags = ARGP_NO_EXIT | ARGP_NO_HELP | (silent ? ARGP_NO_ERRS : 0);
    return argp_parse(&argp, argc, argv, flags, NULL, options) ? APP_USAGE : APP_OK;
}

void validate_options_help(void)
{
    argp_help(&argp, stdout,
              ARGP_HELP_STD_HELP & ~(unsigned)(ARGP_HELP_EXIT_OK | ARGP_HELP_EXIT_ERR),
              "tutti-validate");
}
