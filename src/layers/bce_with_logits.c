/* BCE of logits: the contract, the operation's args, the typed call. */
#include "tutti/bce_with_logits.h"

#include <float.h>
#include <math.h>

#include "layers/loss.h"

static const tutti_layer_option options[] = {
    TUTTI__LOSS_OPTIONS(tutti_bce_with_logits_desc),
    {"pos_weight", "real", "1", offsetof(tutti_bce_with_logits_desc, pos_weight), 0, DBL_MAX},
};
static const tutti_slot slots[] = {
    TUTTI__LOSS_SLOTS("logits", 0, 1),
};

static tutti_status check(const char *name, const void *untyped)
{
    const tutti_bce_with_logits_desc *desc = untyped;
    TUTTI_REQUIRE(desc->dtype == TUTTI_F64 || isfinite((float)desc->pos_weight),
                  "%s: pos_weight is %g, want finite in the arithmetic, f32", name,
                  desc->pos_weight);
    return TUTTI_OK;
}

static void fill(const tutti_layer *layer, const tutti__views *views, void *untyped)
{
    const tutti_bce_with_logits_desc *desc = layer->desc;
    tutti__loss_args *args = untyped;
    *args = tutti__loss_args_of(layer, views, desc->cols);
    args->kind = TUTTI__LOSS_BCE;
    args->pos_weight = desc->pos_weight;
}

static tutti_status explain(const tutti__finding *finding)
{
    return tutti__fail(TUTTI_ERR_DATA,
                       "bce_with_logits: the target in row %lld, column %d is not from 0 to 1",
                       (long long)finding->row, (int)finding->value);
}

const tutti__layer_class tutti__bce_with_logits_class = {
    .type = {.name = "bce_with_logits",
             .flags = TUTTI_LAYER_STEP | TUTTI_LAYER_ROWS_ALONE,
             TUTTI__TABLE(option),
             TUTTI__TABLE(slot)},
    TUTTI__OPERATION(tutti_bce_with_logits_desc, loss),
    .check = check,
    .fill = fill,
    .explain = explain,
};

TUTTI__PUBLIC(bce_with_logits, .in = {c->logits, c->target},
              .out = {c->loss, c->loss_sum, c->dlogits})
