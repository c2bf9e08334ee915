/* Command lines.  A program has one table of its options; argp's list, --help, the defaults, the
 * checks and the printing of values all come from it. */
#ifndef TUTTI_APPS_OPTIONS_H
#define TUTTI_APPS_OPTIONS_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/tutti.h"

/* How a text becomes the value at `at`. */
typedef enum app_option_kind {
    APP_FLAG,     /* bool; takes no text */
    APP_TEXT,     /* const char *, not empty */
    APP_INT,      /* int64_t, least to most */
    APP_UNSIGNED, /* uint64_t */
    APP_REAL,     /* double, 0 to most */
    APP_POSITIVE, /* double above 0, to most */
    APP_POWER,    /* the same, a power of two */
    APP_WORD,     /* an enum: the word's index */
    APP_DTYPE,    /* tutti_dtype, one of the words */
    APP_OTHER     /* by `parse` */
} app_option_kind;

enum { APP_WANTED_MAX = 256, APP_OPTIONS_MAX = 64 };

typedef struct app_option {
    const char *name;  /* "width" of --width; NULL: help is the group's heading */
    const char *takes; /* "N" */
    const char *help;
    const char *initial; /* the default, as on the command line; NULL: 0 */
    const char *unset;   /* the default in words, if it is not a value */
    int group, letter;   /* letter: of a short option; 0: none */
    app_option_kind kind;
    size_t at; /* in the program's struct of options */
    double least, most;
    const char *const *words; /* NULL last */
    bool optional;            /* its text may be left out */
    /* APP_OTHER.  text: NULL if it was left out.  Returns false after filling in `wanted`. */
    bool (*parse)(const struct app_option *option, void *options, const char *text,
                  char wanted[APP_WANTED_MAX]);
    const char *(*print)(const void *options);
    const char *key; /* its name in the program's files */
    int mark;        /* the program's own */
} app_option;

/* The first member of each program's struct of options. */
typedef struct app_common {
    bool help, usage, version;
    tutti_backend backend;
    tutti_transport transport;
    double timeout;
    uint64_t given; /* bit i: option i of the command was given */
    const char *const *args;
    int arg_count;
} app_common;

typedef struct app_group app_group;

typedef struct app_command {
    const char *program; /* "tutti-bench step" */
    const char *args_doc, *doc;
    const app_option *options; /* options[count]; --help, --usage and --version are added */
    int count;
    int ranks;   /* group of --backend, --transport and --timeout in --help; 0: not listed */
    size_t size; /* of the program's struct */
    /* Any of these may be NULL.  settle: adapts defaults to other options, after a first pass over
     * the command line. */
    void (*settle)(void *options);
    /* The default that --help shows, if it is not the option's own. */
    const char *(*initial)(const app_option *option);
    /* Checks combinations of options. */
    error_t (*check)(struct argp_state *state, void *options);
    /* The program between app_group_start and app_group_leave, on every rank; returns an agreed
     * code. */
    int (*run)(void *options, app_group *group);
} app_command;

extern const char *const app_backends[], *const app_transports[];

/* APP_OK or APP_USAGE.  quiet: prints nothing to stderr, as another rank does. */
int app_options_parse(const app_command *command, void *options, int argc, char **argv, bool quiet);
/* Prints the text of --help or --usage. */
void app_options_help(const app_command *command, bool usage);

/* Sets every option to its default. */
void app_options_reset(const app_command *command, void *options);
/* The command must have the option. */
const app_option *app_option_find(const app_command *command, const char *name);
bool app_option_given(const app_command *command, const void *options, const char *name);
/* Sets an option to a default, given as a text. */
void app_option_set(const app_option *option, void *options, const char *text);
/* Prints a value to `text`.  value: the field or a copy of it; for APP_OTHER the whole struct. */
void app_option_print(const app_option *option, const void *value, char *text, size_t size);
/* Finds a word's index in a list that NULL ends; otherwise lists the words in `wanted`. */
bool app_word_find(const char *const *words, const char *text, int *place,
                   char wanted[APP_WANTED_MAX]);

/* Records the error (app_fail) and lets argp print it, cleaned by tutti_text_clean, unless it is
 * quiet.  Returns EINVAL. */
error_t app_usage_error(struct argp_state *state, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
