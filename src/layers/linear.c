/* FusedLinear: the contract, the operation's args, the typed calls. */
#include "tutti/linear.h"

#include <math.h>

#include "layers/activation.h"
#include "ops/linear.h"

static const tutti_layer_option options[] = {
    {"in", "int", NULL, offsetof(tutti_linear_desc, in), 1, INT32_MAX},
    {"out", "int", NULL, offsetof(tutti_linear_desc, out), 1, INT32_MAX},
    {"dtype", "dtype", "f32", offsetof(tutti_linear_desc, dtype), 0, 0},
    TUTTI__ACTIVATION_OPTIONS(tutti_linear_desc, "none"),
    {"no_bias", "bool", "0", offsetof(tutti_linear_desc, no_bias), 0, 0},
    {"allow_tf32", "bool", "0", offsetof(tutti_linear_desc, allow_tf32), 0, 0},
    {"recompute", "bool", "0", offsetof(tutti_linear_desc, recompute), 0, 0},
};
static const tutti_slot slots[] = {
    TUTTI__IN("x", .cols = "in", .dtype = "dtype", .flags = TUTTI__READ_GRAD),
    TUTTI__OUT("y", .cols = "out", .dtype = "dtype", .flags = TUTTI_SLOT_READ | TUTTI_SLOT_GRAD),
    TUTTI__KEPT("z", .cols = "out", .dtype = "dtype"),
};
static const tutti_param_type params[] = {
    {.name = "weight", .dims = {"out", "in"}, .dtype = "dtype", .decays = 1},
    {.name = "bias", .dims = {"out"}, .dtype = "dtype", .unless = "no_bias"},
};

static tutti_status check(const char *name, const void *untyped)
{
    const tutti_linear_desc *desc = untyped;
    return tutti__activation_check(name, desc->dtype, TUTTI__ACTIVATION_OF(desc));
}

/* z is kept if backward needs it and does not recompute it; otherwise backward reads y, except for
 * none. */
static void finish(tutti_layer *layer)
{
    const tutti_linear_desc *desc = layer->desc;
    const bool wants_z = tutti__activation_wants_z(desc->activation);
    if (!wants_z || desc->recompute) tutti__layer_slot(layer, "z")->shape.cols = 0;
    if (wants_z || desc->activation == TUTTI_ACT_NONE)
        tutti__layer_slot(layer, "y")->shape.flags &= ~(unsigned)TUTTI_SLOT_READ;
    for (int i = 0; i < layer->param_count; i++) {
        layer->params[i].init = TUTTI_INIT_UNIFORM;
        layer->params[i].init_bound = 1 / sqrt((double)desc->in);
    }
}

static void fill(const tutti_layer *layer, const tutti__views *views, void *args)
{
    const tutti_linear_desc *desc = layer->desc;
    *(tutti__linear_args *)args = (tutti__linear_args){
        .shape =
            {
                .rows = views->rows,
                .in = desc->in,
                .out = desc->out,
                .dtype = desc->dtype,
                .activation = TUTTI__ACTIVATION_OF(desc),
                .allow_tf32 = desc->allow_tf32,
                .recompute = desc->recompute,
            },
        .x = views->in[0],
        .weight = views->value[0],
        .bias = views->value[1],
        .y = views->out[0],
        .saved = views->kept[0],
        .dy = views->upstream[0],
        .dx = views->din[0],
        .dweight = views->grad[0],
        .dbias = views->grad[1],
        .accumulate = views->accumulate,
        .leaves = views->leaves,
        .in_leaves = views->in_leaves,
        .dweight_span = tutti__span_of(views, 0),
        .dbias_span = tutti__span_of(views, 1),
        .dweight_apart = (int64_t)(views->grad_apart[0] / tutti__size_of(views->grad_dtype)),
        .dbias_apart = (int64_t)(views->grad_apart[1] / tutti__size_of(views->grad_dtype)),
    };
}

const tutti__layer_class tutti__linear_class = {
    .type = {.name = "linear",
             .flags = TUTTI_LAYER_BACKWARD,
             TUTTI__TABLE(option),
             TUTTI__TABLE(slot),
             TUTTI__TABLE(param)},
    TUTTI__OPERATION(tutti_linear_desc, linear),
    .check = check,
    .finish = finish,
    .fill = fill,
    .takes_leaves = 1u << TUTTI_BACKEND_HOST | 1u << TUTTI_BACKEND_CUDA,
    .adds_pairs = {1u << TUTTI_BACKEND_CUDA, 1u << TUTTI_BACKEND_CUDA},
    .has_stages = true,
};

TUTTI__PUBLIC(linear, .in = {c->x}, .out = {c->y}, .upstream = {c->dy}, .din = {c->dx})
TUTTI__PUBLIC_CALL(linear, backward)
