/* What is wrong with a command line. */
#ifndef TUTTI_APPS_USAGE_H
#define TUTTI_APPS_USAGE_H

#include <argp.h>

/* argp_error with a clean text: what was given is the caller's, and may be anything. */
void app_usage_error(struct argp_state *state, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
