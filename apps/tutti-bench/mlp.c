/* MLP, compared with the bare matrix products. */
#include "common/exit_code.h"
#include "common/report.h"
#include "layers.h"

/* The two products of forward, or the four of backward. */
static void count(const bench_run *run, bench_result *result, bench_reference *reference)
{
    enum { X, W1, H, W2, Y, DH, DX, DW1, DW2 };
    const int64_t rows = run->rows, in = run->shape.dims[1], hidden = run->shape.dims[2];
    const int64_t out = run->shape.dims[3];
    const bench_product forward[] = {{1, rows, hidden, in, 0, 1, X, W1, H, 0},
                                     {1, rows, out, hidden, 0, 1, H, W2, Y, 0}};
    const bench_product backward[] = {{1, rows, hidden, out, 0, 0, Y, W2, DH, 0},
                                      {1, out, hidden, rows, 1, 0, Y, H, DW2, 1},
                                      {1, rows, in, hidden, 0, 0, DH, W1, DX, 0},
                                      {1, hidden, in, rows, 1, 0, DH, X, DW1, 1}};
    reference->dtype = run->dtype;
    reference->product_count = run->backward ? 4 : 2;
    for (int i = 0; i < reference->product_count; i++)
        reference->products[i] = run->backward ? backward[i] : forward[i];
    result->amount =
        (run->backward ? 4.0 : 2.0) * (double)rows * (double)hidden * (double)(in + out);
}

static int twin_call(bench_run *run)
{
    bench_run *const twin = run->twin, *const act = twin->twin;
    const int64_t rows = bench_find(twin, "x")->view.dims[0], in = run->shape.dims[1];
    const int64_t hidden = run->shape.dims[2], out = run->shape.dims[3];
    const bench_dense up = {run, rows, in, hidden, "weight1", "bias1", "dweight1", "dbias1"};
    const bench_dense down = {run, rows, hidden, out, "weight2", "bias2", "dweight2", "dbias2"};
    const double *const x = bench_data_of(twin, "x");
    if (twin->backward) {
        APP_TRY(bench_dense_backward(&down, bench_data_of(twin, "dy"), bench_data_of(twin, "h"),
                                     bench_data_of(act, "dy")));
        bench_exchange(act, "y", twin, "h");
        APP_TRY(bench_activate(twin));
        return bench_dense_backward(&up, bench_data_of(act, "dx"), x, bench_data_of(twin, "dx"));
    }
    APP_TRY(bench_dense_forward(&up, x, bench_data_of(act, "x")));
    APP_TRY(bench_activate(twin));
    bench_exchange(act, "y", twin, "h");
    return bench_dense_forward(&down, bench_data_of(twin, "h"), bench_data_of(twin, "y"));
}

const bench_layer bench_mlp = {
    .gpu = {{4, {8192, 4096, 4096, 4096}},
            {4, {8192, 1024, 4096, 1024}},
            {4, {8192, 2048, 8192, 2048}}},
    .host = {{4, {256, 256, 1024, 256}}, {4, {512, 128, 512, 128}}},
    .variant = "activation",
    .variants = "gelu",
    .key = 'a',
    .about_zero = true,
    .count = count,
    .products = true,
    .slice = "hidden",
    .twin_call = twin_call,
};
