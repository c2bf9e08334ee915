/* MSE: the contract, the operation's args, the typed call. */
#include "tutti/mse.h"

#include "layers/loss.h"

static const tutti_layer_option options[] = {
    TUTTI__LOSS_OPTIONS(tutti_mse_desc),
};
static const tutti_slot slots[] = {
    TUTTI__LOSS_SLOTS("prediction", 0, 0),
};

static void fill(const tutti_layer *layer, const tutti__views *views, void *untyped)
{
    tutti__loss_args *args = untyped;
    *args = tutti__loss_args_of(layer, views, ((const tutti_mse_desc *)layer->desc)->cols);
    args->kind = TUTTI__LOSS_MSE;
    args->each *= 2; /* of a square's derivative */
}

const tutti__layer_class tutti__mse_class = {
    .type = {.name = "mse",
             .flags = TUTTI_LAYER_STEP | TUTTI_LAYER_ROWS_ALONE,
             TUTTI__TABLE(option),
             TUTTI__TABLE(slot)},
    TUTTI__OPERATION(tutti_mse_desc, loss),
    .fill = fill,
};

TUTTI__PUBLIC(mse, .in = {c->prediction, c->target}, .out = {c->loss, c->loss_sum, c->dprediction})
