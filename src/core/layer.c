/* What all layers share: life, kinds, the verbs. */
#include "core/layer.h"

#include <stdlib.h>
#include <string.h>

/* Kinds */

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

int32_t tutti__layer_finding(const tutti_layer *layer)
{
    int32_t code = 1;
    while (tutti__layer_classes[code - 1] != layer->class) code++;
    return code;
}

tutti_status tutti__check_class(const tutti_layer *layer, const tutti__layer_class *class)
{
    TUTTI_REQUIRE(layer, "%s: layer is NULL", class->type.name);
    TUTTI_REQUIRE(layer->class == class, "%s: layer is of kind %s, want %s", class->type.name,
                  layer->class->type.name, class->type.name);
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
    for (int i = 0; i < layer->class->type.slot_count; i++) {
        const tutti_slot_shape *shape = &layer->slots[i].shape;
        if (layer->class->type.slots[i].role == TUTTI_SLOT_KEPT)
            bytes += ((size_t)rows * (size_t)shape->cols * tutti_dtype_size(shape->dtype) + 15) /
                     16 * 16;
    }
    return bytes;
}

/* Verbs */

static tutti_status check_layer(const tutti_layer *layer, const tutti_context *ctx,
                                const char *verb)
{
    TUTTI_REQUIRE(layer, "layer_%s: layer is NULL", verb);
    const char *name = layer->class->type.name;
    TUTTI_REQUIRE(ctx, "%s: ctx is NULL", name);
    TUTTI_REQUIRE(layer->backend == ctx->backend && layer->device == ctx->device,
                  "%s: the layer is on %s device %d, ctx on %s device %d", name,
                  layer->backend->name, layer->device, ctx->backend->name, ctx->device);
    return TUTTI_OK;
}

static tutti_status check_supported(const tutti_layer *layer, bool backward)
{
    const char *name = layer->class->type.name;
    if (backward && !(layer->class->type.flags & TUTTI_LAYER_BACKWARD))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "%s has no backward: its forward gives gradients",
                           name);
    if (!(backward ? layer->op->backward : layer->op->forward))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "%s: %s is not supported by the %s backend", name,
                           backward ? "backward" : "forward", layer->backend->name);
    return TUTTI_OK;
}

/* Addresses and row strides, all in one: its lowest bit says what they are multiples of. */
static uintptr_t bits_of(const tutti__matrix *matrices)
{
    uintptr_t bits = 0;
    for (int i = 0; i < TUTTI_MAX_SLOTS; i++) {
        const tutti__matrix *m = &matrices[i];
        if (m->data) bits |= (uintptr_t)m->data | (uintptr_t)m->stride * tutti_dtype_size(m->dtype);
    }
    return bits;
}

static tutti__plan_key key_of(const tutti_layer *layer, const tutti__views *views)
{
    tutti__plan_key key = {
        .op = layer->op,
        .settings = layer->desc,
        .settings_bytes = layer->class->desc_size,
        .settings_hash = layer->desc_hash,
        .rows = views->rows,
        .backward = views->backward,
    };
    uintptr_t bits = 16 | bits_of(views->in) | bits_of(views->out) | bits_of(views->upstream) |
                     bits_of(views->din);
    for (int i = 0; i < layer->param_count; i++)
        bits |= (uintptr_t)views->value[i] | (uintptr_t)views->grad[i];
    key.alignment = (uint32_t)(bits & -bits);
    return key;
}

/* Whether anybody wants a gradient. */
static bool computes(const tutti_layer *layer, const tutti__views *views)
{
    for (int i = 0; i < TUTTI_MAX_SLOTS; i++)
        if (views->din[i].data) return true;
    for (int i = 0; i < layer->param_count; i++)
        if (views->grad[i]) return true;
    return false;
}

static tutti_status call_op(tutti_layer *layer, tutti_context *ctx, const tutti_call *call,
                            bool backward, bool plan)
{
    union {
        char bytes[TUTTI__ARGS_MAX];
        int64_t aligns;
    } args;
    tutti__views views;
    TUTTI_TRY(check_supported(layer, backward));
    TUTTI_TRY(tutti__check_call(layer, call, backward, plan, &views));
    if (backward && !computes(layer, &views)) return TUTTI_OK;
    memset(&args, 0, layer->class->args_size);
    layer->class->fill(layer, &views, &args);
    const tutti__plan_key key = key_of(layer, &views);
    return plan ? tutti__op_plan(ctx, &key, &args) : tutti__op_run(ctx, &key, &args);
}

tutti_status tutti_layer_forward(tutti_layer *layer, tutti_context *ctx, const tutti_call *call)
{
    TUTTI_TRY(check_layer(layer, ctx, "forward"));
    TUTTI_TRY(tutti__context_advance(ctx));
    return call_op(layer, ctx, call, false, false);
}

tutti_status tutti_layer_backward(tutti_layer *layer, tutti_context *ctx, const tutti_call *call)
{
    TUTTI_TRY(check_layer(layer, ctx, "backward"));
    TUTTI_TRY(tutti__context_advance(ctx));
    return call_op(layer, ctx, call, true, false);
}

/* Contiguous tensors of so many rows in all slots. */
static void make_call(const tutti_layer *layer, int64_t rows, tutti_tensor *tensors,
                      tutti_call *call)
{
    const tutti_layer_type *type = &layer->class->type;
    *call = (tutti_call){.saved = NULL};
    for (int i = 0; i < type->slot_count; i++) {
        const tutti_slot_shape *shape = &layer->slots[i].shape;
        if (type->slots[i].role == TUTTI_SLOT_KEPT) continue;
        tensors[i] = tutti_tensor_2d(NULL, shape->dtype, shape->flags & TUTTI_SLOT_SUM ? 1 : rows,
                                     shape->cols);
        const bool in = type->slots[i].role == TUTTI_SLOT_IN;
        (in ? call->in : call->out)[shape->index] = &tensors[i];
        if (shape->flags & TUTTI_SLOT_GRAD)
            (in ? call->din : call->upstream)[shape->index] = &tensors[i];
    }
}

tutti_status tutti_layer_plan(tutti_layer *layer, tutti_context *ctx, int64_t rows)
{
    TUTTI_TRY(check_layer(layer, ctx, "plan"));
    TUTTI_REQUIRE(rows >= 0 && rows <= INT64_MAX >> 24, "%s: rows is %lld, want 0 to 2^39",
                  layer->class->type.name, (long long)rows);
    tutti_tensor tensors[TUTTI__SLOTS_MAX];
    tutti_call call;
    make_call(layer, rows, tensors, &call);
    TUTTI_TRY(call_op(layer, ctx, &call, false, true));
    return layer->class->type.flags & TUTTI_LAYER_BACKWARD ? call_op(layer, ctx, &call, true, true)
                                                           : TUTTI_OK;
}
