/* Shapes on the command line, with ranges. */
#include "shapes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The sizes of a dimension, from first to last: each is the one before times factor, plus more. */
typedef struct range {
    int64_t first, last, factor, more;
} range;

/* Behind a size. */
static const char separators[] = {'x', ',', 0};

static bool parse_number(const char **at, int64_t *value)
{
    char *end;
    if (**at < '0' || **at > '9') return false;
    *value = strtoll(*at, &end, 10);
    *at = end;
    return *value >= 1 && *value <= INT32_MAX;
}

/* 4096, 1024..65536, 1024..65536*4, 100..500+100.  Returns what is wanted instead, or NULL. */
static const char *parse_range(const char **at, range *r)
{
    static const char number[] = "sizes from 1 to 2147483647 or ranges of them";
    *r = (range){.factor = 2};
    if (!parse_number(at, &r->first)) return number;
    r->last = r->first;
    if ((*at)[0] == '.' && (*at)[1] == '.') {
        *at += 2;
        if (!parse_number(at, &r->last)) return number;
        if (r->last < r->first) return "ranges that rise";
        const char sign = **at;
        if (sign == '*' || sign == '+') {
            ++*at;
            r->factor = 1;
            if (!parse_number(at, sign == '*' ? &r->factor : &r->more)) return number;
            if (sign == '*' && r->factor == 1) return "factors above 1";
        }
    }
    return strchr(separators, **at) ? NULL : number;
}

static int64_t next_of(const range *r, int64_t value)
{
    return value * r->factor + r->more;
}

/* Appends every combination, the last dimension's sizes innermost. */
static bool append_all(const range *ranges, int ndim, bench_shapes *to)
{
    bench_shape shape = {.ndim = ndim};
    for (int d = 0; d < ndim; d++) shape.dims[d] = ranges[d].first;
    for (;;) {
        if (to->count == BENCH_SHAPES_MAX) return false;
        to->list[to->count++] = shape;
        int d = ndim - 1;
        while (d >= 0 && next_of(&ranges[d], shape.dims[d]) > ranges[d].last) {
            shape.dims[d] = ranges[d].first;
            d--;
        }
        if (d < 0) return true;
        shape.dims[d] = next_of(&ranges[d], shape.dims[d]);
    }
}

bool bench_shapes_parse(const char *text, bench_shapes *to, char wanted[APP_WANTED_MAX])
{
    for (const char *at = text;; at++) {
        const char *const shape = at;
        range ranges[BENCH_DIMS_MAX];
        for (int ndim = 0;; at++) {
            const char *const size = at;
            const char *const why =
                ndim < BENCH_DIMS_MAX ? parse_range(&at, &ranges[ndim++]) : "at most 8 sizes";
            if (why) {
                snprintf(wanted, APP_WANTED_MAX, "%s, not '%.*s'", why,
                         (int)strcspn(size, separators), size);
                return false;
            }
            if (*at == 'x') continue;
            if (!append_all(ranges, ndim, to)) {
                snprintf(wanted, APP_WANTED_MAX, "at most %d shapes, which are full in '%.*s'",
                         BENCH_SHAPES_MAX, (int)(at - shape), shape);
                return false;
            }
            break;
        }
        if (!*at) return true;
    }
}
