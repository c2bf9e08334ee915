/* Teaches: a layer of your own between Tutti's, here y = x * factor with a learned factor per
 * column, written as plain loops.  Its parameter is in the store with theirs: the same exchange
 * sums its gradient, the same optimizer updates it.  A sharded store (desc.shards) changes nothing
 * in the layer; tutti/param.h says at tutti_params_add_param what it must not read then.
 *
 * Build: mpicc own_layer.c -o own_layer $(pkg-config --cflags --libs tutti) -lm
 * Run:   mpirun -np 2 ./own_layer */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <tutti/tutti.h>

enum { BATCH = 120, WIDTH = 16, STEPS = 300 };

static void check(tutti_status status)
{
    if (status == TUTTI_OK) return;
    fprintf(stderr, "%s\n", tutti_last_error());
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* The layer is a parameter, which the store binds to memory, and two functions.  On the host
 * backend work is complete when a call returns; for a GPU these would launch kernels on the
 * context's stream (tutti/cuda.h). */

static tutti_param scale_create(void)
{
    return (tutti_param){.name = "scale/factor",
                         .value = tutti_tensor_1d(NULL, TUTTI_F64, WIDTH),
                         .lr_scale = 1.0,
                         .weight_decay = 0.0,
                         .init = TUTTI_INIT_ONE};
}

static void scale_forward(const tutti_param *scale, int rows, double x[][WIDTH], double y[][WIDTH])
{
    const double *factor = scale->value.data;
    for (int row = 0; row < rows; row++)
        for (int col = 0; col < WIDTH; col++) y[row][col] = x[row][col] * factor[col];
}

/* dfactor = sum over rows of dy * x,  dx = dy * factor.  dx may be dy. */
static void scale_backward(const tutti_param *scale, int rows, double x[][WIDTH],
                           double dy[][WIDTH], double dx[][WIDTH])
{
    const double *factor = scale->value.data;
    double *dfactor = scale->grad.data;
    for (int col = 0; col < WIDTH; col++) {
        dfactor[col] = 0.0;
        for (int row = 0; row < rows; row++) {
            dfactor[col] += dy[row][col] * x[row][col];
            dx[row][col] = dy[row][col] * factor[col];
        }
    }
}

/* The model, linear -> scale -> linear, and what it computes on this rank's rows of the batch. */
static tutti_context *ctx;
static tutti_comm *comm;
static tutti_layer *low, *top;
static tutti_param scale;
static int rows;
static double x[BATCH][2], wanted[BATCH];
static double h[BATCH][WIDTH], z[BATCH][WIDTH], scaled[BATCH][WIDTH], dscaled[BATCH][WIDTH];
static double y[BATCH], dy[BATCH];

static tutti_tensor view(double *data, int cols)
{
    return tutti_tensor_2d(data, TUTTI_F64, rows, cols);
}

/* The mean of (y - wanted)^2 over the batch, of all ranks' rows; dy is its gradient. */
static double forward(void)
{
    tutti_tensor tx = view(x[0], 2), th = view(h[0], WIDTH);
    tutti_tensor tscaled = view(scaled[0], WIDTH), ty = view(y, 1);
    const tutti_linear_call low_call = {.x = &tx, .y = &th, .saved = z, .saved_bytes = sizeof z};
    const tutti_linear_call top_call = {.x = &tscaled, .y = &ty};
    double loss = 0.0;
    check(tutti_linear_forward(low, ctx, &low_call));
    scale_forward(&scale, rows, h, scaled);
    check(tutti_linear_forward(top, ctx, &top_call));
    for (int row = 0; row < rows; row++) {
        loss += (y[row] - wanted[row]) * (y[row] - wanted[row]) / BATCH;
        dy[row] = 2.0 * (y[row] - wanted[row]) / BATCH;
    }
    check(tutti_comm_all_reduce(comm, ctx, &loss, &loss, 1, TUTTI_F64, TUTTI_SUM));
    return loss;
}

static void backward(tutti_grad_sync *sync)
{
    tutti_tensor tx = view(x[0], 2), tscaled = view(scaled[0], WIDTH), tdy = view(dy, 1);
    tutti_tensor tdscaled = view(dscaled[0], WIDTH);
    /* With sync, backward declares its layer's gradients complete. */
    check(tutti_linear_backward(
        top, ctx, &(tutti_linear_call){.x = &tscaled, .dy = &tdy, .dx = &tdscaled, .sync = sync}));
    scale_backward(&scale, rows, h, dscaled, dscaled);
    check(tutti_grad_sync_ready_param(sync, ctx, &scale));
    check(tutti_linear_backward(
        low, ctx,
        &(tutti_linear_call){
            .x = &tx, .dy = &tdscaled, .saved = z, .saved_bytes = sizeof z, .sync = sync}));
    check(tutti_grad_sync_finish(sync, ctx));
}

/* The difference between the summed gradient of the first factor and a finite difference. */
static double gradient_error(void)
{
    double *factor = scale.value.data, slope;
    const double there = *factor, delta = 1e-5;
    *factor = there + delta;
    slope = forward();
    *factor = there - delta;
    slope = (slope - forward()) / (2.0 * delta);
    *factor = there;
    return fabs(slope - *(double *)scale.grad.data);
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &(int){0});
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int begin = BATCH * rank / size;
    rows = BATCH * (rank + 1) / size - begin;
    for (int row = 0; row < rows; row++) { /* to be learned: the product of two numbers */
        x[row][0] = sin(begin + row), x[row][1] = cos(0.7 * (begin + row));
        wanted[row] = x[row][0] * x[row][1];
    }

    tutti_params *params;
    tutti_grad_sync *sync;
    tutti_adamw *adamw;
    tutti_step_block *block;
    check(tutti_context_create(&(tutti_context_desc){.backend = TUTTI_BACKEND_HOST}, &ctx));
    check(tutti_comm_create(ctx, NULL, &comm));
    check(tutti_layer_create_by_name(ctx, "linear", "in=2,out=16,activation=silu,dtype=f64", &low));
    check(tutti_layer_create_by_name(ctx, "linear", "in=16,out=1,dtype=f64", &top));
    scale = scale_create();
    check(tutti_params_create(ctx, &(tutti_params_desc){.master_dtype = TUTTI_F64}, &params));
    check(tutti_params_add(params, low, "low")); /* in the order of forward */
    check(tutti_params_add_param(params, &scale));
    check(tutti_params_add(params, top, "top"));
    check(tutti_params_build(params, ctx));
    check(tutti_params_init(params, ctx, 1));
    check(tutti_grad_sync_create(ctx, comm, params, NULL, &sync));
    check(tutti_adamw_create(ctx, params, &(tutti_adamw_desc){.weight_decay = 0.01}, &adamw));
    check(tutti_step_block_create(ctx, &block));

    double loss = 0.0, error = 0.0;
    for (int step = 1; step <= STEPS; step++) {
        check(tutti_step_block_set(
            block, ctx,
            &(tutti_step_values){.step = step, .learning_rate = 0.01, .loss_weight = 1.0}));
        loss = forward();
        backward(sync);
        if (step == 1) error = gradient_error();
        if (rank == 0 && step % 100 == 0) printf("step %3d  loss %.8f\n", step, loss);
        check(tutti_adamw_update(adamw, ctx, block));
    }
    if (rank == 0) printf("the gradient of the factor is the loss's slope to %.0e\n", error);
    tutti_grad_sync_destroy(&sync);
    tutti_comm_destroy(&comm); /* the rest ends with the process */
    MPI_Finalize();
    return loss < 0.01 && error < 1e-8 ? 0 : 1;
}
