/* One layer on the host: y = relu(x W^T) with numbers that are exact. */
#include <stdio.h>
#include <tutti/tutti.h>

int main(void)
{
    float x[2] = {1, 2}, weight[2] = {3, 4}, grad[2], y[1] = {0};
    tutti_tensor tx = tutti_tensor_2d(x, TUTTI_F32, 1, 2);
    tutti_tensor ty = tutti_tensor_2d(y, TUTTI_F32, 1, 1);
    tutti_tensor tweight = tutti_tensor_2d(weight, TUTTI_F32, 1, 2);
    tutti_tensor tgrad = tutti_tensor_2d(grad, TUTTI_F32, 1, 2);
    tutti_context_desc host = TUTTI_CONTEXT_DESC_INIT;
    tutti_linear_desc linear = TUTTI_LINEAR_DESC_INIT;
    tutti_context *ctx = NULL;
    tutti_layer *layer = NULL;

    host.backend = TUTTI_BACKEND_HOST;
    linear.in = 2;
    linear.out = 1;
    linear.no_bias = 1;
    linear.activation = TUTTI_ACT_RELU;
    int good =
        tutti_context_create(&host, &ctx) == TUTTI_OK &&
        tutti_linear_create(ctx, &linear, &layer) == TUTTI_OK &&
        tutti_param_bind(tutti_layer_param(layer, 0), &tweight, &tgrad) == TUTTI_OK &&
        tutti_linear_forward(layer, ctx, &(tutti_linear_call){.x = &tx, .y = &ty}) == TUTTI_OK;
    tutti_layer_destroy(&layer);
    tutti_context_destroy(&ctx);
    if (!good) {
        puts(tutti_last_error());
        return 1;
    }
    printf("tutti %s: %g\n", tutti_version(), (double)y[0]);
    return y[0] == 11 ? 0 : 1;
}
