/* FusedLinear, compared with the bare matrix products.
 *
 * Its twin's and MLP's products are a GPU's, in f64 by cuBLASLt: by the host's the check of a pass
 * took 6 s at 8192 x 4096 x 4096 on 16 cores, now 2.  No kernel of the library is involved, and in
 * the types in which this is done cuBLASLt has others, too.  The rest is done on the host, as in
 * other twins.  The activation is that of a FusedLinear whose weight is the identity, the twin's
 * own twin: it has z as x and dz as dx, exactly. */
#include "common/exit_code.h"
#include "common/report.h"
#include "layers.h"

extern const bench_layer bench_linear;

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
    result->amount = (run->backward ? 4.0 : 2.0) * (double)rows * (double)in * (double)out;
}

bool bench_is_dense(const bench_run *run)
{
    return run->own->twin_call && run->machine->cuda && run->dtype != TUTTI_F64;
}

double *bench_data_of(const bench_run *run, const char *name)
{
    const bench_tensor *tensor = bench_find(run, name);
    return tensor ? tensor->view.data : NULL;
}

void bench_exchange(bench_run *a, const char *name, bench_run *b, const char *other)
{
    tutti_tensor *const of_a = &bench_find(a, name)->view, *const of_b =
                                                               &bench_find(b, other)->view;
    void *const data = of_a->data;
    of_a->data = of_b->data;
    of_b->data = data;
}

static const tutti_layer_type *type_of(const bench_layer *own)
{
    int i = 0;
    while (bench_layer_find(tutti_layer_type_get(i)->name) != own) i++;
    return tutti_layer_type_get(i);
}

int bench_dense_open(bench_run *run)
{
    enum { SIDE = 64 }; /* of the identity: so that rows are no shorter than vectors */
    bench_run *const twin = run->twin;
    const tutti_tensor *z = &bench_find(twin, bench_find(twin, "h") ? "h" : "y")->view;
    const int64_t side = z->dims[1] % SIDE == 0 ? SIDE : 1;
    const bench_shape shape = {3, {z->dims[0] * z->dims[1] / side, side, side}};
    APP_TRY(bench_twin_open(twin, type_of(&bench_linear), &shape, &twin->twin));
    double *const weight = bench_data_of(twin->twin, "weight");
    for (int64_t i = 0; i < side; i++) weight[i * side + i] = 1;
    return APP_OK;
}

int bench_activate(bench_run *twin)
{
    bench_run *const act = twin->twin;
    const tutti_tensor *z = &bench_find(twin, bench_find(twin, "h") ? "h" : "y")->view;
    for (int i = 0; i < 2 * act->slots; i++)
        if (act->tensors[i].view.data)
            act->tensors[i].view.dims[0] = tutti_tensor_count(z) / act->shape.dims[1];
    act->backward = twin->backward;
    return bench_layer_call(act);
}

int bench_dense_forward(const bench_dense *of, const double *x, double *z)
{
    const bench_product product = {1, of->rows, of->out, of->in, 0, 1, 0, 1, 2, 0};
    const double *const bias = bench_data_of(of->run->twin, of->bias);
    APP_TRY(bench_multiply(of->run->machine, &product, false, x,
                           bench_data_of(of->run->twin, of->weight), z));
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < of->rows; i++)
        for (int64_t o = 0; bias && o < of->out; o++) z[i * of->out + o] += bias[o];
    return APP_OK;
}

int bench_dense_backward(const bench_dense *of, const double *dz, const double *x, double *dx)
{
    enum { COLUMNS = 32 };
    const bench_run *twin = of->run->twin;
    const bool add = twin->call.flags & TUTTI_GRAD_ACCUMULATE;
    const int64_t rows = of->rows, in = of->in, out = of->out;
    const bench_product to_dx = {1, rows, in, out, 0, 0, 0, 1, 2, 0};
    const bench_product to_dweight = {1, out, in, rows, 1, 0, 0, 1, 2, 0};
    double *const dbias = bench_data_of(twin, of->dbias);
    APP_TRY(
        bench_multiply(of->run->machine, &to_dx, false, dz, bench_data_of(twin, of->weight), dx));
    APP_TRY(bench_multiply(of->run->machine, &to_dweight, add, dz, x,
                           bench_data_of(twin, of->dweight)));
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < (dbias ? out : 0); first += COLUMNS) {
        const int64_t end = first + COLUMNS < out ? first + COLUMNS : out;
        for (int64_t o = first; o < end && !add; o++) dbias[o] = 0;
        for (int64_t i = 0; i < rows; i++)
            for (int64_t o = first; o < end; o++) dbias[o] += dz[i * out + o];
    }
    return APP_OK;
}

static int twin_call(bench_run *run)
{
    bench_run *const twin = run->twin, *const act = twin->twin;
    const bench_dense of = {run,
                            bench_find(twin, "x")->view.dims[0],
                            run->shape.dims[1],
                            run->shape.dims[2],
                            "weight",
                            "bias",
                            "dweight",
                            "dbias"};
    const double *const x = bench_data_of(twin, "x");
    if (!twin->backward) APP_TRY(bench_dense_forward(&of, x, bench_data_of(act, "x")));
    if (twin->backward) {
        bench_exchange(act, "y", twin, "y");
        bench_exchange(act, "dy", twin, "dy");
    }
    APP_TRY(bench_activate(twin));
    if (twin->backward)
        return bench_dense_backward(&of, bench_data_of(act, "dx"), x, bench_data_of(twin, "dx"));
    bench_exchange(act, "y", twin, "y");
    return APP_OK;
}

const bench_layer bench_linear = {
    .gpu = {{3, {8192, 4096, 4096}}, {3, {8192, 1024, 4096}}, {3, {4096, 4096, 16384}}},
    .host = {{3, {256, 784, 256}}, {3, {512, 512, 512}}, {3, {512, 256, 1024}}},
    .variant = "activation",
    .variants = "none,gelu",
    .key = 'a',
    .about_zero = true,
    .count = count,
    .products = true,
    .slice = "out",
    .twin_call = twin_call,
};
