/* Teaches: one layer inside a trainer of your own, which keeps its memory, its loss and its
 * optimizer; Tutti computes and sums the gradients over the ranks.  README shows the part from the
 * first line of train to its last.
 * Build: cc embed.c $(pkg-config --cflags --libs tutti ompi-c)
 * Run:   mpirun -np 2 ./a.out */
#include <mpi.h>
#include <stdio.h>
#include <tutti/tutti.h>

#define TRY(call) \
    if ((call) != TUTTI_OK) return puts(tutti_last_error()), MPI_Abort(MPI_COMM_WORLD, 2)

static int train(float x[2][4], float y[2], float weight[4], float grad[4])
{
    tutti_tensor tx = tutti_tensor_2d(x, TUTTI_F32, 2, 4), ty = tutti_tensor_2d(y, TUTTI_F32, 2, 1);
    tutti_tensor tw = tutti_tensor_2d(weight, TUTTI_F32, 1, 4), tg = tw;
    tutti_context *ctx;
    tutti_comm *comm;
    tutti_layer *layer;
    tutti_grad_sync *sync;
    tg.data = grad;
    TRY(tutti_context_create(&(tutti_context_desc){.backend = TUTTI_BACKEND_HOST}, &ctx));
    TRY(tutti_comm_create(ctx, NULL, &comm)); /* all ranks of MPI_COMM_WORLD */
    TRY(tutti_layer_create_by_name(ctx, "linear", "in=4,out=1,no_bias=1", &layer));
    TRY(tutti_param_bind(tutti_layer_param(layer, 0), &tw, &tg));
    const tutti_param *trained[] = {tutti_layer_param(layer, 0)};
    TRY(tutti_grad_sync_create_list(ctx, comm, trained, 1, NULL, &sync));
    const tutti_linear_call call = {.x = &tx, .y = &ty, .dy = &ty, .sync = sync};
    for (int step = 0; step < 200; step++) {
        TRY(tutti_linear_forward(layer, ctx, &call));
        for (int row = 0; row < 2; row++) /* y becomes the gradient of your loss: wanted is 1 */
            y[row] = (y[row] - 1) / (float)(2 * tutti_comm_world_size(comm));
        TRY(tutti_linear_backward(layer, ctx, &call)); /* starts the sum over the ranks … */
        TRY(tutti_grad_sync_finish(sync, ctx));        /* … which is complete in grad */
        for (int i = 0; i < 4; i++) weight[i] -= 0.05f * grad[i];
    }
    tutti_grad_sync_destroy(&sync);
    tutti_layer_destroy(&layer);
    tutti_comm_destroy(&comm);
    tutti_context_destroy(&ctx);
    return 0;
}

int main(int argc, char **argv)
{
    float x[2][4] = {{1, 2, 3, 4}, {4, 3, 2, 1}}, y[2], weight[4] = {0}, grad[4];
    int rank;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &(int){0});
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int code = train(x, y, weight, grad);
    if (rank == 0)
        printf("weight %.3f %.3f %.3f %.3f\n", weight[0], weight[1], weight[2], weight[3]);
    MPI_Finalize();
    return code;
}
