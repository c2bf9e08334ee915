/* Shapes on the command line, with ranges. */
#include "shapes.h"

#include <stdio.h>
#include <stdlib.h>

/* The sizes of a dimension, from first to last: each is the one before times factor, plus more. */
typedef struct range {
    int64_t first, last, factor, more;
} range;

static bool parse_number(const char **at, int64_t *value)
{
    char *end;
    if (**at < '0' || **at > '9') return false;
    *value = strtoll(*at, &end, 10);
    *at = end;
    return *value >= 1 && *value <= INT32_MAX;
}

/* 4096, 1024..65536, 1024..65536*4, 100..500+100 */
static bool parse_range(const char **at, range *r)
{
    *r = (range){.factor = 2};
    if (!parse_number(at, &r->first)) return false;
    r->last = r->first;
    if ((*at)[0] != '.' || (*at)[1] != '.') return true;
    *at += 2;
    if (!parse_number(at, &r->last) || r->last < r->first) return false;
    const char sign = **at;
    if (sign != '*' && sign != '+') return true;
    ++*at;
    r->factor = 1;
    return parse_number(at, sign == '*' ? &r->factor : &r->more) && (sign == '+' || r->factor > 1);
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

static bool fits_any(int ndim)
{
    const char *names[BENCH_DIMS_MAX];
    for (int kind = 0; kind < tutti_layer_type_count(); kind++)
        if (1 + bench_shape_options(tutti_layer_type_get(kind), names) == ndim) return true;
    return false;
}

bool bench_shapes_parse(const char *text, bench_shapes *to, char wanted[APP_WANTED_MAX])
{
    for (const char *at = text;; at++) {
        range ranges[BENCH_DIMS_MAX];
        int ndim = 0;
        snprintf(wanted, APP_WANTED_MAX, "at most %d of --help's, as 32768x4096 or 64x1024..8192",
                 BENCH_SHAPES_MAX);
        for (;; at++) {
            if (ndim == BENCH_DIMS_MAX || !parse_range(&at, &ranges[ndim++])) return false;
            if (*at != 'x') break;
        }
        if (*at && *at != ',') return false;
        if (!fits_any(ndim)) {
            snprintf(wanted, APP_WANTED_MAX, "as many numbers as a layer takes, not %d", ndim);
            return false;
        }
        if (!append_all(ranges, ndim, to)) return false;
        if (!*at) return true;
    }
}
