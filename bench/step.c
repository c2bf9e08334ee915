/* What the gradient exchange costs: forward and backward of a stack of residual blocks
 *
 *     h = h + W2 gelu(W1 rmsnorm(h)),    W1 [4 dim, dim],  W2 [dim, 4 dim]
 *
 * timed without the exchange, with it, and with --leaves in reproducible mode too, on the same ranks, in turns.  After the last
 * exchange the sums are checked: equal on all ranks, and equal to what a plain all-reduce of the local gradients gives.
 *
 *     mpirun -np 4 bench-step [--dim D] [--blocks B] [--rows R] [--dtype bf16] [--steps N] [--range-mib M] [--leaves L]
 *
 * --rows is of a rank, the same in all modes: a leaf has R * ranks / L.  Prints one line on rank 0; exit code 1 if a check fails, 2 if something else does. */
#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/signals.h"
#include "tutti/tutti.h"

#define TRY(call)                           \
    do {                                    \
        if ((call) != TUTTI_OK) die(#call); \
    } while (0)

static void die(const char *what)
{
    fprintf(stderr, "bench-step: %s: %s\n", what, tutti_last_error());
    MPI_Abort(MPI_COMM_WORLD, 2);
}

typedef struct options {
    int64_t dim, blocks, rows;
    tutti_dtype dtype;
    int steps;
    int64_t range_mib, leaves;
} options;

typedef enum mode { ALONE, FAST, REPRODUCIBLE, MODES } mode;

typedef struct block {
    tutti_layer *norm, *up, *down;
    void *h;         /* what the norm reads: the residual stream */
    void *n, *u, *v; /* outputs of norm, up, down */
    void *saved_norm, *saved_up;
} block;

typedef struct model {
    options options;
    tutti_context *ctx;
    tutti_comm *comm;
    tutti_params *params;
    tutti_grad_sync *sync[MODES];
    block *blocks;
    void *x, *dh, *dwide, *dnarrow; /* input, and gradients of h, u, n */
    void *part;                     /* the rows of x that are worked on now */
    int64_t rows;                   /* how many */
} model;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void *buffer(model *m, int64_t cols)
{
    void *data;
    size_t bytes = (size_t)(m->options.rows * cols) * tutti_dtype_size(m->options.dtype);
    TRY(tutti_alloc(m->ctx, bytes, &data));
    return data;
}

static void fill_random(model *m, void *data, int64_t count, double scale, uint64_t seed)
{
    float *values = malloc((size_t)count * sizeof *values);
    void *converted = malloc((size_t)count * tutti_dtype_size(m->options.dtype));
    if (!values || !converted) die("malloc");
    for (int64_t i = 0; i < count; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        values[i] = (float)(scale * ((double)(seed >> 40) / (double)(1 << 23) - 1.0));
    }
    TRY(tutti_convert(converted, m->options.dtype, values, TUTTI_F32, count));
    TRY(tutti_copy(m->ctx, data, converted, (size_t)count * tutti_dtype_size(m->options.dtype)));
    TRY(tutti_context_synchronize(m->ctx));
    free(values);
    free(converted);
}

static void build(model *m, int rank)
{
    const options *o = &m->options;
    int64_t dim = o->dim, wide = 4 * dim;
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    if (o->dtype == TUTTI_F64) desc.master_dtype = TUTTI_F64;
    TRY(tutti_params_create(m->ctx, &desc, &m->params));
    m->blocks = calloc((size_t)o->blocks, sizeof *m->blocks);
    if (!m->blocks) die("calloc");
    for (int64_t b = 0; b < o->blocks; b++) {
        block *k = &m->blocks[b];
        tutti_rmsnorm_desc norm = TUTTI_RMSNORM_DESC_INIT;
        norm.cols = dim;
        norm.x_dtype = norm.param_dtype = norm.y_dtype = o->dtype;
        TRY(tutti_rmsnorm_create(m->ctx, &norm, &k->norm));
        tutti_linear_desc linear = TUTTI_LINEAR_DESC_INIT;
        linear.dtype = o->dtype;
        linear.in = dim;
        linear.out = wide;
        linear.activation = TUTTI_ACT_GELU;
        TRY(tutti_linear_create(m->ctx, &linear, &k->up));
        linear.in = wide;
        linear.out = dim;
        linear.activation = TUTTI_ACT_NONE;
        TRY(tutti_linear_create(m->ctx, &linear, &k->down));
        char prefix[32];
        snprintf(prefix, sizeof prefix, "block%lld.norm", (long long)b);
        TRY(tutti_params_add(m->params, k->norm, prefix));
        snprintf(prefix, sizeof prefix, "block%lld.up", (long long)b);
        TRY(tutti_params_add(m->params, k->up, prefix));
        snprintf(prefix, sizeof prefix, "block%lld.down", (long long)b);
        TRY(tutti_params_add(m->params, k->down, prefix));
        k->h = buffer(m, dim);
        k->n = buffer(m, dim);
        k->u = buffer(m, wide);
        k->v = buffer(m, dim);
        TRY(tutti_alloc(m->ctx, tutti_layer_saved_bytes(k->norm, o->rows), &k->saved_norm));
        TRY(tutti_alloc(m->ctx, tutti_layer_saved_bytes(k->up, o->rows), &k->saved_up));
    }
    TRY(tutti_params_build(m->params, m->ctx));
    TRY(tutti_params_init(m->params, m->ctx, 1));
    TRY(tutti_comm_broadcast_params(m->comm, m->ctx, m->params));
    m->x = buffer(m, dim);
    m->dh = buffer(m, dim);
    m->dnarrow = buffer(m, dim);
    m->dwide = buffer(m, wide);
    fill_random(m, m->x, o->rows * dim, 1.0, (uint64_t)rank + 1);
    tutti_grad_sync_desc sync = TUTTI_GRAD_SYNC_DESC_INIT;
    sync.range_bytes = (size_t)o->range_mib << 20;
    TRY(tutti_grad_sync_create(m->ctx, m->comm, m->params, &sync, &m->sync[FAST]));
    sync.leaves = (int)o->leaves;
    if (o->leaves)
        TRY(tutti_grad_sync_create(m->ctx, m->comm, m->params, &sync, &m->sync[REPRODUCIBLE]));
}

static tutti_tensor narrow(const model *m, void *data)
{
    return tutti_tensor_2d(data, m->options.dtype, m->rows, m->options.dim);
}

static tutti_tensor wide(const model *m, void *data)
{
    return tutti_tensor_2d(data, m->options.dtype, m->rows, 4 * m->options.dim);
}

static size_t saved_bytes(const model *m, const tutti_layer *layer)
{
    return tutti_layer_saved_bytes(layer, m->options.rows);
}

static void forward(model *m)
{
    tutti_tensor h = narrow(m, m->part);
    for (int64_t b = 0; b < m->options.blocks; b++) {
        block *k = &m->blocks[b];
        tutti_tensor n = narrow(m, k->n), u = wide(m, k->u), v = narrow(m, k->v);
        tutti_tensor sum = narrow(m, k->h), branch = narrow(m, b ? m->blocks[b - 1].v : NULL);
        const tutti_rmsnorm_call norm = {.x = &h,
                                         .residual = b ? &branch : NULL,
                                         .y = &n,
                                         .sum = b ? &sum : NULL,
                                         .saved = k->saved_norm,
                                         .saved_bytes = saved_bytes(m, k->norm)};
        const tutti_linear_call up = {
            .x = &n, .y = &u, .saved = k->saved_up, .saved_bytes = saved_bytes(m, k->up)};
        TRY(tutti_rmsnorm_forward(k->norm, m->ctx, &norm));
        TRY(tutti_linear_forward(k->up, m->ctx, &up));
        TRY(tutti_linear_forward(k->down, m->ctx, &(tutti_linear_call){.x = &u, .y = &v}));
        if (b) h = sum;
    }
}

/* dh comes from the random numbers of x, which is as good a gradient as any. */
static void backward(model *m, tutti_grad_sync *sync)
{
    tutti_tensor dwide = wide(m, m->dwide), dnarrow = narrow(m, m->dnarrow), dh = narrow(m, m->dh);
    TRY(tutti_copy(m->ctx, m->dh, m->part,
                   (size_t)(m->rows * m->options.dim) * tutti_dtype_size(m->options.dtype)));
    for (int64_t b = m->options.blocks - 1; b >= 0; b--) {
        block *k = &m->blocks[b];
        tutti_tensor n = narrow(m, k->n), u = wide(m, k->u);
        tutti_tensor h = narrow(m, b == 0 ? m->part : k->h);
        const tutti_linear_call down = {.x = &u, .dy = &dh, .dx = &dwide, .sync = sync};
        const tutti_linear_call up = {.x = &n,
                                      .dy = &dwide,
                                      .dx = &dnarrow,
                                      .saved = k->saved_up,
                                      .saved_bytes = saved_bytes(m, k->up),
                                      .sync = sync};
        const tutti_rmsnorm_call norm = {.x = &h,
                                         .dy = &dnarrow,
                                         .dsum = &dh,
                                         .dx = &dh,
                                         .saved = k->saved_norm,
                                         .saved_bytes = saved_bytes(m, k->norm),
                                         .sync = sync};
        TRY(tutti_linear_backward(k->down, m->ctx, &down));
        TRY(tutti_linear_backward(k->up, m->ctx, &up));
        TRY(tutti_rmsnorm_backward(k->norm, m->ctx, &norm));
    }
}

/* Gradients of all rows, summed over the ranks unless alone. */
static void step(model *m, mode how)
{
    tutti_grad_sync *sync = m->sync[how];
    int first = 0, count = 1;
    if (how == REPRODUCIBLE) TRY(tutti_grad_sync_own_leaves(sync, &first, &count));
    m->rows = m->options.rows / count;
    const size_t bytes = (size_t)(m->rows * m->options.dim) * tutti_dtype_size(m->options.dtype);
    for (int leaf = first; leaf < first + count; leaf++) {
        m->part = (char *)m->x + (size_t)(leaf - first) * bytes;
        if (how == REPRODUCIBLE) TRY(tutti_grad_sync_leaf_begin(sync, m->ctx, leaf));
        forward(m);
        backward(m, sync);
        if (how == REPRODUCIBLE) TRY(tutti_grad_sync_leaf_end(sync, m->ctx, leaf));
    }
    if (sync) TRY(tutti_grad_sync_finish(sync, m->ctx));
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The slowest rank's time of one step. */
static double step_seconds(model *m, mode how)
{
    TRY(tutti_comm_barrier(m->comm, m->ctx));
    double start = now();
    step(m, how);
    TRY(tutti_context_synchronize(m->ctx));
    double seconds = now() - start, slowest;
    MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

/* The exchanged gradients against an all-reduce of the local ones: the same sums up to rounding, and the same
 * bits on all ranks. */
static bool check(model *m, mode how)
{
    tutti_tensor flat;
    TRY(tutti_params_flat(m->params, TUTTI_PARAMS_GRAD, &flat));
    int64_t count = flat.dims[0];
    size_t size = tutti_dtype_size(flat.dtype);
    void *local, *low, *high;
    TRY(tutti_alloc(m->ctx, (size_t)count * size, &local));
    TRY(tutti_alloc(m->ctx, (size_t)count * size, &low));
    TRY(tutti_alloc(m->ctx, (size_t)count * size, &high));
    step(m, ALONE);
    TRY(tutti_comm_all_reduce(m->comm, m->ctx, flat.data, local, count, flat.dtype, TUTTI_SUM));
    step(m, how);
    TRY(tutti_comm_all_reduce(m->comm, m->ctx, flat.data, low, count, flat.dtype, TUTTI_MIN));
    TRY(tutti_comm_all_reduce(m->comm, m->ctx, flat.data, high, count, flat.dtype, TUTTI_MAX));
    TRY(tutti_context_synchronize(m->ctx));
    void *host[3];
    void *device[3] = {local, low, high};
    for (int i = 0; i < 3; i++) {
        host[i] = malloc((size_t)count * size);
        if (!host[i]) die("malloc");
        TRY(tutti_copy(m->ctx, host[i], device[i], (size_t)count * size));
    }
    TRY(tutti_context_synchronize(m->ctx));
    bool same = memcmp(host[1], host[2], (size_t)count * size) == 0;
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < count; i++) {
        double a = size == 8 ? ((double *)host[0])[i] : ((float *)host[0])[i];
        double b = size == 8 ? ((double *)host[1])[i] : ((float *)host[1])[i];
        worst = fmax(worst, fabs(a - b));
        largest = fmax(largest, fabs(a));
        if (isnan(a) || isnan(b)) worst = INFINITY;
    }
    for (int i = 0; i < 3; i++) {
        free(host[i]);
        TRY(tutti_free(m->ctx, &device[i]));
    }
    if (!same) fprintf(stderr, "bench-step: ranks hold different sums\n");
    if (!(worst <= 1e-5 * largest)) {
        fprintf(stderr, "bench-step: sums differ by %g of %g\n", worst, largest);
        same = false;
    }
    return same;
}

static int64_t number(const char *option, char *text)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    if (*end || value <= 0) {
        fprintf(stderr, "bench-step: %s is '%s', want a number above 0\n", option,
                tutti_text_clean(text));
        MPI_Abort(MPI_COMM_WORLD, 64);
    }
    return value;
}

static options parse(int argc, char **argv)
{
    options o = {2048, 6, 8192, TUTTI_BF16, 20, 32, 0};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--dim") == 0)
            o.dim = number(argv[i], argv[i + 1]);
        else if (strcmp(argv[i], "--blocks") == 0)
            o.blocks = number(argv[i], argv[i + 1]);
        else if (strcmp(argv[i], "--rows") == 0)
            o.rows = number(argv[i], argv[i + 1]);
        else if (strcmp(argv[i], "--steps") == 0)
            o.steps = (int)number(argv[i], argv[i + 1]);
        else if (strcmp(argv[i], "--range-mib") == 0)
            o.range_mib = number(argv[i], argv[i + 1]);
        else if (strcmp(argv[i], "--leaves") == 0)
            o.leaves = number(argv[i], argv[i + 1]);
        else if (strcmp(argv[i], "--dtype") == 0 &&
                 tutti_dtype_parse(argv[i + 1], &o.dtype) == TUTTI_OK)
            continue;
        else {
            fprintf(stderr, "bench-step: %s %s is not understood\n", tutti_text_clean(argv[i]),
                    tutti_text_clean(argv[i + 1]));
            MPI_Abort(MPI_COMM_WORLD, 64);
        }
    }
    return o;
}

static void check_options(const options *o, int world)
{
    if (!o->leaves || (o->leaves % world == 0 && o->rows * world % o->leaves == 0)) return;
    fprintf(stderr, "bench-step: --leaves wants a multiple of the ranks that divides all rows\n");
    MPI_Abort(MPI_COMM_WORLD, 64);
}

/* The median of each mode's steps. */
static void measure(model *m, double median[MODES])
{
    const int steps = m->options.steps, modes = m->options.leaves ? MODES : REPRODUCIBLE;
    double *times[MODES] = {NULL};
    for (int how = 0; how < modes; how++) {
        times[how] = malloc((size_t)steps * sizeof *times[how]);
        if (!times[how]) die("malloc");
    }
    for (int i = -3; i < steps; i++) /* three to warm up; in turns, so that clocks drift for all */
        for (int how = 0; how < modes; how++) {
            double seconds = step_seconds(m, (mode)how);
            if (i >= 0) times[how][i] = seconds;
        }
    for (int how = 0; how < modes; how++) {
        qsort(times[how], (size_t)steps, sizeof *times[how], ascending);
        median[how] = times[how][steps / 2];
        free(times[how]);
    }
}

static void report(const model *m, int world, const double median[MODES], bool good)
{
    const options *o = &m->options;
    const double flop =
        6.0 * (double)o->rows * 8.0 * (double)o->dim * (double)o->dim * (double)o->blocks;
    tutti_grad_sync_info info;
    TRY(tutti_grad_sync_get_info(m->sync[FAST], &info));
    printf("ranks %d | transport %d | dim %lld | blocks %lld | rows a rank %lld | %s | parameters "
           "%.1f M | ranges %d | without exchange "
           "%.3f ms (%.1f TFLOP/s a rank) | with exchange %.3f ms | kept %.1f %%",
           world, (int)tutti_comm_transport(m->comm), (long long)o->dim, (long long)o->blocks,
           (long long)o->rows, tutti_dtype_name(o->dtype),
           (double)info.bytes / (o->dtype == TUTTI_F64 ? 8e6 : 4e6), info.ranges,
           1e3 * median[ALONE], 1e-12 * flop / median[ALONE], 1e3 * median[FAST],
           100 * median[ALONE] / median[FAST]);
    if (o->leaves)
        printf(" | reproducible, %lld leaves %.3f ms (%+.1f %%)", (long long)o->leaves,
               1e3 * median[REPRODUCIBLE], 100 * (median[REPRODUCIBLE] / median[FAST] - 1));
    printf(" | sums %s\n", good ? "good" : "WRONG");
}

int main(int argc, char **argv)
{
    int thread_level, rank, world, local = 0, devices = 0;
    signals_watch();
    signals_leave_at_once();
    signals_heeded(); /* mpirun sends one to the ranks that are left when one aborts */
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &thread_level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    MPI_Comm node;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local);

    model m = {.options = parse(argc, argv)};
    TRY(tutti_device_count(TUTTI_BACKEND_AUTO, &devices));
    tutti_context_desc desc = TUTTI_CONTEXT_DESC_INIT;
    desc.device = local % devices;
    TRY(tutti_context_create(&desc, &m.ctx));
    TRY(tutti_comm_create(m.ctx, NULL, &m.comm));
    build(&m, rank);

    double median[MODES] = {0};
    check_options(&m.options, world);
    measure(&m, median);
    bool good = check(&m, FAST);
    if (m.options.leaves) good = check(&m, REPRODUCIBLE) && good;
    if (rank == 0) report(&m, world, median, good);
    fflush(stdout);
    TRY(tutti_comm_barrier(m.comm, m.ctx));
    for (int how = 0; how < MODES; how++) tutti_grad_sync_destroy(&m.sync[how]);
    tutti_comm_destroy(&m.comm);
    MPI_Finalize();
    return good ? 0 : 1;
}
