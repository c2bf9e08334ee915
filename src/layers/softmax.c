/* Softmax and log-softmax: the contract, the operation's args, the typed calls. */
#include "tutti/softmax.h"

#include <math.h>

#include "core/layer.h"
#include "ops/softmax.h"

static const tutti_layer_option options[] = {
    {"cols", "int", NULL, offsetof(tutti_softmax_desc, cols), 1, 1 << 20},
    {"dtype", "dtype", "f32", offsetof(tutti_softmax_desc, dtype), 0, 0},
    {"log", "bool", "0", offsetof(tutti_softmax_desc, log), 0, 0},
    {"scale", "real", "1", offsetof(tutti_softmax_desc, scale), 0, 0},
    {"causal_period", "int", "0", offsetof(tutti_softmax_desc, causal_period), 0,
     (double)(INT64_C(1) << 59)},
};
static const tutti_slot slots[] = {
    TUTTI__IN("x", .cols = "cols", .dtype = "dtype", .flags = TUTTI_SLOT_GRAD, .grad_may_be = "dy"),
    TUTTI__IN("lengths", .dtype = "i32", .below = "cols",
              .flags = TUTTI_SLOT_OPTIONAL | TUTTI_SLOT_READ | TUTTI_SLOT_UP_TO),
    TUTTI__IN("bias", .cols = "cols", .dtype = "dtype",
              .flags = TUTTI_SLOT_OPTIONAL | TUTTI_SLOT_GRAD | TUTTI_SLOT_GRAD_OPTIONAL |
                       TUTTI_SLOT_REPEATS),
    TUTTI__OUT("y", .cols = "cols", .dtype = "dtype", .flags = TUTTI_SLOT_READ | TUTTI_SLOT_GRAD,
               .may_be = "x"),
};

static tutti_status check(const char *name, const void *untyped)
{
    const tutti_softmax_desc *desc = untyped;
    TUTTI_REQUIRE(desc->dtype == TUTTI_F64 || isfinite((float)desc->scale),
                  "%s: scale is %g, want finite in the arithmetic, f32", name, desc->scale);
    return TUTTI_OK;
}

static void finish(tutti_layer *layer)
{
    layer->reads_first_row = ((const tutti_softmax_desc *)layer->desc)->causal_period > 0;
}

static void fill(const tutti_layer *layer, const tutti__views *views, void *args)
{
    const tutti_softmax_desc *desc = layer->desc;
    const double most = fabs(desc->scale) < 1 ? 0.5 : 1;
    *(tutti__softmax_args *)args = (tutti__softmax_args){
        .rows = views->rows,
        .cols = desc->cols,
        .dtype = desc->dtype,
        .log = desc->log,
        .scale = desc->scale,
        .lead = desc->scale < 0 ? -most : most,
        .size = fabs(desc->scale) / most,
        .causal_period = desc->causal_period,
        .first_row = views->first_row,
        .x = views->in[0],
        .lengths = views->in[1].data,
        .bias = views->in[2],
        .bias_period = views->period[2] > 0 ? views->period[2] : INT64_MAX,
        .y = views->out[0],
        .dy = views->upstream[0],
        .dx = views->din[0],
        .dbias = views->din[2],
        .finding = layer->finding,
    };
}

static tutti_status explain(const tutti__finding *finding)
{
    return tutti__fail(TUTTI_ERR_DATA, "softmax: the length of row %lld is %d, want 0 to %lld",
                       (long long)finding->row, (int)finding->value, (long long)finding->limit);
}

const tutti__layer_class tutti__softmax_class = {
    .type = {.name = "softmax",
             .flags = TUTTI_LAYER_BACKWARD | TUTTI_LAYER_ROWS_ALONE,
             TUTTI__TABLE(option),
             TUTTI__TABLE(slot)},
    TUTTI__OPERATION(tutti_softmax_desc, softmax),
    .check = check,
    .finish = finish,
    .fill = fill,
    .explain = explain,
};

TUTTI__PUBLIC(softmax, .in = {c->x, c->lengths, c->bias}, .out = {c->y}, .upstream = {c->dy},
              .din = {c->dx, NULL, c->dbias})
TUTTI__PUBLIC_CALL(softmax, backward)
