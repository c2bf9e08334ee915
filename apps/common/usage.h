/* What is wrong with a command line. */
#ifndef TUTTI_APPS_USAGE_H
#define TUTTI_APPS_USAGE_H

#include <argp.h>

/* Notes what is wrong (app_fail), and lets argp print it, unless it was told to be quiet: clean, as what was given may be
 * anything.  EINVAL. */
error_t app_usage_error(struct argp_state *state, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
