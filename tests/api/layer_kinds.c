/* The kinds of layer; see layer_kinds.h. */
#include "layer_kinds.h"

#include <stdlib.h>
#include <string.h>

#define CALLS(name, verb)                                                                       \
    static tutti_status name##_##verb(tutti_layer *layer, tutti_context *ctx, const void *call) \
    {                                                                                           \
        return tutti_##name##_##verb(layer, ctx, call);                                         \
    }
#define FORWARD(name, ...)                                                                        \
    static void name##_put_init(void *desc)                                                       \
    {                                                                                             \
        *(tutti_##name##_desc *)desc = (tutti_##name##_desc)TUTTI_DESC_INIT(tutti_##name##_desc); \
    }                                                                                             \
    static void name##_put_default(void *desc)                                                    \
    {                                                                                             \
        *(tutti_##name##_desc *)desc = tutti_##name##_desc_default();                             \
    }                                                                                             \
    static tutti_status name##_create(tutti_context *ctx, const void *desc, tutti_layer **layer)  \
    {                                                                                             \
        return tutti_##name##_create(ctx, desc, layer);                                           \
    }                                                                                             \
    CALLS(name, plan)                                                                             \
    CALLS(name, forward)
#define BOTH(name, ...)        \
    FORWARD(name, __VA_ARGS__) \
    CALLS(name, backward)
LAYER_KINDS(BOTH, FORWARD)
#undef FORWARD
#undef BOTH

#define ROW(name, back, ...)      \
    {#name,                       \
     {__VA_ARGS__},               \
     sizeof(tutti_##name##_desc), \
     sizeof(tutti_##name##_call), \
     name##_put_init,             \
     name##_put_default,          \
     name##_create,               \
     name##_plan,                 \
     name##_forward,              \
     back},
#define FORWARD(name, ...) ROW(name, NULL, __VA_ARGS__)
#define BOTH(name, ...) ROW(name, name##_backward, __VA_ARGS__)
const layer_kind layer_kinds[] = {LAYER_KINDS(BOTH, FORWARD)};
const int layer_kind_count = HARNESS_COUNT(layer_kinds);

const layer_kind *find_kind(const char *name)
{
    for (int i = 0; i < layer_kind_count; i++)
        if (strcmp(layer_kinds[i].name, name) == 0) return &layer_kinds[i];
    CHECK(false, "%s is missing in LAYER_KINDS", name);
    return NULL;
}

void *typed_call(const layer_kind *kind, const tutti_call *call)
{
    const tutti_layer_type *type = tutti_layer_type_find(kind->name);
    const size_t common = sizeof *call - offsetof(tutti_call, saved);
    char *typed = harness_calloc(1, kind->call_size), *at = typed;
    for (int part = 0; part < 4; part++) {
        int next = 0;
        for (int i = 0; i < type->slot_count; i++) {
            const tutti_slot *slot = &type->slots[i];
            const tutti_slot_role role = part == 0 || part == 3 ? TUTTI_SLOT_IN : TUTTI_SLOT_OUT;
            if (slot->role != role) continue;
            const int index = next++;
            if (part >= 2 && !(slot->flags & TUTTI_SLOT_GRAD)) continue;
            const void *tensor = part == 0   ? (const void *)call->in[index]
                                 : part == 1 ? (const void *)call->out[index]
                                 : part == 2 ? (const void *)call->upstream[index]
                                             : (const void *)call->din[index];
            memcpy(at, &tensor, sizeof tensor);
            at += sizeof tensor;
        }
    }
    if (CHECK((size_t)(at - typed) + common == kind->call_size,
              "tutti_%s_call has %zu bytes, want %zu", kind->name, kind->call_size,
              (size_t)(at - typed) + common))
        memcpy(at, (const char *)call + offsetof(tutti_call, saved), common);
    return typed;
}
