/* What all layers share: the verbs, creation by name, and the checks of tensors. */
#include "core/layer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Making */

tutti_status tutti__layer_new(tutti_context *ctx, const tutti__layer_class *class, size_t size,
                              tutti_layer **layer)
{
    *layer = calloc(1, size);
    if (!*layer) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", class->type.name);
    (*layer)->class = class;
    (*layer)->backend = ctx->backend;
    (*layer)->device = ctx->device;
    return TUTTI_OK;
}

tutti_param *tutti__layer_add_param(tutti_layer *layer, const char *name, tutti_dtype dtype,
                                    int ndim, const int64_t *dims, tutti_param_init init,
                                    double init_bound, double weight_decay)
{
    TUTTI_ASSERT(layer->param_count < TUTTI__LAYER_PARAMS_MAX);
    tutti_param *param = &layer->params[layer->param_count++];
    strncpy(param->name, name, TUTTI_NAME_MAX - 1);
    param->value = tutti_tensor_make(NULL, dtype, ndim, dims);
    param->weight_decay = weight_decay;
    param->lr_scale = 1;
    param->init = init;
    param->init_bound = init_bound;
    return param;
}

void tutti_layer_destroy(tutti_layer **layer)
{
    if (!layer || !*layer) return;
    if ((*layer)->class->destroy) (*layer)->class->destroy(*layer);
    free(*layer);
    *layer = NULL;
}

tutti_status tutti__unsupported(const tutti_layer *layer, const char *operation)
{
    return tutti__fail(TUTTI_ERR_UNSUPPORTED, "%s is not supported by the %s backend", operation,
                       layer->backend->name);
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

/* A tensor in a slot that the layer does not have would be passed over in silence. */
static tutti_status check_slots(const tutti_layer *layer, const char *what,
                                const tutti_tensor *const slots[TUTTI_MAX_SLOTS],
                                const char *const names[TUTTI_MAX_SLOTS])
{
    for (int i = 0; i < TUTTI_MAX_SLOTS; i++)
        TUTTI_REQUIRE(!slots[i] || names[i], "%s: there is no %s[%d], want NULL",
                      layer->class->type.name, what, i);
    return TUTTI_OK;
}

static tutti_status check_call(const tutti_layer *layer, tutti_context *ctx, const tutti_call *call,
                               const char *verb)
{
    TUTTI_TRY(check_layer(layer, ctx, verb));
    const char *name = layer->class->type.name;
    TUTTI_REQUIRE(call, "%s: call is NULL", name);
    TUTTI_REQUIRE((call->flags & ~(unsigned)TUTTI_GRAD_ACCUMULATE) == 0,
                  "%s: flags is %#x, want 0 or TUTTI_GRAD_ACCUMULATE", name, call->flags);
    TUTTI_REQUIRE(call->first_row >= 0 && call->first_row <= INT64_MAX / 16,
                  "%s: first_row is %lld, want 0 to 2^59", name, (long long)call->first_row);
    TUTTI_REQUIRE((uintptr_t)call->saved % 16 == 0, "%s: saved is not 16-byte aligned", name);
    TUTTI_REQUIRE(!call->step || (call->step->backend == layer->backend &&
                                  call->step->device == layer->device),
                  "%s: step is on another device than the layer", name);
    const tutti_layer_type *type = &layer->class->type;
    TUTTI_TRY(check_slots(layer, "in", call->in, type->in));
    TUTTI_TRY(check_slots(layer, "out", call->out, type->out));
    TUTTI_TRY(check_slots(layer, "upstream", call->upstream, type->out));
    TUTTI_TRY(check_slots(layer, "din", call->din, type->in));
    return tutti__context_advance(ctx);
}

tutti_status tutti_layer_plan(tutti_layer *layer, tutti_context *ctx, int64_t rows)
{
    TUTTI_TRY(check_layer(layer, ctx, "plan"));
    TUTTI_REQUIRE(rows >= 0 && rows <= INT64_MAX >> 24, "%s: rows is %lld, want 0 to 2^39",
                  layer->class->type.name, (long long)rows);
    return layer->class->plan ? layer->class->plan(layer, ctx, rows) : TUTTI_OK;
}

tutti_status tutti_layer_forward(tutti_layer *layer, tutti_context *ctx, const tutti_call *call)
{
    TUTTI_TRY(check_call(layer, ctx, call, "forward"));
    return layer->class->forward(layer, ctx, call);
}

tutti_status tutti_layer_backward(tutti_layer *layer, tutti_context *ctx, const tutti_call *call)
{
    TUTTI_TRY(check_call(layer, ctx, call, "backward"));
    return layer->class->backward(layer, ctx, call);
}

size_t tutti_layer_saved_bytes(const tutti_layer *layer, int64_t rows)
{
    if (!layer || rows < 0 || !layer->class->saved_bytes) return 0;
    return layer->class->saved_bytes(layer, rows);
}

int tutti_layer_param_count(const tutti_layer *layer)
{
    return layer ? layer->param_count : 0;
}

tutti_param *tutti_layer_param(tutti_layer *layer, int index)
{
    return layer && index >= 0 && index < layer->param_count ? &layer->params[index] : NULL;
}

tutti_status tutti__check_class(const tutti_layer *layer, const tutti__layer_class *class)
{
    TUTTI_REQUIRE(layer, "%s: layer is NULL", class->type.name);
    TUTTI_REQUIRE(layer->class == class, "%s: layer is of kind %s, want %s", class->type.name,
                  layer->class->type.name, class->type.name);
    return TUTTI_OK;
}

/* Creation by name */

const tutti_layer_type *tutti_layer_type_get(int index)
{
    if (index < 0) return NULL;
    for (int i = 0; tutti__layer_classes[i]; i++)
        if (i == index) return &tutti__layer_classes[i]->type;
    return NULL;
}

const tutti_layer_type *tutti_layer_type_of(const tutti_layer *layer)
{
    return layer ? &layer->class->type : NULL;
}

static tutti_status parse_choice(const char *words, const char *value, int *choice)
{
    size_t length = strlen(value);
    *choice = 0;
    for (const char *word = words;; (*choice)++) {
        size_t end = strcspn(word, "|");
        if (end == length && memcmp(word, value, length) == 0) return TUTTI_OK;
        if (!word[end]) return TUTTI_ERR_ARG;
        word += end + 1;
    }
}

static tutti_status parse_option(const tutti__layer_class *class, int index, const char *value,
                                 void *desc)
{
    const tutti_layer_option *option = &class->type.options[index];
    const tutti__option_place *place = &class->option_places[index];
    void *field = (char *)desc + place->offset;
    char *end;
    bool good = false;
    errno = 0;
    switch (place->kind) {
    case TUTTI__OPTION_INT64:
    case TUTTI__OPTION_INT32:
    case TUTTI__OPTION_BOOL: {
        long long number = strtoll(value, &end, 10);
        good = end != value && !*end && errno == 0;
        if (place->kind == TUTTI__OPTION_BOOL) good = good && (number == 0 || number == 1);
        if (place->kind == TUTTI__OPTION_INT32)
            good = good && number >= INT32_MIN && number <= INT32_MAX;
        if (place->kind == TUTTI__OPTION_INT64)
            *(int64_t *)field = number;
        else
            *(int *)field = (int)number;
        break;
    }
    case TUTTI__OPTION_REAL:
        *(double *)field = strtod(value, &end);
        good = end != value && !*end;
        break;
    case TUTTI__OPTION_CHOICE: {
        int choice;
        good = parse_choice(option->type, value, &choice) == TUTTI_OK;
        *(int *)field = choice;
        break;
    }
    case TUTTI__OPTION_DTYPE:
        good = tutti_dtype_parse(value, (tutti_dtype *)field) == TUTTI_OK;
        break;
    }
    TUTTI_REQUIRE(good, "%s: option %s is '%s', want %s", class->type.name, option->name, value,
                  place->kind == TUTTI__OPTION_DTYPE ? "f32, f64, f16 or bf16" : option->type);
    return TUTTI_OK;
}

/* "in, out": names for a message, one call a name. */
static void list_add(char *text, size_t size, const char *name)
{
    size_t used = strlen(text);
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
    char names[256] = "";
    for (int i = 0; tutti__layer_classes[i]; i++)
        list_add(names, sizeof names, tutti__layer_classes[i]->type.name);
    return tutti__fail(TUTTI_ERR_ARG,
                       "layer_create_by_name: there is no layer '%s', want one of %s", name, names);
}

/* "a=1,b=2" into the descriptor; text is cut up. */
static tutti_status parse_options(const tutti__layer_class *class, char *text, void *desc)
{
    uint64_t given = 0;
    for (char *rest = text, *item; (item = strsep(&rest, ",")) != NULL;) {
        if (!*item && !rest && item == text) break; /* no options */
        char *value = strchr(item, '=');
        TUTTI_REQUIRE(value, "%s: option '%s' has no value, want name=value", class->type.name,
                      item);
        *value++ = 0;
        int index = 0;
        while (index < class->type.option_count &&
               strcmp(class->type.options[index].name, item) != 0)
            index++;
        if (index == class->type.option_count) return unknown_option(class, item);
        TUTTI_REQUIRE(!(given >> index & 1), "%s: option %s is given twice", class->type.name,
                      item);
        given |= UINT64_C(1) << index;
        TUTTI_TRY(parse_option(class, index, value, desc));
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

    void *desc = malloc(class->desc_size);
    char *text = strdup(options ? options : "");
    tutti_status status;
    if (!desc || !text)
        status = tutti__fail(TUTTI_ERR_MEMORY, "layer_create_by_name: no memory");
    else {
        memcpy(desc, class->desc_default, class->desc_size);
        status = parse_options(class, text, desc);
        if (status == TUTTI_OK) status = class->create(ctx, desc, layer);
    }
    free(desc);
    free(text);
    return status;
}

/* Checks of tensors */

/* The leading dimensions 0 .. lead-1 as evenly spaced rows. */
static tutti_status collapse_rows(const tutti_tensor *tensor, const char *what, int lead,
                                  int64_t cols, int64_t *rows, int64_t *stride)
{
    *rows = 1;
    *stride = cols;
    for (int i = lead - 1; i >= 0; i--) {
        if (tensor->dims[i] != 1) {
            if (*rows == 1)
                *stride = tensor->strides[i];
            else
                TUTTI_REQUIRE(
                    *rows == 0 || tensor->dims[i] == 0 ||
                        (tensor->strides[i] % *rows == 0 && tensor->strides[i] / *rows == *stride),
                    "%s: rows are not evenly spaced: strides[%d] is %lld, want %lld "
                    "times %lld",
                    what, i, (long long)tensor->strides[i], (long long)*rows, (long long)*stride);
        }
        TUTTI_REQUIRE(tensor->dims[i] == 0 || *rows <= INT64_MAX / 16 / tensor->dims[i],
                      "%s: dims multiply beyond 2^59", what);
        *rows *= tensor->dims[i];
    }
    if (*rows == 0) *stride = cols;
    TUTTI_REQUIRE(*rows <= 1 || *stride >= cols, "%s: the row stride is %lld, want >= %lld", what,
                  (long long)*stride, (long long)cols);
    TUTTI_REQUIRE(*rows == 0 || *stride <= INT64_MAX / 16 / *rows,
                  "%s: the row stride is %lld, and %lld rows of it are beyond 2^59", what,
                  (long long)*stride, (long long)*rows);
    return TUTTI_OK;
}

static tutti_status wrong_columns(const tutti_tensor *tensor, const char *what, int64_t cols)
{
    char dims[128] = "";
    for (int i = 0; i < tensor->ndim; i++) {
        char dim[32];
        snprintf(dim, sizeof dim, "%lld", (long long)tensor->dims[i]);
        list_add(dims, sizeof dims, dim);
    }
    return tutti__fail(TUTTI_ERR_ARG, "%s is [%s], want last dims that multiply to %lld columns",
                       what, dims, (long long)cols);
}

tutti_status tutti__as_rows(const tutti_tensor *tensor, const char *what, tutti_dtype dtype,
                            int64_t cols, int64_t *rows, tutti__matrix *matrix)
{
    TUTTI_REQUIRE(tensor, "%s is NULL", what);
    TUTTI_REQUIRE(tensor->dtype == dtype, "%s is %s, want %s", what,
                  tutti_dtype_name(tensor->dtype), tutti_dtype_name(dtype));
    TUTTI_REQUIRE(tensor->ndim >= 1 && tensor->ndim <= TUTTI_MAX_DIMS,
                  "%s: ndim is %d, want 1 to %d", what, tensor->ndim, TUTTI_MAX_DIMS);
    for (int i = 0; i < tensor->ndim; i++)
        TUTTI_REQUIRE(tensor->dims[i] >= 0, "%s: dims[%d] is %lld, want >= 0", what, i,
                      (long long)tensor->dims[i]);
    /* the last dimensions that multiply to cols are a row */
    int lead = tensor->ndim;
    int64_t product = 1;
    while (lead > 0 && product < cols && product > 0) {
        lead--;
        TUTTI_REQUIRE(tensor->dims[lead] <= 1 || tensor->strides[lead] == product,
                      "%s: strides[%d] is %lld, but a row of %lld wants %lld", what, lead,
                      (long long)tensor->strides[lead], (long long)cols, (long long)product);
        if (tensor->dims[lead] > cols) break; /* and no overflow below */
        product *= tensor->dims[lead];
    }
    if (product != cols) return wrong_columns(tensor, what, cols);
    int64_t found, stride;
    TUTTI_TRY(collapse_rows(tensor, what, lead, cols, &found, &stride));
    if (*rows < 0)
        *rows = found;
    else
        TUTTI_REQUIRE(found == *rows, "%s has %lld rows, want %lld", what, (long long)found,
                      (long long)*rows);
    TUTTI_REQUIRE(tensor->data || found == 0, "%s: data is NULL", what);
    TUTTI_REQUIRE((uintptr_t)tensor->data % tutti_dtype_size(dtype) == 0,
                  "%s: data is not aligned to its elements", what);
    *matrix = (tutti__matrix){tensor->data, dtype, stride};
    return TUTTI_OK;
}

tutti_status tutti__as_rows_if(const tutti_tensor *tensor, const char *what, tutti_dtype dtype,
                               int64_t cols, int64_t *rows, tutti__matrix *matrix)
{
    *matrix = (tutti__matrix){NULL, dtype, cols};
    return tensor ? tutti__as_rows(tensor, what, dtype, cols, rows, matrix) : TUTTI_OK;
}

tutti_status tutti__check_apart(const tutti__matrix *a, const char *what_a, int64_t cols_a,
                                const tutti__matrix *b, const char *what_b, int64_t cols_b,
                                int64_t rows, bool equal_ok)
{
    if (!a->data || !b->data || rows == 0) return TUTTI_OK;
    size_t size_a = tutti_dtype_size(a->dtype), size_b = tutti_dtype_size(b->dtype);
    bool equal = a->data == b->data && size_a == size_b && (rows == 1 || a->stride == b->stride);
    if (equal && equal_ok) return TUTTI_OK;
    uintptr_t from_a = (uintptr_t)a->data, from_b = (uintptr_t)b->data;
    uintptr_t to_a = from_a + (size_t)((rows - 1) * a->stride + cols_a) * size_a;
    uintptr_t to_b = from_b + (size_t)((rows - 1) * b->stride + cols_b) * size_b;
    if (to_a <= from_b || to_b <= from_a) return TUTTI_OK;
    /* rows of one matrix may lie in the gaps of the other's, as slices of one tensor do */
    if (size_a == size_b && a->stride == b->stride) {
        uintptr_t step = (uintptr_t)a->stride * size_a;
        uintptr_t shift = (from_b >= from_a ? from_b - from_a : from_a - from_b) % step;
        uintptr_t first = (size_t)(from_b >= from_a ? cols_a : cols_b) * size_a;
        uintptr_t second = (size_t)(from_b >= from_a ? cols_b : cols_a) * size_a;
        if (shift >= first && shift + second <= step) return TUTTI_OK;
    }
    return tutti__fail(TUTTI_ERR_ARG, "%s and %s share memory", what_a, what_b);
}
