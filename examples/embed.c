/* A layer inside a trainer of your own: your memory, loss and optimizer; Tutti computes and sums over the ranks. */
#include <mpi.h>
#include <stdio.h>
#include <tutti/tutti.h>
#define TRY(call) \
    if ((call) != TUTTI_OK) return puts(tutti_last_error()), MPI_Abort(MPI_COMM_WORLD, 2)

int main(int argc, char **argv)
{
    float x[2][4] = {{1, 2, 3, 4}, {4, 3, 2, 1}}, y[2], weight[4] = {0}, grad[4];
    tutti_tensor tx = tutti_tensor_2d(x, TUTTI_F32, 2, 4), ty = tutti_tensor_2d(y, TUTTI_F32, 2, 1);
    tutti_tensor tweight = tutti_tensor_2d(weight, TUTTI_F32, 1, 4);
    tutti_tensor tgrad = tutti_tensor_2d(grad, TUTTI_F32, 1, 4);
    tutti_context *ctx;
    tutti_comm *comm;
    tutti_layer *layer;
    tutti_grad_sync *sync;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &(int){0});
    TRY(tutti_context_create(&(tutti_context_desc){.backend = TUTTI_BACKEND_HOST}, &ctx));
    TRY(tutti_comm_create(ctx, NULL, &comm)); /* all ranks of MPI_COMM_WORLD */
    TRY(tutti_layer_create_by_name(ctx, "linear", "in=4,out=1,has_bias=0", &layer));
    TRY(tutti_param_bind(tutti_layer_param(layer, 0), &tweight, &tgrad));
    const tutti_param *trained[] = {tutti_layer_param(layer, 0)};
    TRY(tutti_grad_sync_create_list(comm, ctx, trained, 1, NULL, &sync));
    for (int step = 0; step < 200; step++) {
        TRY(tutti_linear_forward(layer, ctx, &tx, &ty, NULL));
        for (int row = 0; row < 2; row++) /* y becomes the gradient of your loss: wanted is 1 */
            y[row] = (y[row] - 1) / (float)(2 * tutti_comm_world_size(comm));
        TRY(tutti_linear_backward(layer, ctx, &tx, NULL, NULL, &ty, NULL, 0));
        TRY(tutti_grad_sync_ready(sync, ctx, layer)); /* the sum over the ranks sets out … */
        TRY(tutti_grad_sync_finish(sync, ctx));       /* … and has arrived in grad */
        for (int i = 0; i < 4; i++) weight[i] -= 0.05f * grad[i];
    }
    if (tutti_comm_rank(comm) == 0)
        printf("weight %.3f %.3f %.3f %.3f\n", weight[0], weight[1], weight[2], weight[3]);
    tutti_grad_sync_destroy(&sync);
    tutti_layer_destroy(&layer);
    tutti_comm_destroy(&comm);
    tutti_context_destroy(&ctx);
    MPI_Finalize();
    return 0;
}
