/* MLP: the contract, the operation's args, the typed calls. */
#include "tutti/mlp.h"

#include <math.h>

#include "layers/activation.h"
#include "ops/mlp.h"

static const tutti_layer_option options[] = {
    {"in", "int", NULL, offsetof(tutti_mlp_desc, in), 1, INT32_MAX},
    {"hidden", "int", NULL, offsetof(tutti_mlp_desc, hidden), 1, INT32_MAX},
    {"out", "int", NULL, offsetof(tutti_mlp_desc, out), 1, INT32_MAX},
    {"dtype", "dtype", "f32", offsetof(tutti_mlp_desc, dtype), 0, 0},
    TUTTI__ACTIVATION_OPTIONS(tutti_mlp_desc, "gelu"),
    {"no_bias", "bool", "0", offsetof(tutti_mlp_desc, no_bias), 0, 0},
    {"allow_tf32", "bool", "0", offsetof(tutti_mlp_desc, allow_tf32), 0, 0},
    {"recompute", "bool", "0", offsetof(tutti_mlp_desc, recompute), 0, 0},
};
static const tutti_slot slots[] = {
    TUTTI__IN("x", .cols = "in", .dtype = "dtype", .flags = TUTTI__READ_GRAD),
    TUTTI__OUT("y", .cols = "out", .dtype = "dtype", .flags = TUTTI_SLOT_GRAD),
    TUTTI__OUT("h", .cols = "hidden", .dtype = "dtype", .flags = TUTTI_SLOT_READ),
    TUTTI__KEPT("z", .cols = "hidden", .dtype = "dtype"),
};
/* weights first: their indices are the same without biases */
enum { WEIGHT1, WEIGHT2, BIAS1, BIAS2 };
static const tutti_param_type params[] = {
    {.name = "weight1", .dims = {"hidden", "in"}, .dtype = "dtype", .decays = 1},
    {.name = "weight2", .dims = {"out", "hidden"}, .dtype = "dtype", .decays = 1},
    {.name = "bias1", .dims = {"hidden"}, .dtype = "dtype", .unless = "no_bias"},
    {.name = "bias2", .dims = {"out"}, .dtype = "dtype", .unless = "no_bias"},
};

static tutti_status check(const char *name, const void *untyped)
{
    const tutti_mlp_desc *desc = untyped;
    return tutti__activation_check(name, desc->dtype, TUTTI__ACTIVATION_OF(desc));
}

static void finish(tutti_layer *layer)
{
    const tutti_mlp_desc *desc = layer->desc;
    if (desc->recompute) tutti__layer_slot(layer, "h")->shape.flags &= ~(unsigned)TUTTI_SLOT_READ;
    if (desc->recompute || !tutti__activation_wants_z(desc->activation))
        tutti__layer_slot(layer, "z")->shape.cols = 0;
    for (int i = 0; i < layer->param_count; i++) {
        const bool up = i == WEIGHT1 || i == BIAS1;
        layer->params[i].init = TUTTI_INIT_UNIFORM;
        layer->params[i].init_bound = 1 / sqrt((double)(up ? desc->in : desc->hidden));
    }
}

/* What both layers' args have alike, and the tensors of a layer's parameters. */
static tutti__linear_args linear_of(const tutti_layer *layer, const tutti__views *views, int weight,
                                    int bias)
{
    const tutti_mlp_desc *desc = layer->desc;
    const int64_t size = (int64_t)tutti__size_of(views->grad_dtype);
    return (tutti__linear_args){
        .shape = {.rows = views->rows, .dtype = desc->dtype, .allow_tf32 = desc->allow_tf32},
        .weight = views->value[weight],
        .bias = views->value[bias],
        .dweight = views->grad[weight],
        .dbias = views->grad[bias],
        .accumulate = views->accumulate,
        .leaves = views->leaves,
        .in_leaves = views->in_leaves,
        .dweight_span = tutti__span_of(views, weight),
        .dbias_span = tutti__span_of(views, bias),
        .dweight_apart = (int64_t)views->grad_apart[weight] / size,
        .dbias_apart = (int64_t)views->grad_apart[bias] / size,
    };
}

static void fill(const tutti_layer *layer, const tutti__views *views, void *untyped)
{
    const tutti_mlp_desc *desc = layer->desc;
    tutti__mlp_args *args = untyped;
    args->recompute = desc->recompute;
    args->up = linear_of(layer, views, WEIGHT1, BIAS1);
    args->up.shape.in = desc->in;
    args->up.shape.out = desc->hidden;
    args->up.shape.activation = TUTTI__ACTIVATION_OF(desc);
    args->up.x = views->in[0];
    args->up.y = views->out[1];
    args->up.saved = views->kept[0];
    args->up.dx = views->din[0];
    args->down = linear_of(layer, views, WEIGHT2, BIAS2);
    args->down.shape.in = desc->hidden;
    args->down.shape.out = desc->out;
    args->down.x = views->out[1];
    args->down.y = views->out[0];
    args->down.dy = views->upstream[0];
}

const tutti__layer_class tutti__mlp_class = {
    .type = {.name = "mlp",
             .flags = TUTTI_LAYER_BACKWARD,
             TUTTI__TABLE(option),
             TUTTI__TABLE(slot),
             TUTTI__TABLE(param)},
    TUTTI__OPERATION(tutti_mlp_desc, mlp),
    .check = check,
    .finish = finish,
    .fill = fill,
    .takes_leaves = 1u << TUTTI_BACKEND_HOST | 1u << TUTTI_BACKEND_CUDA,
    .adds_pairs = {[WEIGHT1] = 1u << TUTTI_BACKEND_CUDA,
                   [WEIGHT2] = 1u << TUTTI_BACKEND_CUDA,
                   [BIAS1] = 1u << TUTTI_BACKEND_CUDA,
                   [BIAS2] = 1u << TUTTI_BACKEND_CUDA},
    .has_stages = true,
};

TUTTI__PUBLIC(mlp, .in = {c->x}, .out = {c->y, c->h}, .upstream = {c->dy}, .din = {c->dx})
TUTTI__PUBLIC_CALL(mlp, backward)
