/* Creates a layer from its descriptor, or from options by name, by the class's tables of options,
 * slots and parameters. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/layer.h"

/* Fields */

static bool is_type(const tutti_layer_option *option, const char *type)
{
    return strcmp(option->type, type) == 0;
}

static bool is_choice(const tutti_layer_option *option)
{
    return strchr(option->type, '|');
}

static const tutti_layer_option *find_option(const tutti__layer_class *class, const char *name)
{
    for (int i = 0; i < class->type.option_count; i++)
        if (strcmp(class->type.options[i].name, name) == 0) return &class->type.options[i];
    return NULL;
}

static void *field_of(const tutti_layer_option *option, const void *desc)
{
    return (char *)desc + option->offset;
}

/* The value of an integer option of either width. */
static int64_t integer_of(const tutti_layer_option *option, const void *desc)
{
    const void *field = field_of(option, desc);
    return is_type(option, "int") ? *(const int64_t *)field : *(const int *)field;
}

/* "2^20" for 1048576, "2^31-1" for 2147483647. */
static const char *limit_text(double limit, char text[32])
{
    int exponent;
    if (limit > 99999 && frexp(limit, &exponent) == 0.5)
        snprintf(text, 32, "2^%d", exponent - 1);
    else if (limit > 99999 && frexp(limit + 1, &exponent) == 0.5)
        snprintf(text, 32, "2^%d-1", exponent - 1);
    else
        snprintf(text, 32, "%.17g", limit);
    return text;
}

static tutti_status check_integer(const char *name, const tutti_layer_option *option, int64_t value)
{
    char least[32], most[32];
    if (option->most == 0 && option->least == 0) return TUTTI_OK;
    /* not as doubles, which are inexact beyond 2^53 */
    TUTTI_REQUIRE(value >= (int64_t)option->least && value <= (int64_t)option->most,
                  "%s: %s is %lld, want %s to %s", name, option->name, (long long)value,
                  limit_text(option->least, least), limit_text(option->most, most));
    return TUTTI_OK;
}

static tutti_status check_real(const char *name, const tutti_layer_option *option, double value)
{
    char least[32] = "", most[32] = "";
    const bool above = option->least != 0 || option->most != 0;
    if (above) snprintf(least, sizeof least, " and >= %g", option->least);
    if (above && option->most < DBL_MAX) snprintf(most, sizeof most, " and <= %g", option->most);
    TUTTI_REQUIRE(isfinite(value) && (!above || (value >= option->least && value <= option->most)),
                  "%s: %s is %g, want finite%s%s", name, option->name, value, least, most);
    return TUTTI_OK;
}

static tutti_status check_choice(const char *name, const tutti_layer_option *option, int value)
{
    int words = 1;
    for (const char *c = option->type; *c; c++) words += *c == '|';
    TUTTI_REQUIRE(value >= 0 && value < words, "%s: %s is %d, want one of %s", name, option->name,
                  value, option->type);
    return TUTTI_OK;
}

static tutti_status check_option(const char *name, const tutti_layer_option *option,
                                 const void *desc)
{
    const void *field = field_of(option, desc);
    if (is_type(option, "int") || is_type(option, "int32"))
        return check_integer(name, option, integer_of(option, desc));
    if (is_type(option, "real")) return check_real(name, option, *(const double *)field);
    if (is_type(option, "dtype")) {
        const tutti_dtype dtype = *(const tutti_dtype *)field;
        TUTTI_REQUIRE(tutti__is_float(dtype), "%s: %s is %s, want f32, f64, f16 or bf16", name,
                      option->name, tutti_dtype_name(dtype));
        return TUTTI_OK;
    }
    if (is_type(option, "bool")) {
        TUTTI_REQUIRE((*(const int *)field & ~1) == 0, "%s: %s is %d, want 0 or 1", name,
                      option->name, *(const int *)field);
        return TUTTI_OK;
    }
    return check_choice(name, option, *(const int *)field);
}

/* Text */

static int word_number(const char *words, const char *value)
{
    const size_t length = strlen(value);
    int number = 0;
    for (const char *word = words;; number++) {
        const size_t end = strcspn(word, "|");
        if (end == length && memcmp(word, value, length) == 0) return number;
        if (!word[end]) return -1;
        word += end + 1;
    }
}

/* Writes a value into a field, a 0 as 0 and not as the default. */
static bool parse_value(const tutti_layer_option *option, const char *value, void *field)
{
    char *end;
    errno = 0;
    if (is_type(option, "real")) {
        *(double *)field = strtod(value, &end);
        return end != value && !*end;
    }
    if (is_type(option, "dtype")) return tutti_dtype_parse(value, (tutti_dtype *)field) == TUTTI_OK;
    if (is_type(option, "bool")) {
        const int word = word_number("0|false|False|1|true|True", value);
        *(int *)field = word > 2;
        return word >= 0;
    }
    if (!is_type(option, "int") && !is_type(option, "int32")) {
        *(int *)field = word_number(option->type, value);
        return *(int *)field >= 0;
    }
    const long long number = strtoll(value, &end, 10);
    if (end == value || *end || errno != 0) return false;
    if (is_type(option, "int"))
        *(int64_t *)field = number;
    else
        *(int *)field = (int)number;
    return is_type(option, "int") || (number >= INT32_MIN && number <= INT32_MAX);
}

/* Replaces 0 by the default, and TUTTI_ZERO by 0. */
static void put_default(const tutti__layer_class *class, const tutti_layer_option *option,
                        void *desc)
{
    void *field = field_of(option, desc);
    if (!option->default_value) return;
    if (is_type(option, "real")) {
        *(double *)field = tutti__field(*(double *)field, strtod(option->default_value, NULL));
    } else if (is_type(option, "dtype")) {
        const tutti_layer_option *like = find_option(class, option->default_value);
        if (*(int *)field != 0) return;
        if (like)
            *(tutti_dtype *)field = *(tutti_dtype *)field_of(like, desc);
        else
            tutti_dtype_parse(option->default_value, (tutti_dtype *)field);
    } else if (is_type(option, "int32") || is_choice(option)) {
        int *number = field;
        const int otherwise = is_choice(option) ? word_number(option->type, option->default_value)
                                                : atoi(option->default_value);
        *number = *number == 0 ? otherwise : *number == TUTTI_ZERO_INT32 ? 0 : *number;
    } else if (is_type(option, "int")) {
        int64_t *number = field;
        if (*number == 0) *number = strtoll(option->default_value, NULL, 10);
    } else {
        TUTTI_ASSERT(strcmp(option->default_value, "0") == 0); /* of a bool */
    }
}

/* Slots and parameters */

/* The set of one tensor named "x" or "dx". */
static uint32_t tensor_bit(const tutti__layer_class *class, const char *name, size_t length)
{
    for (int i = 0; i < class->type.slot_count; i++) {
        const char *slot = class->type.slots[i].name;
        if (strlen(slot) == length && memcmp(slot, name, length) == 0) return UINT32_C(1) << i;
        if (strlen(slot) + 1 == length && name[0] == 'd' && memcmp(slot, name + 1, length - 1) == 0)
            return UINT32_C(1) << (16 + i);
    }
    TUTTI_ASSERT(!"a table names an unknown tensor");
    return 0;
}

static uint32_t tensor_set(const tutti__layer_class *class, const char *names)
{
    uint32_t set = 0;
    while (names && *names) {
        const size_t length = strcspn(names, " ");
        set |= tensor_bit(class, names, length);
        names += length + (names[length] == ' ');
    }
    return set;
}

static int64_t number_of(const tutti_layer *layer, const char *option)
{
    return option ? integer_of(find_option(layer->class, option), layer->desc) : 1;
}

static tutti_dtype dtype_of(const tutti_layer *layer, const char *name)
{
    const tutti_layer_option *option = name ? find_option(layer->class, name) : NULL;
    tutti_dtype dtype = layer->accumulate;
    if (option)
        dtype = *(tutti_dtype *)field_of(option, layer->desc);
    else if (name)
        tutti_dtype_parse(name, &dtype);
    return dtype;
}

static void put_slots(tutti_layer *layer)
{
    const tutti_layer_type *type = &layer->class->type;
    int next[3] = {0};
    for (int i = 0; i < type->slot_count; i++) {
        const tutti_slot *slot = &type->slots[i];
        layer->slots[i] = (tutti__slot_state){
            .shape =
                {
                    .cols = number_of(layer, slot->cols) * number_of(layer, slot->lines),
                    .lines = number_of(layer, slot->lines),
                    .dtype = dtype_of(layer, slot->dtype),
                    .flags = slot->flags,
                    .below = slot->below ? number_of(layer, slot->below) +
                                               !!(slot->flags & TUTTI_SLOT_UP_TO)
                                         : 0,
                    .index = next[slot->role]++,
                },
            .may_be = tensor_set(layer->class, slot->may_be),
            .grad_may_be = tensor_set(layer->class, slot->grad_may_be),
            .with = tensor_set(layer->class, slot->with),
            .grad_with = tensor_set(layer->class, slot->grad_with),
            .replaces = tensor_set(layer->class, slot->replaces),
        };
        TUTTI_ASSERT(layer->slots[i].shape.index < TUTTI_MAX_SLOTS);
    }
}

static void put_params(tutti_layer *layer)
{
    const tutti_layer_type *type = &layer->class->type;
    for (int i = 0; i < type->param_count; i++) {
        const tutti_param_type *row = &type->params[i];
        if (row->unless && number_of(layer, row->unless) != 0) continue;
        TUTTI_ASSERT(layer->param_count < TUTTI__LAYER_PARAMS_MAX);
        tutti_param *param = &layer->params[layer->param_count++];
        int64_t dims[2];
        int ndim = 0;
        for (; ndim < 2 && row->dims[ndim]; ndim++) dims[ndim] = number_of(layer, row->dims[ndim]);
        *param = (tutti_param){.lr_scale = 1, .weight_decay = row->decays ? 1 : 0};
        snprintf(param->name, sizeof param->name, "%s", row->name);
        param->value = tutti_tensor_make(NULL, dtype_of(layer, row->dtype), ndim, dims);
        layer->param_elements[layer->param_count - 1] = tutti_tensor_count(&param->value);
    }
}

/* Adds the operands of one direction and part. */
static void add_operands(tutti_layer *layer, bool backward, tutti__part part)
{
    const tutti_layer_type *type = &layer->class->type;
    const bool input = part == TUTTI__PART_IN || part == TUTTI__PART_DIN;
    const bool gradient = part == TUTTI__PART_UPSTREAM || part == TUTTI__PART_DIN;
    for (int i = 0; i < type->slot_count; i++) {
        const tutti_slot_shape *shape = &layer->slots[i].shape;
        const unsigned flags = shape->flags;
        if (type->slots[i].role != (input ? TUTTI_SLOT_IN : TUTTI_SLOT_OUT)) continue;
        if (!gradient || (flags & TUTTI_SLOT_GRAD))
            layer->has_slot[part] |= (uint8_t)(1u << shape->index);
        if (backward && !(flags & (gradient ? TUTTI_SLOT_GRAD : TUTTI_SLOT_READ))) continue;
        layer->operands[backward][layer->operand_count[backward]++] = (tutti__operand){
            .part = part,
            .index = (uint8_t)shape->index,
            .slot = (uint8_t)i,
            .optional = flags & (gradient ? TUTTI_SLOT_GRAD_OPTIONAL : TUTTI_SLOT_OPTIONAL),
            .written = backward ? part == TUTTI__PART_DIN : part == TUTTI__PART_OUT,
        };
    }
}

static void put_operands(tutti_layer *layer)
{
    add_operands(layer, false, TUTTI__PART_IN);
    add_operands(layer, false, TUTTI__PART_OUT);
    add_operands(layer, true, TUTTI__PART_IN);
    add_operands(layer, true, TUTTI__PART_OUT);
    add_operands(layer, true, TUTTI__PART_UPSTREAM);
    add_operands(layer, true, TUTTI__PART_DIN);
}

/* Creation */

static tutti_status read_desc(const tutti__layer_class *class, const void *given, void *desc)
{
    const char *name = class->type.name;
    TUTTI_TRY(tutti__desc_read(desc, class->desc_size, given, name));
    for (int i = 0; i < class->type.option_count; i++) {
        put_default(class, &class->type.options[i], desc);
        TUTTI_TRY(check_option(name, &class->type.options[i], desc));
    }
    return class->check ? class->check(name, desc) : TUTTI_OK;
}

static _Atomic uint64_t layers; /* created so far */

tutti_status tutti__layer_create(tutti_context *ctx, const tutti__layer_class *class,
                                 const void *desc, tutti_layer **layer)
{
    const char *name = class->type.name;
    TUTTI_REQUIRE(ctx, "%s: ctx is NULL", name);
    TUTTI_REQUIRE(desc, "%s: desc is NULL", name);
    TUTTI_REQUIRE(layer, "%s: layer is NULL", name);
    TUTTI_ASSERT(class->args_size <= TUTTI__ARGS_MAX && class->desc_size <= TUTTI__SETTINGS_MAX &&
                 class->type.slot_count <= TUTTI__SLOTS_MAX);
    tutti_layer *made = calloc(1, sizeof *made + class->desc_size);
    if (!made) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", name);
    made->number = atomic_fetch_add(&layers, 1) + 1;
    made->class = class;
    made->backend = ctx->backend;
    made->op = *(const tutti__op *const *)((const char *)&ctx->backend->op + class->op);
    made->device = ctx->device;
    while (tutti__layer_classes[made->finding++] != class) continue;
    made->desc = made + 1;
    tutti_status status = read_desc(class, desc, made->desc);
    if (status != TUTTI_OK) {
        free(made);
        return status;
    }
    made->accumulate = TUTTI_F32;
    for (int i = 0; i < class->type.option_count; i++)
        if (is_type(&class->type.options[i], "dtype"))
            made->accumulate = tutti__accumulate_dtype(
                made->accumulate, *(tutti_dtype *)field_of(&class->type.options[i], made->desc));
    made->desc_hash = tutti__settings_hash(made->desc, class->desc_size);
    put_slots(made);
    put_params(made);
    if (class->finish) class->finish(made);
    put_operands(made); /* after finish, which changes slots */
    *layer = made;
    return TUTTI_OK;
}

/* By name */

/* Appends a name to a message's list "in, out". */
static void list_add(char *text, size_t size, const char *name)
{
    const size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s", used ? ", " : "", name);
}

static tutti_status unknown_option(const tutti__layer_class *class, const char *name)
{
    char names[256] = "";
    for (int i = 0; i < class->type.option_count; i++)
        list_add(names, sizeof names, class->type.options[i].name);
    return tutti__fail(TUTTI_ERR_ARG, "%s: there is no option '%s', want one of %s",
                       class->type.name, name, names);
}

static tutti_status unknown_layer(const char *name)
{
    char names[512] = "";
    for (int i = 0; tutti__layer_classes[i]; i++)
        list_add(names, sizeof names, tutti__layer_classes[i]->type.name);
    return tutti__fail(TUTTI_ERR_ARG,
                       "layer_create_by_name: there is no layer '%s', want one of %s", name, names);
}

/* A value given by name is literal: where 0 in the descriptor would select a default, 0 is stored
 * as TUTTI_ZERO. */
static tutti_status put_option(const tutti__layer_class *class, const tutti_layer_option *option,
                               const char *value, void *desc)
{
    void *field = field_of(option, desc);
    const bool as_default = is_type(option, "dtype") && option->default_value &&
                            strcmp(value, option->default_value) == 0;
    if (as_default) return TUTTI_OK;
    TUTTI_REQUIRE(parse_value(option, value, field), "%s: option %s is '%s', want %s",
                  class->type.name, option->name, value,
                  is_type(option, "dtype")  ? "f32, f64, f16 or bf16"
                  : is_type(option, "bool") ? "0, 1, false or true"
                                            : option->type);
    TUTTI_REQUIRE(!is_type(option, "int") || *(int64_t *)field != 0 || !option->default_value ||
                      strcmp(option->default_value, "0") == 0,
                  "%s: option %s is 0, want > 0", class->type.name, option->name);
    if (is_type(option, "real") && option->default_value && *(double *)field == 0)
        *(double *)field = TUTTI_ZERO;
    if ((is_type(option, "int32") || is_choice(option)) && option->default_value &&
        *(int *)field == 0)
        *(int *)field = TUTTI_ZERO_INT32;
    return TUTTI_OK;
}

/* Parses "a=1, b=2" into the descriptor; modifies text. */
static tutti_status parse_options(const tutti__layer_class *class, char *text, void *desc)
{
    uint64_t given = 0;
    for (char *rest = text, *item; (item = strsep(&rest, ",")) != NULL;) {
        if (item != text) item += strspn(item, " ");
        if (!*item && !rest && item == text) break; /* no options */
        char *value = strchr(item, '=');
        TUTTI_REQUIRE(value, "%s: option '%s' has no value, want name=value", class->type.name,
                      item);
        *value++ = 0;
        const tutti_layer_option *option = find_option(class, item);
        if (!option) return unknown_option(class, item);
        const uint64_t bit = UINT64_C(1) << (option - class->type.options);
        TUTTI_REQUIRE(!(given & bit), "%s: option %s is given twice", class->type.name, item);
        given |= bit;
        TUTTI_TRY(put_option(class, option, value, desc));
    }
    for (int i = 0; i < class->type.option_count; i++)
        TUTTI_REQUIRE((given >> i & 1) || class->type.options[i].default_value,
                      "%s: option %s is missing", class->type.name, class->type.options[i].name);
    return TUTTI_OK;
}

tutti_status tutti_layer_create_by_name(tutti_context *ctx, const char *name, const char *options,
                                        tutti_layer **layer)
{
    TUTTI_REQUIRE(ctx, "layer_create_by_name: ctx is NULL");
    TUTTI_REQUIRE(name, "layer_create_by_name: name is NULL");
    TUTTI_REQUIRE(layer, "layer_create_by_name: layer is NULL");
    const tutti__layer_class *class = NULL;
    for (int i = 0; tutti__layer_classes[i]; i++)
        if (strcmp(tutti__layer_classes[i]->type.name, name) == 0) class = tutti__layer_classes[i];
    if (!class) return unknown_layer(name);

    union {
        char bytes[TUTTI__SETTINGS_MAX];
        int64_t aligns;
    } desc = {{0}};
    char *text = strdup(options ? options : "");
    if (!text) return tutti__fail(TUTTI_ERR_MEMORY, "layer_create_by_name: no memory");
    tutti_status status = parse_options(class, text, &desc);
    if (status == TUTTI_OK) status = tutti__layer_create(ctx, class, &desc, layer);
    free(text);
    return status;
}
