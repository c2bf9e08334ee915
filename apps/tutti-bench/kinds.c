/* What is timed of a kind of layer beyond what its table says: a row here, or a file of its own. */
#include <string.h>

#include "layers.h"

extern const bench_layer bench_linear, bench_mlp, bench_matmul, bench_embedding;

#define OWN(kind) #kind, &bench_##kind
#define ROW(kind, ...) #kind, (&(const bench_layer){__VA_ARGS__})

static const struct {
    const char *name;
    const bench_layer *own;
} kinds[] = {
    {OWN(linear)},
    {OWN(mlp)},
    {OWN(matmul)},
    {OWN(embedding)},
    {ROW(cross_entropy, .variant = "label_smoothing", .variants = "0,0.1")},
    {ROW(dropout, .gpu = {{2, {16384, 4096}}, {2, {32768, 1024}}, {2, {8192, 16384}}},
         .host = {{2, {4096, 256}}, {2, {1024, 4096}}}, .options = "p=0.1,",
         .variant = "activation", .variants = "gelu,squared_relu", .key = 'a')},
    {ROW(glu, .gpu = {{2, {32768, 1024}}, {2, {8192, 14336}}, {2, {8192, 5461}}},
         .host = {{2, {4096, 256}}, {2, {1024, 4096}}, {2, {512, 1365}}}, .variant = "activation",
         .variants = "silu,gelu", .key = 'a')},
    /* heads of 128, many as of queries and few as of keys */
    {ROW(rope, .gpu = {{3, {32768, 4096, 128}}, {3, {65536, 1024, 128}}, {3, {65536, 128, 128}}},
         .host = {{3, {4096, 256, 64}}, {3, {1024, 4096, 128}}, {3, {8192, 128, 128}}},
         .options = "period=4096")},
};

const bench_layer bench_layer_plain = {0};

const bench_layer *bench_layer_find(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, name) == 0) return kinds[i].own;
    return &bench_layer_plain;
}
