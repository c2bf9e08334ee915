/* Command lines, parsed by argp. */
#include "common/options.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"

const char *const app_backends[] = {"auto", "host", "cuda", NULL};
const char *const app_transports[] = {"auto", "self", "mpi", "nccl", NULL};

#define AT(field) .at = offsetof(app_common, field)

static const app_option shared[] = {
    {"help", .group = -1, .letter = 'h', .help = "this text", AT(help)},
    {"usage", .group = -1, .help = "the options in short", AT(usage)},
    {"version", .group = -1, .letter = 'V',
     .help = "what this was built with and what it finds now", AT(version)},
    /* only for programs on several ranks */
    {"backend", "NAME", "auto (cuda where there is a GPU), host or cuda", "auto", .kind = APP_WORD,
     AT(backend), .words = app_backends},
    {"transport", "NAME",
     "how ranks exchange gradients: auto, self (one rank), mpi, or nccl (one GPU a rank)", "auto",
     .kind = APP_WORD, AT(transport), .words = app_transports},
    {"timeout", "SECONDS",
     "longest wait for another rank before the run fails; MPI may take 120 to start", "60",
     .kind = APP_POSITIVE, AT(timeout), .most = 1e6},
};
enum { SHARED = sizeof shared / sizeof shared[0], ALWAYS = 3 };

static int count_all(const app_command *command)
{
    return command->count + (command->ranks ? SHARED : ALWAYS);
}

static const app_option *option_at(const app_command *command, int i)
{
    return i < command->count ? &command->options[i] : &shared[i - command->count];
}

/* Parsing and printing values */

static bool parse_int(const app_option *o, const char *text, int64_t *value, char *wanted)
{
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    snprintf(wanted, APP_WANTED_MAX, "a whole number from %lld to %lld", (long long)o->least,
             (long long)o->most);
    if (end == text || *end || errno || number < (int64_t)o->least || number > (int64_t)o->most)
        return false;
    *value = number;
    return true;
}

static bool parse_unsigned(const char *text, uint64_t *value, char *wanted)
{
    char *end;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    snprintf(wanted, APP_WANTED_MAX, "a whole number from 0 to 2^64 - 1");
    if (end == text || *end || errno || text[0] == '-') return false;
    *value = number;
    return true;
}

static bool parse_real(const app_option *o, const char *text, double *value, char *wanted)
{
    char *end;
    int exponent;
    const double number = strtod(text, &end);
    snprintf(wanted, APP_WANTED_MAX, "a number %s 0 and at most %g",
             o->kind == APP_REAL ? "not below" : "above", o->most);
    if (end == text || *end || !isfinite(number) || number > o->most || number < 0.0 ||
        (number == 0.0 && o->kind != APP_REAL))
        return false;
    snprintf(wanted, APP_WANTED_MAX, "a power of two");
    if (o->kind == APP_POWER && frexp(number, &exponent) != 0.5) return false;
    *value = number;
    return true;
}

bool app_word_find(const char *const *words, const char *text, int *place,
                   char wanted[APP_WANTED_MAX])
{
    size_t used = 0;
    for (int i = 0; words[i]; i++) {
        const char *separator = i == 0 ? "" : words[i + 1] ? ", " : " or ";
        if (used < APP_WANTED_MAX)
            used +=
                (size_t)snprintf(wanted + used, APP_WANTED_MAX - used, "%s%s", separator, words[i]);
        if (strcmp(words[i], text) == 0) {
            *place = i;
            return true;
        }
    }
    return false;
}

static bool parse_value(const app_option *o, void *options, const char *text, char *wanted)
{
    void *at = (char *)options + o->at;
    int place;
    switch (o->kind) {
    case APP_FLAG:
        *(bool *)at = true;
        return true;
    case APP_TEXT:
        snprintf(wanted, APP_WANTED_MAX, "a name");
        *(const char **)at = text;
        return text[0];
    case APP_INT:
        return parse_int(o, text, at, wanted);
    case APP_UNSIGNED:
        return parse_unsigned(text, at, wanted);
    case APP_REAL:
    case APP_POSITIVE:
    case APP_POWER:
        return parse_real(o, text, at, wanted);
    case APP_WORD:
        if (!app_word_find(o->words, text, &place, wanted)) return false;
        memcpy(at, &place, sizeof place); /* an enum: as wide as an int */
        return true;
    case APP_DTYPE:
        return app_word_find(o->words, text, &place, wanted) &&
               tutti_dtype_parse(text, at) == TUTTI_OK;
    case APP_OTHER:
        break;
    }
    return o->parse(o, options, text, wanted);
}

void app_option_print(const app_option *o, const void *value, char *text, size_t size)
{
    switch (o->kind) {
    case APP_FLAG:
        snprintf(text, size, "%s", *(const bool *)value ? "true" : "false");
        return;
    case APP_TEXT:
        snprintf(text, size, "%s", *(const char *const *)value ? *(const char *const *)value : "");
        return;
    case APP_INT:
        if (o->unset && *(const int64_t *)value == (o->initial ? atoll(o->initial) : 0))
            snprintf(text, size, "%s", o->unset);
        else
            snprintf(text, size, "%lld", (long long)*(const int64_t *)value);
        return;
    case APP_UNSIGNED:
        snprintf(text, size, "%llu", (unsigned long long)*(const uint64_t *)value);
        return;
    case APP_REAL:
    case APP_POSITIVE:
    case APP_POWER:
        snprintf(text, size, "%g", *(const double *)value);
        return;
    case APP_WORD:
        snprintf(text, size, "%s", o->words[*(const int *)value]);
        return;
    case APP_DTYPE:
        snprintf(text, size, "%s", tutti_dtype_name(*(const tutti_dtype *)value));
        return;
    case APP_OTHER:
        snprintf(text, size, "%s", o->print(value));
    }
}

/* Defaults */

void app_option_set(const app_option *o, void *options, const char *text)
{
    char ignored[APP_WANTED_MAX];
    app_option any = *o;
    any.least = -1; /* a default of -1 or 0 may mean "not set" */
    parse_value(&any, options, text, ignored);
}

void app_options_reset(const app_command *command, void *options)
{
    memset(options, 0, command->size);
    for (int i = 0; i < command->count + SHARED; i++) {
        const app_option *o = option_at(command, i);
        if (o->initial) app_option_set(o, options, o->initial);
    }
}

const app_option *app_option_find(const app_command *command, const char *name)
{
    int i = 0;
    while (!option_at(command, i)->name || strcmp(option_at(command, i)->name, name) != 0) i++;
    return option_at(command, i);
}

bool app_option_given(const app_command *command, const void *options, const char *name)
{
    const app_option *o = app_option_find(command, name);
    return ((const app_common *)options)->given >> (o - command->options) & 1;
}

/* argp */

error_t app_usage_error(struct argp_state *state, const char *format, ...)
{
    char text[APP_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    app_fail(APP_USAGE, "%s", text);
    argp_error(state, "%s", app_failure());
    return EINVAL;
}

typedef struct parsing {
    const app_command *command;
    app_common *options;
} parsing;

static const char *default_of(const app_command *command, const app_option *o)
{
    const char *own = command->initial ? command->initial(o) : NULL;
    return own ? own : o->unset ? o->unset : o->initial;
}

/* argp's key of an option: its letter, or a number above all letters. */
static int key_of(const app_command *command, int i)
{
    const app_option *o = option_at(command, i);
    return !o->name ? 0 : o->letter ? o->letter : 0x100 + i;
}

/* argp's list; its texts are valid until the next call. */
static const struct argp_option *list_options(const app_command *command)
{
    static struct argp_option all[APP_OPTIONS_MAX + 1];
    static char texts[APP_OPTIONS_MAX][512];
    const int count = count_all(command);
    for (int i = 0; i < count; i++) {
        const app_option *o = option_at(command, i);
        const char *initial = default_of(command, o);
        const int used = snprintf(texts[i], sizeof texts[i], "%s", o->help);
        if (initial)
            snprintf(texts[i] + used, sizeof texts[i] - (size_t)used, " (default%s %s)",
                     initial == o->unset ? ":" : "", initial);
        all[i] =
            (struct argp_option){.name = o->name,
                                 .key = key_of(command, i),
                                 .arg = o->takes,
                                 .flags = o->optional ? OPTION_ARG_OPTIONAL : 0,
                                 .doc = texts[i],
                                 .group = i >= command->count + ALWAYS ? command->ranks : o->group};
    }
    all[count] = (struct argp_option){0};
    return all;
}

static int find_key(const app_command *command, int key)
{
    int i = count_all(command) - 1;
    while (i >= 0 && (key == 0 || key_of(command, i) != key)) i--;
    return i;
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    const parsing *p = state->input;
    app_common *options = p->options;
    char wanted[APP_WANTED_MAX] = "";
    if (key == ARGP_KEY_ARGS) {
        options->args = (const char *const *)(state->argv + state->next);
        options->arg_count = state->argc - state->next;
        return 0;
    }
    if (key == ARGP_KEY_END) {
        if (options->arg_count > 0 && !p->command->args_doc)
            return app_usage_error(state, "'%s' is not an option", options->args[0]);
        return p->command->check ? p->command->check(state, options) : 0;
    }
    const int i = find_key(p->command, key);
    if (i < 0) return ARGP_ERR_UNKNOWN;
    const app_option *o = option_at(p->command, i);
    options->given |= UINT64_C(1) << i;
    if (parse_value(o, options, text, wanted)) return 0;
    if (o->kind == APP_TEXT)
        return app_usage_error(state, "--%s is empty, want %s", o->name, wanted);
    return app_usage_error(state, "--%s is '%s', want %s", o->name, text, wanted);
}

static struct argp parser_of(const app_command *command)
{
    return (struct argp){.options = list_options(command),
                         .parser = parse_option,
                         .args_doc = command->args_doc,
                         .doc = command->doc};
}

int app_options_parse(const app_command *command, void *options, int argc, char **argv, bool quiet)
{
    const struct argp parser = parser_of(command);
    const unsigned flags = ARGP_NO_EXIT | ARGP_NO_HELP;
    parsing p = {command, options};
    app_options_reset(command, options);
    if (command->settle) {
        argp_parse(&parser, argc, argv, flags | ARGP_NO_ERRS, NULL, &p);
        command->settle(options);
    }
    app_fail(APP_USAGE, "the command line is wrong");
    if (argp_parse(&parser, argc, argv, flags | (quiet ? ARGP_NO_ERRS : 0u), NULL, &p))
        return APP_USAGE;
    return APP_OK;
}

void app_options_help(const app_command *command, bool usage)
{
    const struct argp parser = parser_of(command);
    const unsigned flags = usage ? ARGP_HELP_USAGE : ARGP_HELP_STD_HELP;
    char name[64];
    snprintf(name, sizeof name, "%s", command->program);
    argp_help(&parser, stdout, flags & ~(unsigned)(ARGP_HELP_EXIT_OK | ARGP_HELP_EXIT_ERR), name);
}
