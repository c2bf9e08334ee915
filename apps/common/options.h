/* Command lines.  A program has one table of its options, which says all that is known of each:
 * argp's list, --help, the defaults, the checks of values and how a value is written are made from
 * it. */
#ifndef TUTTI_APPS_OPTIONS_H
#define TUTTI_APPS_OPTIONS_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/tutti.h"

/* How a text becomes the value at `at`. */
typedef enum app_option_kind {
    APP_FLAG,     /* bool: it takes no text */
    APP_TEXT,     /* const char *, not empty */
    APP_INT,      /* int64_t, least to most */
    APP_UNSIGNED, /* uint64_t */
    APP_REAL,     /* double, 0 to most */
    APP_POSITIVE, /* double above 0, to most */
    APP_POWER,    /* the same, a power of two */
    APP_WORD,     /* an enum: the word's place */
    APP_DTYPE,    /* tutti_dtype, one of the words */
    APP_OTHER     /* by `parse` */
} app_option_kind;

enum { APP_WANTED_MAX = 256, APP_OPTIONS_MAX = 64 };

typedef struct app_option {
    const char *name;  /* "width" of --width; NULL: help is the heading of the group */
    const char *takes; /* "N" */
    const char *help;
    const char *initial; /* the default, as it would be given; NULL: 0 */
    const char *unset;   /* the default in words, for one that is no value */
    int group, letter;   /* letter: of a short option; 0: none */
    app_option_kind kind;
    size_t at; /* in the program's struct of options */
    double least, most;
    const char *const *words; /* NULL last */
    bool optional;            /* it may be given without a text */
    /* APP_OTHER.  text: NULL if it was given without.  Returns false and says what is wanted. */
    bool (*parse)(const struct app_option *option, void *options, const char *text,
                  char wanted[APP_WANTED_MAX]);
    const char *(*print)(const void *options);
    const char *key; /* its name in the program's files */
    int mark;        /* the program's own */
} app_option;

/* What each program's struct begins with. */
typedef struct app_common {
    bool help, usage, version;
    tutti_backend backend;
    tutti_transport transport;
    double timeout;
    uint64_t given; /* bit i: option i of the command was */
    const char *const *args;
    int arg_count;
} app_common;

typedef struct app_group app_group;

typedef struct app_command {
    const char *program; /* "tutti-bench step" */
    const char *args_doc, *doc;
    const app_option *options; /* options[count]; --help, --usage and --version are there without */
    int count;
    int ranks; /* group under which --backend, --transport and --timeout are listed; 0: it has none
                  of its own */
    size_t size; /* of the program's struct */
    /* Whatever may be NULL.  settle: sets what the defaults of an option depend on, after a first
     * look at the command line. */
    void (*settle)(void *options);
    /* The default that --help says, if it is not the option's own. */
    const char *(*initial)(const app_option *option);
    /* What each option allows, but not together. */
    error_t (*check)(struct argp_state *state, void *options);
    /* All that happens between start and leave, on every rank; the code that they agree on. */
    int (*run)(void *options, app_group *group);
} app_command;

extern const char *const app_backends[], *const app_transports[];

/* APP_OK or APP_USAGE.  quiet: says nothing on stderr (another rank does). */
int app_options_parse(const app_command *command, void *options, int argc, char **argv, bool quiet);
/* The text of --help or --usage, on stdout. */
void app_options_help(const app_command *command, bool usage);

/* Sets every option to its default. */
void app_options_reset(const app_command *command, void *options);
/* An option of the command, which is there. */
const app_option *app_option_find(const app_command *command, const char *name);
bool app_option_given(const app_command *command, const void *options, const char *name);
/* Sets an option to a default. */
void app_option_set(const app_option *option, void *options, const char *text);
/* Writes a value, where it lies in the struct or a copy of it; for APP_OTHER value is the struct.
 */
void app_option_print(const app_option *option, const void *value, char *text, size_t size);
/* The place of a word in a list that NULL ends. */
bool app_word_find(const char *const *words, const char *text, int *place,
                   char wanted[APP_WANTED_MAX]);

/* Notes what is wrong (app_fail), and lets argp print it, unless it was told to be quiet: clean, as
 * what was given may be anything.  EINVAL. */
error_t app_usage_error(struct argp_state *state, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
