/* FusedLinear, compared with the bare matrix products. */
#include "layers.h"

/* y's product alone, or those of dx and dW. */
static void count(const bench_run *run, bench_result *result, bench_reference *reference)
{
    enum { X, W, Y, DX, DW };
    const int64_t rows = run->rows, in = run->shape.dims[1], out = run->shape.dims[2];
    const bench_product y = {1, rows, out, in, 0, 1, X, W, Y, 0};
    const bench_product dx = {1, rows, in, out, 0, 0, Y, W, DX, 0};
    const bench_product dw = {1, out, in, rows, 1, 0, Y, X, DW, 1};
    reference->dtype = run->dtype;
    reference->product_count = run->backward ? 2 : 1;
    reference->products[0] = run->backward ? dx : y;
    reference->products[1] = dw;
    result->product = 1;
    result->amount = (run->backward ? 4.0 : 2.0) * (double)rows * (double)in * (double)out;
}

const bench_layer bench_linear = {
    .gpu = {{3, {8192, 4096, 4096}}, {3, {8192, 1024, 4096}}, {3, {4096, 4096, 16384}}},
    .host = {{3, {256, 784, 256}}, {3, {512, 512, 512}}, {3, {512, 256, 1024}}},
    .variant = "activation",
    .variants = "none,gelu",
    .key = 'a',
    .about_zero = true,
    .count = count,
    .slice = "out",
    .twin_call = bench_linear_twin,
};
