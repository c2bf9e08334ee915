/* Values of the command line. */
#include "parse.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/usage.h"

static error_t refuse_value(struct argp_state *state, const char *name, const char *given,
                            const char *wanted)
{
    return app_usage_error(state, "--%s is '%s', want %s", name, given, wanted);
}

error_t parse_int(struct argp_state *state, const char *name, const char *text, int64_t least,
                  int64_t most, int64_t *value)
{
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && errno == 0 && number >= least && number <= most) {
        *value = number;
        return 0;
    }
    char wanted[96];
    snprintf(wanted, sizeof wanted, "a whole number from %lld to %lld", (long long)least,
             (long long)most);
    return refuse_value(state, name, text, wanted);
}

error_t parse_real(struct argp_state *state, const char *name, const char *text, bool positive,
                   double most, double *value)
{
    char *end;
    errno = 0;
    const double number = strtod(text, &end);
    if (end != text && *end == '\0' && isfinite(number) && number <= most &&
        (positive ? number > 0.0 : number >= 0.0)) {
        *value = number;
        return 0;
    }
    char wanted[96];
    snprintf(wanted, sizeof wanted, "a number %s 0 and at most %g",
             positive ? "above" : "not below", most);
    return refuse_value(state, name, text, wanted);
}

error_t parse_power_of_two(struct argp_state *state, const char *name, const char *text,
                           double most, double *value)
{
    int exponent;
    double number = 0.0;
    if (parse_real(state, name, text, true, most, &number)) return EINVAL;
    if (frexp(number, &exponent) != 0.5) return refuse_value(state, name, text, "a power of two");
    *value = number;
    return 0;
}

error_t parse_u64(struct argp_state *state, const char *name, const char *text, uint64_t *value)
{
    char *end;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    if (end == text || *end || errno || text[0] == '-')
        return refuse_value(state, name, text, "a whole number from 0 to 2^64 - 1");
    *value = number;
    return 0;
}

error_t parse_word(struct argp_state *state, const char *name, const char *text,
                   const char *const *names, int *value)
{
    char wanted[160] = "";
    size_t used = 0;
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], text) == 0) {
            *value = i;
            return 0;
        }
        const char *separator = i == 0 ? "" : names[i + 1] ? ", " : " or ";
        used += (size_t)snprintf(wanted + used, sizeof wanted - used, "%s%s", separator, names[i]);
    }
    return refuse_value(state, name, text, wanted);
}
