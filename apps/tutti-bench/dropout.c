/* BiasDropoutActivation. */
#include "layers.h"

const bench_layer bench_dropout = {
    .gpu = {{2, {16384, 4096}}, {2, {32768, 1024}}, {2, {8192, 16384}}},
    .host = {{2, {4096, 256}}, {2, {1024, 4096}}},
    .options = "p=0.1,",
    .variant = "activation",
    .variants = "gelu,squared_relu",
    .key = 'a',
};
