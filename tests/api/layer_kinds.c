/* The kinds of layer; see layer_kinds.h. */
#include "layer_kinds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Weak: a kind without a backward has none. */
#define KIND(name)                                                                                \
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
    static tutti_status name##_plan(tutti_layer *layer, tutti_context *ctx, const void *call)     \
    {                                                                                             \
        return tutti_##name##_plan(layer, ctx, call);                                             \
    }                                                                                             \
    static tutti_status name##_forward(tutti_layer *layer, tutti_context *ctx, const void *call)  \
    {                                                                                             \
        return tutti_##name##_forward(layer, ctx, call);                                          \
    }                                                                                             \
    extern typed_call_fn name##_backward __asm__("tutti_" #name "_backward") __attribute__((weak));
TUTTI__KINDS(KIND)

#define ROW(name)                 \
    {#name,                       \
     sizeof(tutti_##name##_desc), \
     sizeof(tutti_##name##_call), \
     name##_put_init,             \
     name##_put_default,          \
     name##_create,               \
     name##_plan,                 \
     name##_forward,              \
     name##_backward},
const layer_kind layer_kinds[] = {TUTTI__KINDS(ROW)};
const int layer_kind_count = HARNESS_COUNT(layer_kinds);

const layer_kind *find_kind(const char *name)
{
    for (int i = 0; i < layer_kind_count; i++)
        if (strcmp(layer_kinds[i].name, name) == 0) return &layer_kinds[i];
    CHECK(false, "there is no kind %s", name);
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

/* Options */

enum { OPTIONS = 16, OPTIONS_LENGTH = 256 };

static void put_option(char *options, const char *name, const char *value, int length)
{
    const size_t used = strlen(options);
    snprintf(options + used, OPTIONS_LENGTH - used, "%s%s=%.*s", used ? "," : "", name, length,
             value);
}

/* Another value than the default; NULL for types, which tests choose, and for required options. */
static const char *other_value(const tutti_layer_option *option)
{
    if (!option->default_value || strcmp(option->type, "dtype") == 0) return NULL;
    if (strcmp(option->type, "bool") == 0) return "1";
    if (strcmp(option->type, "real") == 0) return "0.5";
    return strncmp(option->type, "int", 3) == 0 ? "4" : NULL;
}

static bool is_accepted(const layer_kind *kind, const char *options)
{
    tutti_layer *layer = NULL;
    const tutti_status status =
        tutti_layer_create_by_name(harness_context(), kind->name, options, &layer);
    tutti_layer_destroy(&layer);
    return status == TUTTI_OK;
}

static void add_options(char made[OPTIONS][OPTIONS_LENGTH], int *count, const char *options)
{
    if (CHECK(*count < OPTIONS, "more than %d choices of options", OPTIONS))
        snprintf(made[(*count)++], OPTIONS_LENGTH, "%s", options);
}

/* Numbers alone; flags, too, from the first on; from the last on. */
enum order { NUMBERS, FIRST_ON, LAST_ON };
static void add_with_others(const layer_kind *kind, const tutti_layer_type *type,
                            char made[OPTIONS][OPTIONS_LENGTH], int *count, enum order order)
{
    char options[OPTIONS_LENGTH], more[OPTIONS_LENGTH];
    strcpy(options, made[0]);
    for (int i = 0; i < type->option_count; i++) {
        const tutti_layer_option *option =
            &type->options[order == LAST_ON ? type->option_count - 1 - i : i];
        const char *value = other_value(option);
        if (order == NUMBERS && strcmp(option->type, "bool") == 0) continue;
        strcpy(more, options);
        if (value) put_option(more, option->name, value, (int)strlen(value));
        if (value && is_accepted(kind, more)) strcpy(options, more);
    }
    if (strcmp(options, made[*count - 1]) != 0) add_options(made, count, options);
}

static void make_options(const layer_kind *kind, char made[OPTIONS][OPTIONS_LENGTH], int *count)
{
    const tutti_layer_type *type = tutti_layer_type_find(kind->name);
    char options[OPTIONS_LENGTH] = "";
    const char *const sizes[] = {"6", "2", "8", "4"}; /* a divisor follows */
    for (int i = 0, size = 0; i < type->option_count; i++)
        if (!type->options[i].default_value)
            put_option(options, type->options[i].name, sizes[size++ % 4], 1);
    add_options(made, count, options);
    for (enum order order = NUMBERS; order <= LAST_ON; order++)
        add_with_others(kind, type, made, count, order);
    for (int i = 0; i < type->option_count; i++) {
        const tutti_layer_option *option = &type->options[i];
        for (const char *word = strchr(option->type, '|'); word; word = strchr(word, '|')) {
            strcpy(options, made[0]);
            word++;
            put_option(options, option->name, word, (int)strcspn(word, "|"));
            add_options(made, count, options);
        }
    }
}

const char *kind_options(const layer_kind *kind, int number)
{
    static char made[HARNESS_COUNT(layer_kinds)][OPTIONS][OPTIONS_LENGTH];
    static int counts[HARNESS_COUNT(layer_kinds)];
    const int i = (int)(kind - layer_kinds);
    if (counts[i] == 0) make_options(kind, made[i], &counts[i]);
    return number < counts[i] ? made[i][number] : NULL;
}
