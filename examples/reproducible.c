/* Teaches: reproducible mode in a trainer of your own: the same weights, bit for bit, on any number
 * of ranks.  The batch is always the same LEAVES blocks of rows, whose gradients are added as a
 * tree over the blocks' numbers.  Buffers and update are the trainer's.
 *
 * Build: mpicc reproducible.c -o reproducible $(pkg-config --cflags --libs tutti) -lm
 * Run:   mpirun -np 3 ./reproducible */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <tutti/tutti.h>

enum { LEAVES = 8, ROWS = 4, MOST = 32, IN = 6, HIDDEN = 16, STEPS = 400, PARAMS = 4, ROOM = 96 };
static tutti_context *ctx;
static tutti_layer *hidden, *output;
/* The trainer's own memory: for all leaves, though a rank has all of them only if it is alone. */
static float values[PARAMS * ROOM], grads[PARAMS * ROOM];
static float x[MOST][IN], h[MOST][HIDDEN], dh[MOST][HIDDEN], z[MOST][HIDDEN], y[MOST], dy[MOST];
static const tutti_param *params[PARAMS];
static tutti_tensor tx, th, tdh, ty, tdy;

static void check(tutti_status status)
{
    if (status == TUTTI_OK) return;
    fprintf(stderr, "%s\n", tutti_last_error());
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* A layer over the trainer's memory from this parameter on, filled alike on all ranks. */
static void own_layer(const char *name, const char *options, int at, tutti_layer **layer)
{
    check(tutti_layer_create_by_name(ctx, "linear", options, layer));
    for (int i = 0; i < tutti_layer_param_count(*layer); i++, at++) {
        char full[2 * TUTTI_NAME_MAX];
        tutti_param *param = tutti_layer_param(*layer, i);
        tutti_tensor value = param->value, grad = param->value;
        value.data = values + at * ROOM, grad.data = grads + at * ROOM;
        check(tutti_param_bind(param, &value, &grad));
        snprintf(full, sizeof full, "%s/%s", name, param->name);
        check(tutti_param_init(param, ctx, full, 1));
        params[at] = param;
    }
}

/* Forward of this many leaves, from one on, and dy.  Returns their part of the loss. */
static double forward(int first, int count, tutti_linear_call *lower, tutti_linear_call *upper)
{
    double loss = 0;
    const int rows = count * ROWS;
    for (int i = 0; i < rows * IN; i++) x[i / IN][i % IN] = (float)sin(first * ROWS * IN + i);
    tx = tutti_tensor_2d(x, TUTTI_F32, rows, IN);
    th = tdh = tutti_tensor_2d(h, TUTTI_F32, rows, HIDDEN);
    ty = tdy = tutti_tensor_2d(y, TUTTI_F32, rows, 1);
    tdh.data = dh, tdy.data = dy;
    lower->leaves = upper->leaves = count;
    check(tutti_linear_forward(hidden, ctx, lower));
    check(tutti_linear_forward(output, ctx, upper));
    for (int row = 0; row < rows; row++) { /* y is fitted to the product of two inputs */
        const float difference = y[row] - x[row][0] * x[row][1];
        loss += difference * difference / MOST;
        dy[row] = 2 * difference / MOST;
    }
    return loss;
}

int main(int argc, char **argv)
{
    int first, count;
    tutti_comm *comm;
    tutti_grad_sync *sync;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &(int){0});
    check(tutti_context_create(&(tutti_context_desc){.backend = TUTTI_BACKEND_HOST}, &ctx));
    check(tutti_comm_create(ctx, NULL, &comm));
    own_layer("output", "in=16,out=1", 0, &output); /* params: in the order of backward */
    own_layer("hidden", "in=6,out=16,activation=silu", 2, &hidden);
    const tutti_grad_sync_desc desc = {.leaves = LEAVES};
    check(tutti_grad_sync_create_list(ctx, comm, params, PARAMS, &desc, &sync));
    check(tutti_grad_sync_own_leaves(sync, &first, &count));
    static const int64_t rows[LEAVES] = {0, 4, 8, 12, 16, 20, 24, 28}; /* where leaves begin */
    tutti_linear_call upper = {.x = &th, .y = &ty, .dy = &tdy, .dx = &tdh, .sync = sync};
    tutti_linear_call lower = {.x = &tx, .y = &th, .dy = &tdh, .sync = sync, .saved = z};
    lower.saved_bytes = sizeof z, lower.leaf_rows = upper.leaf_rows = rows;
    for (int step = 0; step < STEPS; step++) {
        check(tutti_grad_sync_leaves_begin(sync, ctx, first, count));
        forward(first, count, &lower, &upper);
        check(tutti_linear_backward(output, ctx, &upper)); /* declares its layer ready */
        check(tutti_linear_backward(hidden, ctx, &lower));
        check(tutti_grad_sync_leaves_end(sync, ctx));
        check(tutti_grad_sync_finish(sync, ctx)); /* the sums over all leaves, on every rank */
        for (int i = 0; i < PARAMS * ROOM; i++) values[i] -= 0.2f * grads[i];
    }
    const double loss = forward(0, LEAVES, &lower, &upper);
    unsigned long long hash = 0xcbf29ce484222325; /* FNV-1a of all weights' bytes */
    for (size_t i = 0; i < sizeof values; i++)
        hash = (hash ^ ((const unsigned char *)values)[i]) * 0x100000001b3;
    if (tutti_comm_rank(comm) == 0) printf("loss %.6f, weights %016llx\n", loss, hash);
    tutti_grad_sync_destroy(&sync);
    tutti_comm_destroy(&comm); /* the rest ends with the process */
    MPI_Finalize();
    return loss < 0.02 ? 0 : 1;
}
