/* What tutti-bench is asked to do. */
#ifndef TUTTI_BENCH_OPTIONS_H
#define TUTTI_BENCH_OPTIONS_H

#include "layers.h"

enum { BENCH_SHAPES_MAX = 32, BENCH_KINDS_MAX = 64, BENCH_VARIANTS_MAX = 256 };

typedef struct bench_options {
    uint64_t layers; /* bit i: the i-th kind is wanted; none: all */
    bool plain;      /* no kind's own file is looked at */
    tutti_backend backend;
    int device;
    tutti_dtype dtype; /* 0: bf16 on a GPU, f32 on the host */
    int shape_count;
    bench_shape shapes[BENCH_SHAPES_MAX];  /* none: the layers' own */
    const char *variants[BENCH_KINDS_MAX]; /* "none,gelu"; NULL: the layer's own */
    int repeats;
    const char *json;
    const char *compare; /* an earlier --json */
    double fail_over;    /* percent; negative: nothing fails */
} bench_options;

/* Reads the command line; leaves the program with 64 where it is wrong. */
void bench_options_parse(int argc, char **argv, bench_options *options);

#endif
