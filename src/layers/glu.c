/* GLU: the contract, the operation's args, the typed calls. */
#include "tutti/glu.h"

#include "layers/activation.h"
#include "ops/glu.h"

static const tutti_layer_option options[] = {
    {"cols", "int", NULL, offsetof(tutti_glu_desc, cols), 1, INT32_MAX},
    {"dtype", "dtype", "f32", offsetof(tutti_glu_desc, dtype), 0, 0},
    TUTTI__ACTIVATION_OPTIONS(tutti_glu_desc, "silu"),
};
static const tutti_slot slots[] = {
    TUTTI__IN("a", .cols = "cols", .dtype = "dtype", .flags = TUTTI__READ_GRAD,
              .grad_may_be = "dy a"),
    TUTTI__IN("b", .cols = "cols", .dtype = "dtype", .flags = TUTTI__READ_GRAD,
              .grad_may_be = "dy b"),
    TUTTI__OUT("y", .cols = "cols", .dtype = "dtype", .flags = TUTTI_SLOT_GRAD),
};

static tutti_status check(const char *name, const void *untyped)
{
    const tutti_glu_desc *desc = untyped;
    return tutti__activation_check(name, desc->dtype, TUTTI__ACTIVATION_OF(desc));
}

static void fill(const tutti_layer *layer, const tutti__views *views, void *args)
{
    const tutti_glu_desc *desc = layer->desc;
    *(tutti__glu_args *)args = (tutti__glu_args){
        .rows = views->rows,
        .cols = desc->cols,
        .dtype = desc->dtype,
        .activation = TUTTI__ACTIVATION_OF(desc),
        .a = views->in[0],
        .b = views->in[1],
        .y = views->out[0],
        .dy = views->upstream[0],
        .da = views->din[0],
        .db = views->din[1],
    };
}

const tutti__layer_class tutti__glu_class = {
    .type = {.name = "glu",
             .flags = TUTTI_LAYER_BACKWARD | TUTTI_LAYER_ROWS_ALONE,
             TUTTI__TABLE(option),
             TUTTI__TABLE(slot)},
    TUTTI__OPERATION(tutti_glu_desc, glu),
    .check = check,
    .fill = fill,
};

TUTTI__PUBLIC(glu, .in = {c->a, c->b}, .out = {c->y}, .upstream = {c->dy}, .din = {c->da, c->db})
TUTTI__PUBLIC_CALL(glu, backward)
