/* --shape: 32768x4096,64x1024..8192. */
#ifndef TUTTI_BENCH_SHAPES_H
#define TUTTI_BENCH_SHAPES_H

#include "common/options.h"
#include "layers.h"

enum { BENCH_SHAPES_MAX = 256 };

typedef struct bench_shapes {
    int count;
    bench_shape list[BENCH_SHAPES_MAX];
} bench_shapes;

/* Appends the shapes of a list; false, with `wanted` filled in, if it is not one or too long. */
bool bench_shapes_parse(const char *text, bench_shapes *to, char wanted[APP_WANTED_MAX]);

#endif
