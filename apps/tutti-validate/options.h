/* The command line of tutti-validate. */
#ifndef TUTTI_VALIDATE_OPTIONS_H
#define TUTTI_VALIDATE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/options.h"

typedef struct validate_options {
    app_common common;      /* its words: files of cases */
    const char *checkpoint; /* NULL: none, as below */
    const char *filter, *json, *junit, *emit, *record;
    bool list, layers, quiet;
    int64_t rows; /* of a checkpoint's inputs */
    uint64_t seed;
} validate_options;

extern const app_command validate_command;
/* Its run; main.c. */
int validate_main(void *options, app_group *group);

#endif
