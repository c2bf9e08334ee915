/* Rotary positions: the contract, the operation's args, the typed calls. */
#include "tutti/rope.h"

#include "core/layer.h"
#include "ops/rope.h"

static const tutti_layer_option options[] = {
    {"cols", "int", NULL, offsetof(tutti_rope_desc, cols), 1, 1 << 20},
    {"head_size", "int", NULL, offsetof(tutti_rope_desc, head_size), 2, 1 << 16},
    {"rotated", "int", "0", offsetof(tutti_rope_desc, rotated), 0, 1 << 16},
    {"dtype", "dtype", "f32", offsetof(tutti_rope_desc, dtype), 0, 0},
    {"base", "real", "10000", offsetof(tutti_rope_desc, base), 1, (double)(INT64_C(1) << 40)},
    {"pairing", "halves|interleaved", "halves", offsetof(tutti_rope_desc, pairing), 0, 0},
    {"period", "int", "0", offsetof(tutti_rope_desc, period), 0, (double)(INT64_C(1) << 59)},
    {"max_positions", "int", "2147483648", offsetof(tutti_rope_desc, max_positions), 0,
     (double)(INT64_C(1) << 31)},
};
static const tutti_slot slots[] = {
    TUTTI__IN("x", .cols = "cols", .dtype = "dtype", .flags = TUTTI_SLOT_GRAD, .grad_may_be = "dy"),
    TUTTI__IN("positions", .dtype = "i32", .below = "max_positions",
              .flags = TUTTI_SLOT_OPTIONAL | TUTTI_SLOT_READ),
    TUTTI__OUT("y", .cols = "cols", .dtype = "dtype", .flags = TUTTI_SLOT_GRAD, .may_be = "x"),
};

static tutti_status check(const char *name, const void *untyped)
{
    const tutti_rope_desc *desc = untyped;
    TUTTI_REQUIRE(desc->head_size % 2 == 0 && desc->cols % desc->head_size == 0,
                  "%s: head_size is %lld, want an even divisor of cols, %lld", name,
                  (long long)desc->head_size, (long long)desc->cols);
    TUTTI_REQUIRE(desc->rotated % 2 == 0 && desc->rotated <= desc->head_size,
                  "%s: rotated is %lld, want an even number up to head_size, %lld", name,
                  (long long)desc->rotated, (long long)desc->head_size);
    return TUTTI_OK;
}

static void finish(tutti_layer *layer)
{
    layer->reads_first_row = true;
    layer->tells_row = UINT32_C(1) << (tutti__layer_slot(layer, "positions") - layer->slots);
}

static void fill(const tutti_layer *layer, const tutti__views *views, void *args)
{
    const tutti_rope_desc *desc = layer->desc;
    *(tutti__rope_args *)args = (tutti__rope_args){
        .rows = views->rows,
        .cols = desc->cols,
        .head_size = desc->head_size,
        .pairs = (desc->rotated > 0 ? desc->rotated : desc->head_size) / 2,
        .dtype = desc->dtype,
        .base = desc->base,
        .interleaved = desc->pairing == TUTTI_ROPE_INTERLEAVED,
        .first_row = views->first_row,
        .period = desc->period,
        .positions = views->in[1].data,
        .max_positions = desc->max_positions,
        .x = views->in[0],
        .y = views->out[0],
        .dy = views->upstream[0],
        .dx = views->din[0],
        .finding = layer->finding,
    };
}

static tutti_status explain(const tutti__finding *finding)
{
    return tutti__fail(TUTTI_ERR_DATA, "rope: position %d of row %lld is not in [0, %lld)",
                       (int)finding->value, (long long)finding->row, (long long)finding->limit);
}

const tutti__layer_class tutti__rope_class = {
    .type = {.name = "rope",
             .flags = TUTTI_LAYER_BACKWARD | TUTTI_LAYER_ROWS_ALONE,
             TUTTI__TABLE(option),
             TUTTI__TABLE(slot)},
    TUTTI__OPERATION(tutti_rope_desc, rope),
    .check = check,
    .finish = finish,
    .fill = fill,
    .explain = explain,
};

TUTTI__PUBLIC(rope, .in = {c->x, c->positions}, .out = {c->y}, .upstream = {c->dy}, .din = {c->dx})
TUTTI__PUBLIC_CALL(rope, backward)
