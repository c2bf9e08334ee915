/* Lists the library's tables of the kinds of layer; kinds.h. */
#include "kinds.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#include "common/report.h"

static void add(char *text, size_t size, const char *before, const char *word)
{
    const size_t used = strlen(text);
    if (word) snprintf(text + used, size - used, "%s%s", before, word);
}

static void list_option(const char *kind, const tutti_layer_option *option)
{
    const bool given = option->default_value == NULL;
    char range[64] = "";
    if (option->most == DBL_MAX)
        snprintf(range, sizeof range, "  from %.10g", option->least);
    else if (option->least != 0 || option->most != 0)
        snprintf(range, sizeof range, "  %.10g to %.10g", option->least, option->most);
    app_say("%-14s %-9s %-14s %s  %s%s%s", kind, "option", option->name, option->type,
            given ? "-" : option->default_value, range, given ? "  must be given" : "");
}

static void list_slot(const char *kind, const tutti_slot *slot)
{
    static const char *const roles[] = {"input", "output", "kept"};
    const unsigned flags = slot->flags;
    const char *rows = flags & TUTTI_SLOT_SUM ? "1" : "rows";
    char more[256] = "";
    if (flags & TUTTI_SLOT_OPTIONAL) add(more, sizeof more, "  ", "optional");
    if (flags & TUTTI_SLOT_SUM) add(more, sizeof more, "  ", "sum over rows");
    if (flags & TUTTI_SLOT_GRAD) add(more, sizeof more, "  has d", slot->name);
    add(more, sizeof more, flags & TUTTI_SLOT_UP_TO ? "  up to " : "  below ", slot->below);
    if (slot->least < slot->most)
        snprintf(more + strlen(more), sizeof more - strlen(more), "  from %.10g to %.10g",
                 slot->least, slot->most);
    add(more, sizeof more, "  with ", slot->with);
    add(more, sizeof more, "  backward reads it for ", slot->replaces);
    app_say("%-14s %-9s %-14s [%s%s%s%s%s]  %s%s", kind, roles[slot->role], slot->name, rows,
            slot->lines ? ", " : "", slot->lines ? slot->lines : "", slot->cols ? ", " : "",
            slot->cols ? slot->cols : "", slot->dtype ? slot->dtype : "f32 or f64", more);
}

static void list_param(const char *kind, const tutti_param_type *param)
{
    char dims[128] = "", more[64] = "";
    for (size_t i = 0; i < sizeof param->dims / sizeof param->dims[0]; i++)
        add(dims, sizeof dims, i > 0 ? ", " : "", param->dims[i]);
    add(more, sizeof more, "  unless ", param->unless);
    app_say("%-14s %-9s %-14s [%s]  %s%s", kind, "parameter", param->name, dims, param->dtype,
            more);
}

void kinds_list(void)
{
    for (int i = 0; i < tutti_layer_type_count(); i++) {
        const tutti_layer_type *type = tutti_layer_type_get(i);
        for (int j = 0; j < type->option_count; j++) list_option(type->name, &type->options[j]);
        for (int j = 0; j < type->slot_count; j++) list_slot(type->name, &type->slots[j]);
        for (int j = 0; j < type->param_count; j++) list_param(type->name, &type->params[j]);
    }
}
