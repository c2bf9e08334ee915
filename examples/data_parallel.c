/* Teaches: the smallest data-parallel step: two layers in a store, gradients summed over the ranks
 * while backward runs, AdamW.  The losses do not depend on the number of ranks.
 *
 * Build: mpicc data_parallel.c -o data_parallel $(pkg-config --cflags --libs tutti) -lm
 * Run:   mpirun -np 2 ./data_parallel */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <tutti/tutti.h>

enum { BATCH = 250, STEPS = 150 };

static void check(tutti_status status)
{
    if (status == TUTTI_OK) return;
    fprintf(stderr, "%s\n", tutti_last_error());
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* The same tensor in device memory, with its values if it has any. */
static tutti_tensor on_device(tutti_context *ctx, tutti_tensor tensor)
{
    const void *values = tensor.data;
    size_t bytes = (size_t)tutti_tensor_count(&tensor) * tutti_dtype_size(tensor.dtype);
    check(tutti_alloc(ctx, bytes, &tensor.data));
    if (values) check(tutti_copy(ctx, tensor.data, values, bytes));
    return tensor;
}

int main(int argc, char **argv)
{
    int rank, size, gpus = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &(int){0});
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    tutti_device_count(TUTTI_BACKEND_CUDA, &gpus); /* without any, or without CUDA: on the CPU */

    tutti_context *ctx;
    tutti_comm *comm;
    tutti_layer *low, *top, *loss;
    tutti_params *params;
    tutti_grad_sync *sync;
    tutti_adamw *adamw;
    tutti_step_block *block;
    check(tutti_context_create(&(tutti_context_desc){.device = gpus ? rank % gpus : 0}, &ctx));
    check(tutti_comm_create(ctx, NULL, &comm));
    check(tutti_layer_create_by_name(ctx, "linear", "in=2,out=32,activation=silu,dtype=f64", &low));
    check(tutti_layer_create_by_name(ctx, "linear", "in=32,out=2,dtype=f64", &top));
    check(tutti_layer_create_by_name(ctx, "cross_entropy", "cols=2,dtype=f64", &loss));
    check(tutti_params_create(ctx, &(tutti_params_desc){.master_dtype = TUTTI_F64}, &params));
    check(tutti_params_add(params, low, "hidden")); /* in the order of forward */
    check(tutti_params_add(params, top, "output"));
    check(tutti_params_build(params, ctx));
    check(tutti_params_init(params, ctx, 1)); /* equal on all ranks, as they have one seed */
    check(tutti_grad_sync_create(ctx, comm, params, NULL, &sync));
    check(tutti_adamw_create(ctx, params, &(tutti_adamw_desc){.weight_decay = 0.01}, &adamw));
    check(tutti_step_block_create(ctx, &block));

    /* This rank's rows of the batch: points of a disc, and whether they are far from its centre. */
    const int first = BATCH * rank / size, rows = BATCH * (rank + 1) / size - first;
    double points[BATCH][2], sum;
    int32_t far[BATCH];
    for (int i = 0; i < rows; i++) {
        const double radius = sqrt((first + i + 0.5) / BATCH), angle = 2.4 * (first + i);
        points[i][0] = radius * cos(angle), points[i][1] = radius * sin(angle);
        far[i] = radius > 0.7;
    }
    tutti_tensor x = on_device(ctx, tutti_tensor_2d(points, TUTTI_F64, rows, 2));
    tutti_tensor label = on_device(ctx, tutti_tensor_1d(far, TUTTI_I32, rows));
    const tutti_tensor wide = tutti_tensor_2d(NULL, TUTTI_F64, rows, 32);
    tutti_tensor h = on_device(ctx, wide), dh = on_device(ctx, wide), z = on_device(ctx, wide);
    tutti_tensor y = on_device(ctx, tutti_tensor_2d(NULL, TUTTI_F64, rows, 2));
    tutti_tensor total = on_device(ctx, tutti_tensor_1d(NULL, TUTTI_F64, 1));
    /* The calls, of forward and backward alike; y becomes dy. */
    tutti_linear_call low_call = {.x = &x, .y = &h, .dy = &dh, .saved = z.data, .sync = sync};
    tutti_linear_call top_call = {.x = &h, .y = &y, .dy = &y, .dx = &dh, .sync = sync};
    tutti_cross_entropy_call entropy = {.logits = &y, .labels = &label, .dlogits = &y};
    low_call.saved_bytes = tutti_layer_saved_bytes(low, rows);
    entropy.loss_sum = &total, entropy.step = block;
    /* Each row's loss is weighted by the global batch, so its gradients are simply summed. */
    tutti_step_values values = {.step = 1, .learning_rate = 0.02, .loss_weight = 1.0 / BATCH};
    for (int step = 1; step <= STEPS; step++, values.step++) {
        check(tutti_step_block_set(block, ctx, &values));
        check(tutti_linear_forward(low, ctx, &low_call));
        check(tutti_linear_forward(top, ctx, &top_call));
        check(tutti_cross_entropy_forward(loss, ctx, &entropy));
        check(tutti_linear_backward(top, ctx, &top_call)); /* starts its gradients' sums … */
        check(tutti_linear_backward(low, ctx, &low_call));
        check(tutti_grad_sync_finish(sync, ctx)); /* … which are complete after this */
        check(tutti_adamw_update(adamw, ctx, block));
        check(tutti_comm_all_reduce(comm, ctx, total.data, total.data, 1, TUTTI_F64, TUTTI_SUM));
        check(tutti_copy(ctx, &sum, total.data, sizeof sum));
        if (rank == 0 && step % 30 == 0) printf("step %3d  loss %.8f\n", step, sum / BATCH);
    }
    tutti_grad_sync_destroy(&sync);
    tutti_comm_destroy(&comm); /* the rest ends with the process */
    MPI_Finalize();
    return sum < 0.1 * BATCH ? 0 : 1;
}
