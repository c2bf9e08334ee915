/* GLU. */
#include "layers.h"

const bench_layer bench_glu = {
    .gpu = {{2, {32768, 1024}}, {2, {8192, 14336}}, {2, {8192, 5461}}},
    .host = {{2, {4096, 256}}, {2, {1024, 4096}}, {2, {512, 1365}}},
    .variant = "activation",
    .variants = "silu,gelu",
    .key = 'a',
};
