/* Values of the command line: numbers and words, each refused with what was given and what was wanted. */
#ifndef TUTTI_TRAIN_PARSE_H
#define TUTTI_TRAIN_PARSE_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

/* Each for the option --name; 0 or EINVAL. */
error_t parse_int(struct argp_state *state, const char *name, const char *text, int64_t least,
                  int64_t most, int64_t *value);
/* A finite number, at least 0, and above it if `positive`. */
error_t parse_real(struct argp_state *state, const char *name, const char *text, bool positive,
                   double most, double *value);
error_t parse_power_of_two(struct argp_state *state, const char *name, const char *text,
                           double most, double *value);
error_t parse_u64(struct argp_state *state, const char *name, const char *text, uint64_t *value);
/* The place of a word in a list that NULL ends. */
error_t parse_word(struct argp_state *state, const char *name, const char *text,
                   const char *const *names, int *value);

#endif
