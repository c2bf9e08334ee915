/* Bad input for the layers' descriptors, by the tables of their options. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bad_kinds.h"

/* A descriptor with the required fields set, on the heap. */
static char *good_desc(const layer_kind *kind)
{
    const tutti_layer_type *type = tutti_layer_type_find(kind->name);
    char *desc = harness_calloc(2, kind->desc_size); /* room for a newer program's fields */
    kind->put_init(desc);
    for (int i = 0; i < type->option_count; i++)
        if (!type->options[i].default_value) *(int64_t *)(desc + type->options[i].offset) = 6;
    return desc;
}

typedef struct creation {
    const layer_kind *kind;
    const tutti_layer_option *option;
    char *desc;
} creation;

static void refused(const creation *c, const char *word)
{
    tutti_layer *layer = UNTOUCHED(tutti_layer);
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, word,
                        c->kind->create(harness_context(), c->desc, &layer));
}

#define REFUSED_AS(type, value)                                              \
    do {                                                                     \
        type *field = (type *)(c->desc + c->option->offset);                 \
        const type kept = *field;                                            \
        *field = (value);                                                    \
        harness_where("%s.%s = %s", c->kind->name, c->option->name, #value); \
        refused(c, c->option->name);                                         \
        *field = kept;                                                       \
    } while (0)

static void check_option(const creation *c)
{
    const tutti_layer_option *o = c->option;
    const bool bounds = o->least != 0 || o->most != 0;
    if (strcmp(o->type, "int") == 0) {
        if (!bounds) return;
        REFUSED_AS(int64_t, (int64_t)o->least - 1);
        REFUSED_AS(int64_t, (int64_t)o->most + 1);
        REFUSED_AS(int64_t, INT64_MIN);
        REFUSED_AS(int64_t, INT64_MAX);
    } else if (strcmp(o->type, "real") == 0) {
        REFUSED_AS(double, NAN);
        REFUSED_AS(double, INFINITY);
        REFUSED_AS(double, -INFINITY);
        if (bounds) REFUSED_AS(double, o->least - 1e-9);
        if (bounds && o->most < DBL_MAX) REFUSED_AS(double, o->most * 1.001);
    } else if (strcmp(o->type, "dtype") == 0) {
        REFUSED_AS(tutti_dtype, TUTTI_I32);
        REFUSED_AS(tutti_dtype, TUTTI_U8);
        REFUSED_AS(tutti_dtype, (tutti_dtype)99);
        REFUSED_AS(tutti_dtype, (tutti_dtype)-1);
    } else if (strcmp(o->type, "int32") == 0) {
        CHECK(!bounds, "%s of a kind that is not tested", o->name);
    } else {
        REFUSED_AS(int, -1);
        REFUSED_AS(int, 99); /* for a bool or a choice */
    }
}

void check_create(const layer_kind *kind)
{
    const tutti_layer_type *type = tutti_layer_type_find(kind->name);
    tutti_context *ctx = harness_context();
    tutti_layer *layer = UNTOUCHED(tutti_layer);
    creation c = {.kind = kind, .desc = good_desc(kind)};
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "ctx", kind->create(NULL, c.desc, &layer));
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "desc", kind->create(ctx, NULL, &layer));
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", kind->create(ctx, c.desc, NULL));
    for (int i = 0; i < type->option_count; i++) {
        c.option = &type->options[i];
        check_option(&c);
    }
    harness_where("%s", kind->name);
    size_t *size = (size_t *)c.desc;
    static const size_t garbage[] = {1, sizeof(size_t) - 1, 768, 5000, SIZE_MAX};
    for (int i = 0; i < HARNESS_COUNT(garbage); i++) {
        *size = garbage[i];
        refused(&c, "size");
    }
    /* a newer program's, with an unknown field set */
    *size = 2 * kind->desc_size;
    c.desc[2 * kind->desc_size - 1] = 1;
    refused(&c, "newer");
    *size = sizeof *size; /* older than the first field: required fields are missing */
    refused(&c, type->options[0].name);
    harness_where(NULL);
    free(c.desc);
}
