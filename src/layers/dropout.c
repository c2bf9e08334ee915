/* BiasDropoutActivation: the contract, the operation's args, the typed calls. */
#include "tutti/dropout.h"

#include <math.h>

#include "layers/activation.h"
#include "ops/dropout.h"

static const tutti_layer_option options[] = {
    {"cols", "int", NULL, offsetof(tutti_dropout_desc, cols), 1, 1 << 20},
    {"dtype", "dtype", "f32", offsetof(tutti_dropout_desc, dtype), 0, 0},
    TUTTI__ACTIVATION_OPTIONS(tutti_dropout_desc, "none"),
    {"p", "real", "0", offsetof(tutti_dropout_desc, p), 0, 1},
    {"layer_number", "int", "0", offsetof(tutti_dropout_desc, layer_number), 0, (1 << 15) - 1},
    {"no_bias", "bool", "0", offsetof(tutti_dropout_desc, no_bias), 0, 0},
};
static const tutti_slot slots[] = {
    TUTTI__IN("x", .cols = "cols", .dtype = "dtype", .flags = TUTTI__READ_GRAD,
              .grad_may_be = "dy"),
    TUTTI__IN("residual", .cols = "cols", .dtype = "dtype", .flags = TUTTI_SLOT_OPTIONAL),
    TUTTI__OUT("y", .cols = "cols", .dtype = "dtype", .flags = TUTTI_SLOT_GRAD,
               .may_be = "residual"),
};
static const tutti_param_type params[] = {
    {.name = "bias", .dims = {"cols"}, .dtype = "dtype", .unless = "no_bias"},
};

static tutti_status check(const char *name, const void *untyped)
{
    const tutti_dropout_desc *desc = untyped;
    return tutti__activation_check(name, desc->dtype, TUTTI__ACTIVATION_OF(desc));
}

static void finish(tutti_layer *layer)
{
    const tutti_dropout_desc *desc = layer->desc;
    layer->reads_first_row = layer->reads_step = desc->p > 0;
    if (desc->activation == TUTTI_ACT_NONE)
        tutti__layer_slot(layer, "x")->shape.flags &= ~(unsigned)TUTTI_SLOT_READ;
}

static void fill(const tutti_layer *layer, const tutti__views *views, void *args)
{
    const tutti_dropout_desc *desc = layer->desc;
    *(tutti__dropout_args *)args = (tutti__dropout_args){
        .rows = views->rows,
        .cols = desc->cols,
        .first_row = views->first_row,
        .dtype = desc->dtype,
        .activation = TUTTI__ACTIVATION_OF(desc),
        .dropped = (uint32_t)lrint(desc->p * 65536),
        .layer_number = (uint32_t)desc->layer_number,
        .step = views->step,
        .x = views->in[0],
        .bias = views->value[0],
        .residual = views->in[1],
        .y = views->out[0],
        .dy = views->upstream[0],
        .dx = views->din[0],
        .dbias = views->grad[0],
        .accumulate = views->accumulate,
    };
}

const tutti__layer_class tutti__dropout_class = {
    .type = {.name = "dropout",
             .flags = TUTTI_LAYER_STEP | TUTTI_LAYER_BACKWARD | TUTTI_LAYER_ROWS_ALONE,
             TUTTI__TABLE(option),
             TUTTI__TABLE(slot),
             TUTTI__TABLE(param)},
    TUTTI__OPERATION(tutti_dropout_desc, dropout),
    .check = check,
    .finish = finish,
    .fill = fill,
};

TUTTI__PUBLIC(dropout, .in = {c->x, c->residual}, .out = {c->y}, .upstream = {c->dy},
              .din = {c->dx})
TUTTI__PUBLIC_CALL(dropout, backward)
