/* The command line of tutti-validate. */
#ifndef TUTTI_VALIDATE_OPTIONS_H
#define TUTTI_VALIDATE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/tutti.h"

typedef struct validate_options {
    char **files; /* of cases */
    int file_count;
    const char *checkpoint; /* NULL: none, as below */
    const char *filter, *json, *junit, *emit, *record;
    bool list, layers, quiet, help, version;
    bool wrong; /* something was, and said so */
    tutti_backend backend;
    tutti_transport transport;
    double timeout;
    int64_t rows, seed;        /* of a checkpoint's inputs */
    const char *of_checkpoint; /* one of the two that was given; NULL: none was */
} validate_options;

/* Code, after argp has said on stderr what is wrong, if it may speak. */
int validate_options_parse(validate_options *options, int argc, char **argv, bool silent);
void validate_options_help(void);

#endif
