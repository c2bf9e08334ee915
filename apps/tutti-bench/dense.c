/* Calls of FusedLinear's and MLP's twins whose matrix products are a GPU's, in f64 by cuBLASLt: by
 * the host's the check of a pass took 6 s at 8192 x 4096 x 4096 on 16 cores, now 2.  No kernel of
 * the library is involved, and in the types in which this is done cuBLASLt has others, too.
 *
 * The rest is done on the host, as in other twins.  The activation is that of a FusedLinear whose
 * weight is the identity, the twin's own twin: it has z as x and dz as dx, exactly. */
#include "common/exit_code.h"
#include "common/report.h"
#include "layers.h"

bool bench_dense(const bench_run *run)
{
    return run->own->twin_call && run->machine->cuda && run->dtype != TUTTI_F64;
}

static double *data_of(const bench_run *run, const char *name)
{
    const bench_tensor *tensor = bench_find(run, name);
    return tensor ? tensor->view.data : NULL;
}

/* Makes the tensors `name` of both runs change places; they have equally many elements. */
static void exchange(bench_run *a, const char *name, bench_run *b, const char *other)
{
    tutti_tensor *const of_a = &bench_find(a, name)->view, *const of_b =
                                                               &bench_find(b, other)->view;
    void *const data = of_a->data;
    of_a->data = of_b->data;
    of_b->data = data;
}

int bench_dense_open(bench_run *run)
{
    enum { SIDE = 64 }; /* of the identity: so that rows are no shorter than vectors */
    bench_run *const twin = run->twin;
    const tutti_tensor *z = &bench_find(twin, bench_find(twin, "h") ? "h" : "y")->view;
    const int64_t side = z->dims[1] % SIDE == 0 ? SIDE : 1;
    const bench_shape shape = {3, {z->dims[0] * z->dims[1] / side, side, side}};
    APP_TRY(bench_twin_open(twin, tutti_layer_type_find("linear"), &shape, &twin->twin));
    double *const weight = data_of(twin->twin, "weight");
    for (int64_t i = 0; i < side; i++) weight[i * side + i] = 1;
    return APP_OK;
}

/* The call's act(z), or dy act'(z), for as many rows as the twin has now. */
static int activate(bench_run *twin)
{
    bench_run *const act = twin->twin;
    const tutti_tensor *z = &bench_find(twin, bench_find(twin, "h") ? "h" : "y")->view;
    for (int i = 0; i < 2 * act->slots; i++)
        if (act->tensors[i].view.data)
            act->tensors[i].view.dims[0] = tutti_tensor_count(z) / act->shape.dims[1];
    act->backward = twin->backward;
    return bench_layer_call(act);
}

/* One of the layers that a kind consists of. */
typedef struct dense {
    bench_run *run;
    int64_t rows, in, out;
    const char *weight, *bias;   /* of the twin's parameters */
    const char *dweight, *dbias; /* and their gradients */
} dense;

/* z = x W^T + bias */
static int forward(const dense *of, const double *x, double *z)
{
    const bench_product product = {1, of->rows, of->out, of->in, 0, 1, 0, 1, 2, 0};
    const double *const bias = data_of(of->run->twin, of->bias);
    APP_TRY(bench_multiply(of->run->machine, &product, false, x, data_of(of->run->twin, of->weight),
                           z));
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < of->rows; i++)
        for (int64_t o = 0; bias && o < of->out; o++) z[i * of->out + o] += bias[o];
    return APP_OK;
}

/* dx = dz W, dW (+)= dz^T x, and dbias (+)= the sums of dz's columns */
static int backward(const dense *of, const double *dz, const double *x, double *dx)
{
    enum { COLUMNS = 32 };
    const bench_run *twin = of->run->twin;
    const bool add = twin->call.flags & TUTTI_GRAD_ACCUMULATE;
    const int64_t rows = of->rows, in = of->in, out = of->out;
    const bench_product to_dx = {1, rows, in, out, 0, 0, 0, 1, 2, 0};
    const bench_product to_dweight = {1, out, in, rows, 1, 0, 0, 1, 2, 0};
    double *const dbias = data_of(twin, of->dbias);
    APP_TRY(bench_multiply(of->run->machine, &to_dx, false, dz, data_of(twin, of->weight), dx));
    APP_TRY(bench_multiply(of->run->machine, &to_dweight, add, dz, x, data_of(twin, of->dweight)));
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < (dbias ? out : 0); first += COLUMNS) {
        const int64_t end = first + COLUMNS < out ? first + COLUMNS : out;
        for (int64_t o = first; o < end && !add; o++) dbias[o] = 0;
        for (int64_t i = 0; i < rows; i++)
            for (int64_t o = first; o < end; o++) dbias[o] += dz[i * out + o];
    }
    return APP_OK;
}

int bench_linear_twin(bench_run *run)
{
    bench_run *const twin = run->twin, *const act = twin->twin;
    const dense of = {run,
                      bench_find(twin, "x")->view.dims[0],
                      run->shape.dims[1],
                      run->shape.dims[2],
                      "weight",
                      "bias",
                      "dweight",
                      "dbias"};
    const double *const x = data_of(twin, "x");
    if (!twin->backward) APP_TRY(forward(&of, x, data_of(act, "x")));
    if (twin->backward) {
        exchange(act, "y", twin, "y");
        exchange(act, "dy", twin, "dy");
    }
    APP_TRY(activate(twin));
    if (twin->backward) return backward(&of, data_of(act, "dx"), x, data_of(twin, "dx"));
    exchange(act, "y", twin, "y");
    return APP_OK;
}

int bench_mlp_twin(bench_run *run)
{
    bench_run *const twin = run->twin, *const act = twin->twin;
    const int64_t rows = bench_find(twin, "x")->view.dims[0], in = run->shape.dims[1];
    const int64_t hidden = run->shape.dims[2], out = run->shape.dims[3];
    const dense up = {run, rows, in, hidden, "weight1", "bias1", "dweight1", "dbias1"};
    const dense down = {run, rows, hidden, out, "weight2", "bias2", "dweight2", "dbias2"};
    const double *const x = data_of(twin, "x");
    if (twin->backward) {
        APP_TRY(backward(&down, data_of(twin, "dy"), data_of(twin, "h"), data_of(act, "dy")));
        exchange(act, "y", twin, "h");
        APP_TRY(activate(twin));
        return backward(&up, data_of(act, "dx"), x, data_of(twin, "dx"));
    }
    APP_TRY(forward(&up, x, data_of(act, "x")));
    APP_TRY(activate(twin));
    exchange(act, "y", twin, "h");
    return forward(&down, data_of(twin, "h"), data_of(twin, "y"));
}
