/* Rotary positions: heads of 128, many as of queries and few as of keys. */
#include "layers.h"

const bench_layer bench_rope = {
    .gpu = {{3, {32768, 4096, 128}}, {3, {65536, 1024, 128}}, {3, {65536, 128, 128}}},
    .host = {{3, {4096, 256, 64}}, {3, {1024, 4096, 128}}, {3, {8192, 128, 128}}},
    .options = "period=4096",
};
