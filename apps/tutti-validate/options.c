/* The command line of tutti-validate. */
#include "options.h"

#define AT(field) .at = offsetof(validate_options, field)
#define TEXT(field) .kind = APP_TEXT, AT(field)
#define INT(field, high) .kind = APP_INT, AT(field), .most = high
enum { TO_CHECK = 1, WHERE, TO_WRITE };

static const app_option table[] = {
    {.group = TO_CHECK, .help = "What to check:"},
    {"filter", "TEXT", "only cases whose name contains TEXT", .group = TO_CHECK, TEXT(filter)},
    {"list", .help = "list the cases without checking them", .group = TO_CHECK, AT(list)},
    {"layers", .help = "list the kinds of layer with their options, tensors and parameters",
     .group = TO_CHECK, AT(layers)},
    {"checkpoint", "FILE",
     "make a case of each layer of a checkpoint, with its trained weights and random inputs; the "
     "reference is computed here, in long double",
     .group = TO_CHECK, TEXT(checkpoint)},
    {"rows", "N", "rows of these inputs", "64", .group = TO_CHECK, INT(rows, 1 << 24)},
    {"seed", "N", "seed of these inputs", "1", .group = TO_CHECK, .kind = APP_UNSIGNED, AT(seed)},
    {.group = WHERE, .help = "Where:"},
    {.group = TO_WRITE, .help = "What to write:"},
    {"json", "FILE", "the table as JSON", .group = TO_WRITE, TEXT(json)},
    {"junit", "FILE", "a report in JUnit's format, one test a case", .group = TO_WRITE,
     TEXT(junit)},
    {"emit", "FILE", "an HDF5 file of what failed: actual, expected, difference of each tensor",
     .group = TO_WRITE, TEXT(emit)},
    {"record", "FILE",
     "a case file with the results of this run as expected results, if all of them held",
     .group = TO_WRITE, TEXT(record)},
    {"quiet", .help = "no lines for tensors that hold", .group = TO_WRITE, AT(quiet)},
};

static const char doc[] =
    "Checks the layers against reference cases, on one or several ranks.\v"
    "CASES.h5 is a case file (docs/case-files.md defines the format).  Under tutti-run -np N each "
    "rank computes its own rows of every case, forward and backward, and the gradients of weights "
    "are exchanged. The results are compared with the file's reference and with those of one rank "
    "alone.\n\n"
    "Exit code: 0 if every tensor of every case held on every rank, 1 if one did not, 2 if the "
    "check could not be completed, 64 for a wrong command line, 75 stopped by SIGTERM, SIGINT or "
    "SIGUSR1.";

static error_t check(struct argp_state *state, void *options)
{
    const validate_options *o = options;
    const int files = o->common.arg_count;
    if (files == 0 && !o->checkpoint && !o->layers && !o->common.help && !o->common.usage &&
        !o->common.version)
        return app_usage_error(state, "want a case file, --checkpoint FILE or --layers");
    if (o->layers && (files > 0 || o->checkpoint))
        return app_usage_error(state, "--layers lists the library's layers and takes no file");
    const char *dependent = app_option_given(&validate_command, o, "rows")   ? "rows"
                            : app_option_given(&validate_command, o, "seed") ? "seed"
                                                                             : NULL;
    if (dependent && !o->checkpoint)
        return app_usage_error(state, "--%s requires --checkpoint FILE", dependent);
    return 0;
}

const app_command validate_command = {.program = "tutti-validate",
                                      .args_doc = "[CASES.h5 …]",
                                      .doc = doc,
                                      .options = table,
                                      .count = sizeof table / sizeof table[0],
                                      .ranks = WHERE,
                                      .size = sizeof(validate_options),
                                      .check = check,
                                      .run = validate_main};
