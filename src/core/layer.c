/* What all layers share: kinds, lifetime, calls. */
#include "core/layer.h"

#include <stdlib.h>
#include <string.h>

#include "core/params.h"

/* Kinds */

#define TUTTI_X(name) extern const tutti__layer_class tutti__##name##_class;
TUTTI__KINDS(TUTTI_X)
#undef TUTTI_X

const tutti__layer_class *const tutti__layer_classes[] = {
#define TUTTI_X(name) &tutti__##name##_class,
    TUTTI__KINDS(TUTTI_X)
#undef TUTTI_X
        NULL,
};

int tutti_layer_type_count(void)
{
    int count = 0;
    while (tutti__layer_classes[count]) count++;
    return count;
}

const tutti_layer_type *tutti_layer_type_get(int index)
{
    if (index < 0 || index >= tutti_layer_type_count()) return NULL;
    return &tutti__layer_classes[index]->type;
}

const tutti_layer_type *tutti_layer_type_find(const char *name)
{
    for (int i = 0; name && tutti__layer_classes[i]; i++)
        if (strcmp(tutti__layer_classes[i]->type.name, name) == 0)
            return &tutti__layer_classes[i]->type;
    return NULL;
}

const tutti_layer_type *tutti_layer_type_of(const tutti_layer *layer)
{
    return layer ? &layer->class->type : NULL;
}

tutti_status tutti__check_typed(const tutti_layer *layer, const tutti__layer_class *class,
                                const void *call)
{
    TUTTI_REQUIRE(layer, "%s: layer is NULL", class->type.name);
    TUTTI_REQUIRE(layer->class == class, "%s: layer is of kind %s, want %s", class->type.name,
                  layer->class->type.name, class->type.name);
    TUTTI_REQUIRE(call, "%s: call is NULL", class->type.name);
    return TUTTI_OK;
}

/* A layer */

static void let_go(tutti_layer *layer, bool caller)
{
    if (!tutti__let_go(&layer->holders, caller)) return;
    free(layer);
}

void tutti__layer_release(tutti_layer *layer)
{
    let_go(layer, false);
}

void tutti_layer_destroy(tutti_layer **layer)
{
    if (!layer || !*layer) return;
    let_go(*layer, true);
    *layer = NULL;
}

int tutti_layer_param_count(const tutti_layer *layer)
{
    return layer ? layer->param_count : 0;
}

tutti_param *tutti_layer_param(tutti_layer *layer, int index)
{
    return layer && index >= 0 && index < layer->param_count ? &layer->params[index] : NULL;
}

tutti_param *tutti__layer_param(tutti_layer *layer, const char *name)
{
    for (int i = 0; i < layer->param_count; i++)
        if (strcmp(layer->params[i].name, name) == 0) return &layer->params[i];
    return NULL;
}

tutti__slot_state *tutti__layer_slot(tutti_layer *layer, const char *name)
{
    int i = 0;
    while (strcmp(layer->class->type.slots[i].name, name) != 0) i++;
    return &layer->slots[i];
}

tutti_status tutti_layer_slot_shape(const tutti_layer *layer, int slot, tutti_slot_shape *shape)
{
    TUTTI_REQUIRE(layer, "layer_slot_shape: layer is NULL");
    TUTTI_REQUIRE(shape, "layer_slot_shape: shape is NULL");
    TUTTI_REQUIRE(slot >= 0 && slot < layer->class->type.slot_count,
                  "layer_slot_shape: slot is %d, want 0 to %d", slot,
                  layer->class->type.slot_count - 1);
    *shape = layer->slots[slot].shape;
    return TUTTI_OK;
}

size_t tutti_layer_saved_bytes(const tutti_layer *layer, int64_t rows)
{
    if (!layer || rows < 0) return 0;
    size_t bytes = 0;
    for (int i = 0; i < layer->class->type.slot_count; i++)
        if (layer->class->type.slots[i].role == TUTTI_SLOT_KEPT)
            bytes += tutti__kept_bytes(&layer->slots[i].shape, rows);
    return bytes;
}

/* Calls */

static tutti_status check_layer(const tutti_layer *layer, const tutti_context *ctx,
                                const char *verb)
{
    TUTTI_REQUIRE(layer, "layer_%s: layer is NULL", verb);
    const char *name = layer->class->type.name;
    TUTTI_REQUIRE(ctx, "%s: ctx is NULL", name);
    TUTTI_TRY(tutti__context_open(ctx, name));
    TUTTI_REQUIRE(layer->backend == ctx->backend && layer->device == ctx->device,
                  "%s: the layer is on %s device %d, ctx on %s device %d", name,
                  layer->backend->name, layer->device, ctx->backend->name, ctx->device);
    return TUTTI_OK;
}

static tutti_status check_supported(const tutti_layer *layer, bool backward)
{
    const char *name = layer->class->type.name;
    if (backward && !(layer->class->type.flags & TUTTI_LAYER_BACKWARD))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "%s has no backward: its forward gives the gradients", name);
    if (!(backward ? layer->op->backward : layer->op->forward))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "%s: %s is not supported by the %s backend", name,
                           backward ? "backward" : "forward", layer->backend->name);
    return TUTTI_OK;
}

static tutti_status run(tutti_layer *layer, tutti_context *ctx, const tutti_call *call,
                        bool backward)
{
    const tutti__views *views;
    TUTTI_TRY(check_layer(layer, ctx, backward ? "backward" : "forward"));
    TUTTI_TRY(check_supported(layer, backward));
    TUTTI_TRY(tutti__recent_check(layer, ctx, call, backward, &views));
    TUTTI_TRY(tutti__tune_check(ctx, call->leaves, layer->class->type.name));
    if (call->step) TUTTI_TRY(tutti__step_block_check(call->step, ctx, layer->class->type.name));
    TUTTI_TRY(tutti__context_advance(ctx));
    if (layer->store) TUTTI_TRY(tutti__values_await(layer->store, ctx, layer->values_group));
    tutti__ready_sink *sink = (tutti__ready_sink *)call->sync;
    return tutti__layer_run(layer, ctx, views, sink, false);
}

tutti_status tutti_layer_forward(tutti_layer *layer, tutti_context *ctx, const tutti_call *call)
{
    return run(layer, ctx, call, false);
}

tutti_status tutti_layer_backward(tutti_layer *layer, tutti_context *ctx, const tutti_call *call)
{
    return run(layer, ctx, call, true);
}

static tutti_status plan(tutti_layer *layer, tutti_context *ctx, const tutti_call *call,
                         bool backward)
{
    tutti__views views;
    TUTTI_TRY(check_supported(layer, backward));
    TUTTI_TRY(tutti__check_call(layer, call, backward, true, &views));
    return tutti__layer_run(layer, ctx, &views, (tutti__ready_sink *)call->sync, true);
}

static bool has_any(const tutti_tensor *const tensors[TUTTI_MAX_SLOTS])
{
    for (int i = 0; i < TUTTI_MAX_SLOTS; i++)
        if (tensors[i]) return true;
    return false;
}

/* Whether a call has every input and output that forward needs, and an output. */
static bool is_forward(const tutti_layer *layer, const tutti_call *call)
{
    for (int i = 0; i < layer->operand_count[false]; i++) {
        const tutti__operand *operand = &layer->operands[false][i];
        const tutti_tensor *tensor =
            operand->part == TUTTI__PART_IN ? call->in[operand->index] : call->out[operand->index];
        if ((operand->part == TUTTI__PART_IN || operand->part == TUTTI__PART_OUT) &&
            !operand->optional && !tensor)
            return false;
    }
    return has_any((const tutti_tensor *const *)call->out);
}

tutti_status tutti_layer_plan(tutti_layer *layer, tutti_context *ctx, const tutti_call *call)
{
    TUTTI_TRY(check_layer(layer, ctx, "plan"));
    TUTTI_TRY(tutti__recent_open(ctx));
    TUTTI_REQUIRE(call, "%s: call is NULL", layer->class->type.name);
    TUTTI_TRY(tutti__tune_check(ctx, call->leaves, layer->class->type.name));
    const bool backward = has_any(call->upstream);
    /* backward alone may be given the inputs and outputs that it reads */
    if (!backward || is_forward(layer, call)) TUTTI_TRY(plan(layer, ctx, call, false));
    return backward ? plan(layer, ctx, call, true) : TUTTI_OK;
}
