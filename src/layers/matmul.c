/* Batched matrix product: the contract, the operation's args, the typed calls. */
#include "tutti/matmul.h"

#include "core/layer.h"
#include "ops/matmul.h"

static const tutti_layer_option options[] = {
    {"m", "int", NULL, offsetof(tutti_matmul_desc, m), 1, INT32_MAX},
    {"n", "int", NULL, offsetof(tutti_matmul_desc, n), 1, INT32_MAX},
    {"k", "int", NULL, offsetof(tutti_matmul_desc, k), 1, INT32_MAX},
    {"transpose_a", "bool", "0", offsetof(tutti_matmul_desc, transpose_a), 0, 0},
    {"transpose_b", "bool", "0", offsetof(tutti_matmul_desc, transpose_b), 0, 0},
    {"dtype", "dtype", "f32", offsetof(tutti_matmul_desc, dtype), 0, 0},
    {"allow_tf32", "bool", "0", offsetof(tutti_matmul_desc, allow_tf32), 0, 0},
};
/* Without transposes. */
static const tutti_slot slots[] = {
    TUTTI__IN("a", .lines = "m", .cols = "k", .dtype = "dtype", .flags = TUTTI__READ_GRAD),
    TUTTI__IN("b", .lines = "k", .cols = "n", .dtype = "dtype", .flags = TUTTI__READ_GRAD),
    TUTTI__OUT("c", .lines = "m", .cols = "n", .dtype = "dtype", .flags = TUTTI_SLOT_GRAD),
};

static void finish(tutti_layer *layer)
{
    const tutti_matmul_desc *desc = layer->desc;
    if (desc->transpose_a) tutti__layer_slot(layer, "a")->shape.lines = desc->k;
    if (desc->transpose_b) tutti__layer_slot(layer, "b")->shape.lines = desc->n;
}

static tutti__items items_of(const tutti__views *views, tutti__part part, int index)
{
    const tutti__matrix *rows = &views->tensors[part][index];
    return (tutti__items){
        .matrix = {rows->data, rows->dtype, views->lines[part][index]},
        .apart = views->rows > 1 ? rows->stride : 0,
    };
}

static void fill(const tutti_layer *layer, const tutti__views *views, void *args)
{
    const tutti_matmul_desc *desc = layer->desc;
    *(tutti__matmul_args *)args = (tutti__matmul_args){
        .batch = views->rows,
        .m = desc->m,
        .n = desc->n,
        .k = desc->k,
        .transpose_a = desc->transpose_a,
        .transpose_b = desc->transpose_b,
        .dtype = desc->dtype,
        .allow_tf32 = desc->allow_tf32,
        .a = items_of(views, TUTTI__PART_IN, 0),
        .b = items_of(views, TUTTI__PART_IN, 1),
        .c = items_of(views, TUTTI__PART_OUT, 0),
        .dc = items_of(views, TUTTI__PART_UPSTREAM, 0),
        .da = items_of(views, TUTTI__PART_DIN, 0),
        .db = items_of(views, TUTTI__PART_DIN, 1),
    };
}

const tutti__layer_class tutti__matmul_class = {
    .type = {.name = "matmul",
             .flags = TUTTI_LAYER_BACKWARD,
             TUTTI__TABLE(option),
             TUTTI__TABLE(slot)},
    TUTTI__OPERATION(tutti_matmul_desc, matmul),
    .finish = finish,
    .fill = fill,
};

TUTTI__PUBLIC(matmul, .in = {c->a, c->b}, .out = {c->c}, .upstream = {c->dc}, .din = {c->da, c->db})
TUTTI__PUBLIC_CALL(matmul, backward)
