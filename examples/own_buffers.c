/* Teaches: an existing trainer, with its own buffers, gradients and optimizer, uses one part of
 * Tutti: the exchange, which sums its gradients over the ranks while it still computes.  No layer,
 * no store: a parameter is a name and two arrays.
 *
 * Build: mpicc own_buffers.c -o own_buffers $(pkg-config --cflags --libs tutti) -lm
 * Run:   mpirun -np 2 ./own_buffers */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <tutti/tutti.h>

enum { ROWS = 64, COLS = 3, STEPS = 300 };

/* The trainer: y = x weight + bias is fitted to known numbers. */
static double x[ROWS][COLS], wanted[ROWS];
static double weight[COLS], bias;
static double dweight[COLS], dbias;

static const double true_weight[COLS] = {0.5, -1.25, 2.0}, true_bias = -0.75;

static void check(tutti_status status)
{
    if (status == TUTTI_OK) return;
    fprintf(stderr, "%s\n", tutti_last_error());
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* A parameter over the trainer's memory. */
static tutti_param over(const char *name, double *value, double *grad, int count)
{
    tutti_param param = {.value = tutti_tensor_1d(value, TUTTI_F64, count)};
    const tutti_tensor gradient = tutti_tensor_1d(grad, TUTTI_F64, count);
    snprintf(param.name, sizeof param.name, "%s", name);
    check(tutti_param_bind(&param, &param.value, &gradient));
    return param;
}

/* dy of the mean of (y - wanted)^2 over all ranks' rows. */
static double slope(int row)
{
    double y = bias;
    for (int col = 0; col < COLS; col++) y += x[row][col] * weight[col];
    return 2.0 * (y - wanted[row]) / ROWS;
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &(int){0});
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int first = ROWS * rank / size, last = ROWS * (rank + 1) / size; /* this rank's rows */
    for (int row = 0; row < ROWS; row++) {
        wanted[row] = true_bias;
        for (int col = 0; col < COLS; col++) {
            x[row][col] = sin(1.0 + row * (col + 1));
            wanted[row] += x[row][col] * true_weight[col];
        }
    }

    tutti_context *ctx;
    tutti_comm *comm;
    tutti_grad_sync *sync;
    check(tutti_context_create(&(tutti_context_desc){.backend = TUTTI_BACKEND_HOST}, &ctx));
    check(tutti_comm_create(ctx, NULL, &comm));
    const tutti_param w = over("weight", weight, dweight, COLS), b = over("bias", &bias, &dbias, 1);
    const tutti_param *list[] = {&b, &w}; /* in the order in which their gradients are complete */
    check(tutti_grad_sync_create_list(ctx, comm, list, 2, NULL, &sync));

    for (int step = 0; step < STEPS; step++) {
        dbias = 0.0;
        for (int row = first; row < last; row++) dbias += slope(row);
        check(tutti_grad_sync_ready_param(sync, ctx, &b)); /* its sum is under way … */
        for (int col = 0; col < COLS; col++) {
            dweight[col] = 0.0;
            for (int row = first; row < last; row++) dweight[col] += slope(row) * x[row][col];
        }
        check(tutti_grad_sync_ready_param(sync, ctx, &w));
        check(tutti_grad_sync_finish(sync, ctx)); /* … and both are complete, on every rank */
        for (int col = 0; col < COLS; col++) weight[col] -= 0.5 * dweight[col];
        bias -= 0.5 * dbias;
    }

    double error = fabs(bias - true_bias);
    for (int col = 0; col < COLS; col++) error = fmax(error, fabs(weight[col] - true_weight[col]));
    if (rank == 0)
        printf("weight %.6f %.6f %.6f, bias %.6f\n", weight[0], weight[1], weight[2], bias);
    tutti_grad_sync_destroy(&sync);
    tutti_comm_destroy(&comm);
    tutti_context_destroy(&ctx);
    MPI_Finalize();
    return error < 1e-9 ? 0 : 1;
}
