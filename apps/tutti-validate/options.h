/* The command line of tutti-validate. */
#ifndef TUTTI_VALIDATE_OPTIONS_H
#define TUTTI_VALIDATE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/options.h"

typedef struct validate_options {
    app_common common;      /* its args: case files */
    const char *checkpoint; /* NULL: none; so are the names below */
    const char *filter, *json, *junit, *emit, *record;
    bool list, layers, quiet;
    int64_t rows; /* of a checkpoint's inputs */
    uint64_t seed;
} validate_options;

extern const app_command validate_command;
/* The command's run function, in main.c. */
int validate_main(void *options, app_group *group);

#endif
