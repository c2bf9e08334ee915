/* What tutti-bench is asked to do. */
#ifndef TUTTI_BENCH_OPTIONS_H
#define TUTTI_BENCH_OPTIONS_H

#include "tutti/tutti.h"

enum { BENCH_SHAPES_MAX = 32, BENCH_ACTIVATIONS_MAX = 7 };

/* In the order in which they are run. */
enum {
    BENCH_LAYERNORM,
    BENCH_RMSNORM,
    BENCH_SOFTMAX,
    BENCH_CROSS_ENTROPY,
    BENCH_LINEAR,
    BENCH_EMBEDDING,
    BENCH_LAYERS
};
extern const char *const bench_layer_names[BENCH_LAYERS];

typedef struct bench_shape {
    int ndim; /* 2: rows, cols; 3: rows, in, out for linear, rows, vocab, cols for embedding */
    int64_t dims[3];
} bench_shape;

typedef struct bench_options {
    int layers[BENCH_LAYERS]; /* 1: wanted; none: all */
    tutti_backend backend;
    int device;
    int dtype; /* -1: bf16 on a GPU, f32 on the host */
    int shape_count;
    bench_shape shapes[BENCH_SHAPES_MAX]; /* none: the defaults */
    int activation_count;
    const char *activations[BENCH_ACTIVATIONS_MAX];
    int repeats;
    const char *json;
    const char *compare; /* an earlier --json */
    double fail_over;    /* percent; negative: nothing fails */
} bench_options;

/* Reads the command line; leaves the program with 64 where it is wrong. */
void bench_options_parse(int argc, char **argv, bench_options *options);

#endif
